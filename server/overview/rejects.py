"""Explain why reports were not counted, for readers who do not know the wire format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ingest import pipeline
from ..ingest.recent_reports import CONFLICT_MEANING

_REASON_WORDS = {
    pipeline.MALFORMED: "they are not valid reports",
    pipeline.UNKNOWN_DIGEST: "they answer an experiment that this store does not have",
    pipeline.EXPIRED_VERSION: "they arrived after their experiment had ended",
    pipeline.BAD_TAG: "they were not signed with their device's key",
    pipeline.DUPLICATE: "they had already been counted; boards resend reports that are not acknowledged",
    pipeline.CONFLICTING_NUMBER: f"another report has the same number; {CONFLICT_MEANING}",
    pipeline.OUT_OF_RANGE: "no device can send such codes",
    pipeline.OVER_BUDGET: "their device had no budget left for them",
    pipeline.DAMAGED_NUMBERS: "the store's record of their device is damaged",
    pipeline.UNKNOWN_DEVICE: "their device is not on the fleet's allow-list, or its id is invalid",
    pipeline.REVOKED_DEVICE: "their device was revoked",
    pipeline.TOO_FAST: "their device exceeded the hourly limit",
    pipeline.UNKNOWN_FLEET: "this store has no fleet of that name",
}
_HARMLESS = (pipeline.DUPLICATE,)


@dataclass(frozen=True)
class Rejected:
    """Reports that were not counted, for one of the reasons in pipeline.REASONS."""

    reason: str
    reports: int

    @property
    def harmless(self) -> bool:
        """Whether this also happens in normal operation."""
        return self.reason in _HARMLESS

    def words(self, number: Callable[[int], str] = "{:,}".format) -> str:
        """Return a sentence with the number and the reason; `number` formats an integer."""
        n, why = self.reports, _REASON_WORDS.get(self.reason, self.reason)
        reports = f"{number(n)} report was" if n == 1 else f"{number(n)} reports were"
        return f"{reports} {'not counted a second time' if self.harmless else 'rejected'}: {why}."


def rejected_reports(counts: Mapping[str, int]) -> tuple[Rejected, ...]:
    """Return the reports that were not counted, by reason: most frequent first, harmless ones last."""
    entries = [Rejected(reason, n) for reason, n in counts.items() if n]
    return tuple(sorted(entries, key=lambda entry: (entry.harmless, -entry.reports, entry.reason)))
