"""Views of a pair: least squares over them, and the choice of views for a workload."""

import json
import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.arrays import Floats
from hushmote.server.estimate import estimate
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.experiments.payload import chosen_fields
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.choose import choose, designs
from hushmote.server.mechanisms.views import factors
from hushmote.server.mechanisms.views.choice import energy
from hushmote.server.mechanisms.views.factors import Parts
from hushmote.server.mechanisms.views.tables import Views
from hushmote.server.mechanisms.workload import FREQUENCIES, Workload
from hushmote.simulator import vectorised

EPSILON = 2_000_000
FALSE_ALARM = 1e-11


def pair(shape: tuple[int, ...], mechanism: dict[str, Any], epsilon: int = EPSILON) -> Experiment:
    number = {"type": "number", "low": 0, "high": 1_000_000}
    parts = [{"name": f"p{i}", **number, "bins": n} for i, n in enumerate(shape)]
    fields = {"v": 1, "name": "e", "type": "pair", "of": parts, **mechanism, "epsilon": epsilon}
    return Experiment.parse(json.dumps(fields | {"budget": {"rule": "unlimited"}, "window": "day"}).encode())


def views(shape: tuple[int, ...], *indicators: tuple[list[int], int, int]) -> Views:
    lists, cells, weights = (list(x) for x in zip(*indicators, strict=True))
    mechanism = mechanism_of(
        pair(shape, {"mechanism": "views", "views": lists, "cells": cells, "weights": weights})
    )
    assert isinstance(mechanism, Views)
    return mechanism


def indicator(shape: tuple[int, ...], parts: Parts) -> Floats:
    """Return the share of the first cell of a marginal, shape (domain, 1)."""
    return factors.spread_out(np.eye(factors.size(shape, parts), 1), shape, parts)


class TestComponents:
    @pytest.mark.parametrize("shape", [(3, 2), (4, 5), (2, 3, 2)], ids=str)
    def test_add_up_and_sum_to_zero(self, shape):
        table = np.random.default_rng(1).normal(size=(factors.size(shape, tuple(range(len(shape)))), 2))
        taken = factors.components(table, shape)
        total = sum(factors.spread_out(part, shape, parts) for parts, part in taken.items())
        np.testing.assert_allclose(total, table, atol=1e-12)
        for parts, part in taken.items():
            own = part.reshape(*(shape[p] for p in parts), 2)
            for axis in range(len(parts)):
                np.testing.assert_allclose(own.sum(axis=axis), 0, atol=1e-12)


# --- Unknown interactions ------------------------------------------------------------------------------


class TestWeights:
    @pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2)], ids=str)
    def test_match_generalized_least_squares_of_the_joint_table(self, shape):
        """Compare with the dense solution: shares of all cells, known sum, from views with variance V."""
        parts = tuple(range(len(shape)))
        indicators = [
            (list(view), factors.size(shape, view), 1 + i) for i, view in enumerate(factors.within(parts))
        ]
        mechanism = views(shape, *indicators)
        reports = [10.0 * weight for _, _, weight in indicators]
        domain = mechanism.domain
        rows, scale = [], []
        for code, n in zip(mechanism.codes, reports, strict=True):
            rows.append(code.node_sums(np.eye(domain)))
            scale += [np.sqrt(n / code.channel.assumed)] * len(rows[-1])
        seen = np.concatenate(rows) * np.array(scale)[:, None]
        # With the sum known, only the orthogonal component is estimated.
        across = np.linalg.svd(np.ones((1, domain)))[2][1:].T
        solve = across @ np.linalg.pinv(seen @ across) * np.array(scale)
        weights, _ = mechanism.weights(np.eye(domain), reports)
        at = 0
        for w, code in zip(weights, mechanism.codes, strict=True):
            nodes = len(rows[mechanism.codes.index(code)])
            expected = code.weights(solve[:, at : at + nodes].T)
            at += nodes
            assert w is not None
            np.testing.assert_allclose(w - w.mean(axis=0), expected - expected.mean(axis=0), atol=1e-9)

    def test_reject_only_statistics_outside_every_view(self):
        """Both marginals of 200,000 reports are within 7 standard errors (misses: below 1e-11)."""
        e = views((4, 3), ([0], 4, 1), ([1], 3, 1)).experiment
        rng = np.random.default_rng(3)
        shares = rng.dirichlet(np.ones(12))
        estimates = estimate(e, vectorised.histogram(e, rng.multinomial(200_000, shares), rng))
        for parts, domain in (((0,), 4), ((1,), 3)):
            indicators = factors.spread_out(np.eye(domain), (4, 3), parts)
            result = estimates.linear_many(indicators)
            assert (np.abs(result.value - shares @ indicators) < 7 * result.stderr).all()
        for refused in (
            lambda: estimates.frequencies,
            lambda: estimates.frequency(3),
            lambda: estimates.stderr,
        ):
            with pytest.raises(
                EstimateError, match="no report contains information about p0 and p1 together"
            ):
                refused()

    def test_wait_for_a_view_without_reports(self):
        mechanism = views((4, 3), ([0], 4, 99), ([0, 1], 12, 1))
        statistic = np.eye(12, 1)
        assert mechanism.unknown(statistic, [10, 0]).endswith("wait for more reports")
        assert mechanism.unknown(statistic, [10, 1]) == ""
        assert mechanism.unknown(statistic, [0, 1]) == ""
        assert mechanism.unknown(indicator((4, 3), (0,)), [10, 0]) == ""
        assert "p1" in mechanism.unknown(indicator((4, 3), (1,)), [10, 0])
        assert mechanism.unknown(np.ones((12, 1)), [0, 0]) == ""


# --- Choice of views -----------------------------------------------------------------------


def variance(experiment: Experiment, statistic: Floats, shares: Floats | None = None) -> float:
    even = np.full(experiment.domain, 1 / experiment.domain)
    return float(mechanism_of(experiment).variances(statistic, even if shares is None else shares)[0])


def asked_by(workload: Workload):
    """Return a workload's statistics as columns, for 6 x 3 values."""
    shape = (6, 3)
    a = factors.spread_out(np.eye(6), shape, (0,)).T
    b = factors.spread_out(np.eye(3), shape, (1,)).T
    if workload.kind in ("marginals", "tables"):
        # Each kind has the same weight, regardless of its number of cells.
        yield from np.repeat(a, 3, axis=0)
        yield from np.repeat(b, 6, axis=0)
        yield from np.eye(18) if workload.kind == "tables" else ()
        return
    of, given = (b, a) if workload.given == (0,) else (a, b)
    conditional = [[len(given) * g * (x - 1 / len(of)) for g in given] for x in of]
    for per_value in conditional:
        if workload.kind == "conditional":
            yield from per_value
        else:
            yield from (p - q for i, p in enumerate(per_value) for q in per_value[:i])


class TestEnergies:
    @pytest.mark.parametrize("kind", ["marginals", "tables", "conditional", "differences"])
    def test_are_mean_squared_lengths_of_the_statistics(self, kind):
        of, given = ((1,), (0,)) if kind in ("conditional", "differences") else ((), ())
        workload = Workload(kind, shape=(6, 3), of_parts=of, given=given)
        statistics = np.stack(list(asked_by(workload)), axis=1)
        expected = {}
        for parts, part in factors.components(statistics, (6, 3)).items():
            lengths = (factors.spread_out(part, (6, 3), parts) ** 2).sum(axis=0)
            expected[parts] = float(lengths.mean())
        result = energy(workload)
        for parts in ((0,), (1,), (0, 1)):
            assert result.get(parts, 0.0) == pytest.approx(expected[parts], abs=1e-12)


class TestChoice:
    def test_reaches_documented_errors_for_16_by_16(self):
        """If requested, a cell has 0.730 and a marginal 0.722; otherwise, they have 11.5 and 1.445."""
        shape = (16, 16)
        cell, part = np.eye(256, 1), indicator(shape, (0,))
        joint = pair(shape, chosen_fields(256, EPSILON, FREQUENCIES))
        alone = pair(shape, chosen_fields(256, EPSILON, Workload("marginals", shape=shape, of_parts=(0,))))
        both = pair(shape, chosen_fields(256, EPSILON, Workload("marginals", shape=shape)))
        assert variance(joint, cell) == pytest.approx(0.730, rel=0.005)
        assert variance(alone, part) == pytest.approx(0.722, rel=0.005)
        assert variance(joint, part) == pytest.approx(11.5, rel=0.01)
        assert variance(both, part) == pytest.approx(1.445, rel=0.005)

    @pytest.mark.parametrize(("shape", "are_equal"), [((16, 16), True), ((16, 4), False)])
    def test_omits_equal_weights(self, shape: tuple[int, int], are_equal: bool):
        fields = chosen_fields(math.prod(shape), EPSILON, Workload("marginals", shape=shape))
        assert fields["views"] == [[0], [1]]
        assert ("weights" not in fields) == are_equal

    @pytest.mark.parametrize(
        "workload",
        [
            Workload("marginals", shape=(6, 3)),
            Workload("tables", shape=(6, 3)),
            Workload("conditional", shape=(6, 3), of_parts=(1,), given=(0,)),
            Workload("conditional", shape=(6, 3), of_parts=(0,), given=(1,)),
            Workload("differences", shape=(6, 3), of_parts=(1,), given=(0,)),
        ],
        ids=lambda w: f"{w.kind}-{w.given}",
    )
    @pytest.mark.parametrize("epsilon", [1_000_000, 4_000_000])
    def test_no_other_weights_have_less_mean_variance(self, workload, epsilon):
        """Try a grid of weights with the same cells, using exact variances in a uniform population.

        2% are allowed for rounding and for errors that are taken as equal.
        """
        statistics = np.stack(list(asked_by(workload)), axis=1)
        (choice,) = [c for c in designs(18, epsilon, workload) if c.mechanism == "views"]
        cells = {tuple(v): g for v, g in zip(choice.fields()["views"], choice.fields()["cells"], strict=True)}
        for view in ((0,), (1,), (0, 1)):
            own = Workload("marginals", shape=(6, 3), of_parts=view)
            cells.setdefault(view, designs(18, epsilon, own, "views")[0].fields()["cells"][0])

        def mean(drawn: dict[Parts, int]) -> float:
            kept = {v: w for v, w in drawn.items() if w}
            lists = [list(v) for v in kept]
            fields = {"mechanism": "views", "views": lists, "cells": [cells[v] for v in kept]}
            mechanism = mechanism_of(pair((6, 3), fields | {"weights": list(kept.values())}, epsilon))
            if mechanism.unknown(statistics, mechanism.stratum_chances):
                return np.inf
            return float(mechanism.variances(statistics, np.full(18, 1 / 18)).mean())

        fields = choice.fields()
        given = fields.get("weights", [1] * len(fields["views"]))
        best = mean({tuple(v): w for v, w in zip(fields["views"], given, strict=True)})
        assert best == pytest.approx(choice.variance, rel=0.05)
        grid = (dict(zip(cells, w, strict=True)) for w in product(range(5), repeat=3) if any(w))
        assert best <= 1.02 * min(mean(drawn) for drawn in grid)

    def test_has_no_views_for_the_joint_table_alone(self):
        workload = Workload("differences", shape=(16, 16), of_parts=(1,), given=(0,))
        assert choose(256, EPSILON, workload).fields() == choose(256, EPSILON, FREQUENCIES).fields()

    def test_of_three_parts_is_planned_and_estimated(self):
        """For 300,000 reports, every marginal and joint cell's error has a probability of at least 1e-11."""
        shape = (3, 4, 2)
        fields = chosen_fields(24, EPSILON, Workload("tables", shape=shape))
        assert fields["mechanism"] == "views"
        e = pair(shape, fields)
        rng = np.random.default_rng(4)
        shares = rng.dirichlet(np.ones(24))
        estimates = estimate(e, vectorised.histogram(e, rng.multinomial(300_000, shares), rng))
        for statistics in (np.eye(24)[:, :23], factors.spread_out(np.eye(4), shape, (1,))[:, :3]):
            result = estimates.linear_many(statistics)
            off = np.abs(result.value - shares @ statistics) / result.stderr
            assert stats.norm.sf(off).min() * 2 * len(off) > FALSE_ALARM
            assert (result.stderr < 0.01).all()
