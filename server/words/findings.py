"""A finding in words: what is known now, whether it moved, how sure; or how many reports it still needs."""

import datetime
import math
from collections.abc import Sequence

from .answers import Change, Interval, chance, digits, reading, scaled
from .numbers import ENGLISH, Numbers, counted, two_digits

STEADY = "steady"
USUAL_DAYS = 30
"""Over how many of the newest days a finding is, where nobody says."""


def amount(of: Interval, unit: str | None, write: Numbers = ENGLISH) -> str:
    """A share of devices, or a reading, with its interval: "24 % of devices (17 to 30 %)", "up to 6.8 %".

    unit: of a reading; None of a share.
    """
    if unit is None and of.low <= 0:
        return f"up to {_percent(of.high, of, write)} of devices"
    if unit is None and of.high >= 1:
        return f"at least {_percent(of.low, of, write)} of devices"
    if unit is None:
        value, high = (_percent(x, of, write) for x in (of.value, of.high))
        return f"{value} of devices ({_percent(of.low, of, write).removesuffix(' %')} to {high})"
    places = _places(of.low, of.high)
    value, low, high = (write.number(x, places) for x in (of.value, of.low, of.high))
    return f"{reading(of.value, unit, write, places)} ({low} to {high})" if low != high else f"{value} {unit}"


def _places(low: float, high: float) -> int:
    """The digits behind the point that an interval leaves a meaning: one of its half or two."""
    places = digits(low, high)
    return places if (high - low) / 2 * 10**places < 30 else max(0, places - 1)


def _percent(share: float, of: Interval, write: Numbers) -> str:
    share, low, high = (min(max(x, 0.0), 1.0) for x in (share, of.low, of.high))
    return write.percent(share, _places(100 * low, 100 * high))


def moved(rise: float, p: float, unit: str | None, newest: str, apart: str, write: Numbers = ENGLISH) -> str:
    """Of when it is, and how it moved: " in the newest 10 days, up 12 points in 20 days; chance ..."."""
    scale, of = scaled(unit)
    size = two_digits(abs(rise) * scale, write)
    by_how_much = f"{'up' if rise > 0 else 'down'} {size} {of}".rstrip()
    return f" in the newest {newest}, {by_how_much} in {apart}; {chance(p, write)}"


def newest(windows: int, hours: bool) -> str:
    """So many of the newest windows, each an hour or a day: "10 days", "day"."""
    noun = "hour" if hours else "day"
    return noun if windows == 1 else counted(windows, noun)


def apart(hours: float) -> str:
    """A length of time as people say it: hours up to two days, then days."""
    return counted(round(hours), "hour") if hours < 48 else counted(round(hours / 24), "day")


def pair(
    cases: Sequence[tuple[str, Interval]],
    of: str,
    unit: str | None,
    p: float,
    confidence: float,
    write: Numbers = ENGLISH,
) -> str:
    """What holds in two cases: "crashed=yes: 12 % (10 to 14 %) with version=1.2; 4 % (3 to 5 %) with ..."."""
    told = "; ".join(
        f"{amount(row, unit, write).replace(' of devices', '')} with {name}" for name, row in cases
    )
    return f"{of}: {told}; {_verdict(p, confidence, write)}."


def compared(
    by: Change,
    name: str,
    sides: tuple[str, str],
    p: float,
    unit: str | None,
    confidence: float,
    write: Numbers = ENGLISH,
) -> str:
    """Two sides under their names: "24 and above: office 12 %, home 24 %: 12 points more; chance ..."."""
    scale, of = scaled(unit)
    places = digits(by.low * scale, by.high * scale)
    told = [
        f"{write.number(x * scale, places)} {'%' if unit is None else unit}".rstrip()
        for x in (by.before, by.after)
    ]
    size = f"{two_digits(abs(by.value) * scale, write)} {of}".rstrip()
    less = f"{size} {'more' if by.value > 0 else 'less'}"
    return f"{name}: {sides[0]} {told[0]}, {sides[1]} {told[1]}: {less}; {_verdict(p, confidence, write)}."


def _verdict(p: float, confidence: float, write: Numbers) -> str:
    return chance(p, write) if p < 1 - confidence else "chance alone could make that difference"


def too_few(
    reports: int, needed: float, target: str, when: str, a_day: float, now: datetime.datetime, write: Numbers
) -> str:
    """Said while an answer would say nothing: how many reports one takes, and when they will be there.

    needed: reports for the target, such as "±10 points". when: "so far", or "in 30 days". a_day: how many
    come; 0 where that is not known, or no more come in.
    """
    came = f"{counted(reports, write=write)} {when}"
    if not math.isfinite(needed) or needed <= reports:
        return f"{came}: too few to tell anything yet."
    text = f"{came}. {target} needs about {write.number(_round(needed), 0)}"
    if not a_day:
        return f"{text}."
    if needed > USUAL_DAYS * a_day:  # those of older days are left out
        return f"{text} in {USUAL_DAYS} days, more than come at this rate."
    days = (needed - reports) / a_day
    day = (now + datetime.timedelta(days=days)).date()
    named = f"on {day:%A}" if days < 6 else f"on {write.day(day)}"
    return f"{text}; at this rate {'today' if day == now.date() else named}."


def _round(count: float) -> int:
    """A number with two digits, never less than it is."""
    unit = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return math.ceil(count / unit) * unit
