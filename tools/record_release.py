"""Record what a release leaves on disk, for tests/whole/test_upgrade.py.

    .venv/bin/python tools/record_release.py tests/data/previous_release

Run it in a clone with the release checked out, before the next release; for a release without this file, copy
it and js_keyed_device.mjs there. Three devices of a keyed fleet make three reports each: a software board
(desk), a device in C (porch) and one in JavaScript (till). The aggregator counts the third report of desk and
till, but they do not receive the acknowledgement; that of porch is never sent.
"""

import lzma
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import _paths  # noqa: F401
import paho.mqtt.publish
import paho.mqtt.subscribe
from running_aggregator import running, until

from hushmote.device import ldp_client
from hushmote.fleet.provisioning import interpreters, master_key
from hushmote.fleet.provisioning.settings import Network, provision_device
from hushmote.server.store import Store
from hushmote.simulator.board import storage
from hushmote.simulator.board.board import ANY_WIFI, SoftwareBoard
from hushmote.simulator.broker import MosquittoBroker

ROOT = Path(__file__).parents[1]
_EXPERIMENT = """name = "room_temp"
purpose = "How warm is it at these desks?"
owner = "me@example.org"
expires = 9999-12-31
type = "number"
unit = "°C"
low = 16
high = 28
bins = 6
mechanism = "grr"
epsilon = 0.5
window = "day"
[budget]
rule = "sum"
cap = 4.0
"""
_PRINT_LEDGER = """
import binascii, hardware
hardware.mount({!r})
for slot in (0, 1):
    with open("/ldp/ledger%d" % slot, "rb") as f: print(binascii.hexlify(f.read()).decode())
"""


def record(folder: Path) -> None:
    """Write a release's files into a new folder."""
    folder.mkdir()
    (folder / "room_temp.toml").write_text(_EXPERIMENT)
    demo = [sys.executable, "-m", "hushmote", "demo", "--board", "--yes", "--out", str(folder)]
    with subprocess.Popen(demo, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "counted by the aggregator: 2" in line:
                process.send_signal(signal.SIGINT)
    argv = interpreters.for_board().argv
    with (
        storage.open_image(folder / "board") as image,
        SoftwareBoard(argv, image, wifi=ANY_WIFI, sleep_scale=1 / 1800) as board,
    ):
        until(lambda: re.search(rb"0 sent, 1 waiting", board.output), lambda: board.output)
    url = f"sqlite:///{folder}/hushmote.sqlite"
    keys = master_key.load_keys(folder / "master.key")
    assert keys
    with Store(url) as store, MosquittoBroker() as broker, running(store, broker, fleet_keys=keys):
        where = {"hostname": broker.host, "port": broker.port}
        topic = "hushmote/v1/home/report/"
        paho.mqtt.publish.single(topic + "desk", _unsent_report(argv, image), 1, **where)
        network = Network("any", mqtt_host=broker.host, mqtt_port=broker.port)
        for device in ("porch", "till"):
            (folder / device).mkdir()
            provision_device(keys, "home", device, network, path=folder / device / "settings.json")
        announcement = paho.mqtt.subscribe.simple("hushmote/v1/home/experiment/room_temp", qos=1, **where)
        (folder / "announcement").write_bytes(announcement.payload)
        for report in _run_javascript(folder):
            paho.mqtt.publish.single(topic + "till", report, 1, **where)
        _run_c(folder)
        until(lambda: store.participation("home")["room_temp"].reports == 8, "not all reports were counted")
    _make_unsent_report_in_c(folder)
    with closing(sqlite3.connect(folder / "hushmote.sqlite")) as connection:
        (folder / "store.sql").write_text("\n".join(connection.iterdump()) + "\n")
    packed = lzma.compress(image.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
    (folder / "board.img.xz").write_bytes(packed)
    shutil.rmtree(folder / "board")
    for path in (*folder.glob("hushmote*"), folder / "aggregator.log", folder / "announcement"):
        path.unlink()


def _unsent_report(argv: tuple[str, ...], image: Path) -> bytes:
    """Return the only unsent report in a board's ledger."""
    environment = os.environ | {"MICROPYPATH": str(ROOT / "simulator" / "board")}
    command = [*argv, "-c", _PRINT_LEDGER.format(str(image))]
    slots = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout.decode()
    records = [ldp_client._State.decode(bytes.fromhex(slot)) for slot in slots.split()]
    unsent = max((r for r in records if r), key=lambda r: r.sequence).unsent
    assert len(unsent) == 1
    return unsent[0]


def _run_javascript(folder: Path) -> list[bytes]:
    """Return the three reports of the device in JavaScript."""
    program = ROOT / "tests" / "support" / "js_keyed_device.mjs"
    till = folder / "till"
    command = ["node", program, till / "settings.json", till / "ledger", folder / "announcement", "3"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [bytes.fromhex(line) for line in done.stdout.split()]


def _run_c(folder: Path) -> None:
    """Send two reports of the device in C."""
    subprocess.run(["make", "-f", ROOT / "clients/c/posix/Makefile"], cwd=folder, check=True)
    post = [folder / "hushmote-post", folder / "porch"]
    for words in (["provision"], ["yes"], ["run", "0"]):
        subprocess.run([*post, *words], input=b"room_temp 21.4\nroom_temp 21.9\n", check=True)


def _make_unsent_report_in_c(folder: Path) -> None:
    """Let the device in C make a third report while there is no broker, and cut its power."""
    ledger = [folder / "porch" / f"ledger{slot}" for slot in (0, 1)]
    records = [path.read_bytes() for path in ledger]
    with subprocess.Popen([folder / "hushmote-post", folder / "porch", "run"], stdin=subprocess.PIPE) as post:
        assert post.stdin
        post.stdin.write(b"room_temp 22.4\n")
        post.stdin.flush()
        until(lambda: [path.read_bytes() for path in ledger] != records, "the device made no report")
        post.kill()


if __name__ == "__main__":
    record(Path(sys.argv[1]))
