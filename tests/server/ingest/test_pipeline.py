"""Every report is counted once or rejected for one of thirteen reasons; no message raises."""

import datetime
import time

import pytest
from boards import FLEET_KEYS, MASTER, SIGNING, ask_fleet, client, experiment, payload_of, reports
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.pipeline import FleetRules, KnownFleets
from hushmote.server.ingest.rate_limit import HOUR_S, RateLimit
from hushmote.server.ingest.recent_reports import RECENT_S, Content, Number, RecentReports
from hushmote.server.ingest.status import Status
from hushmote.server.store import Store, StoreError
from hushmote.server.store.check import check
from hushmote.server.store.erase import erase
from hushmote.server.store.number_set import MAX_CONTAINERS, NumberSet
from hushmote.server.wire import keys, report, topics

KEY_A = keys.device_key(MASTER, "keyed", "a")
NOW = datetime.datetime(2026, 11, 21, 14, 30, tzinfo=datetime.UTC)


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        store.add_fleet("open", keyed=False)
        store.add_fleet("keyed", keyed=True)
        for fleet in ("open", "keyed"):
            store.add_experiment(fleet, payload_of(experiment()))
        yield store


def take(store, *messages, masters: tuple[bytes, ...] = (MASTER,), limit=None, recent=None):
    """Ingest messages as one batch; return the accepted reports and the rejects by reason."""
    fleets = ingest.fleets(store, keys.FleetKeys(masters, SIGNING))
    tally = ingest.ingest(store, messages, fleets, NOW, limit, recent=recent)
    return tally.accepted, {reason: n for (_fleet, reason), n in tally.rejected.items()}


def sent(device, payload, fleet="open"):
    return topics.report_topic(fleet, device), payload


class TestBudget:
    def test_number_beyond_every_budget_is_over_budget(self, store):
        exp = experiment()  # cap 4 epsilon
        assert take(store, *(sent("a", report.encode(exp, n, 0)) for n in range(1, 8))) == (
            4,
            {"over budget": 3},
        )
        # 8 reports at this epsilon.
        half = store.add_experiment("open", payload_of(experiment(epsilon=500_000)))
        assert take(store, *(sent("a", report.encode(half, n, 0)) for n in range(5, 12))) == (
            4,
            {"over budget": 3},
        )
        assert store.participation("open")["temp"].reports == 8

    def test_cheaper_version_adds_no_votes_to_an_earlier_one(self, store):
        old = experiment()  # cap 4 epsilon
        new = store.add_experiment("open", payload_of(experiment(epsilon=100_000)))
        assert take(store, *(sent("a", report.encode(old, n, 0)) for n in range(1, 41))) == (
            4,
            {"over budget": 36},
        )
        assert take(store, *(sent("a", report.encode(new, n, 0)) for n in range(1, 42))) == (
            36,
            {"duplicate": 4, "over budget": 1},
        )
        assert store.participation("open")["temp"].reports == 40

    def test_cheap_then_expensive_versions_count_to_the_end(self, store):
        cheap, dear = experiment(name="door", epsilon=100_000), experiment(name="door", epsilon=1_000_000)
        store.add_experiment("open", payload_of(cheap))
        board = client("a", cheap)
        payloads = []
        for exp, count in ((cheap, 10), (dear, 3)):
            store.add_experiment("open", payload_of(exp))
            board.enroll(payload_of(exp))
            for _ in range(count):
                payload = board.report("door", 20.0)
                assert payload is not None
                board.sent(payload)
                payloads.append(sent("a", payload))
        assert board.report("door", 20.0) is None
        assert take(store, *reversed(payloads)) == (13, {})


class TestExpiry:
    def test_old_version_counts_for_its_grace_period(self, store):
        old, new = experiment(), experiment(epsilon=500_000)
        day = datetime.datetime.now(datetime.UTC)
        store.add_experiment("open", payload_of(new))
        numbers = iter(range(1, 9))

        def arrive(exp, days):
            fleets = ingest.fleets(store, FLEET_KEYS)
            message = sent("a", report.encode(exp, next(numbers), 0))
            tally = ingest.ingest(store, [message], fleets, day + datetime.timedelta(days))
            return [reason for _, reason in tally.rejected]

        store_fleets = {v.experiment.digest: v for v in store.experiments("open")}
        assert store_fleets[new.digest].counted_until is None
        assert arrive(old, 28) == []
        assert arrive(old, 30) == ["expired version"]
        assert arrive(new, 3000) == []
        store.withdraw_experiment("open", "temp", grace_days=10)
        assert arrive(old, 8) == []  # the earlier of the two applies
        assert arrive(new, 11) == ["expired version"]
        store.withdraw_experiment("open", "temp", grace_days=0)
        assert arrive(new, 0) == ["expired version"]
        store.add_experiment("open", payload_of(new))
        assert arrive(new, 3000) == []
        assert store.rejects()["open"] == {"expired version": 3}

    def test_ended_experiment_counts_for_its_grace_period(self, store):
        exp, last = experiment(name="door"), NOW.date()
        store.add_experiment("open", payload_of(exp), last)
        fleets = ingest.fleets(store, FLEET_KEYS)
        for number, days, reasons in ((1, 30, []), (2, 31, ["expired version"])):
            message = sent("a", report.encode(exp, number, 0))
            tally = ingest.ingest(store, [message], fleets, NOW + datetime.timedelta(days))
            assert [reason for _, reason in tally.rejected] == reasons


class TestConflictingNumber:
    """The same number with other bytes: two boards with one identity, or an erased ledger."""

    def test_same_number_with_other_bytes_is_a_conflict(self, store):
        exp, recent = experiment(), RecentReports()
        mine, other = (sent("a", report.encode(exp, 1, code)) for code in (3, 5))
        assert take(store, mine, recent=recent) == (1, {})
        assert take(store, other, mine, other, recent=recent) == (
            0,
            {"conflicting number": 2, "duplicate": 1},
        )
        assert store.histogram("open", exp.digest).sum() == 1

    def test_same_number_within_a_batch_is_a_conflict(self, store):
        exp = experiment()
        mine, other = (sent("a", report.encode(exp, 1, code)) for code in (3, 5))
        elsewhere = sent("b", other[1])
        assert take(store, mine, mine, other, elsewhere) == (2, {"conflicting number": 1, "duplicate": 1})

    def test_keyed_boards_with_one_identity_conflict(self, store):
        exp, recent = experiment(), RecentReports()
        payloads: set[bytes | None] = set()
        while len(payloads) < 2:  # both may draw the same code
            payloads = {client("a", exp, key=KEY_A).report("temp", 20.0) for _ in range(2)}
        messages = [sent("a", payload, "keyed") for payload in payloads]
        assert take(store, messages[0], recent=recent) == (1, {})
        assert take(store, *messages, recent=recent) == (0, {"conflicting number": 1, "duplicate": 1})

    def test_other_version_with_the_same_number_is_a_conflict(self, store):
        exp, recent = experiment(), RecentReports()
        new = store.add_experiment("open", payload_of(experiment(epsilon=500_000)))
        assert take(store, sent("a", report.encode(exp, 1, 0)), recent=recent) == (1, {})
        assert take(store, sent("a", report.encode(new, 1, 0)), recent=recent) == (
            0,
            {"conflicting number": 1},
        )

    def test_later_reports_are_duplicates_whatever_their_bytes(self, store):
        exp, seconds = experiment(), [1000.0]
        recent = RecentReports(lambda: seconds[0])
        mine, other = (sent("a", report.encode(exp, 1, code)) for code in (3, 5))
        take(store, mine, recent=recent)
        seconds[0] += RECENT_S - 1
        assert take(store, mine, other, recent=recent) == (0, {"conflicting number": 1, "duplicate": 1})
        seconds[0] += 1
        assert take(store, mine, other, recent=recent) == (0, {"duplicate": 2})
        recent.forget_old()
        assert len(recent) == 0

    def test_uncommitted_reports_are_not_remembered(self, store, monkeypatch):
        exp, recent = experiment(), RecentReports()
        mine, other = (sent("a", report.encode(exp, 1, code)) for code in (3, 5))
        with monkeypatch.context() as patch:
            patch.setattr(ingest.IngestTransaction, "write", _fail)
            with pytest.raises(StoreError):
                take(store, mine, recent=recent)
        assert take(store, other, recent=recent) == (1, {})
        assert take(store, other, recent=recent) == (0, {"duplicate": 1})
        assert take(store, mine, recent=recent) == (0, {"conflicting number": 1})

    def test_rejected_reports_are_not_remembered(self, store):
        exp, recent, limit = experiment(), RecentReports(), RateLimit(1)
        late, other = (sent("a", report.encode(exp, 2, code)) for code in (3, 5))
        first = sent("a", report.encode(exp, 1, 0))
        assert take(store, first, late, limit=limit, recent=recent) == (1, {"too fast": 1})
        assert take(store, other, recent=recent) == (1, {})

    def test_memory_is_bounded_and_holds_the_last_reports(self):
        recent = RecentReports()
        numbers = [Number(("open", "temp", "a"), n) for n in range(100_500)]
        for batch in (numbers[:60_000], numbers[60_000:]):
            recent.add(dict.fromkeys(batch, Content(b"abcd", 0, 1)))
        assert len(recent) == 100_000
        other = Content(b"abcd", 0, 2)
        assert [recent.differs(numbers[n], other) for n in (499, 500, 100_499)] == [False, True, True]

    def test_hashes_of_two_processes_cannot_be_linked(self):
        number, content = Number(("open", "temp", "a"), 1), Content(b"abcd", 0, 1)
        one, two = RecentReports(), RecentReports()
        for recent in (one, two):
            recent.add({number: content})
        assert vars(one)["_hashes"].keys().isdisjoint(vars(two)["_hashes"].keys())


def _fail(*_arguments):
    raise StoreError("the disk is full")


class TestRateLimit:
    def test_holds_only_the_fast_device_back(self, store):
        exp = store.add_experiment("open", payload_of(experiment(name="free", budget={"rule": "unlimited"})))
        limit = RateLimit(3)
        flood = [sent("a", report.encode(exp, n, 0)) for n in range(1, 6)]
        assert take(store, *flood, sent("b", report.encode(exp, 1, 0)), limit=limit) == (4, {"too fast": 2})
        # Duplicates do not use the limit, which holds over several batches.
        assert take(store, *flood[:3], flood[4], limit=limit) == (0, {"duplicate": 3, "too fast": 1})
        limit.start(time.monotonic() + HOUR_S + 1)
        assert take(store, flood[4], limit=limit) == (1, {})

    def test_applies_per_device_across_experiments(self, store):
        free = {"rule": "unlimited"}
        first, other = experiment(name="one", budget=free), experiment(name="other", budget=free)
        fleets = ("first", "second")
        for fleet in fleets:
            ask_fleet(store, fleet, first)
            ask_fleet(store, fleet, other)
        batch = [
            sent("a", report.encode(exp, n, 0), fleet)
            for n in (1, 2)
            for exp in (first, other)
            for fleet in fleets
        ]
        assert take(store, *batch, limit=RateLimit(3))[0] == 6
        assert store.rejects() == {fleet: {"too fast": 1} for fleet in fleets}

    def test_uncommitted_reports_do_not_use_the_limit(self, store):
        limit = RateLimit(1)
        message = sent("a", report.encode(experiment(), 1, 0))
        fleets = ingest.fleets(store, FLEET_KEYS)
        with store.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE histogram")
        with pytest.raises(StoreError):
            ingest.ingest(store, [message], fleets, NOW, limit)
        assert limit.remaining(("open", "a")) == 1


class TestCounts:
    def test_real_reports_count_under_their_codes(self, store):
        exp = experiment()
        messages, codes = [], []
        for device in ("a", "b", "c"):
            key = keys.device_key(MASTER, "keyed", device)
            for payload in reports(device, exp, 4, key=key):
                messages.append(sent(device, payload, "keyed"))
                codes.append(int.from_bytes(report.decode(payload).code, "big"))
        assert take(store, *messages) == (12, {})
        counts = store.histogram("keyed", exp.digest, "2026-11-21")
        assert [counts[c] for c in range(64)] == [codes.count(c) for c in range(64)]
        assert store.histogram("open", exp.digest).sum() == 0
        assert store.participation("keyed")["temp"].devices == 3

    def test_duplicate_report_counts_once_in_and_across_batches(self, store):
        exp = experiment()
        first, second = reports("a", exp, 2)
        assert take(store, sent("a", first), sent("a", first), sent("a", second)) == (2, {"duplicate": 1})
        assert take(store, sent("a", second), sent("a", first)) == (0, {"duplicate": 2})
        assert store.histogram("open", exp.digest).sum() == 2

    def test_numbers_are_per_device_and_name_over_all_versions(self, store):
        exp = experiment()
        new = store.add_experiment("open", payload_of(experiment(epsilon=500_000)))
        other = store.add_experiment("open", payload_of(experiment(name="door")))
        assert take(store, sent("a", report.encode(exp, 1, 0)), sent("b", report.encode(exp, 1, 0))) == (
            2,
            {},
        )
        assert take(store, sent("a", report.encode(new, 1, 0))) == (0, {"duplicate": 1})
        assert take(store, sent("a", report.encode(other, 1, 0))) == (1, {})

    def test_erased_device_counts_on_from_its_highest_number(self, store):
        messages = [sent("a", payload, "keyed") for payload in reports("a", experiment(), 4, key=KEY_A)]
        assert take(store, *messages[:3]) == (3, {})
        erase(store, "keyed", device="a", fleet_keys=FLEET_KEYS)
        assert take(store, *messages) == (1, {"duplicate": 3})
        assert [numbers for *_, numbers in store.accepted_numbers("keyed")] == [NumberSet(4, late=3)]

    def test_reports_out_of_order_count_once(self, store):
        exp = store.add_experiment("open", payload_of(experiment(name="free", budget={"rule": "unlimited"})))
        numbers = [4_000_000_000, 1, 900, 3, 2, 4_294_967_295, 899, 901]
        messages = [sent("a", report.encode(exp, n, 0)) for n in numbers]
        assert take(store, *messages) == (8, {})
        assert take(store, *reversed(messages)) == (0, {"duplicate": 8})

    @pytest.mark.parametrize(
        ("kind", "text"), [("hour", "2026-11-21T14"), ("day", "2026-11-21"), ("all", "all")]
    )
    def test_window_is_the_utc_time_of_arrival(self, kind, text):
        assert ingest.window(kind, NOW) == text
        elsewhere = NOW.astimezone(datetime.timezone(datetime.timedelta(hours=11)))
        assert ingest.window(kind, elsewhere) == text

    def test_each_experiment_in_a_batch_has_its_own_window(self, store):
        exps = [experiment(name=kind, window=kind) for kind in ("hour", "day", "all")]
        for exp in exps:
            store.add_experiment("open", payload_of(exp))
        assert take(store, *(sent("a", report.encode(exp, 1, 0)) for exp in exps)) == (3, {})
        windows = [store.windows("open", exp.digest) for exp in exps]
        assert windows == [("2026-11-21T14",), ("2026-11-21",), ("all",)]


class TestKnownFleets:
    def test_any_unknown_version_in_a_batch_rereads_versions(self, store):
        known = KnownFleets(store, Status(), FLEET_KEYS)
        known.load()
        new = store.add_experiment("open", payload_of(experiment(epsilon=500_000)))
        batch = [sent("a", report.encode(exp, 1, 0)) for exp in (experiment(), new)]
        assert new.digest not in known.rules_for(batch[:1])["open"].versions
        assert new.digest in known.rules_for(batch)["open"].versions

    def test_checks_the_key_of_each_counting_fleet(self, store):
        ask_fleet(store, "second", experiment(), keyed=True)
        known = KnownFleets(store, Status(), FLEET_KEYS)
        known.load()
        for fleet in ("keyed", "second"):
            assert store.master_checks()[fleet] is None
            known.note_counted([fleet])
            assert store.master_checks()[fleet] == keys.master_check(MASTER, fleet)


PAYLOADS = st.binary(max_size=40) | st.builds(
    lambda head, middle, tail: head + middle + tail,
    st.sampled_from([b"\x10", b"\x11"]),
    st.sampled_from([experiment().digest, bytes(4)]),
    st.binary(max_size=20),
)
TOPICS = st.text(max_size=40) | st.builds(
    "hushmote/v1/{}/report/{}".format,
    st.sampled_from(["open", "keyed", "x"]),
    st.sampled_from(["a", "", "#"]),
)


class TestRejects:
    def test_set_full_of_gaps_stops_growing_without_silencing(self, store):
        exp = store.add_experiment("open", payload_of(experiment(name="free", budget={"rule": "unlimited"})))
        numbers = [n * 1_000_000 for n in range(1, 601)]
        assert take(store, *(sent("a", report.encode(exp, n, 0)) for n in numbers)) == (600, {})
        ((_, _, number_set),) = store.accepted_numbers("open")
        assert len(number_set.beyond) <= MAX_CONTAINERS
        assert len(number_set) == 600
        late, gap = numbers[0] + 5, numbers[-1] - 5
        assert take(store, *(sent("a", report.encode(exp, n, 0)) for n in (late, gap, numbers[0]))) == (
            1,
            {"duplicate": 2},
        )
        assert take(store, sent("a", report.encode(exp, numbers[-1] + 1, 0))) == (1, {})
        assert check(store).violations == ()

    def test_every_malformed_report_has_its_reason(self, store):
        exp = experiment()
        key = keys.device_key(MASTER, "keyed", "a")
        good = report.encode(exp, 1, 0, "a", key)
        high = exp.code_count.to_bytes(1, "big")
        number_0 = b"\x10" + exp.digest + bytes(4) + b"\x00"
        unknown = b"\x10" + b"none" + bytes(3) + b"\x01\x00"
        other = store.add_experiment("open", payload_of(experiment(name="gone")))
        store.add_experiment("open", payload_of(other), datetime.date(2026, 1, 1))
        cases = [
            (sent("a", b""), "malformed"),
            (sent("a", good[:-1], "keyed"), "malformed"),
            (sent("a", good[:9], "keyed"), "malformed"),
            (sent("a", bytes(1 << 16)), "malformed"),
            (sent("a", b"\x10" + exp.digest + b"\x00\x00\x00\x01\x00\x00"), "malformed"),  # a byte too many
            (sent("a", unknown), "unknown digest"),
            (sent("a", good[:-1] + bytes((good[-1] ^ 1,)), "keyed"), "bad tag"),
            (sent("b", good, "keyed"), "bad tag"),  # another device's report
            (sent("a", report.encode(exp, 1, 0), "keyed"), "bad tag"),  # unauthenticated
            (sent("a", good, "open"), "bad tag"),
            (sent("a", b"\x10" + exp.digest + b"\x00\x00\x00\x01" + high), "out of range"),
            (sent("a", number_0), "out of range"),
            (sent("a", report.encode(exp, 5, 0)), "over budget"),
            (sent("a", report.encode(other, 1, 0)), "expired version"),
            (("hushmote/v1/open/report/A+B", good), "unknown device"),
            (("hushmote/v1/away/report/a", good), "unknown fleet"),
            (("hushmote/v1/AWAY/report/a", good), "unknown fleet"),
            (("hushmote/v1/away/report/A", good), "unknown fleet"),
            (("", good), "unknown fleet"),
        ]
        for message, reason in cases:
            assert take(store, message) == (0, {reason: 1}), (message, reason)
        assert set(ingest.REASONS) == {reason for _, reason in cases} | {
            "duplicate",
            "conflicting number",
            "revoked device",
            "damaged numbers",
            "too fast",
        }
        assert store.histogram("open", exp.digest).sum() == store.histogram("keyed", exp.digest).sum() == 0
        by_fleet = store.rejects()
        assert sum(n for reasons in by_fleet.values() for n in reasons.values()) == len(cases)
        assert set(by_fleet) == {"open", "keyed", ""}  # unknown fleets create no rows

    def test_allow_list_admits_only_its_devices(self, store):
        exp = experiment()
        store.allow_devices("open", ["a"])
        messages = sent("a", report.encode(exp, 1, 0)), sent("b", report.encode(exp, 1, 0))
        assert take(store, messages[1]) == (1, {})  # the list alone has no effect
        store.set_listed("open", True)
        resent = sent("b", report.encode(exp, 2, 0))
        assert take(store, messages[0], resent) == (1, {"unknown device": 1})
        assert take(store, *(sent("b", report.encode(exp, n, 0), "keyed") for n in (1, 2))) == (
            0,
            {"bad tag": 2},
        )
        store.allow_devices("open", ["b"])
        assert take(store, resent) == (1, {})

    def test_allow_list_applies_to_its_own_fleet(self, store):
        exp = experiment()
        for fleet, device in (("first", "a"), ("second", "b")):
            ask_fleet(store, fleet, exp)
            store.allow_devices(fleet, [device])
            store.set_listed(fleet, True)
        fleets = ("first", "second", "open")
        batch = [sent(device, report.encode(exp, 1, 0), fleet) for device in "ab" for fleet in fleets]
        assert take(store, *batch)[0] == 4
        assert store.rejects() == {fleet: {"unknown device": 1} for fleet in fleets[:2]}
        assert [store.participation(fleet)["temp"].devices for fleet in fleets] == [1, 1, 2]

    def test_revoked_device_is_rejected_but_its_past_stays(self, store):
        exp = experiment()
        assert take(store, sent("a", report.encode(exp, 1, 0))) == (1, {})
        store.revoke_devices("open", ["a"])
        assert take(store, sent("a", report.encode(exp, 2, 0)), sent("b", report.encode(exp, 1, 0))) == (
            1,
            {"revoked device": 1},
        )
        assert take(store, *(sent("a", r, "keyed") for r in reports("a", exp, 1, key=KEY_A))) == (1, {})
        assert store.histogram("open", exp.digest).sum() == 2

    @pytest.mark.slow
    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.tuples(TOPICS, PAYLOADS), max_size=30))
    def test_random_messages_never_raise(self, store, messages):
        fleets = ingest.fleets(store, FLEET_KEYS)
        tally = ingest.ingest(store, messages, fleets, NOW)
        assert tally.accepted + sum(tally.rejected.values()) == len(messages)
        assert {reason for _, reason in tally.rejected} <= set(ingest.REASONS)


class TestMasterKey:
    def test_former_keys_tags_count_while_it_is_given(self, store):
        exp = experiment()
        new = bytes(32)
        first, second = reports("a", exp, 2, key=KEY_A)
        assert take(store, sent("a", first, "keyed"), masters=(new,)) == (0, {"bad tag": 1})
        assert take(store, sent("a", first, "keyed"), masters=(new, MASTER)) == (1, {})
        assert take(store, sent("a", second, "keyed"), masters=(new,)) == (0, {"bad tag": 1})
        key = keys.device_key(new, "keyed", "b")
        assert take(store, sent("b", reports("b", exp, 1, key=key)[0], "keyed"), masters=(new, MASTER)) == (
            1,
            {},
        )

    def test_is_required_by_a_keyed_fleet(self, store):
        with pytest.raises(keys.MasterKeyError, match="fleet keyed is keyed"):
            ingest.fleets(store)
        assert set(ingest.fleets(store, names=["open"])) == {"open"}

    def test_key_from_before_a_rotation_is_accepted(self):
        # The store keeps the check of the key that counted last; after a rotation that is the old key.
        old, new, strange = MASTER, bytes(range(32)), bytes(32)
        check_value = keys.master_check(old, "keyed")
        for masters in ((old,), (new, old), (old, new)):
            FleetRules("keyed", keys.FleetKeys(masters, SIGNING), master_check=check_value).check_masters()
        for masters in ((new,), (new, strange)):
            with pytest.raises(keys.MasterKeyError, match="this is not the master key of fleet keyed"):
                FleetRules(
                    "keyed", keys.FleetKeys(masters, SIGNING), master_check=check_value
                ).check_masters()
