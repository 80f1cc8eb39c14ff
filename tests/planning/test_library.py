"""The library of questions: each file is valid, planned, and accepts a user's own names and labels."""

import datetime

import make_questions
import pytest
from enumeration import POLICY, MemoryStorage

from hushmote.device.ldp_client import Client, provision
from hushmote.device.preview import preview
from hushmote.planning import library
from hushmote.planning.question_set import set_question
from hushmote.server.errors import UsageError
from hushmote.server.experiments.asks import asks_of
from hushmote.server.experiments.definition import parse
from hushmote.server.experiments.units import UnitsError, parse_range
from hushmote.server.words import label
from hushmote.simulator.population import reading_in

SPECIFIED = {
    "crashed": ("bool", 2, ("yes",)),
    "update": ("choice", 6, ("not ok",)),
    "days_behind": ("number", 16, ("30:",)),
    "unreachable": ("bool", 2, ("yes",)),
    "restart": ("choice", 6, ("panic", "watchdog")),
    "uptime": ("number", 32, (":48", "median")),
    "signal": ("number", 8, (":-80",)),
    "heap_low": ("number", 16, ("10%",)),
    "boot_time": ("number", 16, ("95%",)),
    "battery_life": ("number", 16, ("median",)),
    "chip": ("choice", 8, library.question("chip").labels),
    "feature": ("bool", 2, ("yes",)),
    "setup_step": ("choice", 6, ("not done",)),
}
"""The type, the number of values and the asks of each question."""


class TestFiles:
    @pytest.mark.parametrize("name", library.QUESTIONS)
    def test_question_is_as_specified(self, name: str):
        definition = library.question(name)
        values = definition.domain - definition.missing
        assert (definition.type, values, definition.asks) == SPECIFIED[name]
        assert definition.name == name
        assert definition.purpose.endswith("?")
        assert definition.experiment().epsilon == 2_000_000

    @pytest.mark.parametrize("name", library.QUESTIONS)
    def test_limits_of_asks_are_edges(self, name: str):
        experiment = library.question(name).experiment()
        for ask in asks_of(experiment, library.question(name).asks):
            if ask.kind == "share":
                assert not parse_range(experiment, ask.text).original_text

    @pytest.mark.parametrize("name", library.QUESTIONS)
    def test_planned_numbers_are_current(self, name: str):
        assert make_questions.file_text(name) == library.question_text(name), "run tools/make_questions.py"

    def test_page_has_current_tables(self):
        text = make_questions.PAGE.read_text("utf-8")
        assert make_questions.page() == text, "run tools/make_questions.py"
        assert "| `setup_step` |" in text
        assert "| 12 | ±5.52 | ±6.81 | ±4.81 |" in text

    def test_packs_have_questions_of_the_library(self):
        assert {name for names in library.PACKS.values() for name in names} <= {*library.QUESTIONS}


class TestWording:
    @pytest.mark.parametrize("name", library.QUESTIONS)
    def test_label_states_question_and_answers(self, name: str):
        definition = library.question(name)
        phrase = label.question(name, definition.purpose, definition.experiment(), definition.unit, 4)
        text = label.words_in("en").write(phrase)
        assert text.startswith(f"“{definition.purpose}” ({name}). The answer is ")
        for value in definition.labels or ():
            assert value in text

    @pytest.mark.parametrize("name", library.QUESTIONS)
    def test_preview_explains_a_report(self, name: str):
        storage, definition = MemoryStorage(), library.question(name)
        provision(storage, consent=True)
        policy = POLICY | {"sum": 8_000_000, "epsilon": 2_000_000, "experiments": (name,), "rules": ("sum",)}
        client = Client(policy, storage, "board-1")
        client.enroll(definition.payload())
        reading = reading_in(definition.experiment(), 1)
        text = preview(client, name, reading)
        assert f"{name}: one of " in text
        assert "A report costs epsilon 2; 4 more reports left." in text


class TestCustomize:
    def test_fills_in_owner_day_rate_and_cap(self):
        day = datetime.date(2030, 1, 2)
        text = library.customize("crashed", owner='"me" é', expires=day, every=7, cap="4")
        definition = parse(text)
        assert (definition.owner, definition.expires, definition.every) == ('"me" é', day, 7)
        assert definition.experiment().cap == 4_000_000

    def test_feature_is_named_in_its_purpose(self):
        definition = parse(library.customize("feature", rename="dark_mode"))
        assert definition.name == "dark_mode"
        assert definition.purpose == "How many devices have dark_mode on?"

    def test_own_labels_replace_those_of_the_library(self):
        chip = parse(library.customize("chip", labels=("a", "b")))
        assert (chip.labels, chip.asks) == (("a", "b"), ("a", "b"))
        steps = parse(library.customize("setup_step", labels=("done", "wifi")))
        assert steps.asks == ("not done",)
        assert set_question(steps).question.ranges == ((1, 3),)
        many = parse(library.customize("chip", labels=tuple("abcdefghi")))
        assert many.asks == ("most common",)

    @pytest.mark.parametrize(
        ("name", "labels", "hint"),
        [("crashed", ("a",), "has no labels"), ("setup_step", ("wifi", "done"), "give --label done first")],
    )
    def test_refuses_labels_that_do_not_fit(self, name: str, labels: tuple[str, ...], hint: str):
        with pytest.raises(UsageError, match=hint):
            library.customize(name, labels=labels)

    @pytest.mark.parametrize(
        ("text", "names"),
        [("std:chip", ("chip",)), ("pack:radio", library.PACKS["radio"]), ("chip.toml", ())],
    )
    def test_names_of_an_argument(self, text: str, names: tuple[str, ...]):
        assert library.question_names(text) == names

    @pytest.mark.parametrize("text", ["std:crash", "pack:crashed"])
    def test_unknown_name_lists_those_that_exist(self, text: str):
        with pytest.raises(UsageError, match="it has "):
            library.question_names(text)

    def test_recognizes_a_question_by_its_purpose(self):
        assert library.question_of("crashed", library.question("crashed").purpose) == "crashed"
        assert library.question_of("dark_mode", "How many devices have dark_mode on?") == "feature"
        assert library.question_of("crashed", "Mine?") == ""


class TestAllButOneLabel:
    CHOICE = library.question("update").experiment()

    def test_is_every_label_but_the_first(self):
        selected = parse_range(self.CHOICE, "Not OK")
        assert (selected.low, selected.high, selected.text) == (1, 6, "not ok")
        assert parse_range(self.CHOICE, "not other").high == 5

    @pytest.mark.parametrize(
        ("text", "hint"), [("not verify", "first of the labels"), ("not x", "no label x")]
    )
    def test_refuses_others(self, text: str, hint: str):
        with pytest.raises(UnitsError, match=hint):
            parse_range(self.CHOICE, text)
