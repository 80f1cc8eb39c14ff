"""Seals an experiment: keeps only each device's highest report number and how many counted: `store seal`.

A set of numbers has no window or version in it, so nothing smaller than a name can be sealed.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import and_, select

from . import schema
from .number_set import NumberSet
from .rows import Rows
from .store import Store, VersionRefused


@dataclass(frozen=True)
class Sealing:
    """What sealing an experiment's name does, or would do.

    devices: all that it knows. folded: the devices whose numbers have gaps. gaps: reports below a device's
    highest number that were never counted, and never will be. late: reports that were too late before.
    bytes_before, bytes_after: of all its sets as stored. over: whether no version of it counts any more
    today, so that its reports are rejected anyway.
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
) -> Sealing:
    """Fold each device's numbers for an experiment's name into the interval from 1 to its highest.

    Counts stay, and so does each device's number of accepted reports. A number below a device's highest that
    was not counted is a duplicate from then on: nothing can be counted twice, and a report on its way with
    such a number is lost. Rows are folded some thousands at a time, each part in a transaction, while
    aggregators go on; an interrupted run can be repeated. dry_run: only say what it would do.
    advance: called with each further share of the work that is done, 0 to 1. Raises VersionRefused for an
    unknown name, and StoreError.
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
        rows = Rows(reader, [table], advance, own)
        for part in rows.parts(query):
            with store.legible():
                sets = {(fleet, name, device): NumberSet.decode(*row) for device, *row in part}
            keys = [key for key, numbers in sets.items() if numbers.seal() != numbers]
            if keys and not dry_run:
                with store.ingest() as transaction:
                    now = transaction.seen(keys)
                    transaction.write({key: numbers.seal() for key, numbers in now.items()}, {}, {})
                sets |= now
            folded += len(keys)
            for numbers in sets.values():
                sealed = numbers.seal()
                late += numbers.late
                gaps += sealed.late - numbers.late
                before += _bytes(numbers)
                after += _bytes(sealed)
    over = not any(v.counts_on(today) for v in versions)
    return Sealing(fleet, name, rows.count, folded, gaps, late, before, after, over)


def _bytes(numbers: NumberSet) -> int:
    text, beyond = numbers.encode()
    return len(text) + len(beyond or b"")
