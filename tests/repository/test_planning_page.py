"""docs/planning.md: its commands print what it shows, and its numbers follow from the theorems."""

import math
import re
from pathlib import Path

import pytest
from flashing import Bench, on_board
from page_commands import command_examples
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.device import main
from hushmote.planning.privacy.histogram import for_reports
from hushmote.server.accounting import choose
from hushmote.server.budgets import policy
from hushmote.server.experiments.definition import parse

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "planning.md").read_text("utf-8")
TOML = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
EXAMPLE = DOCS.parent / "examples" / "night_heating.toml"
PAIRS = command_examples(PAGE, "budget", "experiment")


@pytest.mark.parametrize(("arguments", "expected"), PAIRS, ids=[" ".join(a) for a, _ in PAIRS])
def test_commands_print_what_page_shows(arguments, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("examples").mkdir()
    Path("examples", "night_heating.toml").write_text(TOML, encoding="utf-8")
    Path("my_main.py").write_text(Path(main.__file__).read_text("utf-8"), encoding="utf-8")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert [line.rstrip() for line in result.output.rstrip().splitlines()] == expected


def test_policy_on_page_allows_its_experiment():
    assert len(PAIRS) == 3
    assert EXAMPLE.read_text("utf-8") == TOML
    experiment = parse(TOML).experiment()
    planned_policy = policy.policy_for(2.9, 0, ("night_heating",), 1_450_000, ("sum",))
    assert policy.policy_statement(planned_policy).splitlines() == [
        line for line in PAIRS[1][1] if line.startswith(("POLICY", '    "', "}"))
    ]
    assert planned_policy.remaining_reports(experiment.epsilon) == experiment.cap // experiment.cost() == 2


def test_numbers_follow_from_theorems():
    assert math.log(19) == pytest.approx(2.944438, abs=1e-6)
    counts = [
        choose(name, 2.9, d).most_reports(50_000)
        for name, d in (("basic", 0), ("zcdp", 1e-6), ("optimal", 1e-6))
    ]
    assert counts == [58, 110, 160]
    text = " ".join(PAGE.split())
    assert "58, 110 and 160 reports under `basic`, `zcdp` and `optimal`" in text
    weekly = round(2 * 20_000 / 104)
    row = next(row for row in for_reports(2, weekly, 1_450_000, 1e-6) if row.mechanism == "rr")
    assert f"`--devices {weekly}`: {row.histogram:.3f} for each of the two" in text


def test_board_accepts_policy_and_returns_status(bench: Bench):
    """Use the page's policy, board and ledger with the real mpremote, on MicroPython acting as a board."""
    application = bench.folder / "my_main.py"
    text = Path(main.__file__).read_text("utf-8")
    text = text.replace('"room_temp": chip_thermometer()', '"night_heating": chip_thermometer()')
    application.write_text(text, encoding="utf-8")
    written = CliRunner().invoke(app, [*PAIRS[1][0][:-1], str(application)])
    assert "READINGS" not in written.output
    with bench.board() as board:
        bench.flash(board, main=application)
        assert (
            on_board(board, "import main; print(main.POLICY['sum'], main.POLICY['epsilon'])")
            == "2900000 1450000"
        )
        printed = on_board(board, re.findall(r'exec "(import main; .*)" > status', PAGE)[0])
    arguments = ["ledger", "--status", "-", "--policy", str(application)]
    output = CliRunner().invoke(app, arguments, input=printed).output
    assert re.search(r"night_heating +absent +0", output)
    assert "Σε = 0 of 2.9" in output


@pytest.mark.parametrize("name", ["planning.md", "threat-model.md", "theorems.md"])
def test_links_have_targets(name):
    text = (DOCS / name).read_text("utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        path = DOCS / (file or name)
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, target
