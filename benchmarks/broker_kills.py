"""Reports that mosquitto and NATS servers lose on SIGKILL, by setting, and each setting's cost.

    python benchmarks/broker_kills.py [--broker nats] [--kills 15] [--quick]

30 boards publish a total of 1,500 reports per second at QoS 1, and mosquitto is killed repeatedly: both while
the aggregator is offline, so that all reports wait in its queue, and while it is connected. A report is lost
if its board got an acknowledgement (a PUBACK, or a PINGRESP after it) but the store does not contain it at
the end. With --broker nats, three servers are killed, or all lose power and their unsynced data at once, and
one mosquitto case is run for comparison. Then the cost is measured: the highest rate at which 40 boards'
reports are acknowledged while many others already wait in the queue. Writes
benchmarks/results/broker_kills.json or broker_kills_nats.json.
"""

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from brokers import publish
from handshakes import keep_reports
from results_file import Options, run

# isort: split
import boards as wire  # pyright: ignore[reportMissingImports]
import chaos_run  # pyright: ignore[reportMissingImports]
from chaos_boards import Board, Encoded  # pyright: ignore[reportMissingImports]
from chaos_plan import Fault, Setting  # pyright: ignore[reportMissingImports]

from hushmote.server.wire import topics

_ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """A broker's settings, and how long boards wait for it.

    Attributes:
        settings: Lines of mosquitto.conf.
        hold_s: Time that a board waits after the PUBACK; see Board.
        sync: Interval at which NATS servers sync, or "always"; None for mosquitto.
    """

    name: str
    settings: tuple[str, ...] = ()
    hold_s: float | None = None
    sync: str | None = None

    @property
    def setting(self) -> Setting:
        """The broker and board settings to disturb."""
        setting = Setting(hold_s=self.hold_s, broker_settings=self.settings, options=("--batch", "0.1s"))
        return setting if self.sync is None else replace(setting, cluster=True, sync=self.sync)

    @property
    def queues(self) -> tuple[int, ...]:
        """Queue lengths at which the cost is measured."""
        # When saving on changes, a queue of 100,000 would be written 100,000 times while it is filled.
        return (0, 10_000) if "autosave_on_changes true" in self.settings else (0, 10_000, 100_000)


CASES = (
    Case("PUBACK, saved every half hour (default)", ("autosave_interval 1800",)),
    Case("PUBACK, saved every second", ("autosave_interval 1",)),
    Case("PUBACK, saved on changes", ("autosave_on_changes true", "autosave_interval 1")),
    Case("PINGRESP 3 s after it, saved every second", ("autosave_interval 1",), 3.0),
    Case("PINGRESP after it, saved on changes", ("autosave_on_changes true", "autosave_interval 1"), 0.0),
)
NATS_CASES = (
    CASES[1],
    Case("NATS, synced every two minutes (default)", sync="2m"),
    Case("NATS, synced before each PUBACK", sync="always"),
)


def faults(kills: int, away: bool, seed: int, nats: bool) -> list[Fault]:
    """Plan SIGKILLs of the broker, with the aggregator disconnected, or connected and up to date."""
    if nats:
        return [Fault("kill nodes with no aggregator" if away else "kill all nodes", 1.0, 0.0)] * kills
    rng = np.random.default_rng(seed)
    plan = []
    for _ in range(kills):
        if away:
            plan.append(Fault("stop aggregator", 4.0, 3.0))
            plan.append(Fault("kill broker", rng.uniform(2.0, 3.0), 0.0))
        else:
            plan.append(Fault("kill broker", rng.uniform(6.0, 7.0), 0.0))
            # Restart the aggregator, so that it is not waiting to retry at the next kill.
            plan.append(Fault("stop aggregator", 0.5, 0.0))
    return plan


def lost(setting: Setting, plan: list[Fault]) -> dict:
    """Kill the broker repeatedly, and count the lost reports."""
    with tempfile.TemporaryDirectory() as folder:
        verdict = chaos_run.run(Path(folder), f"sqlite:///{folder}/store.sqlite", plan, setting)
    assert not verdict.strange, verdict
    assert not verdict.miscounted, verdict
    result = {"kills": verdict.kills, "told": verdict.told, "lost": verdict.lost}
    return result | {"seconds": verdict.seconds}


async def rate(port: int, hold_s: float | None, seconds: float) -> float:
    """Return the acknowledged reports per second of 40 boards."""
    payload = wire.experiment(budget={"rule": "unlimited"})
    boards = []
    for i in range(40):
        source = Encoded(f"d{i}", payload, wire.KEY, lambda n: n % 64)
        topic = topics.report_topic("rate", f"d{i}")
        boards.append(Board(topic, (port,), source, np.random.default_rng(i), hold_s=hold_s))
    living = [asyncio.create_task(board.live()) for board in boards]
    # Wait until reports are acknowledged at the rate at which they are published.
    await asyncio.sleep(1 + (hold_s or 0))
    rates = []
    for _ in range(_ROUNDS):
        before, start = sum(len(board.told) for board in boards), time.perf_counter()
        await asyncio.sleep(seconds)
        acknowledged, took = sum(len(board.told) for board in boards) - before, time.perf_counter() - start
        rates.append(acknowledged / took)
    for task in living:
        task.cancel()
    return max(rates)  # other load on the machine only reduces the rate


def cost(case: Case, queued: int, seconds: float) -> float:
    """Return the acknowledged reports per second while `queued` reports wait for an absent subscriber."""
    with case.setting.broker() as broker:
        asyncio.run(keep_reports(broker.port, None))
        publish(broker.port, [(topics.report_topic("rate", f"q{i}"), bytes(19)) for i in range(queued)])
        return asyncio.run(rate(broker.port, case.hold_s, seconds))


def cases(options: Options) -> dict:
    nats = options.broker == "nats"
    kills, selected = (2, CASES[1:4:2]) if options.quick else (options.kills, NATS_CASES if nats else CASES)
    queues, seconds = ((0,), 1.0) if options.quick else ((0, 10_000, 100_000), 3.0)
    rows = []
    for case in selected:
        row: dict = {"case": case.name, "settings": case.settings, "hold_s": case.hold_s}
        for when, away in (("away", True), ("connected", False)):
            row[when] = lost(case.setting, faults(kills, away, 1, case.sync is not None))
        if case.sync is not None:  # all servers and their disks lose power at once
            row["power"] = lost(replace(case.setting, sites=True), [Fault("unplug all nodes", 1.0, 0.0)])
        row["per_s"] = {q: round(cost(case, q, seconds)) for q in queues if q in case.queues}
        rows.append(row)
    return {"kills": kills, "cases": rows}


if __name__ == "__main__":
    broker = {"choices": ["mosquitto", "nats"], "default": "mosquitto"}
    name = "broker_kills_nats.json" if "nats" in sys.argv else "broker_kills.json"
    run(__doc__, name, {"": cases}, kills={"type": int, "default": 15}, broker=broker)
