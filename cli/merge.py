"""`hushmote merge`: the stores of sites that are not connected become one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated

import typer

from ..server.answers import tables as show
from ..server.store.merge import Merged, merge
from ..server.store.store import Store
from .options import AsJson, print_json


def merge_command(
    into: Annotated[str, typer.Argument(metavar="INTO", help="URL of the store that is added to.")],
    sources: Annotated[list[str], typer.Argument(metavar="FROM", help="URLs of the stores to add.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be added.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add stores to another: all of them, or nothing where a report was counted by two.

    Stop the aggregators of INTO first: they could not write meanwhile.
    """
    with ExitStack() as stack:
        target = stack.enter_context(Store(into, create=False))
        opened = [stack.enter_context(Store(source, create=False)) for source in sources]
        added = merge(target, opened, dry_run=dry_run)
        where = target.where
    if as_json:
        print_json({"into": where, "dry_run": dry_run} | asdict(added))
    else:
        _show(added, where, dry_run)


def _show(added: Merged, where: str, dry_run: bool) -> None:
    table = show.table()
    for heading in ("fleet", "experiment"):
        table.add_column(heading)
    for heading in ("versions", "reports", "new devices"):
        table.add_column(heading, justify="right")
    for line in added.experiments:
        numbers = (f"{n:,}" for n in (line.versions, line.reports, line.devices))
        table.add_row(line.fleet, line.experiment, *numbers)
    show.out.print(
        f"would be added to {where}" if dry_run else f"added to {where}", markup=False, soft_wrap=True
    )
    if table.row_count:
        show.out.print(table)
    if added.fleets:
        show.out.print(f"new fleets: {', '.join(added.fleets)}")
    show.out.print(f"rejected reports: {added.rejects:,}")
    if added.named or added.revoked:
        show.out.print(f"devices named: {added.named:,} new, {added.revoked:,} revoked")
    kept = [f"{line.experiment} of {line.fleet}" for line in added.experiments if line.kept]
    if kept:
        show.out.print(f"published there otherwise, and left as it was here: {', '.join(kept)}")
