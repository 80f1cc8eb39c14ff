"""No experiment is added while the clock cannot be right, unless an operator accepts the clock."""

import datetime
import json
import time

import pytest
from boards import ask_fleet, experiment, experiment_payload
from command_line import hushmote
from refusals import fails
from time_of_day import WRONG_CLOCKS, advance_clock, set_times

from hushmote.server.overview.fleets import overview
from hushmote.server.store import Store
from hushmote.server.store.counting import AHEAD, BEHIND, ClockWrong, check_clock, counting_minute
from hushmote.server.store.erase import erase
from hushmote.server.store.merge import merge

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
SECOND, MINUTE, DAY = (datetime.timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "days"))
LAST = counting_minute(NOON)


@pytest.fixture
def store(store_url):
    with Store(store_url) as store:
        ask_fleet(store, "home", experiment())
        yield store


def now():
    return datetime.datetime.now(datetime.UTC)


class TestRule:
    @pytest.mark.parametrize(
        "right", [-5 * MINUTE, -SECOND, 0 * DAY, 3 * DAY, 7 * DAY, 30 * DAY, 31 * DAY], ids=str
    )
    def test_small_gap_is_right(self, right):
        check_clock(NOON + right, LAST)

    @pytest.mark.parametrize("gap", [-5 * MINUTE - SECOND, -21 * DAY, -600 * DAY], ids=str)
    def test_clock_behind_is_wrong(self, gap):
        with pytest.raises(ClockWrong, match="behind the store's last time, 2026-11-21 12:00 UTC") as caught:
            check_clock(NOON + gap, LAST)
        assert caught.value.reason == BEHIND

    @pytest.mark.parametrize("gap", [31 * DAY + SECOND, 32 * DAY, 1600 * DAY], ids=str)
    def test_clock_far_ahead_waits(self, gap):
        with pytest.raises(ClockWrong, match="days after the last right time, 2026-11-21") as caught:
            check_clock(NOON + gap, LAST)
        assert caught.value.reason == AHEAD
        check_clock(NOON + gap, LAST, (NOON + gap).timestamp() - 40)  # the monotonic clock agrees

    def test_new_store_takes_any_plausible_clock(self):
        for year in (2025, 2026, 2055):
            check_clock(datetime.datetime(year, 7, 1, tzinfo=datetime.UTC), None)

    @pytest.mark.parametrize(
        ("year", "reason"), [(1970, BEHIND), (2024, BEHIND), (2056, AHEAD), (2106, AHEAD)]
    )
    def test_no_store_takes_another_clock(self, year, reason):
        at = datetime.datetime(year, 7, 1, tzinfo=datetime.UTC)
        for last in (None, int(at.timestamp())):
            with pytest.raises(ClockWrong) as caught:
                check_clock(at, last)
            assert caught.value.reason == reason

    def test_new_process_judges_by_the_monotonic_clock(self):
        with pytest.raises(ClockWrong, match="32 days after"):
            check_clock(NOON + 32 * DAY, None, NOON.timestamp())


class TestExperiments:
    def test_adding_and_withdrawing_set_the_time(self, store):
        assert 0 <= time.time() - store.last_time() < 120
        set_times(store, clock=now() - DAY)
        store.withdraw_experiment("home", "temp")
        assert 0 <= time.time() - store.last_time() < 120
        assert store.counting_time() is None

    @pytest.mark.parametrize("by", [-21 * DAY, -6 * MINUTE, 32 * DAY, 1800 * DAY, 29_000 * DAY], ids=str)
    def test_wrong_clock_changes_nothing(self, store, tmp_path, monkeypatch, by):
        with Store(f"sqlite:///{tmp_path / 'site.sqlite'}") as site:
            ask_fleet(site, "home", experiment(epsilon=500_000))  # a merge stops counting this version later
            store.add_experiment("home", experiment_payload(), now().date() + 7 * DAY)
            (version,), last = store.experiments(), store.last_time()
            advance_clock(monkeypatch, by)
            for change in (
                lambda: store.add_experiment("home", experiment_payload(epsilon=500_000)),
                lambda: store.withdraw_experiment("home", "temp"),
                lambda: store.renew_serial(version),
                lambda: merge(store, [site]),
                lambda: erase(store, "home", experiment="temp"),
                lambda: erase(store, "home"),
            ):
                with fails("the clock says", ClockWrong):
                    change()
        (after,) = store.experiments()
        assert (after.serial, after.current, after.counted_until) == (
            version.serial,
            True,
            version.counted_until,
        )
        assert store.last_time() == last

    @pytest.mark.parametrize("by", [-SECOND, 30 * DAY], ids=str)
    def test_small_gap_adds(self, store, monkeypatch, by):
        (before,), last = store.experiments(), store.last_time()
        advance_clock(monkeypatch, by)
        store.add_experiment("home", experiment_payload(epsilon=500_000))
        assert store.experiments()[1].serial >= before.serial + 2
        assert store.last_time() >= last

    def test_2106_uses_up_no_serial_of_a_new_store(self, store_url, monkeypatch):
        real = datetime.datetime
        with Store(store_url) as store:
            store.add_fleet("home", keyed=True)
            advance_clock(monkeypatch, 29_000 * DAY)
            with fails("clocks in 2056 or later are not accepted", ClockWrong):
                store.add_experiment("home", experiment_payload())
            monkeypatch.setattr(datetime, "datetime", real)
            store.add_experiment("home", experiment_payload())
            assert abs(store.experiments()[0].serial - time.time()) < 600


class TestAccept:
    def test_clock_ahead_keeps_the_interruption(self, store):
        set_times(store, alive=NOON - 40 * DAY)
        store.accept_clock(NOON)
        assert store.last_time() == LAST
        store.record_counting(NOON)
        assert len(store.interrupted_days()) == 41

    def test_clock_behind_lowers_both_times(self, store):
        set_times(store, alive=NOON + 90 * DAY, clock=NOON + 1600 * DAY)
        store.accept_clock(NOON + 10 * SECOND)
        assert store.last_time() == LAST
        assert store.counting_time() == NOON
        assert store.interrupted_days() == {NOON.date()}

    def test_recorded_minute_is_no_interruption(self, store):
        set_times(store, alive=NOON)
        store.accept_clock(NOON + 10 * SECOND)
        assert store.counting_time() == NOON
        assert store.interrupted_days() == frozenset()

    @pytest.mark.parametrize("year", [1970, 2106])
    def test_no_clock_that_cannot_be_right(self, store, year):
        last = store.last_time()
        with fails("the clock says", ClockWrong):
            store.accept_clock(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC))
        assert store.last_time() == last

    def test_merge_keeps_the_targets_time(self, store, tmp_path):
        with Store(f"sqlite:///{tmp_path / 'site.sqlite'}") as site:
            ask_fleet(site, "away", experiment())
            set_times(site, NOON + 300 * DAY, NOON + 300 * DAY)
            last = store.last_time()
            merge(store, [site])
        assert store.last_time() == last

    @pytest.mark.parametrize("value", ["'noon'", "-1", "1e300"])
    def test_damaged_time_is_one_line(self, tmp_path, value):
        with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            store.add_fleet("home", keyed=False)
            with store.writing() as connection:
                connection.exec_driver_sql(f"UPDATE counting SET alive = {value}")
            for use in (store.last_time, lambda: store.add_experiment("home", experiment_payload())):
                with fails("is damaged: the time at which counting worked is not"):
                    use()


@pytest.fixture
def run(store, tmp_path):
    """Run `hushmote` on the store."""

    def run(command, *arguments, expect=0):
        environment = {"HUSHMOTE_STORE": store.engine.url.render_as_string(hide_password=False)}
        return hushmote(command, *arguments, cwd=tmp_path, expect=expect, environment=environment)

    return run


class TestCommand:
    def test_shows_the_waiting_clock_and_accepts_it(self, store, run):
        assert "is plausible" in run("store", "clock")
        set_times(store, alive=now() - 40 * DAY)
        assert "40 days after the last right time" in run("store", "clock", expect=1)
        assert "Aggregators resume automatically." in run("store", "clock", "--accept")
        assert json.loads(run("store", "clock", "--json"))["fault"] is None

    def test_everything_shows_a_wrong_clock(self, store, run):
        assert json.loads(run("status", "--json"))["clock"] is None
        assert overview(store, now()).clock == ""
        for since, words in WRONG_CLOCKS:
            set_times(store, alive=now() - since)
            assert words in json.loads(run("status", "--json"))["clock"]
            assert words in " ".join(run("status").split())
            assert words in run("store", "clock", expect=1)
            assert words in overview(store, now()).clock
