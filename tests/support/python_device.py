"""Report the digits of READINGS in turn until the ledger's count reaches TARGET.

Arguments: FOLDER DEVICE PORT NAME TARGET READINGS
"""

import asyncio
import contextlib
import sys

from hushmote.device.async_reporter import AsyncReporter
from hushmote.device.ldp_client import Client, LedgerExists, provision


async def live(folder: str, device: str, port: str, name: str, target: str, readings: str) -> None:
    """Run a device once with the shipped client and reporter."""
    with contextlib.suppress(LedgerExists):  # from its second run onwards
        provision(folder, consent=True)
    policy = {"sum": 1 << 40, "squares": 0, "epsilon": 4_000_000, "rules": ("count",), "experiments": (name,)}
    client = Client(policy | {"groups": ("firmware",)}, folder, device, fleet="open")
    client.groups = {"firmware": "2.4.0"}
    quick = {"delay_s": 0, "spread_s": 1, "backoff_s": 1, "backoff_max_s": 1, "settle_s": 1}
    reporter = AsyncReporter(client, "127.0.0.1", int(port), **quick)
    connection = asyncio.create_task(reporter.run())
    while True:
        line = client.status()["experiments"][name]
        has_finished = line["reports"] >= int(target)
        if has_finished and not client.outbox():
            break
        if (
            has_finished
            or line["state"] != "reporting"
            or reporter.report(name, int(readings[(line["reports"] + 1) % len(readings)])) is None
        ):
            await asyncio.sleep(0.01)
    connection.cancel()


asyncio.run(live(*sys.argv[1:]))
