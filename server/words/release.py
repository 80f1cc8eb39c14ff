"""Describe the verdict on a release: stop, proceed or not yet, and how far it has rolled out."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .answers import scale_and_unit
from .numbers import ENGLISH, READING_STEPS, SHARE_STEPS, Numbers, counted, decimals, round_up_boards

_POINTS = 10 * SHARE_STEPS  # a difference is shown with two digits
NOT_RANDOM = (
    "The boards with {new} were not chosen at random, "
    "so a difference may come from the boards and not from the version."
)
"""A note for rollouts that are not random; `new` is the version."""
NO_INSTALLED = "Without the number of installed devices, boards that have stopped reporting go unnoticed."
"""A note for verdicts without the number of installed devices."""
NEEDS_INSTALLED = "the number of installed devices is needed for a verdict: add --installed."
"""Why there is no "proceed" if the plan checks for silent boards, but a call cannot, as on the page."""


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence: "2.3.1", "2.3.0 and 2.3.1"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Versions:
    """The versions that are compared.

    Attributes:
        new: The new version.
        others: The versions that it is compared with.
    """

    new: str
    others: tuple[str, ...]

    @property
    def text_of_others(self) -> str:
        """The others for a sentence: "2.3.1", "2.3.0 and 2.3.1"."""
        return listed(self.others)


@dataclass(frozen=True)
class Margin:
    """The difference that is accepted.

    Attributes:
        subject: What may differ, such as "board_crash".
        value: The margin, above 0.
        unit: The unit of a reading, or None for a share.
    """

    subject: str
    value: float
    unit: str | None = None


@dataclass(frozen=True)
class Rise:
    """The difference between the new version and the others, in the unit of the question.

    Attributes:
        subject: What differs, such as "board_crash".
        value: The new version minus the others.
        low: The lower bound of `value`.
        high: Its upper bound.
        unit: The unit of a reading, or None for a share.
    """

    subject: str
    value: float
    low: float
    high: float
    unit: str | None = None


def judged_text(question: str, worse: str, margin: float | None, unit: str | None) -> str:
    """Return how a question judges a release: "worse if yes is higher by more than 2 points".

    Args:
        question: The question in the experiment's file.
        worse: "more" or "less".
        margin: The accepted difference, or None.
        unit: The unit of a mean, or None for a share.
    """
    name = question if question.isalpha() else f'"{question}"'
    text = f"worse if {name} is {'higher' if worse == 'more' else 'lower'}"
    if margin is None:
        return f"{text}; without worse_by it cannot proceed"
    return f"{text} by more than {size(margin, unit)}"


def stop_sentence(versions: Versions, rise: Rise, write: Numbers = ENGLISH) -> str:
    """Return "Stop: board_crash is worse on 2.4.0 than on 2.3.1, by 4.8 points (2.1 to 7.5).".

    If less is worse, the difference is negative; the sentence always states its size.
    """
    sign = math.copysign(1.0, rise.value)
    ends = sorted((max(sign * rise.low, 0.0), max(sign * rise.high, 0.0)))
    size, low, high = _sizes((abs(rise.value), *ends), rise, write)
    begin = f"Stop: {rise.subject} is worse on {versions.new} than on {versions.text_of_others}"
    return f"{begin}, by {size} ({low} to {high})."


def stop_sentence_without_size(versions: Versions, subject: str) -> str:
    """Return "Stop: board_crash is worse on 2.4.0 than on 2.3.1.", for a difference that is not shown."""
    return f"Stop: {subject} is worse on {versions.new} than on {versions.text_of_others}."


def hidden_note(experiment: str, few: Sequence[str], least: int) -> str:
    """Return one line that says why the differences of an experiment are not shown.

    Args:
        experiment: The experiment.
        few: The versions with too few reports, at least one.
        least: The reports that a version needs.
    """
    verb, whose = ("has", "its histogram") if len(few) == 1 else ("have", "their histograms")
    reason = f"{listed(few)} {verb} fewer than {least} reports, so they could reveal {whose}"
    return f"The differences of {experiment} are not shown: {reason}."


def silence_sentence(
    versions: Versions, received: float, expected: float, missing_share: float, write: Numbers = ENGLISH
) -> str:
    """Return "Stop: boards with 2.4.0 are silent; 12 of about 980 reports arrived, ...".

    Args:
        versions: The versions.
        received: The reports received.
        expected: The reports expected.
        missing_share: The lower bound of the missing share.
        write: The format of numbers.
    """
    arrived = f"{write.number(received, 0)} of about {counted(round(expected), write=write)} arrived"
    lower_bound = write.percent(math.floor(100 * max(missing_share, 0.0)) / 100, 0)
    return f"Stop: boards with {versions.new} are silent; {arrived}, so at least {lower_bound} are missing."


def proceed_sentence(versions: Versions, margins: Sequence[Margin], write: Numbers = ENGLISH) -> str:
    """Return "Proceed: board_crash is at most 2 points worse on 2.4.0 than on 2.3.1.".

    With several questions, the sentence gives only their number.

    Args:
        versions: The versions.
        margins: The accepted difference of each question that has a margin, at least one.
        write: The format of numbers.
    """
    new, others = versions.new, versions.text_of_others
    if len(margins) > 1:
        count = write.number(len(margins), 0)
        return f"Proceed: {new} is worse than {others} by at most the margin in each of {count} questions."
    (margin,) = margins
    return f"Proceed: {margin.subject} is at most {_size(margin, write)} worse on {new} than on {others}."


def not_yet_sentence(
    versions: Versions, reports: int | None, days: int | None, write: Numbers = ENGLISH
) -> str:
    """Return "Not yet: about 1,200 more reports of 2.4.0 are needed, 4 days at this rate.".

    Args:
        versions: The versions.
        reports: The further reports of the new version that are likely to be needed, or None if unknown.
        days: The days until these have arrived at the present rate, or None.
        write: The format of numbers.
    """
    if reports is None:
        return f"Not yet: {versions.new} is not significantly worse than {versions.text_of_others} so far."
    at_rate = "" if days is None else f", {counted(days, 'day', write)} at this rate"
    more = write.number(round_up_boards(reports), 0)
    return f"Not yet: about {more} more reports of {versions.new} are needed{at_rate}."


def not_judged_sentence(versions: Versions, names: Sequence[str]) -> str:
    """Return "Not yet: wifi cannot be judged, so 2.4.0 cannot proceed.".

    Args:
        versions: The versions.
        names: The questions or experiments that cannot be judged, at least one.
    """
    return f"Not yet: {listed(names)} cannot be judged, so {versions.new} cannot proceed."


def no_look_sentence(versions: Versions, needed: int, new: int, others: int, write: Numbers = ENGLISH) -> str:
    """Return "Not yet: the first look needs 50 reports on each side; 2.4.0 has 12, and 2.3.1 has 980.".

    Args:
        versions: The versions.
        needed: The reports that each side needs.
        new: The reports of the new version.
        others: The reports of the others.
        write: The format of numbers.
    """
    sides = f"{versions.new} has {write.number(new, 0)}"
    verb = "has" if len(versions.others) == 1 else "have"
    sides += f", and {versions.text_of_others} {verb} {write.number(others, 0)}"
    return f"Not yet: the first look needs {counted(needed, write=write)} on each side; {sides}."


def signed_difference(
    value: float, low: float, high: float, unit: str | None, write: Numbers = ENGLISH
) -> tuple[str, str]:
    """Return a difference and its bounds for a table: "+4.8 points" and "+2.1 to +7.5", or "-"."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return size(value, unit, write, sign=True), "-"
    scale, name = scale_and_unit(unit)
    places = decimals(scale * low, scale * high, READING_STEPS if unit is not None else _POINTS)
    texts = [_signed(scale * x, places, write) for x in (value, low, high)]
    return f"{texts[0]} {name}".rstrip(), f"{texts[1]} to {texts[2]}"


def _signed(value: float, places: int, write: Numbers) -> str:
    text = write.number(abs(value), places)
    if not any(digit in text for digit in "123456789"):
        return text
    return ("+" if value > 0 else "-") + text


def size(value: float, unit: str | None, write: Numbers = ENGLISH, *, sign: bool = False) -> str:
    """Return a difference with its unit: "2 points", or with its sign "+2 points"."""
    text = _size(Margin("", abs(value), unit), write)
    return ("-" if value < 0 else "+") + text if sign else text


def rollout_sentence(
    versions: Versions, part: float, days_to_half: int | None, today: datetime.date, write: Numbers = ENGLISH
) -> str:
    """Return "2.4.0 runs on about 23% of devices; at this rate, on half by Thursday.".

    Args:
        versions: The versions.
        part: The share of devices with the new version.
        days_to_half: The days until it reaches half; 0 if it already has, None if it is not growing.
        today: The last day of the reports.
        write: The format of numbers.
    """
    begin = f"{versions.new} runs on about {write.percent(part, 0 if part >= 0.1 else 1)} of devices"
    if days_to_half == 0:
        return f"{begin}."
    if days_to_half is None:
        return f"{begin}, and this share is not clearly growing."
    day = today + datetime.timedelta(days=days_to_half)
    when = f"{day:%A}" if days_to_half < 7 else write.day(day)
    return f"{begin}; at this rate, on half by {when}."


def unknown_rollout_sentence(versions: Versions, reason: str) -> str:
    """Say why the share of devices with the new version is unknown, and what would give it."""
    return f"How many devices run {versions.new} is unknown: {reason}. Only your update server knows."


def _sizes(values: Sequence[float], rise: Rise, write: Numbers) -> list[str]:
    """Return differences with as many digits as their interval needs; the first one has the unit."""
    scale, unit = scale_and_unit(rise.unit)
    steps = READING_STEPS if rise.unit is not None else _POINTS
    places = decimals(scale * min(values[1:]), scale * max(values[1:]), steps)
    texts = [write.number(scale * value, places) for value in values]
    return [f"{texts[0]} {unit}".rstrip(), *texts[1:]]


def _size(margin: Margin, write: Numbers) -> str:
    scale, unit = scale_and_unit(margin.unit)
    number = write.number(round(scale * margin.value, 9))
    return f"{number} {'point' if margin.unit is None and number == '1' else unit}".rstrip()
