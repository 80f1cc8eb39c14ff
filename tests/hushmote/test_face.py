"""`import hushmote`: reading stores, showing answers, planning and simulating, without global effects."""

import dataclasses
import gc
import inspect
import json
import math
import os
import subprocess
import sys
import typing
import warnings
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from typer.testing import CliRunner

import hushmote
from hushmote.cli.main import app
from hushmote.planning.fleet_plan import PlanArguments
from hushmote.planning.request import PlanRequest

HEAVY = ("numpy", "scipy", "sqlalchemy", "matplotlib", "rich", "typer", "pandas")


@pytest.fixture
def home(stored: Path) -> hushmote.FleetReader:
    return hushmote.open(f"sqlite:///{stored / 'hushmote.sqlite'}").fleet("home")


@pytest.fixture
def room(home: hushmote.FleetReader) -> hushmote.ExperimentReader:
    return home.experiment("room_temp")


def python(code: str, cwd: Path) -> str:
    run = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return run.stdout


class TestImport:
    def test_loads_nothing_heavy_and_exports_every_name(self, tmp_path: Path):
        code = f"import sys, hushmote; print([m for m in {HEAVY} if m in sys.modules])"
        assert python(code, tmp_path).strip() == "[]"
        for name in hushmote.__all__:
            assert getattr(hushmote, name)
        assert dir(hushmote) == sorted(hushmote.__all__)
        assert hushmote.__version__.count(".") == 2
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            hushmote.nothing  # type: ignore[attr-defined]  # noqa: B018


class TestStore:
    def test_lists_its_contents_if_a_name_is_wrong(self, stored: Path, room: hushmote.ExperimentReader):
        with hushmote.open(f"sqlite:///{stored / 'hushmote.sqlite'}") as store:
            assert store.fleets == ("home", "lab")
            home = store.fleet("home")
            assert home.experiments == ("mode", "room_temp")
            assert (room.windows, len(room.versions), room.unit) == (("2026-11-14", "2026-11-21"), 2, "°C")
            assert home.experiment("mode").unit == ""
            assert home.experiment("room_temp", unit="K").estimate().unit == "K"
            bad_calls = {
                "no fleet attic in this store; its fleets: home, lab": lambda: store.fleet("attic"),
                "name one fleet in this store; its fleets: home, lab": store.fleet,
                "no experiment x in fleet home; its experiments: mode, room_temp": lambda: home.experiment(
                    "x"
                ),
                "room_temp has no reports in window today; it has 2026-11-14, 2026-11-21": lambda: (
                    room.estimate("today")
                ),
                f"room_temp has no version x; its versions: {', '.join(room.versions)}": lambda: (
                    room.estimate(version="x")
                ),
                "unknown post-processing x; choose from raw, nonnegative, smooth, or give"
                " package.module:function": lambda: room.estimate().histogram(post="x"),
                "mode has no label x; it has idle, heating, door, other": lambda: (
                    home.experiment("mode").estimate().share("x")
                ),
                "a trend needs at least 2 windows with reports; the selection has 1": lambda: room.trend(
                    "mean", windows="2026-11-14"
                ),
                "room_temp has no reports in window 2026-11-15; it has 2026-11-14, 2026-11-21": lambda: (
                    room.trend(windows=["2026-11-15", "2026-11-14"])
                ),
            }
            for text, call in bad_calls.items():
                with pytest.raises(hushmote.HushmoteError) as raised:
                    call()
                assert str(raised.value) == text
        with pytest.raises(hushmote.HushmoteError, match="is closed; use it before its with block ends"):
            home.experiment("mode")

    def test_only_fleet_and_experiment_need_no_name(self, after_demo: Path):
        store = hushmote.open(f"sqlite:///{after_demo.parent / 'out' / 'demo.sqlite'}")
        assert store.fleet().experiment().estimate().reports == 20_000

    @pytest.mark.slow
    def test_closes_unmodified_when_unreferenced(self, stored: Path):
        before = (stored / "hushmote.sqlite").read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            room = hushmote.open(f"sqlite:///{stored / 'hushmote.sqlite'}").fleet("home").experiment("mode")
            gc.collect()
            assert room.estimate(last="all").reports == 40_000
            del room
            gc.collect()
        opened = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
        assert not [path for path in opened if path.startswith(str(stored))]
        assert (stored / "hushmote.sqlite").read_bytes() == before
        with pytest.raises(hushmote.HushmoteError, match="there is no store at"):
            hushmote.open(f"sqlite:///{stored / 'none.sqlite'}")
        assert not (stored / "none.sqlite").exists()


class TestEstimate:
    def test_answers_match_estimate(self, room: hushmote.ExperimentReader):
        estimate = room.estimate("2026-11-21", confidence=0.9)
        assert (estimate.reports, estimate.confidence, estimate.unit) == (40_000, 0.9, "°C")
        both = room.estimate(["2026-11-14", "2026-11-21"])
        assert both.reports == room.estimate(last="all").reports == 80_000
        assert room.estimate().reports == 40_000  # in the newest 7 days
        assert room.estimate(version=room.versions[0][:6], last="all").reports == 40_000
        assert estimate.frequencies.shape == (64,)
        shares = estimate.share("18:22", ":16")
        assert [row.name for row in shares.rows] == ["18 to 22", "below 16"]
        assert shares.rows[0].value == pytest.approx(estimate.frequencies[38:42].sum(), abs=1e-9)
        assert estimate.share((18, 22), (None, 16.0)) == shares
        assert estimate.together((18, 22), ":16") == estimate.together("18:22", ":16")
        assert (
            estimate.change_since(room.estimate("2026-11-14"), (18, None))[0].rows[0].name == "18 and above"
        )
        assert [row.name for row in estimate.quantile(0.5, 0.95).rows] == ["median", "95% quantile"]
        assert estimate.quantile().rows[0].name == "median"
        assert [row.name for row in estimate.mean().rows] == ["mean", "standard deviation"]
        assert len(estimate.cdf().rows) == 63
        assert estimate.top(2)[0].kind == "top"
        assert "nonnegative" in str(estimate.histogram(8, post="nonnegative"))
        with pytest.raises(dataclasses.FrozenInstanceError):
            estimate.unit = "K"  # type: ignore[misc]

    def test_labels_name_a_choices_shares(self, home: hushmote.FleetReader):
        mode = home.experiment("mode")
        assert [row.name for row in mode.estimate().histogram().rows] == ["idle", "heating", "door", "other"]
        assert mode.estimate().share("door").rows[0].value == pytest.approx(0.1, abs=6 * 0.01)
        assert {row.name for row in mode.trend()[0].rows} == {"idle", "heating", "door", "other"}
        assert [row.name for row in mode.trend("idle")[0].rows] == ["idle", "idle"]

    @pytest.mark.slow
    def test_shows_changes_and_trends(
        self, stored: Path, home: hushmote.FleetReader, room: hushmote.ExperimentReader
    ):
        """Means differ by 2 and 3 degrees; their standard errors are below 0.3, and six of them mean 2e-9."""
        before, after = room.estimate("2026-11-14"), room.estimate("2026-11-21")
        shares, readings = after.change_since(before, ":20", quantiles=[0.5])
        assert [row.name for row in shares.rows] == ["below 20"]
        assert [row.name for row in readings.rows] == ["mean", "standard deviation", "median"]
        assert abs(readings.rows[0].value - 2) < 6 * 0.3
        lab = hushmote.open(f"sqlite:///{stored / 'hushmote.sqlite'}").fleet("lab").experiment("room_temp")
        assert abs(lab.estimate().change_since(room.estimate())[1].rows[0].value - 3) < 6 * 0.3
        same = hushmote.open(f"sqlite:///{stored / 'hushmote.sqlite'}").fleet("home").experiment("room_temp")
        for other in (room, same):
            with pytest.raises(hushmote.HushmoteError, match="reports of 2026-11-21 would be on both sides"):
                after.change_since(other.estimate())
        assert [answer.quantity for answer in room.trend(":20", "mean")] == ["share", "reading"]
        assert room.trend() == room.trend("mean")
        assert room.trend("mean")[0].unit == "°C"


class TestOutput:
    @pytest.mark.slow
    def test_plots_leave_matplotlib_unchanged(self, stored: Path):
        """The selected backend stays, and pyplot, which accumulates figures, is never loaded."""
        code = """
import sys, matplotlib, hushmote
matplotlib.use("svg")
before = dict(matplotlib.rcParams)
room = hushmote.open("sqlite:///hushmote.sqlite").fleet("home").experiment("room_temp")
figures = [room.estimate().histogram().plot("room.png"), room.trend("mean", ":20").plot()]
print(matplotlib.get_backend(), dict(matplotlib.rcParams) == before, "matplotlib.pyplot" in sys.modules)
print([len(figure.axes) for figure in figures], figures[1]._repr_png_()[1:4])
"""
        assert python(code, stored).splitlines() == ["svg True False", "[1, 2] b'PNG'"]
        assert (stored / "room.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.slow
    def test_prints_in_80_columns_and_as_html(self, room: hushmote.ExperimentReader):
        estimate = room.estimate()
        shown = [
            estimate,
            estimate.share("18:22", post="smooth"),
            room.estimate("2026-11-21").change_since(room.estimate("2026-11-14"), ":20"),
            room.trend(":20", "mean"),
            hushmote.plan(devices=20_000, values=64, epsilon=2),
        ]
        for output in shown:
            text = str(output)
            assert repr(output) == text
            assert max(map(len, text.splitlines())) <= 80
            assert "…" not in text
            assert "\x1b" not in text
            html = typing.cast(typing.Any, output)._repr_html_()
            assert html.count("<table>") == html.count("</table>") > 0
        assert (
            "&lt;"
            in hushmote.Answer(
                "ranges", "<x>", "share", "<x>", 1, 0.95, estimate.share(":20").rows
            )._repr_html_()
        )

    @pytest.mark.slow
    def test_tables_form_a_data_frame_and_a_csv(self, room: hushmote.ExperimentReader):
        trend = room.trend(":20", "mean")
        frame = trend.to_pandas()
        assert len(frame) == 4
        assert list(frame.columns)[:5] == ["name", "value", "low", "high", "se"]
        assert set(frame.columns) == set(trend.to_csv().splitlines()[0].split(","))
        arrow = pyarrow.RecordBatchReader.from_stream(trend).read_all()
        assert arrow.to_pandas()[frame.columns].equals(frame.reset_index(drop=True))
        assert pyarrow.table(trend[0]).num_rows == 2
        assert pyarrow.RecordBatchReader.from_stream(hushmote.Answers()).read_all().num_rows == 0
        estimate = room.estimate()
        assert estimate.to_csv() == estimate.summary().to_csv()
        assert estimate.to_pandas().equals(estimate.summary().to_pandas())


ROOT = Path(__file__).parents[2]


class TestStatistic:
    def test_has_value_interval_and_standard_error(self, room: hushmote.ExperimentReader):
        mean = room.estimate().mean()
        assert (mean.value, mean.low, mean.high) == (mean.rows[0].value, mean.rows[0].low, mean.rows[0].high)
        assert mean.se is not None
        assert mean.conf_int()[0] == pytest.approx([mean.low, mean.high])
        narrow = room.estimate(confidence=0.5).mean()
        assert mean.conf_int(0.5) == pytest.approx(np.array([(row.low, row.high) for row in narrow.rows]))
        assert mean.conf_int(0.05)[0] == pytest.approx(
            [mean.value - 1.96 * mean.se, mean.value + 1.96 * mean.se], rel=1e-3
        )

    def test_refuses_other_cdf_intervals(self, room: hushmote.ExperimentReader):
        with pytest.raises(hushmote.HushmoteError, match=r"estimate with confidence=0\.9"):
            room.estimate().cdf().conf_int(0.1)


class TestTrendFrame:
    @pytest.mark.parametrize(
        ("by", "starts"), [("day", ["2026-11-14", "2026-11-21"]), ("week", ["2026-11-09", "2026-11-16"])]
    )
    def test_is_indexed_by_time(self, by: str, starts: list[str], room: hushmote.ExperimentReader):
        frame = room.trend("mean", by=by).to_pandas()
        index = typing.cast(pandas.DatetimeIndex, frame.index)
        assert (index.name, str(index.tz)) == ("start", "UTC")
        assert [f"{start:%Y-%m-%d}" for start in index] == starts


class TestComparison:
    def test_matches_command(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        line = [
            "--devices",
            "3000",
            "--population",
            "normal:19:3",
            "--drift",
            "0.5",
            "--days",
            "15",
            "--to",
            url,
        ]
        invoked = CliRunner().invoke(app, ["simulate", str(ROOT / "examples/room_temp.toml"), *line])
        assert invoked.exit_code == 0, invoked.output
        room = hushmote.open(url).fleet().experiment()
        changed = room.compare("7d", "24:")
        command = [
            "estimate",
            "room_temp",
            "--store",
            url,
            "--against-last",
            "7d",
            "--range",
            "24:",
            "--json",
        ]
        result = json.loads(CliRunner().invoke(app, command).output)
        assert [output.to_dict()["rows"] for output in changed] == [
            output["rows"] for output in result["answers"]
        ]
        with pytest.raises(hushmote.HushmoteError, match="7d, 12h, 2w or all, not week"):
            room.compare("week")


LIFETIME = {"lifetime": 2, "horizon": "1y", "call": "1h", "low": 0, "high": 40, "unit": "°C", "quantile": 0.9}


class TestPlan:
    @pytest.mark.parametrize("statistics", ["pairs", "labels", "x"])
    def test_rejects_unsupported_statistics(self, statistics: str):
        with pytest.raises(hushmote.HushmoteError) as raised:
            hushmote.plan(devices=1000, epsilon=1, values=16, statistics=statistics)
        known = "frequencies, ranges, quantiles and mean"
        assert str(raised.value) == f"statistics must be one of {known}, not {statistics}"

    @pytest.mark.slow
    def test_calculates_the_fourth_from_any_three(self):
        plan = hushmote.plan(devices=20_000, values=64, epsilon=2)
        assert f"{plan.error:.3%}" == "2.881%"
        assert (plan.devices, plan.epsilon, plan.values) == (20_000, 2, 64)
        assert plan.mechanism.startswith("hh, fanout 2, cells 2 4 8")
        assert "±2.881 points   <- the answer" in str(plan)
        assert hushmote.plan(epsilon=1, values="yes-no", error=0.01).to_dict()["solved"] == "devices"
        assert hushmote.plan(epsilon=1, values=["a", "b"], error=0.01).values == 3
        assert (
            hushmote.plan(devices=20_000, values=64, epsilon=2, statistics="quantiles").plan.question.share
            == 0.5
        )
        with pytest.raises(hushmote.HushmoteError, match="give three of devices, epsilon, values"):
            hushmote.plan(devices=10)
        with pytest.raises(
            hushmote.HushmoteError, match="error 0\\.1s requires a mean or a quantile with low"
        ):
            hushmote.plan(devices=10, values=4, error="0.1s")

    def test_reads_numbers_as_people_type_them(self):
        typed: dict[str, typing.Any] = {
            "devices": "100,000",
            "epsilon": "2",
            "values": "64",
            "low": "−10",
            "high": "1k",
            "quantile": "90%",
        }
        plan = hushmote.plan(**typed)
        numbers = hushmote.plan(devices=100_000, epsilon=2, values=64, low=-10, high=1000, quantile=0.9)
        assert plan.to_dict() == numbers.to_dict()
        for error in ("±3 points", "3%", "0.03"):
            assert hushmote.plan(epsilon=2, values=4, error=error).devices == (
                hushmote.plan(epsilon=2, values=4, error=0.03).devices
            )

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"devices": "20.000"}, "devices must be a whole number, such as 20,000 or 20k, not '20.000'"),
            ({"devices": 9, "epsilon": "much"}, "epsilon must be a number, such as 1.5, not 'much'"),
            ({"share": "half"}, "share must be a share, such as 0.05 or 5%, not 'half'"),
        ],
        ids=["devices", "epsilon", "share"],
    )
    def test_refuses_other_texts(self, fields: dict[str, typing.Any], words: str):
        with pytest.raises(hushmote.HushmoteError) as caught:
            hushmote.plan(**fields)
        assert str(caught.value) == words

    @pytest.mark.slow
    @pytest.mark.parametrize("cost", [{"epsilon": 2}, LIFETIME], ids=["one report", "a lifetime"])
    def test_matches_command(self, cost: dict[str, typing.Any]):
        """Compare words and JSON; tests/web/test_plan.py compares the page's answer with the command's."""
        request = PlanRequest(devices=20_000, values=16, **cost)
        plan = hushmote.plan(devices=20_000, values=16, **cost)
        results = [CliRunner().invoke(app, ["plan", *request.words(), *more]) for more in ((), ("--json",))]
        printed, _, following = results[0].stdout.rpartition("\n\n")
        assert [line.rstrip() for line in printed.splitlines()] == str(plan).splitlines()
        assert following.startswith("next: ")
        assert json.loads(results[1].stdout) == plan.to_dict()

    @pytest.mark.parametrize("kind", [list, np.array, pandas.Series, "file"])
    def test_input_takes_readings_in_any_form(self, kind: typing.Any, tmp_path: Path):
        readings = [20.1, 20.4, None, -200, -200, 22.5] * 10
        given = f"{tmp_path / 'a.csv'}:t"
        (tmp_path / "a.csv").write_text("t,n\n" + "".join(f"{'' if x is None else x},1\n" for x in readings))
        if kind != "file":
            given = kind([math.nan if x is None else x for x in readings])
        plan = hushmote.plan(input=given, devices=5_000)
        assert plan.proposal
        request = plan.proposal.request
        assert (request.low, request.high, request.values, request.missing) == (20, 22.5, 50, 0.5)
        assert "keep_value -200 keeps them" in str(plan).replace("\n", " ")
        kept = hushmote.plan(input=given, keep_value=[-200])
        assert kept.proposal
        assert kept.proposal.request.low == -200
        fleet = hushmote.simulate(ROOT / "examples/room_temp.toml", readings=given, devices=1_000, seed=1)
        assert fleet.rows
        assert (fleet.rows.count, fleet.rows.blank) == (60, 30)
        file = ROOT / "examples/room_temp.toml"
        kept_fleet = hushmote.simulate(file, readings=given, keep_value=[-200], devices=1_000, seed=1)
        assert kept_fleet.rows
        assert kept_fleet.rows.blank == 10

    def test_simulation_takes_the_decimal_separator(self):
        file, readings = ROOT / "examples/room_temp.toml", ["20,100", "22,500"] * 20
        with pytest.raises(hushmote.HushmoteError, match=r"20,100 in the list is 20100 or 20\.1; give"):
            hushmote.simulate(file, readings=readings, devices=1_000)
        fleet = hushmote.simulate(file, readings=readings, decimal=",", devices=1_000, seed=1)
        mean = fleet.mean().rows[0].truth
        assert mean is not None
        assert 20 < mean < 23

    def test_input_may_be_a_column_of_labels(self):
        versions = pandas.DataFrame({"fw": ["1.9", "1.10", "1.10"] * 5})["fw"]
        plan = hushmote.plan(input=versions)
        assert plan.proposal
        assert plan.proposal.request.values == ("1.10", "1.9")
        with pytest.raises(hushmote.HushmoteError, match="each of the 3 texts in the list occurs only once"):
            hushmote.plan(input=["a", "b", "c"])

    def test_docstring_has_a_line_for_each_field(self):
        docstring = inspect.getdoc(hushmote.plan) or ""
        assert set(inspect.signature(hushmote.plan).parameters) == {
            f.name for f in dataclasses.fields(PlanArguments)
        }
        assert "horizon: With lifetime: its length, such as 2y." in docstring
        assert "--" not in docstring


class TestSimulation:
    @pytest.mark.slow
    def test_shows_truth_next_to_answers(self, after_demo: Path):
        file = after_demo / "room_temp.toml"
        normal = hushmote.simulate(file, devices=1_000_000, population="normal:21:3", seed=1)
        assert (normal.devices, normal.unit, normal.attack) == (1_000_000, "°C", None)
        for answer in (normal.share("18:22"), normal.quantile(0.5), normal.mean()):
            assert all(row.truth is not None for row in answer.rows)
        repeated = hushmote.simulate(str(file), devices=1_000_000, population="normal:21:3", seed=1)
        assert np.array_equal(normal.frequencies, repeated.frequencies)
        assert len(normal.change_since(repeated)) == 2
        smaller = hushmote.simulate(
            file, devices=200, population="normal:21:3", calls=300, faults=hushmote.Faults(late=0.1)
        )
        assert 0 < smaller.reports <= 200 * 4
        attacked = hushmote.simulate(file, population="normal:21:3", attack="promote:30:0.1")
        assert attacked.attack
        assert attacked.attack.fake_devices == 10_000
        with pytest.raises(hushmote.HushmoteError, match="cannot read"):
            hushmote.simulate(file, population="file:a.csv:x")
        with pytest.raises(hushmote.HushmoteError, match="seed must be a whole number, 0 or more, not -1"):
            hushmote.simulate(file, seed=-1)
