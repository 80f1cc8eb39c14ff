"""docs/first-report.md counts its commands honestly, and its steps end in a counted report.

tests/repository/test_commands.py runs the steps as printed, from an empty folder to three boards whose
reports three real aggregators count.
"""

import re
from itertools import takewhile
from pathlib import Path

import page_blocks

PAGE = Path(__file__).parents[2] / "docs" / "first-report.md"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Waits for counted reports; without any, the page fails after ten minutes.
WAITS_FOR_REPORTS = re.compile(
    r"^until hushmote status .*grep -q '\"reports\": \[[12]-9\]'; do sleep 2; done$"
)


def section(title: str) -> list[page_blocks.Block]:
    """Return a section's blocks that run on any machine."""
    text = PAGE.read_text()
    heading = text.index(f"\n### {title}\n")
    end = text.index("\n##", heading + 1)
    lines = range(text.count("\n", 0, heading) + 1, text.count("\n", 0, end) + 1)
    return [b for b in page_blocks.read(text).blocks if b.line in lines and not b.needs and not b.slow]


def commands(title: str) -> list[str]:
    """Return each command's first two words, without variables; only `cat` for files that are written."""
    texts = [
        text
        for block in section(title)
        for _, text in (block.commands() if "<<" not in block.text else [(block.line, "cat")])
    ]
    texts = [re.sub(r"^([A-Z_]+=\S+ )+", "", text) for text in texts]
    return [" ".join(takewhile(lambda word: word[0] not in "-./", text.split()[:2])) for text in texts]


def test_software_path_matches_documented_commands():
    output = commands("In software")
    ours = ["experiment", "serve", "provision", "board", "flash", "status", "simulate"]
    ours = [f"hushmote {command}" for command in ours]
    assert output == ["cat", "hushmote provision", ours[0], "mosquitto", *ours[1:]]
    text = PAGE.read_text()
    counted = f"{WORDS[len(output) - 1].capitalize()} commands in four windows, and a file"
    assert counted in " ".join(text.split())
    steps = re.findall(r"^\*\*(\d)\. ", text[: text.index("\n### With a password")], re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(output))]
    windows = [block for block in section("In software") if block.background]
    assert len(windows) + 1 == 4


def test_each_path_ends_in_counted_report():
    for title in ("In software", "With a password", "With TLS"):
        output = commands(title)
        for command in ("mosquitto", "hushmote serve", "hushmote board", "hushmote flash", "hushmote status"):
            assert command in output, (title, command)
        waits = [setup for block in section(title) for setup in block.setup if WAITS_FOR_REPORTS.match(setup)]
        assert waits, title
