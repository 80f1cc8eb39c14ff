"""Findings and figures of the ranges study, from points that were made up."""

import datetime
from collections.abc import Iterator

import numpy as np
import pytest
from drawings import labelled_line, points, saved_figure

from hushmote.studies import ranges_figures as figures
from hushmote.studies import ranges_findings as findings
from hushmote.studies import ranges_tables as tables
from hushmote.studies.daily import Daily
from hushmote.studies.ranges_run import BINS, FAMILIES, Point, RangeDesign, RangeStudy

DESIGN = RangeDesign((2.0, 1.0, 0.5), {32: (2, 8), 64: (4, 16)}, (2, 4), (2, 4), 32)
SERIES = tuple(
    Daily("trips", datetime.date(2020, 1, 1), np.full(days, 100, np.int64)) for days in DESIGN.lengths
)
RMSE = dict(zip(FAMILIES, (2.0, 1.0, 60.0, 20.0), strict=True))  # at ε = 1


def point(family: str, days: int, epsilon: float, length: int, **fields) -> Point:
    """Return a point whose error is a + b / ε."""
    rmse = RMSE[family] * (0.5 + 0.5 / epsilon)
    fixed = {"series": "trips", "records": 100 * days, "plan": "", "deviations": 0.0, "bias": 0.0}
    rest = {"fanout": 0, "neighbours": "replaced", "flaws": "correct", **fixed, **fields}
    return Point(
        days=days,
        epsilon=epsilon,
        true_epsilon=epsilon,
        family=family,
        length=length,
        rmse=rmse,
        predicted=rmse,
        **rest,
    )


def correct_points() -> Iterator[Point]:
    for days, lengths in DESIGN.lengths.items():
        for family in FAMILIES:
            for neighbours in ("added", "replaced") if family.startswith("central") else ("replaced",):
                for epsilon in DESIGN.epsilons:
                    for length in lengths:
                        yield point(family, days, epsilon, length, neighbours=neighbours)


def flawed_points() -> Iterator[Point]:
    for flaws in findings.CASES.values():
        for fanout in DESIGN.flaw_fanouts:
            for epsilon in DESIGN.epsilons:
                yield point("local hierarchy", 32, epsilon, 16, flaws=str(flaws), fanout=fanout)


STUDY = RangeStudy(
    DESIGN,
    SERIES,
    tuple(correct_points()),
    tuple(flawed_points()),
    (),
    dict.fromkeys(FAMILIES, np.ones(len(BINS) - 1, np.int64)),
    np.zeros(1, np.int64),
    {},
)


class TestFindings:
    def test_hierarchy_is_compared_with_flat(self):
        cells = [(32, 2), (32, 8), (64, 4), (64, 16)]
        assert findings.wins(STUDY, "central") == [(*cell, 0.5) for cell in cells]
        assert findings.wins(STUDY, "local") == [(*cell, pytest.approx(1 / 3)) for cell in cells]

    def test_price_of_local_privacy_is_by_number_of_records(self):
        assert findings.price(STUDY) == [
            (3_200, pytest.approx(30), pytest.approx(20)),
            (6_400, pytest.approx(30), pytest.approx(20)),
        ]

    def test_hierarchy_that_never_wins_has_no_length(self):
        lengths = (1, 2, 4)
        short = [point("local flat", 32, 1.0, length) for length in lengths] + [
            point("local hierarchy", 32, 1.0, length, fanout=2) for length in lengths
        ]
        (row,) = findings.even_lengths(short, SERIES[:1], 1.0)
        assert (row["consistent"], row["measured"]) == (1, 1)
        assert row["summed"] is None  # by theory, sums of nodes have errors above the 60 records of flat


class TestTables:
    def test_central_structures_have_both_neighbour_relations(self):
        table = tables.results(STUDY.points, 1.0)
        assert [row[0] for row in table.rows] == [
            "central flat (added)",
            "central hierarchy (added)",
            "central flat (replaced)",
            "central hierarchy (replaced)",
            "local flat",
            "local hierarchy",
        ]
        assert table.rows[4] == ("local flat", "60", "60")


class TestFigures:
    def test_ratios_are_drawn_by_share_of_the_days(self, monkeypatch: pytest.MonkeyPatch):
        figure = saved_figure(monkeypatch, figures.hierarchy, STUDY, None)
        for axes, ratio in zip(figure.axes, (1 / 2, 1 / 3), strict=True):
            for days, (first, second) in DESIGN.lengths.items():
                x, y = points(labelled_line(axes, f"{days} days"))
                assert (x, y) == ([first / days, second / days], pytest.approx([ratio, ratio]))

    def test_fitted_lines_pass_through_points_on_a_line(self, monkeypatch: pytest.MonkeyPatch):
        """The dots of one over ε are relative to the smallest ε."""
        _, axes = saved_figure(monkeypatch, figures.epsilon, STUDY, None).axes
        assert len(axes.lines) == 2 * len(FAMILIES)
        for fit, dots in zip(axes.lines[::2], axes.lines[1::2], strict=True):
            (x, y), (at, value) = points(fit), points(dots)
            assert (at, value[-1]) == ([0.5, 1, 2], 1)
            assert np.interp(at, x, y) == pytest.approx(value, rel=1e-3)

    def test_steepest_power_starts_above_the_curves(self, monkeypatch: pytest.MonkeyPatch):
        """Each curve's dots start at 15 records; the dotted line is for comparison only."""
        axes, _ = saved_figure(monkeypatch, figures.exponents, STUDY, None).axes
        x, (start, end) = points(labelled_line(axes, "1/ε² would be"))
        assert (x, end / start) == ([0.5, 2], pytest.approx(16))
        assert 15 < start < 30
