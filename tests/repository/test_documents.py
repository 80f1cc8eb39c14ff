"""The linked files and the mentioned paths and tests of every document exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATTERNS = ("*.md", "docs/**/*.md", "*s/*.md", "clients/**/*.md")
DOCUMENTS = sorted({document for pattern in PATTERNS for document in ROOT.glob(pattern)})
FOLDERS = "clients|device|server|simulator|studies|cli|tests|firmware_tests|benchmarks|docs|examples|deploy"
# A path from the project's root, alone or in a command; * matches anything, and :: precedes a test's name.
PATH = re.compile(rf"(?:^|\s)((?:{FOLDERS})/[\w./*@-]*)")
TEST = re.compile(r"^(test_\w+)(?:::(\w+))?$")


def missing(document: Path) -> Iterator[str]:
    """Yield the names in a document that do not exist."""
    text = document.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not (document.parent / target).exists():
            yield f"link {target}"
    for quoted in re.findall(r"`([^`\n]+)`", text):
        for path in PATH.findall(quoted):
            if "NAME" not in path and not list(ROOT.glob(path.rstrip("/."))):
                yield f"path {path}"
        test = TEST.match(quoted)
        if test and not named(test[1], test[2] or ""):
            yield f"test {quoted}"


def named(module: str, start: str) -> bool:
    """Return whether a test module exists and has a test whose name begins with `start`."""
    files = [file for folder in ("tests", "firmware_tests") for file in (ROOT / folder).rglob(f"{module}.py")]
    return any(f"def {start}" in file.read_text() for file in files)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_document_references_exist(document: Path):
    assert list(missing(document)) == []


def test_finds_missing_references(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "[a](none.md) [b](https://example.org/x) `tests/none.py` `python benchmarks/none.py` `server/store/`"
        " `tests/server/*/test_store.py` `test_none` `test_store::test_none_such` `test_documents::test_find`"
    )
    assert list(missing(page)) == [
        "link none.md",
        "path tests/none.py",
        "path benchmarks/none.py",
        "test test_none",
        "test test_store::test_none_such",
    ]


def test_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 90
    assert [line for line in lines if len(line) >= 100] == []
