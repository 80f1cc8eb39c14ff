"""docs/experiment-file.md has every field, the messages for mistakes, and the output of its commands."""

import json
import re
import shlex
from pathlib import Path

import pytest
from command_line import hushmote

from hushmote.device.ldp_client import Experiment, ExperimentRefused
from hushmote.server.experiments import definition
from hushmote.server.experiments.budget import ExperimentBudget
from hushmote.server.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "experiment-file.md").read_text("utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
ROOM = (ROOT / "examples" / "room_temp.toml").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the tables in a section, without headings."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


MISTAKES = [(row[0].strip("` "), row[1].strip("` ")) for row in rows("Error messages")]
# A field of a board's JSON -> the text with which its row says that boards refuse it.
REFUSED = {
    re.findall(r"`(\w+)`", row[0])[0]: texts[-1]
    for row in rows("The JSON that boards get")
    if " " in (texts := re.findall(r"`([^`]+)`", row[2]) or [""])[-1]
}
TWO = [{"name": "a", "type": "bool"}, {"name": "b", "type": "bool"}]
WRONG = {
    "v": {"v": 2},
    "name": {"name": "Room"},
    "type": {"type": "colour"},
    "labels": {"type": "choice", "labels": ["a", "a"]},
    "salt": {"type": "text", "salt": ""},
    "slots": {"type": "text", "salt": "s", "slots": 1000},
    "of": {"type": "pair", "of": []},
    "views": {
        "type": "pair",
        "of": TWO,
        "mechanism": "views",
        "views": [[1, 0]],
        "cells": [2],
        "weights": [1],
    },
    "low": {"low": 60_000},
    "bins": {"bins": 1},
    "missing": {"missing": 2},
    "mechanism": {"mechanism": "rappor"},
    "g": {"mechanism": "olh", "g": 4},
    "reach": {"mechanism": "sw", "reach": -1},
    "q": {"mechanism": "pgr", "q": 9},
    "weights": {"weights": [1] * 7 + [0]},
    "epsilon": {"epsilon": 1.0},
    "every": {"every": 0},
    "budget": {"budget": 4},
    "rule": {"budget": {"rule": "summ"}},
    "cap": {"budget": {"rule": "sum", "cap": 1 << 54}},
    "window": {"window": "week"},
}


class TestBoard:
    @pytest.mark.parametrize("field", REFUSED)
    def test_refuses_fields_in_documented_words(self, field: str):
        fields = json.loads(definition.parse(ROOM).payload())
        assert field in WRONG, f"say in WRONG how {field} can be wrong"
        with pytest.raises(ExperimentRefused, match=f"^{re.escape(REFUSED[field])}"):
            Experiment.parse(json.dumps(fields | WRONG[field]).encode())

    def test_refuses_invalid_json_in_documented_words(self):
        fields = json.loads(definition.parse(ROOM).payload())
        without = {name: value for name, value in fields.items() if name != "epsilon"}
        for wrong, text in (
            (fields | {"x": 1}, "unknown field x"),
            (without, "epsilon is missing"),
            (
                fields | {"epsilon": 1000, "bins": 1 << 24, "mechanism": "grr"},
                "epsilon is too small for so many",
            ),
        ):
            assert text in PAGE
            wrong = {
                k: v
                for k, v in wrong.items()
                if wrong["mechanism"] == "hh" or k not in ("fanout", "cells", "weights")
            }
            with pytest.raises(ExperimentRefused, match=text):
                Experiment.parse(json.dumps(wrong).encode())


class TestExamples:
    @pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
    def test_name_matches_experiment_and_fits_board(self, example: Path):
        assert definition.load(example).name == example.stem == definition.load(example).experiment().name


class TestPage:
    def test_has_every_field_of_file_and_json(self):
        listed = {name for row in rows("Fields of the file") for name in re.findall(r"`\[?(\w+)\]?`", row[0])}
        own = {name for mechanism in MECHANISMS.values() for name in mechanism.parameters}
        assert listed == set(definition.Definition.model_fields) - {"parameters"} | own | set(
            ExperimentBudget.model_fields
        ), "the first table of docs/experiment-file.md"
        named = {name for row in rows("The JSON that boards get") for name in re.findall(r"`(\w+)`", row[0])}
        known = {"missing"}  # which no example sets
        for example in EXAMPLES:
            fields = json.loads(definition.load(example).payload())
            known |= set(fields) | set(fields["budget"])
        assert named == known | own, "the table of the JSON in docs/experiment-file.md"

    @pytest.mark.parametrize(("written", "said"), MISTAKES)
    def test_quotes_messages_for_mistakes(self, written: str, said: str):
        field = written.split(" =")[0]
        text = re.sub(rf"^{field} = .*\n", "", ROOM, flags=re.MULTILINE)
        if field == "budget":
            text = text.split("[budget]")[0]
        with pytest.raises(definition.DefinitionError) as caught:
            definition.parse(f"{written}\n{text}").payload()
        assert str(caught.value).startswith(said)

    def test_lists_mistakes(self):
        assert len(MISTAKES) > 20

    def test_shows_output_of_its_commands(self):
        shown = re.findall(r"```sh\nhushmote ([^\n]*)\n```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
        assert len(shown) == 1
        for command, expected in shown:
            printed = hushmote(*shlex.split(command), cwd=ROOT)
            shown_lines = expected.splitlines()  # what to do next is left out of the page
            assert [line.rstrip() for line in printed.splitlines()][: len(shown_lines)] == shown_lines, (
                command
            )
