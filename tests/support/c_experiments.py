"""Access the C client's experiments through ctypes: parsing, bucketing and every branch of their draws."""

import ctypes
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from c_core import compile_c, reading

from hushmote.device.ldp_client import ONE

ROOM_BYTES = 1024
FILES = ("json", "experiment", "levels", "sw", "scale", "pgr", "text", "prefix", "pairs")
MAX_BRANCHES = 1 << 20
TYPES = ("bool", "choice", "number", "text", "pair")
MECHANISMS = ("rr", "grr", "olh", "hh", "pgr", "sw", "prefix", "views")
RULES = ("unlimited", "sum", "squares", "count")
WRONG_TYPE, REFUSED, REFUSED_MISSING, REFUSED_ROOM, REFUSED_SMALL_EPSILON = -7, -16, -21, -22, -23
ROWS = np.dtype(
    [("denominator", "u8"), ("path", "u8"), ("steps", "u8")]
    + [(name, "u4") for name in ("code", "truthful", "threshold", "level")]
)


class Experiment(ctypes.Structure):
    """struct hushmote_experiment."""

    _fields_ = (
        ("enrolled", ctypes.c_uint8),
        ("refused", ctypes.c_int8),
        *((name, ctypes.c_uint8) for name in ("type", "mechanism", "rule", "code_bytes")),
        *(
            (name, ctypes.c_uint8)
            for name in ("level_count", "part_count", "due", "withdrawn", "group_count")
        ),
        *((name, ctypes.c_uint16) for name in ("room_end", "group_at")),
        *((name, ctypes.c_uint32) for name in ("serial", "epsilon", "domain")),
        *((name, ctypes.c_uint32) for name in ("code_count", "weight_sum", "slots", "every")),
        ("group", ctypes.c_void_p),
        ("cap", ctypes.c_uint64),
        ("sha256", ctypes.c_uint8 * 32),
        ("room", ctypes.c_uint64 * (ROOM_BYTES // 8)),
    )


class Part(ctypes.Structure):
    """struct hm_part."""

    _fields_ = (
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
        ("domain", ctypes.c_uint32),
        ("words", ctypes.c_uint16),
        ("type", ctypes.c_uint8),
        ("missing", ctypes.c_uint8),
    )


class Level(ctypes.Structure):
    """struct hm_level."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("threshold", "offset", "g", "width")),
        ("weight", ctypes.c_uint16),
        ("t", ctypes.c_uint8),
        ("view", ctypes.c_uint8),
    )


class Index(ctypes.Structure):
    """struct hm_index."""

    _fields_ = (("missing", ctypes.c_uint32), ("at", ctypes.c_uint32), ("slots", ctypes.c_uint32 * 16))


class Core:
    """The core's experiments, compiled into a folder with flags; c_draws.c replaces their draws."""

    def __init__(self, folder: Path, *flags: str, room_bytes: int = ROOM_BYTES) -> None:
        # Test doubles and arithmetic are not traced because their steps do not belong to the mechanisms.
        room = f"-DHUSHMOTE_ROOM_BYTES={room_bytes}"
        linked = [flag for flag in flags if flag.startswith("-fsanitize=")]
        objects = [compile_c(folder / f"{name}.o", [name], "-fPIC", room, *flags, "-c") for name in FILES]
        sources = [*objects, "sha256", "settings", "threshold", Path(__file__).with_name("c_draws.c")]
        self.library = ctypes.CDLL(
            str(compile_c(folder / "experiments.so", sources, "-shared", "-fPIC", room, *linked))
        )
        self.library.walk.restype = ctypes.c_long
        self.library.hm_part.restype = ctypes.POINTER(Part)
        self.library.hm_level.restype = ctypes.POINTER(Level)
        self.library.draw.restype = ctypes.c_uint32
        self._rows = np.zeros(MAX_BRANCHES, ROWS)

    def parse(self, payload: bytes) -> tuple[int, Experiment]:
        """Return 0 or the rejection code, and the experiment."""
        experiment = Experiment()
        # An exact-length copy, so that the sanitizer detects reads past its end.
        buffer = (ctypes.c_char * max(len(payload), 1)).from_buffer_copy(payload or b"\0")
        return self.library.parse(buffer, ctypes.c_size_t(len(payload)), ctypes.byref(experiment)), experiment

    def parts(self, experiment: Experiment) -> list[Part]:
        e = ctypes.byref(experiment)
        return [self.library.hm_part(e, i).contents for i in range(experiment.part_count)]

    def levels(self, experiment: Experiment) -> list[Level]:
        e = ctypes.byref(experiment)
        return [self.library.hm_level(e, i).contents for i in range(experiment.level_count)]

    def words(self, experiment: Experiment, at: int, count: int) -> list[bytes]:
        """Return `count` strings from the buffer, starting at offset `at`."""
        room = bytes(experiment.room)
        texts = []
        for _ in range(count):
            texts.append(room[at + 1 : at + 1 + room[at]])
            at += 1 + room[at]
        return texts

    def bucket(self, experiment: Experiment, value: Any) -> Index | None:
        """Return the index of a reading, or None if it has the wrong type."""
        index, pointee = Index(), reading(value)
        status = self.library.bucket(ctypes.byref(experiment), ctypes.byref(pointee), ctypes.byref(index))
        assert status in (0, WRONG_TYPE)
        return index if status == 0 else None

    def draw(self, experiment: Experiment, index: Index, seed: int) -> int:
        """Return the code of the branch that Draws(seed) draws."""
        e, i = ctypes.byref(experiment), ctypes.byref(index)
        return self.library.draw(e, i, ctypes.c_uint64(seed))

    def branches(self, experiment: Experiment, index: Index) -> npt.NDArray[Any]:
        """Return a row of ROWS for each branch of an index's draws."""
        rows = ctypes.c_void_p(self._rows.ctypes.data)
        e, i = ctypes.byref(experiment), ctypes.byref(index)
        count = self.library.walk(e, i, rows, ctypes.c_long(MAX_BRANCHES))
        assert count > 0, (
            "too many branches to enumerate" if count == -2 else "the code is not a function of the draws"
        )
        return self._rows[:count].copy()


class Draws:
    """The two random primitives along one branch, as in c_draws.c."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, n: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % n

    def bernoulli(self, threshold: int) -> bool:
        assert 0 < threshold < ONE
        return self.below(2) == 1


def index_of(at: int | None, slots: tuple[int, ...] = ()) -> Index:
    """Return an index, or the missing-reading value; slots: the slots of a text's prefixes."""
    return Index(at is None, at or 0, slots)


def law(branches: npt.NDArray[Any]) -> dict[int, Fraction]:
    """Return the exact probability of each code, summed over its branches."""
    keys, first, same, counts = np.unique(
        branches["code"].astype(np.uint64) * 2 + branches["truthful"],
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    for name in ("threshold", "denominator"):  # as for its level
        assert (branches[name] == branches[name][first][same]).all()
    chances: dict[int, Fraction] = {}
    for key, row, count in zip(keys.tolist(), branches[first], counts.tolist(), strict=True):
        threshold, denominator = int(row["threshold"]), int(row["denominator"])
        told = (ONE - threshold, threshold)[key % 2]
        chances[key // 2] = chances.get(key // 2, Fraction(0)) + Fraction(count * told, denominator * ONE)
    return chances
