"""The demo on three NATS servers."""

import json
from pathlib import Path

import pytest
from command_line import hushmote


@pytest.mark.broker
def test_counts_every_report(tmp_path: Path):
    line = ("demo", "--broker", "nats", "--devices", "600", "--json")
    assert json.loads(hushmote(*line, cwd=tmp_path))["reports"] == 600
