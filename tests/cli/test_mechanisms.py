"""`hushmote mechanisms`: every registered mechanism, in an 80-column table and in JSON."""

import json
import shlex
from collections.abc import Iterable

import pytest
import typer
from typer.testing import CliRunner

from hushmote.cli.mechanisms import mechanisms_command
from hushmote.server import mechanisms
from hushmote.server.mechanisms import MECHANISMS
from hushmote.server.mechanisms.choose import choose
from hushmote.server.mechanisms.direct import Direct
from hushmote.server.mechanisms.workload import ALL_RANGES, FREQUENCIES, MEAN, PREFIXES, Workload

app = typer.Typer()
app.command()(mechanisms_command)


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def run(line: str) -> str:
    result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def auto_of(word: str) -> str:
    (row,) = [row for row in json.loads(run("--json")) if word in row["mechanisms"]]
    return row["auto"]


class TestListing:
    def test_table_and_json_agree(self):
        rows, words = json.loads(run("--json")), run("").split()
        assert [word for row in rows for word in row["mechanisms"]] == list(MECHANISMS)
        for row in rows:
            assert row["use"]
            assert row["auto"]
            assert {*row["use"].split(), *row["auto"].split()} <= {*words}

    def test_table_fits_80_columns(self):
        assert max(map(len, run("").splitlines())) <= 80

    def test_registered_mechanism_appears(self, monkeypatch: pytest.MonkeyPatch):
        class Mine(Direct):
            """Return the truth.

            Auto: nothing. Citation: this test.
            """

        monkeypatch.setattr(mechanisms, "MECHANISMS", {**MECHANISMS, "mine": Mine})
        assert json.loads(run("--json"))[-1] == {
            "mechanisms": ["mine"],
            "use": "Return the truth.",
            "auto": "nothing.",
        }


class TestAuto:
    """Each mechanism is chosen for the purpose stated under "Auto" in its docstring."""

    @pytest.mark.parametrize(
        ("workload", "words", "purpose"),
        [
            (FREQUENCIES, ("grr", "olh", "pgr"), "shares of single values"),
            (ALL_RANGES, ("hh",), "ranges"),
            (PREFIXES, ("hh",), "quantiles"),
            (MEAN, ("sw",), "means"),
        ],
        ids=["shares", "ranges", "quantiles", "mean"],
    )
    def test_purposes(self, workload: Workload, words: Iterable[str], purpose: str):
        picks = {
            choose(domain, epsilon, workload).mechanism
            for domain in (16, 64, 256, 1024)
            for epsilon in (500_000, 1_000_000, 2_000_000, 4_000_000)
        }
        assert picks == {*words}
        assert all(purpose in auto_of(word) for word in words)

    def test_yes_or_no(self):
        assert choose(2, 1_000_000, FREQUENCIES).mechanism == "rr"
        assert "yes-or-no questions" in auto_of("rr")

    def test_few_values_for_their_epsilon(self):
        assert choose(16, 4_000_000, FREQUENCIES).mechanism == "grr"
        assert choose(16, 500_000, FREQUENCIES).mechanism == "olh"

    def test_pairs_of_readings(self):
        pairs = Workload("tables", shape=(8, 8))
        assert choose(64, 1_000_000, pairs).mechanism == "views"
        assert "two or more readings" in auto_of("views")

    def test_unknown_texts(self):
        texts = Workload("texts", levels=3)
        assert choose(2**30, 4_000_000, texts).mechanism == "prefix"
        assert "texts" in auto_of("prefix")
