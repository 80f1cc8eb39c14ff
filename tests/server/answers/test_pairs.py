"""Answers about a pair: tables, differences, changes, trends and pictures."""

from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
from designs import draw
from experiments import experiment_json
from refusals import Refusal, refusals

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers.answer import Answer, Answers
from hushmote.server.answers.fleet_estimate import FleetEstimate, trend
from hushmote.server.answers.question import NO_QUESTION, PairQuestion
from hushmote.server.answers.rows import CellRow, DifferenceRow, TrendRow
from hushmote.server.errors import UsageError
from hushmote.server.estimate import estimate
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.experiments.answerable import UnanswerableError
from hushmote.server.experiments.units import UnitsError

VERSION = {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]}
CRASHED = {"name": "crashed", "type": "bool"}
DELAY = {"name": "delay", "type": "number", "low": 0, "high": 40_000, "bins": 8}
VERSIONS = np.array([0.3, 0.6, 0.1])
RATES = np.array([0.20, 0.05, 0.10])
CRASHES = np.stack([VERSIONS * (1 - RATES), VERSIONS * RATES], axis=1).ravel()
DELAY_SHARES = np.stack([np.exp(-np.arange(8) / scale) for scale in (1, 2, 3)]).ravel()


def experiment(*parts, **mechanism) -> Experiment:
    fields = {"type": "pair", "of": parts or (VERSION, CRASHED), "mechanism": "grr", "epsilon": 6_000_000}
    return Experiment.parse(experiment_json(**fields | {"budget": {"rule": "unlimited"}} | mechanism))


def fleet(e: Experiment, shares: np.ndarray, seed: int = 1, reports: int = 100_000) -> FleetEstimate:
    shares = shares / shares.sum()
    estimated = draw(e, shares, reports, np.random.default_rng(seed))
    return FleetEstimate(estimated, f"fleet {seed}", "min", truth=shares)


CRASH_FLEET = fleet(experiment(), CRASHES)
LATE_FLEET = fleet(experiment(VERSION, DELAY), DELAY_SHARES)


def covered(answers: Answers | Answer) -> None:
    """Check that each row's interval, widened to 7 standard errors, covers the truth (misses: 1e-11)."""
    for answer in [answers] if isinstance(answers, Answer) else answers:
        for row in answer.rows:
            assert row.truth is not None
            assert abs(row.value - row.truth) <= 7 / 1.96 * (row.high - row.low)


class TestDifference:
    def test_shows_both_sides_and_a_p_value(self):
        sides, less = CRASH_FLEET.pairs.difference("crashed=yes", "version=1.2", "version!=1.2")
        covered(Answers([sides, less]))
        (row,) = less.rows
        assert isinstance(row, DifferenceRow)
        assert row.value == pytest.approx(sides.rows[0].value - sides.rows[1].value)
        assert (row.first, row.second) == (sides.rows[0].value, sides.rows[1].value)
        assert row.p < 1e-6

    def test_names_both_sides_in_a_picture(self):
        difference = CRASH_FLEET.pairs.difference(
            "crashed=yes", "version=1.2|1.3", "version=other | other|other"
        )
        (label,) = difference[-1].plot().axes[0].get_yticklabels()
        assert label.get_text() == "version=1.2|1.3\nless version=other|other|other"


class TestUnits:
    def test_mean_has_the_unit_of_its_part(self):
        way = {**DELAY, "name": "way", "bins": 2}
        e = experiment(DELAY, way)
        estimated = replace(fleet(e, np.ones(16)), unit="delay: min, way: km")
        for of, unit in (("delay", "min"), ("way", "km")):
            given = "way" if of == "delay" else "delay"
            assert estimated.pairs.conditional(of, given).unit == unit


class TestTables:
    def test_have_80_columns_and_name_cells_parts(self):
        for line in f"{CRASH_FLEET}\n{LATE_FLEET}".splitlines():
            assert len(line) <= 80
        row = CRASH_FLEET.pairs.joint().rows[1]
        assert isinstance(row, CellRow)
        plain = row.to_dict()
        assert (plain["part_version"], plain["part_crashed"]) == ("1.2", "yes")
        assert "cell" not in plain
        assert "part_version,part_crashed" in CRASH_FLEET.pairs.joint().to_csv()

    def test_numbers_conditional_is_its_mean(self):
        answer = LATE_FLEET.pairs.conditional()
        assert answer.quantity == "reading"
        assert answer.heading == "mean delay given each version"
        covered(answer)
        shares = (DELAY_SHARES / DELAY_SHARES.sum()).reshape(3, 8)
        middles = np.arange(8) * 5 + 2.5
        assert [row.truth for row in answer.rows] == pytest.approx(
            (shares @ middles / shares.sum(axis=1)).tolist()
        )

    def test_group_a_number_into_the_requested_rows(self):
        assert [row.name for row in LATE_FLEET.pairs.marginal("delay", 2).rows] == [
            "delay=below 20",
            "delay=20 and above",
        ]
        assert len(LATE_FLEET.pairs.joint(2).rows) == 6
        assert len(LATE_FLEET.pairs.conditional("version", "delay", 4).rows) == 12
        covered(LATE_FLEET.pairs.conditional("version=1.2", "delay", 2))

    def test_omit_rows_with_too_few_boards(self):
        rare = np.array([0.60, 0.10, 0.25, 0.05, 0.0, 0.0])
        answer = fleet(experiment(epsilon=2_000_000), rare, 3, 3_000).pairs.conditional()
        assert [row.name for row in answer.rows] == ["version=1.2", "version=1.3"]
        assert answer.note.startswith("Left out: too few boards have version=other (")
        assert "reports are needed." in answer.note
        with pytest.raises(EstimateError, match="too few boards have version=other"):
            fleet(experiment(epsilon=2_000_000), rare, 3, 3_000).pairs.conditional(given="version=other")


class TestSummary:
    def test_small_pair_shows_every_table(self):
        summary = CRASH_FLEET.summary()
        assert [answer.kind for answer in summary] == ["joint", "marginal", "marginal", "conditional"]
        covered(summary)
        joint, version, crashed, conditional = summary
        assert [row.name for row in joint.rows][:2] == ["version=1.2, crashed=no", "version=1.2, crashed=yes"]
        assert sum(row.value for row in joint.rows) == pytest.approx(1)
        assert version.rows[0].value == pytest.approx(joint.rows[0].value + joint.rows[1].value)
        assert [row.name for row in crashed.rows] == ["crashed=no", "crashed=yes"]
        assert conditional.rows[0].value == pytest.approx(joint.rows[1].value / version.rows[0].value)
        assert conditional.rows[0].truth == pytest.approx(0.2)
        assert conditional.heading == "crashed=yes given each version"

    def test_cells_are_counted_after_a_number_is_grouped(self):
        e = experiment(VERSION, DELAY | {"bins": 16})
        tables = {rows: fleet(e, np.ones(48)).pairs.summary(rows)[0] for rows in (13, 14)}
        assert [(rows, table.kind, len(table.rows)) for rows, table in tables.items()] == [
            (13, "joint", 24),
            (14, "marginal", 3),
        ]
        models = VERSION | {"labels": [f"1.{n}" for n in range(19)]}
        assert fleet(experiment(models, CRASHED), np.ones(40)).pairs.summary(4)[0].kind == "joint"
        models = VERSION | {"labels": [f"1.{n}" for n in range(20)]}
        assert fleet(experiment(models, CRASHED), np.ones(42)).pairs.summary(4)[0].kind == "marginal"

    def test_separate_views_note_the_missing_joint(self):
        e = experiment(mechanism="views", views=[[0], [1]], cells=[3, 2])
        summary = fleet(e, CRASHES).summary()
        assert [answer.kind for answer in summary] == ["marginal", "marginal"]
        covered(summary)
        assert "no report contains information about version and crashed together" in summary[-1].note
        assert [answer.kind for answer in fleet(e, CRASHES).pairs.ask(NO_QUESTION)] == ["marginal"] * 2
        with pytest.raises(
            EstimateError, match="no report contains information about version and crashed together"
        ):
            fleet(e, CRASHES).pairs.joint()


OLD_AND_NEW = ("version=1.2", "version=1.3")


class TestChange:
    def test_detects_only_changed_conditionals(self):
        """Crashes double under 1.3 and do not change under 1.2; p is adjusted, 7 standard errors."""
        rates = np.array([0.20, 0.10, 0.10])
        worse = np.stack([VERSIONS * (1 - rates), VERSIONS * rates], axis=1).ravel()
        after = fleet(experiment(), worse, 2)
        (answer,) = after.change_since(CRASH_FLEET, pair=PairQuestion(of="crashed=yes"))
        assert answer.kind == "change"
        by_name = {row.name: row for row in answer.rows}
        assert by_name["version=1.3"].low > 0.03
        half = (by_name["version=1.2"].high - by_name["version=1.2"].low) / 2
        assert abs(by_name["version=1.2"].value) < 7 / 1.96 * half
        unasked = after.change_since(CRASH_FLEET)
        assert unasked[0].title == "change of share of the fleet: version and crashed"

    def test_trend_covers_every_window(self):
        windows = {f"2026-11-{20 + i}": fleet(experiment(), CRASHES, 10 + i).estimates for i in range(3)}
        (answer,) = trend(windows, (), pair=PairQuestion(of="crashed=yes", given="version=1.2"))
        assert [row.window for row in answer.rows if isinstance(row, TrendRow)] == list(windows)
        assert answer.title == "crashed=yes given version=1.2, over time"
        ((name, p),) = answer.p_values
        assert name == "version=1.2"
        assert p > 1e-11
        (less,) = trend(windows, (), pair=PairQuestion(versus=("version=1.2", "version=1.3")))[1:]
        assert all(row.low > 0.05 for row in less.rows)
        (unasked,) = trend(windows, ())
        assert {row.name for row in unasked.rows} == {"version=1.2", "version=1.3", "version=other"}


class TestErrors:
    @refusals(
        (PairQuestion("crashed", "crashed"), "both name crashed"),
        (PairQuestion("crashed=yes&version=1.2"), "of uses every part"),
        (PairQuestion("", "version=1.2&crashed=no"), "the conditions use every part"),
        (PairQuestion("version", versus=("crashed=yes", "crashed=no")), "name a value of version"),
        (PairQuestion("", "version", OLD_AND_NEW), "omit either versus or given"),
        (PairQuestion("speed"), "no part speed"),
        (PairQuestion(versus=(OLD_AND_NEW[0], OLD_AND_NEW[0])), "name two different ones"),
        (PairQuestion("crashed=yes", versus=("version=1.2", "crashed=no")), "crashed=no already determines"),
        (PairQuestion("crashed=yes", "crashed=yes"), "crashed=yes; name a condition on another part with"),
        (PairQuestion("crashed", joint=True), "omit one or the other"),
        call=CRASH_FLEET.pairs.ask,
        error=(UsageError, UnitsError),
    )
    def test_invalid_question_is_one_line(self, refusal: Refusal):
        refusal.check()

    def test_pair_methods_are_only_for_pairs(self):
        with pytest.raises(UnanswerableError):
            CRASH_FLEET.histogram()
        other = Experiment.parse(experiment_json())
        with pytest.raises(UnanswerableError):
            FleetEstimate(estimate(other, np.array([20, 30]))).pairs.joint()

    def test_different_parts_are_not_comparable(self):
        other = fleet(experiment(VERSION, CRASHED | {"name": "froze"}), CRASHES, 5)
        with pytest.raises(EstimateError, match="only if their parts and the parts' values are the same"):
            CRASH_FLEET.change_since(other)


class TestPictures:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "answers",
        [
            fleet(experiment(VERSION, DELAY | {"bins": 16}), np.ones(48)).pairs.joint(),
            fleet(experiment(VERSION, DELAY | {"bins": 4}, CRASHED), np.ones(24)).pairs.joint(),
            CRASH_FLEET.pairs.summary(),
        ],
        ids=["large heat map", "three parts", "summary"],
    )
    def test_are_drawn(self, answers, tmp_path):
        answers.plot(tmp_path / "picture.png")
        pixels = matplotlib.image.imread(tmp_path / "picture.png")[..., :3]
        # One integer per colour, because sorting rows of three takes seconds.
        colours = (255 * pixels).astype(int) @ [1, 256, 65_536]
        assert len(np.unique(colours)) > 50

    @pytest.mark.slow
    def test_small_heat_map_has_a_number_in_each_cell(self):
        large = fleet(experiment(VERSION, DELAY | {"bins": 16}), np.ones(48)).pairs.joint()
        small_axes, large_axes = (table.plot().axes[0] for table in (CRASH_FLEET.pairs.joint(), large))
        numbers = [text.get_text() for text in small_axes.texts if "\n±" in text.get_text()]
        shares = [f"{100 * row.value:.2f}" for row in CRASH_FLEET.pairs.joint().rows]
        assert sorted(number.split("\n")[0] for number in numbers) == sorted(shares)
        assert not any("\n±" in text.get_text() for text in large_axes.texts)
        labels = [axes.get_legend_handles_labels()[1] for axes in (small_axes, large_axes)]
        assert labels == [[], ["may be 0"]]


class TestMissing:
    """A part with `missing` set, for which half of the fleet has no reading."""

    E = experiment(VERSION, CRASHED | {"missing": 1})
    KNOWN = np.array([0.5, 0.25, 0.75])  # for each version
    SHARES = np.append(CRASHES.reshape(3, 2) * KNOWN[:, None], (VERSIONS * (1 - KNOWN))[:, None], axis=1)
    FLEET = fleet(E, SHARES.ravel(), seed=4)

    def test_joint_table_has_no_reading_as_a_value(self):
        joint = self.FLEET.pairs.joint()
        covered(joint)
        assert [row.name for row in joint.rows][:3] == [
            "version=1.2, crashed=no",
            "version=1.2, crashed=yes",
            "version=1.2, crashed=no reading",
        ]
        assert sum(row.value for row in joint.rows) == pytest.approx(1)

    def test_conditional_is_among_those_with_a_reading(self):
        conditional = self.FLEET.pairs.conditional()
        covered(conditional)
        assert [row.truth for row in conditional.rows] == pytest.approx(RATES)

    def test_marginal_is_among_those_with_a_reading(self):
        crashed = self.FLEET.pairs.marginal("crashed")
        covered(crashed)
        no, yes, missing = crashed.rows
        assert missing.name == "crashed=no reading"
        assert missing.truth == pytest.approx(self.SHARES[:, 2].sum())
        assert no.value + yes.value == pytest.approx(1)

    def test_no_reading_can_be_selected(self):
        table = self.FLEET.pairs.conditional("crashed=no reading", "version")
        covered(table)
        assert [row.truth for row in table.rows] == pytest.approx(1 - self.KNOWN)

    def test_inequality_excludes_no_reading(self):
        others = self.FLEET.pairs.conditional("version=1.2", "crashed!=yes")
        no = self.FLEET.pairs.conditional("version=1.2", "crashed=no")
        assert others.rows[0].truth == pytest.approx(no.rows[0].truth)

    def test_mean_leaves_no_reading_out(self):
        e = experiment(VERSION, DELAY | {"missing": 1})
        late = np.append(DELAY_SHARES.reshape(3, 8) / DELAY_SHARES.sum() / 2, np.full((3, 1), 1 / 6), axis=1)
        conditional = fleet(e, late.ravel()).pairs.conditional("delay", "version")
        covered(conditional)
        expected = fleet(experiment(VERSION, DELAY), DELAY_SHARES).pairs.conditional("delay", "version")
        assert [row.truth for row in conditional.rows] == pytest.approx([row.truth for row in expected.rows])
