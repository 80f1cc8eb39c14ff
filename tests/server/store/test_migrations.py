"""An upgraded store equals a new store and keeps every count, or it is not changed at all."""

import datetime
import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import kills
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from boards import FLEET_KEYS, MASTER, ask_fleet, experiment
from command_line import runner
from postgres import is_part
from refusals import fails
from sqlalchemy import Engine, MetaData, create_engine, event, inspect, select

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store, StoreError, migrations, schema
from hushmote.server.store.check import check
from hushmote.server.store.database import Database
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys, report, topics

DATA = Path(__file__).parents[2] / "data"
REPORTS = dict.fromkeys(range(5, 14), 203)  # in a store of each version
NOW = datetime.datetime(2026, 11, 22, 8, tzinfo=datetime.UTC)


def dump(path, version=5):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / f"store_v{version}.sql").read_text())


@pytest.fixture(params=[*REPORTS])
def version(request):
    """Return an earlier schema version."""
    return request.param


# The steps from a later version are the last of these.
from_the_oldest = pytest.mark.parametrize("version", [schema.BASELINE], indirect=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request, tmp_path, version):
    """Return the URL of a store in the given version, with boards' reports."""
    dump(tmp_path / "old.sqlite")
    here = f"sqlite:///{tmp_path / 'old.sqlite'}"
    if request.param == "sqlite":
        step_up(here, version)
        yield here
        return
    url = request.getfixturevalue("postgres_url")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql((DATA / "schema_v5_postgresql.sql").read_text())
    metadata = MetaData()
    metadata.reflect(engine)
    source = create_engine(here)
    with engine.begin() as connection, source.connect() as dumped:
        for table in metadata.sorted_tables:
            if table.name != "schema_version" and not is_part(table.name):
                rows = dumped.execute(select(table)).mappings().all()
                connection.execute(table.insert(), [dict(row) for row in rows])
    source.dispose()
    engine.dispose()
    step_up(url, version)
    yield url


def step_up(url, version):
    """Upgrade a version 5 store in WAL mode to a later version by the steps alone."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        with closing(sqlite3.connect(str(engine.url.database))) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        for script in migrations.scripts(5):
            if int(script.revision) <= version:
                script.module.upgrade()
        connection.exec_driver_sql(f"UPDATE schema_version SET version = {version}")
    engine.dispose()


def content(url):
    """Return each table's column names and rows, in any version."""
    engine = create_engine(url)
    tables = {}
    with engine.connect() as connection:
        for name in inspect(connection).get_table_names():
            if not is_part(name):
                rows = connection.exec_driver_sql(f"SELECT * FROM {name}").mappings()
                tables[name] = set(rows.keys()), sorted((dict(row) for row in rows), key=repr)
    engine.dispose()
    return tables


def upgrade(url):
    Database(url, create=False, upgrade=True).close()


def described(url):
    """Return a database's schema from its catalogue, without white space."""
    engine = create_engine(url)
    with engine.connect() as connection:
        no_parts = {"include_name": lambda name, kind, _: kind != "table" or not is_part(name)}
        assert compare_metadata(MigrationContext.configure(connection, opts=no_parts), schema.metadata) == []
        if connection.dialect.name == "sqlite":
            queries = ["SELECT type, name, tbl_name, sql FROM sqlite_master"]
        else:
            queries = [
                "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable,"
                " column_default FROM information_schema.columns WHERE table_schema = 'public'",
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE connamespace = 'public'::regnamespace",
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
                "SELECT relname, pg_get_partkeydef(oid), pg_get_expr(relpartbound, oid), reloptions::text"
                " FROM pg_class WHERE relnamespace = 'public'::regnamespace",
            ]
        lines = [
            sorted(
                tuple(re.sub(r"\s+", " ", re.sub(r"\s+([,)])", r"\1", str(cell))).strip() for cell in row)
                for row in connection.exec_driver_sql(q)
            )
            for q in queries
        ]
    engine.dispose()
    return lines


# Schema version -> table -> columns that it added to existing tables.
NEW_COLUMNS = {
    6: {"dedupe": {"beyond"}},
    7: {"experiment": {"asked"}},
    8: {"experiment": {"keep", "erased"}},
    9: {},
    10: {"counting": {"clock"}, "experiment": {"signatures"}},
    11: {"experiment": {"worse"}, "histogram": {"group_index"}},
    12: {"experiment": {"day", "week"}},
    13: {"fleet": {"comparisons"}},
    14: {},
}
# Schema version -> new table -> its rows in a store that has just been upgraded.
NEW_TABLES = {8: {"erased": []}, 9: {"counting": [{"alive": None, "clock": None}], "interruption": []}}
NEW_TABLES[10] = {"erasure": [], "rewrite": [{"erasures": 0, "rewritten": 0}]}
NEW_TABLES[11] = {"release_plan": []}
NEW_TABLES[13] = {"alert": [], "alert_delivery": []}
NEW_TABLES[14] = {"log_entry": [], "log_checkpoint": [], "log_cosignature": []}


def killed_at(url, moment):
    """Upgrade in a child process that is killed at a statement; return whether it was killed."""

    def act(count):
        for name in kills.STATEMENTS:
            event.listen(Engine, name, count)
        upgrade(url)

    return kills.kill_at(moment, act)


class TestUpgrade:
    def test_keeps_all_and_makes_the_current_schema(self, old, version, tmp_path, request):
        before = content(old)
        for create in (True, False):
            with pytest.raises(
                StoreError,
                match=f"schema version {version}, but this Hushmote reads {schema.VERSION}: stop its agg",
            ):
                Store(old, create=create)
        assert content(old) == before
        upgrade(old)
        after = content(old)
        assert after.pop("schema_version")[1] == [{"version": schema.VERSION}]
        assert before.pop("schema_version")[1] == [{"version": version}]
        for step in range(version + 1, schema.VERSION + 1):
            for table, rows in NEW_TABLES.get(step, {}).items():
                assert after.pop(table)[1] == rows
        steps = (NEW_COLUMNS[step] for step in range(version + 1, schema.VERSION + 1))
        for table, added in (brought for step in steps for brought in step.items() if brought[0] in before):
            columns, rows = after[table]
            columns -= added
            for row in rows:
                for column in added:
                    del row[column]
            rows.sort(key=repr)
        assert after == before
        assert sum(row["count"] for row in after["histogram"][1]) == REPORTS[version]
        with Store(old, create=False) as store:
            for fleet in store.fleets():
                groups = store.group_reports(fleet).values()
                assert {index for windows in groups for n in windows.values() for index in n} <= {0}
            assert check(store).violations == ()
            assert check(store).reports == REPORTS[version]
        if old.startswith("sqlite"):
            new = f"sqlite:///{tmp_path / 'new.sqlite'}"
        else:
            postgres = request.getfixturevalue("postgres")
            new = postgres.url(postgres.create())
        Store(new).close()
        assert described(old) == described(new)

    @from_the_oldest
    def test_old_reports_stay_duplicates(self, old, version):
        upgrade(old)
        with Store(old, create=False) as store:
            fleets = ingest.fleets(store, FLEET_KEYS)
            experiments = {(v.fleet, v.experiment.name): v.experiment for v in store.experiments()}
            sent, fresh = [], []
            for fleet, keyed in store.fleets().items():
                for device, name, numbers in store.accepted_numbers(fleet):
                    key = keys.device_key(MASTER, fleet, device) if keyed else None
                    exp = experiments[fleet, name]
                    for number in range(1, 5):
                        payload = report.encode(exp, number, 0, device, key)
                        message = topics.report_topic(fleet, device), payload
                        (sent if number in numbers else fresh).append(message)
            assert len(sent) == REPORTS[version]
            assert len(fresh) > 20
            tally = ingest.ingest(store, sent, fleets, NOW)
            assert tally.accepted == 0
            assert (
                sum(n for (_, reason), n in tally.rejected.items() if reason == "duplicate")
                == REPORTS[version]
            )
            assert ingest.ingest(store, fresh + fresh, fleets, NOW).accepted == len(fresh)
            assert check(store).violations == ()
            assert check(store).reports == REPORTS[version] + len(fresh)
            assert {numbers for _, _, numbers in store.accepted_numbers("home")} == {NumberSet(4)}

    def test_has_a_step_for_each_version(self):
        revisions = [int(step.revision) for step in migrations.scripts(schema.BASELINE)]
        assert revisions == list(range(schema.BASELINE + 1, schema.VERSION + 1))
        assert migrations.scripts(schema.VERSION) == []

    @pytest.mark.slow
    @from_the_oldest
    def test_killed_at_any_statement_leaves_the_old_version(self, old):
        before = content(old)
        moment = 0
        while killed_at(old, moment):
            assert content(old) == before
            moment += 1
        assert moment > 4
        with Store(old, create=False) as store:
            assert check(store).violations == ()

    def test_running_aggregator_stops_counting(self, store_url):
        with Store(store_url) as running, Store(store_url) as other:
            exp = ask_fleet(running, "home", experiment())
            fleets = ingest.fleets(running)
            messages = [
                (topics.report_topic("home", "a"), report.encode(exp, number, 0)) for number in (1, 2)
            ]
            assert ingest.ingest(running, messages[:1], fleets, NOW).accepted == 1
            with other.writing() as connection:
                connection.execute(schema.schema_version.update().values(version=schema.VERSION + 1))
            with pytest.raises(
                StoreError,
                match=f"version {schema.VERSION + 1}, but this Hushmote reads {schema.VERSION}: use",
            ):
                ingest.ingest(running, messages, fleets, NOW)
            assert running.histogram("home", exp.digest).sum() == 1

    def test_leaves_a_store_before_the_baseline_alone(self, tmp_path):
        dump(tmp_path / "old.sqlite")
        with closing(sqlite3.connect(tmp_path / "old.sqlite")) as connection, connection:
            connection.execute("UPDATE schema_version SET version = 4")
        url = f"sqlite:///{tmp_path / 'old.sqlite'}"
        before = content(url)
        for opened in (lambda: upgrade(url), lambda: Store(url)):
            with pytest.raises(
                StoreError, match=r"schema version 4, .*: it can upgrade stores of version 5 or later"
            ):
                opened()
        assert content(url) == before

    @from_the_oldest
    def test_two_at_once_act_as_one(self, old, version):
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(upgrade, [old] * 3))
        with Store(old, create=False) as store:
            assert check(store).reports == REPORTS[version]

    def test_needs_the_owner_in_postgresql(self, postgres, postgres_url):
        name = postgres_url.rpartition("/")[2]
        for role in ("owner", "serve"):
            postgres.execute(f"CREATE ROLE {name}_{role} LOGIN", name)
        postgres.execute(f"GRANT CREATE ON SCHEMA public TO {name}_owner", name)
        owner, serve = (postgres.url(name, f"{name}_{role}") for role in ("owner", "serve"))
        try:
            engine = create_engine(owner)
            with engine.begin() as connection:
                connection.exec_driver_sql((DATA / "schema_v5_postgresql.sql").read_text())
                connection.exec_driver_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}_serve")
            engine.dispose()
            with fails("must be owner of table dedupe"):
                upgrade(serve)
            with pytest.raises(StoreError, match="schema version 5"):
                Store(serve)
            upgrade(owner)
            Store(owner).close()
        finally:
            for role in ("owner", "serve"):
                postgres.execute(f"DROP OWNED BY {name}_{role}; DROP ROLE {name}_{role}", name)

    def test_command_upgrades_once_and_only_stores(self, tmp_path, monkeypatch):
        dump(tmp_path / "v5.sqlite")
        run = runner("store", tmp_path, monkeypatch)
        assert "then `hushmote store upgrade sqlite:///v5.sqlite`" in run(
            "check", "sqlite:///v5.sqlite", expect=1
        )
        output = json.loads(run("upgrade", "sqlite:///v5.sqlite", "--json"))
        assert output == {"store": "v5.sqlite", "from": 5, "to": schema.VERSION}
        assert "nothing was changed" in run("upgrade", "sqlite:///v5.sqlite")
        assert "there is no store" in run("upgrade", "sqlite:///none.sqlite", expect=1)
        assert not (tmp_path / "none.sqlite").exists()
        with closing(sqlite3.connect(tmp_path / "v5.sqlite")) as connection, connection:
            connection.execute("UPDATE schema_version SET version = 99")
        assert "use the Hushmote that wrote it" in run("upgrade", "sqlite:///v5.sqlite", expect=1)
        with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE photographs (id INTEGER)")
        assert "another program's database" in run("upgrade", "sqlite:///other.sqlite", expect=1)
