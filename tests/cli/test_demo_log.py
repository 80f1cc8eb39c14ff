"""`hushmote demo --log`, with a real broker, aggregator, witnesses and boards."""

from pathlib import Path

import pytest
from command_line import hushmote_process
from refusals import Refusal, refusals


class TestRefusals:
    @refusals(
        ("--log --board --yes", "--log has three boards of its own: omit --board"),
        ("--log --devices 100", "--log has three boards of its own: omit --board"),
        ("--log --broker nats", "--log supports one MQTT broker"),
        command="demo",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)


@pytest.mark.broker
class TestLogDemo:
    def test_board_that_is_asked_alone_does_not_answer(self, tmp_path: Path):
        text = hushmote_process("demo", "--log", cwd=tmp_path)
        words = " ".join(text.split())
        assert "kitchen, attic and office take part" in words
        assert "The board refuses: its proof from the log is missing." in words
        assert "partner.example signs. Witness residents.example" in words
        assert "changes again within 24 hours" in words
        assert "The board refuses: too few witnesses have signed its proof." in words
        assert "spent ε = 0 on the question that only it was asked" in words
        assert max(map(len, text.splitlines())) <= 80
