"""Reads numbers as people write them: decimal commas, grouped thousands, units; also blanks and dates."""

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ..server.errors import UsageError

BLANK = frozenset(
    {
        "", "#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "1.#ind", "1.#qnan", "-nan", "<na>", "n/a",
        "na", "nan", "nat", "none", "null", "#div/0!", "#null!", "#num!", "#ref!", "#value!", "#name?",
        "unavailable", "unknown", "?", "-", "--", "---", "----", "(null)", "\\n", "n.a.",
    }
)  # fmt: skip
"""Texts, in lower case, that pandas, spreadsheets, Home Assistant and meters write if there is no value."""

_SPACES = " \u00a0\u2009\u202f'’"
_UNIT = r"(?:[^\W\d_]|[%‰°Ω€$£])[^\s,;:\"\d]{0,9}[23]?"
_ZONE = r"(?:Z|[A-Z]{3,4}(?:[+-]\d{2}:?\d{2})?|[+-]\d{2}(?::?\d{2})?)"
_TIME = rf"\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\.?)?(?:\s?{_ZONE})?"
_MONTH = r"(?:Jan|Feb|Fév|M[aä]r|Mrz|A[pv]r|Ma[iy]|Ju[inl]|Aug|Aoû|Sep|O[ck]t|Nov|D[eé][cz])[a-zéäû]{0,6}\.?"
_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\.?,?\s"
_COMPACT_DAY = r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_DAY = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/]\d{1,2}[-/](?:\d{4}|\d{2})|\d{1,2}\.\d{1,2}\.(?:\d{4})?"
    r"|\d{2}\.\d{2}\.\d{2}|(?:19|20)\d{2}-(?:W?\d{2}|W\d{2}-\d)"
    rf"|\d{{1,2}}\.?[- ](?:{_MONTH}|[A-Z]{{3,9}})[- ]\d{{2,4}}|{_MONTH}\s\d{{1,2}},?\s\d{{4}})"
)
_DATE = re.compile(
    rf"(?:{_WEEKDAY})?{_DAY}(?:(?:T|,?\s+){_TIME})?|{_TIME}|{_WEEKDAY}{_MONTH}\s+\d{{1,2}}\s{_TIME}\s\d{{4}}"
    rf"|{_COMPACT_DAY}(?:T?(?:[01]\d|2[0-3])(?:[0-5]\d){{0,2}}Z?)?",
    re.ASCII | re.IGNORECASE,
)

_TEMPERATURE = {"c": "°C", "f": "°F"}
_UNITS = {"deg c": "°C", "deg f": "°F", "celsius": "°C", "fahrenheit": "°F", "percent": "%", "pct": "%"}
_UNITS |= {"degc": "°C", "degf": "°F", "volts": "V", "watts": "W", "amps": "A", "ug/m3": "µg/m³", "m3": "m³"}
_USUAL_UNITS = (
    "°C", "°F", "%", "A", "V", "W", "l", "s", "m/s", "km/h", "km", "kg", "mm", "cm", "ms", "lx", "lux",
    "ppm", "ppb", "rpm", "dB", "dBm", "µg/m³", "m³", "Pa", "hPa", "kPa", "mbar", "Wh", "kWh", "MWh", "kW",
    "mV", "mA", "Hz", "kHz", "MHz",
)  # fmt: skip
_UNITS |= {unit.lower(): unit for unit in _USUAL_UNITS}
_IN_HEADING = re.compile(r"[(\[]([^()\[\]/][^()\[\]]{0,19})[)\]]\s*$")
_AFTER_COMMA = re.compile(r",\s*([^\s,()]{1,10})\s*(?:\(.*\))?$")


@dataclass(frozen=True)
class ReadingRules:
    """How to read numbers, as stated by the user.

    Attributes:
        keep: Values that are readings although they look like a sensor error.
        decimal: The decimal separator, "." or ","; "" to detect it.
    """

    keep: tuple[float, ...] = ()
    decimal: str = ""

    def __post_init__(self) -> None:
        if self.decimal not in ("", ".", ","):
            raise UsageError(f"--decimal must be . or , not {self.decimal}")


class WrittenNumber(NamedTuple):
    """A number and the unit that is written behind it, or ""."""

    value: float
    unit: str


def is_blank_text(text: str) -> bool:
    """Return whether a cell says that there is no value."""
    return text.strip().lower() in BLANK


def is_date(text: str) -> bool:
    """Return whether a text is a date, a time of day, or both."""
    return _DATE.fullmatch(text.strip()) is not None


def parse_number(text: str, decimal: str) -> WrittenNumber | None:
    """Return a text's number, if `decimal` ("." or ",") is its decimal separator; None if it is not finite.

    The other separator, a space or an apostrophe groups thousands, as in 21,060.0, 21 060,0 or 21'060.0.
    """
    match = _grammar(decimal).fullmatch(text.strip())
    if match is None or not (match["whole"] or match["part"]):
        return None
    whole = re.sub(r"\D", "", match["whole"] or "")
    sign = "-" if match["sign"] in ("-", "−") else ""
    value = float(f"{sign}{whole or 0}.{match['part'] or 0}{match['power'] or ''}")
    return WrittenNumber(value, match["unit"] or "") if math.isfinite(value) else None


@cache
def _grammar(decimal: str) -> re.Pattern[str]:
    groups = _SPACES + ("," if decimal == "." else ".")
    whole = rf"[1-9][0-9]{{0,2}}(?P<group>[{groups}])[0-9]{{3}}(?:(?P=group)[0-9]{{3}})*|[0-9]+"
    return re.compile(
        rf"(?P<sign>[-+−]?)(?:[€$£]\s?)?(?P<whole>{whole})?(?:{re.escape(decimal)}(?P<part>[0-9]*))?"
        rf"(?P<power>[eE][-+]?[0-9]+)?\s*(?P<unit>{_UNIT})?"
    )


def unit_in(text: str) -> str:
    """Return the unit that a text is, in its usual spelling, or ""."""
    return _UNITS.get(text.strip().strip("()[]").lower(), "")


def unit_of_column(name: str) -> str:
    """Return the unit in a column's name, such as "temp_c", "Temp, °C" or "temperature (°C)", or ""."""
    match = _AFTER_COMMA.search(name)
    if match and unit_in(match[1]):
        return unit_in(match[1])
    words = re.findall(r"[^\s_()\[\]]+", name.lower())
    temperature = _TEMPERATURE.get(words[-1], "") if words else ""
    if temperature:
        return temperature if any(word.startswith("temp") for word in words) else ""
    match = _IN_HEADING.search(name)
    if match:
        return unit_in(match[1]) or (match[1].strip() if not match[1].strip().isalpha() else "")
    is_unit = len(words) > 1 and words[-1] in _UNITS and (len(words[-1]) > 1 or words[-1] == "%")
    return _UNITS[words[-1]] if is_unit else ""
