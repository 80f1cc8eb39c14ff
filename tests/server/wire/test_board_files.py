"""The board files that an experiment needs."""

from pathlib import Path

import pytest
from command_line import hushmote
from custom_mechanisms import EXAMPLES
from experiments import experiment_json, number_json

from hushmote.server.wire import experiments as wire
from hushmote.server.wire.board_files import needed_files, shipped_files
from hushmote.server.wire.experiments import parse_experiment

LOG_PART = {"name": "size", "type": "number", "low": 1, "high": 99, "bins": 4, "scale": "log"}
BOOL_PART = {"name": "hot", "type": "bool"}
TEXT = {"type": "text", "salt": "s", "slots": 1024, "mechanism": "pgr", "q": 3}


class TestNeededFiles:
    @pytest.mark.parametrize(
        ("payload", "words"),
        [
            (experiment_json(), []),
            (number_json(16), []),
            (number_json(16, low=1, scale="log"), ["scale"]),
            (experiment_json(type="pair", of=[LOG_PART, BOOL_PART], mechanism="grr"), ["scale", "pairs"]),
            (number_json(64, mechanism="sw", reach=15, epsilon=2_000_000), ["sw"]),
            (number_json(1024, mechanism="pgr", q=3), ["pgr"]),
            (experiment_json(**TEXT), ["text", "pgr"]),
            (experiment_json(**TEXT | {"mechanism": "grr", "q": None, "slots": 4}), ["text"]),
        ],
        ids=[
            "default",
            "number",
            "log scale",
            "pair with log scale",
            "sw",
            "pgr",
            "text with pgr",
            "text with grr",
        ],
    )
    def test_depend_on_type_and_mechanism(self, payload: bytes, words: list[str]):
        files = needed_files(parse_experiment(payload))
        assert list(files) == words
        assert all(files[word] == shipped_files()[word] for word in words)

    def test_list_custom_mechanism_by_its_full_name(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(wire, "FOLDERS", [str(EXAMPLES)])
        experiment = parse_experiment(number_json(5, mechanism="unary:Unary"))
        assert needed_files(experiment) == {"unary:Unary": EXAMPLES / "unary_board.py"}

    def test_are_listed_by_experiment_show(self, tmp_path: Path):
        text = (
            'name = "mean"\npurpose = "p"\nowner = "o"\nexpires = 9999-12-31\ntype = "number"\nlow = 0\n'
            'high = 64\nbins = 64\nstatistics = "mean"\nepsilon = 2\n[budget]\nrule = "sum"\ncap = 8\n'
        )
        (tmp_path / "mean.toml").write_text(text)
        assert "need hushmote flash --with sw" in hushmote("experiment", "show", "mean.toml", cwd=tmp_path)
        assert '"boards_need": [\n    "sw"' in hushmote(
            "experiment", "show", "mean.toml", "--json", cwd=tmp_path
        )
