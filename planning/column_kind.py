"""Chooses the type of a column's readings: yes or no, a number, or labels; dates have none."""

import re
from collections import Counter

from ..server.words.numbers import counted
from .column_survey import Survey
from .readings_file import BOOLS
from .written_numbers import is_date, parse_number, unit_in

MAX_LABELS = 31
"""Labels of a proposed experiment."""

_MIN_DATES = 0.95  # share of a column's cells
_VERSIONS = frozenset({"version", "ver", "fw", "firmware", "release", "build"})
_CODES = frozenset({"code", "codes", "error", "err", "errno", "reason", "state", "status"})
_TIMES = frozenset(
    {"time", "date", "datetime", "timestamp", "ts", "epoch", "unix", "unixtime"}
    | {"at", "created", "updated", "changed"}
    | {"zeit", "datum", "uhrzeit", "zeitstempel", "horodate", "heure", "fecha", "hora"}
)
_UNIX_TIMES = tuple((1e9 * scale, 4e9 * scale) for scale in (1, 1e3, 1e6, 1e9))  # s to ns, from 2001
_WORDS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+")  # also of camelCase


def kind_of(cells: Survey, names: tuple[str, ...] = ()) -> str:
    """Return the type of a column's readings: "bool", "number", "choice", or "date" for times and dates.

    Whole numbers in a column such as "code", versions such as 1.10, and numbers with leading zeros are names
    and not quantities.

    Args:
        cells: The column.
        names: All columns' names.
    """
    filled = cells.cells - cells.blank
    if filled and cells.is_complete and all(text.lower() in BOOLS for text in cells.texts):
        return "bool"
    dates = sum(count for text, count in cells.texts.items() if is_date(text))
    if dates >= _MIN_DATES * cells.texts.total() > 0 or _are_unix_times(cells):
        return "date"
    odd_units = [unit for unit in cells.units if unit and not unit_in(unit)]
    # Different letters behind numbers make names, such as 3A and 3B.
    has_units = sum(map(bool, cells.units)) > 1
    numbers = cells.numbers - sum(cells.units[unit] for unit in odd_units if has_units)
    return "number" if 2 * numbers > filled and not _are_names(cells, names) else "choice"


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _are_names(cells: Survey, names: tuple[str, ...]) -> bool:
    """Return whether a column's numbers are names, such as versions, codes or postcodes."""
    if not cells.is_complete:
        return False
    word = (_words(cells.name) or [""])[-1]
    if word in _VERSIONS or any(re.fullmatch(r"0\d+", text) for text in cells.texts):
        return True
    if len(cells.texts) > MAX_LABELS:
        return False
    if _have_two_spellings(cells.texts):
        return True
    # In an export of Home Assistant, every sensor's readings are in a column called state.
    is_measured = word == "state" and "entity_id" in names
    return word in _CODES and not is_measured and all(text.lstrip("+-").isdecimal() for text in cells.texts)


def _have_two_spellings(texts: Counter[str]) -> bool:
    """Return whether decimals such as 1.1 and 1.10 are different texts for the same number."""
    decimals = [text for text in texts if re.fullmatch(r"\d+\.\d+", text) and not text.endswith(".0")]
    return len({float(text) for text in decimals}) < len(decimals)


def _are_unix_times(cells: Survey) -> bool:
    if _TIMES.isdisjoint(_words(cells.name)) or not cells.numbers:
        return False
    numbers = [number.value for number in (parse_number(text, ".") for text in cells.texts) if number]
    return any(all(low <= number < high for number in numbers) for low, high in _UNIX_TIMES)


def choose_labels(cells: Survey, min_share: float) -> tuple[tuple[str, ...], str]:
    """Return the most common texts of a column, most common first, and the reason if it has no labels.

    A text that occurs only once may identify someone, so it does not become a label.

    Args:
        cells: The column.
        min_share: Share of the readings that the labels must cover.
    """
    counts = Counter({text: count for text, count in cells.texts.items() if text != "other"})
    repeated = Counter({text: count for text, count in counts.items() if count > 1})
    labels = tuple(text for text, _ in repeated.most_common(MAX_LABELS))
    filled = cells.cells - cells.blank - cells.texts["other"]
    if not cells.is_complete or sum(repeated[label] for label in labels) < min_share * filled:
        number = f"more than {len(counts):,}" if not cells.is_complete else f"{len(counts):,}"
        if counts and not repeated and cells.is_complete:
            return (), f"each of the {counted(filled, 'text')} in {cells.name} occurs only once"
        return (), f"{cells.name} has {number} different texts, too many for labels"
    return labels, ""
