"""The tables and numbers in studies/README.md, recomputed from some cells of the full run.

Each cell of a study has its own seed, so part of `hushmote study ranges --seed 1` equals that part of the
full run.
"""

import math
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from run_once import once

from hushmote.server.words.text_table import TextTable
from hushmote.simulator.workers import workers
from hushmote.studies import ranges_findings as findings
from hushmote.studies import ranges_tables as tables
from hushmote.studies.flawed import FlawedStructure
from hushmote.studies.ranges_findings import CASES, exponent, line, measured_rms, rms
from hushmote.studies.ranges_run import (
    EVEN_LENGTHS,
    FULL,
    Point,
    RangeCell,
    cells,
    default_series,
    predicted,
    run_cell,
    select,
)
from hushmote.studies.structures import LocalFlat, LocalHierarchy, Structure

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[2] / "studies" / "README.md"
SEED = 1
SIZES = tuple(FULL.lengths)


class StudyRun:
    """Points in the cells behind the page's tables: chosen fanouts at ε = 1, short ranges, and 32 days."""

    def __init__(self, folder: Path):
        with open(folder / "points.pickle", "rb") as file:
            self.chosen, self.short, self.days_32 = pickle.load(file)

    @property
    def points(self) -> list[Point]:
        """All points, without duplicates."""
        every = dict.fromkeys([*self.days_32, *self.chosen, *self.short])
        return sorted(every, key=lambda p: (p.family, p.neighbours, p.fanout))

    def of(self, family: str, neighbours: str, days: int) -> list[Point]:
        """Return the points of one curve at ε = 1."""
        return select(self.chosen, family=family, neighbours=neighbours, days=days)


def is_chosen(cell: RangeCell) -> bool:
    return (
        cell.epsilon == FULL.middle
        and not isinstance(cell.structure, FlawedStructure)
        and not getattr(cell.structure, "fanout", 0)
        and cell.lengths != EVEN_LENGTHS
    )


WANTED: tuple[Callable[[RangeCell], bool], ...] = (
    is_chosen,
    lambda cell: cell.lengths == EVEN_LENGTHS,
    lambda cell: len(cell.series.counts) == 32,
)


@pytest.fixture(scope="module")
def study_run(tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    def make(folder: Path) -> None:
        everything = cells(FULL, default_series, SEED)
        wanted = [cell for cell in everything if any(chosen(cell) for chosen in WANTED)]
        with workers(cores=True) as pool:
            results = list(pool.map(run_cell, wanted))
        points = [
            [p for cell, result in zip(wanted, results, strict=True) if chosen(cell) for p in result.points]
            for chosen in WANTED
        ]
        (folder / "points.pickle").write_bytes(pickle.dumps(points))

    return StudyRun(once(tmp_path_factory, "page of the study of ranges", make))


def assert_on_page(table: TextTable) -> None:
    text = tables.markdown(table)
    assert text in PAGE.read_text(encoding="utf-8"), f"the page should have:\n{text}"


def assert_sentences(*sentences: str) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    missing = [sentence for sentence in sentences if sentence not in page]
    assert not missing, "the page should say:\n" + "\n".join(missing)


def test_tables_match_the_run(study_run: StudyRun):
    assert_on_page(tables.results(study_run.chosen, FULL.middle))
    assert_on_page(tables.lengths(findings.length_fits(study_run.chosen, FULL.middle)))
    series = [default_series(days) for days in SIZES if days >= FULL.even_days]
    assert_on_page(tables.break_even(findings.even_lengths(study_run.short, series, FULL.middle)))
    curves = findings.verdicts(study_run.points, "correct")
    assert_on_page(tables.agreement(curves))
    assert all(verdict["agrees"] for verdict in curves)
    assert_sentences(f"{len(study_run.points):,} points of {len(curves)} curves", "All curves agree.")
    assert_sentences(*error_sentences(study_run))


def test_flaws_and_sentences_match_theory():
    assert_on_page(tables.flaws(FULL, default_series(FULL.flaw_days)))
    assert_sentences(*theory_sentences())


def error_sentences(study_run: StudyRun) -> list[str]:
    """Return the page's sentences on flat against hierarchy, and on local against central, at ε = 1."""
    sentences = []
    for side, neighbours in (("Central (added)", "added"), ("Local", "replaced")):
        name = side.split()[0].lower()
        ratios = [
            tree.rmse / flat.rmse
            for days in SIZES
            for tree, flat in zip(
                study_run.of(f"{name} hierarchy", neighbours, days),
                study_run.of(f"{name} flat", neighbours, days),
                strict=True,
            )
        ]
        won = sum(ratio < 1 for ratio in ratios)
        wins = f"{won} of {len(ratios)} cases, at best {1 / min(ratios):.1f} times"
        sentences.append(f"{side}: the hierarchy errs less in {wins}")
    prices = []
    for days in SIZES:
        local, central = (
            measured_rms(study_run.of(f"{side} hierarchy", "replaced", days)) for side in ("local", "central")
        )
        prices.append((study_run.of("local hierarchy", "replaced", days)[0].records, local / central))
    (few, first), (many, last) = prices[0], prices[-1]
    shares = [price / math.sqrt(records) for records, price in prices]
    sentences.append(f"{first:.0f} times the error for {few:,} records, {last:.0f} times for {many:,}")
    sentences.append(f"{min(shares):.2f} to {max(shares):.2f} times the root of the number of records")
    return sentences


def theory(structure: Structure, epsilon: float, length: int) -> float:
    """Return the theoretical RMSE of ranges of one length."""
    return predicted(structure, default_series(FULL.flaw_days), epsilon, length, FULL.ranges)


def theory_sentences() -> list[str]:
    """Return the page's sentences on exponents, on the fall of flat's error, and on single days."""
    lengths = FULL.lengths[FULL.flaw_days]
    curve = [rms([theory(LocalHierarchy(), e, r) for r in lengths]) for e in FULL.epsilons]
    inverse, square = ([e**-power for e in FULL.epsilons] for power in (1, 2))
    power, explained = exponent(FULL.epsilons, curve), (line(inverse, curve)[2], line(square, curve)[2])
    laws = f"a + b/ε explains {100 * explained[0]:.2f} % of it, a + b/ε² {100 * explained[1]:.0f} %"
    sentences = [f"goes like ε^{power:.2f}; {laws}"]
    half = FULL.flaw_days // 2
    for epsilon in (1.0, 0.2):
        errors = {r: theory(LocalFlat(), epsilon, r) for r in (half // 2, half - 32, half, half + 32, 486)}
        assert max(errors, key=lambda r: errors[r]) == half
        sentences.append(f"{100 * (1 - errors[486] / errors[half]):.0f} % less at ε = {epsilon:g}")
    for case in ("all correct", "thesis"):
        tree = FlawedStructure(2, CASES[case])
        ratio = theory(tree, 1.0, 1) / theory(tree.flat_counterpart, 1.0, 1)
        sentences.append(f"{ratio:.1f} times")
    return sentences
