"""Readings that somebody has propose a plan, and a file's planned case is simulated as it was planned."""

import datetime
from pathlib import Path

import pytest

from hushmote.planning.answer import answer
from hushmote.planning.experiment_file import Named
from hushmote.planning.wish import Wish
from hushmote.server.experiments.definition import parse
from hushmote.simulator.population import PopulationError, read_csv
from hushmote.simulator.proposal import column_of, proposed
from hushmote.simulator.simulate import simulate

ROWS = "id;Temperatur (°C);temp_f;rooms;mode;open;same;note;empty;tiny\n" + "".join(
    f"x{i};{15 + i / 10:.1f};{60 + i},5;{1 + i % 6};"
    f"{('heat', 'idle', 'other')[i % 3]};{('Yes', 'no')[i % 2]};"
    f"7,5;n{i};;{i / 10000}\n".replace(".", ",", 1)
    for i in range(100)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.csv"
    file.write_text(ROWS, encoding="utf-8-sig")
    return file


def test_a_column_proposes_type_range_bins_and_unit(data: Path):
    wish = proposed(f"{data}:Temperatur (°C)", Wish()).wish
    assert (wish.values, wish.low, wish.high, wish.unit) == (50, 15.0, 25.0, "°C")
    assert (wish.epsilon, wish.error, wish.devices) == (2.0, 0.05, None)
    wish = proposed(f"{data}:temp_f", Wish(devices=1000, low=0, high=200)).wish
    assert (wish.low, wish.high, wish.unit, wish.epsilon, wish.error) == (0, 200, "°F", 2.0, None)
    wish = proposed(f"{data}:rooms", Wish()).wish
    assert (wish.values, wish.low, wish.high, wish.unit) == (6, 1, 7, "")
    assert proposed(f"{data}:mode", Wish()).wish.values == ("heat", "idle")
    assert proposed(f"{data}:open", Wish()).wish.values == "yes-no"


def test_a_few_readings_far_away_are_no_part_of_the_range(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text("x\n" + "".join(f"{20 + i / 1000}\n" for i in range(999)) + "9999\n")
    made = proposed(f"{file}:x", Wish())
    assert (made.wish.low, made.wish.high) == (20.0, 21.0)
    assert "1 reading beyond that" in made.words


def test_a_decimal_comma_is_read_where_no_comma_stands_between(data: Path, tmp_path: Path):
    assert read_csv(data, "temp_f").readings[:2] == (60.5, 61.5)
    quoted = tmp_path / "b.csv"
    quoted.write_text('x,y\n"1,234",2\n')
    with pytest.raises(PopulationError, match="not a number"):
        read_csv(quoted, "x")
    thousands = tmp_path / "c.csv"
    thousands.write_text("x;y\n1.234,5;2\n-0,5;2\n1.234;3\n")
    assert read_csv(thousands, "x").readings == (1234.5, -0.5, 1.234)


@pytest.mark.parametrize(
    ("column", "bins", "says"),
    [
        (":none", None, "has no column 'none'; it has id, Temperatur"),
        ("", None, "--input needs a column: --input "),
        (":empty", None, "has no reading: all its cells are empty"),
        *((":same", bins, "all readings in same of") for bins in (None, 64)),
        (":note", None, "has 100 different texts, too many for labels"),
        (":tiny", None, "boards tell thousandths apart"),
    ],
)
def test_what_proposes_nothing_is_one_line(data: Path, column: str, bins: int | None, says: str):
    with pytest.raises(PopulationError) as refused:
        proposed(f"{data}{column}", Wish(values=bins))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_first_column_that_proposes_a_plan_is_named(data: Path, tmp_path: Path):
    assert column_of(data) == "Temperatur (°C)"
    (tmp_path / "none.csv").write_text("")
    with pytest.raises(PopulationError, match=r"none.csv is empty$"):
        column_of(tmp_path / "none.csv")


@pytest.mark.parametrize(
    "wish",
    [
        Wish(devices=20_000, epsilon=2, values=16, low=0, high=16, share=0.1),
        Wish(devices=20_000, epsilon=2, values="a,b,c,d", share=0.3),
        Wish(devices=20_000, epsilon=2, values=16, low=0, high=16, quantile=0.9),
        Wish(devices=20_000, epsilon=2, values=16, low=0, high=16, statistics="mean", deviation=2),
        Wish(devices=2_000, lifetime=8, horizon="1y", call="1d", values="yes-no", share=0.05),
    ],
)
def test_a_file_keeps_its_planned_case_and_simulate_shows_it(wish: Wish):
    made = answer(wish)
    definition = parse(made.file(Named("a", None, "me", datetime.date(2027, 1, 1))))
    shown = simulate(definition, seed=1)
    assert shown.devices == wish.devices
    assert shown.planned is not None
    assert shown.planned.measured == pytest.approx(shown.planned.planned, rel=0.1)
    if wish.lifetime is None:
        assert shown.planned.planned == pytest.approx(made.error, rel=1e-3)


class TestMissing:
    def test_blanks_propose_the_setting(self, tmp_path: Path):
        file = tmp_path / "a.csv"
        file.write_text("t,open\n" + "21.5,yes\n20,no\n,\n22.25,yes\n" * 30)
        made = proposed(f"{file}:t", Wish())
        assert made.wish.missing == 0.25
        assert "30 of 120 cells are blank, so the file gets missing = true." in made.words
        assert proposed(f"{file}:open", Wish()).wish.missing == 0.25
        assert proposed(f"{file}:open", Wish(missing=0.1)).wish.missing == 0.1

    def test_without_blanks_nothing_is_proposed(self, tmp_path: Path):
        file = tmp_path / "a.csv"
        file.write_text("t\n" + "21.5\n20\n22.25\n" * 30)
        made = proposed(f"{file}:t", Wish())
        assert made.wish.missing is None
        assert "missing" not in made.words

    def test_a_power_of_two_of_bins_is_one_less(self, tmp_path: Path):
        file = tmp_path / "a.csv"
        file.write_text("t\n" + "".join(f"{i / 10}\n" for i in range(321)))
        bins = [proposed(f"{file}:t", Wish(low=0, high=64, missing=m)).wish.values for m in (None, 0.1)]
        assert bins == [64, 63]
