"""The MicroPython that runs a board in software: the best one here, or the one that someone named."""

import shlex
import sys
from pathlib import Path

import pytest

from hushmote.fleet.provisioning import interpreters


def test_one_with_tls_is_preferred(monkeypatch: pytest.MonkeyPatch):
    needs = interpreters.NEEDS
    features = {
        "plain": needs,
        "whole": needs | {"tls"},
        "other": needs | {"tls"},
        "small": needs - {"socket"},
    }
    answers = {
        name: interpreters.Interpreter(name, (name,), (1, 25, 0), has) for name, has in features.items()
    }
    monkeypatch.delenv(interpreters.VARIABLE, raising=False)
    monkeypatch.setattr(interpreters, "commands", lambda: [(name, (name,)) for name in features])
    monkeypatch.setattr(interpreters, "ask", lambda name, _argv: answers[name])
    assert interpreters.for_board().name == "whole"
    del features["whole"], features["other"]
    assert interpreters.for_board().name == "plain"
    del features["plain"]
    with pytest.raises(
        interpreters.NoInterpreter, match=r"\(small lacks socket\): get one with `apt install"
    ):
        interpreters.for_board()
    del features["small"]
    with pytest.raises(interpreters.NoInterpreter, match=r"none in HUSHMOTE_MICROPYTHON, a clone's \.rig/"):
        interpreters.for_board()


def test_named_one_is_used_or_rejected(
    interpreter: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(interpreters.VARIABLE, shlex.join(interpreter))
    assert interpreters.for_board().argv == tuple(interpreter)
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho PROBE 1000000 micropython 1.22.1 littlefs urandom mpy socket memory\n")
    old.chmod(0o755)
    for named, words in (
        (shlex.join((sys.executable, "-S")), "-S is not MicroPython, or does not run"),
        (str(old), r"old is MicroPython 1\.22\.1: too old\): get one"),
    ):
        monkeypatch.setenv(interpreters.VARIABLE, named)
        with pytest.raises(interpreters.NoInterpreter, match=words):
            interpreters.for_board()
