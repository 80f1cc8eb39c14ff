"""Answers in the experiment's own units: formats, rows, confidence and errors."""

import csv
import dataclasses
import io
import json
import re
from typing import Any, cast

import numpy as np
import pytest
from designs import bell, choice, draw, number
from experiments import number_json
from refusals import fails

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import answer, change, tables
from hushmote.server.answers.answer import Frame
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.answers.rows import OUTSIDE, Kind, PostRow, Row, TopRow, coverage
from hushmote.server.errors import UsageError
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.readings import among_readings
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.experiments.units import UnitsError, parse_range
from hushmote.server.plain_text import cell

NUMBER = number(32, 2, low=-16_000, high=16_000, name="temp")
F = bell(32, 18, 4)
ESTIMATE = draw(NUMBER, F, 30_000, np.random.default_rng(1))
MODES = choice(["idle", "heating", "cooling", "defrost", "door"], 2)
COMMON = draw(MODES, np.array([0.5, 0.25, 0.15, 0.06, 0.04, 0]), 30_000, np.random.default_rng(2))


def all_kinds() -> list[answer.Answer]:
    other = draw(NUMBER, bell(32, 19, 4), 30_000, np.random.default_rng(3))
    texts = ("0:4", "8:", ":-4")
    wanted = [parse_range(NUMBER, text) for text in texts]
    known = FleetEstimate(ESTIMATE, unit="°C", truth=F)
    return [
        known.histogram(8),
        FleetEstimate(ESTIMATE, unit="°C").histogram(8, post="nonnegative"),
        FleetEstimate(ESTIMATE, unit="°C", truth=F, confidence=0.9).share(*texts),
        known.cdf(),
        known.quantile(0.05, 0.5, 0.95),
        known.mean(),
        FleetEstimate(COMMON, truth=np.array([0.5, 0.25, 0.15, 0.06, 0.04, 0])).top(2)[0],
        change.changed_shares(ESTIMATE, other, wanted, Frame("°C")),
        change.changed_readings(ESTIMATE, other, [0.5], Frame("°C")),
        change.trend(
            {"monday": ESTIMATE, "tuesday": other}, {"0 to 4": [e.range(16, 20) for e in (ESTIMATE, other)]}
        ),
    ]


class TestFormats:
    def test_csv_has_no_formulas_or_control_characters(self):
        texts = [
            "=1+1",
            "+1+1",
            "-1+1",
            "@SUM(A1)",
            " =1",
            "\t=1",
            "\r=1",
            "\n=1",
            "＝1+1",
            "a\x1b[2Jb\x9b",
            "a\nb",
        ]
        rows = tuple(Row(text, -0.5, -1.0, 0.0) for text in texts)
        csv_text = answer.Answer("ranges", "x", "share", "", 9, 0.95, rows).to_csv()
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", csv_text)
        assert len(csv_text.splitlines()) == 1 + len(texts)
        read = list(csv.DictReader(io.StringIO(csv_text)))
        assert not any(row["name"].lstrip()[:1] in tuple("=+-@＝＋－＠\t\r") for row in read)
        assert [read[0]["name"], read[5]["name"], read[9]["name"]] == ["'=1+1", "\\t=1", "a\\x1b[2Jb\\x9b"]
        assert {(float(row["value"]), float(row["low"])) for row in read} == {(-0.5, -1.0)}
        for plain in ("-5", "+0.25", "-10 to -6", "-2 and above", "-1e+06", "18 to 22", "ok", "naïve = yes"):
            row_answer = answer.Answer("ranges", "x", "share", "", 9, 0.95, (Row(plain, 0.5, 0.0, 1.0),))
            assert next(csv.DictReader(io.StringIO(row_answer.to_csv())))["name"] == plain

    def test_csv_for_european_spreadsheets(self):
        rows = (Row("-10 to -6", 0.25, -1.5, 1.0), Row("=1;2", 0.5, 0.0, 1e-7))
        table = answer.Answer("ranges", "x", "share", "", 9, 0.95, rows)
        text = table.to_csv("excel-eu")
        assert text.startswith("\ufeffkind;quantity;name;value;low;high")
        assert "ranges;share;-10 to -6;0,25;-1,5;1,0" in text
        assert 'ranges;share;"\'=1;2";0,5;0,0;1e-07' in text
        assert text.count("\r\n") == text.count("\n") == 3
        with fails("must be plain or excel-eu, not excel", UsageError):
            table.to_csv(cast(Any, "excel"))

    @pytest.mark.slow
    def test_carry_the_same_content(self):
        for item in all_kinds():
            plain = item.to_dict()
            assert json.loads(item.to_json()) == plain
            assert plain["kind"] == item.kind
            assert len(plain["rows"]) == len(item.rows) > 0
            lines = list(csv.DictReader(io.StringIO(item.to_csv())))
            frame = item.to_pandas()
            for row, line, (_, series) in zip(plain["rows"], lines, frame.iterrows(), strict=True):
                assert (line["kind"], line["name"]) == (item.kind, cell(row["name"]))
                for key in ("value", "low", "high"):
                    assert float(line[key]) == row[key] == series[key]
            assert set(frame.columns) == set(plain["rows"][0])
            with pytest.raises(dataclasses.FrozenInstanceError):
                item.rows[0].value = 1.0  # type: ignore[misc]

    @pytest.mark.slow
    def test_every_kind_has_a_picture_and_80_column_table(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        kinds, path = all_kinds(), tmp_path / "all.png"
        plotted = answer.Answers(kinds).plot(path, "a title", "a subtitle")
        assert path.read_bytes().startswith(b"\x89PNG")
        assert all(axes.has_data() for axes in plotted.axes)
        for item in kinds:
            tables.print_answers([item])
            text = capsys.readouterr().out
            assert max(map(len, text.splitlines())) <= 80
            assert "…" not in text
            for row in item.rows:
                assert row.name in text


class TestFirstRow:
    def test_is_that_of_the_table(self):
        table = FleetEstimate(ESTIMATE).share("0:4", "8:")
        first = table.rows[0]
        assert (table.value, table.low, table.high, table.se) == (
            first.value,
            first.low,
            first.high,
            first.se,
        )

    def test_is_missing_in_an_empty_table(self):
        empty = answer.Answer("discovery", "x", "share", "", 9, 0.95, ())
        with pytest.raises(EstimateError, match="this table of x has no rows"):
            _ = empty.value


class TestConfidence:
    def test_widens_the_interval(self):
        narrow, wide = (FleetEstimate(ESTIMATE, confidence=c).share("0:4").rows[0] for c in (0.5, 0.99))
        assert wide.low < narrow.low < narrow.high < wide.high
        with pytest.raises(EstimateError, match="confidence must be between 0 and 1, not 1"):
            FleetEstimate(ESTIMATE, confidence=1).share("0:4")


class TestRows:
    def test_are_in_the_experiments_units(self):
        rows = FleetEstimate(ESTIMATE).histogram(8).rows
        assert [row.name for row in rows[:2]] == ["below -12", "-12 to -8"]
        assert sum(row.value for row in rows) == pytest.approx(1)
        quantile = FleetEstimate(ESTIMATE).quantile(0.5).rows[0]
        middle = float(np.argmax(ESTIMATE.cdf() >= 0.5)) - 15.5
        assert (quantile.name, quantile.value) == ("median", middle)
        assert quantile.low <= middle - 0.5 < middle + 0.5 <= quantile.high
        steps = FleetEstimate(ESTIMATE).cdf().rows
        assert (steps[0].name, steps[-1].name, len(steps)) == ("-15", "15", 31)
        assert steps[15].value == pytest.approx(ESTIMATE.range(0, 16).value)
        assert [row.name for row in FleetEstimate(COMMON).histogram().rows] == [*MODES.labels, "other"]
        (common,) = FleetEstimate(COMMON).top(2)
        assert [row.name for row in common.rows] == ["idle", "heating"]
        assert all(isinstance(row, TopRow) and row.probability > 0.99 for row in common.rows)

    def test_may_be_named_by_numbers(self):
        table = FleetEstimate(ESTIMATE)
        assert table.share((-4, 4), (8, None), (None, -4)) == table.share("-4:4", "8:", ":-4")

    def test_together_are_counted_once(self):
        estimate = FleetEstimate(ESTIMATE, truth=F)
        lower, upper = estimate.share("-4:4", "8:").rows
        (together,) = estimate.together("-4:4", "8:", "0:2").rows
        assert together.name == "-4 to 4 or 8 and above or 0 to 2"
        assert together.value == pytest.approx(lower.value + upper.value)
        assert together.truth == pytest.approx(F[12:20].sum() + F[24:].sum())

    def test_have_the_same_bins_truth(self):
        known, unknown = FleetEstimate(ESTIMATE, truth=F), FleetEstimate(ESTIMATE)
        assert known.quantile(0.5).rows[0].truth == np.argmax(np.cumsum(F) >= 0.5) - 15.5
        assert known.mean().rows[0].truth == pytest.approx(F @ np.arange(-15.5, 16))
        wanted = "-13:-7"  # indices 3 to 8
        assert known.share(wanted).rows[0].truth == pytest.approx(F[3:9].sum())
        kinds = [known.histogram(8), known.share(wanted), unknown.share(wanted)]
        hits, judged = coverage(kinds)
        assert judged == len(kinds[0].rows) + 1
        assert hits == sum(row.low <= (row.truth or 0) <= row.high for a in kinds[:2] for row in a.rows)

    @pytest.mark.slow
    def test_have_processed_and_unbiased_shares(self):
        for name in ("nonnegative", "smooth"):
            histogram = FleetEstimate(ESTIMATE).histogram(32, post=name)
            plain = FleetEstimate(ESTIMATE).histogram(32)
            for row, raw in zip(histogram.rows, plain.rows, strict=True):
                assert isinstance(row, PostRow)
                assert (row.value, row.low, row.high) == (raw.value, raw.low, raw.high)
                assert row.processed >= 0
            assert histogram.note.startswith(f"{name}: ")
            assert "Biased" in histogram.note
            assert "no intervals" in histogram.note
            known = FleetEstimate(ESTIMATE, unit="°C", truth=F)
            for shown in (known.histogram(16, post=name), known.share("0:4", "8:", post=name)):
                assert "…" not in str(shown)  # everything fits in 80 columns
                _, labels = shown.plot().axes[0].get_legend_handles_labels()
                assert name in labels
                assert sum("estimate" in label and "interval" in label for label in labels) == 1


class TestNotes:
    @pytest.mark.parametrize(
        ("kind", "truth", "has_advice"),
        [
            ("histogram", None, True),
            ("ranges", None, True),
            ("histogram", 0.1, False),
            ("conditional", None, False),
        ],
    )
    def test_negative_shares_have_an_explanation(self, kind: Kind, truth: float | None, has_advice: bool):
        rows = (Row("x", -0.01, -0.02, 0.0, truth),)
        (note,) = answer.Answer(kind, "x", "share", "", 9, 0.95, rows).notes
        assert note.startswith(OUTSIDE)
        assert ("nonnegative" in note) == has_advice

    def test_only_some_versions_set_missing(self):
        part = Experiment.parse(number_json(8, name="x"))
        whole = Experiment.parse(number_json(8, name="x", missing=1))
        rng = np.random.default_rng(4)
        drawn = [draw(e, np.full(e.domain, 1 / e.domain), 1000, rng) for e in (part, whole)]
        note = "Only some versions set missing; in the others, missing readings are spread over all values."
        for estimates, has_note in ((among_readings(pool(drawn)), True), (drawn[0], False)):
            assert (FleetEstimate(estimates).histogram(8).note == note) == has_note


class TestErrors:
    def test_readings_are_only_for_numbers(self):
        for call in (lambda: FleetEstimate(COMMON).quantile(0.5), lambda: FleetEstimate(COMMON).cdf()):
            with pytest.raises(UnitsError, match="only a number has bins"):
                call()
