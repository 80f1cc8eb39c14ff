"""Tables fitted to the terminal: bars are dropped first, labels are shortened, and numbers are kept."""

import io
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.server.answers import tables
from hushmote.server.answers.answer import Answer
from hushmote.server.answers.rows import (
    TITLES,
    CandidateRow,
    ChangeRow,
    Kind,
    PostRow,
    Quantity,
    Row,
    TopRow,
    TrendRow,
)
from hushmote.server.answers.tables import FittedTable

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?")


def printed(table: object, width: int) -> str:
    """Return the table as printed to a pipe of this width."""
    text = io.StringIO()
    tables.PlainConsole(file=text, width=width).print(table)
    return text.getvalue()


def test_width_defaults_to_80_and_follows_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert tables.PlainConsole().width == 80
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setenv("TERM", "xterm")
    console = tables.PlainConsole(force_terminal=True)
    for columns in (60, 70):
        monkeypatch.setattr(os, "get_terminal_size", lambda _, n=columns: os.terminal_size((n, 20)))
        assert console.width == columns


SHARES = st.floats(-2, 2)
READINGS = st.floats(-1e9, 1e9)
# Labels contain only letters, so all digits in the output belong to numbers.
LABELS = st.text("abcdefgh ", min_size=1, max_size=60).map(str.strip).filter(bool)


@st.composite
def an_answer(draw: st.DrawFn) -> Answer:
    kind: Kind = draw(st.sampled_from(list(TITLES)))
    share = kind not in ("quantiles", "moments")
    x = SHARES if share else READINGS
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 4))):
        value, low, high = draw(x), draw(x), draw(x)
        truth = draw(st.none() | x)
        common = (draw(LABELS), value, min(low, high), max(low, high), truth)
        if kind in ("top", "ties"):
            rows.append(TopRow(*common, probability=draw(st.floats(0, 1))))
        elif kind == "change":
            p = draw(st.floats(0, 1))
            rows.append(ChangeRow(*common, before=draw(x), after=draw(x), p=p, p_adjusted=p))
        elif kind == "trend":
            window, reports = draw(st.dates()).isoformat(), draw(st.integers(2, 10**9))
            rows.append(
                TrendRow(*common, window=window, reports=reports, histogram_epsilon=draw(st.floats(0.01, 10)))
            )
        elif kind in ("histogram", "ranges") and draw(st.booleans()):
            rows.append(PostRow(*common, processed=draw(st.floats(0, 1))))
        else:
            rows.append(Row(*common))
    rows = [row for row in rows if type(row) is type(rows[0])]
    return Answer(kind, "x", "share" if share else "reading", draw(LABELS), 10, 0.95, tuple(rows))


@pytest.mark.slow
@settings(max_examples=150)
@given(an_answer(), st.sampled_from([80, 60]))
def test_narrow_table_keeps_every_number(answer: Answer, width: int) -> None:
    """Compare with the same table at unlimited width, for any rows."""
    table = tables.answer(answer)
    narrow, wide = printed(table, width), printed(table, 500)

    def numbers(text: str) -> list[str]:
        body = [line for line in text.splitlines() if "interval" not in line and "95%" not in line]
        return sorted(NUMBER.findall("\n".join(body)))

    assert set(numbers(wide)) <= set(numbers(narrow))


@pytest.mark.parametrize(
    ("part", "width", "drawn"),
    [("controller", 80, "█"), ("controller", 60, ""), ("controller of the second pump", 60, "…")],
)
def test_drops_bars_first_and_then_shortens_labels(part: str, width: int, drawn: str) -> None:
    rows = tuple(Row(f"the state of the {part}, {name}", 0.5, 0.25, 0.75) for name in ("on", "off"))
    text = printed(tables.answer(Answer("histogram", "mode", "share", "", 9, 0.95, rows)), width)
    assert text.count("50") == 2
    assert text.count("25 to 75") == 2
    assert max(map(len, text.splitlines())) <= width
    assert "".join(dict.fromkeys(letter for letter in text if letter in "█…")) == drawn


@pytest.mark.parametrize(("kind", "row"), [("change", ChangeRow), ("candidates", CandidateRow)])
def test_p_considers_all_rows(kind: Kind, row: type[ChangeRow | CandidateRow]) -> None:
    rows = (row("a", 0.5, 0.25, 0.75, p=0.0123, p_adjusted=0.0456),)
    text = printed(tables.answer(Answer(kind, "mode", "share", "", 9, 0.95, rows)), 80)
    assert "0.0456" in text
    assert "0.0123" not in text


@pytest.mark.parametrize(
    ("kind", "quantity", "row", "headings"),
    [
        ("ranges", "share", Row("a", 0.2, 0.1, 0.3), ["°C", "est. %", "95% interval"]),
        ("quantiles", "reading", Row("a", 0.2, 0.1, 0.3), ["est. °C", "95% interval"]),
        (
            "change",
            "share",
            ChangeRow("a", 0.2, 0.1, 0.3, before=0.3, after=0.5),
            ["before", "after", "change points", "95% interval"],
        ),
        (
            "change",
            "reading",
            ChangeRow("a", 0.2, 0.1, 0.3, before=0.3, after=0.5),
            ["before", "after", "change °C", "95% interval"],
        ),
    ],
)
def test_headings_name_value_and_unit(kind: Kind, quantity: Quantity, row: Row, headings: list[str]) -> None:
    answer = Answer(kind, "temp", quantity, "°C", 9, 0.95, (row,))
    text = printed(tables.answer(answer), 100)
    line = next(line for line in text.splitlines() if "interval" in line)
    columns = re.split(r"  +", line.strip())
    first = columns.index(headings[0])
    assert columns[first : first + len(headings)] == headings


def test_wide_numbers_stay_on_one_line() -> None:
    table = FittedTable()
    table.add_column("label", no_wrap=True)
    for i in range(9):
        table.add_column(f"column {i}", justify="right")
    numbers = [str(10**8 + i) for i in range(9)]
    table.add_row("a label that is rather long", *numbers)
    (line,) = [line for line in printed(table, 60).splitlines() if numbers[0] in line]
    label, *cells = line.split()
    assert label == "a"
    assert cells[-9:] == numbers


def test_texts_break_at_spaces_without_loss() -> None:
    table = FittedTable(show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("")
    sentence = (
        "A sentence that is much longer than the terminal is wide, so it goes on in a line below this one."
    )
    table.add_row("what", sentence)
    lines = printed(table, 60).splitlines()
    assert " ".join(" ".join(lines).split()) == f"what {sentence}"


def test_reading_digits_follow_interval_width() -> None:
    big = Answer("moments", "x", "reading", "", 9, 0.95, (Row("mean", 1234567.125, 1234000, 1235000),))
    assert "1234567  1234000 to 1235000" in str(big)
    small = Answer("moments", "x", "reading", "", 9, 0.95, (Row("mean", 0.00123456, 0.001, 0.0014),))
    assert "0.00123  0.00100 to 0.00140" in str(small)
