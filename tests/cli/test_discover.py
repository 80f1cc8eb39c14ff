"""`hushmote estimate` with prefixes: a simulated fleet's unlisted texts, and user errors."""

import csv
import json
import re
from pathlib import Path

import pytest
from command_line import hushmote
from refusals import Refusal, refusals

DEFINITION = """
name = "error_codes"
purpose = "Which error codes come up in the field?"
owner = "firmware@example.org"
expires = 9999-12-31
type = "text"
slots = 16384
prefixes = [2, 3, 4, 4]
epsilon = 4
window = "day"
[budget]
rule = "sum"
cap = 8
"""
STORE = "sqlite:///store.sqlite"
TEXT_SHARES = {"E42": 0.4, "W7": 0.3, "E421": 0.2, "": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a store with two days of reports, next to its experiment's file."""
    path = tmp_path_factory.mktemp("discover")
    (path / "e.toml").write_text(DEFINITION, encoding="utf-8")
    rows = "".join(f"{text},{share}\n" for text, share in TEXT_SHARES.items())
    (path / "held.csv").write_text(f"text,share\n{rows}", encoding="utf-8")
    options = ["--days", "2", "--devices", "30000", "--drift", "0", "--seed", "1", "--to", STORE]
    hushmote("simulate", "e.toml", "--population", "file:held.csv", *options, cwd=path)
    return path


def estimate(folder: Path, *options: str, expect: int = 0) -> str:
    return hushmote("estimate", "error_codes", "--store", STORE, *options, cwd=folder, expect=expect)


@pytest.mark.slow
def test_lists_texts_and_states_limits(folder: Path):
    output = estimate(folder, "--alphabet", "A-Z0-9")
    for text in ("E42 ", "W7 ", "E421…", "(an empty text)"):
        assert text in output
    assert re.search(r"\d+ texts were considered, whether or not anyone sent them; 4", output)
    assert "decoded" not in output
    assert "A text is found about 9 times in 10" in output
    assert "At most 4 of 100 such tables list a text that nobody sent." in output
    assert "--trend" not in output
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.slow
def test_shows_unexplained_share(folder: Path):
    """Without W in the alphabet, 30% of the reports are unexplained; without E and W, all of them are."""
    output = " ".join(estimate(folder, "--alphabet", "E0-9").split())
    assert re.search(
        r"Texts that could not be decoded account for (29|30|31)%; they may contain other", output
    )
    output = " ".join(estimate(folder, "--alphabet", "XYZ").split())
    assert re.search(r"Texts that could not be decoded account for (88|89|90|91|92)%;", output)


@pytest.mark.slow
def test_json_and_csv_agree(folder: Path, tmp_path: Path):
    """Each share must be within its interval at confidence 1 - 1e-9."""
    files = [tmp_path / "d.csv", tmp_path / "d.json", tmp_path / "d.png"]
    options = [part for file in files for part in ("--output", str(file))]
    run = estimate(folder, "--alphabet", "A-Z0-9", "--confidence", "0.999999999", "--json", *options)
    result = json.loads(run)
    assert result["answers"] == json.loads(files[1].read_text(encoding="utf-8"))["answers"]
    (answer,) = result["answers"]
    rows = {row["text"]: row for row in answer["rows"]}
    assert rows.keys() == TEXT_SHARES.keys()
    assert not rows["E421"]["whole"]
    for text, share in TEXT_SHARES.items():
        assert rows[text]["low"] < share < rows[text]["high"]
    lines = [*csv.DictReader(files[0].read_text(encoding="utf-8").splitlines())]
    assert [line["text"] for line in lines] == [row["text"] for row in answer["rows"]]
    assert files[2].stat().st_size > 5000


@pytest.mark.slow
def test_every_format_reports_empty_result(tmp_path: Path):
    """Boards hold no texts in this alphabet, and with these seeds none is listed by chance either."""
    (tmp_path / "e.toml").write_text(DEFINITION, encoding="utf-8")
    rows = "".join(f"{i:04x},1\n" for i in range(3000, 6000))
    (tmp_path / "held.csv").write_text(f"text,share\n{rows}", encoding="utf-8")
    options = ["--population", "file:held.csv", "--devices", "3000", "--drift", "0", "--seed", "1"]
    hushmote("simulate", "e.toml", *options, "--days", "2", "--to", STORE, cwd=tmp_path)
    files = [tmp_path / "d.csv", tmp_path / "d.json", tmp_path / "d.png"]
    options = [part for file in files for part in ("--output", str(file))]
    output = " ".join(estimate(tmp_path, "--alphabet", "x-z", *options).split())
    assert "No text stands out. A text is found about 9 times in 10 if its share is at least" in output
    assert "How exact: No text stands out" in output
    assert "Next: With four times as many reports" in output
    columns = next(csv.reader(files[0].read_text(encoding="utf-8").splitlines()))
    assert {"kind", "text", "whole", "value", "low", "high"} <= {*columns}
    result = json.loads(files[1].read_text(encoding="utf-8"))
    assert result["answers"][0]["rows"] == []
    assert result["answers"][0]["notes"][0].startswith("No text stands out")
    assert files[2].stat().st_size > 5000
    options = ["--devices", "2000", "--calls", "1", "--seed", "3", "--population", "file:held.csv"]
    options += [part for file in files for part in ("--output", str(file))]
    for file in files:
        file.unlink()
    output = hushmote("simulate", "e.toml", *options, cwd=tmp_path)
    assert "No text stands out. A text is found about 9 times in 10 if its share is at least" in output
    assert "±0 points" not in output
    result = json.loads(files[1].read_text(encoding="utf-8"))
    assert result["discovery"] == []
    assert result["notes"][0].startswith("No text stands out")
    assert files[2].stat().st_size > 5000


@pytest.mark.slow
@refusals(
    ("--alphabet ''", 'an alphabet needs at least one character, such as "a-z0-9._-"'),
    ("--alphabet z-a", "a range in an alphabet must ascend: a-z, not z-a"),
    ("--range E42", "omit --range"),
    ("--top 3", "omit --top"),
    ("--trend", "omit --trend"),
    ("--quantile 0.5", "omit --quantile"),
    command=f"estimate error_codes --store {STORE}",
)
def test_refusal_is_one_line(refusal: Refusal, folder: Path):
    refusal.check(folder)


@pytest.mark.parametrize(
    ("line", "instead", "reason"),
    [
        ("prefixes = [2, 3, 4, 4]", "prefixes = [2, 3, 4]", "with the last one twice"),
        ("prefixes = [2, 3, 4, 4]", "prefixes = [3, 2, 2]", "prefixes must rise from 1"),
        ("prefixes = [2, 3, 4, 4]", "prefixes = [17, 17]", "to at most 16 bytes"),
        ('type = "text"\nslots = 16384', 'type = "bool"', "salt, slots and prefixes are only for a text"),
        ("slots = 16384", "slots = 4096", "with prefixes slots must be at least 8192, not 4096"),
        (
            "slots = 16384",
            'slots = 16384\nmechanism = "olh"',
            "mechanism olh does not support texts with prefixes: use prefix, or omit the mechanism",
        ),
        (
            "prefixes = [2, 3, 4, 4]",
            'mechanism = "prefix"',
            "mechanism prefix supports only texts with prefixes: use auto",
        ),
        (
            "prefixes = [2, 3, 4, 4]",
            'prefixes = "2"',
            "prefixes must be a list of whole numbers such as [2, 3, 4, 4]",
        ),
        ("slots = 16384", 'slots = 16384\nmechanism = "prefix"\nq = 4', "q must be a prime"),
    ],
)
def test_rejects_unsuitable_file_in_one_line(tmp_path: Path, line: str, instead: str, reason: str):
    assert line in DEFINITION
    Refusal("experiment show e.toml", reason, {"e.toml": DEFINITION.replace(line, instead)}).check(tmp_path)
