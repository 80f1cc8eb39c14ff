"""Compare a store with the reports that boards published and those confirmed to them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from chaos_boards import Board
from chaos_plan import is_kill

from hushmote.server.store import Store
from hushmote.server.wire import report

FLEET = "chaos"


@dataclass(frozen=True)
class Verdict:
    """The store's contents compared with the boards' records; the first three fields must be 0.

    told: reports confirmed to their boards. lost: reports confirmed but not counted. strange: reports counted
    but never published. miscounted: the histogram's distance from the counted reports; it is 0 only if each
    is counted once and under its own code. untold: reports counted but not confirmed. unseen: reports
    confirmed while no aggregator ran, before the cluster's servers were killed. unanswered: unconfirmed
    reports of boards that lived to the end. servers: killed processes of the cluster. held: messages still in
    the cluster at the end; a report that is both lost and held was not delivered.
    """

    published: int
    told: int
    counted: int
    lost: int
    strange: int
    miscounted: int
    untold: int
    sendings: int
    duplicates: int
    rejected: Mapping[str, int]
    faults: Mapping[str, int] = field(default_factory=dict)
    unseen: int = 0
    unanswered: int = 0
    servers: int = 0
    held: int = 0
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        """Return the number of SIGKILLs of aggregators, brokers and databases."""
        return sum(count for kind, count in self.faults.items() if is_kill(kind))

    @property
    def exact(self) -> bool:
        """Return whether nothing was lost, double-counted or miscounted."""
        return not (self.lost or self.strange or self.miscounted)


def judge(store: Store, boards: Mapping[str, Board]) -> Verdict:
    """Compare a store's histograms and dedupe sets with the boards' records."""
    seen = list(store.accepted_numbers(FLEET))
    counted = {
        (device, number)
        for device, _, numbers in seen
        for number in (boards[device].published if device in boards else ())
        if number in numbers
    }
    # Covered by the sets but never counted; a set with closed gaps cannot tell which.
    late = sum(numbers.late for _, _, numbers in seen)
    told = {(device, number) for device, board in boards.items() for number in board.told}
    published = {
        (device, number): payload
        for device, board in boards.items()
        for number, payload in board.published.items()
    }
    expected: Counter[tuple[bytes, int]] = Counter()
    for report_key in counted:
        sent = report.decode(published[report_key])
        expected[sent.digest, int.from_bytes(sent.code, "big")] += 1
    counted_codes: Counter[tuple[bytes, int]] = Counter()
    for version in store.experiments(FLEET):
        digest = version.experiment.digest
        for code, count in enumerate(store.histogram(FLEET, digest).tolist()):
            counted_codes[digest, code] = count
    rejected = store.rejects().get(FLEET, {})
    return Verdict(
        published=len(published),
        told=len(told),
        counted=len(counted) - late,
        lost=len(told - counted) + late,
        strange=sum(len(numbers) for *_, numbers in seen) + late - len(counted),
        miscounted=sum(
            abs(expected[key] - counted_codes[key]) for key in expected.keys() | counted_codes.keys()
        ),
        untold=len(counted - told),
        sendings=sum(board.sendings for board in boards.values()),
        duplicates=rejected.get("duplicate", 0),
        rejected=rejected,
    )
