"""Seals an experiment, `store seal`: keeps only each device's highest number and number of reports.

A set of numbers does not tell windows or versions apart, so only a whole name can be sealed.
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
        folded: Devices whose numbers have gaps.
        gaps: Reports below a device's highest number that were never counted, and never will be.
        late: Reports that were too late before.
        bytes_before: Size of all its stored sets before.
        bytes_after: And after.
        over: Whether no version counts any more today, so that its reports are rejected anyway.
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
    at_once: int = ROWS,
) -> Sealing:
    """Close the gaps in each device's numbers for an experiment's name, up to its highest number.

    Counts stay, and so does each device's number of accepted reports. From then on a number below a device's
    highest that was not counted is a duplicate: nothing can be counted twice, and a report that is on its way
    with such a number is lost. Rows are sealed in parts, each in a transaction, while aggregators go on; an
    interrupted run can be repeated.

    Args:
        store: The store.
        fleet: The fleet's name.
        name: The experiment's name.
        dry_run: Only compute the effect.
        advance: Called with each further share of the work that is done, 0 to 1.
        at_once: The largest number of rows that a transaction seals.

    Raises:
        VersionRefused: If there is no such experiment.
        StoreError: If the database fails.
    """
    versions = [v for v in store.experiments(fleet) if v.experiment.name == name]
    if not versions:
        raise VersionRefused(f"there is no experiment {name} in fleet {fleet}")
    today = datetime.datetime.now(datetime.UTC).date()
    table = schema.dedupe
    own = and_(table.c.fleet == fleet, table.c.experiment == name, table.c.accepted > 0)
    folded = gaps = late = before = after = 0
    query = select(table.c.device, table.c.numbers, table.c.beyond).where(own).order_by(table.c.device)
    with store.snapshot() as reader:
        rows = Rows(reader, [table], advance, own, at_once)
        for part in rows.parts(query):
            with store.legible():
                sets = {(fleet, name, device): NumberSet.decode(*row) for device, *row in part}
            keys = [key for key, numbers in sets.items() if numbers.seal() != numbers]
            if keys and not dry_run:
                with store.ingest() as transaction:
                    now = transaction.read_numbers(keys)
                    transaction.write({key: numbers.seal() for key, numbers in now.items()}, {}, {})
                sets |= now
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
