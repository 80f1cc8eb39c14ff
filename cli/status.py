"""`hushmote status`: what a store holds."""

from __future__ import annotations

from ..server.answers import tables as show
from ..server.estimate import plausibility
from ..server.store.store import Store
from . import tables
from .options import DEFAULT_STORE, AsJson, StoreUrl, print_json


def status_command(store: StoreUrl = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Show what was counted and what was rejected, and why."""
    with Store(store, create=False) as opened:
        rejects = opened.rejects()
        fleets = opened.fleets()
        lines = []
        for v in opened.experiments():
            counts = opened.histogram(v.fleet, v.experiment.digest)
            participation = opened.participation(v.fleet).get(v.experiment.name)
            lines.append(
                {
                    "fleet": v.fleet,
                    "experiment": v.experiment.name,
                    "digest": v.experiment.digest.hex(),
                    "current": v.current,
                    "reports": int(counts.sum()),
                    "windows": len(opened.windows(v.fleet, v.experiment.digest)),
                    "devices": participation.devices if participation else 0,
                    "plausibility": plausibility.check(v.experiment, counts).to_dict(),
                }
            )
    if as_json:
        print_json({"fleets": fleets, "experiments": lines, "rejected": rejects})
        return
    for name, keyed in fleets.items():
        show.out.print(f"fleet {name}: " + ("with keys" if keyed else "open: anyone can forge reports"))
    headings = ("fleet", "experiment", "digest", "current", "reports", "windows", "devices of the name")
    table = tables.table("accepted", headings, 4)
    for line in lines:
        table.add_row(
            line["fleet"],
            line["experiment"],
            line["digest"],
            "yes" if line["current"] else "no",
            f"{line['reports']:,}",
            str(line["windows"]),
            f"{line['devices']:,}",
        )
    show.out.print(table)
    for line in lines:
        if line["plausibility"]["implausible"]:
            text = f"implausible: {line['experiment']} {line['digest']} of fleet {line['fleet']}: "
            show.out.print(text + line["plausibility"]["words"], style="red")
    table = tables.table("rejected", ("fleet", "reason", "reports"), 2)
    for fleet, reasons in rejects.items():
        for reason, count in reasons.items():
            table.add_row(fleet or "(unknown)", reason, f"{count:,}")
    show.out.print(table if table.row_count else "nothing rejected")
