"""`hushmote estimate` as an analyst meets it: windows, fleets, versions, changes, trends, mistakes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, runner
from designs import bell, choice_payload, number_payload

from hushmote.server.store import Store
from hushmote.simulator import vectorised

MODES = np.array([6, 3, 1, 0]) / 10
DAYS = ("2026-11-19", "2026-11-20", "2026-11-21")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two fleets, three days, a number with two versions and a choice: 20,000 reports each a day."""
    folder, rng = tmp_path_factory.mktemp("estimates"), np.random.default_rng(1)
    payloads = [number_payload(32, e, 0, 32_000, "temp") for e in (1, 2)]
    payloads.append(choice_payload(["idle", "heating", "door"], 2))
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as opened:
        for fleet, shift in (("home", 0), ("lab", 3)):
            opened.add_fleet(fleet, keyed=False)
            counts = {}
            for payload in payloads:
                asked = opened.add_experiment(fleet, payload)
                (version,) = (v for v in opened.experiments(fleet) if v.experiment.digest == asked.digest)
                for n, day in enumerate(DAYS):
                    shares = bell(32, 12 + shift + 2 * n, 4) if asked.type == "number" else MODES
                    histogram = vectorised.histogram(asked, rng.multinomial(20_000, shares), rng)
                    codes = np.flatnonzero(histogram)
                    counts |= {(version.id, day, int(c)): int(histogram[c]) for c in codes}
            with opened.ingest() as transaction:
                transaction.write({}, counts, {})
    return folder


@pytest.fixture
def hushmote(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    run = runner("estimate", store, monkeypatch, capsys)

    def of_home(*arguments: str, expect: int = 0) -> str:
        return run(*arguments, *(() if "--fleet" in arguments else ("--fleet", "home")), expect=expect)

    return of_home


def ask(hushmote, *arguments: str) -> dict:
    return json.loads(hushmote(*arguments, "--json"))


def test_windows_add_up_and_versions_pool(store: Path, hushmote):
    one, two, everything = (
        ask(hushmote, "temp", *(x for day in days for x in ("--window", day)))
        for days in (DAYS[:1], DAYS[:2], ())
    )
    assert [found["reports"] for found in (one, two, everything)] == [40_000, 80_000, 120_000]
    version = Store(f"sqlite:///{store / 'hushmote.sqlite'}").experiments("home")[0].experiment.digest.hex()
    assert ask(hushmote, "temp", "--version", version[:6])["reports"] == 60_000
    assert [a["kind"] for a in one["answers"]] == ["histogram", "moments"]


def test_shares_above_and_below_are_in_the_readings_unit(store: Path, hushmote):
    found = ask(hushmote, "temp", "--above", "16", "--below", "16", "--range", "14:18", "--confidence", "0.9")
    shares = {row["name"]: row["value"] for row in found["answers"][1]["rows"]}
    assert list(shares) == ["14 to 18", "16 and above", "below 16"]
    assert shares["16 and above"] + shares["below 16"] == pytest.approx(1, abs=1e-6)
    assert found["confidence"] == 0.9


def test_what_changed_since_a_day_and_against_another_fleet(store: Path, hushmote):
    """Means differ by 4 and by 3 degrees; their errors are below 0.5: six of them are 2e-9."""
    since = ask(hushmote, "temp", "--window", DAYS[2], "--against-window", DAYS[0])
    mean = since["answers"][1]["rows"][0]
    assert (since["answers"][0]["kind"], mean["name"]) == ("change", "mean")
    assert abs(mean["value"] - 4) < 6 * 0.5
    assert mean["p_adjusted"] < 1e-3
    fleets = ask(hushmote, "temp", "--against-fleet", "lab", "--quantile", "0.5")
    assert abs(fleets["answers"][1]["rows"][0]["value"] + 3) < 6 * 0.5
    text = hushmote("temp", "--against-fleet", "lab")
    assert "against fleet lab" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_trend_has_every_window(store: Path, hushmote):
    found = ask(hushmote, "temp", "--trend", "--above", "16")
    share, mean = found["answers"]
    assert [row["window"] for row in share["rows"]] == list(DAYS)
    assert [row["value"] for row in share["rows"]] == sorted(row["value"] for row in share["rows"])
    assert mean["quantity"] == "reading"
    modes = ask(hushmote, "mode", "--trend")
    assert {row["name"] for row in modes["answers"][0]["rows"]} == {"idle", "heating", "door", "other"}


def test_the_most_common_post_processing_csv_and_pictures(store: Path, hushmote):
    arguments = ("mode", "--top", "2", "--post", "nonnegative", "--csv", "a.csv", "--plot", "a.png")
    text = hushmote(*arguments)
    assert "belongs there" in text
    assert "nonnegative" in text
    lines = list(csv.DictReader((store / "a.csv").open()))
    assert {line["kind"] for line in lines} == {"histogram", "top"}
    assert (store / "a.png").read_bytes().startswith(b"\x89PNG")


def test_codes_weighed_by_fisher_scoring_narrow_intervals_alike_each_time(store: Path, hushmote):
    """A bell over 12 of 32 bins at ε = 2: 40,000 reports a version."""
    version = Store(f"sqlite:///{store / 'hushmote.sqlite'}").experiments("home")[1].experiment
    assert version.epsilon == 2_000_000
    chosen = ("temp", "--version", version.digest.hex()[:8], "--cdf")
    ordinary, found = ask(hushmote, *chosen), ask(hushmote, *chosen, "--weigh", "fisher")
    assert found == ask(hushmote, *chosen, "--weigh", "fisher")
    widths = [
        np.mean([row["high"] - row["low"] for row in one["answers"][2]["rows"]]) for one in (ordinary, found)
    ]
    assert widths[1] < 0.99 * widths[0]
    pooled = ask(hushmote, "temp", "--weigh", "fisher")
    assert pooled["reports"] == 120_000
    assert len(ask(hushmote, "temp", "--trend", "--weigh", "fisher")["answers"][0]["rows"]) == 3
    assert ask(hushmote, "mode", "--weigh", "fisher") == ask(hushmote, "mode")
    text = hushmote("temp", "--weigh", "fisher", "--top", "2", "--post", "smooth", "--quantile", "0.5")
    assert "median" in text
    assert "smooth" in text


def test_mistakes_are_one_line_and_say_what_would_be_right(store: Path, hushmote):
    cases = {
        ("nothing",): "no experiment nothing in fleet home; its experiments: mode, temp",
        ("temp", "--fleet", "attic"): "no fleet attic in this store; its fleets: home, lab",
        ("temp", "--window", "2027-01-01"): "no reports in window 2027-01-01; it has 2026-11-19, 2026-11-20",
        ("temp", "--version", "zz"): "temp has no version zz; its versions: ",
        ("temp", "--against-fleet", "home"): "both sides are the same",
        ("temp", "--against-window", DAYS[0]): f"reports of {DAYS[0]} would be on both sides",
        ("temp", "--trend", "--against-fleet", "lab"): "two questions: ask one at a time",
        ("temp", "--trend", "--window", DAYS[0]): "a trend needs at least 2 windows",
        ("temp", "--range", "20:10"): "a range goes from low to high, not 20:10",
        ("temp", "--range", "90:95"): "outside 0 to 32",
        ("temp", "--quantile", "1"): "q must be between 0 and 1, not 1",
        ("temp", "--confidence", "1"): "confidence must be between 0 and 1, not 1",
        ("temp", "--top", "32"): "k",
        ("mode", "--above", "3"): "--above and --below are for numbers; mode is a choice",
        ("mode", "--quantile", "0.5"): "only a number has bins",
        ("temp", "--csv", "none/a.csv"): "cannot write none/a.csv",
        ("temp", "--plot", "none/a.png"): "cannot write none/a.png",
    }
    for arguments, text in cases.items():
        assert text in hushmote(*arguments, expect=1), arguments
