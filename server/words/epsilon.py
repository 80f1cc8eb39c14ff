"""Format an ε, rounded in the safe direction, and describe the belief that it bounds."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from .numbers import ENGLISH, Numbers

ITS_REPORT = "One report"
ALL_SEEN = "All the reports that a device ever sends"
ALL_REPORTS = "All of a device's reports"

_MAX_NATS = 16.0  # total ε of a board's reports above which the bound on beliefs is useless


def rounded_up(nats: float | None) -> str:
    """Format an ε in nats, rounded up to three digits: 0.0516 for 0.051513; a dash for None."""
    if nats is None:
        return "–"
    if not nats:
        return "0"
    unit = Decimal(10) ** (math.floor(math.log10(nats)) - 2)
    return f"{float((Decimal(repr(nats)) / unit).to_integral_value(ROUND_CEILING) * unit):g}"


def rounded_down(nats: float) -> str:
    """Format an ε in nats, rounded down to three digits or three decimals: 1.098 for 1.098612."""
    if not nats:
        return "0"
    unit = Decimal(10) ** min(math.floor(math.log10(nats)) - 2, -3)
    return f"{(Decimal(repr(nats)) / unit).to_integral_value(ROUND_FLOOR) * unit:f}".rstrip("0").rstrip(".")


def confidence(nats: float) -> int:
    """Return the percentage, rounded up, to which reports totalling `nats` can raise a belief of 10%."""
    odds = math.exp(min(nats, 700.0)) / 9
    return math.ceil(100 * odds / (1 + odds))


def belief(nats: float, what: str = "reading", reports: str = ITS_REPORT) -> str:
    """Describe how much reports can reveal at most, in a sentence without ε.

    The bound holds for any prior and any side information (Kasiviswanathan and Smith 2014): the odds of a
    guess grow by a factor of at most e^ε.

    Args:
        nats: The total ε of all reports that are seen.
        what: The subject of the guess.
        reports: The reports, as the subject of the sentence.
    """
    sure = confidence(nats)
    after = f"at most {sure}%" if sure < 100 else "near certainty"
    return f"{reports} can raise someone's confidence in a guess about the {what} from 10% to {after}."


def belief_of_all(*experiments: tuple[float, int | None]) -> str:
    """Describe how much one report, and all of a device's reports to one experiment, can reveal at most.

    Args:
        experiments: For each experiment, the ε of one report and the number of reports from a device, or None
            if unlimited.
    """
    single = belief(max(nats for nats, _ in experiments))
    nats, own = max(experiments, key=lambda pair: pair[0] * (pair[1] or math.inf))
    if experiments == ((nats, 1),):
        return single
    if own is None or own * nats > _MAX_NATS:
        return (
            f"{single} Many reports from a device about a reading that never changes reveal more than that."
        )
    reports = f"All {own:,} of a device's reports" if own > 1 else "A device's only report"
    together = belief(
        own * nats, reports=reports if len(experiments) == 1 else f"{ALL_REPORTS} to one question"
    )
    return f"{single} {together}"


def reports_per_device(own: int, write: Numbers = ENGLISH) -> str:
    """Describe how many of a device's reports a histogram contains."""
    return "1 report of a device" if own == 1 else f"up to {write.number(own, 0)} reports of a device"


def with_exception(delta: float, promise: str) -> str:
    """Return a promise as a sentence that starts with its exception if delta is above 0."""
    return f"Except with that probability, {promise[0].lower()}{promise[1:]}" if delta else promise
