"""Proposes a plan's type, range and unit from existing readings in a column of a CSV file, or in a list."""

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..server.arrays import Floats
from ..server.experiments.units import edges_between
from ..server.plain_text import shorten
from ..server.words.numbers import counted
from .column_kind import choose_labels, kind_of
from .column_survey import Survey, survey
from .devices import PlanError
from .readings_file import ColumnType, Reading, read_readings
from .request import LOG, YES_NO, PlanRequest, reading_of
from .tables import CsvTable, ListTable, Table, split_source
from .written_numbers import ReadingRules, unit_of_column

USUAL_EPSILON, USUAL_ERROR = 2.0, 0.05
"""A plan's defaults: a report's ε in nats, and the half-width of the 95% interval."""

# Minimum share of readings covered by the labels; below it, the texts are names or mostly distinct.
_MIN_LABELLED = 0.8
_TAIL = 0.005  # share of readings at each end that may be omitted as outliers
_FAR = 3
_MAX_WHOLE = 64  # up to this many whole numbers, each gets its own bin
_MIN_SPAN = 0.05
_LARGE = 100_000
_MAX_QUOTED = 60  # characters of a reading in a message
_MAX_NUMBER = (1 << 40) // 1000  # boards count in thousandths
_STEPS = (1.0, 2.0, 5.0)
_USUAL_BINS, _MIN_BINS, _MAX_BINS = 64, 16, 128
_LOG_BINS = 24
_MAX_IN_BIN = 0.5  # share of the readings in one equal bin above which logarithmic bins are considered
_BETTER = 0.8  # they are proposed if their fullest bin has less than this share of the other's


@dataclass(frozen=True)
class Proposal:
    """A plan proposed from a column of readings.

    Attributes:
        request: The plan's request, completed.
        column: The column's name.
        readings: The readings; None for a missing one.
        lines: Sentences that describe the readings, what was assumed about the file, and the proposal.
    """

    request: PlanRequest
    column: str
    readings: tuple[Reading, ...]
    lines: tuple[str, ...]


def propose(
    source: str | Path | Iterable[Any], request: PlanRequest, rules: ReadingRules | None = None
) -> Proposal:
    """Fill in a request's reading from existing readings, and its other missing fields with defaults.

    Args:
        source: FILE:COLUMN, or a list, an array or a data frame's column.
        request: The request.
        rules: How to read numbers, as stated by the user.

    Raises:
        PlanError: If there is no such file or column, or the readings are missing, dates, all the same, or
            too many different texts for labels.
    """
    if not isinstance(source, str | Path):
        return _propose(ListTable(source, PlanError), 0, request, rules)
    path, column = split_source(str(source))
    if not path:
        raise PlanError(f"--input requires a column, such as --input {source}:{column_of(source)}")
    table = CsvTable(path, (column,), PlanError)
    return _propose(table, table.index(column), request, rules)


def _propose(table: Table, index: int, request: PlanRequest, rules: ReadingRules | None) -> Proposal:
    """Return the proposal from a column of a table."""
    reading, cells = reading_of(request), survey(table, index)
    where = table.where(index)
    if cells.cells == cells.blank:
        raise PlanError(f"{where} has no readings because all its cells are empty")
    kind = "bool" if reading.yes_no else "choice" if reading.labels else "number" if reading.bins else ""
    kind = kind or kind_of(cells, table.names)
    if kind == "date":
        raise PlanError(f"{where} has dates or times; use a column of hours (0 to 23) or weekdays")
    result = read_readings(table, [ColumnType(index, kind, reading.labels)], rules)
    (column,) = result.columns
    readings = [value for value in column if value is not None]
    if len(set(readings)) == 1 and request.low is None and not (reading.yes_no or reading.labels):
        raise PlanError(
            f"all readings in {where} are {_format_reading(readings[0])}, so there is nothing to measure"
        )
    missing = len(column) - len(readings)
    if missing and request.missing is None:
        request = replace(request, missing=round(missing / len(column), 4))
    if kind == "bool":
        filled, words = replace(request, values=YES_NO), "Its readings are yes or no."
    elif kind == "choice":
        filled, words = (request, "") if reading.labels else _fill_labels(cells, request)
    else:
        unit = result.units[0] or table.units[index] or unit_of_column(cells.name)
        filled, words = _fill_range(np.array(readings, float), cells.name, unit, request)
    filled, assumptions = _fill_usual(filled)
    heading = [f"{where} has {counted(len(readings), 'reading')}.", *result.notes]
    if missing:
        verb = "is" if missing == 1 else "are"
        heading.append(
            f"{missing:,} of {counted(len(column), 'cell')} {verb} missing, so the file gets missing = true."
        )
    if kind != "bool" and not reading.labels:
        words += " This comes directly from your data and is published with the experiment."
    lines = (*heading, " ".join(filter(None, (words, assumptions))))
    return Proposal(filled, cells.name, column, tuple(filter(None, lines)))


def column_of(path: str | Path) -> str:
    """Return the first column of a CSV file from which a plan can be proposed, or else the first column.

    Raises:
        PlanError: If the file cannot be read.
    """
    table = CsvTable(path, (), PlanError)
    columns = [(i, name) for i, name in enumerate(table.names) if name]
    for index, name in columns:
        with contextlib.suppress(PlanError):
            _propose(table, index, PlanRequest(), None)
            return name
    return columns[0][1]


def _format_reading(reading: Reading) -> str:
    return _format(reading) if isinstance(reading, float) else shorten(str(reading), _MAX_QUOTED)


def _format(number: float) -> str:
    """Return a number to six digits, or more if it is large, without a power of ten."""
    return f"{number:.10g}" if abs(number) >= _LARGE else f"{number:g}"


def _fill_labels(cells: Survey, request: PlanRequest) -> tuple[PlanRequest, str]:
    labels, reason = choose_labels(cells, _MIN_LABELLED)
    if reason:
        raise PlanError(f"{reason}; give --values a,b,c for labels or --values 64 for a number's bins")
    others = len(cells.texts) - len(labels) - ("other" in cells.texts)
    verb = "less common text becomes" if others == 1 else "less common texts become"
    other_text = f"; {others} {verb} other" if others else ""
    return replace(request, values=labels), f"Labels: {', '.join(labels)}{other_text}."


def _fill_range(readings: Floats, column: str, unit: str, request: PlanRequest) -> tuple[PlanRequest, str]:
    unit = request.unit or unit
    suffix = f" {unit}" if unit else ""
    if request.low is not None and request.high is not None:
        low, high, bins = request.low, request.high, usual_bins(request.high - request.low)
    else:
        low, high, bins = _range(readings)
    largest = max(abs(low), abs(high))
    if largest > _MAX_NUMBER:
        raise PlanError(
            f"{column} has numbers up to {largest:.4g}, but boards take at most {_MAX_NUMBER:,}; "
            "use a larger unit"
        )
    if high - low < _MIN_SPAN:
        raise PlanError(
            f"{column} spans {high - low:g}, but boards measure in thousandths; use a smaller unit"
        )
    bins = int(str(request.values or _bins_with_missing(bins, request)))
    words = f"They range from {_format(readings.min())} to {_format(readings.max())}{suffix}; "
    fullest = _fullest(readings, np.linspace(low, high, bins + 1))
    log_edges = None if request.scale or fullest <= _MAX_IN_BIN else _log_edges(readings)
    skewed = ""
    if log_edges is not None and (share := _fullest(readings, log_edges)) < _BETTER * fullest:
        skewed = f"one of {bins} equal bins would hold {fullest:.0%} of them, so "
        if request.values is None and request.low is None:
            log_low, log_high = float(log_edges[0]), float(log_edges[-1])
            words += (
                f"{skewed}the plan uses {_LOG_BINS} logarithmic bins from {_format(log_low)} to "
                f"{_format(log_high)}{suffix}, of which the fullest holds {share:.0%}."
            )
            return replace(request, values=_LOG_BINS, low=log_low, high=log_high, scale=LOG, unit=unit), words
    words += f"the plan uses {_format(low)} to {_format(high)}{suffix} in {bins} bins"
    words += (
        " on a logarithmic scale"
        if request.scale
        else f" of {_format(float(f'{(high - low) / bins:.3g}'))}{suffix}"
    )
    outside_count = int(((readings < low) | (readings > high)).sum())
    if outside_count:
        verb = "falls" if outside_count == 1 else "fall"
        words += f"; {counted(outside_count, 'reading')} beyond that {verb} into the outer bins"
    if skewed:
        words += f". But {skewed}--scale log may suit them better"
    return replace(request, values=bins, low=low, high=high, unit=unit), f"{words}."


def _fullest(readings: Floats, edges: Floats) -> float:
    """Return the share of readings in the bin that holds most of them; the outer bins hold all beyond."""
    counts = np.bincount(np.searchsorted(edges[1:-1], readings, "right"))
    return float(counts.max() / len(readings))


def _log_edges(readings: Floats) -> Floats | None:
    """Return the edges of logarithmic bins with round limits; None if the readings are not mostly above 0."""
    positive = readings[readings > 0]
    if not len(positive) or np.mean(readings < 0) > _TAIL:
        return None
    low = max(1, round(1000 * _round(float(np.quantile(positive, _TAIL)), up=False)))
    high = min(round(1000 * _round(float(positive.max()), up=True)), 1000 * _MAX_NUMBER)
    return edges_between(low, high, _LOG_BINS, LOG) if high - low >= _LOG_BINS else None


def _round(number: float, *, up: bool) -> float:
    """Return the nearest number above or below that is 1, 2 or 5 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10(number))
    steps = [unit * step for step in (*_STEPS, 10.0)]
    if up:
        return next(step for step in steps if step >= number * (1 - 1e-9))
    return max(step for step in steps if step <= number * (1 + 1e-9))


def _bins_with_missing(bins: int, request: PlanRequest) -> int:
    """Return the number of bins, one fewer if the index for missing readings would add a level to a tree."""
    return bins - (request.missing is not None and bins > 2 and bins & (bins - 1) == 0)


def _range(readings: Floats) -> tuple[float, float, int]:
    """Return round limits around all readings, or most of them if a few are far away, and the bins."""
    low, high = float(readings.min()), float(readings.max())
    inner = np.quantile(readings, (_TAIL, 1 - _TAIL))
    if high - low > _FAR * (inner[1] - inner[0]) > 0:
        low, high = map(float, inner)
    span = high - low
    if (readings == readings.round()).all() and span < _MAX_WHOLE:
        low, high = math.floor(low), math.floor(high) + 1
        return low, high, high - low
    step = 10.0 ** math.floor(math.log10(span)) / 10
    step *= next(factor for factor in (1, 2, 5, 10) if span <= 10 * step * factor)
    low, high = round(math.floor(low / step) * step, 9), round(math.ceil(high / step) * step, 9)
    return low, high, usual_bins(high - low)


def usual_bins(span: float) -> int:
    """Return a number of bins, about 64, that makes each bin 1, 2 or 5 times a power of ten wide."""
    steps = [step * 10.0**place for place in range(-6, 7) for step in _STEPS]
    counts = [span / step for step in steps]
    whole = [round(n) for n in counts if abs(n - round(n)) < 1e-9 and _MIN_BINS <= n <= _MAX_BINS]
    return min(whole, key=lambda n: abs(math.log(n / _USUAL_BINS)), default=_USUAL_BINS)


def _fill_usual(request: PlanRequest) -> tuple[PlanRequest, str]:
    """Return the request with two of devices, ε and error, and a sentence on those filled with defaults."""
    if request.lifetime is not None or request.histogram_epsilon is not None:
        return request, ""
    assumed: dict[str, float] = {}
    unset = [name for name in ("epsilon", "error", "devices") if getattr(request, name) is None]
    for name, value in (("epsilon", USUAL_EPSILON), ("error", USUAL_ERROR)):
        if name in unset and len(unset) > 1:
            assumed[name] = value
            unset.remove(name)
    options = " ".join(f"--{name} {value:g}" for name, value in assumed.items())
    return replace(request, **assumed), f"These defaults were assumed: {options}." if options else ""
