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
"""The defaults of a plan: ε of a report in nats, and half-width of the 95% interval."""

_MOST_LABELS = 31
_LEAST_LABELLED = 0.8  # share of the readings; otherwise they are names or texts, mostly different
_TAIL = 0.005  # share of the readings at each end that are left out if they widen the range a lot
_FAR = 3
_MOST_WHOLE = 64  # different whole numbers up to which each has a bin
_LEAST_SPAN = 0.05
_STEPS = (1.0, 2.0, 5.0)
_USUAL_BINS, _FEWEST_BINS, _MOST_BINS = 64, 16, 128
_IN_HEADING = re.compile(r"[(\[]([^()\[\]]{1,20})[)\]]\s*$")
_TEMPERATURE = {"c": "°C", "f": "°F"}
_UNITS = _TEMPERATURE | {"celsius": "°C", "fahrenheit": "°F", "percent": "%", "pct": "%", "hpa": "hPa"}
_UNITS |= {"kwh": "kWh", "wh": "Wh", "kw": "kW", "mv": "mV", "ma": "mA", "khz": "kHz", "mhz": "MHz"}
_UNITS |= {name: name for name in ("km", "kg", "mm", "cm", "ms", "ppm", "lux", "rpm", "min")}


@dataclass(frozen=True)
class Proposal:
    """The proposal from a file's column.

    Attributes:
        request: The plan's request, completed.
        population: The population for `hushmote simulate`.
        words: A description of the readings and the proposal, in sentences.
    """

    request: PlanRequest
    population: str
    words: str


def propose(source: str, request: PlanRequest) -> Proposal:
    """Fill in what a request leaves open of its readings from FILE:COLUMN, and the rest with usual values.

    Raises:
        PlanError: If there is no such file or column, or the readings are missing, all the same, or too many
            different texts for labels.
    """
    path, _, column = source.rpartition(":")
    if not path or Path(source).is_file():
        raise PlanError(f"--input needs a column: --input {source}:{column_of(source)}")
    reading = reading_of(request)
    stated_kind = (
        "bool" if reading.yes_no else "choice" if reading.labels else "number" if reading.bins else ""
    )
    rows = csv_rows(path, (column,), PlanError, numbers=(column,))
    kind = stated_kind or _kind([cell for _, (cell,) in rows])
    return _fill(f"{path}:{column}", kind, read_column(path, column, kind, PlanError), request)


def _fill(source: str, kind: str, cells: Sequence[Reading], request: PlanRequest) -> Proposal:
    """Return what the cells of FILE:COLUMN propose; a cell is None if it has no reading."""
    path, _, column = source.rpartition(":")
    reading, readings = reading_of(request), [cell for cell in cells if not is_blank(cell)]
    if not readings:
        raise PlanError(f"{column} of {path} has no reading: all its cells are empty")
    if len(set(readings)) == 1 and request.low is None and not (reading.yes_no or reading.labels):
        raise PlanError(
            f"all readings in {column} of {path} are {_format_reading(readings[0])}: nothing to ask"
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
        are = "is" if blank == 1 else "are"
        heading += (
            f" {blank:,} of {counted(len(cells), 'cell')} {are} blank, so the file gets missing = true."
        )
    if kind != "bool" and not reading.labels:
        words += " That comes straight from your data, and is published with the experiment."
    return Proposal(filled, f"file:{source}", " ".join(filter(None, (heading, words, assumptions))))


def column_of(path: str | Path) -> str:
    """Return the first column of a CSV file that proposes a plan, otherwise the first.

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
        with contextlib.suppress(PlanError, ValueError):  # raised for a cell of another kind
            readings = [read_cell((cell or "").strip(), kind) for cell in cells]
            _fill(f"{path}:{column}", kind, readings, PlanRequest())
            return column
    return columns[0]


def _kind(texts: Sequence[str | None]) -> str:
    """Return the type of a column's cells: a bool, a number as soon as most of them are, or a choice."""
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
    labels = tuple(label for label, _ in counts.most_common(_MOST_LABELS))
    labelled_count = sum(counts[label] for label in labels)
    if labelled_count < _LEAST_LABELLED * counts.total():
        raise PlanError(
            f"{column} has {len(counts):,} different texts, too many for labels: give --values a,b,c"
        )
    rest = f"; {len(counts) - len(labels)} rarer ones are other" if len(labels) < len(counts) else ""
    return replace(request, values=labels), f"Labels: {', '.join(labels)}{rest}."


def _fill_range(readings: Floats, column: str, request: PlanRequest) -> tuple[PlanRequest, str]:
    if not np.isfinite(readings).all():
        raise PlanError(f"{column} has an infinite number: take it out")
    if request.low is not None and request.high is not None:
        low, high, bins = (
            request.low,
            request.high,
            _beside_missing(usual_bins(request.high - request.low), request),
        )
    else:
        low, high, bins = _range(readings)
        bins = _beside_missing(bins, request)
    if high - low < _LEAST_SPAN:
        raise PlanError(
            f"{column} spans {high - low:g}, and boards tell thousandths apart: take a smaller unit"
        )
    bins, unit = int(str(request.values or bins)), request.unit or _unit(column)
    of = f" {unit}" if unit else ""
    beyond = int(((readings < low) | (readings > high)).sum())
    outside = f"; {counted(beyond, 'reading')} beyond that fall into the outer bins" if beyond else ""
    words = (
        f"They go from {readings.min():g} to {readings.max():g}{of}; the plan takes {low:g} to {high:g}{of}"
    )
    words += f" in {bins} bins of {(high - low) / bins:.3g}{of}{outside}."
    return replace(request, values=bins, low=low, high=high, unit=unit), words


def _beside_missing(bins: int, request: PlanRequest) -> int:
    """Return one bin fewer if the index of a missing reading would otherwise add a level to a tree."""
    return bins - (request.missing is not None and bins > 2 and bins & (bins - 1) == 0)


def _range(readings: Floats) -> tuple[float, float, int]:
    """Return round ends and a number of bins, around all readings, or most of them if a few are far away."""
    low, high = float(readings.min()), float(readings.max())
    inner = np.quantile(readings, (_TAIL, 1 - _TAIL))
    if high - low > _FAR * (inner[1] - inner[0]) > 0:
        low, high = map(float, inner)
    span = high - low
    if (readings == readings.round()).all() and span < _MOST_WHOLE:
        low, high = math.floor(low), math.floor(high) + 1
        return low, high, high - low
    step = 10.0 ** math.floor(math.log10(span)) / 10
    step *= next(times for times in (1, 2, 5, 10) if span <= 10 * step * times)
    low, high = round(math.floor(low / step) * step, 9), round(math.ceil(high / step) * step, 9)
    return low, high, usual_bins(high - low)


def usual_bins(span: float) -> int:
    """Return a number of bins, about 64, that makes each 1, 2 or 5 of some decimal place wide."""
    steps = [step * 10.0**place for place in range(-6, 7) for step in _STEPS]
    counts = [span / step for step in steps]
    whole = [round(n) for n in counts if abs(n - round(n)) < 1e-9 and _FEWEST_BINS <= n <= _MOST_BINS]
    return min(whole, key=lambda n: abs(math.log(n / _USUAL_BINS)), default=_USUAL_BINS)


def _unit(column: str) -> str:
    """Return the unit in a column's name, such as "temp_c" or "temperature (°C)", or ""."""
    match = _IN_HEADING.search(column)
    if match:
        return match[1].strip()
    *before, last = re.split(r"[_\s]+", column.lower())
    if last in _TEMPERATURE and not any(word.startswith("temp") for word in before):
        return ""
    return _UNITS.get(last, "") if before else ""


def _fill_usual(request: PlanRequest) -> tuple[PlanRequest, str]:
    """Return the request with two of devices, ε and error, and a sentence on those that are assumed."""
    if request.lifetime is not None or request.histogram_epsilon is not None:
        return request, ""
    assumed: dict[str, float] = {}
    open_ = [name for name in ("epsilon", "error", "devices") if getattr(request, name) is None]
    for name, value in (("epsilon", USUAL_EPSILON), ("error", USUAL_ERROR)):
        if name in open_ and len(open_) > 1:
            assumed[name] = value
            open_.remove(name)
    options = " ".join(f"--{name} {value:g}" for name, value in assumed.items())
    return replace(request, **assumed), f"You did not say, so this is assumed: {options}." if options else ""
