"""Ranges in the reading's unit: names, and notes about moved bounds."""

import numpy as np
import pytest
from designs import choice, number
from refusals import Refusal, refusals

from hushmote.server.experiments.units import (
    UnitsError,
    edge_names,
    edges_between,
    moved_note,
    parse_range,
    range_name,
)

ROOM = number(256, 1, low=-14_000, high=50_000, name="room_temp")


@pytest.mark.parametrize(
    ("requested", "text", "moved"),
    [
        ("18:22", "18 to 22", False),
        ("24:", "24 and above", False),
        (":-13.75", "below -13.75", False),
        ("18.25:22", "18.25 to 22", False),
        ("18.1:22", "18 to 22", True),
        ("18:22.01", "18 to 22", True),
        ("-40:22", "below 22", True),
        ("-14:50", "any", False),
    ],
)
def test_notes_a_bound_between_edges(requested: str, text: str, moved: bool):
    result = parse_range(ROOM, requested)
    assert (result.text, result.original_text) == (text, requested if moved else "")
    note = moved_note(ROOM, [result], "°C")
    assert note == (f"{requested} is counted as {text}: bins are 0.25 °C wide, from -14." if moved else "")


def test_notes_several_ranges_in_one_sentence_but_no_labels():
    ranges = [parse_range(ROOM, text) for text in ("18.1:22", "0:4", "1:1.9")]
    assert moved_note(ROOM, ranges) == (
        "18.1:22 is counted as 18 to 22; 1:1.9 is counted as 1 to 2: bins are 0.25 wide, from -14."
    )
    modes = choice(["idle", "door"], 2)
    assert moved_note(modes, [parse_range(modes, "door")]) == ""


@refusals(
    ("18:18.1", "the range 18:18.1 contains no whole bin of -14 to 50: bins are 0.25 wide, from -14"),
    ("22:18", "a range must go from low to high, not 22:18"),
    ("18:18", "a range must go from low to high, not 18:18"),
    ("18", "a range must be low:high, such as 20:25 or :0, not 18"),
    call=lambda text: parse_range(ROOM, text),
    error=UnitsError,
)
def test_rejects_an_impossible_range(refusal: Refusal):
    refusal.check()


@pytest.mark.parametrize(("low", "high", "bins"), [(0, 7_000_000_000, 1000), (-1, 2, 3), (0, 1_000, 3)])
def test_edge_names_differ_between_neighbours(low: int, high: int, bins: int):
    """Six digits would give neighbours among millions the same name."""
    edges = edges_between(low, high, bins)
    names = edge_names(edges)
    assert len(set(names)) == bins + 1
    assert np.array([float(name) for name in names]) == pytest.approx(edges, abs=(high - low) / bins / 1e6)


@pytest.mark.parametrize("text", ["any", "Any reading"])
def test_name_of_all_readings_is_a_range(text: str):
    result = parse_range(ROOM, text)
    assert (result.low, result.high) == (0, ROOM.domain)


def test_names_of_printed_rows_are_ranges():
    for low, high in ((0, 3), (2, 5), (4, ROOM.domain), (0, 1)):
        name = range_name(ROOM, low, high)
        result = parse_range(ROOM, name)
        assert (result.low, result.high, result.original_text) == (low, high, "")


def test_reads_thousands_in_ranges():
    rpm = number(4, 2, low=0, high=4_000_000, name="rpm")
    assert parse_range(rpm, "1,000:2k").text == "1000 to 2000"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("≥ 24", "24 and above"),
        (">= 24", "24 and above"),
        ("at least 24", "24 and above"),
        ("< 18", "below 18"),
        ("−10–−6", "-10 to -6"),
        ("18 – 22", "18 to 22"),
        ("18 - 22", "18 to 22"),
        ("-10 - -6", "-10 to -6"),
    ],
)
def test_reads_ranges_as_people_write_them(text: str, name: str):
    assert parse_range(ROOM, text).text == name


@pytest.mark.parametrize("text", ["> 24", "≤ 18", "24"])
def test_rejects_ranges_with_other_ends(text: str):
    with pytest.raises(UnitsError, match="must be low:high"):
        parse_range(ROOM, text)


class TestLabel:
    MODES = choice(["off", "Eco", "eco", "far away", "=1+1", "x - y"], 1)

    @pytest.mark.parametrize(
        ("text", "label"),
        [
            ("Off", "off"),
            (" OFF ", "off"),
            ('"far away"', "far away"),
            ("eco", "eco"),
            ("Other", "other"),
            ("'=1+1", "=1+1"),
            ("X - Y", "x - y"),
        ],
    )
    def test_ignores_case_and_quotes(self, text: str, label: str):
        assert parse_range(self.MODES, text).text == label

    def test_rejects_other_case_if_labels_differ_in_case(self):
        with pytest.raises(UnitsError, match="no label ECO"):
            parse_range(self.MODES, "ECO")
