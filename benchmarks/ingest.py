"""Messages a second: a bare paho subscriber that only counts, and the whole aggregator, on one mosquitto.

    python benchmarks/ingest.py [--quick]

100,000 devices of a fleet with keys have sent one authenticated report each, at QoS 1, while both were away;
the broker kept all for each of their sessions. Each is then started alone, in a process of its own, and
drains its queue: nobody publishes meanwhile, so that the publisher takes no share of the cores. The bare
subscriber acknowledges every message and counts it. The aggregator decodes, checks the tag, deduplicates,
counts, commits durably (SQLite, WAL, synchronous=FULL), then acknowledges. Times run from the subscription to
the last message. Three rounds, in turn; the median is told. Writes benchmarks/results/ingest.json.
"""

import argparse
import tempfile

import numpy as np
from brokers import Reports, aggregate, bare, brokers, drain, publish, set_up
from results_file import run


def measured(options: argparse.Namespace) -> dict:
    devices, rounds = (5_000, 1) if options.quick else (100_000, 3)
    rows, reports = [], Reports(devices)
    with tempfile.TemporaryDirectory() as folder, brokers("mosquitto") as (port, ports, _):
        url = f"sqlite:///{folder}/store.sqlite"
        set_up(url, reports.payload)
        # Both subscribe once, so that the broker keeps what comes while they are away.
        drain(bare, port, 0)
        drain(aggregate, port, 0, url)
        for number in range(1, rounds + 1):
            row: dict = {"published_s": publish(ports[0], reports.messages(np.arange(devices), number))}
            for name, target, rest in (("bare", bare, ()), ("aggregator", aggregate, (url,))):
                seconds, cpu_s, _ = drain(target, port, devices, *rest)
                row |= {f"{name}_per_s": devices / seconds, f"{name}_cpu_s": cpu_s}
            rows.append(row)
    ratio = float(np.median([row["aggregator_per_s"] / row["bare_per_s"] for row in rows]))
    return {"devices": devices, "rounds": rows, "ratio": ratio}


if __name__ == "__main__":
    run(__doc__, "ingest.json", {"": measured})
