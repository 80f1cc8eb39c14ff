"""docs/python.md says what the code does: its examples run, its tables name what is there."""

import doctest
import re
from pathlib import Path

import pytest

import hushmote

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")


def test_the_examples_run_and_print_what_the_page_shows(stored: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(stored)
    if not (stored / "examples").exists():
        (stored / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {"__name__": "python"}
    for number, (language, text) in enumerate(re.findall(r"```(python|pycon)\n(.*?)```", PAGE, re.DOTALL)):
        if language == "python":
            exec(compile(text, "docs/python.md", "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(text, names, f"block {number}", "python.md", 0)
        output: list[str] = []
        runner = doctest.DocTestRunner()
        assert runner.run(example, out=output.append, clear_globs=False).failed == 0, "".join(output)
        names = example.globs


@pytest.mark.parametrize(
    ("heading", "classes"),
    [
        ("of an experiment", (hushmote.ExperimentReader,)),
        ("of an estimate", (hushmote.FleetEstimate,)),
        ("of an answer", (hushmote.Answer, hushmote.Answers)),
    ],
)
def test_the_tables_name_every_method(heading: str, classes: tuple[type, ...]):
    table = PAGE.split(f"| {heading} |")[1].split("\n\n")[0]
    named = {
        name
        for cell in re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)", cell)
    }
    fields = {name for one in classes for name in getattr(one, "__dataclass_fields__", {})}
    public = {name for one in classes for name in vars(one) if not name.startswith("_")}
    unsaid = {
        "kind",
        "experiment",
        "quantity",
        "unit",
        "reports",
        "confidence",
        "note",
        "about",
        "truth",
        "sources",
    }
    assert public - unsaid - fields <= named
    assert named - {"print"} <= public | fields
