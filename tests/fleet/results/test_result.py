"""The result document has the numbers of `hushmote estimate` over ended windows, with an honest ε."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import hushmote
from experiment_kinds import MEAN, fill_kinds
from experiments import experiment_json
from filled_store import fill
from open_groups import fill_groups
from refusals import fails

from hushmote.device.ldp_client import Experiment, ExperimentRefused
from hushmote.fleet.results.result import (
    ASK,
    ENDED,
    ENDLESS,
    LIVE,
    MAX_BYTES,
    Result,
    possible_statistics,
    result_of,
)
from hushmote.server.answers import second_epsilon
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.answers.windows import SETTLED, end_of, has_ended
from hushmote.server.errors import UsageError
from hushmote.server.experiments.answerable import UnanswerableError
from hushmote.server.store import Store
from hushmote.server.store.versions import Description
from hushmote.server.words.epsilon import rounded_up

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
DAYS = {"2026-11-20": 4_000, "2026-11-21": 500, "2026-11-22": 60}
TEMP = experiment_json(
    name="temp", type="number", low=-5_000, high=27_000, bins=64, mechanism="grr", epsilon=3_000_000
)
DOOR = experiment_json(name="door", epsilon=2_000_000, budget={"rule": "count", "cap": 2})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        yield opened


def _plain(result: Result) -> dict:
    """Parse a document as strict JSON, without NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert len(result.to_json()) <= MAX_BYTES
    return json.loads(result.to_json(), parse_constant=refuse)


class TestEpsilon:
    def test_covers_each_window_separately(self, store: Store) -> None:
        """An observer of every daily sum learns each day from the differences, even if few sums appear."""
        fill(store, "home", DOOR, {"2026-11-20": 4_000, "2026-11-21": 500, "2026-11-22": 60})
        ended = ("2026-11-20", "2026-11-21")
        epsilons = second_epsilon.of_windows(Facts(store), Selection("door", "home", ended))
        added_up = second_epsilon.of_selections(Facts(store), Selection("door", "home", ended))
        assert epsilons.histogram is not None
        assert added_up.histogram is not None
        assert epsilons.histogram > added_up.histogram
        for newest in (None, 1):
            result = result_of(store, "home", "door", NOON, newest=newest)
            assert result.epsilon.histogram == float(rounded_up(epsilons.histogram)) >= epsilons.histogram
            assert (result.epsilon.report, result.epsilon.holds) == (2.0, ENDED)
        assert result_of(store, "home", "door", NOON, newest=1).reports == 500

    def test_live_result_has_none_for_the_histogram(self, store: Store) -> None:
        fill(store, "home", DOOR, {"2026-11-22": 60})
        document = _plain(result_of(store, "home", "door", NOON, live=True))
        assert document["reports"] == 60
        assert (document["epsilon"]["histogram"], document["epsilon"]["holds"]) == (None, LIVE)
        assert document["epsilon"]["report"] == 2.0


class TestWindows:
    def test_appear_once_ended_and_settled(self, store: Store) -> None:
        fill(store, "home", DOOR, {"2026-11-21": 300, "2026-11-22": 200})
        midnight = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
        for at, reports in (
            (midnight - datetime.timedelta(seconds=1), 300),
            (midnight + SETTLED - datetime.timedelta(seconds=1), 300),
            (midnight + SETTLED, 500),
        ):
            assert result_of(store, "home", "door", at).reports == reports
        assert not has_ended("all", datetime.datetime.max.replace(tzinfo=datetime.UTC))
        assert end_of("2026-11-21T23") == datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
        assert end_of("9999-12-31") is None  # after every clock's maximum
        assert end_of("rubbish") is None

    def test_endless_window_is_shown_live_only(self, store: Store) -> None:
        fill(store, "home", experiment_json(name="ever", window="all"), {"all": 800})
        ended = _plain(result_of(store, "home", "ever", NOON))
        assert (ended["reports"], ended["statistics"], ended["note"]) == (0, [], ENDLESS)
        assert ended["epsilon"]["histogram"] is None
        assert result_of(store, "home", "ever", NOON, live=True).reports == 800


def _choice(labels: list[str]) -> bytes:
    return experiment_json(
        name="mode", type="choice", labels=labels, mechanism="grr", epsilon=6_000_000,
        budget={"rule": "unlimited"},
    )  # fmt: skip


class TestDocument:
    @pytest.mark.parametrize("reports", [0, 1, 2, 3])
    @pytest.mark.parametrize(
        "fields",
        [
            {"name": "e"},
            {"name": "e", "type": "choice", "labels": ["a", "b"], "mechanism": "grr"},
            {"name": "e", "type": "number", "low": 0, "high": 8_000, "bins": 8, "mechanism": "grr"},
            {"name": "e", "type": "number", "low": 0, "high": 8_000, "bins": 256, "mechanism": "hh"}
            | {"fanout": 4, "cells": [4, 3, 3, 3]},
        ],
        ids=["bool", "choice", "grr", "hh"],
    )
    def test_is_strict_json_with_few_reports(self, store: Store, fields: dict, reports: int) -> None:
        fill(store, "home", experiment_json(**fields), {"2026-11-21": reports} if reports else {})
        for live in (False, True):
            document = _plain(result_of(store, "home", "e", NOON, live=live))
            assert document["reports"] == reports
            # A tree with few reports has none on its last level yet, as the note states.
            shown = reports >= 2 and fields.get("mechanism") != "hh"
            assert bool(document["statistics"]) == bool(document["histogram"]) == shown
            assert bool(document["note"]) == (not shown)

    @pytest.mark.parametrize("letter", ["x", "{", "'"])
    def test_stays_below_four_kilobytes(self, store: Store, letter: str) -> None:
        labels: list[str] = []
        for i in range(40):  # the most and longest that fit an experiment's kilobyte
            label = f"{i}{letter * 30}"
            try:
                Experiment.parse(_choice([*labels, label]))
            except ExperimentRefused:
                break
            labels.append(label)
        assert len(labels) >= 3
        # 16 or more rows, with short labels, one of them common.
        for some in (labels, [f"{letter}{i}" for i in range(60)]):
            payload = _choice(some)
            if len(payload) > 1024:
                payload = _choice(some[:30])
            experiment = Experiment.parse(payload)
            shares = [0.5] + [0.5 / (experiment.domain - 1)] * (experiment.domain - 1)
            fleet = f"home{len(some)}"
            fill(
                store,
                fleet,
                payload,
                {f"2026-10-{day:02}": 900 for day in range(1, 29)},
                shares,
                unit="u" * 400,
            )
            store.add_experiment(
                fleet, payload, description=Description("u" * 400, "\N{FIRE}" * 400, "o" * 400)
            )
            result = result_of(store, fleet, "mode", NOON)
            document = _plain(result)
            assert document["purpose"].startswith("\N{FIRE}" * 19)  # two columns each
            assert 3 <= len(document["histogram"]) <= 16
            assert document["statistics"][0]["id"] == "share_0"  # the common label is never omitted
            assert (len(document["windows"]), document["window_count"]) == (7, 7)
            assert document["windows"][-1] == "2026-10-28"

    def test_names_the_reports_of_each_group(self, store: Store) -> None:
        fill_groups(store, "home")
        result = result_of(store, "home", "crashed", NOON)
        group = _plain(result)["group"]
        assert (group["name"], group["value"], result.reports) == ("firmware", None, 7_930)
        assert [(row["value"], row["reports"]) for row in group["reports"]] == [
            ("2.3.1", 6_300),
            ("2.4.0", 1_500),
            ("2.5.0", None),
            ("other", None),
        ]

    def test_fits_with_many_long_groups(self, store: Store) -> None:
        values, labels = [f"{n:032}" for n in range(12)], [f"{n:020}" for n in range(14)]
        payload = experiment_json(
            name="crashed",
            type="choice",
            labels=labels,
            mechanism="grr",
            epsilon=4_000_000,
            group="firmware",
            groups=values,
        )
        fill(store, "home", payload, {"2026-11-21": 900})
        document = _plain(result_of(store, "home", "crashed", NOON))
        assert len(document["group"]["reports"]) == 13
        assert document["histogram"]

    def test_contains_purpose_and_owner(self, store: Store) -> None:
        fill(store, "home", DOOR, {"2026-11-22": 3})
        assert [_plain(result_of(store, "home", "door", NOON))[key] for key in ("purpose", "owner")] == [
            "",
            "",
        ]
        store.add_experiment(
            "home", DOOR, description=Description("", "Why\x1b[2J? " * 100, "who@example.org")
        )
        for live in (False, True):  # even before a window has ended
            document = _plain(result_of(store, "home", "door", NOON, live=live))
            assert document["purpose"].startswith("Why\\x1b[2J? Why")
            assert (len(document["purpose"]), document["purpose"][-1]) == (200, "…")
            assert document["owner"] == "who@example.org"

    def test_rejects_unknown_fleet_or_experiment(self, store: Store) -> None:
        fill(store, "home", DOOR, DAYS)
        for fleet, name in (("away", "door"), ("home", "window")):
            with pytest.raises(UsageError):
                result_of(store, fleet, name, NOON)


class TestNumbers:
    def test_match_estimate_command(self, store: Store, tmp_path: Path) -> None:
        fill(store, "home", TEMP, DAYS, unit="°C")
        document = _plain(result_of(store, "home", "temp", NOON))
        ended = ("--window", "2026-11-20", "--window", "2026-11-21")
        result = json.loads(hushmote("estimate", "temp", *ended, "--quantile", "0.5", "--json", cwd=tmp_path))
        histogram, readings = (
            result["answers"][0]["rows"],
            [r for a in result["answers"][1:] for r in a["rows"]],
        )
        assert (document["reports"], document["windows"]) == (4_500, ["2026-11-20", "2026-11-21"])
        assert (document["type"], document["unit"], document["at"]) == (
            "number",
            "°C",
            "2026-11-22T12:00:00Z",
        )
        assert len(document["histogram"]) == len(histogram) == 16
        for bar, row in zip(document["histogram"], histogram, strict=True):
            assert (bar["name"], bar["from"], bar["to"]) == (row["name"], row["lower"], row["upper"])
            for key, value in (("share", row["value"]), ("low", row["low"]), ("high", row["high"])):
                assert bar[key] == pytest.approx(value, abs=5e-7)
        by_name = {row["name"]: row for row in readings}
        assert [statistic["name"] for statistic in document["statistics"]] == ["mean", "median"]
        for statistic in document["statistics"]:
            row = by_name[statistic["name"]]
            assert statistic["quantity"] == "reading"
            assert [statistic[k] for k in ("value", "low", "high")] == pytest.approx(
                [row[k] for k in ("value", "low", "high")], rel=5e-6
            )

    @pytest.mark.slow
    def test_mean_has_no_histogram_and_text_has_a_note(self, store: Store) -> None:
        fill_kinds(store)
        mean = _plain(result_of(store, "home", "delay", NOON))
        assert [statistic["id"] for statistic in mean["statistics"]] == ["mean"]
        assert mean["histogram"] == []
        assert mean["note"] == ""
        texts = _plain(result_of(store, "home", "firmware", NOON))
        assert (texts["statistics"], texts["histogram"], texts["reports"]) == ([], [], 6_000)
        assert texts["note"] == f"firmware answers only the shares of texts that you name: {ASK}"
        versions = store.experiments("home")
        assert possible_statistics(v for v in versions if v.experiment.name == "firmware") == []


class TestVersions:
    def test_newest_version_answers_if_others_do_not_fit(self, store: Store) -> None:
        fill(store, "home", TEMP, DAYS)
        other = experiment_json(
            name="temp", type="number", low=0, high=27_000, bins=64, mechanism="grr", epsilon=3_000_000
        )
        fill(store, "home", other, DAYS)
        document = _plain(result_of(store, "home", "temp", NOON))
        assert (document["note"], document["reports"]) == ("", 4_500)
        assert [statistic["id"] for statistic in document["statistics"]] == ["mean", "median"]
        assert "4,500 reports of another version from" in document["finding"]

    def test_labels_keep_their_ids(self, store: Store) -> None:
        """A sensor of Home Assistant must not show another label after a version adds or moves one."""
        design = {"name": "mode", "type": "choice", "mechanism": "grr", "epsilon": 3_000_000}
        fill(store, "home", experiment_json(labels=["heat", "cool"], **design), {"2026-11-20": 3_000})
        before = _plain(result_of(store, "home", "mode", NOON))
        fill(store, "home", experiment_json(labels=["dry", "cool", "heat"], **design), {"2026-11-21": 3_000})
        after = _plain(result_of(store, "home", "mode", NOON))
        names = [{row["name"]: row["id"] for row in each["statistics"]} for each in (before, after)]
        assert names[0] == {"heat": "share_0", "cool": "share_1", "other": "share_2"}
        assert names[1] == names[0] | {"dry": "share_3"}
        ids = possible_statistics(store.experiments("home"))
        assert ids == ["share_0", "share_1", "share_2", "share_3"]

    def test_keeps_a_value_until_the_newest_has_reports(self, store: Store) -> None:
        design = {"name": "mode", "type": "choice", "mechanism": "grr", "epsilon": 3_000_000}
        fill(store, "home", experiment_json(labels=["heat", "cool"], **design), {"2026-11-20": 3_000})
        fill(store, "home", experiment_json(labels=["heat", "cool", "dry"], **design), {})
        document = _plain(result_of(store, "home", "mode", NOON))
        assert (document["note"], document["reports"], len(document["statistics"])) == ("", 3_000, 3)

    def test_answer_only_questions_common_to_all(self, store: Store) -> None:
        """The older version has a histogram and the newer one only a mean, so the pool has only a mean."""
        fill(store, "home", at_mechanism("grr"), {"2026-11-20": 3_000})
        fill(store, "home", at_mechanism("sw"), {"2026-11-21": 3_000})
        both = _plain(result_of(store, "home", "delay", NOON))
        assert ([statistic["id"] for statistic in both["statistics"]], both["histogram"]) == (["mean"], [])
        assert both["reports"] == 6_000
        with fails("delay answers only its mean in all of its versions", UnanswerableError):
            FleetEstimate(Facts(store).selected(Selection("delay", "home")).estimate()).histogram()


def at_mechanism(word: str) -> bytes:
    """Delays with two versions of the question."""
    fields = json.loads(MEAN) | {"mechanism": word}
    return experiment_json(**fields | ({} if word == "sw" else {"reach": None}))
