"""A selection of one value of the open group has that value's reports and nothing else."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from boards import experiment_payload
from filled_store import write
from refusals import fails

from hushmote.server.answers.daily import series_of
from hushmote.server.answers.query import Facts, check_apart
from hushmote.server.answers.question import Selection
from hushmote.server.answers.result_cache import ResultCache
from hushmote.server.errors import UsageError
from hushmote.server.store import Store

AT = datetime.datetime(2026, 11, 24, 12, tzinfo=datetime.UTC)
DAYS = ("2026-11-21", "2026-11-22", "2026-11-23")


def firmware_payload(*groups: str, group: str = "firmware", epsilon: int = 1_000_000) -> bytes:
    every = [1] * (len(groups) + 1)
    return experiment_payload(name="crash", group=group, groups=groups, every=every, epsilon=epsilon)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Provide a store with reports to a version without a group and to two with different values."""
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        store.add_fleet("home", keyed=False)
        for payload, counts_by_group in (
            (experiment_payload(name="crash"), {0: {(DAYS[0], 3): 100}}),
            (firmware_payload("2.3.1", "2.4.0"), {0: {(DAYS[0], 3): 70}, 1: {(DAYS[1], 9): 60}, 2: {}}),
            (firmware_payload("2.4.0", "2.5.0"), {0: {(DAYS[1], 9): 50}, 2: {(DAYS[1], 3): 55}}),
        ):
            exp = store.add_experiment("home", payload)
            for group, counts in counts_by_group.items():
                write(store, "home", exp, counts, group=group)
        yield store


def selection(group: str = "", windows: tuple[str, ...] = ()) -> Selection:
    return Selection("crash", "home", windows, group=group)


class TestSelectedGroup:
    def test_pools_versions_by_the_values_name(self, store: Store):
        facts = Facts(store, AT)
        assert facts.selected(selection("2.4.0")).reports == 110
        assert facts.selected(selection("2.3.1")).reports == 70
        assert facts.selected(selection("2.5.0")).reports == 0
        assert facts.selected(selection("other")).reports == 55
        assert facts.selected(selection()).reports == 335

    def test_estimates_are_of_the_group(self, store: Store):
        cache = ResultCache()
        for _ in range(2):  # the second time from the cache
            facts = Facts(store, AT, cache)
            for group, windows, code in (("2.4.0", (), 9), ("2.3.1", (), 3), ("2.4.0", DAYS[1:2], 9)):
                estimates = facts.selected(selection(group, windows)).estimate()
                assert estimates.frequencies.argmax() == code

    def test_cache_tells_equal_numbers_of_reports_apart(self, tmp_path: Path):
        with Store(f"sqlite:///{tmp_path / 'same.sqlite'}") as store:
            store.add_fleet("home", keyed=False)
            exp = store.add_experiment("home", firmware_payload("1", "2"))
            for group, code in ((0, 3), (1, 9)):
                write(store, "home", exp, {(DAYS[0], code): 50}, group=group)
            facts = Facts(store, AT)
            shares = [facts.selected(selection(group)).estimate().frequencies for group in ("1", "2")]
        assert [share.argmax() for share in shares] == [3, 9]

    def test_days_are_of_the_group(self, tmp_path: Path):
        days = tuple((AT.date() - datetime.timedelta(days=ago)).isoformat() for ago in range(40, 0, -1))
        with Store(f"sqlite:///{tmp_path / 'days.sqlite'}") as store:
            store.add_fleet("home", keyed=False)
            exp = store.add_experiment("home", firmware_payload("1", "2"))
            for group, code in ((0, 3), (1, 9)):
                write(store, "home", exp, {(day, code): 50 for day in days}, group=group)
            series = series_of(Facts(store, AT).selected(selection("2")))
        assert series is not None
        (part,) = series.counts.versions
        assert set(part.code.tolist()) == {9}
        assert part.count.sum() == 50 * 39  # the first day is partial

    def test_reports_of_all_groups_whatever_is_selected(self, store: Store):
        expected = {
            DAYS[0]: {"2.3.1": 70},
            DAYS[1]: {"2.4.0": 110, "other": 55},
        }
        facts = Facts(store, AT)
        assert facts.selected(selection()).group_reports == expected
        assert facts.selected(selection("2.4.0")).group_reports == expected
        assert facts.selected(selection("2.4.0", DAYS[1:])).group_reports == {DAYS[1]: expected[DAYS[1]]}

    def test_lists_the_newest_versions_values_first(self, store: Store):
        selected = Facts(store, AT).selected(selection())
        assert selected.group_name == "firmware"
        assert selected.group_values == ("2.4.0", "2.5.0", "2.3.1", "other")

    def test_group_with_another_name_adds_nothing(self, store: Store):
        exp = store.add_experiment("home", firmware_payload("2.4.0", group="model", epsilon=500_000))
        write(store, "home", exp, {(DAYS[2], 1): 40})
        selected = Facts(store, AT).selected(selection("2.4.0"))
        assert (selected.group_name, selected.reports) == ("model", 40)
        assert selected.group_reports == {DAYS[2]: {"2.4.0": 40}}

    def test_refuses_an_unknown_value(self, store: Store):
        facts = Facts(store, AT)
        with fails(
            r"no value 2\.6\.0 in group firmware of crash; its values: 2\.4\.0, 2\.5\.0, 2\.3\.1, other",
            UsageError,
        ):
            facts.selected(selection("2.6.0"))
        first = store.experiments("home")[0].experiment.digest.hex()
        with fails("crash has no open group; omit group", UsageError):
            facts.selected(Selection("crash", "home", version=first, group="2.4.0"))

    def test_two_groups_are_apart_and_all_overlap_each(self, store: Store):
        facts = Facts(store, AT)
        old, new, every = (facts.selected(selection(group)).sources for group in ("2.3.1", "2.4.0", ""))
        check_apart(old, new)
        for part in (old, new):
            with fails("would be on both sides", UsageError):
                check_apart(part, every)
