"""Pictures of answers: bars, lines and panels."""

import io

import numpy as np
import pytest
from designs import bell, choice, draw, number
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from hushmote.server.answers import figure
from hushmote.server.answers.answer import Answer, Answers
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.answers.rows import ChangeRow, Row, TopRow, TrendRow

NUMBER = number(64, 2, low=-16_000, high=48_000, name="temp")
F = bell(64, 34, 6)
TEMP = FleetEstimate(draw(NUMBER, F, 30_000, np.random.default_rng(1)), "fleet home, 2026-11-21", "°C")
MODES = choice([f"a long label of mode number {i}" for i in range(9)], 2)
MODE = FleetEstimate(draw(MODES, np.full(10, 0.1), 30_000, np.random.default_rng(2)), truth=np.full(10, 0.1))


def panel(picture: Figure, number: int = 0) -> Axes:
    picture.savefig(io.BytesIO(), format="png", dpi=40)  # drawing creates the ticks and their labels
    return picture.axes[number]


class TestBars:
    @pytest.mark.slow
    def test_number_bars_span_their_bins(self):
        answer = TEMP.histogram(16)
        axes = panel(answer.plot())
        bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]  # type: ignore[attr-defined]
        for (left, right), row in zip(bars, answer.rows, strict=True):
            assert row.lower is not None
            assert row.upper is not None
            assert row.lower < left < right < row.upper
        assert axes.get_xlim() == (-16, 48)
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert all(float(text) == float(f"{float(text):g}") for text in labels)
        assert "temp, °C: fleet home, 2026-11-21" in axes.get_title(loc="left")

    @pytest.mark.slow
    def test_become_a_line_in_a_band_above_40_rows(self):
        bars_panel, line_panel = (
            panel(TEMP.histogram(32).plot()),
            panel(TEMP.histogram(64, post="smooth").plot()),
        )
        assert (len(bars_panel.patches), len(line_panel.patches)) == (32, 0)
        assert line_panel.get_legend_handles_labels()[1].count("smooth") == 1
        assert len(line_panel.lines[0].get_xdata()) == 64  # type: ignore[arg-type]

    @pytest.mark.slow
    def test_have_shortened_labels(self):
        axes = panel(MODE.histogram().plot())
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert names == [*MODES.labels, "other"]
        assert {"estimate", "truth", "95% interval"} <= set(axes.get_legend_handles_labels()[1])
        long = Answer("histogram", "m", "share", "", 9, 0.95, (Row("x" * 60, 0.1, 0, 0.2),))
        assert [label.get_text() for label in panel(long.plot()).get_yticklabels()] == ["x" * 31 + "…"]

    @pytest.mark.slow
    def test_of_the_most_common_labels_have_their_probability(self):
        rows = (TopRow("eco", 0.5, 0.4, 0.6, probability=0.973), TopRow("boost", 0.3, 0.2, 0.4))
        axes = panel(Answer("top", "m", "share", "", 9, 0.95, rows).plot())
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels == ["eco\n97% belongs", "boost\n0% belongs"]


class TestLines:
    @pytest.mark.slow
    def test_cdf_is_drawn_over_its_edges(self):
        answer = TEMP.cdf()
        x, y = panel(answer.plot()).lines[0].get_data()
        assert np.asarray(x) == pytest.approx(np.arange(-15, 48))
        assert np.asarray(y) == pytest.approx([100 * row.value for row in answer.rows])

    @pytest.mark.slow
    def test_trend_dates_are_to_scale_and_largest_labels_shown(self):
        days = ("2026-11-03", "2026-11-04", "2026-11-14")
        rows = tuple(
            TrendRow(f"mode {i}", i / 100, i / 100 - 0.01, i / 100 + 0.01, window=day, reports=9)
            for i in range(12)
            for day in days
        )
        axes = panel(Answer("trend", "mode", "share", "", 9, 0.95, rows).plot())
        names = axes.get_legend_handles_labels()[1]
        assert sorted(names) == sorted(["(the table has 6 more)", *(f"mode {i}" for i in range(6, 12))])
        lines = [line for line in axes.lines if len(line.get_xdata()) == 3]  # type: ignore[arg-type]
        expected = np.diff(date2num([np.datetime64(day) for day in days]))
        assert np.diff(np.asarray(lines[0].get_xdata(orig=False))) == pytest.approx(expected)
        # The lines are moved apart, evenly around the dates.
        places = np.array([line.get_xdata(orig=False) for line in lines])
        dates = date2num([np.datetime64(day) for day in days])
        assert places.mean(axis=0) == pytest.approx(dates, abs=1e-6)
        assert len(np.unique(places)) == 6 * 3
        assert any("Nov" in label.get_text() for label in axes.get_xticklabels())


class TestPanels:
    @pytest.mark.slow
    def test_comparison_names_sides_and_marks_adjusted_rows(self):
        looks = {"changed": (0.001, 0.002), "taken": (0.03, 0.09), "chance": (0.4, 1.0)}
        rows = tuple(
            ChangeRow(name, 0.1, 0.05, 0.15, before=0.2, after=0.3, p=p, p_adjusted=adjusted)
            for name, (p, adjusted) in looks.items()
        )
        answer = Answer(
            "change", "mode", "share", "", 9, 0.95, rows, "", "fleet home, 2026-11-21", "fleet lab"
        )
        axes = panel(answer.plot())
        assert axes.get_title(loc="left") == "mode: fleet home, 2026-11-21\nagainst fleet lab"
        legend = axes.get_legend()
        assert legend is not None
        assert [text.get_text().split("\n")[0] for text in legend.get_texts()] == [
            "changed",
            "may be chance",
            "changed if considered alone,",
        ]
        faces = [container.lines[0].get_markerfacecolor() for container in axes.containers]  # type: ignore[attr-defined]
        assert faces == [figure.COLOURS[1], "white", figure.QUIET]
        assert "1 would count as changed if considered alone" in answer.notes[0]

    @pytest.mark.slow
    def test_several_answers_share_one_heading(self):
        plotted = Answers([TEMP.share("18:22"), TEMP.quantile(0.5), TEMP.cdf()]).plot()
        panel(plotted)
        assert [axes.get_title(loc="left") for axes in plotted.axes] == [
            "ranges",
            "quantiles",
            "share of the fleet below",
        ]
        assert [text.get_text() for text in plotted.texts] == ["temp, °C: fleet home, 2026-11-21"]
