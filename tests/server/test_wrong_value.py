"""Every type of Pydantic error that our models can raise appears in our own words."""

import datetime
import re
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from hushmote.fleet.provisioning.fleet_spec import FleetSpec, describe_error
from hushmote.server.budgets import board_status
from hushmote.server.errors import UsageError
from hushmote.server.experiments.definition import DefinitionError, parse
from hushmote.server.wrong_value import wrong_value
from hushmote.studies import catalogue

ROOT = Path(__file__).parents[2]

# Wrong values of each kind: wrong type, unreadable, too small, too large, missing.
WRONG_VALUES = (
    "abc", "", "x" * 999, "9" * 5000, "1e999", "nan", b"\xff", 5, -(10**40), 10**40, 0, 2.5, -0.5,
    float("nan"), float("inf"), True, None, [], ["a"], [2.5], [[[]]], {}, {"a": 1}, {1: 2}, object(),
    datetime.datetime(2027, 1, 1, 12, tzinfo=datetime.UTC), datetime.date(2027, 1, 1), 2,
)  # fmt: skip
PYDANTIC = re.compile(r"[Ii]nput|should|valid|parse|pydantic|instance|String|List|Tuple|Field|is not valid")


def models():
    """Yield every pydantic model and dataclass in the server, and every study's parameters."""
    for path in sorted((ROOT / "server").rglob("*.py")):
        if "from pydantic" in path.read_text():
            name = ".".join(["hushmote", *path.relative_to(ROOT).with_suffix("").parts])
            for cls in vars(import_module(name)).values():
                if isinstance(cls, type) and cls.__module__ == name and _fields(cls):
                    yield cls
    for name in catalogue.STUDIES:
        yield catalogue.model(name)


def _fields(model):
    return getattr(model, "model_fields", None) or getattr(model, "__pydantic_fields__", None)


def errors():
    for model in models():
        check = TypeAdapter(model)
        tries = [{name: value} for name in [*(_fields(model) or ()), "none_such"] for value in WRONG_VALUES]
        for values in [*tries, *WRONG_VALUES, {}]:
            try:
                check.validate_python(values)
            except ValidationError as e:
                yield from e.errors()
            except (TypeError, UsageError):
                # A model's own check, which never gets such values from a file parser, or its own message.
                continue


class TestMessages:
    def test_every_model_error_is_in_our_words(self):
        texts = {}
        for error in errors():
            text = wrong_value(error)
            assert "\n" not in text
            if error["type"] != "value_error":  # otherwise the text is the model's own
                texts.setdefault(error["type"], text)
                assert not PYDANTIC.search(text), (error["type"], text)
        assert len(texts) > 20, texts

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ('low = "abc"', "low must be a number, not 'abc'"),
            ("low = [1]", "low must be a number, not a list"),
            ("low = true", "low must be a number, not true"),
            ("unit = 7", "unit must be a text, not 7"),
            ("every = 2.5", "every must be a whole number, not 2.5"),
        ],
        ids=[
            "text for a number",
            "list for a number",
            "bool for a number",
            "number for a text",
            "fraction for an integer",
        ],
    )
    def test_experiment_file_error_names_the_right_type(self, line, text):
        fields = {"low": "low = 0", "unit": 'unit = "°C"', "every": "every = 1"}
        fields[line.partition(" ")[0]] = line
        rest = 'name = "a"\npurpose = "p"\nowner = "o"\nexpires = 2027-01-01\n'
        rest += 'type = "number"\nhigh = 9\nbins = 9'
        budget = 'epsilon = 1\n[budget]\nrule = "count"\ncap = 1'
        with pytest.raises(DefinitionError) as caught:
            parse("\n".join([rest, *fields.values(), budget]))
        assert str(caught.value) == text

    def test_board_status_error_names_the_limit(self):
        text = '{"locked": null, "consent": true, "pending": -1, "sum": 0, "squares": 0, "experiments": {}}'
        with pytest.raises(board_status.StatusRefused, match=r"pending must be 0 or more, not -1$"):
            board_status.parse(text)

    def test_optional_field_may_be_null(self):
        with pytest.raises(ValidationError) as caught:
            FleetSpec(fleet="home", hosts=("a",), password_port=[1])  # pyright: ignore[reportArgumentType]
        assert (
            describe_error(caught.value, FleetSpec)
            == "password_port must be a whole number or null, not a list"
        )
