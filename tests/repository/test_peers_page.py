"""The peers page has the measured numbers, and its text agrees with them."""

import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks" / "results"
PEERS = json.loads((FOLDER / "peers.json").read_text())
PAGE = (FOLDER / "peers.md").read_text()


def test_has_every_squared_error_and_formula():
    for row in PEERS["errors"]["rows"]:
        measured = f"{row['mark']}{row['mse']:.2e} ± {row['mse_error'] / row['mse']:.1%}"
        assert measured in PAGE, row
        assert not row["theory"] or f"{row['theory']:.2e}" in PAGE, row


def test_has_every_client_time():
    for row in PEERS["times"]["client"]:
        assert row["method"] == "hushmote clipped" or f" {row['seconds'] * 1e6:.1f} " in PAGE, row


def test_measurements_match_formulas_as_documented():
    rows = PEERS["errors"]["rows"]
    least = min(row["reports"] for row in rows)
    known = [row for row in rows if row["theory"] and (row["mark"] != "*" or row["reports"] == least)]
    off = [abs(row["mse"] - row["theory"]) / row["mse_error"] for row in known]
    within = [f"{sum(x < errors for x in off) / len(off):.0%}" for errors in (1, 2)]
    assert (len(off), within, max(off) <= 3.1) == (186, ["66%", "90%"], True)
    assert "Of the 186 measurements" in PAGE
