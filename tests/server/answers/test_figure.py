"""The style of all pictures: headings, row names, intervals and settings."""

import io
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text

from hushmote.server.answers import figure
from hushmote.server.errors import UsageError
from hushmote.server.words.scope import picture_title, span, which_reports


def texts_in_drawing(picture: Figure, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, float]]:
    """Return the texts in the last drawing, from the left, with their left and right ends in pixels."""
    texts: list[tuple[str, float, float]] = []
    draw, draw_all = Text.draw, Figure.draw

    def noting(self: Text, renderer: RendererBase) -> None:
        if self.get_visible() and self.get_text():
            box = self.get_window_extent(renderer)
            texts.append((self.get_text(), box.x0, box.x1))
        draw(self, renderer)

    def anew(self: Figure, renderer: RendererBase) -> None:
        texts.clear()
        draw_all(self, renderer)

    monkeypatch.setattr(Text, "draw", noting)
    monkeypatch.setattr(Figure, "draw", anew)
    picture.savefig(io.BytesIO(), format="png")
    return sorted(texts, key=lambda text: text[1])


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 45, 80])
def test_omits_names_evenly_with_many_rows(count: int):
    names = [f"row {i}" for i in range(count)]
    with figure.figure(None, heights=[24.0]) as (drawing, (axes,)):
        figure.label_rows(axes, names)
    drawing.savefig(io.BytesIO(), format="png", dpi=40)
    labels = [label for label in axes.get_yticklabels() if label.get_text()]
    assert [label.get_text() for label in labels] == names[:: 1 if count <= 45 else 2]
    boxes = [label.get_window_extent() for label in labels]
    assert all(a.y0 > b.y1 for a, b in pairwise(boxes))


@pytest.mark.slow
def test_heading_is_no_wider_than_its_panel(monkeypatch):
    title = "a heading that is far too long for half a picture, and so it has several lines"
    with figure.panels(None, 2) as (drawing, both):
        for axes in both:
            figure.style_axes(axes, title, title)
    shown = [
        (low, high)
        for text, low, high in texts_in_drawing(drawing, monkeypatch)
        if text.startswith("a heading")
    ]
    for axes, pair in zip(both, (shown[:2], shown[2:]), strict=True):
        box = axes.get_window_extent()
        assert all(high <= box.x1 + 2 for _, high in pair)
    assert len(shown) == 4


def test_parses_windows_as_dates_unless_all():
    moments = figure.window_starts(["2026-11-03", "2026-11-04", "2026-11-14T06"])
    assert moments == [datetime(2026, 11, 3), datetime(2026, 11, 4), datetime(2026, 11, 14, 6)]
    assert figure.window_starts(["2026-11-03", "all"]) is None


def tick_labels(picture: Figure) -> list[str]:
    picture.savefig(io.BytesIO(), format="png", dpi=40)  # drawing creates the ticks and their labels
    return [label.get_text() for label in picture.axes[0].get_xticklabels()]


@pytest.mark.parametrize(
    ("end", "labels"),
    [
        (11_000, ["0", "2,000", "4,000", "6,000", "8,000", "10,000", "12,000"]),
        (10_000, [f"{n:,}" for n in range(0, 11_000, 1_000)]),
        (3, ["0", "0.5", "1", "1.5", "2", "2.5", "3"]),
    ],
)
def test_axis_has_at_most_ten_round_steps(end: float, labels: list[str]):
    with figure.figure(None) as (picture, (axes,)):
        axes.set_xlim(0, end)
        figure.number_axis(axes.xaxis)
    assert tick_labels(picture) == labels


@pytest.mark.parametrize(
    ("start", "end", "labels"),
    [
        ("2026-11-21T14:30", "2026-11-21T20:00", [f"{hour}:00" for hour in range(15, 21)]),
        ("2026-10-30", "2026-11-02T12", ["30 Oct", "31 Oct", "01 Nov", "02 Nov"]),
        ("2026-03-21", "2026-12-02", ["Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]),
    ],
    ids=["hours", "days", "months"],
)
def test_axis_of_dates_has_round_dates(start: str, end: str, labels: list[str]):
    with figure.figure(None) as (picture, (axes,)):
        axes.xaxis_date()
        axes.set_xlim(datetime.fromisoformat(start), datetime.fromisoformat(end))  # type: ignore[arg-type]
        figure.date_axis(axes.xaxis)
    assert tick_labels(picture) == labels


def test_draws_band_for_many_points_and_error_bars_for_few():
    def drawn_as(count: int) -> tuple[int, int]:
        x = np.arange(count)
        with figure.figure(None) as (_, (axes,)):
            figure.draw_intervals(axes, x, x, x - 1, x + 1, label="share")
        assert axes.get_legend_handles_labels()[1] == ["share"]
        return len(axes.containers), len(axes.collections) - len(axes.containers)

    assert drawn_as(figure.LINE_ROWS) == (1, 0)
    assert drawn_as(figure.LINE_ROWS + 1) == (0, 1)


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        ((), "temp, °C: fleet home"),
        (("all",), "temp, °C: fleet home"),
        (("2026-11-21",), "temp, °C: fleet home, 2026-11-21"),
        (("2026-11-22", "2026-11-21"), "temp, °C: fleet home, 2026-11-21 and 2026-11-22"),
        (
            ("2026-11-22", "2026-11-21", "2026-11-23"),
            "temp, °C: fleet home, 2026-11-21 to 2026-11-23 (3 days)",
        ),
    ],
    ids=["none", "all", "one", "two", "three"],
)
def test_headline_names_fleet_windows_and_unit(windows: Sequence[str], text: str):
    assert picture_title("temp", "°C", which_reports("home", span(windows))) == text
    assert picture_title("temp", "", which_reports()) == "temp"


def test_keeps_caller_settings_and_escapes_math_text(tmp_path: Path):
    before = dict(matplotlib.rcParams)
    with figure.figure(tmp_path / "a.svg") as (_, (axes,)):
        figure.style_axes(axes, "$x$ and $y$", "", "$a$")
        axes.set_xticks([0, 1], ["$no", "formula$"])
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.svg").stat().st_size > 5_000
    with pytest.raises(UsageError, match=r"must end in .png, .pdf or .svg"), figure.figure(Path("a.xyz")):
        pass
