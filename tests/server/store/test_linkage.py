"""Information about devices that the live databases reveal after real boards reported.

The schema only tells which devices took part and how often; PostgreSQL's own columns tell more.
"""

import datetime
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from boards import FLEET_KEYS, MASTER, experiment, payload_of, reports
from postgres import is_part
from sqlalchemy import MetaData, create_engine, inspect, select, types

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics

NOW = datetime.datetime(2026, 11, 21, 14, 53, 27, tzinfo=datetime.UTC)
DAY = experiment()
HOUR = experiment(name="door", window="hour", group="firmware", groups=["2.3.1", "2.4.0"], every=[1, 1, 1])
DEVICES = [f"board-{i}" for i in range(40)]
DOCS = Path(__file__).parents[3] / "docs" / "store.md"

# No table may store a device's answer, group, time or address.
REVEALING = re.compile("code|group|value|reading|window|count|time|date|expires|address|topic|payload|digest")
SERIALS = {("fleet", "serial"), ("experiment", "serial"), ("experiment", "first_serial")}
COUNTING = ("counting", "alive")  # the store's last minute of counting
CLOCK = ("counting", "clock")  # the minute in which an experiment was added
FINER_THAN_AN_HOUR = re.compile(r"\d{1,2}:\d\d|T\d\d\d")


def messages(devices=DEVICES, numbers=(1, 2)):
    """Return real boards' reports to two experiments of a keyed fleet, in the order of the devices."""
    messages_so_far = []
    for i, device in enumerate(devices):
        key = keys.device_key(MASTER, "home", device)
        groups = {"firmware": HOUR.groups[i % 2]}
        for exp in (DAY, HOUR):
            sent = reports(device, exp, max(numbers), key=key, value=21.5, groups=groups)
            messages_so_far += [(topics.report_topic("home", device), sent[n - 1]) for n in numbers]
    return messages_so_far


def filled(url, batches):
    store = Store(url)
    store.add_fleet("home", keyed=True)
    store.set_listed("home", True)
    store.allow_devices("home", DEVICES)
    for exp in (DAY, HOUR):
        store.add_experiment("home", payload_of(exp))
    fleets = ingest.fleets(store, FLEET_KEYS)
    for batch in batches:
        ingest.ingest(store, batch, fleets, NOW, record_time=True)
    return store


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def catalogue(request, tmp_path_factory):
    """Return the tables and rows in the database itself, after reports of all kinds."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.sqlite'}"
    if request.param == "postgresql":
        postgres = request.getfixturevalue("postgres")
        url = postgres.url(postgres.create())
    all_of_them = messages()
    stranger = (topics.report_topic("home", "stranger"), all_of_them[0][1])
    with filled(url, [all_of_them[:70], [*all_of_them[60:], stranger, ("x", b"no")]]) as store:
        assert store.histogram("home", DAY.digest).sum() == 80
        assert store.rejects()["home"]["duplicate"] == 10
    engine = create_engine(url)
    metadata = MetaData()
    metadata.reflect(engine)
    for table in [t for t in metadata.sorted_tables if is_part(t.name)]:
        assert table.columns.keys() == metadata.tables["dedupe"].columns.keys()
        metadata.remove(table)
    with engine.connect() as connection:
        rows = {
            t.name: [dict(row) for row in connection.execute(select(t)).mappings()]
            for t in metadata.sorted_tables
        }
        assert not inspect(connection).get_view_names()
    engine.dispose()
    return metadata.tables, rows


class TestTables:
    def test_no_device_beside_value_time_or_address(self, catalogue):
        tables, _ = catalogue
        with_device = {name for name, t in tables.items() if "device" in t.columns}
        assert with_device == {"dedupe", "device", "erasure"}
        for name in with_device:
            assert not [c.name for c in tables[name].columns if REVEALING.search(c.name)]

    def test_group_is_only_in_the_counts(self, catalogue):
        tables, rows = catalogue
        assert {name for name, t in tables.items() if "group_index" in t.columns} == {"histogram"}
        counts = {(row["experiment"], row["group_index"]): 0 for row in rows["histogram"]}
        for row in rows["histogram"]:
            counts[row["experiment"], row["group_index"]] += row["count"]
        assert counts == {(1, 0): 80, (2, 0): 40, (2, 1): 40}
        assert not any("2.4.0" in str(row) for name in ("dedupe", "device", "erased") for row in rows[name])

    def test_device_id_is_only_in_its_own_columns(self, catalogue):
        _, rows = catalogue
        assert {row["device"] for row in rows["dedupe"]} == set(DEVICES)
        for name, records in rows.items():
            for row in records:
                for column, cell in row.items():
                    text = cell.decode("latin-1") if isinstance(cell, bytes) else str(cell)
                    if column != "device":
                        assert "board-" not in text, (name, column)
                    assert "stranger" not in text, (name, column)

    def test_no_time_is_finer_than_the_window(self, catalogue):
        tables, rows = catalogue
        for table in tables.values():
            for column in table.columns:
                assert not isinstance(column.type, types.DateTime | types.Date | types.Time | types.Interval)
        assert {(row["experiment"], row["window"]) for row in rows["histogram"]} == {
            (1, "2026-11-21"),
            (2, "2026-11-21T14"),
        }
        for name, records in rows.items():
            for row in records:
                for column, cell in row.items():
                    assert not FINER_THAN_AN_HOUR.search(str(cell)), (name, column)
                    # Nor seconds since an epoch: the stored numbers are counts, codes and ids. Only an
                    # experiment's serials are: the moments of its publication, not of a board's report.
                    if (name, column) == COUNTING:
                        assert len(records) == 1
                        assert cell == NOW.replace(second=0).timestamp()
                    elif (name, column) == CLOCK:
                        assert cell % 60 == 0
                    elif (name, column) not in SERIALS:
                        assert not (isinstance(cell, int) and cell > 1 << 30), (name, column)

    def test_documents_list_every_table_and_column(self, catalogue):
        tables, _ = catalogue
        listed = {}
        for line in DOCS.read_text().splitlines():
            if match := re.match(r"\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", line):
                listed[match[1]] = set(re.findall(r"`(\w+)`", match[2]))
        assert listed == {name: set(t.columns.keys()) for name, t in tables.items()}

    def test_dedupe_row_holds_only_the_number_of_reports(self, catalogue):
        _, rows = catalogue
        assert {(row["numbers"], row["accepted"]) for row in rows["dedupe"]} == {("1-2", 2)}


# Order of arrival


@pytest.fixture
def one_second(monkeypatch):
    """Stop the clock, because an experiment's serial is the second in which it was added."""
    then = datetime.datetime.fromtimestamp(1_790_000_000, datetime.UTC)
    clock = type("Stopped", (datetime.datetime,), {"now": staticmethod(lambda _=None: then)})
    monkeypatch.setattr(datetime, "datetime", clock)


class TestSqlite:
    def test_keeps_no_row_ids_for_devices_or_counts(self, tmp_path):
        path = tmp_path / "store.sqlite"
        filled(f"sqlite:///{path}", [messages()]).close()
        with closing(sqlite3.connect(path)) as connection:
            for table in ("dedupe", "device", "histogram", "reject"):
                with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
                    connection.execute(f"SELECT rowid FROM {table}")

    def test_file_is_independent_of_order_within_a_batch(self, tmp_path, one_second):
        batch = messages()
        for name, order in (("one", batch), ("other", batch[::-1])):
            filled(f"sqlite:///{tmp_path / name}", [order]).close()
            assert [p.name for p in tmp_path.glob(f"{name}*")] == [name]  # the journal is gone after closing
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()

    def test_vacuumed_file_is_independent_of_batch_order(self, tmp_path, one_second):
        batch = messages([f"{i}-{'x' * 25}" for i in range(300)], (1,))
        batches = [batch[i : i + 100] for i in range(0, len(batch), 100)]
        files = []
        for name, order in (("one", batches), ("other", batches[::-1])):
            store = filled(f"sqlite:///{tmp_path / name}", [])
            store.set_listed("home", False)
            fleets = ingest.fleets(store, FLEET_KEYS)
            for each in order:
                assert ingest.ingest(store, each, fleets, NOW).accepted == 100
            store.close()
            before = (tmp_path / name).read_bytes()
            with closing(sqlite3.connect(tmp_path / name)) as connection:
                connection.execute("VACUUM")
            files.append((before, (tmp_path / name).read_bytes()))
        # Before it, the pages' order in the file is the order in which they were split off.
        assert files[0][0] != files[1][0]
        assert files[0][1] == files[1][1]

    def test_journal_holds_the_last_batches_until_closed(self, tmp_path):
        path, journal = tmp_path / "store.sqlite", tmp_path / "store.sqlite-wal"
        store = filled(f"sqlite:///{path}", [messages(DEVICES[:1]), messages(DEVICES[1:2])])
        assert journal.read_bytes().count(b"board-1") >= 1
        store.close()
        assert not journal.exists()


LINKED = """
SELECT d.device, h.code FROM dedupe d JOIN histogram h ON d.xmin = h.xmin WHERE h.experiment = 1
"""


def linked(store):
    """Return the (device, code) pairs that one transaction wrote last, as a reader sees them."""
    with store.engine.connect() as connection:
        return {(device, code) for device, code in connection.exec_driver_sql(LINKED)}


def code(payload):
    return int.from_bytes(report.decode(payload).code, "big")


class TestPostgresql:
    def test_system_columns_link_devices_of_a_batch_to_codes(self, postgres_url):
        # No schema can hide this from a database reader, so batches never have a single report.
        first_batch, *rest = [[m] for m in messages(DEVICES[:1], (1,))[:1]], messages(DEVICES[1:31], (1,))
        batch = [m for m in rest[0] if report.decode(m[1]).digest == DAY.digest]
        with filled(postgres_url, first_batch) as store:
            sent = code(first_batch[0][0][1])
            assert linked(store) == {("board-0", sent)}  # in a batch of one report, the link is certain
            ingest.ingest(store, batch, ingest.fleets(store, FLEET_KEYS), NOW)
            codes = {code(payload) for _, payload in batch}
            pairs = linked(store)
            # In a batch of thirty, any device may have sent any code.
            assert {pair for pair in pairs if pair[0] != "board-0"} == {
                (d, c) for d in DEVICES[1:31] for c in codes
            }
            assert len(codes) > 10  # thirty boards give ten or fewer of 64 codes with probability below 1e-12

    def test_rows_are_in_order_of_first_report(self, postgres_url):
        # At least three in a partition, whose order is not by chance: the devices are the same each time.
        devices = [f"d{i:02}" for i in range(40, 0, -1)]
        batches = [messages(devices[i::4], (1,)) for i in range(4)]
        with filled(postgres_url, []) as store:
            store.set_listed("home", False)
            for batch in batches:
                ingest.ingest(store, batch, ingest.fleets(store, FLEET_KEYS), NOW)
            query = "SELECT tableoid, device FROM dedupe WHERE experiment = 'temp' ORDER BY tableoid, ctid"

            def order():
                with store.engine.connect() as connection:
                    return connection.exec_driver_sql(query).all()

            assert len(order()) == 40
            assert order() != sorted(order())
            with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("CLUSTER dedupe USING dedupe_pkey")
            assert order() == sorted(order())
            assert linked(store)  # which does not change the transaction ids

    @pytest.mark.parametrize(
        ("statement", "keeps"),
        [
            ("VACUUM (FREEZE) {}", True),
            ("VACUUM (FULL, FREEZE) {}", True),
            ("CLUSTER {0} USING {0}_pkey", True),
            ("UPDATE {} SET experiment = experiment", False),
        ],
    )
    def test_only_rewriting_every_row_unlinks_them(self, postgres_url, statement, keeps):
        with filled(postgres_url, [[m] for m in messages(DEVICES[:5], (1,))]) as store:
            before = linked(store)
            assert before
            with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                for table in ("dedupe", "histogram"):
                    connection.exec_driver_sql(statement.format(table))
            assert (linked(store) == before) == keeps
