"""The button that firmware in C shares."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import pytest
from c_core import compiled, needs_gcc

pytestmark = needs_gcc


class Button(ctypes.Structure):
    _fields_ = (
        ("is_armed", ctypes.c_bool),
        ("is_down", ctypes.c_bool),
        ("pressed_ms", ctypes.c_uint32),
        ("seen_ms", ctypes.c_uint32),
    )


@pytest.fixture(scope="module")
def button(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("button")
    (folder / "held.c").write_text(
        '#include "hushmote_button.h"\n'
        "bool held(struct hushmote_button *button, bool is_down, uint32_t now_ms);\n"
        "bool held(struct hushmote_button *button, bool is_down, uint32_t now_ms) {\n"
        "    return hushmote_held(button, is_down, now_ms);\n}\n"
    )
    library = ctypes.CDLL(str(compiled(folder / "held.so", [folder / "held.c"], "-shared", "-fPIC")))
    library.held.restype = ctypes.c_bool
    return library


class TestButton:
    def counts(
        self, library: ctypes.CDLL, looks: Iterable[int], step_ms: int = 100, start_ms: int = 0
    ) -> list[int]:
        """Return the looks at which a press counts, one each step_ms: 1 is down, 0 is up."""
        state = Button()
        return [
            at
            for at, down in enumerate(looks)
            if library.held(ctypes.byref(state), bool(down), ctypes.c_uint32(start_ms + step_ms * at))
        ]

    def test_counts_once_per_press(self, button: ctypes.CDLL):
        assert self.counts(button, [0, *[1] * 100, 0, *[1] * 40]) == [31, 132]

    def test_stuck_from_power_up_never_counts(self, button: ctypes.CDLL):
        assert self.counts(button, [1] * 1000) == []
        assert self.counts(button, [*[1] * 1000, 0, *[1] * 40]) == [1031]

    def test_bounce_begins_anew(self, button: ctypes.CDLL):
        assert self.counts(button, [0, *[1] * 29, 0, *[1] * 31]) == [61]
        assert self.counts(button, [0, *[1, 0] * 200]) == []

    def test_two_touches_without_a_look_between_are_not_one(self, button: ctypes.CDLL):
        """As where the loop waits 4.8 s for a network."""
        assert self.counts(button, [0, 1, 1, 1], step_ms=4800) == []
        assert self.counts(button, [0, 1, 1, 1, 1], step_ms=1000) == [4]

    def test_counter_may_wrap(self, button: ctypes.CDLL):
        assert self.counts(button, [0, *[1] * 40], start_ms=0xFFFFFFFF - 1500) == [31]
