"""The demo on three NATS servers: one dies halfway, and every report that a device was told of is counted."""

from pathlib import Path

import pytest

from hushmote.server.experiments import definition
from hushmote.simulator import demo
from hushmote.simulator.demo_questions import DEFINITION
from hushmote.simulator.nats_servers import NatsServers
from hushmote.simulator.stage import Place


def test_a_server_dies_halfway_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    died: list[int] = []
    kill = NatsServers.kill

    def killed(servers: NatsServers, *numbers: int) -> None:
        died.extend(numbers)
        kill(servers, *numbers)

    monkeypatch.setattr(NatsServers, "kill", killed)
    readings = [float(i % 100) for i in range(600)]
    asked = definition.parse(DEFINITION)
    reported, _ = demo._reported(Place("nats", tmp_path), asked, readings, "temperature")
    assert died == [0]
    assert len(reported.fleet.acknowledged) == 600
    said = " ".join(capsys.readouterr().out.split())
    assert "killed server n1 (SIGKILL)" in said
    assert "600 devices were told that their report is received, and 600 are counted" in said
