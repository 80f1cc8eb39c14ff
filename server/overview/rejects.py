"""Reasons why reports were not counted, in words for readers who do not know the wire format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ingest import pipeline

_WHY = {
    pipeline.MALFORMED: "they are not valid reports",
    pipeline.UNKNOWN_DIGEST: "they answer an experiment that this store does not have",
    pipeline.EXPIRED_VERSION: "they came after the last day on which their experiment counts",
    pipeline.BAD_TAG: "they were not signed with their device's key",
    pipeline.DUPLICATE: "they had been counted before; boards send again when no answer came",
    pipeline.OUT_OF_RANGE: "no device can draw such codes",
    pipeline.OVER_BUDGET: "their device had no budget left for them",
    pipeline.DAMAGED_NUMBERS: "the store's own record of their device is damaged",
    pipeline.UNKNOWN_DEVICE: "their device is not on the fleet's allow-list, or has no id that fits",
    pipeline.REVOKED_DEVICE: "their device was revoked",
    pipeline.TOO_FAST: "their device sent more in an hour than is counted",
    pipeline.UNKNOWN_FLEET: "this store has no fleet of that name",
}
_HARMLESS = (pipeline.DUPLICATE,)


@dataclass(frozen=True)
class Rejected:
    """Reports that were not counted, for one reason of pipeline.REASONS."""

    reason: str
    reports: int

    @property
    def harmless(self) -> bool:
        """Whether this also happens in normal operation."""
        return self.reason in _HARMLESS

    def words(self, number: Callable[[int], str] = "{:,}".format) -> str:
        """Return one sentence with the number and the reason; `number` formats a whole number."""
        n, why = self.reports, _WHY.get(self.reason, self.reason)
        reports = f"{number(n)} report was" if n == 1 else f"{number(n)} reports were"
        return f"{reports} {'not counted a second time' if self.harmless else 'rejected'}: {why}."


def rejected_reports(counts: Mapping[str, int]) -> tuple[Rejected, ...]:
    """Return the reports that were not counted, by reason, most first, but harmless ones last."""
    entries = [Rejected(reason, n) for reason, n in counts.items() if n]
    return tuple(sorted(entries, key=lambda one: (one.harmless, -one.reports, one.reason)))
