"""Three NATS servers on separate sites with networks that can be split, disks that can fill and power cuts.

This needs root, `ip` (iproute2) and ext4 on loop devices. Everything created has this process's id in its
name and is removed at the end.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from hushmote.simulator.nats_servers import NatsServers

_MIB = 1 << 20
_SHUTDOWN = 0x8004587D  # ioctl that blocks all further writes to a file system's disk
_NO_LOG_FLUSH = 2  # flag that also discards the journal's part in memory


@pytest.fixture
def needs_sites() -> None:
    """Skip the test, stating the reason, if separate networks or disks are not available."""
    if (why := _why_no_sites()) is not None:
        pytest.skip(why)


@functools.cache
def _why_no_sites() -> str | None:
    if os.geteuid() != 0:
        return "network namespaces and mounts need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip, of iproute2"
    try:
        with SiteServers(1, mib=16):
            return None
    except (subprocess.CalledProcessError, OSError) as e:
        reason = e.stderr if isinstance(e, subprocess.CalledProcessError) else str(e)
        return f"no namespaces or loop devices here: {reason.strip()}"


class SiteServers(NatsServers):
    """NATS servers, each in its own network namespace and on its own file system of `mib` MiB.

    A router in another namespace connects the networks with each other and with this machine.
    """

    def __init__(self, count: int = 3, *, mib: int = 256, sync: str = "2m") -> None:
        super().__init__(count, sync=sync)
        self._sites = count
        self._mib = mib
        self._name = f"hm{os.getpid()}"
        self._net = f"10.{200 + os.getpid() % 50}"
        self._place: Path | None = None
        self.host = self.host_of(0)

    def host_of(self, number: int) -> str:
        """Return a server's address in its network."""
        return f"{self._net}.{number}.2"

    def start(self) -> None:
        """Create the networks and disks, then start the servers."""
        if self._place is None:
            self._place = Path(tempfile.mkdtemp(prefix=self._name))
            self._make(self._place)
        super().start()

    def stop(self) -> None:
        """Stop all servers, and remove networks, disks and data."""
        super().stop()
        if self._place is not None:
            for number in range(self._sites):
                subprocess.run(["umount", self._disk(number)], check=False, capture_output=True)
            shutil.rmtree(self._place)
            self._place = None
        for site in ("router", *range(self._sites)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", f"{self._name}-{site}")

    def cut(self, *numbers: int) -> None:
        """Block packets between these servers and the others; boards and aggregators still reach them all."""
        pairs = {(a, b) for a in numbers for b in range(self._sites) if a != b}
        for a, b in pairs | {(b, a) for a, b in pairs}:
            where = ("from", self.host_of(a), "to", self.host_of(b), "blackhole")
            _ip("-n", f"{self._name}-router", "rule", "add", "pref", "100", *where)

    def heal(self) -> None:
        """Unblock all packets."""
        with contextlib.suppress(subprocess.CalledProcessError):
            while True:
                _ip("-n", f"{self._name}-router", "rule", "del", "pref", "100")

    def fill(self, *numbers: int) -> None:
        """Fill the disks of these servers completely."""
        for number in numbers:
            with open(self._disk(number) / "ballast", "ab", buffering=0) as ballast:
                for size in (_MIB, 4096, 512):
                    with contextlib.suppress(OSError):
                        while ballast.write(bytes(size)):
                            pass

    def free(self, *numbers: int) -> None:
        """Delete the files that fill() wrote."""
        for number in numbers:
            (self._disk(number) / "ballast").unlink(missing_ok=True)

    def cut_power(self, *numbers: int) -> None:
        """Cut the power of these servers and their disks simultaneously; unsynced data is lost."""
        for number in numbers:
            disk = os.open(self._disk(number), os.O_RDONLY)
            fcntl.ioctl(disk, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
            os.close(disk)
        self.kill(*numbers)
        for number in numbers:
            _run("umount", str(self._disk(number)))
            # While the old disk is still attached, it has no power.
            while _run("losetup", "-j", str(self._disk(number).with_suffix(".ext4"))):
                time.sleep(0.01)
            self._mount(number)

    def store(self, number: int) -> Path:
        """Return the folder with a server's streams, on its disk."""
        return self._disk(number) / "kept"

    def _prefix(self, number: int) -> tuple[str, ...]:
        # `ip netns exec` would copy all mounts, which prevents unmounting a disk.
        return ("nsenter", f"--net=/run/netns/{self._name}-{number}")

    def _disk(self, number: int) -> Path:
        assert self._place is not None
        return self._place / str(number)

    def _mount(self, number: int) -> None:
        disk = self._disk(number)
        _run("mount", "-o", "loop", str(disk.with_suffix(".ext4")), str(disk))

    def _make(self, place: Path) -> None:
        router = f"{self._name}-router"
        _ip("netns", "add", router)
        _ip("netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number in range(self._sites):
            site = f"{self._name}-{number}"
            _ip("netns", "add", site)
            _ip("-n", site, "link", "set", "lo", "up")
            self._join(site, number)
            image = place / f"{number}.ext4"
            with open(image, "wb") as f:
                f.truncate(self._mib * _MIB)
            _run("mkfs.ext4", "-q", "-m", "0", str(image))
            self._disk(number).mkdir()
            self._mount(number)
        self._join(None, 9)

    def _join(self, site: str | None, number: int) -> None:
        """Connect a namespace, or this machine if None, to the router; its address is .2, the router's .1.

        This machine's end has no address and sends from another one, because Chromium, in a concurrent test,
        drops requests when the machine gets a new address.
        """
        router, near, far = f"{self._name}-router", f"{self._name}n{number}", f"{self._name}f{number}"
        inside = ("-n", site) if site is not None else ()
        _ip(*inside, "link", "add", near, "type", "veth", "peer", "name", far, "netns", router)
        ends = ((inside, near, 2), (("-n", router), far, 1))
        for where, link, address in ends:
            if where:
                _ip(*where, "address", "add", f"{self._net}.{number}.{address}/24", "dev", link)
            _ip(*where, "link", "set", link, "addrgenmode", "none", "up")
        if site is not None:
            _ip(*inside, "route", "add", "default", "via", f"{self._net}.{number}.1")
        else:
            _ip("route", "add", f"{self._net}.0.0/16", "dev", near)
            _ip("-n", router, "route", "add", "default", "dev", far)
            _ip("netns", "exec", router, "sysctl", "-qw", f"net.ipv4.conf.{far}.proxy_arp=1")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
