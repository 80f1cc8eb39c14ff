"""`hushmote estimate` of prefixes: unlisted texts of a simulated fleet, and mistakes."""

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
HELD = {"E42": 0.4, "W7": 0.3, "E421": 0.2, "": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a store with two days of such reports, beside its experiment's file."""
    made = tmp_path_factory.mktemp("discover")
    (made / "e.toml").write_text(DEFINITION, encoding="utf-8")
    rows = "".join(f"{text},{share}\n" for text, share in HELD.items())
    (made / "held.csv").write_text(f"text,share\n{rows}", encoding="utf-8")
    options = ["--days", "2", "--devices", "30000", "--drift", "0", "--seed", "1", "--to", STORE]
    hushmote("simulate", "e.toml", "--population", "file:held.csv", *options, cwd=made)
    return made


def asked(folder: Path, *options: str, expect: int = 0) -> str:
    return hushmote("estimate", "error_codes", "--store", STORE, *options, cwd=folder, expect=expect)


@pytest.mark.slow
def test_lists_texts_and_states_limits(folder: Path):
    shown = asked(folder, "--alphabet", "A-Z0-9")
    for text in ("E42 ", "W7 ", "E421…", "(an empty text)"):
        assert text in shown
    assert re.search(r"\d+ texts were considered, whether anyone sent them or not: 4", shown)
    assert "spelled out" not in shown
    assert "A text is found about 9 times in 10" in shown
    assert "Chance lists a text that nobody sent in 4 of 100 such tables at most." in shown
    assert "--trend" not in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.slow
def test_shows_unexplained_share(folder: Path):
    """Without W in the alphabet nobody can name 30 % of the reports; with neither E nor W nothing else."""
    shown = " ".join(asked(folder, "--alphabet", "E0-9").split())
    assert re.search(
        r"Texts that could not be spelled out hold (29|30|31)%: do they have other letters\?", shown
    )
    shown = " ".join(asked(folder, "--alphabet", "XYZ").split())
    assert re.search(r"Texts that could not be spelled out hold (88|89|90|91|92)%:", shown)


@pytest.mark.slow
def test_json_and_csv_agree(folder: Path, tmp_path: Path):
    """Each share within its interval at 1 - 1e-9."""
    files = [tmp_path / "d.csv", tmp_path / "d.json", tmp_path / "d.png"]
    options = [part for file in files for part in ("--output", str(file))]
    run = asked(folder, "--alphabet", "A-Z0-9", "--confidence", "0.999999999", "--json", *options)
    shown = json.loads(run)
    assert shown["answers"] == json.loads(files[1].read_text(encoding="utf-8"))["answers"]
    (answer,) = shown["answers"]
    rows = {row["text"]: row for row in answer["rows"]}
    assert rows.keys() == HELD.keys()
    assert not rows["E421"]["whole"]
    for text, share in HELD.items():
        assert rows[text]["low"] < share < rows[text]["high"]
    lines = [*csv.DictReader(files[0].read_text(encoding="utf-8").splitlines())]
    assert [line["text"] for line in lines] == [row["text"] for row in answer["rows"]]
    assert files[2].stat().st_size > 5000


@pytest.mark.slow
def test_every_format_reports_empty_result(tmp_path: Path):
    """Boards hold none of the texts of this alphabet, and with these seeds chance lists none either."""
    (tmp_path / "e.toml").write_text(DEFINITION, encoding="utf-8")
    rows = "".join(f"{i:04x},1\n" for i in range(3000, 6000))
    (tmp_path / "held.csv").write_text(f"text,share\n{rows}", encoding="utf-8")
    options = ["--population", "file:held.csv", "--devices", "3000", "--drift", "0", "--seed", "1"]
    hushmote("simulate", "e.toml", *options, "--days", "2", "--to", STORE, cwd=tmp_path)
    files = [tmp_path / "d.csv", tmp_path / "d.json", tmp_path / "d.png"]
    options = [part for file in files for part in ("--output", str(file))]
    shown = " ".join(asked(tmp_path, "--alphabet", "x-z", *options).split())
    assert "No text stands out; one is found about 9 times in 10 from a share of" in shown
    assert "How exact: No text stands out" in shown
    assert "Next: With four times as many reports" in shown
    columns = next(csv.reader(files[0].read_text(encoding="utf-8").splitlines()))
    assert {"kind", "text", "whole", "value", "low", "high"} <= {*columns}
    said = json.loads(files[1].read_text(encoding="utf-8"))
    assert said["answers"][0]["rows"] == []
    assert said["answers"][0]["notes"][0].startswith("No text stands out")
    assert files[2].stat().st_size > 5000
    options = ["--devices", "2000", "--calls", "1", "--seed", "3", "--population", "file:held.csv"]
    options += [part for file in files for part in ("--output", str(file))]
    for file in files:
        file.unlink()
    shown = hushmote("simulate", "e.toml", *options, cwd=tmp_path)
    assert "No text stands out; one is found about 9 times in 10 from a share of" in shown
    assert "±0 points" not in shown
    said = json.loads(files[1].read_text(encoding="utf-8"))
    assert said["discovery"] == []
    assert said["notes"][0].startswith("No text stands out")
    assert files[2].stat().st_size > 5000


@pytest.mark.slow
@refusals(
    ("--alphabet ''", 'an alphabet needs a character, such as "a-z0-9._-"'),
    ("--alphabet z-a", "a range in an alphabet rises: a-z, not z-a"),
    ("--range E42", "leave --range out"),
    ("--top 3", "leave --top out"),
    ("--trend", "leave --trend out"),
    ("--quantile 0.5", "leave --quantile out"),
    command=f"estimate error_codes --store {STORE}",
)
def test_refusal_is_one_line(refusal: Refusal, folder: Path):
    refusal.check(folder)


@pytest.mark.parametrize(
    ("line", "instead", "reason"),
    [
        ("prefixes = [2, 3, 4, 4]", "prefixes = [2, 3, 4]", "and the last stand twice"),
        ("prefixes = [2, 3, 4, 4]", "prefixes = [3, 2, 2]", "prefixes must rise from 1"),
        ("prefixes = [2, 3, 4, 4]", "prefixes = [17, 17]", "to at most 16 bytes"),
        ('type = "text"\nslots = 16384', 'type = "bool"', "salt, slots and prefixes are only for a text"),
        ("slots = 16384", "slots = 4096", "with prefixes slots must be 8192 at least, not 4096"),
        (
            "slots = 16384",
            'slots = 16384\nmechanism = "olh"',
            "mechanism olh is not for texts with prefixes: take prefix, or leave the mechanism out",
        ),
        (
            "prefixes = [2, 3, 4, 4]",
            'mechanism = "prefix"',
            "mechanism prefix is for texts with prefixes: take auto",
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
