"""The store counts each report once, under the value of the open group that it named in the clear."""

import datetime

import pytest
from boards import FLEET_KEYS, MASTER, ask_fleet, experiment, payload_of, reports
from refusals import fails

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.commit import Committer
from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.ingest.status import Status
from hushmote.server.store import Description, Store
from hushmote.server.store.check import check
from hushmote.server.store.erase import erase, expire
from hushmote.server.store.merge import MergeRefused, merge
from hushmote.server.store.versions import VersionRefused
from hushmote.server.wire import keys, report, topics

NOW = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)
DAY = "2026-11-21"
CRASH = experiment(name="crash", group="firmware", groups=["2.3.1", "2.4.0"], every=[1, 1, 1])
TEMP = experiment()
OLD, NEW, OTHER = range(3)


def open_store(url):
    store = Store(url)
    for fleet, keyed in (("home", True), ("open", False)):
        ask_fleet(store, fleet, CRASH, keyed=keyed)
        store.add_experiment(fleet, payload_of(TEMP))
    return store


@pytest.fixture
def store(store_url):
    with open_store(store_url) as store:
        yield store


@pytest.fixture
def site(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'site.sqlite'}") as site:
        yield site


def take(store, messages, now=NOW):
    """Ingest messages as one batch; return the accepted reports and the rejects by reason."""
    tally = ingest.ingest(store, messages, ingest.fleets(store, FLEET_KEYS), now)
    return tally.accepted, {reason: n for (_fleet, reason), n in tally.rejected.items()}


def board_messages(device, firmware, count=4):
    """Return messages of a real board of the keyed fleet that runs a version of the firmware."""
    key = keys.device_key(MASTER, "home", device)
    sent = reports(device, CRASH, count, key=key, groups={"firmware": firmware})
    return [(topics.report_topic("home", device), payload) for payload in sent]


def open_message(device, number, group, code=0, exp=CRASH):
    return topics.report_topic("open", device), report.encode(exp, number, code, group=group)


def code_of(message):
    return int.from_bytes(report.decode(message[1]).code, "big")


def groups(store, fleet="home"):
    """Return the number of reports to the version CRASH by window and group index."""
    (version,) = (v for v in store.experiments(fleet) if v.experiment.digest == CRASH.digest)
    return store.group_reports(fleet).get(version.id, {})


def codes(store, group=None, fleet="home"):
    """Return the counts by code of the version CRASH."""
    (version,) = (v for v in store.experiments(fleet) if v.experiment.digest == CRASH.digest)
    counts = {}
    for _, *columns in store.window_counts(version, group=group):
        for code, n in zip(*(column.tolist() for column in columns), strict=True):
            assert code not in counts
            counts[code] = n
    return counts


class TestCounts:
    def test_each_report_counts_once_under_its_group(self, store):
        old, new = board_messages("a", "2.3.1"), board_messages("b", "2.4.0") + board_messages("c", "2.4.0")
        unlisted = board_messages("d", "9.9.9")
        batch = old + new + unlisted
        assert take(store, batch[:10]) == (10, {})
        assert take(store, batch) == (6, {"duplicate": 10})
        assert groups(store) == {DAY: {OLD: 4, NEW: 8, OTHER: 4}}
        for group, messages in ((OLD, old), (NEW, new), (OTHER, unlisted), (None, batch)):
            sent = [code_of(message) for message in messages]
            assert codes(store, group) == {code: sent.count(code) for code in sent}
        assert store.histogram("home", CRASH.digest).sum() == 16
        assert check(store).violations == ()

    def test_version_without_a_group_counts_at_zero(self, store):
        message = topics.report_topic("open", "a"), report.encode(TEMP, 1, 5)
        assert take(store, [message]) == (1, {})
        (version,) = (v for v in store.experiments("open") if v.experiment.digest == TEMP.digest)
        assert store.group_reports("open") == {version.id: {DAY: {0: 1}}}

    def test_same_number_with_another_group_is_duplicate(self, store):
        assert take(store, [open_message("a", 1, OLD)]) == (1, {})
        assert take(store, [open_message("a", 1, NEW), open_message("a", 2, NEW)]) == (1, {"duplicate": 1})
        assert groups(store, "open") == {DAY: {OLD: 1, NEW: 1}}

    def test_tag_covers_the_group(self, store):
        ((topic, payload),) = board_messages("a", "2.3.1", 1)
        forged = bytearray(payload)
        forged[9] = NEW
        assert take(store, [(topic, bytes(forged)), (topic, payload)]) == (1, {"bad tag": 1})
        assert groups(store) == {DAY: {OLD: 1}}

    def test_wrong_group_is_malformed_and_acknowledged(self, store):
        topic, grouped = open_message("a", 1, OLD)
        missing = bytes((grouped[0] & ~report.GROUPED,)) + grouped[1:9] + grouped[10:]
        beyond = grouped[:9] + bytes((OTHER + 1,)) + grouped[10:]
        plain = report.encode(TEMP, 1, 0)
        unexpected = bytes((plain[0] | report.GROUPED,)) + plain[1:9] + bytes(1) + plain[9:]
        fleets = KnownFleets(store, Status(), FLEET_KEYS)
        fleets.load()
        batch = [(topic, payload) for payload in (missing, beyond, unexpected)]
        assert Committer(store, fleets, Status()).commit(batch)  # so the batch is acknowledged
        assert store.rejects() == {"open": {"malformed": 3}}
        assert store.group_reports("open") == {}
        assert take(store, [(topic, grouped), (topic, plain)]) == (2, {})


class TestWholeStore:
    def test_merge_adds_per_group(self, store, site):
        take(store, board_messages("a", "2.3.1") + board_messages("b", "2.4.0"))
        take(site, board_messages("c", "2.4.0") + board_messages("d", "?"))
        merge(store, [site])
        assert groups(store) == {DAY: {OLD: 4, NEW: 8, OTHER: 4}}
        assert check(store).violations == ()
        with pytest.raises(MergeRefused, match="counted the same 8 reports"):
            merge(store, [site])

    def test_expiry_erases_all_groups_of_a_window(self, store):
        store.add_experiment("home", payload_of(CRASH), description=Description(keep="1d"))
        take(store, board_messages("a", "2.3.1") + board_messages("b", "2.4.0"))
        due = expire(store, NOW + datetime.timedelta(days=3))
        assert due is not None
        assert due[1:] == (DAY, 8)
        assert groups(store) == {}
        assert check(store).violations == ()

    def test_description_keeps_how_much_worse_is_acceptable(self, store):
        words = Description(worse="more 0.02")
        store.add_experiment("home", payload_of(CRASH), description=words)
        assert [v.worse for v in store.experiments("home")] == ["more 0.02", ""]
        assert store.experiments("home")[0].description == words


class TestReleasePlan:
    def test_first_plan_stays(self, store, store_url):
        assert store.release_plan("home", "firmware", "2.4.0") is None
        assert store.add_release_plan("home", "firmware", "2.4.0", "first") == "first"
        with Store(store_url) as other:
            assert other.add_release_plan("home", "firmware", "2.4.0", "second") == "first"
            assert other.add_release_plan("home", "model", "2.4.0", "third") == "third"
        assert store.release_plan("home", "firmware", "2.4.0") == "first"
        with fails("there is no fleet attic", VersionRefused):
            store.add_release_plan("attic", "firmware", "2.4.0", "first")

    def test_merge_keeps_the_targets_plan(self, store, site):
        store.add_release_plan("home", "firmware", "2.4.0", "target")
        site.add_release_plan("home", "firmware", "2.4.0", "source")
        site.add_release_plan("home", "firmware", "2.5.0", "new")
        merge(store, [site])
        assert store.release_plan("home", "firmware", "2.4.0") == "target"
        assert store.release_plan("home", "firmware", "2.5.0") == "new"

    def test_is_erased_with_its_fleet(self, store):
        for fleet in ("home", "open"):
            store.add_release_plan(fleet, "firmware", "2.4.0", fleet)
        for name in ("crash", "temp"):
            store.withdraw_experiment("home", name)
        erase(store, "home", fleet_keys=FLEET_KEYS)
        with store.reading() as connection:
            rows = connection.exec_driver_sql("SELECT fleet, plan FROM release_plan").all()
        assert [tuple(row) for row in rows] == [("open", "open")]
