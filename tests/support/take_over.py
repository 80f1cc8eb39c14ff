"""Move a fleet's boards from mosquitto to NATS servers with the commands in docs/scale.md."""

import shutil
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., object]


def take_over(old: Path, new: Path, run: Run) -> None:
    """Let the old authority sign the new servers and aggregators; the servers' list has no boards yet.

    old, new: sibling folders; run: runs a command in their parent folder.
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
    """Copy the old authority's issued and revoked certificates, and list them on the new servers."""
    with open(new / "authority/issued.jsonl", "ab") as journal:
        journal.write((old / "authority/issued.jsonl").read_bytes())
    shutil.copytree(old / "devices", new / "devices", dirs_exist_ok=True)
    run("provision", "rotate", "broker", "--folder", new.name)
