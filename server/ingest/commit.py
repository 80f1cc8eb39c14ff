"""Commit each batch completely or not at all, and retry while the store fails."""

import dataclasses
import datetime
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import HushmoteError
from ..store.counting import ClockWrong, counting_minute
from ..store.erase import (
    erase_queued,
    expire,
    finish_rewrite,
    is_rewrite_due,
    queued_erasures,
)
from ..store.store import Store, StoreError
from ..wire.keys import FleetKeys, MasterKeyError
from ..wire.limits import window
from . import pipeline
from .clock import now
from .pacing import Backoff
from .pipeline import KnownFleets
from .rate_limit import RateLimit
from .recent_reports import RecentReports
from .status import Status

log = logging.getLogger(__name__)

ERASURES_S = 5.0
"""Seconds between checks for queued erasures."""
_ERASURES_RETRY_S = 60.0  # delay after a failed erasure
_CLOCK_S = 1.0  # delay before a wrong clock is checked again

IDLE_S = 600
"""Seconds without a commit after which the time of counting is recorded separately."""

GIVE_UP_S = 3600.0
"""Seconds without a successful batch after which a restart may help where retrying does not."""


class CountingGivenUp(HushmoteError):
    """Raised when all batches have failed for too long; a service manager should restart the process."""

    exit_status = 75  # EX_TEMPFAIL of sysexits.h


@dataclass(frozen=True)
class Counters:
    """Counters since the start.

    Attributes:
        accepted: Number of reports counted.
        rejected: Number of reports rejected, by reason.
        batches: Number of batches committed.
        failures: Number of batches that failed.
    """

    accepted: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    batches: int = 0
    failures: int = 0


class Committer:
    """Commits batches of messages to a store.

    Args:
        store: The store.
        fleets: The rules by which reports are checked.
        status: Logs changes.
        limit: The limit on reports per device and hour; None for no limit.
        on_commit: Called after each commit with the number of its messages and its duration in seconds.
        clock: Returns the time of arrival, or raises ClockWrong.
        heartbeat: Chooses the batches that also record that counting works; None not to record it.
        give_up_s: Seconds of failing batches after which commit() raises CountingGivenUp.

    Attributes:
        recent: The reports counted recently.
        counters: The counters so far.
        not_before: Monotonic time before which commits are not retried.
        committed_at: Monotonic time of the last commit; None before the first.
        failing: Whether the last attempt failed.
    """

    def __init__(
        self,
        store: Store,
        fleets: KnownFleets,
        status: Status,
        limit: RateLimit | None = None,
        on_commit: Callable[[int, float], object] | None = None,
        clock: Callable[[], datetime.datetime] = now,
        heartbeat: "Heartbeat | None" = None,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        self._store = store
        self._give_up_s = give_up_s
        self._failing_since: float | None = None
        self._heartbeat = heartbeat
        self._fleets = fleets
        self._status = status
        self._limit = limit
        self._on_commit = on_commit
        self._clock = clock
        self._backoff = Backoff()
        self.recent = RecentReports()
        self.counters = Counters()
        self.committed_at: float | None = None
        self.failing = False
        self.not_before = 0.0

    def commit(self, messages: Sequence[tuple[str, bytes]]) -> bool:
        """Commit a batch of (topic, payload) messages.

        Returns:
            False if the store fails or the clock is wrong, in which case nothing may be acknowledged.

        Raises:
            CountingGivenUp: If the store has failed for give_up_s.
        """
        start, before = time.monotonic(), self.counters
        try:
            # This time determines the window and whether it is recorded; waits use the monotonic clock.
            arrival = self._clock()
            due = self._heartbeat is not None and self._heartbeat.is_due(arrival)
            rules = self._fleets.rules_for(messages)
            tally = pipeline.ingest(
                self._store,
                messages,
                rules,
                arrival,
                self._limit,
                recent=self.recent,
                record_time=due,
            )
        except ClockWrong:  # the clock has logged it
            self.not_before = time.monotonic() + _CLOCK_S
            return False
        except StoreError as e:
            # Nothing was counted or acknowledged, so the batch is retried; the broker still has it as well.
            self.failing = True
            self.counters = dataclasses.replace(before, failures=before.failures + 1)
            self._status.say(logging.ERROR, f"{e}; reports wait at the broker")
            self._failing_since = self._failing_since or start
            if time.monotonic() - self._failing_since >= self._give_up_s:
                raise CountingGivenUp(
                    f"no batch could be committed for {self._give_up_s:g} s, so this process ends; a service "
                    f"manager should start it again: {e}"
                ) from None
            self.not_before = time.monotonic() + self._backoff.next_s()
            return False
        self.committed_at = time.monotonic()
        if self._heartbeat is not None:
            self._heartbeat.note(arrival)
        self._fleets.note_counted(tally.fleets)
        if self.failing:
            self._status.say(logging.INFO, "reports are counted again")
        self.failing, self._failing_since = False, None
        self._backoff.reset()
        rejected = Counter(before.rejected)
        for (_fleet, reason), count in tally.rejected.items():
            rejected[reason] += count
        accepted = before.accepted + tally.accepted
        self.counters = Counters(accepted, dict(rejected), before.batches + 1, before.failures)
        if self._on_commit is not None:
            self._on_commit(len(messages), self.committed_at - start)
        return True


class Heartbeat:
    """Records in the store that counting works, with one batch a minute or after IDLE_S without a batch.

    It does not record its start time. After an interruption the first batch does, so that its day is
    marked as interrupted even if midnight passes before it arrives.
    """

    def __init__(self, store: Store, status: Status, clock: Callable[[], datetime.datetime] = now) -> None:
        self._store = store
        self._status = status
        self._clock = clock
        self._minute: int | None = None  # minute of the last attempt
        self._idle_since: int | None = None

    def is_due(self, now: datetime.datetime) -> bool:
        """Return whether a batch at this time should record the time."""
        return counting_minute(now) != self._minute

    def note(self, now: datetime.datetime) -> None:
        """Note that a batch was committed, so that the time is not recorded again before the next minute."""
        self._minute = self._idle_since = counting_minute(now)

    def turn(self) -> None:
        """Record the time after IDLE_S without a commit; log a failure, and retry after IDLE_S."""
        try:
            now = self._clock()
        except StoreError:  # the commit or the clock has logged it
            return
        minute = counting_minute(now)
        if self._idle_since is None:
            self._idle_since = minute
        if 0 <= minute - self._idle_since < IDLE_S:
            return
        try:
            self._store.record_counting(now)
        except StoreError as e:
            self._status.say(logging.ERROR, f"the time at which counting works cannot be recorded: {e}")
        self.note(now)


class Retention:
    """Erases one window per turn until none is due, then pauses until its clock's next hour."""

    def __init__(self, store: Store, status: Status, clock: Callable[[], datetime.datetime]) -> None:
        self._store = store
        self._status = status
        self._clock = clock
        self._finished_hour = ""

    def turn(self) -> None:
        """Erase one window if one is due; log a failure, and retry in the next hour."""
        try:
            now = self._clock()
        except StoreError:  # without a correct time no window is due
            return
        hour = window("hour", now)
        if hour == self._finished_hour:
            return
        try:
            expiry = expire(self._store, now)
        except StoreError as e:
            self._status.say(logging.ERROR, f"expired windows are not erased yet: {e}")
            expiry = None
        if expiry is None:
            self._finished_hour = hour
            return
        version, oldest, reports = expiry
        name = f"{version.experiment.name} of fleet {version.fleet}"
        log.info(
            "%s: the window %s (%s) reached its retention time and was erased",
            name,
            oldest,
            f"{reports:,} report{'s' * (reports != 1)}",
        )


class QueuedErasures:
    """Performs the erasures that are queued in the store, and finishes one that was interrupted.

    Args:
        store: The store.
        status: Logs changes.
        fleet_keys: The fleets' keys, needed for keyed fleets.
        fleets: The fleets whose reports are counted; None for all.
    """

    def __init__(
        self, store: Store, status: Status, fleet_keys: FleetKeys | None, fleets: Sequence[str] | None
    ) -> None:
        self._store = store
        self._status = status
        self._keys = fleet_keys
        self._fleets = fleets
        self._due_at = 0.0

    def turn(self) -> None:
        """Perform all queued erasures every few seconds; log a failure, and retry a minute later."""
        if time.monotonic() < self._due_at:
            return
        try:
            self._erase_all()
            self._due_at = time.monotonic() + ERASURES_S
        except (StoreError, MasterKeyError) as e:
            self._status.say(logging.ERROR, f"an erasure is not finished yet: {e}")
            self._due_at = time.monotonic() + _ERASURES_RETRY_S

    def _erase_all(self) -> None:
        failure: StoreError | MasterKeyError | None = None
        for fleet, device in queued_erasures(self._store):
            if self._fleets is not None and fleet not in self._fleets:
                continue
            try:
                erasure = erase_queued(self._store, fleet, device, self._keys)
            except (StoreError, MasterKeyError) as e:  # the other erasures may succeed
                failure = e
                continue
            if erasure is not None:
                log.info(
                    "a queued device of fleet %s was erased: %s reports",
                    fleet,
                    f"{erasure.reports:,}",
                )
        with self._store.reading() as connection:
            due = is_rewrite_due(connection)
        if due:
            if not finish_rewrite(self._store, readers_s=1.0):
                raise StoreError(
                    "only the owner of the tables can rewrite them: run `hushmote store erase URL`"
                )
            log.info("the store's files were rewritten without the erased data")
        if failure is not None:
            raise failure
