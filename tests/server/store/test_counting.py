"""The store records when counting last worked, and the days on which it was interrupted."""

import datetime
import functools
import sqlite3
import threading
from contextlib import closing

import pytest
from boards import ask_fleet, experiment
from refusals import fails
from traffic import counted_reports, crowd

from hushmote.server.ingest.pipeline import fleets, ingest
from hushmote.server.store import Store
from hushmote.server.store.backup import backup
from hushmote.server.store.check import check
from hushmote.server.store.counting import MAX_DAYS, days_between
from hushmote.server.store.database import OtherSchema
from hushmote.server.store.erase import erase
from hushmote.server.store.merge import merge

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
MINUTE, HOUR, DAY = (datetime.timedelta(**{unit: 1}) for unit in ("minutes", "hours", "days"))
date = datetime.date


def days(*numbers: int) -> frozenset[date]:
    """Return days of November 2026."""
    return frozenset(date(2026, 11, number) for number in numbers)


@pytest.fixture
def store(store_url):
    with Store(store_url) as store:
        ask_fleet(store, "open", experiment())
        yield store


def interrupt(store, first, last):
    """Record that counting worked at these two times but not between them."""
    for time in (first, last):
        store.record_counting(time)


class TestCountingTime:
    def test_new_store_has_not_counted(self, store):
        assert store.counting_time() is None
        assert store.interrupted_days() == frozenset()

    def test_is_the_minute_of_the_last_record(self, store):
        for seconds in (5, 59, 61):
            store.record_counting(NOON + datetime.timedelta(seconds=seconds))
        assert store.counting_time() == NOON + MINUTE

    def test_is_utc_whatever_the_clocks_zone(self, store):
        zone = datetime.timezone(datetime.timedelta(hours=9))
        store.record_counting(NOON.astimezone(zone))
        assert store.counting_time() == NOON

    def test_clock_that_moves_back_changes_nothing(self, store):
        interrupt(store, NOON, NOON - 3 * DAY)
        assert store.counting_time() == NOON
        assert store.interrupted_days() == frozenset()
        store.record_counting(NOON + HOUR)
        assert store.interrupted_days() == frozenset()


class TestInterruptedDays:
    @pytest.mark.parametrize("gap", [MINUTE, 50 * MINUTE, HOUR], ids=["minute", "50 minutes", "hour"])
    def test_gap_of_up_to_an_hour_is_not_an_interruption(self, store, gap):
        interrupt(store, NOON, NOON + gap)
        assert store.interrupted_days() == frozenset()

    def test_longer_gap_within_a_day_is_that_day(self, store):
        interrupt(store, NOON, NOON + HOUR + MINUTE)
        assert store.interrupted_days() == days(21)

    def test_two_hours_over_midnight_are_two_days(self, store):
        interrupt(store, NOON + 11 * HOUR, NOON + 13 * HOUR)
        assert store.interrupted_days() == days(21, 22)

    def test_several_days_include_the_first_and_the_last(self, store):
        interrupt(store, NOON, NOON + 3 * DAY)
        interrupt(store, NOON + 3 * DAY + HOUR, NOON + 4 * DAY)
        assert store.interrupted_days() == days(21, 22, 23, 24, 25)

    def test_jump_of_years_records_its_newest_days(self, store):
        end = NOON + 3000 * DAY
        interrupt(store, NOON, end)
        expected = {end.date() - i * DAY for i in range(MAX_DAYS)}
        assert store.interrupted_days() == expected

    def test_dates_follow_the_calendar(self):
        start, end = (
            int(datetime.datetime(2028, *day, tzinfo=datetime.UTC).timestamp()) for day in ((2, 28), (3, 1))
        )
        assert days_between(start, end) == ["2028-02-28", "2028-02-29", "2028-03-01"]
        assert days_between(start, end - 1) == ["2028-02-28", "2028-02-29"]

    def test_reading_needs_no_right_to_write(self, store, store_url):
        interrupt(store, NOON, NOON + 2 * HOUR)
        with Store(store_url, read_only=True) as reader:
            assert reader.interrupted_days() == days(21)
            assert reader.counting_time() == NOON + 2 * HOUR
            with fails("read-only|readonly"):
                reader.record_counting(NOON + DAY)

    def test_older_store_cannot_be_read_before_its_upgrade(self, store, store_url):
        with store.writing() as connection:
            tables = "interruption", "counting", "erasure", "rewrite", "release_plan", "histogram"
            new = "alert", "alert_delivery", "log_cosignature", "log_checkpoint", "log_entry"
            for table in (*tables, *new):
                connection.exec_driver_sql(f"DROP TABLE {table}")
            for column in ("signatures", "worse", "day", "week"):
                connection.exec_driver_sql(f"ALTER TABLE experiment DROP COLUMN {column}")
            connection.exec_driver_sql("ALTER TABLE fleet DROP COLUMN comparisons")
            connection.exec_driver_sql(
                'CREATE TABLE histogram (experiment INTEGER NOT NULL, "window" VARCHAR(13) NOT NULL, '
                'code INTEGER NOT NULL, count BIGINT NOT NULL, PRIMARY KEY (experiment, "window", code))'
            )
            connection.exec_driver_sql("UPDATE schema_version SET version = 8")
        with pytest.raises(OtherSchema):
            Store(store_url, read_only=True)
        Store(store_url, create=False, upgrade=True).close()
        assert store.interrupted_days() == frozenset()


class TestBatch:
    """The time is recorded in a batch's transaction and cannot make it fail."""

    @pytest.fixture
    def take(self, store):
        return functools.partial(ingest, store, fleets=fleets(store), record_time=True)

    def test_records_the_time_and_the_days(self, store, take):
        messages, _ = crowd(20)
        take(messages[:10], now=NOON)
        assert store.counting_time() == NOON
        take(messages[10:], now=NOON + DAY)
        assert (store.counting_time(), store.interrupted_days()) == (NOON + DAY, days(21, 22))

    def test_records_nothing_unless_told_to(self, store):
        ingest(store, crowd(5)[0], fleets(store), NOON)
        assert store.counting_time() is None

    def test_is_undone_with_its_time(self, store):
        def fail_at_the_end():
            with store.ingest() as transaction:
                transaction.record_time(NOON + DAY)
                raise ZeroDivisionError

        store.record_counting(NOON)
        with pytest.raises(ZeroDivisionError):
            fail_at_the_end()
        assert store.counting_time() == NOON
        assert store.interrupted_days() == frozenset()

    def test_counts_where_the_days_cannot_be_written(self, store, take, caplog):
        store.record_counting(NOON)
        with store.writing() as connection:
            connection.exec_driver_sql("DROP TABLE interruption")
        assert take(crowd(10)[0], now=NOON + DAY).accepted == 10
        assert counted_reports(store) == 10
        assert store.counting_time() == NOON
        assert "the time at which counting works cannot be recorded" in caplog.text

    def test_counts_where_the_time_is_damaged(self, tmp_path, caplog):
        with Store(f"sqlite:///{tmp_path / 'damaged.sqlite'}") as store:
            ask_fleet(store, "open", experiment())
            with store.writing() as connection:
                connection.exec_driver_sql("UPDATE counting SET alive = 'noon'")
            tally = ingest(store, crowd(10)[0], fleets(store), NOON, record_time=True)
            assert (tally.accepted, counted_reports(store)) == (10, 10)
            assert "`hushmote store check`" in caplog.text
            with fails("is damaged"):
                store.record_counting(NOON)

    def test_fails_where_sqlite_rolls_all_of_it_back(self, tmp_path):
        trigger = "CREATE TRIGGER full BEFORE UPDATE ON counting BEGIN SELECT RAISE(ROLLBACK, 'disk'); END"
        with Store(f"sqlite:///{tmp_path / 'full.sqlite'}") as store:
            ask_fleet(store, "open", experiment())
            with store.writing() as connection:
                connection.exec_driver_sql(trigger)
            messages, _ = crowd(10)
            with fails("no such savepoint"):
                ingest(store, messages, fleets(store), NOON, record_time=True)
            assert counted_reports(store) == 0
            with store.writing() as connection:
                connection.exec_driver_sql("DROP TRIGGER full")
            assert ingest(store, messages, fleets(store), NOON, record_time=True).accepted == 10


class TestPostgresql:
    def test_counts_without_the_right_to_record(self, postgres, postgres_url, caplog):
        name = postgres_url.rpartition("/")[2]
        role = f"{name}_serve"
        with Store(postgres_url) as owner:
            ask_fleet(owner, "open", experiment())
            postgres.execute(f"CREATE ROLE {role} LOGIN", name)
            postgres.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}", name)
            postgres.execute(f"REVOKE ALL ON interruption, counting FROM {role}", name)
            try:
                with Store(postgres.url(name, role), create=False) as store:
                    tally = ingest(store, crowd(10)[0], fleets(store), NOON, record_time=True)
                    assert (tally.accepted, counted_reports(store)) == (10, 10)
            finally:
                postgres.execute(f"DROP OWNED BY {role}; DROP ROLE {role}", name)
            assert owner.counting_time() is None
        assert "permission denied for table counting" in caplog.text

    def test_connection_lost_during_a_batch_counts_nothing(self, postgres_url):
        with Store(postgres_url) as store:
            ask_fleet(store, "open", experiment())
            with store.writing() as connection:
                connection.exec_driver_sql(
                    "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                    " PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
                )
                connection.exec_driver_sql(
                    "CREATE TRIGGER cut BEFORE UPDATE ON counting FOR EACH ROW EXECUTE FUNCTION cut()"
                )
            with fails("terminating connection|server closed|rolled back"):
                ingest(store, crowd(10)[0], fleets(store), NOON, record_time=True)
            assert counted_reports(store) == 0

    def test_does_not_wait_for_another_recorder(self, postgres_url):
        with Store(postgres_url) as store, Store(postgres_url) as other:
            ask_fleet(store, "open", experiment())
            store.record_counting(NOON)
            with other.ingest() as transaction:
                transaction.record_time(NOON + DAY)
                recorded = threading.Thread(target=store.record_counting, args=(NOON + DAY,))
                recorded.start()
                recorded.join(20)
                assert not recorded.is_alive()
                assert store.counting_time() == NOON
            assert store.counting_time() == NOON + DAY
            assert store.interrupted_days() == days(21, 22)


class TestWholeStore:
    @pytest.fixture
    def site(self, tmp_path):
        with Store(f"sqlite:///{tmp_path / 'site.sqlite'}") as site:
            ask_fleet(site, "open", experiment())
            yield site

    def test_merge_unites_the_days_and_keeps_the_time(self, store, site):
        interrupt(store, NOON, NOON + DAY)
        interrupt(site, NOON + DAY, NOON + 2 * DAY)
        merge(store, [site], dry_run=True)
        assert store.interrupted_days() == days(21, 22)
        merge(store, [site])
        assert store.interrupted_days() == days(21, 22, 23)
        assert store.counting_time() == NOON + DAY
        assert site.interrupted_days() == days(22, 23)

    def test_backup_has_days_and_time(self, site, tmp_path):
        interrupt(site, NOON, NOON + DAY)
        backup(f"sqlite:///{tmp_path / 'site.sqlite'}", tmp_path / "copy.sqlite")
        with Store(f"sqlite:///{tmp_path / 'copy.sqlite'}", read_only=True) as copy:
            assert copy.interrupted_days() == days(21, 22)
            assert copy.counting_time() == NOON + DAY

    def test_erasing_a_fleet_keeps_days_and_time(self, store):
        interrupt(store, NOON, NOON + DAY)
        store.withdraw_experiment("open", "temp", grace_days=0)
        erase(store, "open")
        assert store.interrupted_days() == days(21, 22)
        assert store.counting_time() == NOON + DAY
        assert check(store).violations == ()

    def test_check_names_damaged_days_and_times(self, site, tmp_path):
        interrupt(site, NOON, NOON + DAY)
        assert check(site).violations == ()
        site.close()
        with closing(sqlite3.connect(tmp_path / "site.sqlite")) as connection, connection:
            connection.execute("UPDATE interruption SET day = '2026-02-30' WHERE day = '2026-11-21'")
            connection.execute("UPDATE interruption SET day = '20261122' WHERE day = '2026-11-22'")
            connection.execute("UPDATE counting SET alive = -1, clock = 1.5")
            connection.execute("INSERT INTO counting VALUES (NULL, NULL)")
        assert check(site).violations == (
            "the time at which counting last worked must be one unix time, not -1, None",
            "the time against which clocks are checked must be one unix time, not 1.5, None",
            "interrupted days that are not dates such as 2026-11-21: 2",
        )
        with fails("is damaged"):
            site.interrupted_days()
