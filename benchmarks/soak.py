"""Run an aggregator at full rate for an hour; memory, descriptors and write-ahead log must stay constant.

    python benchmarks/soak.py [--minutes 60] [--quick]

A real `hushmote serve` on SQLite reads from a real mosquitto. In each round, 50,000 devices from a fleet with
keys send an authenticated report each at QoS 1, through a connection that publishes whenever fewer than
BACKLOG reports wait, so that the queue is never empty and the aggregator is always busy. Every 5 seconds
(--quick: every second), the process's private memory and descriptors and the log's size are read.

The trend, in MiB per hour, is a least-squares line through the second half's samples, averaged in 12 blocks
that are nearly independent, with a 95% interval. At the end, every published report must have been counted
exactly once. Writes benchmarks/results/soak.json; --quick runs for a minute and writes nothing.
"""

import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from brokers import FLEET, Process, Reports, set_up
from results_file import Options, run
from scipy import stats

from hushmote.device.async_reporter import _text
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

BACKLOG = 20_000
_WINDOW = 500  # reports that the publisher sends before it waits for acknowledgements
_BLOCKS = 12


class Publisher:
    """A connection that publishes windows of reports and reads their acknowledgements."""

    def __init__(self, port: int, reports: Reports) -> None:
        self._reports = reports
        self.published = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._answers = self._socket.makefile("rb")
        self._socket.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04soak")
        assert self._read(4)[3] == 0, "refused"

    def window(self) -> None:
        """Publish the next reports; return when the broker has acknowledged them."""
        packets, (number, first) = bytearray(), divmod(self.published, len(self._reports.names))
        messages = self._reports.messages(np.arange(first, first + _WINDOW), number + 1)
        for mid, (topic, payload) in enumerate(messages, 1):
            body = _text(topic) + mid.to_bytes(2, "big") + payload
            packets += bytes((0x32, len(body))) + body
        self._socket.sendall(packets)
        self.published += _WINDOW
        self._read(4 * _WINDOW)

    def _read(self, count: int) -> bytes:
        data = self._answers.read(count)
        assert len(data) == count, "the broker closed the connection"
        return data


def handled(serve: Process) -> int:
    """Return the number of reports accepted or rejected so far."""
    return int(sum(serve.metric(f"hushmote_reports_{what}_total") for what in ("accepted", "rejected")))


def sample(serve: Process, store: Path) -> dict:
    """Return the private memory in KiB, the number of descriptors, and the write-ahead log's bytes."""
    proc, log = Path(f"/proc/{serve.process.pid}"), Path(f"{store}-wal")
    rollup = (line.split() for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
    kib = {fields[0].rstrip(":"): int(fields[1]) for fields in rollup}
    values = {"private_kib": kib["Private_Clean"] + kib["Private_Dirty"]}
    values["descriptors"] = len(list((proc / "fd").iterdir()))
    return values | {"wal_bytes": log.stat().st_size if log.exists() else 0}


def trend(seconds: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Return the hourly slope and the half-width of its 95% interval, from block means."""
    x, y = (np.array([part.mean() for part in np.array_split(z, _BLOCKS)]) for z in (seconds / 3600, values))
    line: Any = stats.linregress(x, y)
    return float(line.slope), float(stats.t.ppf(0.975, _BLOCKS - 2) * line.stderr)


def soak(minutes: float, devices: int, sample_s: float) -> dict:
    """Run for `minutes` minutes; return samples, trend and counts."""
    samples, reports = [], Reports(devices)
    with tempfile.TemporaryDirectory() as folder, MosquittoBroker() as broker:
        path = Path(folder) / "store.sqlite"
        set_up(url := f"sqlite:///{path}", reports.payload)
        where = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}")
        with Process("serve", *where, keyed=True) as serve:
            publisher = Publisher(broker.port, reports)
            start = due = time.monotonic()
            while (now := time.monotonic()) - start < 60 * minutes:
                done = handled(serve)
                if now >= due:
                    due += sample_s
                    samples.append({"seconds": round(now - start, 1), "handled": done} | sample(serve, path))
                    samples[-1]["waiting"] = publisher.published - done
                if publisher.published - done > BACKLOG:
                    time.sleep(0.1)
                while publisher.published - done < BACKLOG and time.monotonic() < now + 1:
                    publisher.window()
            end = time.monotonic() + 300
            while handled(serve) < publisher.published and time.monotonic() < end:
                time.sleep(0.5)
        with Store(url, create=False) as store:
            counted = sum(p.reports for p in store.participation(FLEET).values())
            (version,) = store.experiments(FLEET)
            histogram = int(store.histogram(FLEET, version.experiment.digest).sum())
            rejected = store.rejects()
    half = samples[len(samples) // 2 :]
    columns = {key: np.array([s[key] for s in half]) for key in half[0]}
    slope = [round(x / 1024, 3) for x in trend(columns["seconds"], columns["private_kib"])]
    result = {"minutes": minutes, "devices": devices, "published": publisher.published, "counted": counted}
    result |= {"histogram": histogram, "rejected": rejected, "exit_status": serve.process.returncode}
    result["per_s"] = round(float(np.ptp(columns["handled"]) / np.ptp(columns["seconds"])))
    result["least_waiting"] = int(columns["waiting"].min())
    result["private_mib"] = [round(columns["private_kib"][i] / 1024, 2) for i in (0, -1)]
    result["trend_and_95_percent"] = {"private_mib_per_hour": slope}
    result["descriptors"] = [int(columns["descriptors"].min()), int(columns["descriptors"].max())]
    result["wal_mib_most"] = round(max(s["wal_bytes"] for s in samples) / 2**20, 1)
    return result | {"samples": samples[:: max(1, len(samples) // 120)]}


def soaked(options: Options) -> dict:
    return soak(1.0, 2000, 1.0) if options.quick else soak(options.minutes, 50_000, 5.0)


if __name__ == "__main__":
    result = run(__doc__, "soak.json", {"": soaked}, minutes={"type": float, "default": 60.0})[""]
    exact = result["published"] == result["counted"] == result["histogram"]
    sys.exit(not exact or bool(result["rejected"]))
