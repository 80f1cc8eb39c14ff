"""Seal an experiment for `store seal`, keeping only each device's highest number and number of reports.

A set of numbers does not distinguish windows or versions, so only a whole name can be sealed.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import and_, select

from . import schema
from .number_set import NumberSet
from .rows import ROWS, Rows
from .store import Store, VersionRefused


@dataclass(frozen=True)
class Sealing:
    """The effect of sealing an experiment's name.

    Attributes:
        fleet: The fleet's name.
        experiment: The experiment's name.
        devices: Number of devices with report numbers.
        folded: Number of devices whose numbers have gaps.
        gaps: Number of reports below a device's highest number that were not counted and never will be.
        late: Number of reports that were already too late.
        bytes_before: Total size of the stored sets before sealing.
        bytes_after: Total size of the stored sets after sealing.
        over: Whether all versions have stopped counting, so that new reports are rejected anyway.
    """

    fleet: str
    experiment: str
    devices: int
    folded: int
    gaps: int
    late: int
    bytes_before: int
    bytes_after: int
    over: bool


def seal(
    store: Store,
    fleet: str,
    name: str,
    *,
    dry_run: bool = True,
    advance: Callable[[float], object] = lambda _: None,
    batch_size: int = ROWS,
) -> Sealing:
    """Close all gaps below the highest number in each device's numbers for an experiment's name.

    Counts do not change, nor does each device's number of accepted reports. From then on an uncounted number
    below a device's highest is treated as a duplicate: nothing can be counted twice, and a report in transit
    with such a number is lost. Rows are sealed in parts, each in its own transaction, while aggregators
    continue to count; an interrupted run can be repeated.

    Args:
        store: The store.
        fleet: The fleet's name.
        name: The experiment's name.
        dry_run: Whether to only compute the effect.
        advance: Called as work progresses, with the additional share that is done, 0 to 1.
        batch_size: The largest number of rows sealed in one transaction.

    Raises:
        VersionRefused: If there is no such experiment.
        StoreError: If the database fails.
    """
    versions = [v for v in store.experiments(fleet) if v.experiment.name == name]
    if not versions:
        raise VersionRefused(f"there is no experiment {name} in fleet {fleet}")
    today = datetime.datetime.now(datetime.UTC).date()
    table = schema.dedupe
    in_scope = and_(table.c.fleet == fleet, table.c.experiment == name, table.c.accepted > 0)
    folded = gaps = late = before = after = 0
    query = select(table.c.device, table.c.numbers, table.c.beyond).where(in_scope).order_by(table.c.device)
    with store.snapshot() as reader:
        rows = Rows(reader, [table], advance, in_scope, batch_size)
        for part in rows.parts(query):
            with store.decoding_errors():
                sets = {(fleet, name, device): NumberSet.decode(*row) for device, *row in part}
            keys = [key for key, numbers in sets.items() if numbers.seal() != numbers]
            if keys and not dry_run:
                with store.ingest() as transaction:
                    current_sets = transaction.read_numbers(keys)
                    transaction.write({key: numbers.seal() for key, numbers in current_sets.items()}, {}, {})
                sets |= current_sets
            folded += len(keys)
            for numbers in sets.values():
                sealed_set = numbers.seal()
                late += numbers.late
                gaps += sealed_set.late - numbers.late
                before += _bytes(numbers)
                after += _bytes(sealed_set)
    over = not any(v.counts_on(today) for v in versions)
    return Sealing(fleet, name, rows.count, folded, gaps, late, before, after, over)


def _bytes(numbers: NumberSet) -> int:
    text, beyond = numbers.encode()
    return len(text) + len(beyond or b"")
