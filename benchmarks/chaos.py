"""Hundreds of kills, and after each series the store compared with what the boards were told.

    python benchmarks/chaos.py [--kills 240] [--seed 1] [--jobs 1] [--only CAMPAIGN] [--quick]

The long form of tests/whole/test_chaos.py; tests/support/chaos_run.py says what is disturbed and what must
hold. Each campaign runs series of faults against new stores, with other seeds and batch sizes, until it has
had its share of the kills. A kill is a SIGKILL of an aggregator, of mosquitto or of PostgreSQL; what else
disturbs is told beside. Prints a table, writes benchmarks/results/chaos.json (not with --only or --quick),
and exits with 1 where anything was lost or counted twice.
"""

import argparse
import json
import sys
import tempfile
import time
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
from chaos_plan import KILLS, plan  # pyright: ignore[reportMissingImports]
from chaos_setting import Setting  # pyright: ignore[reportMissingImports]
from chaos_verdict import Verdict  # pyright: ignore[reportMissingImports]
from postgres import Cluster  # pyright: ignore[reportMissingImports]

_SERIES = 20  # faults
_BATCHES = (
    ("--batch", "50", "--batch-s", "0.05"),
    ("--batch-s", "0.3"),
    ("--batch", "500", "--batch-s", "1"),
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


@dataclass(frozen=True)
class Campaign:
    """share: of the kills. weights: of the faults. postgres: whether the store is one, else SQLite."""

    name: str
    share: float
    weights: Mapping[str, float]
    postgres: bool = False
    setting: Setting = _ALONE


CAMPAIGNS = (
    Campaign("SQLite", 0.35, _SQLITE),
    Campaign("PostgreSQL", 0.2, _ANY | _DATABASE, True),
    Campaign("SQLite, 2 aggregators", 0.15, _SHARED_ANY | _COMMITS, False, _SHARED),
    Campaign("PostgreSQL, 2 aggregators", 0.15, _SHARED_ANY | _DATABASE, True, _SHARED),
    # Here "told" is a PINGRESP 3 s after the PUBACK: what is only acknowledged a killed broker may lose.
    Campaign("broker killed at any time", 0.15, _SQLITE | {"kill broker": 12}, False, _HOLDING),
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


def run(campaign: Campaign, kills: int, seed: int, count: int) -> dict:
    """Series until `kills` kills are done; the sum of what they found."""
    sums, faults = Counter(), Counter()
    start, number = time.monotonic(), 0
    while sum(faults[kind] for kind in KILLS) < kills:
        verdict = series(campaign, seed + number, count)
        number += 1
        faults.update(verdict.faults)
        sums.update({name: n for name, n in asdict(verdict).items() if isinstance(n, int)})
        if not verdict.exact:
            print(f"{campaign.name}, seed {seed + number - 1}: {verdict}", file=sys.stderr)
        print(f"{campaign.name}: {number} series, {sum(faults.values())} faults", file=sys.stderr, flush=True)
    row = {"campaign": campaign.name, "series": number, "first_seed": seed}
    row |= {"kills": sum(faults[kind] for kind in KILLS), "faults": dict(sorted(faults.items()))}
    row |= dict(sums) | {"seconds": round(time.monotonic() - start)}
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at once")
    parser.add_argument("--only", choices=[c.name for c in CAMPAIGNS])
    parser.add_argument("--quick", action="store_true", help="five kills on SQLite; writes nothing")
    options = parser.parse_args()
    campaigns = [c for c in CAMPAIGNS if options.only in (None, c.name)]
    kills, count = options.kills, _SERIES
    if options.quick:
        campaigns, kills, count = [replace(CAMPAIGNS[0], share=1.0)], 5, 8
    names = ("kills", "faults", "published", "told", "counted", "duplicates", "lost", "wrong")
    table = Table("", *names)
    with ProcessPoolExecutor(options.jobs) as pool:
        running = [
            pool.submit(run, campaign, max(1, round(kills * campaign.share)), options.seed + 1000 * i, count)
            for i, campaign in enumerate(campaigns)
        ]
        rows = [one.result() for one in running]
    for campaign, row in zip(campaigns, rows, strict=True):
        shown = row | {"faults": sum(row["faults"].values()), "wrong": row["strange"] + row["miscounted"]}
        table.add_row(campaign.name, *(f"{shown[name]:,}" for name in names))
    Console(width=120).print(table)
    if not (options.quick or options.only):
        result = {"machine": machine(), "seed": options.seed, "campaigns": rows}
        write("chaos.json", result)
    return 1 if any(row["lost"] or row["strange"] or row["miscounted"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
