"""Hundreds of kills, and after each series the store compared with what the boards were told.

    python benchmarks/chaos.py [--broker nats] [--kills 240] [--seed 1] [--jobs 1] [--only CAMPAIGN]
                               [--keep FILE] [--quick]

The long form of tests/whole/test_chaos.py; tests/support/chaos_run.py says what is disturbed and what must
hold. Each campaign runs series of faults against new stores, with other seeds and batch sizes, until it has
had its share of the kills. A kill is a SIGKILL of an aggregator, of mosquitto, of PostgreSQL or of NATS
servers, of several at once too, or their power cut; what else disturbs is told beside. Prints a table, writes
benchmarks/results/chaos.json or chaos_nats.json (not with --only or --quick), and exits with 1 where anything
was lost or counted twice. --keep: each series that has ended is a line of this file, and what it holds is not
run again: several processes, each with a campaign of its own, add up in it.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from results_file import machine, write
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import chaos_run  # pyright: ignore[reportMissingImports]
from chaos_plan import Setting, plan  # pyright: ignore[reportMissingImports]
from chaos_verdict import Verdict  # pyright: ignore[reportMissingImports]
from postgres import Cluster  # pyright: ignore[reportMissingImports]

_SERIES = 20  # faults
_BATCHES = (
    ("--batch", "50", "--batch", "0.05s"),
    ("--batch", "0.3s"),
    ("--batch", "500", "--batch", "1s"),
)
_ANY = {
    "kill aggregator": 6,
    "kill aggregator as it starts": 1,
    "kill broker while connected": 0.5,
    "stop aggregator": 1,
    "pause aggregator": 1,
    "stop broker": 2,
    "cut aggregators": 2,
    "swallow aggregators": 1,
    "cut boards": 1,
    "swallow boards": 1,
    "swallow answers to boards": 1,
    "board dies": 0.5,
}
_COMMITS = {"kill aggregator as it commits": 6}
_SQLITE = _ANY | _COMMITS
_DATABASE = {"kill database": 4, "cut database": 2, "swallow database": 1}
_ALONE = Setting()
# mosquitto 2.0 forgets shared subscriptions when it restarts: tests/server/ingest/test_broker_traps.py.
_SHARED_ANY = {kind: weight for kind, weight in _ANY.items() if not kind.endswith(("broker", "connected"))}
_HOLDING = Setting(hold_s=3)
_SHARED = Setting(aggregators=2, share="chaos")
_NODES = {
    "kill node": 10,
    "kill two nodes": 5,
    "kill all nodes": 4,
    "kill nodes with no aggregator": 10,
    "stop node": 2,
    "stop all nodes": 1,
    "pause node": 2,
    "pause two nodes": 1,
}
_SITES = {
    "cut node": 3,
    "cut two nodes": 2,
    "fill node": 2,
    "fill all nodes": 1,
    "unplug node": 2,
    "unplug two nodes": 1,
    "unplug all nodes": 2,
}
_CLUSTER = Setting(boards=60, cluster=True, aggregators=2)
_AT_SITES = replace(_CLUSTER, sites=True, sync="always")


@dataclass(frozen=True)
class Campaign:
    """share: of the kills. weights: of the faults. postgres: whether the store is one, else SQLite.

    promised: whether nothing may be lost.
    """

    name: str
    share: float
    weights: Mapping[str, float]
    postgres: bool = False
    setting: Setting = _ALONE
    promised: bool = True


CAMPAIGNS = (
    Campaign("SQLite", 0.35, _SQLITE),
    Campaign("PostgreSQL", 0.2, _ANY | _DATABASE, True),
    Campaign("SQLite, 2 aggregators", 0.15, _SHARED_ANY | _COMMITS, False, _SHARED),
    Campaign("PostgreSQL, 2 aggregators", 0.15, _SHARED_ANY | _DATABASE, True, _SHARED),
    # Here "told" is a PINGRESP 3 s after the PUBACK: what is only acknowledged a killed broker may lose.
    Campaign("broker killed at any time", 0.15, _SQLITE | {"kill broker": 12}, False, _HOLDING),
)
_DISKS = {"wipe node": 20}
_REPLACED = replace(_CLUSTER, limits=True)
NATS_CAMPAIGNS = (
    Campaign("SQLite, 2 aggregators", 0.35, _SHARED_ANY | _COMMITS | _NODES, False, _CLUSTER),
    Campaign("PostgreSQL, 2 aggregators", 0.3, _SHARED_ANY | _DATABASE | _NODES, True, _CLUSTER),
    Campaign("SQLite, disks replaced", 0.05, _NODES | _DISKS, False, _REPLACED),
    # The stream as the servers make it may miss reports on a new disk: docs/exactly-once.md.
    Campaign("disks replaced, stream as made", 0.05, _NODES | _DISKS, False, _CLUSTER, False),
    # Split networks, full disks, power cuts; the servers sync before they acknowledge.
    Campaign("SQLite, split, full, unplugged", 0.25, _SHARED_ANY | _NODES | _SITES, False, _AT_SITES),
)


def series(campaign: Campaign, seed: int, count: int) -> Verdict:
    """One series of faults against a new store."""
    faults = plan(seed, campaign.weights, count)
    setting = replace(campaign.setting, options=_BATCHES[seed % len(_BATCHES)])
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        database = stack.enter_context(Cluster(durable=True)) if campaign.postgres else None
        url = f"sqlite:///{folder}/store.sqlite"
        if database is not None:
            url = database.url(database.create())
        return chaos_run.run(Path(folder), url, faults, setting, seed=seed, database=database)


def run(campaign: Campaign, kills: int, seed: int, count: int, keep: Path | None) -> dict:
    """Series until `kills` kills are done; the sum of what they found."""
    done = _kept(keep, campaign)
    while sum(row["kills"] for row in done) < kills:
        one = seed + len(done)
        verdict = series(campaign, one, count)
        row = {"campaign": campaign.name, "seed": one, "kills": verdict.kills} | asdict(verdict)
        done.append(row)
        if keep is not None:
            with open(keep, "a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
        if not verdict.exact:
            print(f"{campaign.name}, seed {one}: {verdict}", file=sys.stderr)
        print(f"{campaign.name}: {len(done)} series", file=sys.stderr, flush=True)
    sums, faults = Counter(), Counter()
    for row in done:
        faults.update(row["faults"])
        sums.update({name: n for name, n in row.items() if isinstance(n, int) and name != "seed"})
    row = {"campaign": campaign.name, "series": len(done), "first_seed": done[0]["seed"]}
    row |= {"faults": dict(sorted(faults.items()))} | dict(sums)
    row["seconds"] = round(sum(row["seconds"] for row in done))
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def _kept(keep: Path | None, campaign: Campaign) -> list[dict]:
    if keep is None or not keep.exists():
        return []
    rows = [json.loads(line) for line in keep.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["campaign"] == campaign.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at once")
    parser.add_argument("--broker", choices=["mosquitto", "nats"], default="mosquitto")
    parser.add_argument("--only", choices=sorted({c.name for c in (*CAMPAIGNS, *NATS_CAMPAIGNS)}))
    parser.add_argument("--keep", type=Path, help="file with a line for each series that has ended")
    parser.add_argument("--quick", action="store_true", help="five kills on SQLite; writes nothing")
    options = parser.parse_args()
    offered = NATS_CAMPAIGNS if options.broker == "nats" else CAMPAIGNS
    campaigns = tuple(c for c in offered if options.only in (None, c.name))
    kills, count = options.kills, _SERIES
    if options.quick:
        offered = campaigns = (replace(offered[0], share=1.0),)
        kills, count = 5, 8
    names = ("kills", "faults", "published", "told", "counted", "duplicates", "lost", "wrong")
    table = Table("", *names)
    with ProcessPoolExecutor(options.jobs) as pool:
        running = [
            pool.submit(
                run,
                campaign,
                max(1, round(kills * campaign.share)),
                options.seed + 1000 * offered.index(campaign),
                count,
                options.keep,
            )
            for campaign in campaigns
        ]
        rows = [one.result() for one in running]
    for campaign, row in zip(campaigns, rows, strict=True):
        shown = row | {"faults": sum(row["faults"].values()), "wrong": row["strange"] + row["miscounted"]}
        table.add_row(campaign.name, *(f"{shown[name]:,}" for name in names))
    Console(width=120).print(table)
    if not (options.quick or options.only):
        result = {"machine": machine(), "seed": options.seed, "campaigns": rows}
        write("chaos_nats.json" if options.broker == "nats" else "chaos.json", result)
    promised = [row for campaign, row in zip(campaigns, rows, strict=True) if campaign.promised]
    return 1 if any(row["lost"] or row["strange"] or row["miscounted"] for row in promised) else 0


if __name__ == "__main__":
    sys.exit(main())
