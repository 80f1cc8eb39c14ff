"""The ten-minute path: `hushmote demo --health --page`, as a reader follows it in README.md."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from browser import Browser
from command_line import hushmote
from running_aggregator import WAIT_S

from hushmote.planning import library

ASKED = [name for names in library.PACKS.values() for name in names]
ROOT = Path(__file__).parents[2]


def test_findings_answer_every_question(tmp_path: Path):
    result = json.loads(hushmote("demo", "--health", "--devices", "20000", "--json", cwd=tmp_path))
    assert list(result["findings"]) == ASKED
    assert min(result["reports"].values()) > 500
    status = json.loads(hushmote("status", "--store", result["store"], "--json", cwd=tmp_path))
    assert {line["experiment"]: line["reports"] for line in status["experiments"]} == result["reports"]


def test_a_rise_in_crashes_is_found(tmp_path: Path):
    """The share of crashes rises from 2% to 12%, more than 10 standard errors of the 14 days since."""
    output = hushmote("demo", "--health", "--devices", "200000", cwd=tmp_path)
    crashes = " ".join(output.partition("crashed in the last day?")[2].partition("How many")[0].split())
    assert "Yes: " in crashes
    assert "Up from" in crashes
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--devices", "10"), "--devices must be at least 1,000 with --health, not 10"),
        (("--board",), "omit --board and --broker"),
        (("--broker", "embedded"), "omit --board and --broker"),
    ],
)
def test_refuses_other_options(tmp_path: Path, options: tuple[str, ...], message: str):
    assert message in hushmote("demo", "--health", *options, cwd=tmp_path, expect=1)


def test_does_not_overwrite_a_store(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "health.sqlite").write_text("mine")
    message = hushmote("demo", "--health", cwd=tmp_path, expect=1)
    assert "health.sqlite exists: delete it, or choose another folder with --out" in message


def test_readme_starts_with_it():
    text = (ROOT / "README.md").read_text("utf-8")
    first = text.index("```sh")
    assert text[first:].index("make health") < text[first:].index("make demo")
    assert text.index("hushmote demo --health") < text.index("hushmote simulate")


def test_page_shows_the_findings_within_ten_minutes(tmp_path: Path, browser: Browser):
    began_s = time.monotonic()
    command = [sys.executable, "-m", "hushmote", "demo", "--health", "--page", "--devices", "50000"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=clean, process_group=0
    )
    try:
        assert process.stdout is not None
        url = next((line.split()[1] for line in process.stdout if line.startswith("page ")), None)
        assert url is not None
        browser.open(url)
        purposes = [library.question(name).purpose for name in ASKED]
        browser.until(lambda: all(purpose in browser.text for purpose in purposes), "a question is missing")
        assert time.monotonic() - began_s < 600
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=WAIT_S)
