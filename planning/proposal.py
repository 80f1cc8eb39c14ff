"""Proposes a plan's type, range and unit from existing readings in a column of a CSV file."""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..server.arrays import Floats
from ..server.words.numbers import counted
from .devices import PlanError
from .readings_file import BLANK, BOOLS, Reading, csv_rows, csv_table, is_blank, read_cell, read_column
from .request import YES_NO, PlanRequest, reading_of

USUAL_EPSILON, USUAL_ERROR = 2.0, 0.05
"""A plan's defaults: a report's ε in nats, and the half-width of the 95% interval."""

_MAX_LABELS = 31
# Minimum share of readings covered by the labels; below it, the texts are names or mostly distinct.
_MIN_LABELLED = 0.8
_TAIL = 0.005  # share of readings at each end that may be omitted as outliers
_FAR = 3
_MAX_WHOLE = 64  # up to this many whole numbers, each gets its own bin
_MIN_SPAN = 0.05
_STEPS = (1.0, 2.0, 5.0)
_USUAL_BINS, _MIN_BINS, _MAX_BINS = 64, 16, 128
_IN_HEADING = re.compile(r"[(\[]([^()\[\]]{1,20})[)\]]\s*$")
_TEMPERATURE = {"c": "°C", "f": "°F"}
_UNITS = _TEMPERATURE | {"celsius": "°C", "fahrenheit": "°F", "percent": "%", "pct": "%", "hpa": "hPa"}
_UNITS |= {"kwh": "kWh", "wh": "Wh", "kw": "kW", "mv": "mV", "ma": "mA", "khz": "kHz", "mhz": "MHz"}
_UNITS |= {name: name for name in ("km", "kg", "mm", "cm", "ms", "ppm", "lux", "rpm", "min")}


@dataclass(frozen=True)
class Proposal:
    """A plan proposed from a column of readings.

    Attributes:
        request: The plan's request, completed.
        population: The population for `hushmote simulate`.
        words: Sentences that describe the readings and the proposal.
    """

    request: PlanRequest
    population: str
    words: str


def propose(source: str, request: PlanRequest) -> Proposal:
    """Fill in a request's reading from FILE:COLUMN, and its other missing fields with defaults.

    Raises:
        PlanError: If there is no such file or column, or the readings are missing, all the same, or too many
            different texts for labels.
    """
    path, _, column = source.rpartition(":")
    if not path or Path(source).is_file():
        raise PlanError(f"--input requires a column, such as --input {source}:{column_of(source)}")
    reading = reading_of(request)
    stated_kind = (
        "bool" if reading.yes_no else "choice" if reading.labels else "number" if reading.bins else ""
    )
    rows = csv_rows(path, (column,), PlanError, numbers=(column,))
    kind = stated_kind or _kind([cell for _, (cell,) in rows])
    return _fill(f"{path}:{column}", kind, read_column(path, column, kind, PlanError), request)


def _fill(source: str, kind: str, cells: Sequence[Reading], request: PlanRequest) -> Proposal:
    """Return the proposal from the cells of FILE:COLUMN, which are None without a reading."""
    path, _, column = source.rpartition(":")
    reading, readings = reading_of(request), [cell for cell in cells if not is_blank(cell)]
    if not readings:
        raise PlanError(f"{column} of {path} has no readings because all its cells are empty")
    if len(set(readings)) == 1 and request.low is None and not (reading.yes_no or reading.labels):
        raise PlanError(
            f"all readings in {column} of {path} are {_format_reading(readings[0])}, so there is "
            "nothing to measure"
        )
    blank = sum(map(is_blank, cells))
    if blank and request.missing is None:
        request = replace(request, missing=round(blank / len(cells), 4))
    if kind == "bool":
        filled, words = replace(request, values=YES_NO), "Its readings are yes or no."
    elif kind == "choice":
        filled, words = (request, "") if reading.labels else _fill_labels(readings, column, request)
    else:
        filled, words = _fill_range(np.array(readings, float), column, request)
    filled, assumptions = _fill_usual(filled)
    heading = f"{column} of {path} has {counted(len(readings), 'reading')}."
    if blank:
        verb = "is" if blank == 1 else "are"
        heading += (
            f" {blank:,} of {counted(len(cells), 'cell')} {verb} blank, so the file gets missing = true."
        )
    if kind != "bool" and not reading.labels:
        words += " This comes directly from your data and is published with the experiment."
    return Proposal(filled, f"file:{source}", " ".join(filter(None, (heading, words, assumptions))))


def column_of(path: str | Path) -> str:
    """Return the first column of a CSV file from which a plan can be proposed, or else the first column.

    Raises:
        PlanError: If the file cannot be read.
    """
    with csv_table(path, PlanError) as rows:
        columns = list(rows.fieldnames or ())
    if not columns:
        raise PlanError(f"{path} is empty")
    table = [cells for _, cells in csv_rows(path, columns, PlanError, numbers=columns)]
    for column, cells in zip(columns, zip(*table, strict=True), strict=True):
        kind = _kind(cells)
        with contextlib.suppress(PlanError, ValueError):  # raised for a cell of another type
            readings = [read_cell((cell or "").strip(), kind) for cell in cells]
            _fill(f"{path}:{column}", kind, readings, PlanRequest())
            return column
    return columns[0]


def _kind(texts: Sequence[str | None]) -> str:
    """Return the type of a column's cells: bool, number if most of them are numbers, or choice."""
    cells = Counter((text or "").strip().lower() for text in texts)
    for blank in BLANK:
        del cells[blank]
    if cells and all(text in BOOLS for text in cells):
        return "bool"
    return (
        "number" if 2 * sum(n for text, n in cells.items() if _is_number(text)) > cells.total() else "choice"
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _format_reading(reading: Reading) -> str:
    return f"{reading:g}" if isinstance(reading, float) else str(reading)


def _fill_labels(readings: Sequence[Reading], column: str, request: PlanRequest) -> tuple[PlanRequest, str]:
    counts = Counter(str(reading) for reading in readings if reading != "other")
    labels = tuple(label for label, _ in counts.most_common(_MAX_LABELS))
    labelled_count = sum(counts[label] for label in labels)
    if labelled_count < _MIN_LABELLED * counts.total():
        raise PlanError(
            f"{column} has {len(counts):,} different texts, too many for labels; give --values a,b,c"
        )
    other_text = (
        f"; {len(counts) - len(labels)} less common texts become other" if len(labels) < len(counts) else ""
    )
    return replace(request, values=labels), f"Labels: {', '.join(labels)}{other_text}."


def _fill_range(readings: Floats, column: str, request: PlanRequest) -> tuple[PlanRequest, str]:
    if not np.isfinite(readings).all():
        raise PlanError(f"{column} has an infinite number; remove it")
    if request.low is not None and request.high is not None:
        low, high, bins = (
            request.low,
            request.high,
            _bins_with_missing(usual_bins(request.high - request.low), request),
        )
    else:
        low, high, bins = _range(readings)
        bins = _bins_with_missing(bins, request)
    if high - low < _MIN_SPAN:
        raise PlanError(
            f"{column} spans {high - low:g}, but boards measure in thousandths; use a smaller unit"
        )
    bins, unit = int(str(request.values or bins)), request.unit or _unit(column)
    unit_suffix = f" {unit}" if unit else ""
    outside_count = int(((readings < low) | (readings > high)).sum())
    outside = (
        f"; {counted(outside_count, 'reading')} beyond that fall into the outer bins" if outside_count else ""
    )
    words = (
        f"They range from {readings.min():g} to {readings.max():g}{unit_suffix}; the plan uses "
        f"{low:g} to {high:g}{unit_suffix}"
    )
    words += f" in {bins} bins of {(high - low) / bins:.3g}{unit_suffix}{outside}."
    return replace(request, values=bins, low=low, high=high, unit=unit), words


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


def _unit(column: str) -> str:
    """Return the unit in a column's name, such as "temp_c" or "temperature (°C)", or ""."""
    match = _IN_HEADING.search(column)
    if match:
        return match[1].strip()
    *words, suffix = re.split(r"[_\s]+", column.lower())
    if suffix in _TEMPERATURE and not any(word.startswith("temp") for word in words):
        return ""
    return _UNITS.get(suffix, "") if words else ""


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
