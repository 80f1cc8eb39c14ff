"""Kill processes hundreds of times and compare the store with the acknowledgements that boards received.

    python benchmarks/chaos.py [--broker nats] [--kills 240] [--seed 1] [--jobs 1] [--quick]

The long form of tests/whole/test_chaos.py; tests/support/chaos_run.py defines the disturbances and
conditions. Each campaign runs series of faults against new stores, with varying seeds and batch sizes, until
it has reached its share of the kills. A kill is a SIGKILL of an aggregator, mosquitto, PostgreSQL or NATS
servers, alone or several at once, or a power cut; other disturbances are counted separately. Writes
benchmarks/results/chaos.json or chaos_nats.json, and exits with 1 if anything was lost or counted twice.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from results_file import Options, run

# isort: split
import chaos_run  # pyright: ignore[reportMissingImports]
from chaos_plan import Setting, plan  # pyright: ignore[reportMissingImports]
from chaos_verdict import Verdict  # pyright: ignore[reportMissingImports]
from postgres import Cluster  # pyright: ignore[reportMissingImports]

_SERIES = 20  # faults per series
_BATCHES = (("--batch", "50", "--batch", "0.05s"), ("--batch", "0.3s"), ("--batch", "500", "--batch", "1s"))
_STOPS = {"stop aggregator": 1, "pause aggregator": 1, "stop broker": 2}
_CUTS = {"cut aggregators": 2, "swallow aggregators": 1, "cut boards": 1, "swallow boards": 1}
_CUTS |= {"swallow answers to boards": 1, "board dies": 0.5}
_ANY = {"kill aggregator": 6, "kill aggregator as it starts": 1, "kill broker while connected": 0.5}
_ANY |= _STOPS | _CUTS
_COMMITS = {"kill aggregator as it commits": 6}
_SQLITE = _ANY | _COMMITS
_DATABASE = {"kill database": 4, "cut database": 2, "swallow database": 1}
_ALONE = Setting()
# mosquitto 2.0 forgets shared subscriptions when it restarts: tests/server/ingest/test_broker_traps.py.
_SHARED_ANY = {kind: weight for kind, weight in _ANY.items() if not kind.endswith(("broker", "connected"))}
_HOLDING = Setting(hold_s=3)
_SHARED = Setting(aggregators=2, share="chaos")
_NODES = {"kill node": 10, "kill two nodes": 5, "kill all nodes": 4, "kill nodes with no aggregator": 10}
_NODES |= {"stop node": 2, "stop all nodes": 1, "pause node": 2, "pause two nodes": 1}
_SITES = {"cut node": 3, "cut two nodes": 2, "fill node": 2, "fill all nodes": 1}
_SITES |= {"unplug node": 2, "unplug two nodes": 1, "unplug all nodes": 2}
_CLUSTER = Setting(boards=60, cluster=True, aggregators=2)
_AT_SITES = replace(_CLUSTER, sites=True, sync="always")


@dataclass(frozen=True)
class Campaign:
    """A share of the kills, with the faults to inject and the setting that they disturb.

    Attributes:
        share: Share of all kills.
        weights: Relative frequency of each fault.
        postgres: Whether the store is PostgreSQL rather than SQLite.
        promised: Whether the documentation promises that no report is lost.
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
    # Here a report counts as acknowledged only after a PINGRESP 3 s after the PUBACK, because a killed broker
    # may lose reports for which it has only sent a PUBACK.
    Campaign("broker killed at any time", 0.15, _SQLITE | {"kill broker": 12}, False, _HOLDING),
)
_DISKS = {"wipe node": 20}
_REPLACED = replace(_CLUSTER, limits=True)
NATS_CAMPAIGNS = (
    Campaign("SQLite, 2 aggregators", 0.35, _SHARED_ANY | _COMMITS | _NODES, False, _CLUSTER),
    Campaign("PostgreSQL, 2 aggregators", 0.3, _SHARED_ANY | _DATABASE | _NODES, True, _CLUSTER),
    Campaign("SQLite, disks replaced", 0.05, _NODES | _DISKS, False, _REPLACED),
    # With the servers' default settings, the stream may lose reports when a disk is replaced, as
    # docs/survives.md explains.
    Campaign("disks replaced, stream as made", 0.05, _NODES | _DISKS, False, _CLUSTER, False),
    # Split networks, full disks, power cuts; the servers sync before they acknowledge.
    Campaign("SQLite, split, full, unplugged", 0.25, _SHARED_ANY | _NODES | _SITES, False, _AT_SITES),
)


def series(campaign: Campaign, seed: int, count: int) -> Verdict:
    """Run one series of faults against a new store."""
    faults = plan(seed, campaign.weights, count)
    setting = replace(campaign.setting, options=_BATCHES[seed % len(_BATCHES)])
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        database = stack.enter_context(Cluster(durable=True)) if campaign.postgres else None
        url = f"sqlite:///{folder}/store.sqlite"
        if database is not None:
            url = database.url(database.create())
        return chaos_run.run(Path(folder), url, faults, setting, seed=seed, database=database)


def sums(case: tuple[Campaign, int, int, int]) -> dict:
    """Run series of `count` faults until there were `kills` kills; return the summed results."""
    campaign, kills, seed, count = case
    done: list[Verdict] = []
    while sum(verdict.kills for verdict in done) < kills:
        done.append(verdict := series(campaign, seed + len(done), count))
        if not verdict.exact:
            print(f"{campaign.name}, seed {seed + len(done) - 1}: {verdict}", file=sys.stderr)
        print(f"{campaign.name}: {len(done)} series", file=sys.stderr, flush=True)
    faults, numbers = Counter[str](), Counter[str]()
    for verdict in done:
        faults.update(verdict.faults)
        fields = asdict(verdict) | {"kills": verdict.kills}
        numbers.update({name: n for name, n in fields.items() if isinstance(n, int)})
    row = {"campaign": campaign.name, "series": len(done), "first_seed": seed}
    row |= {"faults": dict(sorted(faults.items()))} | dict(numbers)
    return row | {"seconds": round(sum(verdict.seconds for verdict in done))}


def campaigns(options: Options) -> dict:
    offered = NATS_CAMPAIGNS if options.broker == "nats" else CAMPAIGNS
    cases = [
        (c, max(1, round(options.kills * c.share)), options.seed + 1000 * number, _SERIES)
        for number, c in enumerate(offered)
    ]
    if options.quick:
        cases = [(offered[0], 5, options.seed, 8)]
    with ProcessPoolExecutor(options.jobs) as pool:
        return {"seed": options.seed, "campaigns": list(pool.map(sums, cases))}


if __name__ == "__main__":
    more: dict[str, Any] = {
        name: {"type": int, "default": default} for name, default in (("kills", 240), ("seed", 1))
    }
    more["jobs"] = {"type": int, "default": 1, "help": "campaigns to run at once"}
    more["broker"] = {"choices": ["mosquitto", "nats"], "default": "mosquitto"}
    name = "chaos_nats.json" if "nats" in sys.argv else "chaos.json"
    rows = run(__doc__, name, {"": campaigns}, **more)[""]["campaigns"]
    promised = {c.name for c in (*CAMPAIGNS, *NATS_CAMPAIGNS) if c.promised}
    safe_rows = [row for row in rows if row["campaign"] in promised]
    sys.exit(any(row["lost"] or row["strange"] or row["miscounted"] for row in safe_rows))
