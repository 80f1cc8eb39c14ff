"""Record what a release leaves on disk, for tests/whole/test_upgrade.py.

    .venv/bin/python tools/record_release.py tests/data/previous_release

Run it in a clone with the release checked out, before the next release; for a release without this file, copy
it there. A software board joins a keyed fleet and sends two reports until the power fails. It makes a third
report, which an aggregator counts, but never receives the acknowledgement.
"""

import lzma
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import _paths  # noqa: F401
import paho.mqtt.publish
from running_aggregator import running, until

from hushmote.device import ldp_client
from hushmote.fleet.provisioning import interpreters, master_key
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
    topic, report = "hushmote/v1/home/report/desk", _unsent_report(argv, image)
    with Store(url) as store, MosquittoBroker() as broker, running(store, broker, fleet_keys=keys):
        paho.mqtt.publish.single(topic, report, 1, hostname=broker.host, port=broker.port)
        until(lambda: store.participation("home")["room_temp"].reports == 3, "the report was not counted")
    with closing(sqlite3.connect(folder / "hushmote.sqlite")) as connection:
        (folder / "store.sql").write_text("\n".join(connection.iterdump()) + "\n")
    packed = lzma.compress(image.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
    (folder / "board.img.xz").write_bytes(packed)
    for path in (*(folder / "board").iterdir(), *folder.glob("hushmote.sqlite*"), folder / "aggregator.log"):
        path.unlink()
    (folder / "board").rmdir()


def _unsent_report(argv: tuple[str, ...], image: Path) -> bytes:
    """Return the only unsent report in a board's ledger."""
    environment = os.environ | {"MICROPYPATH": str(ROOT / "simulator" / "board")}
    command = [*argv, "-c", _PRINT_LEDGER.format(str(image))]
    slots = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout.decode()
    records = [ldp_client._State.decode(bytes.fromhex(slot)) for slot in slots.split()]
    unsent = max((r for r in records if r), key=lambda r: r.sequence).unsent
    assert len(unsent) == 1
    return unsent[0]


if __name__ == "__main__":
    record(Path(sys.argv[1]))
