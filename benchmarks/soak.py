"""An aggregator at full rate for an hour: memory, descriptors and the write-ahead log stay as they are.

    python benchmarks/soak.py [--minutes 60] [--quick]

A real `hushmote serve` on SQLite and a real mosquitto. 50,000 devices of a fleet with keys report round after
round, one report each, signed, at QoS 1, through a connection that publishes whenever fewer than BACKLOG
reports wait: the queue is never empty, so that the aggregator always has as much to do as it can. Every
5 seconds (--quick: every second) the process's private and resident memory, its descriptors and the log's
size are read.

The trend is the least squares line through the second half's samples, averaged in 12 blocks so that they are
nearly independent; its 95 % interval is told in MiB an hour. At the end everything published must be counted,
once. Writes benchmarks/results/soak.json; --quick runs a minute and writes nothing.
"""

import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from brokers import FLEET, MASTER, Process, set_up
from published import payload as experiment_payload
from results_file import Options, run
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import MosquittoBroker

BACKLOG = 20_000
_WINDOW = 500  # reports that the publisher sends before it waits for their acknowledgements
_BLOCKS = 12


class Publisher:
    """A connection that publishes windows of reports and reads their acknowledgements."""

    def __init__(self, port: int, experiment: Experiment, devices: int) -> None:
        self._experiment = experiment
        self._rng = np.random.default_rng(1)
        self._names = [f"d{i:06}" for i in range(devices)]
        self._topics = [topics.report_topic(FLEET, name).encode() for name in self._names]
        self._keys = [keys.device_key(MASTER, FLEET, name) for name in self._names]
        self.published = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._answers = self._socket.makefile("rb")
        self._socket.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04soak")
        assert self._read(4)[3] == 0, "refused"

    def window(self) -> None:
        """Publish the next reports; returns when the broker has acknowledged them."""
        packets = bytearray()
        codes = self._rng.integers(0, self._experiment.code_count, _WINDOW).tolist()
        for mid, code in enumerate(codes, 1):
            number, i = divmod(self.published, len(self._names))
            name, topic = self._names[i], self._topics[i]
            payload = report.encode(self._experiment, number + 1, code, name, self._keys[i])
            body = len(topic).to_bytes(2, "big") + topic + mid.to_bytes(2, "big") + payload
            packets += bytes((0x32, len(body))) + body
            self.published += 1
        self._socket.sendall(packets)
        self._read(4 * _WINDOW)

    def _read(self, count: int) -> bytes:
        data = self._answers.read(count)
        assert len(data) == count, "the broker closed the connection"
        return data


def handled(serve: Process) -> int:
    """Reports accepted and rejected so far."""
    return int(sum(serve.metric(f"hushmote_reports_{what}_total") for what in ("accepted", "rejected")))


def sample(serve: Process, store: Path) -> dict:
    """Memory in KiB, descriptors, bytes of the write-ahead log."""
    proc, log = Path(f"/proc/{serve.process.pid}"), Path(f"{store}-wal")
    rollup = (line.split() for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
    kib = {fields[0].rstrip(":"): int(fields[1]) for fields in rollup}
    memory = {"resident_kib": kib["Rss"], "private_kib": kib["Private_Clean"] + kib["Private_Dirty"]}
    size = log.stat().st_size if log.exists() else 0
    return memory | {"descriptors": len(list((proc / "fd").iterdir())), "wal_bytes": size}


def trend(seconds: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Slope of values an hour and the half width of its 95 % interval, from block means."""
    x, y = (np.array([part.mean() for part in np.array_split(z, _BLOCKS)]) for z in (seconds / 3600, values))
    line: Any = stats.linregress(x, y)
    return float(line.slope), float(stats.t.ppf(0.975, _BLOCKS - 2) * line.stderr)


def soak(minutes: float, devices: int, sample_s: float) -> dict:
    """Run for `minutes` minutes; returns samples, trend and counts."""
    payload = experiment_payload("hh", 256, 1_000_000)
    samples = []
    with tempfile.TemporaryDirectory() as folder, MosquittoBroker() as broker:
        path = Path(folder) / "store.sqlite"
        set_up(url := f"sqlite:///{path}", payload)
        where = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}")
        with Process("serve", *where, keyed=True) as serve:
            publisher = Publisher(broker.port, Experiment.parse(payload), devices)
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
    of = {key: np.array([s[key] for s in half]) for key in half[0]}
    most = {key: max(s[key] for s in samples) for key in ("resident_kib", "wal_bytes")}
    trends = {
        f"{kind}_mib_per_hour": [round(x / 1024, 3) for x in trend(of["seconds"], of[f"{kind}_kib"])]
        for kind in ("private", "resident")
    }
    found = {"minutes": minutes, "devices": devices, "published": publisher.published, "counted": counted}
    found |= {"histogram": histogram, "rejected": rejected, "exit_status": serve.process.returncode}
    found["per_s"] = round(float(np.ptp(of["handled"]) / np.ptp(of["seconds"])))
    found["least_waiting"] = int(of["waiting"].min())
    found["private_mib"] = [round(of["private_kib"][i] / 1024, 2) for i in (0, -1)]
    found |= {"resident_mib_most": round(most["resident_kib"] / 1024, 1), "trend_and_95_percent": trends}
    found["descriptors"] = [int(of["descriptors"].min()), int(of["descriptors"].max())]
    found["wal_mib_most"] = round(most["wal_bytes"] / 2**20, 1)
    return found | {"samples": samples[:: max(1, len(samples) // 120)]}


def soaked(options: Options) -> dict:
    return soak(1.0, 2000, 1.0) if options.quick else soak(options.minutes, 50_000, 5.0)


if __name__ == "__main__":
    result = run(__doc__, "soak.json", {"": soaked}, minutes={"type": float, "default": 60.0})[""]
    exact = result["published"] == result["counted"] == result["histogram"]
    sys.exit(not exact or bool(result["rejected"]))
