"""`hushmote mechanisms`: what there is appears by itself, on 80 columns, with the numbers of its JSON."""

import json
import math
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hushmote.cli.mechanisms.command import mechanisms_command
from hushmote.cli.mechanisms.tables import points
from hushmote.cli.options import understood
from hushmote.device import ldp_client
from hushmote.planning.devices import Z
from hushmote.planning.listing import ASKED, listing, workload_of
from hushmote.server import mechanisms
from hushmote.server.answers import tables as show
from hushmote.server.errors import UsageError
from hushmote.server.mechanisms.choice import Choice
from hushmote.server.mechanisms.choose import choose, designs
from hushmote.server.mechanisms.direct import Direct
from hushmote.server.mechanisms.peers import PEERS, Asked
from hushmote.server.mechanisms.workload import FREQUENCIES, Workload

EXAMPLES = Path(__file__).parents[2] / "examples"

app = typer.Typer()
understood(mechanisms_command)
app.command()(mechanisms_command)


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show.out, "_width", 80)


def run(line: str) -> str:
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


@pytest.mark.parametrize("line", ["", "--values 2", *(f"--for {word} --epsilon 4" for word in ASKED)])
def test_tables_fit_eighty_columns(line: str):
    printed = run(line)
    assert "auto takes" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_every_mechanism_of_the_registry_is_there():
    found = json.loads(run("--json"))
    shown = {one["mechanism"] for question in found["questions"] for one in question["mechanisms"]}
    assert shown | set(found["besides"]) == set(mechanisms.MECHANISMS)
    assert {"grr", "olh", "hh"} <= shown
    printed = run("")
    assert [word for word in mechanisms.MECHANISMS if word not in printed] == []


@pytest.mark.parametrize("asked", ASKED)
def test_tables_and_json_say_the_same(asked: Asked):
    line = f"--for {asked} --values 32 --epsilon 2 --devices 5000"
    printed, (found,) = run(line), json.loads(run(f"{line} --json"))["questions"]
    variances = [one["variance_times_reports"] for one in found["mechanisms"]]
    assert variances == sorted(variances)
    for one in (*found["mechanisms"], *found["peers"]):
        if one["half_width_95"] is None:  # what tells nothing of it
            assert one["name"] == "SMP"
            continue
        assert one["half_width_95"] == pytest.approx(Z * math.sqrt(one["variance_times_reports"] / 5000))
        assert points(one["half_width_95"]) in printed
        assert one["citation"]
    assert found["why"] in " ".join(printed.split())
    workload, values = workload_of(asked, 32)
    assert found["auto"] == choose(values, 2_000_000, workload).mechanism
    assert {peer["name"] for peer in found["peers"]} == {p.name for p in PEERS if p.asked == asked}


def test_draws_are_those_of_the_boards_code():
    """olh draws a seed, whether to tell the truth, and a lie; grr the last two."""
    found = {one.word: one.draws for one in listing("frequency", 64, 1_000_000).listed}
    assert found["olh"] == 3
    assert found["grr"] == 2


class Mine(Direct):
    """The truth in words of its own.

    Privacy: as grr's. Utility: none. Cost: D codes. Citation: this test.
    """

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        if workload == FREQUENCIES:
            yield Choice("mine", (), 1e-3)


def test_a_line_in_the_registry_is_enough(monkeypatch: pytest.MonkeyPatch):
    """A new mechanism is listed, first if it errs least, with what its file says of it."""
    registry = {**mechanisms.MECHANISMS, "mine": Mine}
    for module in [m for name, m in sys.modules.items() if name.startswith("hushmote.")]:
        if getattr(module, "MECHANISMS", None) is mechanisms.MECHANISMS and module is not mechanisms:
            monkeypatch.setattr(module, "MECHANISMS", registry)
    monkeypatch.setattr(mechanisms, "MECHANISMS", registry)
    monkeypatch.setitem(ldp_client.MECHANISMS, "mine", ldp_client.MECHANISMS["grr"])
    for cached in (choose, designs, listing):
        cached.cache_clear()
    try:
        printed = run("--for frequency")
    finally:
        for cached in (choose, designs, listing):
            cached.cache_clear()
    assert "auto takes mine: it has the least error of those here." in printed
    assert "The truth in words of its own." in printed
    assert "Citation: this test." in printed


def test_one_of_ones_own_stands_beside_them(monkeypatch: pytest.MonkeyPatch):
    """The example is optimised unary encoding, of which a formula is known; its errors are by its law."""
    monkeypatch.syspath_prepend(EXAMPLES / "channels")
    line = "--values 8 --epsilon 2 --own unary:Unary --json"
    found = {question["for"]: question for question in json.loads(run(line))["questions"]}
    (mine,) = [one for one in found["frequency"]["mechanisms"] if one["mechanism"] == "unary:Unary"]
    formula = next(p for p in found["frequency"]["peers"] if p["name"] == "OUE")
    assert mine["variance_times_reports"] == pytest.approx(formula["variance_times_reports"], rel=1e-6)
    assert mine["codes"] == 256
    for asked in ("range", "quantile", "mean"):
        assert "unary:Unary" in {one["mechanism"] for one in found[asked]["mechanisms"]}
    large = json.loads(run("--for frequency --own unary:Unary --json"))  # more values than it takes
    assert "unary:Unary" in large["besides"]


def test_a_picture_is_written_once(tmp_path: Path):
    picture = tmp_path / "mechanisms.png"
    run(f"--for frequency --values 16 --plot {picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(AssertionError, match="is there already"):
        run(f"--for frequency --values 16 --plot {picture}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--values 1", "--values must be from 2 to 1048576, not 1"),
        ("--epsilon 17", "--epsilon must be from 0.001 to 16, not 17"),
        ("--epsilon nan", "--epsilon must be from 0.001 to 16, not nan"),
        ("--for labels --values 1000", "--values of labels are slots, a power of 2 such as 65536, not 1000"),
        ("--devices 1", "--devices must be from 2 to 1099511627776, not 1"),
        ("--plot picture.gif", "picture.gif must end in .png or .pdf or .svg: that says what is written"),
    ],
)
def test_mistakes_are_one_line(line: str, said: str):
    done = CliRunner().invoke(app, shlex.split(line))
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == said
