"""Precomputed gaps have exactly the distribution of a draw at each call, over every branch of the code."""

import itertools
from fractions import Fraction
from typing import Any

import pytest
from enumeration import POLICY, distribution, memory
from experiments import experiment_json

from hushmote.device import gap, ldp_client
from hushmote.device.ldp_client import Client

NAMES = POLICY["experiments"]
Calls = tuple[tuple[str, ...], ...]
"""Of each call the names that report."""


def board(every: tuple[int, ...], rng: Any = None, cap: int = 4_000_000, consent: Any = True) -> Client:
    storage = memory()
    ldp_client.provision(storage, consent=consent)
    client = Client(POLICY, storage, "board-1")
    for name, n in zip(NAMES, every, strict=False):
        client.enroll(experiment_json(name=name, every=n, budget={"rule": "sum", "cap": cap}))
    client.rng = rng or client.rng
    return client


def independent(every: tuple[int, ...], calls: int) -> dict[Calls, Fraction]:
    """Return the distribution with an independent draw for each experiment at each call."""
    law = {}
    says = list(itertools.product((True, False), repeat=len(every)))
    for course in itertools.product(says, repeat=calls):
        chance = Fraction(1)
        for call in course:
            for yes, n in zip(call, every, strict=True):
                chance *= Fraction(1, n) if yes else Fraction(n - 1, n)
        if chance:
            names = (tuple(name for name, yes in zip(NAMES, call, strict=False) if yes) for call in course)
            law[tuple(names)] = chance
    return law


@pytest.mark.parametrize(
    "every",
    [(1,), (2,), (5,), (2, 3), (3, 1), (2, 2, 3)],
    ids=["1", "2", "5", "2 and 3", "3 and 1", "2, 2 and 3"],
)
def test_gap_matches_distribution_of_independent_draws(every: tuple[int, ...]):
    max_calls = 4 if len(every) < 3 else 3
    law: dict[Any, Fraction] = {}
    for course, chance in independent(every, max_calls).items():
        first = next((i for i, names in enumerate(course) if names), None)
        gap_and_names = (max_calls, ()) if first is None else (first + 1, course[first])
        law[gap_and_names] = law.get(gap_and_names, Fraction(0)) + chance

    def run(rng: Any) -> Any:
        calls, reporting = gap.draw(board(every, rng), max_calls)
        return calls, tuple(sorted(reporting))

    assert distribution(run) == law


@pytest.mark.parametrize(
    ("every", "limit"),
    [((3,), 2), ((2, 3), 4), ((2, 3), 1)],
    ids=["3 in gaps of 2", "2 and 3 in gaps of 4", "2 and 3 in gaps of 1"],
)
def test_reports_after_gaps_match_independent_draws(every: tuple[int, ...], limit: int):
    """Draw several gaps over a few calls; the last is cut short, as by a refresh or power cut."""
    calls = 4 - len(every)

    def run(rng: Any) -> Any:
        client = board(every, rng)
        course: list[tuple[str, ...]] = []
        while len(course) < calls:
            first, reporting = gap.draw(client, min(limit, calls - len(course)))
            course += [()] * (first - 1)
            reports = {name: client.report(name, None, reporting[name]) for name in reporting}
            assert all(reports.values())
            course.append(tuple(sorted(reports)))
        return tuple(course)

    assert distribution(run) == independent(every, calls)


FIRMWARE: dict[str, Any] = {"group": "firmware", "groups": ["2.3.1", "2.4.0"], "every": [3, 1, 2]}


def board_with_group(rng: Any, firmware: str | None) -> Client:
    storage = memory()
    ldp_client.provision(storage, consent=True)
    client = Client(POLICY | {"groups": ("firmware",)}, storage, "board-1")
    client.enroll(experiment_json(**FIRMWARE))
    client.groups = {} if firmware is None else {"firmware": firmware}
    client.rng = rng
    return client


@pytest.mark.parametrize(("firmware", "every"), [("2.3.1", 3), ("2.4.0", 1), ("2.5.0", 2), (None, 2)])
def test_gap_has_the_rate_of_the_boards_group(firmware: str | None, every: int):
    def run(rng: Any, **groups: str) -> bool:
        client = board_with_group(rng, None if groups else firmware)
        _, drawn = gap.draw(client, 1, groups)
        return bool(drawn) and client.report("e", None, drawn["e"], groups.get("e")) is not None

    assert distribution(run)[True] == Fraction(1, every)
    if firmware is not None:
        assert distribution(lambda rng: run(rng, e=firmware))[True] == Fraction(1, every)


def test_draw_is_valid_only_for_its_group():
    def run(rng: Any) -> Any:
        client = board_with_group(rng, "2.4.0")
        calls, drawn = gap.draw(client, 5)
        assert calls == 1, "2.4.0 reports at every call"
        return client.report("e", True, drawn["e"], "2.3.1") is not None

    assert distribution(run) == {True: Fraction(1, 3), False: Fraction(2, 3)}


def test_draw_is_valid_only_for_its_version():
    def run(rng: Any) -> Any:
        client = board((2,), rng)
        _, reporting = gap.draw(client, 1)
        if not reporting:
            return "silent"
        client.enroll(experiment_json(name="e", every=5))
        return client.report("e", True, drawn=reporting["e"]) is not None

    assert distribution(run) == {
        "silent": Fraction(1, 2),
        True: Fraction(1, 2) * Fraction(1, 5),
        False: Fraction(1, 2) * Fraction(4, 5),
    }


def test_draw_never_exceeds_budget():
    client = board((2**24,), cap=2_000_000)
    digest = client._experiments["e"].digest
    reports = [client.report("e", True, digest) for _ in range(5)]
    assert [report is not None for report in reports] == [True, True, False, False, False]
    client.enroll(experiment_json(name="e", budget={"rule": "sum", "cap": 2_000_000}))
    assert gap.draw(client, 9) == (9, {})  # every = 1 never wakes a board after the budget is spent


@pytest.mark.parametrize("consent", [None, False])
def test_draws_nothing_before_opt_in(consent: Any):
    client = board((1,), consent=consent)
    assert gap.draw(client, 9) == (9, {})


def test_draws_nothing_within_another_call():
    class Calls:
        def below(self, n: int) -> int:
            reporting.append(gap.draw(client, 9))
            return 0

        bernoulli = below

    reporting: list[Any] = []
    client = board((2,), Calls())
    assert client.report("e", True) is not None
    assert set(map(str, reporting)) == {"(0, {})"}
    assert gap.draw(client, 9) == (1, {"e": client._experiments["e"].digest})
