"""The privacy proof: every branch of the shipped code, exact probabilities, every input to report().

Domains. `randomize` is enumerated for rr, and for grr, olh and hh at domains from 2 to 64, at every
epsilon of the grid. Hash families with many seeds (g = 7 and 11 at domain 64) are enumerated at three.
The path through a real Client and its ledger, which costs a commit per branch, is enumerated for every
mechanism at domains up to 11, and for grr, olh and hh at 64 for a selection of inputs.
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from enumeration import (
    POLICY,
    BranchingRng,
    assert_private,
    distribution,
    exp_below,
    memory,
    worst_ratio,
)
from experiments import experiment_json

from hushmote.device import ldp_client
from hushmote.device.ldp_client import ONE, Client, Experiment, ExperimentRefused

EPSILONS = (1_000, 100_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)


def numbers(domain, **mechanism):
    return {"type": "number", "low": -20_000, "high": 50_000, "bins": domain, **mechanism}


def labels(count, **mechanism):
    return {"type": "choice", "labels": [f"l{i}" for i in range(count)], **mechanism}


def hh(domain, fanout, cells, **more):
    return numbers(domain, mechanism="hh", fanout=fanout, cells=cells, **more)


SHAPES = {
    "rr": {"type": "bool", "mechanism": "rr"},
    "rr-number": numbers(2, mechanism="rr"),
    "rr-one-label": labels(1, mechanism="rr"),
    "grr-2": {"type": "bool", "mechanism": "grr"},
    "grr-3": labels(2, mechanism="grr"),
    "grr-16": numbers(16, mechanism="grr"),
    "grr-64": numbers(64, mechanism="grr"),
    "olh-3-2": labels(2, mechanism="olh", g=2),
    "olh-5-3": numbers(5, mechanism="olh", g=3),
    "olh-9-3": numbers(9, mechanism="olh", g=3),
    "olh-10-3": numbers(10, mechanism="olh", g=3),
    "olh-16-13": numbers(16, mechanism="olh", g=13),
    "olh-33-5": labels(32, mechanism="olh", g=5),
    "olh-64-2": numbers(64, mechanism="olh", g=2),
    "olh-64-3": labels(63, mechanism="olh", g=3),
    "hh-2": hh(2, 2, [2]),
    "hh-5-2": hh(5, 2, [2, 3, 3]),
    "hh-5-2-weights": hh(5, 2, [2, 2, 5], weights=[3, 0, 1]),
    "hh-9-3-hash": hh(9, 3, [2, 5], weights=[1, 4]),
    "hh-27-5-incomplete": hh(27, 5, [2, 3, 7]),
    "hh-64-4": hh(64, 4, [4, 3, 3]),
    "hh-64-2-weights": hh(64, 2, [2, 4, 7, 3, 2, 3], weights=[1, 0, 2, 1, 1, 2]),
    "hh-64-9": hh(64, 9, [7, 3]),
}
SLOW_SHAPES = {"olh-16-13", "olh-64-3", "hh-64-2-weights", "hh-64-9"}
SLOW = pytest.mark.slow
COSTLY_SHAPES = {
    "olh-64-7": numbers(64, mechanism="olh", g=7),
    "olh-64-11": numbers(64, mechanism="olh", g=11),
}


def parse(shape, epsilon, **more):
    return Experiment.parse(experiment_json(epsilon=epsilon, **shape, **more))


def readings(exp):
    """Every kind of input to report(): each index, no reading, and what does not fit."""
    if exp.type == "bool":
        return [True, False, 0, 1, 7, -1, None, math.nan]
    if exp.type == "choice":
        return [*exp.labels, "not listed", "", "é" * 99, None, math.nan]
    step = (exp.high - exp.low) / exp.domain / 1000
    bins = [exp.low / 1000 + (i + 0.5) * step for i in range(exp.domain)]
    beyond = [-math.inf, math.inf, -1e308, 1e308, 10**30, -(10**30), exp.low // 1000, exp.high // 1000, 0]
    return [*bins, *beyond, None, math.nan, -math.nan]


def randomize_distributions(exp, randomize: Callable | None = None):
    """Index (None: no reading) -> code -> exact probability, for every index that readings lead to."""
    run = exp.randomize if randomize is None else randomize
    indices = {exp.bucket(value) for value in readings(exp)}
    assert indices == {None, *range(exp.domain)}, "readings() must reach every index and no other"
    exact = {i: distribution(lambda rng, i=i: run(i, rng)) for i in indices}
    for codes in exact.values():
        assert all(type(code) is int and 0 <= code < exp.code_count for code in codes)
    return exact


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", [pytest.param(x, marks=SLOW if x in SLOW_SHAPES else ()) for x in SHAPES])
def test_no_code_is_more_than_e_to_the_epsilon_likelier_for_one_index_than_for_another(name, epsilon):
    exp = parse(SHAPES[name], epsilon)
    ratio = assert_private(randomize_distributions(exp), epsilon)
    # Not only below e^epsilon but close to it: rounding the threshold down costs next to nothing.
    assert ratio > exp_below(epsilon) * (1 - rounding_loss(exp))


def rounding_loss(exp):
    """Relative loss of the ratio when a threshold is one unit short, for the least favourable level."""
    return max(2 * ONE / (level.threshold * (ONE - level.threshold)) for level in exp.levels)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1_000, 2_000_000, 8_000_000])
@pytest.mark.parametrize("name", COSTLY_SHAPES)
def test_hash_families_with_many_seeds_keep_the_ratio(name, epsilon):
    exp = parse(COSTLY_SHAPES[name], epsilon)
    assert_private(randomize_distributions(exp), epsilon)


def test_an_epsilon_too_small_for_its_cells_is_refused_and_fewer_cells_are_not():
    with pytest.raises(ExperimentRefused, match="epsilon is too small for so many cells"):
        parse(numbers(2**24, mechanism="grr"), 1_000)
    # p * ONE is 512.51 at 2**21 cells and 1025.02 at 2**20: floored, only the second is above ONE / g.
    with pytest.raises(ExperimentRefused, match="too small"):
        parse(numbers(2**21, mechanism="grr"), 1_000)
    assert parse(numbers(2**20, mechanism="grr"), 1_000).levels[0].threshold == 1025
    for domain in (2, 3, 16, 64):
        assert_private(randomize_distributions(parse(numbers(domain, mechanism="grr"), 1_000)), 1_000)


def test_a_missing_reading_is_a_uniformly_drawn_index():
    for name in ("rr", "grr-16", "olh-10-3", "hh-5-2-weights"):
        exp = parse(SHAPES[name], 1_000_000)
        exact = randomize_distributions(exp)
        for code, chance in exact[None].items():
            assert chance == sum(exact[i][code] for i in range(exp.domain)) / exp.domain


def test_indices_outside_the_domain_are_a_programming_error():
    exp = parse(SHAPES["grr-16"], 1_000_000)
    for index in (-1, 16, 2**40):
        with pytest.raises(ValueError, match="bad index"):
            exp.randomize(index, BranchingRng())


# --- The same through a real client and its ledger -------------------------------------------------


def provisioned():
    storage = memory()
    ldp_client.provision(storage)
    return storage.slots


def report_distributions(payload, values, *, key=None, client_class=Client, slots=None):
    """Reading -> output of report(), silence (None) included -> exact probability."""
    slots = slots or provisioned()

    def run(rng, value):
        client = client_class(POLICY, memory(slots), device_id="d", key=key)
        client.enroll(payload)
        client.rng = rng
        return client.report("e", value)

    # Inputs by position: 0 and False, or two NaNs, are one dictionary key or never one.
    return {i: distribution(lambda rng, v=v: run(rng, v)) for i, v in enumerate(values)}


CLIENT_CASES = {
    "rr": (SHAPES["rr"], 3),
    "rr-number": (SHAPES["rr-number"], 2),
    "grr": (labels(3, mechanism="grr"), 2),
    "grr-number": (numbers(11, mechanism="grr"), 1),
    "olh": (labels(4, mechanism="olh", g=3), 2),
    "olh-number": (numbers(7, mechanism="olh", g=5), 1),
    "hh": (hh(5, 2, [2, 2, 5], weights=[1, 0, 2]), 2),
    "hh-hash": (hh(7, 3, [3, 2]), 1),
}


@pytest.mark.parametrize("epsilon", [1_000, 1_000_000, 8_000_000])
@pytest.mark.parametrize("name", CLIENT_CASES)
def test_no_output_of_report_tells_two_readings_apart_by_more_than_e_to_the_epsilon(name, epsilon):
    shape, every = CLIENT_CASES[name]
    cap = {"rule": "sum", "cap": 8_000_000}
    payload = experiment_json(epsilon=epsilon, every=every, budget=cap, **shape)
    exact = report_distributions(payload, readings(Experiment.parse(payload)), key=b"k" * 32)
    assert_private(exact, epsilon)
    for outputs in exact.values():
        assert outputs.get(None, 0) == 1 - Fraction(1, every)


@pytest.mark.parametrize(
    "shape",
    [SHAPES["grr-64"], SHAPES["olh-64-2"], SHAPES["olh-64-3"], hh(64, 8, [8, 3])],
    ids=["grr", "olh-2", "olh-3", "hh"],
)
def test_64_values_through_the_client_keep_the_ratio(shape):
    payload = experiment_json(**shape)
    exp = Experiment.parse(payload)
    some = [
        v for i, v in enumerate(readings(exp)) if v is not None and (i in (0, 1, 9, 62) or i > 62) and v == v
    ]
    exact = report_distributions(payload, some[:9])
    assert_private(exact, exp.epsilon)


def test_a_whole_life_of_readings_stays_within_the_cap_whatever_they_were():
    # Four calls, each with a coin of 1/2, a cap of two reports: every pair of histories is compared.
    payload = experiment_json(every=2, budget={"rule": "sum", "cap": 2_000_000})
    slots = provisioned()

    def life(rng, history):
        client = Client(POLICY, memory(slots), device_id="d")
        client.enroll(payload)
        client.rng = rng
        return tuple(client.report("e", value) for value in history)

    histories = list(itertools.product((False, True), repeat=4))
    exact = {h: distribution(lambda rng, h=h: life(rng, h)) for h in histories}
    ratio = assert_private(exact, 2_000_000)
    assert ratio > exp_below(1_900_000), "the histories must differ in more than one report"


def test_whether_a_report_is_made_never_depends_on_the_value():
    payload = experiment_json(every=3, budget={"rule": "count", "cap": 1}, **labels(3, mechanism="grr"))
    values = readings(Experiment.parse(payload))
    fresh = provisioned()
    spent = memory(fresh)
    client = Client(POLICY, spent, device_id="d")
    client.enroll(payload)
    while client.report("e", None) is None:
        pass
    off = memory(fresh)
    Client(POLICY, off, device_id="d").enabled = False
    locked = {0: b"no ledger", 1: b"none here"}
    for slots, chance in ((fresh, 2), (spent.slots, 3), (off.slots, 3), (locked, 3)):
        for outputs in report_distributions(payload, values, slots=slots).values():
            assert outputs.get(None, 0) * 3 == chance


# --- The check can fail ------------------------------------------------------------------------------


def lie_from_all_cells(exp):
    """Randomized response with the well-known error: the lie is drawn from all g cells."""

    def randomize(index, rng):
        level = exp.levels[0]
        if index is None:
            index = rng.below(exp.domain)
        return index if rng.bernoulli(level.threshold) else rng.below(level.g)

    return randomize


@pytest.mark.parametrize("name", ["rr", "grr-3", "grr-16", "grr-64"])
def test_a_lie_drawn_from_all_cells_fails_the_check(name):
    for epsilon in EPSILONS:
        exp = parse(SHAPES[name], epsilon)
        exact = randomize_distributions(exp, lie_from_all_cells(exp))
        with pytest.raises(AssertionError, match=r"^ratio .* is above e\^"):
            assert_private(exact, epsilon)


class RefusesUnknownLabels(Client):
    def report(self, name, value):
        return super().report(name, value) if value is None or value in ("l0", "l1", "l2") else None


class RefusesMissingReadings(Client):
    def report(self, name, value):
        return super().report(name, value) if value is not None else None


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("broken", [RefusesUnknownLabels, RefusesMissingReadings])
def test_silence_for_some_values_fails_the_check(broken, every):
    payload = experiment_json(every=every, **labels(3, mechanism="grr"))
    values = ["l0", "l1", "l2", "not listed", None]
    assert_private(report_distributions(payload, values), 1_000_000)
    exact = report_distributions(payload, values, client_class=broken)
    assert worst_ratio(exact) is None
    with pytest.raises(AssertionError, match="impossible for another"):
        assert_private(exact, 1_000_000)


def test_a_threshold_one_unit_too_high_fails_the_check():
    exp = parse(SHAPES["grr-3"], 1_000_000)
    exp.levels[0].threshold += 1
    with pytest.raises(AssertionError, match=r"^ratio .* is above e\^"):
        assert_private(randomize_distributions(exp), 1_000_000)
