"""The client: rules and caps, the policy, pinning, numbering, tags, signed experiments and status."""

import _thread
import contextlib
import hashlib
import hmac
import importlib.util
import itertools
import json
import sys
import threading
from fractions import Fraction
from typing import Any

import pytest
from enumeration import POLICY, BranchingRng, MemoryStorage, distribution, memory
from experiments import experiment_json
from failing_storage import FailingStorage, PowerCut, newest_record
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.device import ldp_client
from hushmote.device.ldp_client import (
    Client,
    EntropyError,
    ExperimentRefused,
    LedgerError,
    SettingsError,
    provision,
)
from hushmote.server.wire import keys

EPSILON = 1_000_000
KEY = bytes(range(100, 132))
SIGNING_KEY = bytes(range(32))
ANNOUNCE_KEY = keys.public_key_bytes(SIGNING_KEY)


def board(policy=None, storage: Any = None, **arguments) -> Any:
    if storage is None:
        storage = memory()
        provision(storage, consent=True)
    return Client({**POLICY, **(policy or {})}, storage, **{"device_id": "board-1", **arguments})


def enrolled(payload, policy=None, **arguments) -> Any:
    """Return a board that is enrolled in an experiment."""
    client = board(policy, **arguments)
    client.enroll(payload)
    return client


def budget(rule, cap=None, **changes):
    fields = {"rule": rule} if cap is None else {"rule": rule, "cap": cap}
    return experiment_json(budget=fields, **changes)


def reports_until_silent(client, name="e", at_most=400):
    """Count the reports before 50 consecutive silent calls, acknowledging each immediately."""
    reports = silent = 0
    while silent < 50 and reports < at_most:
        report = client.report(name, True)
        if report is None:
            silent += 1
        else:
            silent = 0
            reports += 1
            client.sent(report)
    return reports


class TestCap:
    @pytest.mark.parametrize(
        ("rule", "epsilon", "cap", "reports"),
        [
            ("sum", EPSILON, 4 * EPSILON, 4),
            ("sum", EPSILON, 4 * EPSILON - 1, 3),
            ("sum", EPSILON, EPSILON, 1),
            ("sum", EPSILON, EPSILON - 1, 0),
            ("sum", 1_234_567, 5 * 1_234_567, 5),
            ("squares", EPSILON, 3 * EPSILON**2, 3),
            ("squares", EPSILON, 3 * EPSILON**2 - 1, 2),
            ("squares", 1_234_567, 7 * 1_234_567**2, 7),
            ("squares", 1_234_567, 7 * 1_234_567**2 - 1, 6),
            ("squares", 16_000_000, 16_000_000**2 - 1, 0),
            ("count", EPSILON, 1, 1),
            ("count", 16_000_000, 5, 5),
        ],
    )
    def test_allows_exactly_this_many_reports(self, rule, epsilon, cap, reports):
        client = enrolled(budget(rule, cap, epsilon=epsilon))
        assert client.status()["experiments"]["e"]["left"] == reports
        assert reports_until_silent(client) == reports
        line = client.status()["experiments"]["e"]
        assert (line["state"], line["left"], line["reports"]) == ("spent", 0, reports)
        restarted = enrolled(budget(rule, cap, epsilon=epsilon), storage=client._ledger._storage)
        assert reports_until_silent(restarted) == 0, "the board must stay silent after a reboot"

    def test_report_returns_none_once_spent(self):
        client = enrolled(budget("count", 2))
        reports = [client.report("e", value) for value in (True, False, None, True, float("nan"))]
        assert [report is None for report in reports] == [False, False, True, True, True]
        with pytest.raises(TypeError, match="e must be a bool or None"):
            client.report("e", "a programming error is no silence")
        assert client.status()["sum"] == 2 * EPSILON

    @pytest.mark.slow
    @settings(max_examples=75)
    @given(
        st.sampled_from(["sum", "squares"]),
        st.integers(1, 10**8),
        st.lists(st.integers(1_000, 16_000_000), min_size=1, max_size=12),
    )
    def test_total_cost_of_versions_never_exceeds_pinned_cap(self, rule, cap, epsilons):
        cap = cap * 10**6 if rule == "squares" else cap
        client = board()
        spent = 0
        for epsilon in epsilons:
            client.enroll(budget(rule, cap, epsilon=epsilon))
            cost = epsilon if rule == "sum" else epsilon**2
            report = client.report("e", True)
            assert (report is not None) == (spent + cost <= cap)
            if report is not None:
                client.sent(report)
                spent += cost


class TestLifetimeBudget:
    @pytest.mark.parametrize(
        ("total", "squares", "epsilon", "reports"),
        [
            (8 * EPSILON, 0, EPSILON, 8),
            (8 * EPSILON - 1, 0, EPSILON, 7),
            (0, 5 * EPSILON**2, EPSILON, 5),
            (0, 5 * EPSILON**2 - 1, EPSILON, 4),
            (8 * EPSILON, 1_819_000_000_000, EPSILON, 8),  # the design's example: the sum allows more
            (8 * EPSILON, 1_819_000_000_000, 100_000, 181),  # here the squares do
            (0, 0, EPSILON, 0),
            (EPSILON, EPSILON**2, EPSILON + 1, 0),
        ],
    )
    def test_reports_while_sum_or_squares_stay_within_it(self, total, squares, epsilon, reports):
        client = enrolled(budget("unlimited", epsilon=epsilon), {"sum": total, "squares": squares})
        assert client.status()["experiments"]["e"]["left"] == reports
        assert reports_until_silent(client) == reports

    def test_is_shared_by_all_experiments(self):
        client = board({"sum": 5 * EPSILON})
        for name in ("e", "f", "g"):
            client.enroll(budget("sum", 4 * EPSILON, name=name))
        assert [reports_until_silent(client, name) for name in ("e", "f", "g")] == [4, 1, 0]
        status = client.status()
        assert (status["sum"], status["squares"]) == (5 * EPSILON, 5 * EPSILON**2)
        assert [status["experiments"][name]["state"] for name in ("e", "f", "g")] == ["spent"] * 3

    def test_new_policy_counts_earlier_spending(self):
        client = enrolled(budget("unlimited"), {"sum": 5 * EPSILON})
        assert reports_until_silent(client) == 5
        renamed = enrolled(
            budget("unlimited", name="another"),
            {"sum": 7 * EPSILON, "experiments": ("another",)},
            storage=client._ledger._storage,
        )
        assert reports_until_silent(renamed, "another") == 2


class TestPinning:
    def test_first_report_pins_cap_and_no_version_raises_it(self):
        client = enrolled(budget("sum", 2 * EPSILON))
        client.enroll(budget("sum", 3 * EPSILON))  # without a report, nothing is pinned yet
        client.sent(client.report("e", True))
        for cap in (4 * EPSILON, 2**54 - 1):
            client.enroll(budget("sum", cap))
            assert client.status()["experiments"]["e"]["left"] == 2
        assert reports_until_silent(client) == 2
        restarted = enrolled(budget("sum", 100 * EPSILON), storage=client._ledger._storage)
        assert reports_until_silent(restarted) == 0

    def test_lower_cap_applies_and_can_be_raised_back(self):
        client = enrolled(budget("sum", 5 * EPSILON))
        client.sent(client.report("e", True))
        client.enroll(budget("sum", 2 * EPSILON))
        assert reports_until_silent(client) == 1
        client.enroll(budget("sum", 5 * EPSILON))
        assert reports_until_silent(client) == 3

    def test_count_rule_refuses_changed_epsilon(self):
        client = enrolled(budget("count", 4))
        client.enroll(budget("count", 4, epsilon=500_000))  # nothing is pinned yet
        client.sent(client.report("e", True))
        for epsilon in (499_999, EPSILON):
            with pytest.raises(ExperimentRefused, match="its epsilon was pinned as 500000"):
                client.enroll(budget("count", 4, epsilon=epsilon))
        assert reports_until_silent(client) == 3, "the refused version must not change anything"
        client.enroll(budget("count", 9, epsilon=500_000))
        assert reports_until_silent(client) == 0

    def test_refuses_another_rule(self):
        budgets = {"sum": 2**50, "squares": 2**50, "count": 2**50, "unlimited": None}
        for old, new in itertools.permutations(budgets, 2):
            client = enrolled(budget(old, budgets[old]))
            client.enroll(budget(new, budgets[new]))
            client.enroll(budget(old, budgets[old]))
            client.sent(client.report("e", True))
            with pytest.raises(ExperimentRefused, match="its budget rule was pinned as " + old):
                client.enroll(budget(new, budgets[new]))
            assert client.status()["experiments"]["e"]["reason"] == "its budget rule was pinned as " + old
            assert client.status()["experiments"]["e"]["state"] == "reporting"
            client.withdraw("e")
            restarted = board(storage=client._ledger._storage)
            with pytest.raises(ExperimentRefused, match="pinned"):
                restarted.enroll(budget(new, budgets[new]))
            assert restarted.status()["experiments"]["e"]["state"] == "refused"

    def test_withdrawal_keeps_spending_numbers_and_unsent_reports(self):
        client = enrolled(budget("sum", 3 * EPSILON))
        first = client.report("e", True)
        client.withdraw("e")
        assert client.report("e", True) is None
        assert client.outbox() == [first]
        assert client.status()["experiments"]["e"]["state"] == "absent"
        assert client.status()["experiments"]["e"]["reports"] == 1
        client.withdraw("e")
        client.withdraw("never heard of")
        client.enroll(budget("sum", 9 * EPSILON))
        assert client.report("e", True)[5:9] == b"\x00\x00\x00\x02"
        assert client.report("e", True) is not None
        assert client.report("e", True) is None


FIRMWARE = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}


class TestPolicy:
    @pytest.mark.parametrize(
        ("policy", "payload", "reason"),
        [
            ({"epsilon": 999_999}, budget("sum", EPSILON), "epsilon is above the policy's 999999"),
            ({"rules": ("sum",)}, budget("count", 5), "the policy forbids budget rule count"),
            ({"rules": ()}, budget("sum", 5), "the policy forbids budget rule sum"),
            (
                {"rules": ("sum", "squares", "count")},
                budget("unlimited"),
                "the policy forbids budget rule unlimited",
            ),
            ({}, budget("sum", EPSILON, **FIRMWARE), "the policy does not name group firmware"),
            (
                {"groups": ["model"]},
                budget("sum", EPSILON, **FIRMWARE),
                "the policy does not name group firmware",
            ),
        ],
        ids=["epsilon", "rule", "no rules", "unlimited", "group", "another group"],
    )
    def test_shows_reason_for_refused_experiment_in_status(self, policy, payload, reason):
        client = board(policy)
        with pytest.raises(ExperimentRefused) as caught:
            client.enroll(payload)
        assert str(caught.value) == reason
        line = client.status()["experiments"]["e"]
        assert (line["state"], line["reason"]) == ("refused", reason)
        assert client.report("e", True) is None
        assert client.status()["sum"] == 0

    def test_ignores_names_outside_it(self):
        client = board()
        for name in ("other", "ee", "e-"):
            with pytest.raises(ExperimentRefused, match=name + " is not in the policy"):
                client.enroll(budget("sum", EPSILON, name=name))
            assert client.report(name, True) is None
        assert set(client.status()["experiments"]) == {"e", "f", "g"}
        assert client.status()["refused"] == "e- is not in the policy"
        assert client.status()["sum"] == 0

    def test_refused_version_leaves_earlier_version_in_force(self):
        client = board()
        exp = client.enroll(budget("sum", 4 * EPSILON))
        for bad in (b"", b"{}", budget("sum", 0), budget("sum", 5, epsilon=1), b"\x00" * 40, b"\xff"):
            with pytest.raises(ExperimentRefused):
                client.enroll(bad)
        report = client.report("e", True)
        assert report[1:5] == exp.digest
        client.enroll(budget("sum", 4 * EPSILON))
        assert client.status()["experiments"]["e"]["reason"] is None

    def test_makes_no_report_if_it_allows_nothing(self):
        for nothing in ({"sum": -1, "squares": -1}, {"sum": 0, "squares": 0}, {"experiments": ("A", "a/b")}):
            client = board({"epsilon": 2**70, **nothing})
            with contextlib.suppress(ExperimentRefused):
                client.enroll(budget("sum", 2 * EPSILON))
            assert client.report("e", True) is None
            assert client.status()["sum"] == 0

    def test_65th_experiment_makes_no_report(self):
        names = tuple(f"n{i}" for i in range(65))
        client = board({"experiments": names})
        for name in names:
            client.enroll(budget("count", 1, name=name))
            report = client.report(name, True)
            assert (report is None) == (name == "n64")
            client.sent(report)
        assert max(len(client._ledger._storage.slots[slot]) for slot in (0, 1)) < 4096
        assert board({"experiments": names}, storage=client._ledger._storage).status()["sum"] == 64 * EPSILON


class TestSettings:
    @pytest.mark.parametrize(
        "policy",
        [
            None,
            {},
            [],
            "policy",
            7,
            {k: v for k, v in POLICY.items() if k != "squares"},
            {**POLICY, "more": 1},
            *({**POLICY, "sum": bad} for bad in (1.0, "8", None, True)),
            *({**POLICY, "squares": bad} for bad in (0.5, None)),
            *({**POLICY, "epsilon": bad} for bad in (1e6, None)),
            *({**POLICY, "rules": bad} for bad in ("sum", None, 5)),
            *({**POLICY, "experiments": bad} for bad in (None, 5)),
            *({**POLICY, "experiments": bad} for bad in ("e", "bath", "room_temp")),
            *({**POLICY, "groups": bad} for bad in ("firmware", None)),
        ],
        ids=[
            "none",
            "empty",
            "list",
            "string",
            "integer",
            "field missing",
            "unknown field",
            "float sum",
            "string sum",
            "no sum",
            "boolean sum",
            "float squares",
            "no squares",
            "float epsilon",
            "no epsilon",
            "string rules",
            "no rules",
            "integer rules",
            "no experiments",
            "integer experiments",
            "one-letter experiments",
            "short experiments",
            "string experiments",
            "string groups",
            "no groups",
        ],
    )
    def test_rejects_invalid_policy(self, policy):
        with pytest.raises(SettingsError, match=r"^policy must "):
            Client(policy, memory(), device_id="d")

    @pytest.mark.parametrize(
        ("setting", "text"),
        [
            *(
                ({"device_id": bad}, "device_id must be 1 to 32 of a-z, 0-9 and -")
                for bad in (b"a", "é", "a b")
            ),
            *(
                ({"fleet": "f", name: bad}, "key must be 32 bytes, announce_key 64, or None")
                for name in ("key", "announce_key")
                for bad in ("k" * 32, "k" * 64, 5, bytearray(32), bytearray(64))
            ),
            ({"fleet": "+", "announce_key": ANNOUNCE_KEY}, "fleet must be 1 to 32 of a-z, 0-9, _ and -"),
        ],
        ids=[
            "bytes as device_id",
            "accent in device_id",
            "space in device_id",
            "32 characters as key",
            "64 characters as key",
            "integer as key",
            "bytearray of 32 as key",
            "bytearray of 64 as key",
            "32 characters as announce_key",
            "64 characters as announce_key",
            "integer as announce_key",
            "bytearray of 32 as announce_key",
            "bytearray of 64 as announce_key",
            "fleet",
        ],
    )
    def test_rejects_wrong_types(self, setting, text):
        with pytest.raises(SettingsError, match=text):
            board(**setting)


class TestEvery:
    @pytest.mark.parametrize("every", [1, 2, 3, 7, 90])
    def test_every_sets_the_exact_report_rate(self, every):
        storage = memory()
        provision(storage, consent=True)

        def run(rng):
            client = enrolled(budget("sum", 4 * EPSILON, every=every), storage=memory(storage.slots))
            client.rng = rng
            return client.report("e", True) is not None

        assert distribution(run)[True] == Fraction(1, every)

    def test_is_drawn_before_reading_the_value(self):
        class Recording(BranchingRng):
            ranges: tuple = ()

            def below(self, n):
                self.ranges += (n,)
                return super().below(n)

        client = enrolled(budget("sum", 4 * EPSILON, every=5))
        client.rng = Recording()
        with pytest.raises(TypeError):
            client.report("e", "wrong type")
        assert client.rng.ranges == (5,)

    def test_silent_calls_spend_and_write_nothing(self):
        client = enrolled(budget("sum", 4 * EPSILON, every=2**24))
        before = dict(client._ledger._storage.slots)
        # The draw is scripted to skip, so this cannot fail by chance.
        client.rng = BranchingRng()
        client.rng._choices, client.rng._sizes = [1], [2**24]
        for _ in range(30):
            client.rng._at = 0
            assert client.report("e", True) is None
        assert client._ledger._storage.slots == before
        assert client.status()["sum"] == 0


MISSING = "its signature is missing or wrong"


def signed(payload, key=SIGNING_KEY, fleet="home", name="e", serial=7):
    return keys.sign_experiment(key, f"hushmote/v1/{fleet}/experiment/{name}", payload, serial)


class TestSignature:
    def test_accepts_signed_experiment_with_announce_key(self):
        client = board(announce_key=ANNOUNCE_KEY, fleet="home")
        payload = budget("sum", EPSILON)
        exp = client.enroll(signed(payload))
        assert exp.sha256 == hashlib.sha256(payload).digest(), "the digest must cover only the JSON"
        assert client.report("e", True) is not None

    def test_rejects_missing_cut_doubled_or_foreign_signature(self):
        """test_vectors.py has more cases: another fleet, another key and an older serial."""
        payload = budget("sum", EPSILON)
        good = signed(payload)
        cut = [good[:-i] for i in range(1, 69, 9)]
        for bad in (payload + b"\x00", *cut, good + good[-64:], signed(payload, name="f")):
            client = board(announce_key=ANNOUNCE_KEY, fleet="home")
            with pytest.raises(ExperimentRefused, match=MISSING):
                client.enroll(bad)
            assert client.status()["experiments"]["e"]["reason"] == MISSING
            assert client.report("e", True) is None

    def test_rejects_another_key(self):
        client = board(announce_key=ANNOUNCE_KEY, fleet="home")
        with pytest.raises(ExperimentRefused, match=MISSING):
            client.enroll(signed(budget("sum", EPSILON), key=bytes(31) + b"\x07"))
        assert client.report("e", True) is None

    @pytest.mark.slow
    def test_rejects_any_flipped_bit(self):
        client = board(announce_key=ANNOUNCE_KEY, fleet="home")
        good = signed(budget("sum", EPSILON))
        text_bits = 8 * (len(good) - 69)
        for bit in range(0, text_bits, 5):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            with pytest.raises(ExperimentRefused):
                client.enroll(bytes(bad))
            assert client.report("e", True) is None
        for bit in range(0, 68 * 8, 11):
            bad = bytearray(good)
            bad[len(good) - 68 + bit // 8] ^= 1 << bit % 8
            with pytest.raises(ExperimentRefused, match="signature"):
                client.enroll(bytes(bad))
        client.enroll(good)

    def test_accepts_signed_and_unsigned_without_announce_key(self):
        payload = budget("sum", EPSILON)
        for form in (payload, signed(payload), payload + b"\x00garbage"):
            assert board().enroll(form).digest == hashlib.sha256(payload).digest()[:4]


def withdrawal(serial, **changes):
    return signed(b"", serial=serial, **changes)


class TestWithdrawal:
    def test_ends_experiment_for_older_versions(self):
        client = board(announce_key=ANNOUNCE_KEY, fleet="home")
        old = signed(budget("sum", 9 * EPSILON), serial=7)
        client.enroll(old)
        first = client.report("e", True)
        for _ in range(2):  # the broker repeats it
            client.withdraw("e", withdrawal(8))
            assert client.serials == {"e": 8}
            assert client.report("e", True) is None
            assert client.outbox() == [first]
            with pytest.raises(ExperimentRefused, match="a newer version was published"):
                client.enroll(old)
        client.enroll(signed(budget("sum", 9 * EPSILON), serial=10))
        with pytest.raises(ExperimentRefused, match="a newer version was published"):
            client.withdraw("e", withdrawal(8))
        assert client.report("e", True) is not None

    def test_blocks_experiment_that_arrives_later(self):
        client = board(announce_key=ANNOUNCE_KEY, fleet="home")
        client.withdraw("e", withdrawal(8))
        with pytest.raises(ExperimentRefused, match="a newer version was published"):
            client.enroll(signed(budget("sum", EPSILON), serial=7))

    def test_requires_valid_message_for_keyed_experiment(self):
        client = board(announce_key=ANNOUNCE_KEY, fleet="home")
        payload = budget("sum", 9 * EPSILON)
        client.enroll(signed(payload, serial=7))
        good = withdrawal(8)
        for bad_payload in (
            b"",
            b"\x00",
            good + b"\x00",
            withdrawal(8, key=KEY),
            withdrawal(8, fleet="other"),
            withdrawal(9)[:5] + good[5:],
            b"{" + good[1:],
            payload,
            signed(payload, serial=8),
        ):
            with pytest.raises(ExperimentRefused, match=MISSING):
                client.withdraw("e", bad_payload)
            assert client.serials == {"e": 7}
            assert client.status()["experiments"]["e"]["state"] == "reporting"
        client.withdraw("e", bytearray(good))
        assert client.report("e", True) is None


class TestSerial:
    def test_rejects_replayed_older_message(self):
        old, new = budget("sum", EPSILON), budget("sum", 2 * EPSILON)
        client = enrolled(signed(old, serial=7), announce_key=ANNOUNCE_KEY, fleet="home")
        client.enroll(signed(old, serial=7))
        exp = client.enroll(signed(new, serial=9))
        for serial in (7, 8):
            with pytest.raises(ExperimentRefused, match="a newer version was published"):
                client.enroll(signed(old, serial=serial))
        assert client.report("e", True)[1:5] == exp.digest, "the newer version must stay enrolled"
        client.withdraw("e")
        client.withdraw("e")
        assert client.serials == {"e": 10}
        with pytest.raises(ExperimentRefused, match="a newer version was published"):
            client.enroll(signed(new, serial=9))
        client.enroll(signed(old, serial=10))

    def test_refused_message_does_not_raise_it(self):
        client = board({"epsilon": EPSILON}, announce_key=ANNOUNCE_KEY, fleet="home")
        forged = signed(budget("sum", EPSILON), key=KEY, serial=2**32 - 1)
        outside = signed(budget("sum", EPSILON, epsilon=EPSILON + 1), serial=2**32 - 1)
        for bad in (forged, outside):
            with pytest.raises(ExperimentRefused):
                client.enroll(bad)
            assert client.serials == {}
        client.enroll(signed(budget("sum", EPSILON), serial=1))

    def test_is_kept_without_reverifying_experiment(self):
        client = board(announce_key=ANNOUNCE_KEY, fleet="home")
        signed_payload = signed(budget("sum", EPSILON), key=KEY, serial=5)  # flash is trusted
        client.enroll(signed_payload, verified=True)
        assert client.serials == {"e": 5}
        with pytest.raises(ExperimentRefused, match="newer"):
            client.enroll(signed(budget("sum", EPSILON), serial=4))
        with pytest.raises(ExperimentRefused, match=MISSING):
            client.enroll(budget("sum", EPSILON), verified=True)


class StorageWithCallback(MemoryStorage):
    """Storage that calls back during a commit, as a timer or button may."""

    then: Any = staticmethod(lambda: None)

    def write(self, slot, data):
        self.then()
        super().write(slot, data)


class TestNestedCall:
    def test_spends_and_returns_nothing(self):
        storage = StorageWithCallback()
        provision(storage, consent=True)
        client = enrolled(budget("sum", 30 * EPSILON), storage=storage)
        inner: list = []

        def calls():
            inner.append(client.report("e", True))
            inner.append(client.sent(waiting))
            with pytest.raises(LedgerError, match="another call is in progress"):
                client.consent = True  # the opt-in must be repeated

        waiting = b""
        storage.then = calls
        reports = []
        for _ in range(40):
            report = client.report("e", True)
            if report:
                reports.append(report)
                waiting = report
                client.sent(report)
        assert inner
        assert set(inner) == {None}
        assert len(reports) == 30 == client.status()["sum"] // EPSILON
        assert len({r[5:9] for r in reports}) == 30

    def test_spends_nothing_during_draws_and_entropy(self, monkeypatch):
        client = enrolled(budget("sum", 30 * EPSILON, every=2))
        rng, urandom = client.rng, ldp_client.os.urandom
        nested: list = []

        class RandomWithCallback:
            def below(self, n):
                nested.append(client.report("e", False))
                return rng.below(n)

            def bernoulli(self, threshold):
                nested.append(client.report("e", False))
                return rng.bernoulli(threshold)

        def reads(n):
            nested.append(client.report("e", False))
            return urandom(n)

        monkeypatch.setattr(ldp_client.os, "urandom", reads)
        client.rng = RandomWithCallback()
        assert reports_until_silent(client) == 30
        assert set(nested) == {None}
        assert client.status()["sum"] == 30 * EPSILON

    def test_version_enrolled_during_report_makes_no_report(self):
        # enroll() in a callback is checked against a ledger in which this report has pinned nothing yet.
        for first, second in (("sum", "count"), ("count", "sum"), ("count", "count"), ("squares", "sum")):
            client = enrolled(budget(first, 2**50))
            rng = client.rng

            class Enrolls:
                def below(self, n, client=client, second=second, rng=rng):
                    client.enroll(budget(second, 2**50, epsilon=2 * EPSILON))
                    return rng.below(n)

                bernoulli = rng.bernoulli

            client.rng = Enrolls()
            assert client.report("e", True) is not None
            client.rng = rng
            client.withdraw("other")
            assert client.report("e", True) is None
            assert client.status()["experiments"]["e"]["left"] == 0
            assert client.status()["sum"] == EPSILON

    def test_does_nothing_without_threads(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "_thread", None)
        spec = importlib.util.spec_from_file_location("ldp_client_alone", ldp_client.__file__)
        alone: Any = importlib.util.module_from_spec(spec)  # pyright: ignore[reportArgumentType]
        spec.loader.exec_module(alone)  # pyright: ignore[reportOptionalMemberAccess]
        storage = memory()
        alone.provision(storage, consent=True)
        client = alone.Client(POLICY, storage, device_id="d")
        client.enroll(budget("sum", 9 * EPSILON))
        inner = []

        class Interrupting:
            def bernoulli(self, threshold):
                inner.append(client.report("e", True))
                return True

            def below(self, n):
                return 0

        client.rng = Interrupting()
        for number in range(1, 4):
            assert client.report("e", True) is not None
            assert inner == [None] * number
        assert client.status()["sum"] == 3 * EPSILON


def fresh_slots():
    storage = memory()
    provision(storage, consent=True)
    return storage.slots


class TestOptOutDuringAnotherCall:
    """The call that holds the lock writes the opt-out, so nothing is left to send after a restart."""

    @staticmethod
    def interrupted(call):
        """Return a client interrupted by an opt-out in its first write, a restarted one, and the answer."""
        storage = StorageWithCallback()
        provision(storage, consent=True)
        client = enrolled(budget("sum", 30 * EPSILON), storage=storage)
        assert client.report("e", True) is not None

        def no():
            del storage.then
            client.consent = False  # must not raise
            assert (client.consent, client.outbox()) == (False, [])

        storage.then = no
        answer = call(client)
        restarted = enrolled(budget("sum", 30 * EPSILON), storage=memory(storage.slots))
        return client, restarted, answer

    @pytest.mark.parametrize(
        ("call", "spent"),
        [
            (lambda client: client.report("e", True), 2),
            (lambda client: client.sent(client.outbox()[0]), 1),
            (lambda client: setattr(client, "consent", True), 1),
            (lambda client: setattr(client, "consent", False), 1),
        ],
        ids=["report", "sent", "opt-in", "opt-out"],
    )
    def test_is_stored_before_the_call_ends(self, call, spent):
        for client in self.interrupted(call)[:2]:
            assert (client.consent, client.outbox(), client.report("e", True)) == (False, [], None)
            assert client.status()["sum"] == spent * EPSILON
            client.consent = True
            assert client.outbox() == []  # the dropped reports stay dropped
            assert client.report("e", True) is not None

    def test_withholds_the_report(self):
        assert self.interrupted(lambda client: client.report("e", True))[2] is None

    def test_is_written_after_a_failed_report(self):
        storage = memory()
        provision(storage, consent=True)
        client = enrolled(budget("sum", 30 * EPSILON), storage=storage)
        rng = client.rng

        class OptOutOnDraw:
            bernoulli = rng.bernoulli

            def below(self, n):
                client.consent = False
                raise EntropyError("no more")

        client.rng = OptOutOnDraw()
        with pytest.raises(EntropyError):
            client.report("e", True)
        assert enrolled(budget("sum", 30 * EPSILON), storage=memory(storage.slots)).consent is False

    def test_is_written_if_it_arrives_just_before_unlock(self):
        storage = memory()
        provision(storage, consent=True)
        client = enrolled(budget("sum", 30 * EPSILON), storage=storage)

        class Lock:
            """A lock that is released after an opt-out that the call has not seen."""

            def __init__(self, lock):
                self.lock, self.opt_outs = lock, 1
                self.acquire = lock.acquire

            def release(self):
                if self.opt_outs:
                    self.opt_outs -= 1
                    client.consent = False
                self.lock.release()

        client._lock = Lock(client._lock)
        assert client.report("e", True) is not None  # it was returned before the opt-out
        assert client._lock.acquire(False)
        assert enrolled(budget("sum", 30 * EPSILON), storage=memory(storage.slots)).outbox() == []

    def test_wins_over_unfinished_opt_in(self):
        storage = memory()
        provision(storage)
        client = enrolled(budget("sum", 30 * EPSILON), storage=storage)

        class Lock:
            """A lock that the opt-in acquires only after a complete opt-out."""

            def __init__(self, lock):
                self.lock, self.opt_outs = lock, 1
                self.release = lock.release

            def acquire(self, wait):
                if self.opt_outs:
                    self.opt_outs -= 1
                    client.consent = False
                return self.lock.acquire(wait)

        client._lock = Lock(client._lock)
        client.consent = True
        assert client.consent is False
        answers = [newest_record({0: record})["consent"] for record in storage.slots.values()]
        assert True not in answers  # not even temporarily

    def test_is_retried_by_next_call_after_failed_write(self):
        storage = FailingStorage(fresh_slots(), "raise", 99)
        client = enrolled(budget("sum", 30 * EPSILON), storage=storage)
        assert client.report("e", True) is not None
        storage.at = writes = len(storage.writes)
        with pytest.raises(LedgerError, match="storage failed"):
            client.consent = False
        assert enrolled(budget("sum", 30 * EPSILON), storage=memory(storage.slots)).consent is True
        assert len(storage.writes) == writes + 1
        assert (client.report("e", True), client.consent) == (None, False)
        restarted = enrolled(budget("sum", 30 * EPSILON), storage=memory(storage.slots))
        assert (restarted.consent, restarted.outbox(), client.status()["error"]) == (False, [], None)

    @pytest.mark.parametrize("fault", ["cut-before", "cut-after", "torn-cut"])
    @pytest.mark.parametrize("at", [0, 1])
    def test_power_cut_leaves_a_complete_answer(self, fault, at):
        storage = FailingStorage(fresh_slots(), fault, 99)
        client = enrolled(budget("sum", 30 * EPSILON), storage=storage)
        storage.at = len(storage.writes) + at
        rng = client.rng

        class OptOutOnDraw:
            bernoulli = rng.bernoulli

            def below(self, n):
                client.consent = False
                return rng.below(n)

        client.rng = OptOutOnDraw()
        with pytest.raises(PowerCut):
            client.report("e", True)
        restarted = enrolled(budget("sum", 30 * EPSILON), storage=memory(storage.slots))
        is_stored = fault == "cut-after"
        assert restarted.consent is (None if restarted.status()["locked"] else not (at and is_stored))
        assert restarted.status()["locked"] is None or fault == "torn-cut"
        assert restarted.status()["sum"] <= EPSILON
        if restarted.consent is False:
            assert restarted.outbox() == []


class TestThreads:
    def test_use_a_lock(self):
        assert type(board()._lock) is type(_thread.allocate_lock())

    def test_never_exceed_budget(self):
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(5):
                client = enrolled(budget("sum", 60 * EPSILON), key=KEY)
                reports: list = []

                def work(client=client, reports=reports):
                    for _ in range(200):
                        report = client.report("e", True)
                        if report is not None:
                            reports.append(report)
                            with contextlib.suppress(LedgerError):
                                client.sent(report)
                        for waiting in client.outbox():
                            client.sent(waiting)

                threads = [threading.Thread(target=work) for _ in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert len(reports) <= 60
                assert len({r[5:9] for r in reports}) == len(reports), "a number was used for two reports"
                assert client.status()["sum"] == len(reports) * EPSILON
                assert client.status()["locked"] is None
        finally:
            sys.setswitchinterval(interval)


class TestStatus:
    def test_has_plain_values_and_remaining_reports(self):
        client = board()
        exp = client.enroll(budget("sum", 4 * EPSILON))
        client.report("e", True)
        status = client.status()
        assert json.loads(json.dumps(status)) == status
        assert (status["locked"], status["error"], status["consent"], status["pending"]) == (
            None,
            None,
            True,
            1,
        )
        assert status["experiments"]["e"] == {
            "state": "reporting",
            "reports": 1,
            "left": 3,
            "reason": None,
            "digest": exp.digest.hex(),
            "epsilon": EPSILON,
            "group": "",
            "leaf": None,
        }
        assert status["experiments"]["f"]["state"] == "absent"

    def test_never_contains_reading_or_code(self):
        histories = []
        for values in ((True, True, True), (False, None, False)):
            client = enrolled(budget("sum", 4 * EPSILON))
            for value in values:
                client.report("e", value)
            histories.append(client.status())
        assert histories[0] == histories[1]


class TestGroup:
    def client(self, key=None, **changes):
        client = board({"groups": ("firmware",)}, key=key)
        client.enroll(budget("sum", 4 * EPSILON, **FIRMWARE, **changes))
        return client

    def test_is_one_byte_before_the_code(self):
        client = self.client()
        for groups, index in (
            ({"firmware": "2.4.0"}, 1),
            ({"firmware": "2.3.1"}, 0),
            ({"firmware": "2.5.0"}, 2),
            ({"model": "2.4.0"}, 2),
        ):
            client.groups = groups
            report = client.report("e", True)
            assert (report[0], report[9], len(report)) == (0x12, index, 11)

    def test_is_that_of_the_readings_period(self):
        client = self.client()
        client.groups = {"firmware": "2.4.0"}
        assert [client.report("e", True, None, value)[9] for value in ("2.3.1", "2.4.0", "1.0")] == [0, 1, 2]

    def test_is_covered_by_the_tag(self):
        client = self.client(key=KEY)
        report = client.report("e", True)
        exp = client._experiments["e"]
        tag = hmac.digest(KEY, client.device_id.encode() + b"\0" + exp.sha256 + report[:-8], "sha256")[:8]
        assert (report[0], report[-8:], len(report)) == (0x13, tag, 19)

    def test_is_named_in_status(self):
        assert self.client().status()["experiments"]["e"]["group"] == "firmware"


class TestReport:
    def test_has_consecutive_numbers_per_experiment_name(self):
        client = board()
        seen = {"e": [], "f": []}
        for i in range(12):
            name = "ef"[i % 3 == 0]
            # Numbers continue across new versions, restarts and withdrawn experiments.
            client.enroll(budget("sum", 100 * EPSILON, name=name, epsilon=EPSILON + i))
            report = client.report(name, i % 2 == 0)
            seen[name].append(int.from_bytes(report[5:9], "big"))
            client.sent(report)
            if i % 4 == 3:
                client = board(storage=client._ledger._storage)
        assert seen == {"e": [1, 2, 3, 4, 5, 6, 7, 8], "f": [1, 2, 3, 4]}

    def test_tag_is_documented_hmac(self):
        client = board(key=KEY, device_id="k3f9x1")
        payload = budget("sum", 4 * EPSILON)
        client.enroll(payload)
        report = client.report("e", True)
        text = b"k3f9x1" + b"\x00" + hashlib.sha256(payload).digest() + report[:-8]
        assert report[-8:] == hmac.new(KEY, text, hashlib.sha256).digest()[:8]

    def test_contains_the_randomizers_code(self):
        class Honest:
            def bernoulli(self, threshold):
                return True

            def below(self, n):
                return 0

        client = enrolled(budget("count", 6, type="choice", labels=["a", "b", "c"], mechanism="grr"))
        client.rng = Honest()
        assert [client.report("e", v)[-1] for v in ("a", "b", "c", "?", "a", None)] == [0, 1, 2, 3, 0, 0]

    def test_is_none_for_experiment_never_enrolled(self):
        client = board()
        assert client.report("e", True) is None
        assert client.report("e", object()) is None
