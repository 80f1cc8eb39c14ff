"""`hushmote plan --release`: reports, days, stages, and the releases that a budget covers."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import hushmote

from hushmote.planning.devices import PlanError
from hushmote.planning.release_stages import ReleaseStages, plan_release
from hushmote.planning.request import PlanRequest

COMMAND = ("plan", "--release", "--share", "0.05", "--rise", "0.03", "--devices", "20000")


def stages(rise: float = 0.03, every: int = 1, **fields: Any) -> ReleaseStages:
    request = PlanRequest(**{"devices": 20_000, "share": 0.05} | fields)
    return plan_release(request, rise=rise, every=every)


class TestStages:
    def test_five_percent_finds_4_3_points(self):
        first, *_, last = stages().stages
        assert first.reports == pytest.approx(1_000)
        assert first.rise == pytest.approx(0.043, abs=5e-4)
        assert last.rise is not None
        assert last.rise < 0.02

    def test_larger_stages_take_fewer_days(self):
        days = [(stage.days_to_stop, stage.days_to_proceed) for stage in stages().stages]
        assert days == sorted(days, reverse=True)

    def test_proceed_takes_more_than_four_thousand_reports(self):
        assert 4_000 < (stages().proceed_reports or 0) < 4_600

    def test_few_other_reports_find_less(self):
        rises = [each.rise for each in stages().thinnings]
        assert [each.every for each in stages().thinnings] == [1, 20, 50, 130]
        assert rises == sorted(rises, key=lambda rise: rise or 1)


class TestBudget:
    def test_pays_for_sixty_releases(self):
        """Of four reports in five years, one is spent at 1 in 130 calls; 5% a release use the others."""
        releases = [each.releases for each in stages(horizon="260w").thinnings]
        assert releases == [0, 0, 28, 60]

    def test_pays_for_more_with_a_larger_one(self):
        assert stages(lifetime=16.0).thinnings[-1].releases > 100


class TestRequest:
    @pytest.mark.parametrize(
        ("fields", "rise", "message"),
        [
            ({"devices": None}, 0.03, "--release needs --devices, at least 100"),
            ({"values": 64}, 0.03, "does not use --values: omit it"),
            ({}, 3.0, "--rise must be a share above 0 and below 1, such as 0.03, not 3"),
            ({"share": 0.99}, 0.03, "--share and --rise must be shares of at most 1 together"),
            ({"epsilon": 99.0}, 0.03, "--epsilon must be from 0.001 to 16, not 99"),
            ({"lifetime": -1.0}, 0.03, "--lifetime must be above 0, not -1"),
        ],
    )
    def test_rejects_values_out_of_range(self, fields: dict[str, Any], rise: float, message: str):
        with pytest.raises(PlanError) as error:
            stages(rise, **fields)
        assert message in str(error.value)


class TestCommand:
    def test_says_what_proceed_takes(self, tmp_path: Path):
        text = hushmote(*COMMAND, cwd=tmp_path)
        first, *_ = text.splitlines()
        assert first.startswith(
            "Detecting a rise of 3 points takes 2,000 reports of the new version: 28 days"
        )
        words = " ".join(text.split())
        assert "proceed takes 4,200 reports" in words
        assert "4 reports of ε = 2 in its 5 years, with a call every 14 days" in words
        assert max(map(len, text.splitlines())) <= 80

    def test_json_has_the_stages(self, tmp_path: Path):
        fields = json.loads(hushmote(*COMMAND, "--json", cwd=tmp_path))
        assert [stage["part"] for stage in fields["stages"]] == [0.05, 0.25, 0.5]
