"""The store keeps committed data, rejects contradictions, and reports a bad file in one line."""

import datetime
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import numpy as np
import pytest
from boards import ask_fleet, experiment_payload
from experiments import experiment_json
from filled_store import colliding, fill
from refusals import fails
from sqlalchemy import select
from time_of_day import advance_clock

from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Description, Store, StoreError, VersionRefused, schema
from hushmote.server.store.check import check
from hushmote.server.store.number_set import NumberSet
from hushmote.server.store.store import Participation
from hushmote.server.store.versions import row_of
from hushmote.server.wire.topics import NameRefused
from hushmote.simulator.broker import free_port


def url(tmp_path, name="store.sqlite"):
    return f"sqlite:///{tmp_path / name}"


@pytest.fixture
def store(store_url):
    with Store(store_url) as store:
        store.add_fleet("home", keyed=False)
        yield store


def add(store, counts, *, number_sets=None, rejects=None):
    with store.ingest() as transaction:
        transaction.write(number_sets or {}, counts, rejects or {})


class TestDescription:
    def test_stays_with_its_version_and_may_change(self, store):
        first_payload, other = experiment_payload(), experiment_payload(epsilon=500_000)
        words = Description("°C", "How warm?\nAnd when? [b]", "a@example.org")
        store.add_experiment("home", first_payload, description=words)
        store.add_experiment("home", other)
        assert [v.description for v in store.experiments()] == [words, Description()]
        changed = Description("°C", "How cold?", "b@example.org")
        store.add_experiment("home", first_payload, description=changed)
        (first, second) = store.experiments()
        assert (first.unit, first.purpose, first.owner) == ("°C", "How cold?", "b@example.org")
        assert (first.payload, first.current, second.current) == (first_payload, True, False)
        store.add_experiment("home", first_payload)  # without a new description, the existing one is kept
        assert [v.description for v in store.experiments()] == [changed, Description()]

    def test_non_text_metadata_is_damage(self, tmp_path):
        with Store(url(tmp_path)) as store:
            ask_fleet(store, "home", experiment_payload())
            with store.writing() as connection:
                connection.exec_driver_sql("UPDATE experiment SET owner = x'ff'")
            with fails("does not parse .*the unit, purpose, owner or question is not text"):
                store.experiments()


class TestUnit:
    """Boards never see the unit, so a version of the same digest would pool readings of two units."""

    CELSIUS, FAHRENHEIT = Description("°C"), Description("°F")

    @pytest.mark.parametrize("epsilon", [1_000_000, 500_000], ids=["same version", "another version"])
    def test_cannot_change_after_first_report(self, store, epsilon):
        store.add_experiment("home", experiment_payload(), description=self.CELSIUS)
        add(store, {(1, "all", 0, 0): 600})
        payload = experiment_payload(epsilon=epsilon)
        before = [row_of(v) for v in store.experiments()]
        hint = 'write unit = "°C", or take a new name'
        with pytest.raises(VersionRefused, match=f"temp has reports in °C, .* change to °F: {hint}"):
            store.add_experiment("home", payload, description=self.FAHRENHEIT)
        with pytest.raises(VersionRefused, match=f"temp has reports in °C, .* omitted: {hint}"):
            store.add_experiment("home", payload, description=Description())
        assert [row_of(v) for v in store.experiments()] == before
        store.add_experiment("home", payload, description=self.CELSIUS)
        other_name = experiment_payload(name="temp_f")
        store.add_experiment("home", other_name, description=self.FAHRENHEIT)

    def test_can_change_before_first_report(self, store):
        store.add_experiment("home", experiment_payload(), description=self.CELSIUS)
        store.add_experiment("home", experiment_payload(), description=self.FAHRENHEIT)
        assert [v.unit for v in store.experiments()] == ["°F"]

    def test_can_be_named_after_first_report(self, store):
        store.add_experiment("home", experiment_payload())
        add(store, {(1, "all", 0, 0): 600})
        store.add_experiment("home", experiment_payload(), description=self.CELSIUS)
        with pytest.raises(VersionRefused, match="temp has reports in °C"):
            store.add_experiment("home", experiment_payload(), description=self.FAHRENHEIT)

    def test_units_of_a_pair_cannot_change(self, store):
        parts = [{"name": name, "type": "number", "low": 0, "high": 8000, "bins": 2} for name in "ab"]
        pair = experiment_json(
            type="pair", of=parts, mechanism="grr", epsilon=1_000_000, budget={"rule": "unlimited"}
        )
        fill(store, "home", pair, {"2026-11-20": 10}, unit="a: °C, b: %")
        words = "has reports in a: °C, b: %, so the unit cannot change to a: °F, b: %: write the same units"
        with fails(words, VersionRefused):
            store.add_experiment("home", pair, description=Description("a: °F, b: %"))

    def test_older_version_cannot_return_in_its_own_unit(self, store):
        old, new = experiment_payload(), experiment_payload(epsilon=500_000)
        store.add_experiment("home", old, description=self.CELSIUS)
        store.add_experiment("home", new, description=self.FAHRENHEIT)
        add(store, {(2, "all", 0, 0): 600})
        with pytest.raises(VersionRefused, match="temp has reports in °F"):
            store.add_experiment("home", old, description=self.CELSIUS)

    def test_reports_in_erased_windows_keep_it(self, store):
        store.add_experiment("home", experiment_payload(), description=self.CELSIUS)
        with store.writing() as connection:
            connection.exec_driver_sql("UPDATE experiment SET erased = 600")
        with pytest.raises(VersionRefused, match="temp has reports in °C"):
            store.add_experiment("home", experiment_payload(), description=self.FAHRENHEIT)

    def test_waits_for_a_batch_that_is_being_counted(self, store_url):
        with Store(store_url) as store, Store(store_url) as other, ThreadPoolExecutor(1) as pool:
            store.add_fleet("home", keyed=False)
            store.add_experiment("home", experiment_payload(), description=self.CELSIUS)
            with store.ingest() as transaction:
                transaction.write({}, {(1, "all", 0, 0): 1}, {})
                change = pool.submit(
                    other.add_experiment, "home", experiment_payload(), description=self.FAHRENHEIT
                )
                assert not wait([change], 0.2).done
            with pytest.raises(VersionRefused, match="temp has reports in °C"):
                change.result()


class TestConcurrentAdditions:
    """The second analyst was not aware of the first one's change, and would undo it."""

    def test_second_author_is_told(self, store):
        base, mine, theirs = (experiment_payload(epsilon=n * 100_000) for n in (10, 5, 4))
        store.add_experiment("home", base)
        versions = store.experiments("home")
        store.add_version("home", theirs, description=Description(owner="anna"), expected=versions)
        with pytest.raises(VersionRefused, match=r"someone else changed temp .* of anna is current now"):
            store.add_version("home", mine, expected=versions)
        addition = store.add_version("home", mine, expected=store.experiments("home"))
        assert addition.kind == "new version"
        assert addition.previous is not None
        assert addition.previous.owner == "anna"

    def test_changed_words_are_a_change(self, store):
        store.add_experiment("home", experiment_payload(), description=Description("", "why"))
        with pytest.raises(VersionRefused, match="is current now"):
            store.add_version("home", experiment_payload(), description=Description("", "other"), expected=())

    def test_withdrawal_is_a_change(self, store):
        store.add_experiment("home", experiment_payload())
        versions = store.experiments()
        store.withdraw_experiment("home", "temp")
        with pytest.raises(VersionRefused, match="is withdrawn now"):
            store.add_version("home", experiment_payload(), expected=versions)

    def test_same_addition_twice_is_no_conflict(self, store):
        payload, words = experiment_payload(), Description("", "why", "anna")
        assert store.add_version("home", payload, description=words, expected=()).kind == "new experiment"
        assert store.add_version("home", payload, description=words, expected=()).kind == "unchanged"

    def test_new_serial_is_no_change(self, store):
        store.add_experiment("home", experiment_payload())
        (version,) = versions = store.experiments()
        store.renew_serial(version)
        other = experiment_payload(epsilon=500_000)
        assert store.add_version("home", other, expected=versions).kind == "new version"

    def test_one_of_two_at_once_is_told(self, store_url):
        payloads = [experiment_payload(epsilon=n * 100_000) for n in (5, 4)]
        with Store(store_url) as one, Store(store_url) as other, ThreadPoolExecutor(2) as pool:
            one.add_fleet("home", keyed=False)
            one.add_experiment("home", experiment_payload())
            versions = one.experiments()
            jobs = [
                pool.submit(store.add_version, "home", payload, expected=versions)
                for store, payload in zip((one, other), payloads, strict=True)
            ]
            errors = [job.exception() for job in jobs]
        assert sorted(isinstance(error, VersionRefused) for error in errors) == [False, True]


class TestFleets:
    def test_keep_their_kind(self, store):
        store.add_fleet("home", keyed=False)
        with pytest.raises(VersionRefused, match="fleet home is open"):
            store.add_fleet("home", keyed=True)
        with pytest.raises(VersionRefused, match="no fleet away"):
            store.add_experiment("away", experiment_payload())
        with pytest.raises(VersionRefused, match="not an experiment: epsilon"):
            store.add_experiment("home", experiment_payload(epsilon=1))
        with pytest.raises(NameRefused):
            store.add_fleet("No/Good", keyed=False)

    def test_allowed_and_revoked_devices_persist(self, store):
        store.add_fleet("away", keyed=True)
        store.allow_devices("home", ["b", "a", "b"])
        store.allow_devices("home", ["a"])
        store.revoke_devices("home", ["b", "never-heard-of"])
        assert store.roster("home") == {"a": "allowed", "b": "revoked", "never-heard-of": "revoked"}
        assert store.revoked_devices("home") == {"b", "never-heard-of"}
        assert store.revoked_devices("away") == frozenset()
        with fails("device b of fleet home is permanently revoked: prov", VersionRefused):
            store.allow_devices("home", ["new", "b"])
        store.revoke_devices("home", ["b"])
        assert store.roster("home") == {"a": "allowed", "b": "revoked", "never-heard-of": "revoked"}
        store.allow_devices("home", [])

    def test_devices_are_known_once_named_or_counted(self, store):
        store.add_fleet("lab", keyed=False)
        store.allow_devices("home", ["named"])
        number_sets = {("home", "temp", "heard"): NumberSet(1), ("lab", "temp", "elsewhere"): NumberSet(1)}
        add(store, {}, number_sets=number_sets)
        ids = [f"no-{n}" for n in range(1500)] + ["named", "heard", "elsewhere"]
        assert store.known_devices("home", ids) == {"named", "heard"}
        assert store.known_devices("home", []) == frozenset()

    def test_have_an_allow_list_only_on_request(self, store):
        store.add_fleet("away", keyed=True)
        assert store.listed_fleets() == frozenset()
        store.set_listed("away", True)
        assert store.listed_fleets() == {"away"}
        store.add_fleet("away", keyed=True)
        assert store.listed_fleets() == {"away"}
        store.set_listed("away", False)
        assert store.listed_fleets() == frozenset()

    def test_reject_unknown_names_and_invalid_ids(self, store):
        for change in (store.allow_devices, store.revoke_devices):
            with pytest.raises(VersionRefused, match="no fleet gone"):
                change("gone", ["a"])
            with pytest.raises(NameRefused):
                change("home", ["good", "No/Good"])
        with pytest.raises(VersionRefused, match="no fleet gone"):
            store.set_listed("gone", True)
        assert store.roster("home") == {}


class TestOpen:
    def test_folder_or_wrong_url_is_one_line(self, tmp_path):
        cases = [
            (url(tmp_path, "nowhere/store.sqlite"), "nowhere does not exist"),
            (f"sqlite:///{tmp_path}", "is a folder"),
            ("sqlite://", "write sqlite:///path"),
            ("store.sqlite", "write sqlite:///path"),
            ("mysql://host/x", "not mysql"),
            ("postgresql+psycopg2://host/x", r"write postgresql\+psycopg://"),
            (f"postgresql://127.0.0.1:{free_port()}/x", "[Cc]onnection refused"),
        ]
        for where, match in cases:
            with fails(match):
                Store(where)

    def test_missing_store_is_not_created_for_reading(self, store_url, tmp_path):
        with pytest.raises(StoreError, match="there is no store at"):
            Store(store_url, create=False)
        assert list(tmp_path.iterdir()) == []
        Store(store_url).close()
        Store(store_url, create=False).close()

    def test_non_database_file_is_left_alone(self, tmp_path):
        path = tmp_path / "store.sqlite"
        path.write_bytes(b"these are my holiday photographs" * 100)
        with fails("not a SQLite database"):
            Store(url(tmp_path))
        assert path.read_bytes() == b"these are my holiday photographs" * 100

    def test_another_programs_database_is_left_alone(self, tmp_path):
        with sqlite3.connect(tmp_path / "store.sqlite") as connection:
            connection.execute("CREATE TABLE photographs (id INTEGER)")
        with pytest.raises(StoreError, match="another program's database"):
            Store(url(tmp_path))
        with sqlite3.connect(tmp_path / "store.sqlite") as connection:
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        assert tables == [("photographs",)]

    def test_read_only_store_is_one_line(self, tmp_path):
        Store(url(tmp_path)).close()
        # The tests may run as root, who ignores file modes; SQLite's read-only mode applies to everyone.
        where = f"sqlite:///file:{tmp_path / 'store.sqlite'}?mode=ro&uri=true"
        with fails("it is read-only"):
            Store(where)
        with Store(where, create=False) as reader:
            assert reader.fleets() == {}
            with pytest.raises(StoreError, match="it is read-only"):
                reader.add_fleet("home", keyed=False)

    def test_reading_a_file_url_creates_no_file(self, tmp_path):
        where = f"sqlite:///file:{tmp_path}/my%20store.sqlite?uri=true"
        with fails("or missing file; make it writable or give another path"):
            Store(where, read_only=True)
        assert list(tmp_path.iterdir()) == []
        Store(where).close()
        with Store(where, read_only=True) as reader:
            assert reader.fleets() == {}
            assert [path.name for path in tmp_path.iterdir()] == ["my store.sqlite"]

    @pytest.mark.parametrize(
        ("rows", "versions"),
        [("", "none"), ("(5), (6)", "5, 6"), ("('ten')", "ten"), ("(0)", "0"), ("(-1)", "-1")],
    )
    def test_damaged_schema_version_is_one_line(self, tmp_path, rows, versions):
        Store(url(tmp_path)).close()
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection, connection:
            connection.execute("DELETE FROM schema_version")
            if rows:
                connection.execute(f"INSERT INTO schema_version VALUES {rows}")
        with fails(f"is damaged: its schema version is {versions}; restore a backup"):
            Store(url(tmp_path))

    @pytest.mark.parametrize(("read_only", "wait_ms"), [(False, 10_000), (True, 2_000)])
    def test_waits_for_a_lock_for_a_limited_time(self, tmp_path, read_only, wait_ms):
        with Store(url(tmp_path)) as created:
            created.add_fleet("home", keyed=False)
        with (
            Store(url(tmp_path), create=False, read_only=read_only) as opened,
            opened.engine.connect() as connection,
        ):
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == wait_ms

    def test_reader_lets_its_process_write_later(self, tmp_path):
        with Store(url(tmp_path)) as store:
            store.add_fleet("home", keyed=False)
            for end in ("", "-wal", "-shm"):  # as a crash leaves them
                shutil.copy(f"{store.where}{end}", tmp_path / f"left.sqlite{end}")
        left = url(tmp_path, "left.sqlite")
        with Store(left, read_only=True) as reader, reader.snapshot() as snapshot:
            assert snapshot.execute(select(schema.fleet.c.name)).all() == [("home",)]
            with Store(left) as writer:
                writer.add_fleet("away", keyed=False)
            assert list(reader.fleets()) == ["away", "home"]

    def test_reader_does_not_wait_for_a_writer(self, store, store_url):
        store.add_experiment("home", experiment_payload())
        with store.ingest() as transaction:
            transaction.write({}, {(1, "all", 0, 1): 1}, {})
            with Store(store_url, create=False) as reader:
                assert reader.rejects() == {}
                assert reader.participation("home") == {}


class TestCounts:
    def test_add_up_over_batches_windows_and_versions(self, store):
        first = store.add_experiment("home", experiment_payload())
        second = store.add_experiment("home", experiment_payload(epsilon=500_000))
        ids = {v.experiment.digest: v.id for v in store.experiments("home")}
        first_id, two = ids[first.digest], ids[second.digest]
        add(
            store,
            {
                (first_id, "2026-11-20", 0, 0): 2,
                (first_id, "2026-11-21", 0, 63): 1,
                (two, "2026-11-21", 0, 5): 7,
            },
        )
        add(store, {(first_id, "2026-11-20", 0, 0): 3})
        counts = store.histogram("home", first.digest)
        assert counts.dtype == np.int64
        assert counts.shape == (64,)
        assert (counts[0], counts[63], counts.sum()) == (5, 1, 6)
        assert store.histogram("home", first.digest, "2026-11-21").sum() == 1
        assert store.histogram("home", first.digest, "1999-01-01").sum() == 0
        assert store.windows("home", first.digest) == ("2026-11-20", "2026-11-21")
        assert store.histogram("home", second.digest)[5] == 7
        with pytest.raises(VersionRefused, match="no experiment with digest 00000000"):
            store.histogram("home", bytes(4))

    def test_survive_reopening(self, store_url):
        with Store(store_url) as store:
            exp = ask_fleet(store, "home", experiment_payload(), keyed=True)
            key = ("home", "temp", "k3")
            add(
                store,
                {(1, "all", 0, 1): 1},
                number_sets={key: NumberSet(2)},
                rejects={("home", "duplicate"): 4},
            )
        with Store(store_url, create=False) as store:
            assert store.fleets() == {"home": True}
            assert store.histogram("home", exp.digest)[1] == 1
            assert store.participation("home") == {"temp": Participation(devices=1, reports=2, most=2)}
            assert store.rejects() == {"home": {"duplicate": 4}}
            with store.ingest() as transaction:
                assert transaction.read_numbers([key, ("home", "temp", "new")])[key] == NumberSet(2)

    @pytest.mark.slow
    def test_large_batch_is_read_in_several_selects(self, store):
        ids = [f"d{i:04}" for i in range(8_001)]
        number_sets = {("home", "temp", device): NumberSet().add(i + 1) for i, device in enumerate(ids)}
        add(store, {}, number_sets=number_sets)
        store.allow_devices("home", ids[:-1])
        store.revoke_devices("home", ids[:1])
        with store.ingest() as transaction:
            assert transaction.read_numbers(number_sets) == number_sets
            assert transaction.allowed_devices("home", ids) == set(ids[1:-1])

    @pytest.mark.slow
    def test_two_writers_wait_for_each_other(self, store_url):
        stores = [Store(store_url) for _ in range(2)]
        exp = ask_fleet(stores[0], "home", experiment_payload())
        key = ("home", "temp", "k3")

        def work(store, numbers):
            for number in numbers:
                with store.ingest() as transaction:
                    number_set = transaction.read_numbers([key])[key]
                    transaction.write({key: number_set.add(number)}, {(1, "all", 0, 0): 1}, {})

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, stores, (range(1, 201, 2), range(2, 201, 2))))
        assert stores[0].histogram("home", exp.digest)[0] == 200
        assert stores[1].participation("home")["temp"].reports == 200
        for s in stores:
            s.close()

    def test_40_000_alternating_numbers_take_16_4_kb(self, store):
        key = ("home", "temp", "k3")
        store.add_experiment("home", experiment_payload())
        numbers = NumberSet()
        for number in range(1, 80_000, 2):
            numbers = numbers.add(number)
        add(store, {(1, "all", 0, 0): 40_000}, number_sets={key: numbers})
        with store.engine.connect() as connection:
            row = connection.execute(schema.dedupe.select()).mappings().one()
        assert (row["numbers"], len(row["beyond"]), row["accepted"]) == ("1-1", 16_408, 40_000)
        with store.ingest() as transaction:
            assert transaction.read_numbers([key]) == {key: numbers}
        assert [result for _, _, result in store.accepted_numbers("home")] == [numbers]


class TestVersions:
    def test_newest_is_current_and_an_old_one_can_return(self, store):
        old, new = experiment_payload(), experiment_payload(epsilon=500_000)
        store.add_experiment("home", old)
        store.add_experiment("home", new)
        assert [v.current for v in store.experiments("home")] == [False, True]
        store.add_experiment("home", old)
        assert [(v.payload, v.current) for v in store.experiments("home")] == [(old, True), (new, False)]
        store.withdraw_experiment("home", "temp")
        assert [v.current for v in store.experiments()] == [False, False]
        with pytest.raises(VersionRefused, match="no experiment door"):
            store.withdraw_experiment("home", "door")

    def test_cap_may_fall_but_never_exceed_the_first(self, store):
        for cap in (4_000_000, 1_000_000, 3_000_000, 4_000_000):
            store.add_experiment("home", experiment_payload(budget={"rule": "sum", "cap": cap}))
        before = [(v.payload, v.current) for v in store.experiments("home")]
        with fails("cap above its first", VersionRefused):
            store.add_experiment("home", experiment_payload(budget={"rule": "sum", "cap": 4_000_001}))
        assert [(v.payload, v.current) for v in store.experiments("home")] == before
        ask_fleet(store, "away", experiment_payload(budget={"rule": "sum", "cap": 5_000_000}))

    @pytest.mark.slow
    def test_shared_digest_is_rejected(self, store):
        first, second = colliding()
        assert Experiment.parse(first).digest == Experiment.parse(second).digest
        store.add_experiment("home", first)
        with pytest.raises(VersionRefused, match="is taken by another version"):
            store.add_experiment("home", second)

    def test_count_thirty_days_longer_than_published(self, store):
        old, new = experiment_payload(), experiment_payload(epsilon=500_000)
        today = datetime.datetime.now(datetime.UTC).date()
        last = today + datetime.timedelta(400)

        def days():
            return [v.counted_until and (v.counted_until - today).days for v in store.experiments("home")]

        store.add_experiment("home", old, last)
        assert days() == [430]
        assert store.experiments()[0].expires == last
        store.add_experiment("home", old)
        assert days() == [None]
        assert store.experiments()[0].expires is None
        store.add_experiment("home", new, grace_days=5)
        assert days() == [4, None]  # today is the first of the five
        store.withdraw_experiment("home", "temp")
        assert days() == [4, 29]
        store.add_experiment("home", old, datetime.date.max)
        assert days() == [(datetime.date.max - today).days, 29]
        # The label document, the page and the gauges show no end.
        assert store.experiments()[0].expires is None
        store.withdraw_experiment("home", "temp", grace_days=0)
        assert days() == [-1, -1]

    def test_serials_grow_and_follow_the_clock(self, store, monkeypatch):
        store.add_fleet("away", keyed=True)
        began = int(time.time())
        old = store.add_experiment("home", experiment_payload())
        store.add_experiment("home", experiment_payload(epsilon=500_000))
        store.add_experiment("home", experiment_payload(name="door"))
        store.add_experiment("away", experiment_payload())
        store.add_experiment("home", experiment_payload())  # the first is current again
        result = {(v.experiment.name, v.experiment.epsilon): v for v in store.experiments("home")}
        same, half, door = result["temp", 1_000_000], result["temp", 500_000], result["door", 1_000_000]
        assert same.experiment.digest == old.digest
        assert began <= same.first_serial < half.serial < door.serial < same.serial
        assert half.first_serial == half.serial
        assert (same.current, half.current, door.current) == (True, False, True)
        advance_clock(monkeypatch, datetime.timedelta(minutes=-3))  # a clock that was set back
        store.renew_serial(same)
        (renewed,) = (v for v in store.experiments("home") if v.id == same.id)
        assert renewed.serial == same.serial + 2  # the serial between belongs to its withdrawal
        store.renew_serial(same)  # another process was faster
        store.renew_serial(half)  # not published
        serials = {v.id: v.serial for v in store.experiments("home")}
        assert serials == {same.id: renewed.serial, half.id: half.serial, door.id: door.serial}
        with store.writing() as connection:
            connection.execute(schema.fleet.update().values(serial=2**32 - 3))
        # None left for the withdrawal.
        with pytest.raises(StoreError, match="used up the serials of fleet home"):
            store.renew_serial(renewed)
        assert check(store).violations == ()

    def test_concurrent_renewals_change_a_serial_once(self, store_url):
        with Store(store_url) as store:
            ask_fleet(store, "home", experiment_payload(), keyed=True)
            (version,) = store.experiments("home")
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(store.renew_serial, [version] * 6))
            (renewed,) = store.experiments("home")
            assert renewed.serial > version.serial
            serials = select(schema.fleet.c.serial)
            with store.reading() as connection:
                assert connection.scalar(serials) == renewed.serial
