"""What somebody wants to learn of a fleet, and at what cost: the command's options, and Python's names.

Texts name a field as the command's option does, such as --histogram-epsilon; `in_python` makes
histogram_epsilon of it. What a wish means is worked out by wished.py, which takes longer to load.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from ..server.epsilon import MICRO

DEFAULT_LIMIT = 4 * MICRO  # what the example firmware's policy allows one report to cost
OTHER_NAMES = {"ranges": "--range"}
"""Options that are not called as their field is."""

YES_NO = "yes-no"
"""The values of a reading that is yes or no."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """All that a plan is made from: what boards read, what is asked, what it may cost; None: not said.

    Each field has its line of help and, where they are others than its own, the option's names.
    """

    devices: Annotated[int | None, "Number of devices."] = None
    epsilon: Annotated[float | None, "Privacy of one report, nats: 0.001 to 16."] = None
    values: Annotated[
        int | str | Sequence[str] | None,
        "What a reading can be: a number's bins, such as 64; labels a,b,c ('other' is added); yes-no.",
    ] = None
    error: Annotated[
        float | str | None,
        "Wanted half-width of the 95 % interval: 0.01 is ±1 point of shares, or 1 % of a mean's range;"
        " or of a mean or a quantile with --low and --high in its unit: 0.5°C.",
    ] = None
    statistics: Annotated[
        str | None,
        "What the error is for: frequencies (the share of one value), ranges, quantiles or mean.",
        "--statistics",
        "--for",
    ] = None
    share: Annotated[float | None, "Share of devices with the value or range; else the worst one."] = None
    ranges: Annotated[
        Sequence[str] | None,
        "low:high in the unit, or in bins without --low; either may be empty. Or n: any n neighbouring bins.",
        "--range",
    ] = None
    quantile: Annotated[float | None, "Which quantile; else the median."] = None
    deviation: Annotated[
        float | None,
        "For a mean: standard deviation of the readings, in the unit, or as part of the range without --low;"
        " else the worst readings possible.",
    ] = None
    missing: Annotated[
        float | None,
        "Share of devices without a reading, such as 0.12: the experiment's file then has missing = true,"
        " and the error is about the others.",
    ] = None
    low: Annotated[float | None, "Least reading of a number."] = None
    high: Annotated[float | None, "Largest reading of a number."] = None
    unit: Annotated[str, "The reading's unit, for what is printed."] = ""
    histogram_epsilon: Annotated[
        float | None,
        "Instead of --epsilon: the ε that the histogram of all reports may have, against people who see"
        " histograms only; not against the broker, the aggregator's operator or the database's journal.",
    ] = None
    lifetime: Annotated[
        float | None,
        "Plan a life: the ε that all of a device's reports may cost. With --error instead of --devices: how"
        " many devices it takes.",
    ] = None
    delta: Annotated[
        float | None,
        "With --lifetime: the δ that goes with it, otherwise 0; with --histogram-epsilon: the histogram's,"
        " otherwise 1e-6.",
    ] = None
    horizon: Annotated[str | None, "With --lifetime: how long, such as 2y."] = None
    call: Annotated[str | None, "With --lifetime: time between calls to report(), such as 10min."] = None
    limit: Annotated[
        float | None,
        "With --lifetime: the most ε that the devices' policy allows one report, otherwise"
        f" {DEFAULT_LIMIT / MICRO:g}.",
    ] = None

    def words(self) -> list[str]:
        """The options of `hushmote plan` that say the same."""
        result: list[str] = []
        for field in fields(Wish):
            value: Any = getattr(self, field.name)
            name = OTHER_NAMES.get(field.name, f"--{field.name.replace('_', '-')}")
            if value is None or value == "":
                continue
            if field.name == "values" and not isinstance(value, str | int):
                value = ",".join(value)
            for part in value if isinstance(value, tuple | list) else [value]:
                result += [name, part if isinstance(part, str) else repr(part).removesuffix(".0")]
        return result


def in_python(text: str) -> str:
    """A text with fields as Python and the page name them: histogram_epsilon for --histogram-epsilon."""
    return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), text)
