"""FOLDER DEVICE PORT NAME TARGET READINGS: reports these digits in turn until the ledger has TARGET."""

import asyncio
import contextlib
import sys

from hushmote.device.async_reporter import AsyncReporter
from hushmote.device.ldp_client import Client, LedgerExists, provision


async def live(folder: str, device: str, port: str, name: str, target: str, readings: str) -> None:
    """One run of a device on the shipped client and reporter."""
    with contextlib.suppress(LedgerExists):  # after its first run
        provision(folder, consent=True)
    policy = {"sum": 1 << 40, "squares": 0, "epsilon": 4_000_000, "rules": ("count",), "experiments": (name,)}
    client = Client(policy, folder, device, fleet="open")
    quick = {"delay_s": 0, "backoff_s": 1, "backoff_max_s": 1, "settle_s": 1}
    reporter = AsyncReporter(client, "127.0.0.1", int(port), **quick)
    connection = asyncio.create_task(reporter.run())
    while True:
        line = client.status()["experiments"][name]
        done = line["reports"] >= int(target)
        if done and not client.outbox():
            break
        if (
            done
            or line["state"] != "reporting"
            or reporter.report(name, int(readings[(line["reports"] + 1) % len(readings)])) is None
        ):
            await asyncio.sleep(0.01)
    connection.cancel()


asyncio.run(live(*sys.argv[1:]))
