"""One store with five versions of each question answers in every interface, with the same numbers.

The versions add, rename and reorder labels, widen the range, and change ε. Each has its own reports from a
known population. Estimates may be 5 standard errors off, so correct code fails less than once in 1e5 draws,
and seeds are fixed.
"""

import csv
import datetime
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import hushmote
from experiments import experiment_json
from filled_store import fill, write

import hushmote as public
from hushmote.fleet.results.publication import Publication
from hushmote.fleet.results.snapshot import retained_messages, take_snapshot
from hushmote.server.store import Description, Store
from hushmote.simulator import vectorised

TODAY = datetime.datetime.now(datetime.UTC).date()
DAYS = [str(TODAY - datetime.timedelta(days)) for days in (6, 5, 4, 3, 2)]  # stable even if midnight passes
REPORTS = 4_000
ANSWERING = 3 * REPORTS  # of the newest three versions, which count the same values
SHARES = {"heat": 0.5, "cool": 0.3, "dry": 0.15, "other": 0.05}
MODES = [
    ("heat cool", 2_000_000),
    ("warm cool dry", 2_000_000),  # a label renamed, and one added
    ("heat cool dry", 2_000_000),  # renamed back
    ("dry heat cool", 2_000_000),  # reordered
    ("dry heat cool", 3_000_000),  # another ε
]
TEMPS = [  # low, high and bins
    (0, 24, 12, 3_000_000),
    (0, 48, 24, 3_000_000),  # widened
    (0, 48, 12, 2_000_000),  # coarser
    (0, 48, 12, 3_000_000),  # another ε
    (0, 48, 12, 3_500_000),
]
BELOW_16 = 0.5  # readings are normal around 16 ± 8
FAULTS = [("ok", 2), ("ok fault", 2), ("fault ok", 2), ("fault ok dry", 2), ("fault ok dry", 3)]
FAULT_SHARES = {"2.3.1": 0.05, "2.4.0": 0.3}


def fill_modes(store: Store) -> list[str]:
    digests: list[str] = []
    for day, (text, epsilon) in zip(DAYS, MODES, strict=True):
        labels = text.split()
        shares = [SHARES.get(name, 0.0) for name in labels]
        payload = experiment_json(name="mode", type="choice", labels=labels, mechanism="grr", epsilon=epsilon)
        version = fill(store, "home", payload, {day: REPORTS}, [*shares, 1 - sum(shares)], seed=len(digests))
        digests.append(version.digest.hex())
    return digests


def fill_temps(store: Store) -> None:
    for day, (low, high, bins, epsilon) in zip(DAYS, TEMPS, strict=True):
        edges = [-math.inf, *np.linspace(low, high, bins + 1)[1:-1], math.inf]
        below = [0.5 * (1 + math.erf((edge - 16) / 8 / math.sqrt(2))) for edge in edges]
        payload = experiment_json(
            name="temp",
            type="number",
            low=low * 1000,
            high=high * 1000,
            bins=bins,
            mechanism="grr",
            epsilon=epsilon,
        )
        fill(store, "home", payload, {day: REPORTS}, np.diff(below), "°C", asked=":16\nmedian")


def fill_faults(store: Store) -> None:
    rng = np.random.default_rng(1)
    words = Description(asked="fault", worse='{"worse_by": 0.02}')
    for day, (text, epsilon) in zip(DAYS, FAULTS, strict=True):
        labels, group = text.split(), {"group": "firmware", "groups": list(FAULT_SHARES)}
        payload = experiment_json(
            name="state", type="choice", labels=labels, mechanism="grr", epsilon=epsilon * 1_000_000, **group
        )
        description = words if "fault" in labels else Description()
        version = store.add_experiment("home", payload, description=description)
        for index, share in enumerate(FAULT_SHARES.values()):
            by_label = {"fault": share, "ok": 0.9 - share}
            shares = [by_label.get(name, 0.0) for name in labels]
            counts = vectorised.histogram(version, rng.multinomial(1_000, [*shares, 1 - sum(shares)]), rng)
            codes = {(day, code): int(n) for code, n in enumerate(counts) if n}
            write(store, "home", version, codes, group=index)


@pytest.fixture
def digests(store_url: str) -> list[str]:
    with Store(store_url) as store:
        store.add_fleet("home", keyed=False)
        fill_temps(store)
        fill_faults(store)
        return fill_modes(store)


def check_populations(document: dict[str, Any], truth: Mapping[str, float], kind: str = "histogram") -> None:
    (table,) = (table for table in document["answers"] if table["kind"] == kind)
    rows = {row["name"]: row for row in table["rows"]}
    assert set(truth) <= set(rows)
    for name, share in truth.items():
        assert abs(rows[name]["value"] - share) < 5 * rows[name]["se"]


def rows_of(table: str) -> dict[str, float]:
    lines = csv.DictReader(io.StringIO(table))
    return {line["name"]: float(line["value"]) for line in lines if line["kind"] in ("histogram", "ranges")}


@pytest.mark.slow
class TestFiveVersions:
    def test_every_interface_has_the_same_numbers(
        self, store_url: str, digests: list[str], tmp_path: Path
    ) -> None:
        def run(*arguments: str, experiment: str = "mode") -> str:
            return hushmote("estimate", experiment, "--store", store_url, *arguments, cwd=tmp_path)

        document = json.loads(run("--json"))
        assert (document["reports"], document["unit"]) == (ANSWERING, "")
        check_populations(document, SHARES)
        shares = {row["name"]: row["value"] for row in document["answers"][0]["rows"]}
        assert list(shares) == ["dry", "heat", "cool", "other"]
        for difference, digest in (
            ("with 'warm' instead of 'heat'", digests[1]),
            ("without 'dry'", digests[0]),
        ):
            part = f"4,000 reports of another version {difference} left out (--version {digest[:4]})"
            assert part in document["left_out"]
        run("--output", "mode.csv")
        assert rows_of((tmp_path / "mode.csv").read_text()) == shares
        text = " ".join(run().split())
        assert document["left_out"] in text
        for share in shares.values():
            assert f"{100 * share:.0f}" in text or f"{100 * share:.1f}" in text
        with public.open(store_url) as reader:
            reply = reader.fleet("home").experiment("mode").ask()
            assert {row.name: row.value for row in reply.answers[0].rows} == shares
            finding = str(reader.fleet("home").experiment("mode").finding)
        assert "Heat is most common: " in finding
        status = " ".join(hushmote("status", "--store", store_url, cwd=tmp_path).split())
        assert finding.partition(". ")[0].split(":")[1].strip() in status

        at = datetime.datetime.now(datetime.UTC)
        publication = Publication(home_assistant="homeassistant")
        with Store(store_url) as store:
            snapshot = take_snapshot(store, publication, at)
        assert not snapshot.notes
        messages = retained_messages(snapshot, publication, at)
        result = json.loads(messages["hushmote/v1/home/result/mode"])
        assert {row["name"]: row["share"] for row in result["histogram"]} == {
            name: round(share, 6) for name, share in shares.items()
        }
        assert (result["reports"], result["note"]) == (ANSWERING, "")
        published = {row["name"]: row["id"] for row in result["statistics"]}
        assert set(published) == set(shares)
        for id_ in published.values():
            config = json.loads(messages[f"homeassistant/sensor/hushmote_home/mode-{id_}/config"])
            assert f"'{id_}'" in config["value_template"]
            assert config["state_topic"] == "hushmote/v1/home/result/mode"
        gauges = {
            gauge.labels["statistic"]: gauge.value
            for gauge in snapshot.gauges
            if gauge.name == "hushmote_estimate" and gauge.labels["experiment"] == "mode"
        }
        assert gauges == pytest.approx(shares, abs=1e-6)

    def test_numbers_agree_after_a_range_was_widened(
        self, store_url: str, digests: list[str], tmp_path: Path
    ) -> None:
        def ask(*arguments: str) -> dict[str, Any]:
            options = ("--store", store_url, "--json", *arguments)
            return json.loads(hushmote("estimate", "temp", *options, cwd=tmp_path))

        document = ask("--range", "below 16 °C")
        assert (document["reports"], document["unit"]) == (ANSWERING, "°C")
        check_populations(document, {"below 16": BELOW_16}, "ranges")
        for part in ("of another version with 24 bins", "of another version from 0 to 24 °C"):
            assert f"4,000 reports {part} left out" in document["left_out"]
        (row,) = (table["rows"][0] for table in document["answers"] if table["kind"] == "ranges")
        assert document["findings"][0]["value"] == row["value"]
        together = ask("--version", "all", "--range", ":16")
        assert (together["reports"], together["left_out"]) == (5 * REPORTS, "")
        check_populations(together, {"below 16": BELOW_16}, "ranges")
        trend = ask("--trend", "--range", ":16")["answers"][0]
        assert [row["window"] for row in trend["rows"]] == DAYS
        assert [mark["text"] for mark in trend["new_versions"]] == ["from 0 to 48 °C", "with 12 bins"]
        assert all(abs(row["value"] - BELOW_16) < 5 * row["se"] for row in trend["rows"])
        with Store(store_url) as store:
            snapshot = take_snapshot(store, Publication(), datetime.datetime.now(datetime.UTC))
        result = snapshot.results["home", "temp"]
        assert (result.reports, result.unit) == (ANSWERING, "°C")
        moments = next(table for table in document["answers"] if table["kind"] == "moments")
        assert result.statistics["mean"].value == pytest.approx(moments["rows"][0]["value"], rel=1e-5)

    def test_release_uses_the_versions_that_count_the_question(
        self, store_url: str, digests: list[str], tmp_path: Path
    ) -> None:
        options = ("--against", "2.3.1", "--store", store_url, "--json")
        verdict = json.loads(hushmote("release", "2.4.0", *options, cwd=tmp_path, expect=3))
        (question,) = verdict["questions"]
        assert question["low"] < 0.25 < question["high"]
