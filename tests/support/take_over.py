"""How NATS servers take over the boards of a fleet on mosquitto: the commands of docs/scale.md."""

import shutil
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., object]


def take_over(old: Path, new: Path, run: Run) -> None:
    """Let the old authority sign the new servers and aggregators; no board is on the servers' list.

    old, new: folders beside each other, where run is a command line.
    """
    for name in ("ca.key", "signing.key"):
        shutil.copy(old / "authority" / name, new / "authority")
    for name in ("ca.pem", "master.key"):
        shutil.copy(old / "aggregator" / name, new / "aggregator")
    for part in ("broker", "broker/1", "broker/2", "broker/3"):
        shutil.copy(old / "broker/ca.pem", new / part)
    run("provision", "rotate", "broker", "--folder", new.name)
    run("provision", "rotate", "aggregator", "--folder", new.name)


def let_boards_in(old: Path, new: Path, run: Run) -> None:
    """Copy what the old authority issued and revoked to the new folder, and list it on the servers."""
    with open(new / "authority/issued.jsonl", "ab") as journal:
        journal.write((old / "authority/issued.jsonl").read_bytes())
    shutil.copytree(old / "devices", new / "devices", dirs_exist_ok=True)
    run("provision", "rotate", "broker", "--folder", new.name)
