"""Limit processes to a share of a core, to simulate a larger machine."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Linux control groups, version 1 or 2.
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
NEEDS = "this needs root and Linux control groups at /sys/fs/cgroup"


def is_supported() -> bool:
    """Return whether this process may limit CPU time on this machine."""
    if _is_version_1():
        return os.access(_V1, os.W_OK)
    return os.access(_V2, os.W_OK) and "cpu" in _read(_V2 / "cgroup.subtree_control").split()


@contextmanager
def limited(pids: Sequence[int], part: float, period_us: int = 100_000) -> Iterator[None]:
    """Limit these processes, in total, to a share of a core, but at least 1 ms, in every period."""
    root = _V1 if _is_version_1() else _V2
    group = root / f"hushmote-{os.getpid()}-{pids[0]}"
    group.mkdir()
    quota_us = max(1_000, round(part * period_us))
    try:
        if root == _V1:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for pid in _read(group / "cgroup.procs").split():
            (root / "cgroup.procs").write_text(pid)
        group.rmdir()


def _is_version_1() -> bool:
    return (_V1 / "tasks").exists()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
