"""The highest report number of a version, which neither an honest board nor a forger can exceed."""

import datetime

import pytest
from boards import client, experiment, payload_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.server.store import VersionRefused
from hushmote.server.store.versions import Version, check_total, most_reports, retired_until
from hushmote.server.wire import report


def version(id_, exp, first, last):
    return Version(id_, "home", payload_of(exp), False, None, exp, None, first, last)


def version_of(rule, epsilon, cap):
    """Build a version with an ε in tenths, and a cap of a number of reports at ε = 1."""
    cap = {"sum": cap * 1_000_000, "squares": cap * 10**12, "count": cap}[rule]
    return experiment(epsilon=epsilon * 100_000, budget={"rule": rule, "cap": cap})


VERSIONS = st.tuples(st.sampled_from(["sum", "squares", "count"]), st.integers(1, 6)).flatmap(
    lambda first: st.lists(
        st.tuples(st.integers(1, 10), st.integers(0, first[1])), min_size=1, max_size=4
    ).map(lambda others: (first[0], [(10 if first[0] == "count" else e, c) for e, c in others], first[1]))
)


class TestMostReports:
    def test_old_version_allows_its_own_budget(self):
        old, new = version_of("sum", 10, 4), version_of("sum", 1, 4)
        assert most_reports([version(1, old, 1, 1), version(2, new, 2, 2)]) == {1: 4, 2: 40}

    def test_expensive_version_follows_a_cheaper_one(self):
        cheap, dear = version_of("sum", 1, 1), version_of("sum", 10, 4)
        # After ten reports at ε = 0.1, three at ε = 1 fit; number 13 is the fourth.
        assert most_reports([version(1, cheap, 1, 1), version(2, dear, 2, 2)]) == {1: 10, 2: 13}
        # Published again it may come after the other.
        assert most_reports([version(1, dear, 1, 3), version(2, cheap, 2, 2)]) == {1: 13, 2: 10}

    def test_cap_below_cost_allows_none_and_unlimited_all(self):
        none = experiment(budget={"rule": "sum", "cap": 999_999})
        free = experiment(name="free", budget={"rule": "unlimited"})
        assert most_reports([version(1, none, 1, 1), version(2, free, 2, 2)]) == {1: 0, 2: None}

    @given(VERSIONS)
    @settings(max_examples=60)
    def test_bound_is_reached_by_some_honest_board(self, versions):
        rule, others, top = versions
        exps = list(dict.fromkeys(version_of(rule, e, c) for e, c in [(10, top), *others] if c > 0))
        max_reports = most_reports([version(i, exp, 0, 1) for i, exp in enumerate(exps)])
        # Boards by the budget used and the number of reports made.
        highest, frontier = dict.fromkeys(range(len(exps)), 0), {(0, 0)}
        while frontier:
            following = set()
            for spent, number in frontier:
                for i, exp in enumerate(exps):
                    if spent + exp.cost() <= exp.cap:
                        highest[i] = max(highest[i], number + 1)
                        following.add((spent + exp.cost(), number + 1))
            frontier = following
        assert max_reports == highest

    @given(
        st.sampled_from(["sum", "squares", "count"]),
        st.integers(1, 5),
        st.lists(st.tuples(st.integers(1, 10), st.integers(1, 5)), min_size=1, max_size=3),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=8),
    )
    @settings(max_examples=80)
    def test_honest_board_never_exceeds_the_bound(self, rule, top, others, steps):
        exps = [version_of(rule, 10, top)]
        for epsilon, cap in others:
            exp = version_of(rule, 10 if rule == "count" else epsilon, min(cap, top))
            if exp not in exps:
                exps.append(exp)
        # Publications, by serial, are known before the board's reports arrive late and in any order.
        spans, board, sent_reports = {}, None, []
        for serial, (which, reports) in enumerate(steps, 1):
            exp = exps[which % len(exps)]
            first, _ = spans.get(exp.digest, (serial, 0))
            spans[exp.digest] = first, serial
            if not reports:
                continue  # the board slept
            if board is None:
                board = client("a", exp)
            board.enroll(payload_of(exp))
            for _ in range(reports):
                payload = board.report("temp", 20.0)
                if payload is not None:
                    board.sent(payload)
                    sent_reports.append(report.decode(payload))
        versions = [version(i, exp, *spans[exp.digest]) for i, exp in enumerate(exps) if exp.digest in spans]
        max_reports = most_reports(versions)
        bounds = {v.experiment.digest: max_reports[v.id] for v in versions}
        assert all(sent.number <= (bounds[sent.digest] or 0) for sent in sent_reports)


class TestDays:
    def test_version_counts_until_its_last_day(self):
        exp, day = experiment(), datetime.date(2026, 11, 22)
        later = day + datetime.timedelta(1)
        assert version(1, exp, 1, 1).counts_on(datetime.date.max)
        until = Version(1, "home", payload_of(exp), False, None, exp, day)
        assert until.counts_on(day)
        assert not until.counts_on(later)

    def test_version_is_published_until_its_expiry(self):
        exp, day = experiment(), datetime.date(2026, 11, 22)
        for current in (True, False):
            until = Version(1, "home", payload_of(exp), current, day, exp)
            assert until.published_on(day) is current
            assert not until.published_on(day + datetime.timedelta(1))

    def test_retired_version_counts_for_its_grace_period(self):
        exp, today = experiment(), datetime.date(2026, 11, 22)
        for counted, last in (
            (None, 24),
            (datetime.date(2026, 11, 30), 24),
            (datetime.date(2026, 11, 23), 23),
        ):
            old = Version(1, "home", payload_of(exp), True, None, exp, counted)
            assert retired_until(old, today, 3) == datetime.date(2026, 11, last)


class TestTotal:
    def test_cap_rule_and_epsilon_are_limited_by_the_first(self):
        def budget(rule: str, cap: int, epsilon: int = 1_000_000):
            return experiment(epsilon=epsilon, budget={"rule": rule, "cap": cap})

        first, counted = budget("sum", 4_000_000), budget("count", 4)
        unlimited = experiment(budget={"rule": "unlimited"})
        for new in (first, budget("sum", 3_999_999), budget("sum", 4_000_000, 500_000)):
            check_total(first, new)
        check_total(counted, budget("count", 3))
        for exp, new, words in (
            (first, budget("sum", 4_000_001), "cannot have a cap above its first cap, 4: lower"),
            (first, budget("squares", 4), "has the budget rule sum, which cannot change"),
            (unlimited, first, "has the budget rule unlimited, which cannot change"),
            (counted, budget("count", 4, 999_999), "its epsilon must remain 1$"),
        ):
            with pytest.raises(VersionRefused, match=words):
                check_total(exp, new)
