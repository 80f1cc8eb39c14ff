"""A fleet is upgraded from the previous release while its boards report, and every report counts once.

tests/data/previous_release has what that release left on disk, as tools/record_release.py recorded it: a
store, the fleet's keys, an experiment's file, a board's settings and the board's flash. The board has made
three reports of eight. The aggregator has counted all three, but the board has not received the last
acknowledgement.
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

import pytest
from command_line import hushmote
from flashing import on_board, on_port
from running_aggregator import HANGS_S, until
from serve_process import served

from hushmote.fleet.provisioning.flash import FlashResult, Load, flash
from hushmote.fleet.provisioning.settings import load_settings, replace_settings
from hushmote.server.store import Store, schema
from hushmote.server.store.check import check
from hushmote.simulator.board.board import ANY_WIFI, SoftwareBoard
from hushmote.simulator.broker import MosquittoBroker

RELEASE = Path(__file__).parents[1] / "data" / "previous_release"
SCHEMA_BEFORE = 12
FLEET, NAME, OLD, NEW = "home", "room_temp", "desk", "hall"
BUDGET = 8  # reports, with ε = 0.5 each and a cap of 4
COUNTED_BEFORE = 3
# The third report arrives twice, the second time as the board's first after the upgrade of the server.
ARRIVALS_BEFORE_FLASH = 5

_SET_PORT = """
import json
with open("/settings.json") as f: settings = json.load(f)
settings["mqtt_port"] = {}
with open("/settings.json", "w") as f: json.dump(settings, f)
"""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Provide a folder with the files of the previous release."""
    folder = tmp_path / "left"
    shutil.copytree(RELEASE, folder)
    for name in ("desk.settings.json", "master.key"):
        (folder / name).chmod(0o600)
    (folder / "board.img").write_bytes(lzma.decompress((folder / "board.img.xz").read_bytes()))
    with closing(sqlite3.connect(folder / "hushmote.sqlite")) as connection:
        connection.executescript((folder / "store.sql").read_text())
    return folder


@contextmanager
def switched_on(interpreter: list[str], image: Path) -> Iterator[SoftwareBoard]:
    """Switch a board on; an hour of its sleep takes two seconds."""
    with SoftwareBoard(interpreter, image, wifi=ANY_WIFI, sleep_scale=1 / 1800) as board:
        yield board


def restart(board: SoftwareBoard) -> None:
    subprocess.run(on_port(board.port, "reset"), capture_output=True, timeout=HANGS_S, check=True)


def flash_here(board: SoftwareBoard, settings: Path, port: int) -> FlashResult:
    """Put this release on a board that reaches the broker at a port."""
    replace_settings(settings, dataclasses.replace(load_settings(settings), mqtt_port=port))
    return flash(board.port, settings, Load(yes=True), say=lambda _: None, timeout_s=HANGS_S)


def numbers(store: Store) -> dict[str, int]:
    """Return how many reports of each device were counted; all must be numbered from 1 without gaps."""
    accepted = {device: counted for device, _, counted in store.accepted_numbers(FLEET)}
    assert all(len(counted) == counted.whole for counted in accepted.values())
    return {device: counted.whole for device, counted in accepted.items()}


@pytest.mark.long
def test_boards_of_two_releases_share_one_fleet(left: Path, interpreter: list[str]):
    url = f"sqlite:///{left / 'hushmote.sqlite'}"
    store_option = ("--store", url)
    refusal = hushmote("status", *store_option, cwd=left, expect=1)
    assert f"schema version {SCHEMA_BEFORE}, but this Hushmote reads {schema.VERSION}" in refusal
    assert "hushmote store upgrade" in refusal
    hushmote("store", "upgrade", url, cwd=left)
    hushmote("store", "clock", url, "--accept", cwd=left)  # the recording may be years old
    added = hushmote(
        "experiment", "add", "room_temp.toml", "--fleet", FLEET, "--json", *store_option, cwd=left
    )
    assert json.loads(added)["change"] == "unchanged"
    provision = ("provision", "device", NEW, "--fleet", FLEET, "--master-key", "master.key")
    network = ("--wifi-ssid", "any", "--broker", "mqtt://127.0.0.1")
    hushmote(*provision, *network, cwd=left, environment={"HUSHMOTE_WIFI_PASSWORD": ""})

    with MosquittoBroker() as broker, Store(url) as store:
        keys = ("--master-key", left / "master.key")
        with served(*store_option, *keys, "--broker", broker.url) as aggregator:
            aggregator.ready()
            with (
                switched_on(interpreter, left / "board.img") as old_board,
                switched_on(interpreter, left / "new.img") as new_board,
            ):
                on_board(old_board, _SET_PORT.format(broker.port))
                files = on_board(old_board, "import os; print(os.listdir('/'), os.listdir('/lib'))")
                assert "settings.mpy" not in files  # this release's main.py needs it
                restart(old_board)
                made = flash_here(new_board, left / f"{NEW}.settings.json", broker.port)
                assert made.ledger == "made"
                until(lambda: numbers(store).get(OLD, 0) >= ARRIVALS_BEFORE_FLASH, aggregator.log)
                before = numbers(store)[OLD]
                assert before < BUDGET

                kept = flash_here(old_board, left / f"{OLD}.settings.json", broker.port)
                assert kept.ledger == "kept"
                assert "/lib/settings.mpy" in kept.copied
                until(lambda: numbers(store) == {OLD: BUDGET, NEW: BUDGET}, aggregator.log)
                for board in (old_board, new_board):
                    assert board.wait_for(b"silent: its budget is spent, after 8 reports", HANGS_S)
            assert aggregator.end() == 0
        assert numbers(store) == {OLD: BUDGET, NEW: BUDGET}
        (version,) = store.experiments(FLEET)
        assert store.histogram(FLEET, version.experiment.digest).sum() == 2 * BUDGET
        assert store.rejects() == {FLEET: {"duplicate": 1}}  # the report whose acknowledgement was lost
        assert check(store).violations == ()
