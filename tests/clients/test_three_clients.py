"""Three kinds of client, one fleet, one aggregator, outages and kills: each report counts once."""

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
from doors import opened
from make_clients import FILE, build_page
from run_page import LIBRARY
from running_aggregator import WAIT_S
from serve_process import served

from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

SUPPORT = Path(__file__).parents[1] / "support"
DEVICES = 2  # of each kind
TARGET = 16_680 if os.environ.get("LONG") else 200  # reports of a device, a multiple of 10: 100,080 in all
KINDS = ("c", "js", "python")
READINGS = "0112223333"  # in turn, so that bins have 1, 2, 3 and 4 tenths
NODE = shutil.which("node")
POLICY = 'HUSHMOTE_POLICY(policy, 1099511627776, 0, 4000000, HUSHMOTE_COUNT, false, "c");\n'

pytestmark = [
    needs_gcc,
    pytest.mark.micropython,
    pytest.mark.skipif(NODE is None, reason="no Node: apt-get install nodejs"),
    pytest.mark.skipif(
        not LIBRARY.exists(), reason="libmosquitto is not there: apt-get install libmosquitto-dev"
    ),
]


def asked(name: str) -> Experiment:
    bins = {"low": 0, "high": 4_000, "bins": 4, "epsilon": 2_000_000}
    return experiment(name=name, **bins, budget={"rule": "count", "cap": 1 << 40})


def wait(condition: Callable[[], bool], count: Callable[[], int]) -> None:
    """Until it holds, however long that takes, while the count goes on."""
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
    """A device whose process is killed and started again; it ends once all is acknowledged."""

    def __init__(self, folder: Path, start: Callable[[Path], subprocess.Popen[bytes]]) -> None:
        folder.mkdir()
        self._folder, self._start = folder, start
        self.process = start(folder)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def again(self) -> None:
        self.kill()
        self.process = self._start(self._folder)


def of_c(post: Path, port: int) -> Callable[[Path], subprocess.Popen[bytes]]:
    def start(folder: Path) -> subprocess.Popen[bytes]:
        if not (folder / "settings.json").exists():
            names = {"fleet": "open", "device_id": folder.name, "key": None, "announce_key": None}
            broker = {"mqtt_host": "127.0.0.1", "mqtt_port": port, "mqtt_user": None}
            (folder / "settings.json").write_text(json.dumps(names | broker))
            for word in ("provision", "yes"):
                subprocess.run([post, folder, word], check=True, capture_output=True)
        said = subprocess.run([post, folder, "status"], check=True, capture_output=True, text=True).stdout
        made = int(re.findall(r"^c: (\d+) reports made", said, re.MULTILINE)[0])
        (folder / "readings").write_text(
            "".join(f"c {READINGS[n % 10]}\n" for n in range(made + 1, TARGET + 1))
        )
        with (folder / "readings").open() as readings, (folder / "said").open("a") as output:
            return subprocess.Popen([post, folder, "run", "0"], stdin=readings, stdout=output)

    return start


def of_python(port: int) -> Callable[[Path], subprocess.Popen[bytes]]:
    script = SUPPORT / "python_device.py"
    return lambda folder: subprocess.Popen(
        [sys.executable, script, folder, folder.name, str(port), "python", str(TARGET), READINGS]
    )


def of_js(url: str) -> Callable[[Path], subprocess.Popen[bytes]]:
    script = SUPPORT / "js_device.mjs"
    return lambda folder: subprocess.Popen(
        [str(NODE), script, folder, folder.name, url, "js", str(TARGET), READINGS]
    )


def test_each_report_counts_once_and_clients_agree(post: Path, tmp_path: Path):
    """Devices, the broker and the aggregator are ended at a third, a half and two thirds of all reports.

    A bin's count has a standard deviation below the root of its mean, and lies within 7 of these: once in
    10^10 runs one of the 12 does not.
    """
    url = f"sqlite:///{tmp_path}/store.sqlite"
    experiments = {name: asked(name) for name in KINDS}
    with (
        contextlib.ExitStack() as ends,
        MosquittoBroker() as broker,
        Store(url) as store,
        opened(broker) as door,
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
            "c": of_c(post, broker.port),
            "js": of_js(f"http://127.0.0.1:{door.port}"),
            "python": of_python(broker.port),
        }
        everything = DEVICES * TARGET * len(KINDS)
        devices: list[Device] = []
        with served(*serve) as first:
            first.ready()
            for kind, start in kinds.items():
                for i in range(DEVICES):
                    devices.append(Device(tmp_path / f"{kind}-{i}", start))
                    ends.callback(devices[-1].kill)
            wait(lambda: total() >= everything // 3, total)
            for device in devices[::2]:
                device.again()
            broker.restart()
            wait(lambda: total() >= everything // 2, total)
        with served(*serve) as second:  # served() has killed the first
            second.ready()
            wait(lambda: total() >= everything * 2 // 3, total)
            for device in devices[1::2]:
                device.again()
            broker.restart()
            wait(lambda: all(d.process.poll() is not None for d in devices), total)
            assert [d.process.returncode for d in devices] == [0] * len(devices)
            wait(lambda: total() >= everything, total)
            assert second.end() == 0
        assert {name: int(counted(name).sum()) for name in KINDS} == dict.fromkeys(KINDS, DEVICES * TARGET)
        assert set(store.rejects().get("open", {})) <= {"duplicate"}
        truth = math.exp(2) / (math.exp(2) + 3)
        shares = np.bincount([int(reading) for reading in READINGS]) / len(READINGS)
        told, lied = shares * truth, (1 - shares) * (1 - truth) / 3
        n = DEVICES * TARGET
        for name in KINDS:
            assert np.all(np.abs(counted(name) - n * (told + lied)) < 7 * np.sqrt(n * (told + lied)))


def test_clients_page_lists_what_each_client_supports():
    assert build_page() == FILE.read_text()
