"""Removes a forgotten device's connection, credentials and status from the broker."""

import datetime
import os
import signal
import tempfile
from pathlib import Path

from ...server import private_file
from ...server.errors import refusing
from ...server.ingest import device_health
from ...server.ingest.broker_url import parse_broker_url
from ...server.ingest.tls import client_context
from .fleet_folder import ROOT, FleetFolder, FolderError
from .fleet_spec import NATS

_CONFIGURATION = {"mosquitto": "mosquitto.conf", "nats-server": "nats.conf"}
_PROCESSES = Path("/proc")


def reload_here(folder: FleetFolder) -> int:
    """Send SIGHUP to the broker processes that read this exact folder; return how many there are.

    The result is 0 if the broker runs elsewhere, reads a copy of the folder, or belongs to another user.
    """
    if Path(folder.fleet.broker_folder).resolve() != (folder.path / "broker").resolve():
        return 0
    parts = {part for part, _ in folder.fleet.servers}
    files = {(folder.path / part / name).resolve() for part in parts for name in _CONFIGURATION.values()}
    return sum(_reload(process, files) for process in _PROCESSES.glob("[0-9]*"))


def _reload(process: Path, files: set[Path]) -> bool:
    """Send SIGHUP to a process if it is a broker with one of these configurations."""
    try:
        program, *arguments = os.fsdecode((process / "cmdline").read_bytes()).rstrip("\0").split("\0")
        name = _CONFIGURATION.get(Path(program).name)
        cwd = (process / "cwd").readlink() if name else Path()
        if not any(Path(a).name == name and (cwd / a).resolve() in files for a in arguments):
            return False
        os.kill(int(process.name), signal.SIGHUP)
    except OSError:  # the process has ended, or belongs to another user
        return False
    return True


def clear_status(folder: FleetFolder, device: str, now: datetime.datetime) -> None:
    """End a revoked device's connection to mosquitto and clear its retained status, in its name.

    This uses a temporary certificate, whose key is not kept. NATS servers do not need it: once the user is
    removed, they end its connections and delete its retained messages.

    Raises:
        BrokerUnreachable: If the broker does not answer.
        FolderError: If the folder cannot be read or written.
        AuthorityError: If the authority's key cannot be used.
        CertificateError: If the broker's certificate is not valid.
    """
    if folder.fleet.broker == NATS:
        return
    stand_in = folder.issue_stand_in(device, now)
    with refusing(FolderError, "write a temporary file"), tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "stand-in.pem"
        private_file.create(file, stand_in.to_pem())
        tls = client_context(folder.path / ROOT, file, file)
    device_health.clear(parse_broker_url(folder.fleet.url(), tls=True), tls, folder.fleet.fleet, device)
