"""Prove report()'s privacy over every branch of the shipped client and its ledger, with exact probabilities.

Every kind of input is compared, including missing and invalid readings, and silence counts as an output.
tests/contracts/test_epsilon.py proves the randomizers alone, for more shapes and every ε.
"""

import ast
import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from enumeration import POLICY, BranchingRng, assert_private, distribution, exp_below, memory, worst_ratio
from experiments import TEXTS, experiment_json
from wake_ups import provisioned

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client, Experiment, ExperimentRefused

CAP = {"rule": "sum", "cap": 8_000_000}


def numbers(domain, **mechanism):
    return {"type": "number", "low": -20_000, "high": 50_000, "bins": domain, **mechanism}


def labels(count, **mechanism):
    return {"type": "choice", "labels": [f"l{i}" for i in range(count)], **mechanism}


def hh(domain, fanout, cells, **more):
    return numbers(domain, mechanism="hh", fanout=fanout, cells=cells, **more)


TEXT = {"type": "text", "salt": "pepper", "slots": 8}
PAIR = {
    "type": "pair",
    "of": [
        {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]},
        {"name": "crashed", "type": "bool"},
    ],
}
PAIRS = (("1.2", True), ("1.3", False), ("not listed", True), (None, True), ("1.2", None), None)


def parse(shape, epsilon):
    return Experiment.parse(experiment_json(epsilon=epsilon, **shape))


def readings(exp) -> list[Any]:
    """Return every kind of input to report(): each index, a missing reading, and invalid values."""
    if exp.type == "bool":
        return [True, False, 0, 1, 7, -1, None, math.nan]
    if exp.type == "choice":
        return [*exp.labels, "not listed", "", "é" * 99, None, math.nan]
    if exp.type == "text":
        return [None, *TEXTS]
    if exp.type == "pair":
        return [*PAIRS]
    count = exp.missing or exp.domain
    step = (exp.high - exp.low) / count / 1000
    bins = [exp.low / 1000 + (i + 0.5) * step for i in range(count)]
    beyond = [-math.inf, math.inf, -1e308, 1e308, 10**30, -(10**30), exp.low // 1000, exp.high // 1000, 0]
    return [*bins, *beyond, None, math.nan, -math.nan]


class TestRefusal:
    def test_rejects_epsilon_too_small_for_cell_count(self):
        with pytest.raises(ExperimentRefused, match="epsilon is too small for so many cells"):
            parse(numbers(2**24, mechanism="grr"), 1_000)
        # p * ONE is 512.51 with 2**21 cells and 1025.02 with 2**20; floored, only the second exceeds ONE / g.
        with pytest.raises(ExperimentRefused, match="too small"):
            parse(numbers(2**21, mechanism="grr"), 1_000)
        assert parse(numbers(2**20, mechanism="grr"), 1_000).levels[0].threshold == 1025

    def test_raises_on_index_outside_domain(self):
        exp = parse(numbers(16, mechanism="grr"), 1_000_000)
        for index in (-1, 16, 2**40):
            with pytest.raises(ValueError, match="bad index"):
                exp.randomize(index, BranchingRng())


def report_distributions(payload, values, *, key=None, client_class=Client, slots=None):
    """Map each reading to the exact probability of every output of report(), including silence (None)."""
    slots = slots or provisioned()

    def run(rng, value):
        client = client_class(POLICY, memory(slots), device_id="d", key=key)
        client.enroll(payload)
        client.rng = rng
        return client.report("e", value)

    # Inputs are identified by position, because 0 and False are equal as dictionary keys and NaNs are not.
    return {i: distribution(lambda rng, v=v: run(rng, v)) for i, v in enumerate(values)}


CLIENT_CASES = {
    "rr": ({"type": "bool", "mechanism": "rr"}, 3),
    "rr-number": (numbers(2, mechanism="rr"), 2),
    "grr": (labels(3, mechanism="grr"), 2),
    "grr-number": (numbers(11, mechanism="grr"), 1),
    "olh": (labels(4, mechanism="olh", g=3), 2),
    "olh-number": (numbers(7, mechanism="olh", g=5), 1),
    "hh": (hh(5, 2, [2, 2, 5], weights=[1, 0, 2]), 2),
    "hh-hash": (hh(7, 3, [3, 2]), 1),
    "views": (PAIR | {"mechanism": "views", "views": [[0], [1]], "cells": [3, 2]}, 2),
    "missing-bool": ({"type": "bool", "missing": 1, "mechanism": "grr"}, 3),
    "missing-choice": (labels(2, mechanism="olh", g=3, missing=1), 2),
    "missing-number": (hh(8, 3, [2, 5], missing=1), 1),
    "missing-pair": (
        PAIR
        | {"of": [part | {"missing": 1} for part in PAIR["of"]], "mechanism": "views"}
        | {"views": [[0], [1]], "cells": [3, 2]},
        2,
    ),
    "grr-text": (TEXT | {"mechanism": "grr"}, 3),
    "olh-text": (TEXT | {"mechanism": "olh", "g": 3}, 1),
    "prefix": (TEXT | {"mechanism": "prefix", "slots": 4, "prefixes": [1, 2], "q": 2}, 1),
}


class TestLikelihoodRatio:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "epsilon",
        [1_000_000, *(pytest.param(epsilon, marks=pytest.mark.long) for epsilon in (1_000, 8_000_000))],
    )
    @pytest.mark.parametrize("name", CLIENT_CASES)
    def test_every_report_is_at_most_e_to_epsilon(self, name, epsilon):
        shape, every = CLIENT_CASES[name]
        payload = experiment_json(epsilon=epsilon, every=every, budget=CAP, **shape)
        exp = Experiment.parse(payload)
        indices = {exp.bucket(value) for value in readings(exp)}
        every_index = {*range(exp.domain), *({None} if exp.missing is None else ())}
        assert exp.type in ("text", "pair") or indices == every_index, (
            "the readings must have exactly these indices"
        )
        exact = report_distributions(payload, readings(exp), key=b"k" * 32)
        assert assert_private(exact, epsilon) > 1  # the readings have different distributions
        for outputs in exact.values():
            assert outputs.get(None, 0) == 1 - Fraction(1, every)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "shape",
        [numbers(64, mechanism="grr"), numbers(64, mechanism="olh", g=3), hh(64, 8, [8, 3])],
        ids=["grr", "olh-3", "hh"],
    )
    def test_64_values_are_at_most_e_to_epsilon(self, shape):
        payload = experiment_json(**shape)
        exp = Experiment.parse(payload)
        values = readings(exp)
        exact = report_distributions(payload, [values[i] for i in (0, 1, 9, 62, *range(63, 68))])
        assert_private(exact, exp.epsilon)

    def test_any_reading_history_stays_within_cap(self):
        # Compare every pair of histories of four calls that report with probability 1/2 under a cap of two.
        payload = experiment_json(every=2, budget={"rule": "sum", "cap": 2_000_000})
        slots = provisioned()

        def lifetime(rng, history):
            client = Client(POLICY, memory(slots), device_id="d")
            client.enroll(payload)
            client.rng = rng
            return tuple(client.report("e", value) for value in history)

        histories = list(itertools.product((False, True), repeat=4))
        exact = {h: distribution(lambda rng, h=h: lifetime(rng, h)) for h in histories}
        ratio = assert_private(exact, 2_000_000)
        assert ratio > exp_below(1_900_000), "the histories must differ in more than one report"


FIRMWARE = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
GROUP_VALUES = ("2.3.1", "2.4.0", "other", "not listed", None)
GROUP_CASES = {
    "rr": {"type": "bool", "mechanism": "rr"},
    "olh": labels(4, mechanism="olh", g=3),
    "hh": hh(5, 2, [2, 2, 5], weights=[1, 0, 2]),
}


def group_report(rng, payload, value, slots, **group):
    """Return a board's report, as (its group's index, the rest of its bytes)."""
    client = Client(POLICY | {"groups": ("firmware",)}, memory(slots), device_id="d")
    client.enroll(payload)
    client.rng = rng
    client.groups = group
    report = client.report("e", value)
    return report and (report[9], report[5:9] + report[10:])


class TestGroup:
    @pytest.mark.parametrize("epsilon", [1_000, 1_000_000])
    @pytest.mark.parametrize("name", GROUP_CASES)
    def test_report_differs_only_by_the_groups_byte(self, name, epsilon):
        """The rest of the bytes has the distribution of the same experiment without a group."""
        alone = experiment_json(epsilon=epsilon, budget=CAP, **GROUP_CASES[name])
        payload = experiment_json(epsilon=epsilon, budget=CAP, **GROUP_CASES[name], **FIRMWARE)
        slots = provisioned()

        def without_group(rng, value):
            client = Client(POLICY, memory(slots), device_id="d")
            client.enroll(alone)
            client.rng = rng
            return client.report("e", value)[5:]

        for value in (*readings(Experiment.parse(payload))[:5], None):
            expected = distribution(lambda rng, v=value: without_group(rng, v))
            for index, firmware in zip((0, 1, 2, 2, 2), GROUP_VALUES, strict=True):
                groups = {} if firmware is None else {"firmware": firmware}
                exact = distribution(lambda rng, v=value, g=groups: group_report(rng, payload, v, slots, **g))
                assert exact == {(index, rest): chance for rest, chance in expected.items()}

    @pytest.mark.parametrize("name", GROUP_CASES)
    def test_every_group_value_is_private_at_its_own_rate(self, name):
        payload = experiment_json(every=[3, 1, 2], budget=CAP, **GROUP_CASES[name], **FIRMWARE)
        slots = provisioned()
        values = readings(Experiment.parse(payload))
        for firmware, every in zip(GROUP_VALUES, (3, 1, 2, 2, 2), strict=True):
            groups = {} if firmware is None else {"firmware": firmware}
            exact = {
                i: distribution(lambda rng, v=v, g=groups: group_report(rng, payload, v, slots, **g))
                for i, v in enumerate(values)
            }
            assert assert_private(exact, 1_000_000) > 1
            for outputs in exact.values():
                assert outputs.get(None, 0) == 1 - Fraction(1, every)
                assert len({output[0] for output in outputs if output}) == 1

    def test_depends_on_reading_only_if_the_application_does(self):
        """The check fails for a board that sends its version only after a crash."""
        payload = experiment_json(budget=CAP, **FIRMWARE)
        slots = provisioned()

        def leaky(rng, crashed):
            return group_report(rng, payload, crashed, slots, firmware="2.4.0" if crashed else "2.3.1")

        exact = {c: distribution(lambda rng, c=c: leaky(rng, c)) for c in (True, False)}
        with pytest.raises(AssertionError, match="impossible for another"):
            assert_private(exact, 1_000_000)


class RefusesUnknownLabels(Client):
    def report(self, name, value):
        return super().report(name, value) if value is None or value in ("l0", "l1", "l2") else None


class RefusesMissingReadings(Client):
    def report(self, name, value):
        return super().report(name, value) if value is not None else None


class TestSilence:
    def test_never_depends_on_value(self):
        payload = experiment_json(every=3, budget={"rule": "count", "cap": 1}, **labels(3, mechanism="grr"))
        values = readings(Experiment.parse(payload))
        fresh = provisioned()
        spent = memory(fresh)
        client = Client(POLICY, spent, device_id="d")
        client.enroll(payload)
        while client.report("e", None) is None:
            pass
        off = memory(fresh)
        Client(POLICY, off, device_id="d").consent = False
        locked = {0: b"no ledger", 1: b"none here"}
        for slots, chance in ((fresh, 2), (spent.slots, 3), (off.slots, 3), (locked, 3)):
            for outputs in report_distributions(payload, values, slots=slots).values():
                assert outputs.get(None, 0) * 3 == chance

    @pytest.mark.parametrize("every", [1, 2])
    @pytest.mark.parametrize("broken", [RefusesUnknownLabels, RefusesMissingReadings])
    def test_fails_the_check_if_it_depends_on_value(self, broken, every):
        payload = experiment_json(every=every, **labels(3, mechanism="grr"))
        values = ["l0", "l1", "l2", "not listed", None]
        assert_private(report_distributions(payload, values), 1_000_000)
        exact = report_distributions(payload, values, client_class=broken)
        assert worst_ratio(exact) is None
        with pytest.raises(AssertionError, match="impossible for another"):
            assert_private(exact, 1_000_000)


class TestArithmetic:
    def test_uses_floats_only_before_the_index(self):
        """No function but those that turn a reading into an index divides, or has a float."""
        users: set[tuple[str, str]] = set()
        paths = sorted(Path(ldp_client.__file__).parent.glob("ldp_*.py"))
        for path in paths:
            functions = [x for x in ast.walk(ast.parse(path.read_text())) if isinstance(x, ast.FunctionDef)]
            users |= {(path.stem, f.name) for f in functions if any(map(is_float, ast.walk(f)))}
        assert len(paths) > 5
        assert users == {("ldp_client", "_bucket"), ("ldp_client", "bucket")}


def is_float(node: ast.AST) -> bool:
    """Return whether a node of a syntax tree is a float, or can make one of integers."""
    match node:
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return True
        case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp(op=ast.USub())):
            return True
        case ast.Constant(value=float() | complex()):
            return True
        case ast.Name(id="float" | "math"):
            return True
    return False
