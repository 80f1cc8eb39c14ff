"""Merged stores equal one aggregator that counted everything; inexact additions change nothing."""

import datetime
import functools
import json
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from boards import experiment, experiment_payload, payload_of, reports
from command_line import hushmote
from filled_store import colliding
from postgres import Cluster, fresh_database
from running_aggregator import HANGS_S
from sqlalchemy import NullPool, create_engine, event, select

from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Selection
from hushmote.server.budgets import remaining
from hushmote.server.estimate import estimate
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.overview.fleets import overview
from hushmote.server.store import Description, Store, StoreError, schema
from hushmote.server.store.check import check
from hushmote.server.store.erase import expire
from hushmote.server.store.merge import MergeRefused, merge
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import report, topics

DAYS = [datetime.datetime(2026, 11, day, 14, tzinfo=datetime.UTC) for day in (20, 21)]
LAST = datetime.date(2027, 12, 31)
TEMP = (experiment_payload(),)


class Sites:
    """Stores by name: files in one folder, or databases of one PostgreSQL."""

    def __init__(self, folder: Path, stack: ExitStack, postgres: Cluster | None = None) -> None:
        self.folder, self._stack, self._postgres = folder, stack, postgres
        self._databases: dict[str, str] = {}

    def url(self, name: str) -> str:
        if self._postgres is None:
            return f"sqlite:///{self.folder / name}.sqlite"
        if name not in self._databases:
            self._databases[name] = self._stack.enter_context(fresh_database(self._postgres))
        return self._databases[name]

    def open(self, name: str, *, fleet: str = "home", keyed: bool = False, payloads=TEMP):
        store = self._stack.enter_context(Store(self.url(name)))
        store.add_fleet(fleet, keyed=keyed)
        for payload in payloads:
            store.add_experiment(fleet, payload, LAST)
        return store

    def at(self, name: str) -> str:
        """Return a pattern for the end of a store's name in messages."""
        return re.escape(Path(self.url(name)).name)

    def content(self, name: str) -> dict[str, list[dict]]:
        """Return every row of every table."""
        return content(create_engine(self.url(name), poolclass=NullPool))

    def damage(self, name: str, statement: str) -> None:
        """Change rows in a way that a store never does."""
        with create_engine(self.url(name), poolclass=NullPool).begin() as connection:
            connection.exec_driver_sql(statement)


def content(engine):
    with engine.connect() as connection:
        return {
            t.name: sorted((dict(r) for r in connection.execute(select(t)).mappings()), key=repr)
            for t in schema.metadata.sorted_tables
        }


@pytest.fixture
def sites(request, tmp_path):
    in_postgres = getattr(request, "param", "sqlite") == "postgresql"
    with ExitStack() as stack:
        yield Sites(tmp_path, stack, request.getfixturevalue("postgres") if in_postgres else None)


# Tests that depend on a database's locks, inserts and rollbacks.
in_both = pytest.mark.parametrize("sites", ["sqlite", "postgresql"], indirect=True)


def take(store, messages, now=DAYS[0], fleet="home"):
    messages = [(topics.report_topic(fleet, device), payload) for device, payload in messages]
    return ingest.ingest(store, messages, ingest.fleets(store, names=[fleet]), now)


def report_messages(device, exp, numbers=frozenset(range(1, 5))):
    """Return a real board's reports with these report numbers."""
    return [(device, payload) for n, payload in enumerate(reports(device, exp, 4), 1) if n in numbers]


def table(store, name):
    """Return a store's rows without its row ids."""
    ids = {v.id: v.experiment.digest for v in store.experiments()}
    with store.engine.connect() as connection:
        rows = [dict(row._mapping) for row in connection.exec_driver_sql(f"SELECT * FROM {name}")]
    for row in rows:
        for column in ("id", "serial", "first_serial"):  # these depend on the creation time
            row.pop(column, None)
        if name == "histogram":
            row["experiment"] = ids[row["experiment"]]
    return sorted(rows, key=repr)


def _expired_window(store, run):
    due = expire(store, DAYS[0] + datetime.timedelta(days=9))
    return due and due[1]


def _overview(store, run):
    ((line,),) = (fleet.experiments for fleet in overview(store, DAYS[0]).fleets)
    return line.keep, line.purpose, line.unit, line.state


def _selected(store, run):
    selected = Facts(store).selected(Selection("temp", "home"))
    return selected.newest.experiment.epsilon, selected.unit, selected.estimate().experiment.epsilon


def _budget(store, run):
    (line,) = remaining.read(store, "home", DAYS[0].date()).budgets
    return line.experiment.epsilon, line.state


def _next_expiries(store, run):
    lines = json.loads(run("status", "--json"))["experiments"]
    return {window for line in lines for window in line["overdue"] or [line["erased_next"]]}


def _purpose(store, run):
    return run("experiment", "list").splitlines()[-1]


def _belief(store, run):
    return re.findall(r"10% to at most (\d+%)", " ".join(run("epsilon", "--prior", "temp@").split()))


# For each reader of a store: a function of the store and the command line, and what it reads of temp.
CURRENT_VERSION_READERS = {
    "expiry": (_expired_window, "2026-11-20"),
    "overview": (_overview, ("1d", "now", "°C", "current")),
    "answers": (_selected, (500_000, "°C", 500_000)),
    "budget": (_budget, (500_000, "current")),
    "status": (_next_expiries, {"2026-11-20"}),
    "list": (_purpose, "temp of home: now (a)"),
    "epsilon": (_belief, ["16%"]),
}


def assert_refused(into, *sources, match, error: type[Exception] = MergeRefused):
    before = [content(s.engine) for s in (into, *sources)]
    for dry_run in (True, False):
        with pytest.raises(error, match=match) as caught:
            merge(into, sources, dry_run=dry_run)
        assert "\n" not in str(caught.value)
        assert before == [content(s.engine) for s in (into, *sources)]
    return str(caught.value)


class TestRefusal:
    @in_both
    def test_reports_counted_twice_are_rejected_with_their_number(self, sites):
        exp = experiment()
        a, b = sites.open("a"), sites.open("b")
        first, two = report_messages("one", exp), report_messages("two", exp)
        take(a, first[:3] + two[:1])
        take(b, first[1:] + two[1:])
        text = assert_refused(a, b, match="the same 2 reports of 1 device to temp in fleet home")
        assert str(a.where) in text
        c = sites.open("c", payloads=())
        merged = merge(c, [b])
        assert [(x.versions, x.reports, x.devices) for x in merged.experiments] == [(1, 6, 2)]
        assert_refused(c, b, match="the same 6 reports of 2 devices")

    def test_overlapping_sources_are_both_rejected(self, sites):
        exp = experiment()
        a, b, c = (sites.open(name) for name in "abc")
        take(b, report_messages("one", exp))
        take(c, report_messages("one", exp, frozenset({4})) + report_messages("other", exp))
        assert_refused(a, b, c, match="the same 1 report of 1 device")

    @pytest.mark.parametrize("epsilon", [1_000_000, 500_000], ids=["same version", "another version"])
    def test_reports_in_different_units(self, sites, epsilon):
        a, b, empty = (sites.open(name, payloads=()) for name in ("a", "b", "empty"))
        payload = experiment_payload(epsilon=epsilon)
        a.add_experiment("home", TEMP[0], LAST, description=Description("°C"))
        b.add_experiment("home", payload, LAST, description=Description("°F"))
        empty.add_experiment("home", TEMP[0], LAST)
        take(b, report_messages("one", experiment(epsilon=epsilon)))
        assert_refused(a, b, match="temp of fleet home has the unit °C in .*a.* and °F in .*b")
        assert_refused(b, a, match="temp of fleet home has the unit °F in .*b.* and °C in .*a")
        merge(empty, [b])
        assert {v.unit for v in empty.experiments()} - {""} == {"°F"}

    def test_open_and_keyed_fleet_of_one_name(self, sites):
        assert_refused(
            sites.open("a"), sites.open("b", keyed=True), match=f"home is open in .*{sites.at('a')} and"
        )

    def test_fleet_with_an_allow_list_in_one_store_only(self, sites):
        a, b = sites.open("a"), sites.open("b")
        b.set_listed("home", True)
        assert_refused(
            a, b, match=f"home is for any device in .*{sites.at('a')} and for devices on its allow-list in"
        )
        c = sites.open("c", fleet="away")
        merge(c, [b])
        assert c.listed_fleets() == {"home"}

    def test_version_that_raises_a_total(self, sites):
        more = experiment_payload(budget={"rule": "sum", "cap": 5_000_000})
        less, other = (
            sites.open("less"),
            sites.open("other", payloads=[experiment_payload(budget={"rule": "unlimited"})]),
        )
        high = sites.open("high", payloads=[more])
        assert_refused(less, high, match="cap above its first cap, 4: lower")
        assert_refused(less, other, match="budget rule sum, which cannot change")
        assert merge(high, [less]).experiments[0].versions == 1  # the cap was lowered

    @pytest.mark.slow
    def test_one_digest_of_two_versions(self, sites):
        a, b = (sites.open(name, payloads=[payload]) for name, payload in zip("ab", colliding(), strict=True))
        digest = a.experiments()[0].experiment.digest.hex()
        assert_refused(a, b, match=f"digest {digest} of fleet home is temp in")

    def test_counts_without_dedupe_sets(self, sites):
        a, b = sites.open("a"), sites.open("b")
        with b.ingest() as transaction:
            transaction.write({}, {(1, "2026-11-21", 0, 5): 3}, {})
        target = sites.at("b")
        assert_refused(
            a, b, match=f"{target} counts 3 reports to temp in fleet home but has the numbers of 0"
        )
        c = sites.open("c")
        with c.ingest() as transaction:
            transaction.write({("home", "temp", "d"): NumberSet().add(1)}, {}, {})
        assert_refused(a, c, match="counts 0 reports to temp in fleet home but has the numbers of 1")
        assert_refused(b, a, match=f"{target} counts 3 reports")

    @in_both
    def test_store_merged_with_itself(self, sites):
        a, b = sites.open("a"), sites.open("b")
        other_url = sites.url("a") + "?application_name=other"
        if "sqlite" in other_url:
            (sites.folder / "link.sqlite").symlink_to(sites.folder / "a.sqlite")
            other_url = sites.url("link")
        with Store(other_url) as link:
            for sources in ([a], [link], [b, b]):
                with pytest.raises(MergeRefused, match="given twice"):
                    merge(a, sources)

    def test_damaged_dedupe_rows(self, sites):
        exp = experiment()
        a, b = sites.open("a"), sites.open("b")
        take(b, report_messages("one", exp))
        sites.damage("b", "UPDATE dedupe SET numbers = '1-3'")
        assert_refused(a, b, match=f"{sites.at('b')} is damaged", error=StoreError)
        take(a, report_messages("one", exp))
        sites.damage("b", "UPDATE dedupe SET numbers = '1-4'")
        sites.damage("a", "UPDATE dedupe SET numbers = 'x'")
        assert_refused(a, b, match=f"{sites.at('a')} is damaged", error=StoreError)

    def test_late_numbers_that_may_have_been_counted(self, sites):
        exp = experiment(name="free", budget={"rule": "unlimited"})
        a, b = (sites.open(name, payloads=[payload_of(exp)]) for name in "ab")
        far = [n * 1_000_000 for n in range(1, 601)]  # more than a set can hold

        def sent(numbers):
            return [("a", report.encode(exp, n, 0)) for n in numbers]

        take(a, sent(far))
        take(b, sent([far[0] + 7]))  # which store a would have rejected
        assert_refused(a, b, match="counted the same 1 report of 1 device")
        c = sites.open("c", payloads=[payload_of(exp)])
        take(c, sent([far[-1] + 7]))
        merge(a, [c])
        assert check(a).violations == ()
        assert a.participation("home")["free"].reports == 601


def two_sites(sites):
    exp = experiment()
    a = sites.open("a", payloads=())
    b, c = sites.open("b"), sites.open("c", fleet="away")
    take(b, [*report_messages("one", exp), ("x", b"no")])
    take(c, report_messages("two", exp), fleet="away")
    return a, b, c


KILLED = """
import os, signal, sys
from sqlalchemy import event
from hushmote.server.store.check import check
from hushmote.server.store.merge import merge
from hushmote.server.store import Store
into, *sources = [Store(url) for url in sys.argv[1:]]
def kill(connection, cursor, statement, *_):
    if statement.startswith("INSERT INTO reject"):
        os.kill(os.getpid(), signal.SIGKILL)
event.listen(into.engine, "after_cursor_execute", kill)
merge(into, sources)
"""


class TestCrash:
    @pytest.mark.slow
    @in_both
    def test_error_at_any_statement_changes_nothing(self, sites):
        a, *sources = two_sites(sites)
        before = sites.content("a")
        remaining_statements = 0

        def fail(*_):
            nonlocal remaining_statements
            remaining_statements -= 1
            if remaining_statements < 0:
                raise RuntimeError

        event.listen(a.engine, "before_cursor_execute", fail)
        failures = 0
        for failures in range(200):
            remaining_statements = failures
            try:
                merge(a, sources)
                break
            except RuntimeError:
                assert sites.content("a") == before
        assert failures > 15  # each statement failed once
        assert sites.content("a") != before

    @pytest.mark.slow
    def test_kill_changes_nothing(self, sites):
        a, *sources = two_sites(sites)
        before = sites.content("a")
        urls = [sites.url(name) for name in "abc"]
        process = subprocess.run([sys.executable, "-c", KILLED, *urls], timeout=HANGS_S, check=False)
        assert process.returncode == -signal.SIGKILL
        assert sites.content("a") == before
        assert len(merge(a, sources).experiments) == 2


class TestMerge:
    @pytest.mark.slow
    @in_both
    def test_equals_one_aggregator_that_counted_everything(self, sites):
        exp, later = experiment(), experiment(epsilon=500_000)
        rng = np.random.default_rng(1)
        payloads = [payload_of(exp), payload_of(later)]
        expected, *parts = (sites.open(name, payloads=payloads) for name in ("whole", "a", "b", "c"))
        for now in DAYS:
            sent = [[("x", b"not a report")] * 2 for _ in parts]
            for device in range(6):
                # A travelling board: each of its reports reaches one of three sites. Some arrive twice.
                version = exp if device % 2 else later
                for message in report_messages(f"{now.day}-{device}", version):
                    sent[rng.integers(3)] += [message] * (1 + rng.integers(2))
            for site, messages in zip(parts, sent, strict=True):
                take(site, messages, now)
                take(expected, messages, now)
        into, *sources = parts
        before = [sites.content(name) for name in "abc"]
        shares: list[float] = []
        outcome = merge(into, sources, dry_run=True, advance=shares.append)
        assert sum(shares) == pytest.approx(1)
        assert [sites.content(name) for name in "abc"] == before
        had = into.participation("home")["temp"]
        assert merge(into, sources) == outcome
        for name in ("fleet", "device", "experiment", "histogram", "dedupe", "reject"):
            assert table(into, name) == table(expected, name), name
        (line,) = outcome.experiments
        now_has = into.participation("home")["temp"]
        assert (line.versions, line.reports, line.devices) == (
            0,
            now_has.reports - had.reports,
            now_has.devices - had.devices,
        )
        assert outcome.rejects == sum(sum(store.rejects()["home"].values()) for store in sources)
        for e in (exp, later):
            (first, other) = (
                estimate(e, s.histogram("home", e.digest)).frequencies for s in (into, expected)
            )
            np.testing.assert_array_equal(first, other)
        assert [sites.content(name) for name in "bc"] == before[1:]

    @pytest.mark.slow
    def test_same_numbers_of_other_names_are_other_reports(self, sites):
        exp, door = experiment(), experiment(name="door")
        a = sites.open("a")
        b = sites.open("b", payloads=[payload_of(door)])
        c = sites.open("c", fleet="away")
        take(a, report_messages("one", exp))
        take(b, report_messages("one", door))
        take(c, report_messages("one", exp), fleet="away")
        added = merge(a, [b, c])
        assert added.fleets == ("away",)
        assert [(x.fleet, x.experiment, x.reports) for x in added.experiments] == [
            ("away", "temp", 4),
            ("home", "door", 4),
        ]
        assert {v.fleet for v in a.experiments()} == {"home", "away"}

    @in_both
    def test_revocation_wins_over_the_allow_list(self, sites):
        a, b, c = (sites.open(name) for name in "abc")
        a.allow_devices("home", ["x", "y"])
        a.revoke_devices("home", ["z"])
        b.allow_devices("home", ["z", "v"])
        b.revoke_devices("home", ["x"])
        c.revoke_devices("home", ["x", "w"])
        outcome = merge(a, [b, c])
        assert a.roster("home") == {
            "v": "allowed",
            "w": "revoked",
            "x": "revoked",
            "y": "allowed",
            "z": "revoked",
        }
        assert (outcome.named, outcome.revoked) == (2, 2)
        assert b.roster("home") == {"v": "allowed", "x": "revoked", "z": "allowed"}

    def test_adds_a_file_to_postgresql(self, tmp_path, postgres_url):
        exp = experiment()
        with ExitStack() as stack:
            site = Sites(tmp_path, stack).open("site")
            take(site, report_messages("one", exp))
            main = stack.enter_context(Store(postgres_url))
            assert [x.reports for x in merge(main, [site]).experiments] == [4]
            np.testing.assert_array_equal(
                main.histogram("home", exp.digest), site.histogram("home", exp.digest)
            )
            assert table(main, "dedupe") == table(site, "dedupe")

    def test_keeps_the_targets_publications(self, sites):
        old, new = experiment_payload(), experiment_payload(epsilon=500_000)
        door, other = experiment_payload(name="door"), experiment_payload(name="gone")
        a = sites.open("a", payloads=[new])
        b = sites.open("b", payloads=[new, old, door, other])
        b.withdraw_experiment("home", "gone")
        added = merge(a, [b])
        assert {(v.payload, v.current, v.expires) for v in a.experiments()} == {
            (new, True, LAST),
            (old, False, LAST),
            (door, True, LAST),
            (other, False, LAST),
        }
        # Late reports of the replaced version count as after a withdrawal in the same store.
        ends = {v.payload: v.counted_until for store in (a, b) for v in store.experiments() if not v.current}
        assert ends[old] == ends[other]
        assert [x.experiment for x in added.experiments if x.kept] == ["temp"]
        b.add_experiment("home", door, None)
        assert [x.experiment for x in merge(a, [b]).experiments if x.kept] == ["door", "temp"]
        assert {v.expires for v in a.experiments()} == {LAST}

    def test_new_names_stay_current_and_count_without_end(self, sites):
        into, site = sites.open("into", payloads=()), sites.open("site", payloads=())
        old, new = experiment_payload(), experiment_payload(epsilon=500_000)
        for payload in (old, new, experiment_payload(name="door")):
            site.add_experiment("home", payload)
        merge(into, [site])
        until = [(v.experiment.name, v.current, v.counted_until) for v in into.experiments()]
        assert until == [(v.experiment.name, v.current, v.counted_until) for v in site.experiments()]
        assert [day is None for _, _, day in until] == [False, True, True]

    def test_adds_counts_to_the_same_version(self, sites):
        old, new = experiment(), experiment(epsilon=500_000)
        into = sites.open("into", payloads=map(payload_of, (new, old)))
        site = sites.open("site", payloads=map(payload_of, (old, new)))
        take(into, report_messages("a", new))
        take(site, report_messages("b", old) + report_messages("c", new, frozenset({1})))
        merge(into, [site])
        assert [into.histogram("home", exp.digest).sum() for exp in (old, new)] == [4, 5]

    def test_keeps_the_targets_texts_and_fills_empty_ones(self, sites):
        a, b, c = (sites.open(name) for name in "abc")
        (payload,) = TEMP
        a.add_experiment("home", payload, LAST, description=Description("°C", "", "a@example.org"))
        b.add_experiment("home", payload, LAST, description=Description("°C", "why b", ""))
        assert [x.kept for x in merge(a, [b], dry_run=True).experiments] == []
        c.add_experiment("home", payload, LAST, description=Description("K", "why c", "c@example.org"))
        new = sites.open("new", payloads=())
        assert [x.kept for x in merge(a, [b, c]).experiments] == [True]
        assert [v.description for v in a.experiments()] == [Description("°C", "why b", "a@example.org")]
        merge(new, [c])
        assert [v.description for v in new.experiments()] == [Description("K", "why c", "c@example.org")]

    @in_both
    def test_keeps_serials_days_and_checks(self, sites):
        old, new = experiment_payload(), experiment_payload(epsilon=500_000)
        a = sites.open("a", payloads=[old, new])
        b = sites.open("b", payloads=[new, old])
        with b.writing() as connection:
            connection.execute(schema.fleet.update().values(serial=schema.fleet.c.serial + 10))
        b.set_master_check("home", "0123456789abcdef")
        was = [{v.payload: v for v in store.experiments("home")} for store in (a, b)]
        merge(a, [b])
        by_payload = {v.payload: v for v in a.experiments("home")}
        for payload in (old, new):
            first, other = (versions[payload] for versions in was)
            assert by_payload[payload].first_serial == min(first.first_serial, other.first_serial)
            assert by_payload[payload].serial == max(first.serial, other.serial)
            # Boards of either site may have seen the versions in any order; the target's days stay.
            assert by_payload[payload].counted_until == first.counted_until
            assert by_payload[payload].current == first.current
        assert a.master_checks() == {"home": "0123456789abcdef"}
        b.set_master_check("home", "ffffffffffffffff")
        c = sites.open("c", payloads=[old])
        merge(c, [a])
        merge(a, [b])
        assert a.master_checks() == c.master_checks() == {"home": "0123456789abcdef"}
        (late,) = (v for v in c.experiments("home") if v.payload == new)
        assert not late.current
        assert late.counted_until is not None
        assert late.counted_until < LAST  # as if c's version had replaced it now
        assert check(c).violations == ()
        serial = a.experiments("home")[0].serial
        a.add_experiment("home", old)
        assert a.experiments("home")[0].serial > serial + 9

    @pytest.mark.parametrize("reader", list(CURRENT_VERSION_READERS))
    def test_current_version_outranks_later_publications(self, sites, reader: str):
        into, site = sites.open("into", payloads=()), sites.open("site", payloads=())
        old, new = experiment(), experiment(epsilon=500_000)
        into.add_experiment(
            "home", payload_of(new), LAST, description=Description("°C", "now", "a", "", "1d")
        )
        with site.writing() as connection:
            connection.execute(schema.fleet.update().values(serial=2**31))
        site.add_experiment("home", payload_of(old), LAST, description=Description("°C", "before", "b"))
        take(site, report_messages("a", old))
        take(into, report_messages("b", new))
        merge(into, [site])
        current, late = into.experiments("home")
        assert (current.current, late.current) == (True, False)
        assert late.serial > current.serial
        read, expected = CURRENT_VERSION_READERS[reader]
        where = {"HUSHMOTE_STORE": sites.url("into")}
        assert read(into, functools.partial(hushmote, cwd=sites.folder, environment=where)) == expected

    @pytest.mark.slow
    def test_command_lists_additions_and_rejects_in_one_line(self, sites):
        two_sites(sites)
        urls = [sites.url(name) for name in "abc"]

        run = functools.partial(hushmote, "store", "merge", cwd=sites.folder)
        before = sites.content("a")
        outcome = json.loads(run(*urls, "--dry-run", "--json"))
        assert sites.content("a") == before
        assert outcome["fleets"] == ["away"]
        assert outcome["rejects"] == 1
        assert [x["reports"] for x in outcome["experiments"]] == [4, 4]
        assert "would be added to" in run(*urls, "--dry-run")
        assert "new fleets: away" in run(*urls)
        error = run(*urls, expect=1)
        assert error.startswith("hushmote: both ")
        assert error.count("\n") == 1
        assert "there is no store at" in run(urls[0], sites.url("none"), expect=1)
        assert list(sites.folder.glob("none*")) == []
