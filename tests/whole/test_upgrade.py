"""A fleet is upgraded from the previous release while its boards report, and every report counts once.

tests/data/previous_release has what that release left on disk, as tools/record_release.py recorded it: a
store, the fleet's keys, an experiment's file, the flash and settings of a board (desk), and the folders of a
device in C (porch) and of one in JavaScript (till). Each has made three reports of eight. The aggregator has
counted the third report of desk and till, but they have not received the acknowledgement. porch has not sent
its third report.
"""

import dataclasses
import json
import lzma
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import paho.mqtt.publish
import paho.mqtt.subscribe
import pytest
from c_core import CORE, needs_gcc, post_program
from command_line import hushmote
from flashing import on_board, on_port
from run_page import LIBRARY
from running_aggregator import HANGS_S, WAIT_S, until
from serve_process import served

from hushmote.fleet.provisioning.flash import FlashResult, Load, flash
from hushmote.fleet.provisioning.settings import load_settings, replace_settings
from hushmote.server.store import Store, schema
from hushmote.server.store.check import check
from hushmote.simulator.board.board import ANY_WIFI, SoftwareBoard
from hushmote.simulator.broker import MosquittoBroker

JS_DEVICE = Path(__file__).parents[1] / "support" / "js_keyed_device.mjs"
RELEASE = Path(__file__).parents[1] / "data" / "previous_release"
pytestmark = pytest.mark.slow
SCHEMA_BEFORE = 12
FLEET = "home"
COUNTED_BEFORE = {"desk": 3, "porch": 2, "till": 3}
BUDGET = 8  # reports, with ε = 0.5 each and a cap of 4
REPORTS_BEFORE_FLASH = 5

_SET_PORT = """
import json
with open("/settings.json") as f: settings = json.load(f)
settings["mqtt_port"] = {}
with open("/settings.json", "w") as f: json.dump(settings, f)
"""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Provide a folder with the files of the previous release, after the steps of an operator's upgrade."""
    folder = tmp_path / "left"
    shutil.copytree(RELEASE, folder)
    for path in (*folder.rglob("*settings.json"), folder / "master.key"):
        path.chmod(0o600)
    with closing(sqlite3.connect(folder / "hushmote.sqlite")) as connection:
        connection.executescript((folder / "store.sql").read_text())
    url = f"sqlite:///{folder}/hushmote.sqlite"
    refusal = hushmote("status", "--store", url, cwd=folder, expect=1)
    assert f"schema version {SCHEMA_BEFORE}, but this Hushmote reads {schema.VERSION}" in refusal
    assert "hushmote store upgrade" in refusal
    hushmote("store", "upgrade", url, cwd=folder)
    hushmote("store", "clock", url, "--accept", cwd=folder)  # the recording may be years old
    with Store(url) as store:
        assert count_reports(store) == COUNTED_BEFORE
    return folder


@contextmanager
def run_aggregator(folder: Path, broker: MosquittoBroker) -> Iterator[Store]:
    """Run an aggregator on the upgraded store, and check at the end that each report was counted once."""
    url = f"sqlite:///{folder}/hushmote.sqlite"
    keys = ("--master-key", folder / "master.key")
    with Store(url) as store, served("--store", url, *keys, "--broker", broker.url) as aggregator:
        aggregator.ready()
        yield store
        assert aggregator.end() == 0, aggregator.log()
        (version,) = store.experiments(FLEET)
        total = sum(count_reports(store).values())
        assert store.histogram(FLEET, version.experiment.digest).sum() == total
        assert check(store).violations == ()


def count_reports(store: Store) -> dict[str, int]:
    """Return how many reports of each device were counted; all must be numbered from 1 without gaps."""
    accepted = {device: counted for device, _, counted in store.accepted_numbers(FLEET)}
    assert all(len(counted) == counted.whole for counted in accepted.values())
    return {device: counted.whole for device, counted in accepted.items()}


@contextmanager
def switched_on(interpreter: list[str], image: Path) -> Iterator[SoftwareBoard]:
    """Switch a board on; an hour of its sleep takes two seconds."""
    with SoftwareBoard(interpreter, image, wifi=ANY_WIFI, sleep_scale=1 / 1800) as board:
        yield board


def flash_here(board: SoftwareBoard, settings: Path, port: int) -> FlashResult:
    """Put this release on a board that reaches the broker at a port."""
    replace_settings(settings, dataclasses.replace(load_settings(settings), mqtt_port=port))
    return flash(board.port, settings, Load(yes=True), say=lambda _: None, timeout_s=HANGS_S)


def test_experiment_file_gives_the_same_version(left: Path):
    command = ["experiment", "add", "room_temp.toml", "--fleet", FLEET, "--json"]
    added = hushmote(*command, "--store", f"sqlite:///{left}/hushmote.sqlite", cwd=left)
    assert json.loads(added)["change"] == "unchanged"


@pytest.mark.long
def test_boards_of_two_releases_share_one_fleet(left: Path, interpreter: list[str]):
    provision = ("provision", "device", "hall", "--fleet", FLEET, "--master-key", "master.key")
    network = ("--wifi-ssid", "any", "--broker", "mqtt://127.0.0.1")
    hushmote(*provision, *network, cwd=left, environment={"HUSHMOTE_WIFI_PASSWORD": ""})
    (left / "board.img").write_bytes(lzma.decompress((left / "board.img.xz").read_bytes()))
    with (
        MosquittoBroker() as broker,
        run_aggregator(left, broker) as store,
        switched_on(interpreter, left / "board.img") as old_board,
        switched_on(interpreter, left / "new.img") as new_board,
    ):
        on_board(old_board, _SET_PORT.format(broker.port))
        files = on_board(old_board, "import os; print(os.listdir('/lib'))")
        assert "ldp_client.mpy" in files
        assert "settings.mpy" not in files  # this release has it
        subprocess.run(on_port(old_board.port, "reset"), capture_output=True, timeout=HANGS_S, check=True)
        assert flash_here(new_board, left / "hall.settings.json", broker.port).ledger == "made"
        until(lambda: count_reports(store)["desk"] >= REPORTS_BEFORE_FLASH, lambda: old_board.output)
        assert count_reports(store)["desk"] < BUDGET

        flashed = flash_here(old_board, left / "desk.settings.json", broker.port)
        assert flashed.ledger == "kept"
        assert "/lib/settings.mpy" in flashed.copied
        expected = COUNTED_BEFORE | {"desk": BUDGET, "hall": BUDGET}
        until(lambda: count_reports(store) == expected, lambda: (old_board.output, new_board.output))
        for board in (old_board, new_board):
            assert board.wait_for(b"silent: its budget is spent, after 8 reports", HANGS_S)
        assert count_reports(store) == expected
        assert store.rejects() == {FLEET: {"duplicate": 1}}  # the report whose acknowledgement was lost


@needs_gcc
@pytest.mark.skipif(not LIBRARY.exists(), reason="no libmosquitto: apt-get install libmosquitto-dev")
def test_device_in_c_continues_its_budget(left: Path):
    program = post_program(left, (CORE / "posix" / "policy.h").read_text())
    folder = left / "porch"
    with MosquittoBroker() as broker, run_aggregator(left, broker) as store:
        settings = json.loads((folder / "settings.json").read_text()) | {"mqtt_port": broker.port}
        (folder / "settings.json").write_text(json.dumps(settings))
        readings = "room_temp 21.4\n" * (BUDGET + 1)
        post = [program, folder, "run", "0"]
        subprocess.run(post, input=readings, text=True, capture_output=True, timeout=WAIT_S, check=True)
        until(lambda: count_reports(store) == COUNTED_BEFORE | {"porch": BUDGET}, "not all were counted")
        assert store.rejects() == {}


@pytest.mark.micropython  # Node.js
@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_device_in_javascript_continues_its_budget(left: Path):
    folder = left / "till"
    with MosquittoBroker() as broker, run_aggregator(left, broker) as store:
        where = {"hostname": broker.host, "port": broker.port}
        topic = f"hushmote/v1/{FLEET}/experiment/room_temp"
        announcement = paho.mqtt.subscribe.simple(topic, qos=1, **where)
        (left / "announcement").write_bytes(announcement.payload)
        command = ["node", JS_DEVICE, folder / "settings.json", folder / "ledger", left / "announcement"]
        done = subprocess.run([*command, "99"], capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        reports = [bytes.fromhex(line) for line in done.stdout.split()]
        assert len(reports) == BUDGET - COUNTED_BEFORE["till"] + 1
        for report in reports:
            paho.mqtt.publish.single(f"hushmote/v1/{FLEET}/report/till", report, 1, **where)
        until(lambda: count_reports(store) == COUNTED_BEFORE | {"till": BUDGET}, "not all were counted")
        assert store.rejects() == {FLEET: {"duplicate": 1}}
