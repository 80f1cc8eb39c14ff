"""Three NATS servers on sites of their own: networks that can be split, disks that fill up.

Needs root and `ip` (iproute2). What is made here carries this process's number in its name and is removed at
the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from hushmote.simulator.nats_servers import NatsServers

_MIB = 1 << 20


def why_no_sites() -> str | None:
    """Why networks and disks of one's own cannot be had here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces and mounts need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip, of iproute2"
    name = f"hm{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return None


class SiteServers(NatsServers):
    """NATS servers, each in a network namespace and on a file system in memory, of mib MiB, of its own.

    A router in a further namespace joins the networks with each other and with this machine.
    """

    def __init__(self, count: int = 3, *, mib: int = 512) -> None:
        super().__init__(count)
        self._sites = count
        self._mib = mib
        self._name = f"hm{os.getpid()}"
        self._net = f"10.{200 + os.getpid() % 50}"
        self._disks: list[Path] = []

    def host_of(self, number: int) -> str:
        """The address of a server in its own network."""
        return f"{self._net}.{number}.2"

    def start(self) -> None:
        """As NatsServers; the networks and disks are made first."""
        if not self._disks:
            self._make()
        super().start()

    def stop(self) -> None:
        """End all and remove networks, disks and what was kept."""
        super().stop()
        for disk in self._disks:
            subprocess.run(["umount", str(disk)], check=True)
            disk.rmdir()
        self._disks = []
        for site in ("router", *range(self._sites)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", f"{self._name}-{site}")

    def cut(self, *numbers: int) -> None:
        """Let no packet pass between these servers and any other; boards and aggregators reach all."""
        pairs = {(a, b) for a in numbers for b in range(self._sites) if a != b}
        for a, b in pairs | {(b, a) for a, b in pairs}:
            where = ("from", self.host_of(a), "to", self.host_of(b), "blackhole")
            _ip("-n", f"{self._name}-router", "rule", "add", "pref", "100", *where)

    def heal(self) -> None:
        """Let all packets pass again."""
        with contextlib.suppress(subprocess.CalledProcessError):
            while True:
                _ip("-n", f"{self._name}-router", "rule", "del", "pref", "100")

    def fill(self, *numbers: int) -> None:
        """Leave no byte free on the disks of these servers."""
        for number in numbers:
            with open(self._disks[number] / "ballast", "ab", buffering=0) as ballast:
                for size in (_MIB, 4096, 512):
                    with contextlib.suppress(OSError):
                        while ballast.write(bytes(size)):
                            pass

    def free(self, *numbers: int) -> None:
        """Give back what fill() took."""
        for number in numbers:
            (self._disks[number] / "ballast").unlink(missing_ok=True)

    def store(self, number: int) -> Path:
        """The folder in which a server keeps its streams, on a disk of its own."""
        return self._disks[number] / "kept"

    def _prefix(self, number: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", f"{self._name}-{number}")

    def _make(self) -> None:
        router = f"{self._name}-router"
        _ip("netns", "add", router)
        _ip("netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number in range(self._sites):
            site = f"{self._name}-{number}"
            _ip("netns", "add", site)
            _ip("-n", site, "link", "set", "lo", "up")
            self._join(site, number)
            disk = Path(f"/tmp/{site}")
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._mib}m", "tmpfs", disk], check=True)
            self._disks.append(disk)
        self._join(None, 9)
        _ip("route", "add", f"{self._net}.0.0/16", "via", f"{self._net}.9.1")

    def _join(self, site: str | None, number: int) -> None:
        """A cable from a namespace, None: this machine's own, to the router: .2 there, .1 at the router."""
        router, near, far = f"{self._name}-router", f"{self._name}n{number}", f"{self._name}f{number}"
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", router)
        if site is not None:
            _ip("link", "set", near, "netns", site)
        inside = ("-n", site) if site is not None else ()
        ends = ((inside, near, 2), (("-n", router), far, 1))
        for where, link, address in ends:
            _ip(*where, "address", "add", f"{self._net}.{number}.{address}/24", "dev", link)
            _ip(*where, "link", "set", link, "up")
        if site is not None:
            _ip(*inside, "route", "add", "default", "via", f"{self._net}.{number}.1")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
