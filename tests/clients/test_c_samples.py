"""The samples for the C client's ports, on models with virtual time, and the button that they share."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from c_core import CORE, compile_c, needs_gcc
from power_cuts import CORE_FILES, RIGS

from hushmote.fleet.provisioning.firmware import identity_record
from hushmote.fleet.provisioning.settings import DeviceSettings

pytestmark = needs_gcc
HOUR_S = 3600
FIRST, SECOND, THIRD = (10, 14), (20, 24), (1000, 1004)  # times when the button is down, in seconds


class Sample:
    """A port's sample as a program; make_ledger sets HUSHMOTE_MAKE_LEDGER."""

    def __init__(self, folder: Path, port: str, make_ledger: bool | None) -> None:
        model = RIGS / f"{port}_model"
        self._folder = folder
        (folder / "identity.bin").write_bytes(
            identity_record(DeviceSettings("home", "k3f9x1", mqtt_host="broker"))
        )
        names = {"idf": ("nvs", "freertos", "esp_mqtt", "sample"), "zephyr": ("nvs", "sample")}[port]
        sources = [*CORE_FILES, *(model / f"{name}.c" for name in names), *sorted((CORE / port).rglob("*.c"))]
        headers = [f"-I{path}" for path in (model, model / "freertos", CORE / port, folder)]
        flags = ["-std=gnu17", "-Wno-pedantic", "-Wno-strict-prototypes", "-Dmain=sample_main"]
        flags += [] if make_ledger is None else [f"-DHUSHMOTE_MAKE_LEDGER={int(make_ledger)}"]
        if port == "idf":
            flags.remove("-Dmain=sample_main")
        self._program = compile_c(folder / "sample", sources, *flags, *headers)

    def run(self, *presses: tuple[int, int]) -> str:
        """Run the sample for one virtual hour and return its output."""
        times = [str(second) for press in presses for second in press]
        command = [self._program, str(HOUR_S), *times]
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout


def takes_part(printed: str) -> bool:
    """Return whether the sample printed a report or opened a connection."""
    return bool(re.search(r"^[0-9a-f]{20,}$|^connections: [1-9]", printed, re.MULTILINE))


@pytest.mark.parametrize("port", ["idf", "zephyr"])
class TestSamples:
    def test_creates_no_ledger_by_default(self, tmp_path: Path, port: str):
        for make_ledger in (None, False):
            printed = Sample(tmp_path, port, make_ledger).run(FIRST, SECOND, THIRD)
            assert printed.count("no ledger: build with HUSHMOTE_MAKE_LEDGER=1") == 1
            assert printed.count("locked: no ledger; provision this board\n") >= 3
            assert not takes_part(printed)

    def test_creates_the_ledger_and_asks_for_consent(self, tmp_path: Path, port: str):
        sample = Sample(tmp_path, port, make_ledger=True)
        for presses, expected in (((), False), ((FIRST,), False), ((FIRST, SECOND), True)):
            assert takes_part(sample.run(*presses)) == expected

    def test_opt_out_ends_reports(self, tmp_path: Path, port: str):
        printed = Sample(tmp_path, port, make_ledger=True).run(FIRST, SECOND, THIRD)
        if port == "idf":
            assert printed.endswith("connections: 1, goodbyes: 1\n")
        else:
            assert len(re.findall(r"^[0-9a-f]{20,}$", printed, re.MULTILINE)) == 1  # of five

    def test_stuck_button_does_nothing(self, tmp_path: Path, port: str):
        printed = Sample(tmp_path, port, make_ledger=True).run((0, HOUR_S))
        assert not takes_part(printed)
        assert "no ledger: build with" in printed


@pytest.mark.parametrize("port", ["idf", "zephyr"])
class TestIdentity:
    def test_consent_given_elsewhere_is_in_the_ledger(self, tmp_path: Path, port: str):
        sample = Sample(tmp_path, port, make_ledger=True)
        settings = DeviceSettings("home", "k3f9x1", mqtt_host="broker", consent_given=True)
        (tmp_path / "identity.bin").write_bytes(identity_record(settings))
        assert not takes_part(sample.run())
        assert takes_part(sample.run(FIRST))

    @pytest.mark.parametrize("content", [None, b"HUSHMOTE" + bytes(99)], ids=["missing", "damaged"])
    def test_board_without_it_does_nothing(self, tmp_path: Path, port: str, content: bytes | None):
        sample = Sample(tmp_path, port, make_ledger=True)
        (tmp_path / "identity.bin").unlink()
        if content is not None:
            (tmp_path / "identity.bin").write_bytes(content)
        expected = "no identity: flash this" if content is None else "the identity is for newer firmware"
        assert sample.run(FIRST, SECOND, THIRD).startswith(expected)


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
    library = ctypes.CDLL(str(compile_c(folder / "held.so", [folder / "held.c"], "-shared", "-fPIC")))
    library.held.restype = ctypes.c_bool
    return library


class TestButton:
    def counts(
        self, library: ctypes.CDLL, polls: Iterable[int], step_ms: int = 100, start_ms: int = 0
    ) -> list[int]:
        """Return the indices of polls (step_ms apart; 1 is down, 0 is up) at which a press counts."""
        state = Button()
        return [
            at
            for at, down in enumerate(polls)
            if library.held(ctypes.byref(state), bool(down), ctypes.c_uint32(start_ms + step_ms * at))
        ]

    def test_counts_once_per_press(self, button: ctypes.CDLL):
        assert self.counts(button, [0, *[1] * 100, 0, *[1] * 40]) == [31, 132]

    def test_never_counts_if_stuck_since_power_up(self, button: ctypes.CDLL):
        assert self.counts(button, [1] * 1000) == []
        assert self.counts(button, [*[1] * 1000, 0, *[1] * 40]) == [1031]

    def test_bounce_restarts_timer(self, button: ctypes.CDLL):
        assert self.counts(button, [0, *[1] * 29, 0, *[1] * 31]) == [61]
        assert self.counts(button, [0, *[1, 0] * 200]) == []

    def test_two_presses_between_polls_do_not_count_as_one(self, button: ctypes.CDLL):
        """The main loop may wait 4.8 s for the network."""
        assert self.counts(button, [0, 1, 1, 1], step_ms=4800) == []
        assert self.counts(button, [0, 1, 1, 1, 1], step_ms=1000) == [4]

    def test_counter_may_wrap(self, button: ctypes.CDLL):
        assert self.counts(button, [0, *[1] * 40], start_ms=0xFFFFFFFF - 1500) == [31]
