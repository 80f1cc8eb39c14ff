"""The C client's core, clients/c, compiled by gcc for a test and called by ctypes."""

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

CORE = Path(__file__).parents[2] / "clients" / "c"
KEPT = CORE.parents[1] / "build" / "c"  # what was compiled, for all workers and for the next run
STRICT = (
    *("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes"),
    *("-Werror", "-g", "-O2"),
)
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

COVERAGE = "HUSHMOTE_C_COVERAGE"  # an environment variable: a folder where gcc's programs count what they run

DEVICE = """
#define HUSHMOTE_FLEET "home"
#define HUSHMOTE_DEVICE_ID "k3f9x1"
#define HUSHMOTE_KEY {0}
#define HUSHMOTE_ANNOUNCE_KEY {0}
#define HUSHMOTE_BROKER "broker"
#define HUSHMOTE_BROKER_PORT 1883
"""
"""A device.h as `hushmote provision device --for c` writes it."""

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not there: apt-get install gcc")

Sha256 = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint8)
)
Entropy = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t)


class Piece(ctypes.Structure):
    """struct hushmote_piece."""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Config(ctypes.Structure):
    """struct hushmote_config."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("entropy", Entropy),
        ("sha256", Sha256),
        ("verify", ctypes.c_void_p),
        ("lock", ctypes.c_void_p),
        ("unlock", ctypes.c_void_p),
        ("policy", ctypes.c_void_p),
        ("device_id", ctypes.c_char_p),
        ("fleet", ctypes.c_char_p),
        ("key", ctypes.c_char_p),
        ("announce_key", ctypes.c_char_p),
        ("unique_id", ctypes.c_char_p),
        ("unique_id_bytes", ctypes.c_size_t),
        ("experiments", ctypes.c_void_p),
        ("records", ctypes.c_void_p),
        ("record_bytes", ctypes.c_size_t),
        ("unsent_max", ctypes.c_uint8),
    )


class Reading(ctypes.Structure):
    """struct hushmote_reading."""

    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("number", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
    )


class Random(ctypes.Structure):
    """struct hushmote_random."""

    _fields_ = (
        ("config", ctypes.POINTER(Config)),
        ("left", ctypes.c_uint8),
        ("key", ctypes.c_uint8 * 32),
        ("pool", ctypes.c_uint8 * 32),
    )


def pieces(*parts: bytes) -> ctypes.Array[Piece]:
    """Return an array of pieces, which lives while the parts do."""
    return (Piece * len(parts))(
        *(Piece(ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p), len(part)) for part in parts)
    )


def reading(value: Any) -> Reading:
    """As hushmote.h's functions make one, of a Fraction in thousandths; it keeps what it points to."""
    if value is None or isinstance(value, Reading):
        return value or Reading(0)
    if isinstance(value, bool):
        return Reading(1, value)
    if isinstance(value, int):
        return Reading(2, max(min(value, 2**63 - 1), -(2**63)))
    if isinstance(value, Fraction):
        return Reading(3, int(value * 1000))
    parts: list[Reading] = []
    if isinstance(value, (list, tuple)):
        parts = [reading(part) for part in value]
        kind, count, pointed = 5, len(parts), (Reading * len(parts))(*parts)
    else:
        text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
        # A copy of exactly its length: what reads behind it is found where memory is watched.
        pointed = (ctypes.c_char * max(len(text), 1)).from_buffer_copy(text or b"\0")
        kind, count = 4, len(text)
    made = Reading(kind, 0, ctypes.addressof(pointed), count)
    made.kept = parts, pointed  # type: ignore[attr-defined]
    return made


def compiled(target: Path, sources: Sequence[Path | str], *flags: str) -> Path:
    """Compile sources (names without .c are the core's) into a program, or with "-shared" a library.

    Any warning of the core is an error, with the compiler's own words. Returns the program or library: a copy
    of an earlier one where compiler, flags, core, sources and their headers are the same.
    """
    files = [CORE / f"{s}.c" if isinstance(s, str) else s for s in sources]
    counted = os.environ.get(COVERAGE)
    if counted:
        target = Path(tempfile.mkdtemp(dir=counted)) / target.name
        plain = [flag for flag in flags if "sanitize" not in flag or "sanitize-coverage" in flag]
        _gcc(*plain, "--coverage", "-O0", "-o", target, *files)  # checks would add branches of their own
        return target
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / _key(files, flags)
    with open(f"{kept}.lock", "w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _gcc(*flags, "-o", target, *files)
            os.replace(shutil.copy(target, f"{kept}.new"), kept)
    return Path(shutil.copy(kept, target))


def _gcc(*arguments: Path | str) -> None:
    command = ["gcc", *STRICT, f"-I{CORE}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


def _key(files: Sequence[Path], flags: Sequence[str]) -> str:
    """Return a key for a call of the compiler; a folder of headers counts by its content."""
    gcc = Path(shutil.which("gcc") or "").resolve()
    named = [flag for flag in flags if not flag.startswith("-I")]
    read = [*files, *sorted(CORE.glob("*.[ch]"))]
    read += [header for flag in flags if flag not in named for header in sorted(Path(flag[2:]).glob("*.h"))]
    contents = [(path.name, hashlib.sha256(path.read_bytes()).digest()) for path in read]
    return hashlib.sha256(repr((gcc, gcc.stat().st_mtime_ns, STRICT, named, contents)).encode()).hexdigest()


def library(folder: Path, sources: Sequence[Path | str], *flags: str) -> ctypes.CDLL:
    """Build a shared library of sources, as compiled() takes them."""
    return ctypes.CDLL(str(compiled(folder / "core.so", sources, "-shared", "-fPIC", *flags)))


def post_program(folder: Path, policy: str, *arguments: str) -> Path:
    """hushmote-post, made in a folder by its own Makefile with a policy and further arguments of make."""
    (folder / "policy.h").write_text(policy)
    make = ["make", "-f", str(CORE / "posix" / "Makefile"), f"POLICY={folder}/policy.h", *arguments]
    done = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "hushmote-post"
