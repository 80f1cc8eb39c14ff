"""Compile the C client's core, clients/c, with gcc for a test and call it through ctypes."""

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
CACHE = CORE.parents[1] / "build" / "c"  # cached builds, shared by all workers and later runs
STRICT = (
    *("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes"),
    *("-Werror", "-g", "-O2"),
)
SANITIZED = ("-fsanitize=address,undefined,bounds-strict", "-fno-sanitize-recover=all")

WITH_LOG = "-DHUSHMOTE_WITH_LOG=1"
COVERAGE = "HUSHMOTE_C_COVERAGE"  # an environment variable: the folder for gcc's coverage counts

needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="gcc is not installed: apt-get install gcc"
)

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
        ("feed", ctypes.c_void_p),
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
    """Return an array of pieces, valid as long as `parts` is."""
    return (Piece * len(parts))(
        *(Piece(ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p), len(part)) for part in parts)
    )


def reading(value: Any) -> Reading:
    """Build a reading as hushmote.h does, from a Fraction in thousandths; it keeps its pointees alive."""
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
        # An exact-length copy, so that the sanitizer detects reads past its end.
        pointed = (ctypes.c_char * max(len(text), 1)).from_buffer_copy(text or b"\0")
        kind, count = 4, len(text)
    c_reading = Reading(kind, 0, ctypes.addressof(pointed), count)
    c_reading.kept = parts, pointed  # type: ignore[attr-defined]
    return c_reading


def compile_c(target: Path, sources: Sequence[Path | str], *flags: str) -> Path:
    """Compile sources (names without .c are the core's) into a program, or with "-shared" a library.

    A compiler warning in the core is an error with the compiler's output. Returns the program or library,
    copied from the cache if compiler, flags, core, sources and their headers are unchanged.
    """
    files = [CORE / f"{s}.c" if isinstance(s, str) else s for s in sources]
    counted = os.environ.get(COVERAGE)
    if counted:
        target = Path(tempfile.mkdtemp(dir=counted)) / target.name
        plain = [flag for flag in flags if "sanitize" not in flag or "sanitize-coverage" in flag]
        _gcc(*plain, "--coverage", "-O0", "-o", target, *files)  # sanitizers would add branches
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    cached = CACHE / _key(files, flags)
    with open(f"{cached}.lock", "w") as lock:  # tests run in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cached.exists():
            _gcc(*flags, "-o", target, *files)
            os.replace(shutil.copy(target, f"{cached}.new"), cached)
    return Path(shutil.copy(cached, target))


def _gcc(*arguments: Path | str) -> None:
    command = ["gcc", *STRICT, f"-I{CORE}", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr


def _key(files: Sequence[Path], flags: Sequence[str]) -> str:
    """Return a cache key for a compiler call; header folders are hashed by content."""
    gcc = Path(shutil.which("gcc") or "").resolve()
    named = [flag for flag in flags if not flag.startswith("-I")]
    read = [*files, *sorted(CORE.glob("*.[ch]"))]
    read += [header for flag in flags if flag not in named for header in sorted(Path(flag[2:]).glob("*.h"))]
    contents = [(path.name, hashlib.sha256(path.read_bytes()).digest()) for path in read]
    return hashlib.sha256(repr((gcc, gcc.stat().st_mtime_ns, STRICT, named, contents)).encode()).hexdigest()


def library(folder: Path, sources: Sequence[Path | str], *flags: str) -> ctypes.CDLL:
    """Build a shared library from sources; see compile_c()."""
    return ctypes.CDLL(str(compile_c(folder / "core.so", sources, "-shared", "-fPIC", *flags)))


def post_program(folder: Path, policy: str, *arguments: str) -> Path:
    """Build hushmote-post in a folder with its Makefile, a policy and extra make arguments."""
    (folder / "policy.h").write_text(policy)
    make = ["make", "-f", str(CORE / "posix" / "Makefile"), f"POLICY={folder}/policy.h", *arguments]
    result = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder / "hushmote-post"
