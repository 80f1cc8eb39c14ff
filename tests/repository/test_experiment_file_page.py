"""docs/experiment-file.md has every field, the error messages, and its commands' output."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import jsonschema
import make_schema
import pytest
from command_line import hushmote

from hushmote.device.ldp_client import Experiment, ExperimentRefused
from hushmote.server.experiments import definition
from hushmote.server.experiments.budget import ExperimentBudget
from hushmote.server.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "experiment-file.md").read_text("utf-8")
WIRE_FORMAT = (ROOT / "docs" / "wire-format.md").read_text("utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
ROOM = (ROOT / "examples" / "room_temp.toml").read_text("utf-8")


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables in a section, without headings."""
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# A line for examples/room_temp.toml -> the error message.
MISTAKES = [
    ("epsillon = 1.0", "epsillon is not a field of an experiment: did you mean epsilon?"),
    ('name = "Room Temp"', "name must be 1 to 32 of a-z, 0-9, _ and -, not 'Room Temp'"),
    ('expires = "soon"', "expires must be a date such as 2027-12-31, not 'soon'"),
    ('type = "colour"', "type must be 'bool', 'choice', 'number', 'text' or 'pair', not 'colour'"),
    (
        'labels = ["Ku\\u0308che"]',
        "label 'Ku\\u0308che' is not in the Unicode form NFC, in which a letter and its accent are one "
        "character: write 'Küche'",
    ),
    ('labels = ["a", "b"]', "labels are needed for a choice and only for a choice"),
    ("low = 60", "low must be less than high"),
    ("high = 50.0001", "high must be a whole number of thousandths of its unit, not 50.0001"),
    ('statistics = "joint"', "statistics of a number must be one of ranges, frequencies, quantiles, mean"),
    ('ranges = ["18-22"]', "ranges: a range must be low:high, such as 20:25 or :0, not 18-22"),
    (
        'mechanism = "rappor"',
        "mechanism must be auto, one listed by hushmote mechanisms, or package.module:Class",
    ),
    ("g = 7", 'g is only for mechanism = "olh"'),
    ("epsilon = 17", "epsilon must be from 0.001 to 16, not 17"),
    ("every = 0", "every must be an integer from 1 to 16777216"),
    ('window = "week"', "window must be 'hour', 'day' or 'all', not 'week'"),
    ("budget = {}", "budget: write theorem and epsilon (the total of all reports), or rule and cap"),
    (
        'budget = {rule = "sum", cap = 0.5}',
        "the budget's cap is below the cost of one report: no board would report",
    ),
    ('budget = {rule = "sum"}', "budget: cap is needed for sum, squares and count, and absent for unlimited"),
    (
        'budget = {theorem = "zcdp"}',
        "budget: epsilon is missing: give the total of all reports under zcdp, in nats",
    ),
    (
        'budget = {theorem = "optimal", epsilon = 4}',
        "budget: optimal composition needs a delta above 0 (such as 1e-6); without one, use basic",
    ),
    (
        'budget = {theorem = "basic", epsilon = 4, reports = 5}',
        "budget: basic composition allows 4 reports of ε = 1 within 4, not 5",
    ),
]
# A field in a board's JSON -> the message with which boards reject its value in WRONG_VALUES.
REFUSAL_MESSAGES = {
    "v": "v must be an integer from 1 to 1",
    "name": "name must be 1 to 32 of a-z, 0-9, _ and -",
    "type": "this board does not support type colour",
    "labels": "labels must differ and have 1 to 64 bytes",
    "low": "low must be less than high",
    "bins": "bins must be an integer from 2 to 16777216",
    "missing": "missing must be an integer from 1 to 1",
    "salt": "salt must be 1 to 32 bytes",
    "slots": "slots must be a power of 2",
    "of": "of must be 2 or 3 objects",
    "mechanism": "this board does not support mechanism rappor",
    "g": "cells: 4 must be 256 or a prime below it",
    "reach": "reach must be an integer from 0 to 8388608",
    "q": "q must be a prime",
    "weights": "the last weight must not be 0",
    "views": "views must differ and ascend",
    "epsilon": "epsilon must be an integer from 1000 to 16000000",
    "group": "group must be 1 to 32 of a-z, 0-9, _ and -",
    "groups": "groups must differ and have 1 to 32 bytes",
    "every": "every must be an integer from 1 to 16777216",
    "budget": "budget must be an object",
    "rule": "this board does not support rule summ",
    "cap": "cap must be an integer from 1 to 18014398509481983",
    "window": "this board does not support window week",
}
TWO = [{"name": "a", "type": "bool"}, {"name": "b", "type": "bool"}]
WRONG_VALUES = {
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
    "group": {"group": "Firmware", "groups": ["1"]},
    "groups": {"group": "firmware", "groups": ["1", "1"]},
    "every": {"every": 0},
    "budget": {"budget": 4},
    "rule": {"budget": {"rule": "summ"}},
    "cap": {"budget": {"rule": "sum", "cap": 1 << 54}},
    "window": {"window": "week"},
}


class TestBoard:
    @pytest.mark.parametrize("field", REFUSAL_MESSAGES)
    def test_names_the_field_it_refuses(self, field: str):
        fields = json.loads(definition.parse(ROOM).payload())
        assert field in WRONG_VALUES, f"add an invalid {field} to WRONG_VALUES"
        with pytest.raises(ExperimentRefused, match=f"^{re.escape(REFUSAL_MESSAGES[field])}"):
            Experiment.parse(json.dumps(fields | WRONG_VALUES[field]).encode())

    def test_refuses_unknown_missing_and_too_fine_fields(self):
        fields = json.loads(definition.parse(ROOM).payload())
        without = {name: value for name, value in fields.items() if name != "epsilon"}
        for bad_fields, text in (
            (fields | {"x": 1}, "unknown field x"),
            (without, "epsilon is missing"),
            (
                fields | {"epsilon": 1000, "bins": 1 << 24, "mechanism": "grr"},
                "epsilon is too small for so many",
            ),
        ):
            bad_fields = {
                k: v
                for k, v in bad_fields.items()
                if bad_fields["mechanism"] == "hh" or k not in ("fanout", "cells", "weights")
            }
            with pytest.raises(ExperimentRefused, match=text):
                Experiment.parse(json.dumps(bad_fields).encode())


class TestMistakes:
    @pytest.mark.parametrize(("written", "message"), MISTAKES)
    def test_get_one_line_that_names_the_field(self, written: str, message: str):
        field = written.split(" =")[0]
        text = re.sub(rf"^{field} = .*\n", "", ROOM, flags=re.MULTILINE)
        if field == "budget":
            text = text.split("[budget]")[0]
        with pytest.raises(definition.DefinitionError) as caught:
            definition.parse(f"{written}\n{text}").payload()
        assert str(caught.value).startswith(message)


class TestExamples:
    @pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
    def test_name_matches_experiment_and_fits_board(self, example: Path):
        assert definition.load(example).name == example.stem == definition.load(example).experiment().name


class TestPage:
    def test_has_every_file_and_json_field(self):
        listed = {
            name for row in rows(PAGE, "Fields of the file") for name in re.findall(r"`\[?(\w+)\]?`", row[0])
        }
        parameters = {name for mechanism in MECHANISMS.values() for name in mechanism.parameters}
        assert listed == set(definition.Definition.model_fields) - {"parameters"} | parameters | set(
            ExperimentBudget.model_fields
        ), "the first table of docs/experiment-file.md"
        fields_of_table = rows(WIRE_FORMAT, "An experiment")
        named = {name for row in fields_of_table for name in re.findall(r"`(\w+)`", row[0])}
        (budget,) = (row for row in fields_of_table if row[0] == "`budget`")
        named |= set(re.findall(r"`(\w+)`:", budget[2]))
        known = {"missing", "scale"}  # not set in any example
        for example in EXAMPLES:
            fields = json.loads(definition.load(example).payload())
            known |= set(fields) | set(fields["budget"])
        assert named == known | parameters, "the table of the JSON in docs/wire-format.md"

    def test_shows_its_commands_output(self):
        examples = re.findall(r"```sh\nhushmote ([^\n]*)\n```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
        assert len(examples) == 1
        for command, expected in examples:
            printed = hushmote(*shlex.split(command), cwd=ROOT)
            shown_lines = expected.splitlines()  # the page omits the next steps
            assert [line.rstrip() for line in printed.splitlines()][: len(shown_lines)] == shown_lines, (
                command
            )


class TestSchema:
    SCHEMA = make_schema.schema()
    VALID = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())

    def problems(self, text: str) -> list[str]:
        plain = json.loads(json.dumps(tomllib.loads(text), default=str))  # dates become text
        return [error.message for error in self.VALID.iter_errors(plain)]

    def test_file_is_current(self):
        assert make_schema.FILE.read_text("utf-8") == make_schema.text(), "run tools/make_schema.py"
        self.VALID.check_schema(self.SCHEMA)

    @pytest.mark.parametrize(
        "path", [*EXAMPLES, *(ROOT / "planning" / "std").glob("*.toml")], ids=lambda path: path.stem
    )
    def test_accepts_our_files(self, path):
        assert self.problems(path.read_text("utf-8")) == []

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('owmer = "x"', "'owmer'"),
            ('window = "minute"', "'minute' is not one of"),
            ('missing = "yes"', "'yes' is not of type 'boolean'"),
            ("expires = 5", "5 is not of type 'string'"),
        ],
    )
    def test_names_what_hushmote_refuses(self, line: str, message: str):
        kept = [old for old in ROOM.splitlines() if old.partition(" = ")[0] != line.partition(" = ")[0]]
        text = "\n".join([line, *kept])
        with pytest.raises(definition.DefinitionError):
            definition.parse(text)
        assert any(message in problem for problem in self.problems(text))

    def test_hushmote_ignores_its_address(self):
        assert definition.parse(f'"$schema" = "x"\n{ROOM}') == definition.parse(ROOM)
        assert self.problems(f'"$schema" = "x"\n{ROOM}') == []

    def test_parameters_of_own_mechanisms_may_have_any_name(self):
        own = f'mechanism = "mine:Mine"\nshape = 3\n{ROOM}'
        assert self.problems(own) == []
        assert self.problems(own.replace("mine:Mine", "auto"))
