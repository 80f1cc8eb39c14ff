"""Check whether honest devices can have produced a code histogram with any readings.

Each mechanism defines what honest devices cannot produce (Mechanism.invariants). A histogram that violates
one of these rules was not produced by honest devices alone. The converse does not hold: the check misses
forgers who draw the parts that do not depend on the reading like real devices and keep every value's support
plausible.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..mechanisms import mechanism_of
from ..mechanisms.invariants import Check

# A limit on the smallest p times the number of checks. A chi-squared test's p is approximate, but even with
# the smallest group sizes, honest fleets fall below this limit with a probability under 1e-9.
ALARM = 1e-12
MIN_REPORTS = 100


@dataclass(frozen=True)
class Plausibility:
    """The combined result of all checks on a histogram.

    Attributes:
        reports: The number of reports.
        checks: The results of the checks; empty if the reports are too few.
        p: The smallest p-value times the number of checks, at most 1; None without checks.
        words: The result as one sentence.
    """

    reports: int
    checks: tuple[Check, ...]
    p: float | None
    words: str

    @property
    def implausible(self) -> bool:
        """Whether honest devices cannot have sent this histogram, because p is below ALARM."""
        return self.p is not None and self.p < ALARM

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self) | {"implausible": self.implausible}


def check(experiment: Experiment, counts: npt.ArrayLike) -> Plausibility:
    """Check a code histogram; this takes about as long as decoding it once.

    Args:
        experiment: The experiment.
        counts: The histogram, integers of at least 0, shape (code_count,).

    Raises:
        ValueError: If the counts have a different shape.

    Utility:
        An honest fleet is judged implausible with a probability below 1e-9, for any population and size.

    Citation:
        See mechanisms/invariants.py.
    """
    codes = np.asarray(counts, dtype=np.int64)
    if codes.shape != (experiment.code_count,):
        raise ValueError(
            f"the histogram has shape {codes.shape}, but the experiment has {experiment.code_count} codes"
        )
    reports = int(codes.sum())
    if reports < MIN_REPORTS:
        subject = "1 report is" if reports == 1 else f"{reports:,} reports are"
        words = f"{subject} too few for a check; {MIN_REPORTS} are needed"
        return Plausibility(reports, (), None, words)
    checks = [*mechanism_of(experiment).invariants(codes)]
    if not checks:
        return Plausibility(
            reports,
            (),
            None,
            "every part of these reports depends on the readings, so nothing can be checked",
        )
    p = min(1.0, min(result.p for result in checks) * len(checks))
    worst = min(checks, key=lambda result: result.p)
    words = "honest devices can produce this histogram"
    if p < ALARM:
        words = f"honest devices do not produce this histogram: {worst.words}"
    return Plausibility(reports, tuple(checks), p, words)
