"""The maps and figures of pgr compared with enumerated points; test_hashed_moments.py covers moments."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate, plausibility
from hushmote.server.experiments.payload import experiment_over
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.choose import choose, designs
from hushmote.server.mechanisms.hashing.variance import frequency_variance
from hushmote.server.mechanisms.points import lines, projective
from hushmote.server.mechanisms.points.pgr import PointsCode, ProjectiveGeometry
from hushmote.server.mechanisms.workload import FREQUENCIES
from hushmote.simulator import vectorised


def designed(q: int, domain: int, epsilon: float = 2.0) -> Experiment:
    return Experiment.parse(number_json(domain, mechanism="pgr", q=q, epsilon=round(epsilon * 1e6)))


def mechanism(q: int, domain: int, epsilon: float = 2.0) -> ProjectiveGeometry:
    found = mechanism_of(designed(q, domain, epsilon))
    assert isinstance(found, ProjectiveGeometry)
    return found


def inside(q: int, digits: int) -> Any:
    """Return a mask of orthogonal pairs of points, shape (points, points)."""
    every = (v[::-1] for v in product(range(q), repeat=digits))
    points = np.array([v for v in every if any(v) and [x for x in v if x][-1] == 1])
    return points @ points.T % q == 0


PAGE = Path(__file__).parents[3] / "docs" / "mathematics.md"
LINES = PAGE.read_text("utf-8").splitlines()
ROWS = [line.strip("|").split("|") for line in LINES if line.startswith("|") and line[1:3].strip().isdigit()]


class TestPage:
    @pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(cell.strip() for cell in row[:2]))
    def test_table_shows_the_choice_and_its_reason(self, row: list[str]) -> None:
        """Each row: values, ε, the errors of the older mechanisms and pgr, and the chosen mechanism."""
        domain, epsilon = int(row[0].replace(",", "")), int(row[1]) * 1_000_000
        taken = choose(domain, epsilon, FREQUENCIES).mechanism
        assert row[4].strip(" `") == taken
        offered = sorted(designs(domain, epsilon, FREQUENCIES), key=lambda choice: choice.variance)
        for cell, ours in ((row[2], False), (row[3], True)):
            choices = [choice for choice in offered if (choice.mechanism == "pgr") is ours]
            if ours and taken == "pgr":
                choices = [choose(domain, epsilon, FREQUENCIES)]
            experiment = experiment_over(domain, epsilon, choices[0].fields())
            variance, codes, size = cell.strip().split(", ")
            assert f"{choices[0].variance:.4f}" == variance
            assert (f"{experiment.code_count:,}", str(experiment.code_bytes)) == (codes, size)

    def test_table_is_present(self) -> None:
        assert len(ROWS) == 11


class TestFigures:
    @pytest.mark.parametrize(
        ("domain", "epsilon", "q", "codes", "variance"),
        [(256, 2, 7, 400, 0.7237), (1024, 4, 53, 2863, 0.0753), (65_536, 1, 3, 88_573, 3.7700)],
    )
    def test_match_the_paper(self, domain: int, epsilon: int, q: int, codes: int, variance: float) -> None:
        pgr = mechanism(q, domain, epsilon)
        assert pgr.experiment.code_count == codes
        assert pgr.codes[0].channel.variance == pytest.approx(variance, abs=5e-5)
        assert frequency_variance(pgr.codes[0].channel, 0.0) <= variance * 1.0001

    def test_error_of_a_large_domain_follows_the_formula(self) -> None:
        """For 65,536 values and 400,000 reports, the mean squared error is within 5% of the formula's.

        The errors of 65,536 values are nearly independent, so their mean square has a deviation of 0.6%.
        """
        pgr = mechanism(401, 65_536, 6)
        rng = np.random.default_rng(4)
        shares = rng.multinomial(400_000, np.arange(1, 65_537) ** -1.2 / (np.arange(1, 65_537) ** -1.2).sum())
        counts = vectorised.histogram(pgr.experiment, shares, rng)
        decoded = pgr.decode(counts)
        error = float(((decoded.frequencies - shares / 400_000) ** 2).mean()) * 400_000
        # A value's sampling variance is f - f²; without it, the formula is linear in f, with its mean at f =
        # 1/D.
        even = 1 / 65_536
        formula = frequency_variance(pgr.codes[0].channel, even) - even * (1 - even)
        assert error == pytest.approx(formula, rel=0.05)
        assert float(decoded.frequency_spread.variance.mean()) * 400_000 == pytest.approx(error, rel=0.05)
        assert not plausibility.check(pgr.experiment, counts).implausible

    def test_all_statistics_are_within_their_errors(self) -> None:
        """With 20,000 reports on a bell over 100 values, errors are below 7 deviations (misses: 3e-12)."""
        experiment = designed(7, 100, 3)
        shares = np.exp(-(((np.arange(100) - 60) / 12) ** 2) / 2)
        shares /= shares.sum()
        rng = np.random.default_rng(5)
        counts = vectorised.histogram(experiment, rng.multinomial(20_000, shares), rng)
        result = estimate(experiment, counts)
        for low, high in ((0, 50), (55, 65), (99, 100)):
            found = result.range(low, high)
            assert abs(found.value - shares[low:high].sum()) < 7 * found.stderr
        median = result.quantile(0.5, 1 - 1e-11)
        assert median.low <= int(np.searchsorted(shares.cumsum(), 0.5)) <= median.high


class TestPoints:
    @pytest.mark.parametrize(
        ("q", "digits"), [(2, 2), (2, 6), (3, 2), (3, 5), (5, 3), (7, 3), (29, 2), (53, 2)]
    )
    def test_sums_cover_orthogonal_points(self, q: int, digits: int) -> None:
        table = inside(q, digits)
        assert projective.point_count(q, digits) == len(table)
        assert projective.digits(q, len(table)) == digits
        rng = np.random.default_rng(1)
        numbers, counts = rng.normal(size=(len(table), 3)), rng.integers(0, 1 << 30, len(table))
        np.testing.assert_allclose(projective.sums(q, digits, numbers), table @ numbers, atol=1e-9)
        np.testing.assert_allclose(
            projective.sums(q, digits, numbers[:, 0]), table @ numbers[:, 0], atol=1e-9
        )
        np.testing.assert_array_equal(projective.supports(q, digits, counts), table @ counts)
        for count in {projective.point_count(q, digits - 1) + 1, len(table) // 2 + 2, len(table)}:
            if projective.digits(q, count) == digits:
                few = projective.sums(q, digits, numbers[:count])
                np.testing.assert_allclose(few, table[:, :count] @ numbers[:count], atol=1e-9)
                some = projective.supported(q, digits, count, *numbers.T)
                np.testing.assert_allclose(np.array(some).T, table[:count] @ numbers, atol=1e-9)
        least = np.where(table, numbers[:, 0], np.inf).min(axis=1)
        np.testing.assert_array_equal(projective.least(q, digits, numbers[:, 0]), least)

    @pytest.mark.parametrize("each", [1, 1 << 20, 1 << 30])
    def test_supports_are_exact_with_both_methods(self, each: int) -> None:
        """Both methods work for 3-digit points mod 53; only the second works for the largest sums."""
        rng = np.random.default_rng(2)
        code = mechanism(53, 2000).codes[0]
        counts = rng.integers(0, 100, code.level.code_count) * each
        counts[rng.integers(len(counts))] += each << 16
        np.testing.assert_array_equal(code.class_supports(counts), projective.supports(53, 3, counts)[:2000])
        assert projective.supports(53, 3, counts).sum() == counts.sum() * projective.point_count(53, 2)

    @pytest.mark.parametrize(
        ("q", "domain"), [(2, 31), (2, 33), (3, 13), (3, 14), (3, 100), (5, 40), (7, 70)]
    )
    def test_collinear_triples_are_counted(self, q: int, domain: int) -> None:
        """Three collinear values share as many inside codes as two values; other triples share fewer."""
        pgr = mechanism(q, domain)
        table = inside(q, pgr.points.t)[:domain].astype(np.int64)
        three = np.einsum("ac,bc,dc->abd", table, table, table)
        a, b, c = np.ogrid[:domain, :domain, :domain]
        different = (a != b) & (b != c) & (a != c)
        two = (pgr.points.inside - 1) // q
        channel = pgr.codes[0].channel
        assert channel.collision == pytest.approx(two / pgr.points.inside)
        assert channel.collinear == lines.projective(domain, q) == int(((three == two) & different).sum())
        off_line = np.unique(three[different & (three != two)])
        np.testing.assert_allclose(off_line, channel.off_line * pgr.points.inside)

    def test_classes_are_codes(self) -> None:
        pgr = mechanism(5, 31)
        assert pgr.class_count == pgr.experiment.code_count == 31
        code = pgr.codes[0]
        assert isinstance(code, PointsCode)
        assert code.even
        assert pgr.blanket() == pytest.approx((pgr.odds, 5 / (6 * pgr.odds + 25), 31 / (6 * pgr.odds + 25)))
