"""Check whether honest devices can have produced a histogram of codes, whatever their readings are.

Each mechanism defines what honest devices cannot produce (Mechanism.invariants). A histogram that breaks one
of these rules did not come from honest devices alone. The converse does not hold: the check misses forgers
who draw the parts that do not depend on the reading as devices do, and keep every value's supports possible.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..mechanisms import mechanism_of
from ..mechanisms.invariants import Check

# A limit for the smallest p times the number of checks. A chi-squared test's p is approximate: with the
# smallest group sizes, honest fleets still get below this limit with a probability under 1e-9.
ALARM = 1e-12
LEAST_REPORTS = 100


@dataclass(frozen=True)
class Plausibility:
    """The result of all checks of a histogram together.

    Attributes:
        reports: The number of reports.
        checks: The checks made; empty if there are too few reports.
        p: The smallest p-value times the number of checks, at most 1; None without checks.
        words: One sentence.
    """

    reports: int
    checks: tuple[Check, ...]
    p: float | None
    words: str

    @property
    def implausible(self) -> bool:
        """Return whether honest devices cannot have sent this histogram, because p is below ALARM."""
        return self.p is not None and self.p < ALARM

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self) | {"implausible": self.implausible}


def check(experiment: Experiment, counts: npt.ArrayLike) -> Plausibility:
    """Check a histogram of codes; this takes about as long as decoding it once.

    Args:
        experiment: The experiment.
        counts: The histogram, integers of at least 0, shape (code_count,).

    Raises:
        ValueError: If the counts have another shape.

    Utility:
        An honest fleet is called implausible with a probability below 1e-9, whatever its population and size.

    Citation:
        See mechanisms/invariants.py.
    """
    codes = np.asarray(counts, dtype=np.int64)
    if codes.shape != (experiment.code_count,):
        raise ValueError(
            f"histogram has shape {codes.shape}, the experiment has {experiment.code_count} codes"
        )
    reports = int(codes.sum())
    if reports < LEAST_REPORTS:
        words = f"{reports:,} reports are too few to tell; {LEAST_REPORTS} are needed"
        return Plausibility(reports, (), None, words)
    checks = [*mechanism_of(experiment).invariants(codes)]
    if not checks:
        return Plausibility(
            reports,
            (),
            None,
            "every part of these reports depends on the readings, so nothing can be checked",
        )
    p = min(1.0, min(one.p for one in checks) * len(checks))
    worst = min(checks, key=lambda one: one.p)
    words = "honest devices can send this"
    if p < ALARM:
        words = f"honest devices do not send this: {worst.words}"
    return Plausibility(reports, tuple(checks), p, words)
