"""docs/python.md matches the code: its examples run, its tables name every method."""

import re
from pathlib import Path

import pytest
from pages import run_examples

import hushmote

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")


@pytest.mark.slow
def test_examples_print_what_page_shows(
    stored_recently: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
):
    folder, days = stored_recently  # an example asks for the 7 days before today
    monkeypatch.chdir(folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    page = re.sub("|".join(days), lambda match: days[match[0]], PAGE)
    run_examples(page, "python.md", {"__name__": "python"})


@pytest.mark.parametrize(
    ("heading", "classes"),
    [
        ("of an experiment", (hushmote.ExperimentReader,)),
        ("of an estimate", (hushmote.FleetEstimate,)),
        ("of an answer", (hushmote.Answer, hushmote.Answers)),
    ],
)
def test_tables_name_every_method(heading: str, classes: tuple[type, ...]):
    table = PAGE.split(f"| {heading} |")[1].split("\n\n")[0]
    named = {
        name
        for cell in re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)", cell)
    }
    fields = {name for cls in classes for name in getattr(cls, "__dataclass_fields__", {})}
    ours = {base for cls in classes for base in cls.__mro__ if base.__module__.startswith("hushmote")}
    public = {name for cls in ours for name in vars(cls) if not name.startswith("_")}
    unsaid = {"kind", "experiment", "quantity", "unit", "reports", "confidence"}
    unsaid |= {"note", "about", "truth", "sources"}
    assert public - unsaid - fields <= named
    assert named - {"print"} <= public | fields
