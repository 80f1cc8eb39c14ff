"""`hushmote study central`: the ε of a curator's answers for a given risk."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, runner
from drawings import saved_figure
from page_commands import command_examples

from hushmote.studies import central
from hushmote.studies.lee_clifton import choose_epsilon
from hushmote.studies.sensitivity import Universe, statistic

PAGE = Path(__file__).parents[2] / "studies" / "README.md"


@pytest.fixture
def hushmote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("study", tmp_path, monkeypatch)


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--records=", "--risk=1/3"), "universe is empty"),
            (("--records=1,2,3", "--risk=1/2", "--queries=mode"), "unknown statistic mode"),
            (("--records=1,2,x", "--risk=1/2"), "a record must be a number"),
            (("--records=1,2,3", "--risk=1/2", "--epsilon=-1"), "epsilon must be above 0"),
            (("--records=1,2,3", "--risk=1/2", "--answer=1"), "--answer needs --epsilon"),
            (
                ("--records=1,2,3", "--risk=1/2", "--prior=0.5,0.5"),
                "the prior needs a number for each of the 3 records, not 2",
            ),
            (("--records=1,2,3", "--risk=3/4", "--prior=0.5,0.4,0.3"), "sums to 1.2, not 1"),
            (("--records=1,2,3", "--risk=3/4", "--prior=a,b,c"), "a prior's probability must be a number"),
            (("--records=1,2,3,4", "--risk=3/4", "--prior=0.5,0.5,0,0", "--size=2"), "leave --size out"),
            (("--records=1,2,3", "--records=5", "--risk=1/2"), "universe of one record"),
            (("--records=1,2,3", "--risk=1/2", "--plot", "x.txt"), "x.txt must end in .png, .pdf or .svg"),
        ],
    )
    def test_invalid_arguments_are_one_line(self, hushmote, arguments: tuple[str, ...], message: str):
        assert message in hushmote("central", *arguments, expect=1)


class TestCommand:
    def test_prints_the_papers_numbers(self, hushmote):
        arguments = (
            "central",
            "--records=1,2,3,10",
            "--risk=1/3",
            "--queries=mean",
            "--epsilon=2",
            "--answer=2.20131",
        )
        text = hushmote(*arguments)
        for number in ("0.382939", "0.431720", "0.618024", "0.158170", "0.125008", "0.098798"):
            assert number in text
        (result,) = json.loads(hushmote(*arguments, "--json"))
        assert result["worlds"] == 4
        assert max(result["posteriors"]) == pytest.approx(0.618024, abs=5e-7)
        assert result["confidence"] == pytest.approx(0.368024, abs=5e-7)
        assert [f"{x:.4f}" for x in result["densities"]] == ["0.0489", "0.0619", "0.0784", "0.3062"]
        assert "0.306188" in text

    def test_accepts_a_prior_and_several_universes(self, hushmote):
        arguments = ("--risk=1/2", "--queries=mean", "--epsilon=2", "--answer=2.20131", "--json")
        first, second = json.loads(hushmote("central", "--records=1,2,3,4", "--records=1,2,3,10", *arguments))
        assert (first["universe"], second["universe"]) == ("1,2,3,4", "1,2,3,10")
        assert max(first["posteriors"]) == pytest.approx(0.400316, abs=5e-7)
        prior = ("--prior=0.4,0.3,0.2,0.1",)
        (result,) = json.loads(hushmote("central", "--records=1,2,3,10", *prior, *arguments))
        assert result["priors"] == pytest.approx([0.4, 0.3, 0.2, 0.1])
        weighed = np.array(result["priors"]) * np.array(result["densities"])
        assert result["posteriors"] == pytest.approx((weighed / weighed.sum()).tolist())
        spread = 0.4 * math.exp(2 * result["spread"] / result["sensitivity"])
        assert result["upper_posterior"] == pytest.approx(spread / (0.6 + spread))
        assert result["tight_posterior"] < result["upper_posterior"]
        text = hushmote("central", "--records=1,2,3,4", "--records=1,2,3,10", *arguments[:-1])
        assert text.index("1,2,3,4: the largest") < text.index("1,2,3,10: the largest")

    def test_reads_a_column_and_names_refusals(self, hushmote, tmp_path: Path):
        rng = np.random.default_rng(2)
        (tmp_path / "ages.csv").write_text("age\n" + "\n".join(f"{x:.3f}" for x in rng.exponential(size=300)))
        text = hushmote("central", "--records=ages.csv:age", "--risk=0.05", "--size=150")
        assert "median: no tight ε: 10^89.0 possible worlds" in text
        assert "count: no tight" not in text
        exact = json.loads(
            hushmote("central", "--records=ages.csv:age", "--risk=0.05", "--neighbours=bounded", "--json")
        )
        assert all(row["tight_refused"] == "" for row in exact)

    def test_summarizes_many_statistics_in_one_sentence(self, hushmote):
        text = hushmote("central", "--records=1,2,3,10", "--risk=1/3")
        message = "ε = 0.431 is right for one answer of any of these, as mean allows least"
        assert message in " ".join(text.split("\n\n")[0].split())

    @pytest.mark.slow
    def test_draws_pictures(self, hushmote, tmp_path: Path):
        two = ("--records=1,2,3,10", "--records=1,2,3,4", "--risk=1/3", "--queries=mean")
        hushmote("central", *two, "--plot", "two.png")
        assert (tmp_path / "two.png").stat().st_size > 10_000
        hushmote("central", "--records=1,2,3,10", "--risk=1/3", "--queries=mean,median", "--plot", "both.svg")
        assert "<svg" in (tmp_path / "both.svg").read_text("utf-8")


class TestPicture:
    def test_tight_bound_is_drawn_if_worlds_are_enumerated(self, monkeypatch: pytest.MonkeyPatch):
        many = Universe(np.arange(1000.0), 500)
        few = Universe(np.array([1.0, 2, 3, 10]), 3)
        for universe, bounds in ((many, ["upper"]), (few, ["upper", "tight"])):
            choice = choose_epsilon(statistic("median"), universe, 1 / 3)
            (axes,) = saved_figure(monkeypatch, central.draw, None, ([("ages", [choice])], 1 / 3)).axes
            labels = [str(line.get_label()) for line in axes.lines]
            assert [label for label in labels if "bound" in label] == [f"{bound} bound" for bound in bounds]
            assert axes.get_xlim()[1] > max(choice.upper_epsilon or 0, choice.tight_epsilon or 0) > 0


class TestPage:
    def test_shows_its_commands_output(self, hushmote):
        pairs = command_examples(PAGE.read_text("utf-8"), "study")
        assert len(pairs) == 4
        for (_, *arguments), expected in pairs:
            assert [line.rstrip() for line in hushmote(*arguments).rstrip().splitlines()] == expected
