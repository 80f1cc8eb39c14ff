"""The differences between two versions are in the vocabulary of the experiment's file."""

import datetime
from pathlib import Path

import pytest

from hushmote.server.experiments.changes import differences
from hushmote.server.experiments.definition import parse
from hushmote.server.store.versions import Version

EXAMPLES = Path(__file__).parents[3] / "examples"
LAST = datetime.date(2027, 12, 31)


def version(text: str) -> Version:
    definition = parse(text)
    payload, words = definition.payload(), definition.description()
    return Version(1, "home", payload, True, LAST, definition.experiment(), LAST, **vars(words))


def changed_fields(old_text: str, new_text: str) -> dict[str, tuple[object, object]]:
    return {d.field: (d.before, d.after) for d in differences(version(old_text), version(new_text))}


class TestDifferences:
    @pytest.mark.parametrize("name", [path.name for path in EXAMPLES.glob("*.toml")])
    def test_same_file_has_none(self, name: str):
        text = (EXAMPLES / name).read_text()
        assert changed_fields(text, text) == {}

    def test_quantities_are_in_nats_and_in_the_unit(self):
        room = (EXAMPLES / "room_temp.toml").read_text()
        wider = room.replace("high = 50", "high = 50.5").replace('"°C"', '"K"')
        assert changed_fields(room, wider) == {"high": (50, 50.5), "unit": ("°C", "K")}

    def test_budget_has_the_files_names(self):
        crash = (EXAMPLES / "board_crash.toml").read_text()
        head, _, _ = crash.partition("[budget]")
        texts = [f'{head}[budget]\nrule = "squares"\ncap = {cap}\n' for cap in (64, 40.5)]
        assert changed_fields(*texts) == {"budget.cap": (64, 40.5)}

    def test_damaged_margin_is_shown_as_it_is(self):
        room = version((EXAMPLES / "room_temp.toml").read_text())
        damaged = Version(**{**vars(room), "worse": "{"})
        assert ("worse", "{", "more") in [(d.field, d.before, d.after) for d in differences(damaged, room)]
