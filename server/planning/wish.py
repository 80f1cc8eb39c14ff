"""What somebody wants to learn of a fleet, as words say it, and the plan that follows from it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ...device.ldp_client import EPSILON_MIN
from ..epsilon import MICRO
from .devices import MOST_DEVICES, PlanError
from .expected_error import Question
from .experiment_file import Reading
from .lifetime import DEFAULT_LIMIT, LifetimeBudget, LifetimePlan, Rhythm, parse_duration, plan_lifetime

BEFORE = 0.1
"""The chance that somebody gave a reading beforehand, in the question about privacy."""

_NUMBER = r"([-+]?\d+(?:\.\d+)?)"
_RANGE = re.compile(rf"(?:from\s+)?{_NUMBER}\s*(?:to|\.\.|:|–)\s*{_NUMBER}\s*(.*)", re.IGNORECASE)
_ERROR = re.compile(r"(.*?)(?:,|\bto\b|\bwithin\b)?\s*(?:±|\+-)?\s*(\d+(?:\.\d+)?)\s*(%?)", re.IGNORECASE)
_BELIEF = re.compile(r"(?:.*\bto\b)?\s*(?:at most\s*)?(\d+(?:\.\d+)?)\s*(?:in\s*(\d+)|%|)", re.IGNORECASE)
_QUANTILE = re.compile(r"(?:the\s+)?(\d+(?:\.\d+)?)\s*%(?:\s*quantile)?", re.IGNORECASE)
_SIDE = re.compile(rf"(above|over|below|under)\s+{_NUMBER}.*", re.IGNORECASE)
_YES_NO = ("yes/no", "yes or no", "yes no", "yes", "no", "y/n", "bool")
_SHARES = ("", "share", "the share", "shares", "the shares")
_STEPS = (1.0, 2.0, 5.0)
_USUAL_BINS, _FEWEST_BINS, _MOST_BINS = 64, 16, 128
_USUAL_ERROR = 0.05


@dataclass(frozen=True)
class Asked:
    """What is to be learned, and the reading that it takes: a threshold makes a yes or no of a number.

    error: wanted half-width of the 95 % interval, share of devices, of a mean part of the range. purpose: the
    question as a sentence.
    """

    reading: Reading
    question: Question
    error: float
    purpose: str


@dataclass(frozen=True)
class Wish:
    """A question to a fleet, and what an answer may cost.

    total: micro-nats, the ε of all that a board ever sends. rhythm: how long, and how often boards look.
    """

    asked: Asked
    devices: int
    total: int
    rhythm: Rhythm


def parse_reading(text: str) -> Reading:
    """Return what a board reads: "yes/no", labels "a, b, c", or a range with its unit "-30 to 34 °C"."""
    text = text.strip()
    if text.lower() in _YES_NO:
        return Reading(yes_no=True)
    ends = _RANGE.fullmatch(text)
    if ends:
        low, high = float(ends[1]), float(ends[2])
        if not low < high:
            raise PlanError(f"a range goes from the lower number to the higher one, unlike {text}")
        return Reading(bins=_bins(high - low), low=low, high=high, unit=ends[3].strip())
    labels = tuple(label.strip() for label in text.split(","))
    if len(labels) < 2 or "" in labels or len(set(labels)) < len(labels):
        raise PlanError(
            "write yes/no, or different labels with commas (heating, cooling, idle), or a range with its unit"
            " (-30 to 34 °C)"
        )
    if "other" in labels:
        raise PlanError("the label other is always there, as the last one: leave it out")
    return Reading(labels=labels)


def _bins(span: float) -> int:
    """As many bins as make each 1, 2 or 5 of some decimal place wide, some 64."""
    steps = [step * 10.0**place for place in range(-6, 7) for step in _STEPS]
    counts = [span / step for step in steps]
    whole = [round(n) for n in counts if abs(n - round(n)) < 1e-9 and _FEWEST_BINS <= n <= _MOST_BINS]
    return min(whole, key=lambda n: abs(math.log(n / _USUAL_BINS)), default=_USUAL_BINS)


def parse_devices(text: str) -> int:
    """Return a number of boards: "20000", "20,000"."""
    try:
        devices = int(re.sub(r"[,_ ]", "", text))
    except ValueError:
        raise PlanError(f"the number of boards is a whole number such as 20,000, not {text}") from None
    if not 2 <= devices <= MOST_DEVICES:
        raise PlanError(f"there must be from 2 to {MOST_DEVICES:,} boards, not {devices:,}")
    return devices


def parse_asked(text: str, reading: Reading) -> Asked:
    """Return what is to be learned of a reading, and how exactly: "above 8 to 5 %".

    It is ±5 % where that is not said. What is said of a number alone is about all of its values.
    """
    what, error = _exactness(text)
    if not reading.bins and what not in _SHARES:
        raise PlanError(f"write how exactly the share is to be known: 5 %, not {text}")
    if reading.yes_no:
        return Asked(reading, Question("frequency"), error, "Which share of the boards says yes?")
    if reading.labels:
        purpose = f"Which share of the boards says which of {', '.join(reading.labels)}?"
        return Asked(reading, Question("frequency"), error, purpose)
    unit = f" {reading.unit}".rstrip()
    if what in ("", "everything", "all", "the spread"):
        return Asked(reading, Question("range"), error, f"How do the readings spread{_in(unit)}?")
    if what in ("median", "the median"):
        return Asked(reading, Question("quantile", 0.5), error, f"What is the median reading{_in(unit)}?")
    if what in ("mean", "the mean", "average", "the average"):
        return Asked(reading, Question("mean"), error, f"What is the mean reading{_in(unit)}?")
    quantile = _QUANTILE.fullmatch(what)
    if quantile and 0 < float(quantile[1]) < 100:
        purpose = f"Below which reading{_in(unit)} are {quantile[1]} % of the boards?"
        return Asked(reading, Question("quantile", float(quantile[1]) / 100), error, purpose)
    return Asked(Reading(yes_no=True), Question("frequency"), error, _threshold(what, reading, unit))


def _in(unit: str) -> str:
    return f" (in{unit})" if unit else ""


def _threshold(what: str, reading: Reading, unit: str) -> str:
    """The question that a board can answer with yes or no."""
    side, ends = _SIDE.fullmatch(what), _RANGE.fullmatch(what)
    if not side and not ends:
        raise PlanError(
            "write above 8, below 5, 18 to 22, the mean, the median, 90 % quantile or everything, then how"
            " exactly: to 5 %"
        )
    assert reading.low is not None
    assert reading.high is not None
    numbers = [float(side[2])] if side else [float(ends[1]), float(ends[2])] if ends else []
    if not all(reading.low <= x <= reading.high for x in numbers) or numbers != sorted(set(numbers)):
        raise PlanError(f"{what} must lie within {reading.low:g} to {reading.high:g}, the lower number first")
    if side:
        above = side[1].lower() in ("above", "over")
        return (
            f"Which share of the boards reads {numbers[0]:g}{unit} or more?"
            if above
            else (f"Which share of the boards reads less than {numbers[0]:g}{unit}?")
        )
    return (
        f"Which share of the boards reads {numbers[0]:g}{unit} or more, and less than {numbers[1]:g}{unit}?"
    )


def _exactness(text: str) -> tuple[str, float]:
    """What stands before a trailing "to 5 %", in small letters, and the 5 % as a share."""
    text = text.strip().lower()
    found = _ERROR.fullmatch(text)
    alone = found is not None and not found[1].strip(" ±")
    said = found is not None and (alone or re.search(r"(,|\bto|\bwithin|±|\+-)\s*±?\s*[\d.]+\s*%$", text))
    if not found or not said:
        return text, _USUAL_ERROR
    error = float(found[2]) / 100
    if not 0 < error < 0.5:
        raise PlanError(f"how exactly is a share of the boards above 0 and below 50 %, not {found[2]} %")
    return found[1].strip(), error


def parse_belief(text: str) -> int:
    """Return the micro-nats that take a chance of 1 in 10 to this one at most: "46", "46 in 100", "1 in 2".

    Rounded down to a thousandth of a nat.
    """
    found = _BELIEF.fullmatch(text.strip())
    after = float(found[1]) / float(found[2] or 100) if found and found[2] != "0" else 0.0
    if not BEFORE < after < 1:
        raise PlanError(
            f"it was 10 in 100 before: write what it may become at most, from 11 to 99 in 100, not {text}"
        )
    nats = math.log(after / (1 - after)) - math.log(BEFORE / (1 - BEFORE))
    total = math.floor(nats * 1000) * (MICRO // 1000)
    if total < EPSILON_MIN:
        raise PlanError(f"{text} leaves no room for a report: allow a little more")
    return total


def parse_rhythm(text: str) -> Rhythm:
    """Return for how long, and how often: "2 years, every hour"."""
    long, _, often = re.sub(r",?\s*\bevery\b\s*", ",", text.strip(), flags=re.IGNORECASE).partition(",")
    if not often.strip():
        raise PlanError("write for how long, and how often: 2 years, every hour")
    rhythm = Rhythm(parse_duration(often.strip()), parse_duration(long.strip()))
    if not rhythm.calls:
        raise PlanError(f"a board that looks every {often.strip()} never looks within {long.strip()}")
    return rhythm


def plan_for(wish: Wish) -> LifetimePlan:
    """The best way to spend what a board may give away. Raises PlanError where there is none."""
    asked, budget = wish.asked, LifetimeBudget(wish.total)
    domain = asked.reading.domain
    assert domain is not None
    return plan_lifetime(asked.question, wish.devices, domain, budget, wish.rhythm, DEFAULT_LIMIT)
