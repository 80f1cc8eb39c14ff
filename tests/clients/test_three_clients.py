"""Three kinds of clients in one fleet, with outages and killed processes: each report counts once."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boards import experiment, payload_of
from c_core import needs_gcc, post_program
from doors import open_door
from make_clients import FILE, build_page
from run_page import LIBRARY
from running_aggregator import WAIT_S
from serve_process import served

from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

SUPPORT = Path(__file__).parents[1] / "support"
DEVICES_PER_KIND = 2
# Reports per device, a multiple of 10; 100,080 in total with LONG.
TARGET = 16_680 if os.environ.get("LONG") else 200
KINDS = ("c", "js", "python")
READINGS = "0112223333"  # repeated in turn, so the bins have shares of 10%, 20%, 30% and 40%
NODE = shutil.which("node")
POLICY = """
static const struct hushmote_group groups[] = {{"firmware", "2.4.0"}};
HUSHMOTE_POLICY_WITH_GROUPS(policy, groups, 1099511627776, 0, 4000000, HUSHMOTE_COUNT, false, "c");
"""

pytestmark = [
    needs_gcc,
    pytest.mark.micropython,
    pytest.mark.skipif(NODE is None, reason="no Node: apt-get install nodejs"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="no libmosquitto: apt-get install libmosquitto-dev"),
]


def experiment_named(name: str) -> Experiment:
    bins = {"low": 0, "high": 4_000, "bins": 4, "epsilon": 2_000_000}
    group = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
    return experiment(name=name, **bins, **group, budget={"rule": "count", "cap": 1 << 40})


def wait(condition: Callable[[], bool], count: Callable[[], int]) -> None:
    """Wait until the condition holds, for as long as the count keeps rising."""
    seen, since = -1, time.monotonic()
    while not condition():
        if (now := count()) > seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() - since < WAIT_S, seen
        time.sleep(0.05)


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return post_program(tmp_path_factory.mktemp("post"), POLICY)


class Device:
    """A device whose process is killed and restarted; it exits once every report is acknowledged."""

    def __init__(self, folder: Path, start: Callable[[Path], subprocess.Popen[bytes]]) -> None:
        folder.mkdir()
        self._folder, self._start = folder, start
        self.process = start(folder)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.process = self._start(self._folder)


def start_c(post: Path, port: int) -> Callable[[Path], subprocess.Popen[bytes]]:
    def start(folder: Path) -> subprocess.Popen[bytes]:
        if not (folder / "settings.json").exists():
            names = {"fleet": "open", "device_id": folder.name, "key": None, "announce_key": None}
            broker = {"mqtt_host": "127.0.0.1", "mqtt_port": port, "mqtt_user": None}
            (folder / "settings.json").write_text(json.dumps(names | broker))
            for word in ("provision", "yes"):
                subprocess.run([post, folder, word], check=True, capture_output=True)
        status = subprocess.run([post, folder, "status"], check=True, capture_output=True, text=True).stdout
        report_count = int(re.findall(r"^c: (\d+) reports? made", status, re.MULTILINE)[0])
        (folder / "readings").write_text(
            "".join(f"c {READINGS[n % 10]}\n" for n in range(report_count + 1, TARGET + 1))
        )
        with (folder / "readings").open() as readings, (folder / "output").open("a") as output:
            return subprocess.Popen([post, folder, "run", "0"], stdin=readings, stdout=output)

    return start


def start_python(port: int) -> Callable[[Path], subprocess.Popen[bytes]]:
    script = SUPPORT / "python_device.py"
    return lambda folder: subprocess.Popen(
        [sys.executable, script, folder, folder.name, str(port), "python", str(TARGET), READINGS]
    )


def start_js(url: str) -> Callable[[Path], subprocess.Popen[bytes]]:
    script = SUPPORT / "js_device.mjs"
    return lambda folder: subprocess.Popen(
        [str(NODE), script, folder, folder.name, url, "js", str(TARGET), READINGS]
    )


def test_each_report_counts_once_and_clients_agree(post: Path, tmp_path: Path):
    """Kill devices, the broker and the aggregator at a third, a half and two thirds of all reports.

    A bin's count must be within 7 times the square root of its mean, which exceeds 7 standard deviations. One
    of the 12 counts is outside this range once in 10^10 runs.
    """
    url = f"sqlite:///{tmp_path}/store.sqlite"
    experiments = {name: experiment_named(name) for name in KINDS}
    with (
        contextlib.ExitStack() as ends,
        MosquittoBroker() as broker,
        Store(url) as store,
        open_door(broker) as door,
    ):
        store.add_fleet("open", keyed=False)
        for exp in experiments.values():
            store.add_experiment("open", payload_of(exp))

        def counted(name: str) -> np.ndarray:
            return store.histogram("open", experiments[name].digest)

        def total() -> int:
            return sum(int(counted(name).sum()) for name in KINDS)

        serve = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}")
        kinds = {
            "c": start_c(post, broker.port),
            "js": start_js(f"http://127.0.0.1:{door.port}"),
            "python": start_python(broker.port),
        }
        everything = DEVICES_PER_KIND * TARGET * len(KINDS)
        devices: list[Device] = []
        with served(*serve) as first:
            first.ready()
            for kind, start in kinds.items():
                for i in range(DEVICES_PER_KIND):
                    devices.append(Device(tmp_path / f"{kind}-{i}", start))
                    ends.callback(devices[-1].kill)
            wait(lambda: total() >= everything // 3, total)
            for device in devices[::2]:
                device.restart()
            broker.restart()
            wait(lambda: total() >= everything // 2, total)
        with served(*serve) as second:  # served() has killed the first process
            second.ready()
            wait(lambda: total() >= everything * 2 // 3, total)
            for device in devices[1::2]:
                device.restart()
            broker.restart()
            wait(lambda: all(d.process.poll() is not None for d in devices), total)
            assert [d.process.returncode for d in devices] == [0] * len(devices)
            wait(lambda: total() >= everything, total)
            assert second.end() == 0
        assert {name: int(counted(name).sum()) for name in KINDS} == dict.fromkeys(
            KINDS, DEVICES_PER_KIND * TARGET
        )
        assert set(store.rejects().get("open", {})) <= {"duplicate"}
        by_window = [
            by_group for windows in store.group_reports("open").values() for by_group in windows.values()
        ]
        assert {index for by_group in by_window for index in by_group} == {1}  # version 2.4.0
        truth = math.exp(2) / (math.exp(2) + 3)
        shares = np.bincount([int(reading) for reading in READINGS]) / len(READINGS)
        truths, lies = shares * truth, (1 - shares) * (1 - truth) / 3
        n = DEVICES_PER_KIND * TARGET
        for name in KINDS:
            assert np.all(np.abs(counted(name) - n * (truths + lies)) < 7 * np.sqrt(n * (truths + lies)))


def test_clients_page_lists_what_each_client_supports():
    assert build_page() == FILE.read_text()
