"""Five questions in words about what somebody wants to learn of a fleet, and a recommendation."""

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..device.ldp_client import EPSILON_MIN
from ..server.epsilon import MICRO
from ..server.errors import HushmoteError
from .answer import PlanAnswer
from .devices import MOST_DEVICES, PlanError
from .expected_error import Kind
from .lifetime import LifetimePlan, Rhythm, parse_duration
from .proposal import usual_bins
from .request import YES_NO, PlanRequest, Reading
from .sentences import cost

T = TypeVar("T")
Ask = Callable[[str, str], str]
"""Shows a question and returns the answer; the second text is the default for Enter."""

_ASK_READ = (
    "1. What does a device read: a number, labels, yes or no? Write a number's range and unit (-30 to 34 °C),"
    " or labels (heating, cooling, idle), or yes or no."
)
_ASK_DEVICES = "2. How many devices are there?"
_ASK_SHARE = (
    "3. How exactly do you want to know the share of devices that say {what}? Write ± how many points:"
    " 5 is 25 to 35 % where the share is 30 %."
)
_ASK_NUMBER = (
    "3. What do you want to learn, and how exactly? Write above 8, below 5, 18 to 22, the mean, the median,"
    " 90 % quantile or everything, then ± how many points, for the mean how many % of the range. Example:"
    " above 8 to 5 %."
)
_ASK_BELIEF = (
    "4. How much may anybody learn of one household from all that its device ever sends? Say someone is 10 %"
    " sure of a reading beforehand. How many % sure may they become, at most?"
)
_ASK_RHYTHM = "5. For how long do you want to ask, and how often does a device look at its reading?"

BEFORE = 0.1
"""How sure somebody was of a reading before, in the question about privacy."""

_NUMBER = r"([-+]?\d+(?:\.\d+)?)"
_RANGE = re.compile(rf"(?:[^\d,]*[\s(])?{_NUMBER}\s*(?:to|and|\.\.|:|–)\s*{_NUMBER}\s*(.*)", re.IGNORECASE)
_AFTER_UNIT = re.compile(r"\s+(?:in|of|on|at|and|when|where|inside|outside)\b.*|[.,;)]*$")
_ERROR = re.compile(
    r"(.*?)(?:,|\bto\b|\bwithin\b)?\s*(?:±|\+-)?\s*(\d+(?:\.\d+)?)\s*(?:%|points?|)\.?", re.IGNORECASE
)
_BELIEF = re.compile(r"(?:.*\bto\b)?[^\d.]*(\d+(?:\.\d+)?)\s*(?:in\s*(\d+)|%|)[^\d.]*\.?", re.IGNORECASE)
_DEVICES = re.compile(r"[^\d.-]*(\d[\d,_ ]*(?:\.\d+)?)\s*(k|thousand|million)?\b[^\d]*", re.IGNORECASE)
_TIMES = {"k": 1_000, "thousand": 1_000, "million": 1_000_000}
_QUANTILE = re.compile(r"(?:the\s+)?(\d+(?:\.\d+)?)\s*%(?:\s*quantile)?", re.IGNORECASE)
_SIDE = re.compile(rf"[^\d]*\b(above|over|more than|below|under|less than)\s+{_NUMBER}.*", re.IGNORECASE)
_YES_NO = re.compile(r"yes|no|y/n|bool|.*\byes\b.*\bno\b.*|.*\bwhether\b.*", re.IGNORECASE)
_A_LABEL = re.compile(r"(?:it'?s |it is |they are |either |one of |labels?:? )+", re.IGNORECASE)
_SHARES = re.compile(r"|(?:.*\b)?(?:shares?|how many|percent)\b.*")
_EVERY = re.compile(r",?\s*\b(?:and\s+)?(?:once\s+an?|(?:once\s+)?every|each)\b\s*", re.IGNORECASE)
_LY = {"hourly": "every hour", "daily": "every day", "weekly": "every week"}
_USUAL_ERROR = 0.05


@dataclass(frozen=True)
class Goal:
    """What to learn, and from which reading: a threshold makes a yes or no of a number.

    error: wanted half-width, as Plan.error. purpose: the question as a sentence.
    """

    reading: Reading
    kind: Kind
    error: float
    purpose: str
    quantile: float | None = None


def asked(ask: Ask) -> tuple[PlanRequest, str]:
    """Ask each question until the answer is understood; returns the wish, and its purpose as a sentence."""
    reading = _until_understood(ask, _ASK_READ, "yes/no", parse_reading)
    devices = _until_understood(ask, _ASK_DEVICES, "1,000", parse_devices)
    question, default = _ASK_SHARE.format(what="yes" if reading.yes_no else "each label"), "5 %"
    if reading.bins:
        question, default = _ASK_NUMBER, "everything to 5 %"
    learned = _until_understood(ask, question, default, lambda text: parse_learned(text, reading))
    total = _until_understood(ask, _ASK_BELIEF, "46", parse_belief)
    horizon, call = _until_understood(ask, _ASK_RHYTHM, "2 years, every hour", parse_rhythm)
    reading = learned.reading
    wish = PlanRequest(
        devices=devices,
        values=YES_NO if reading.yes_no else reading.labels or reading.bins,
        low=reading.low,
        high=reading.high,
        unit=reading.unit,
        statistics=learned.kind,
        quantile=learned.quantile,
        error=learned.error,
        lifetime=total / MICRO,
        horizon=horizon,
        call=call,
    )
    return wish, learned.purpose


def _until_understood(ask: Ask, question: str, default: str, parse: Callable[[str], T]) -> T:
    while True:
        try:
            return parse(ask(question, default))
        except HushmoteError as e:
            question = f"Not understood: {e}."


def _total(life: LifetimePlan) -> str:
    return f"{life.best.cap * life.best.epsilon / MICRO:g}"


def recommendation(answer: PlanAnswer, purpose: str) -> list[str]:
    """Say whether the wish can be met, or why not; how private, how exact, and its cost, as sentences."""
    life = answer.plan
    assert isinstance(life, LifetimePlan)
    _, exact, private = answer.sentences
    total = _total(life)
    if answer.reading.yes_no and " reads " in purpose:
        purpose += (
            " Boards answer it with yes or no, and send no number: that is all you asked, and costs least."
        )
    unmet, missed = [], answer.not_met
    if missed:
        exact = exact.replace(missed, "").rstrip()
        unmet = [
            f"\nYour wish cannot be met: {missed} Or ask for a shorter time, so that reports come closer"
            " together, or allow more to be learned of one household."
        ]
    return [
        *unmet,
        f"\n{purpose}",
        f"\nHow private: {private} That is ε = {total} for a device's life, and it holds against everybody,"
        " the broker included. Each device keeps count in its flash, and no server can raise it.",
        f"\nHow exact: {exact}",
        f"\nWhat it costs: {cost(life)}",
    ]


def next_steps(answer: PlanAnswer, path: Path, name: str) -> list[str]:
    """Return what to do once the file is written."""
    life = answer.plan
    assert isinstance(life, LifetimePlan)
    file, total = shlex.quote(str(path)), _total(life)
    return [
        f"\nWhat next: {file} is written. Put its owner into it, and then",
        f"  hushmote experiment show {file}",
        f"  hushmote simulate {file}",
        f"  hushmote experiment add {file} --keys",
        f"  hushmote budget policy --epsilon {total} --experiments {name}",
    ]


def parse_reading(text: str) -> Reading:
    """Return what a board reads: "yes/no", labels "a, b, c", or a range with its unit "-30 to 34 °C"."""
    text = text.strip().rstrip(".?!")
    if _YES_NO.fullmatch(text):
        return Reading(yes_no=True)
    ends = _RANGE.fullmatch(text)
    if ends:
        low, high = float(ends[1]), float(ends[2])
        if not low < high:
            raise PlanError(f"a range goes from the lower number to the higher one, unlike {text}")
        unit = _AFTER_UNIT.sub("", ends[3]).strip()[:20]
        return Reading(bins=usual_bins(high - low), low=low, high=high, unit=unit)
    said = _A_LABEL.sub("", text, count=1) if _A_LABEL.match(text) else text
    labels = tuple(label.strip() for label in re.split(r",\s*or\s+|,|\s+or\s+", said))
    if len(labels) < 2 or "" in labels or len(set(labels)) < len(labels):
        raise PlanError(
            "write yes/no, or different labels with commas (heating, cooling, idle), or a range with its unit"
            " (-30 to 34 °C)"
        )
    if "other" in labels:
        raise PlanError("the label other is always there, as the last one: leave it out")
    return Reading(labels=labels)


def parse_devices(text: str) -> int:
    """Return a number of boards: "20000", "20,000"."""
    match = _DEVICES.fullmatch(text.strip())
    number = float(re.sub(r"[,_ ]", "", match[1])) * _TIMES.get((match[2] or "").lower(), 1) if match else 0.5
    if number % 1:
        raise PlanError(f"the number of devices is a whole number such as 20,000, not {text}")
    devices = int(number)
    if not 2 <= devices <= MOST_DEVICES:
        raise PlanError(f"there must be from 2 to {MOST_DEVICES:,} devices, not {devices:,}")
    return devices


def parse_learned(text: str, reading: Reading) -> Goal:
    """Return what to learn of a reading, and how exactly: "above 8 to 5 %".

    The default is ±5 %. A wish about a number alone concerns all of its values.
    """
    what, error = _exactness(text)
    if not reading.bins and not _SHARES.fullmatch(what):
        raise PlanError(f"write how exactly the share is to be known: 5 %, not {text}")
    if reading.yes_no:
        return Goal(reading, "frequency", error, "Which share of the devices says yes?")
    if reading.labels:
        purpose = f"Which share of the devices says which of {', '.join(reading.labels)}?"
        return Goal(reading, "frequency", error, purpose)
    unit = f" {reading.unit}".rstrip()
    within = f" (in{unit})" if unit else ""
    if not what or re.search(r"\b(everything|all|spread|distribution)\b", what):
        return Goal(reading, "range", error, f"How do the readings spread{within}?")
    if re.search(r"\bmedian\b", what):
        return Goal(reading, "quantile", error, f"What is the median reading{within}?", 0.5)
    if re.search(r"\b(mean|average)\b", what):
        return Goal(reading, "mean", error, f"What is the mean reading{within}?")
    quantile = _QUANTILE.fullmatch(what)
    if quantile and 0 < float(quantile[1]) < 100:
        purpose = f"Below which reading{within} are {quantile[1]} % of the devices?"
        return Goal(reading, "quantile", error, purpose, float(quantile[1]) / 100)
    return Goal(Reading(yes_no=True), "frequency", error, _threshold(what, reading, unit))


def _threshold(what: str, reading: Reading, unit: str) -> str:
    """Return the question that a device can answer with yes or no."""
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
    asks, low = "Which share of the devices reads", f"{numbers[0]:g}{unit}"
    if ends:
        return f"{asks} {low} or more, and less than {numbers[1]:g}{unit}?"
    return (
        f"{asks} {low} or more?"
        if side and side[1].lower() in ("above", "over", "more than")
        else f"{asks} less than {low}?"
    )


def _exactness(text: str) -> tuple[str, float]:
    """Return the text before a trailing "to 5 %", in small letters, and the 5 % as a share."""
    text = text.strip().lower()
    match = _ERROR.fullmatch(text)
    alone = match is not None and not match[1].strip(" ±")
    said = match is not None and (
        alone or re.search(r"(,|\bto|\bwithin|±|\+-)\s*±?\s*[\d.]+\s*(%|points?)\.?$", text)
    )
    if not match or not said:
        return text, _USUAL_ERROR
    error = float(match[2]) / 100
    if not 0 < error < 0.5:
        raise PlanError(f"how exactly is a share of the devices above 0 and below 50 %, not {match[2]} %")
    return match[1].strip(), error


def parse_belief(text: str) -> int:
    """Return the micro-nats that take 10 % sure to this at most: "46", "46 %", "46 in 100", "1 in 2".

    Rounded down to a thousandth of a nat.
    """
    match = _BELIEF.fullmatch(text.strip())
    after = float(match[1]) / float(match[2] or 100) if match and match[2] != "0" else 0.0
    if not BEFORE < after < 1:
        raise PlanError(f"it was 10 % before: write what it may become at most, from 11 to 99 %, not {text}")
    nats = math.log(after / (1 - after)) - math.log(BEFORE / (1 - BEFORE))
    total = math.floor(nats * 1000) * (MICRO // 1000)
    if total < EPSILON_MIN:
        raise PlanError(f"{text} leaves no room for a report: allow a little more")
    return total


def parse_rhythm(text: str) -> tuple[str, str]:
    """Return how long, and how often: "2 years, every hour"."""
    said = re.sub(r"\b(?:hour|dai|week)ly\b", lambda word: _LY[word[0]], text.lower().strip(" ."))
    said = re.sub(r"^(?:for\s+)?(?:an?\s+|about\s+)?", "", said)
    long, _, often = _EVERY.sub(",", said, count=1).partition(",")
    if not often.strip():
        raise PlanError("write for how long, and how often: 2 years, every hour")
    long, often = long.strip(), often.strip()
    if not Rhythm(parse_duration(often), parse_duration(long)).calls:
        raise PlanError(f"a device that looks every {often} never looks within {long}")
    return long, often
