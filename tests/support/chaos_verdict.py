"""A store compared with what boards published and what they were told was received."""

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
    """What the store holds beside what the boards know; lost and the two after it must be 0.

    lost: reports that a board was told were received and that are not counted. strange: counted and never
    published. miscounted: distance of the histogram from that of the counted reports; it is 0 only if each is
    counted once and under its own code. untold: counted, but its board never heard of it. unseen: told while
    no aggregator ran, before servers of the cluster were killed. unanswered: published by boards that lived
    to the end and were not told of them. servers: of its processes, killed. held: messages that the cluster
    still has at the end; what is lost and held was not delivered.
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
        """SIGKILLs of aggregators, brokers and databases."""
        return sum(count for kind, count in self.faults.items() if is_kill(kind))

    @property
    def exact(self) -> bool:
        """Whether nothing was lost and nothing counted twice or wrongly."""
        return not (self.lost or self.strange or self.miscounted)


def judge(store: Store, boards: Mapping[str, Board]) -> Verdict:
    """Compare a store's histograms and dedupe sets with the boards' accounts."""
    seen = list(store.accepted_numbers(FLEET))
    counted = {
        (device, number)
        for device, _, numbers in seen
        for number in (boards[device].published if device in boards else ())
        if number in numbers
    }
    # Within the sets, but never counted: which ones a set with closed gaps no longer knows.
    late = sum(numbers.late for _, _, numbers in seen)
    told = {(device, number) for device, board in boards.items() for number in board.told}
    published = {
        (device, number): payload
        for device, board in boards.items()
        for number, payload in board.published.items()
    }
    right: Counter[tuple[bytes, int]] = Counter()
    for one in counted:
        sent = report.decode(published[one])
        right[sent.digest, int.from_bytes(sent.code, "big")] += 1
    found: Counter[tuple[bytes, int]] = Counter()
    for version in store.experiments(FLEET):
        digest = version.experiment.digest
        for code, count in enumerate(store.histogram(FLEET, digest).tolist()):
            found[digest, code] = count
    rejected = store.rejects().get(FLEET, {})
    return Verdict(
        published=len(published),
        told=len(told),
        counted=len(counted) - late,
        lost=len(told - counted) + late,
        strange=sum(len(numbers) for *_, numbers in seen) + late - len(counted),
        miscounted=sum(abs(right[key] - found[key]) for key in right.keys() | found.keys()),
        untold=len(counted - told),
        sendings=sum(board.sendings for board in boards.values()),
        duplicates=rejected.get("duplicate", 0),
        rejected=rejected,
    )
