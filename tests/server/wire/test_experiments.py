"""Experiments with custom mechanisms, whose modules are loaded before the JSON is parsed."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from custom_mechanisms import COIN
from experiments import experiment_json
from refusals import fails

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Experiment, ExperimentRefused
from hushmote.server.wire.experiments import is_own, parse_experiment

ROOT = Path(__file__).parents[3]
# Callers whose bytes come from a network or a board test, and which must not import anything.
BARE = {"cli/experiment/review.py", "simulator/faithful.py"}


class TestParseExperiment:
    @pytest.mark.parametrize(
        "payload",
        [b"", b"[", b"[1]", b'{"mechanism":["a:b"]}', b"[" * 1000, b" " * 2000, b"\xff:"],
        ids=["empty", "bracket", "list", "list as mechanism", "deep nesting", "too long", "not UTF-8"],
    )
    def test_rejects_malformed_json(self, payload: bytes):
        with pytest.raises(ExperimentRefused):
            parse_experiment(payload)

    def test_is_the_only_parser_on_the_server(self):
        bare = set()
        for folder in ("server", "planning", "fleet", "simulator", "studies", "cli", "web", "hushmote"):
            for path in (ROOT / folder).rglob("*.py"):
                if "static" not in path.parts and re.search(r"Experiment\.parse\b", path.read_text("utf-8")):
                    bare.add(path.relative_to(ROOT).as_posix())
        assert bare == BARE | {"server/wire/experiments.py", "simulator/contract/codes_board.py"}

    def test_agrees_with_the_board(self):
        payload = json.dumps(json.loads(experiment_json())).encode()
        assert vars(parse_experiment(payload)).keys() == vars(Experiment.parse(payload)).keys()


CODE_COUNT = "    exp.code_count = 2\n"


class TestOwnMechanism:
    def test_module_is_loaded_only_by_parse_experiment(self, own_folder: Callable[[str, str], str]):
        word = own_folder("loaded_first", COIN + '\nregister("loaded_first")\n')
        payload = experiment_json(mechanism=word)
        with pytest.raises(
            ExperimentRefused, match="this board does not support mechanism loaded_first:Coin"
        ):
            Experiment.parse(payload)
        assert "loaded_first" not in sys.modules
        experiment = parse_experiment(payload)
        assert (experiment.mechanism, experiment.code_count) == (word, 2)
        assert Experiment.parse(payload).code_count == 2
        assert word in ldp_client.MECHANISMS

    @pytest.mark.parametrize(
        "word",
        ["os", "os:", ":x", "os.path:join:x", "../evil:X", "evil-1:X", "évil:X", "a b:X", "evil:X\n", ""],
    )
    def test_name_of_another_form_is_never_imported(self, word: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"imported {name}"))
        assert not is_own(word)
        with pytest.raises(ExperimentRefused):
            parse_experiment(experiment_json(mechanism=word))

    def test_load_error_is_one_line(self, own_folder: Callable[[str, str], str]):
        own_folder("broken_on_import", "raise ValueError('two\\nlines')")
        for word, text in [
            (
                "no_such_module:X",
                "mechanism no_such_module:X: cannot find module no_such_module; run hushmote in",
            ),
            (
                "broken_on_import:X",
                "mechanism broken_on_import:X: broken_on_import cannot be imported: ValueError: two lines",
            ),
            ("json:loads", "this board does not support mechanism json:loads"),
        ]:
            with fails(re.escape(text), ExperimentRefused):
                parse_experiment(experiment_json(mechanism=word))

    @pytest.mark.parametrize(
        ("right", "wrong", "text"),
        [
            (CODE_COUNT, "    raise SystemExit(0)\n", "its take raises SystemExit: 0"),
            (CODE_COUNT, "    raise ValueError('two\\nlines')\n", "its take raises ValueError: two lines"),
            (
                CODE_COUNT,
                "    exp.code_count = 16.0\n",
                "its take sets code_count to 16.0, which is not an integer",
            ),
            (
                CODE_COUNT,
                CODE_COUNT + "    exp.epsilon *= 2\n",
                "its take changes epsilon from 1000000 to 2000000",
            ),
            (CODE_COUNT, "    exp.code_count = 1 << 25\n", "more than 16777216 codes"),
            (CODE_COUNT, "    exp.code_count = True\n", "more than 16777216 codes"),
            (
                CODE_COUNT,
                f"    exp.epsilon *= 2\n{CODE_COUNT}",
                "its take changes epsilon from 1000000 to 2000000",
            ),
            (
                "(take, randomize)",
                "take",
                'register two functions: MECHANISMS["{name}:Coin"] = (take, randomize)',
            ),
            ("(take, randomize)", "(take, 3)", "must register two functions"),
        ],
        ids=[
            "exits",
            "raises",
            "float code count",
            "changes a field",
            "too many codes",
            "bool code count",
            "other epsilon",
            "one function",
            "number instead of a function",
        ],
    )
    def test_board_file_error_is_one_line(
        self, own_folder: Callable[[str, str], str], right: str, wrong: str, text: str
    ):
        assert COIN.count(right) == 1
        name = "wrong_" + re.sub(r"\W", "", wrong)
        word = own_folder(name, COIN.replace(right, wrong) + f'\nregister("{name}")\n')
        with fails(re.escape(text.format(name=name)), ExperimentRefused):
            parse_experiment(experiment_json(mechanism=word))

    @pytest.mark.parametrize(
        "line",
        [
            'ldp_client.MECHANISMS["grr"] = (take, randomize)',
            'del ldp_client.MECHANISMS["grr"]',
            'ldp_client.TYPES["number"] = (take, randomize)',
            'ldp_client.MECHANISMS["pgr"] = (take, randomize)\n1 / 0',
        ],
        ids=["replaces mechanism", "deletes mechanism", "replaces type", "replaces and fails"],
    )
    def test_shipped_name_keeps_its_entry(self, own_folder: Callable[[str, str], str], line: str):
        before = dict(ldp_client.MECHANISMS), dict(ldp_client.TYPES)
        name = "replaces_" + re.sub(r"\W", "", line)
        word = own_folder(name, COIN + f'\nregister("{name}")\n{line}\n')
        for _ in range(2):  # the module is already imported the second time
            with pytest.raises(ExperimentRefused, match=rf"{name} replaces (grr|number|pgr), which Hushmote"):
                parse_experiment(experiment_json(mechanism=word))
            for shipped, now in zip(before, (ldp_client.MECHANISMS, ldp_client.TYPES), strict=True):
                assert {word: now[word] for word in shipped} == shipped
        assert parse_experiment(experiment_json()).mechanism == "rr"
