"""Read the results of tests from a JUnit file, as pytest and most other test runners write it."""

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ...server.errors import UsageError, refusing
from ...server.words.numbers import counted


@dataclass(frozen=True)
class TestRun:
    """The results of a run of tests.

    Attributes:
        source: The file's name.
        at: The date and time at which it began, as the file states it, or "".
        commit: The tested commit, from the file's property "commit", or "".
        tests: The number of tests.
        failed: How many of them failed or had an error.
        skipped: How many of them were skipped.
    """

    source: str
    at: str
    commit: str
    tests: int
    failed: int
    skipped: int

    @property
    def words(self) -> str:
        """The results in a sentence, with marks for what the file does not state."""
        at = self.at or "[For the maker: date]"
        commit = self.commit or "[For the maker: commit]"
        passed = self.tests - self.failed - self.skipped
        return (
            f"{self.source}: {counted(self.tests, 'test')} at commit {commit}, {at}: {passed:,} passed, "
            f"{self.failed:,} failed, {self.skipped:,} skipped."
        )


def read(path: Path) -> TestRun:
    """Return the results in a JUnit file.

    Raises:
        UsageError: If the file cannot be read, is not a JUnit file, or contains no test.
    """
    with refusing(UsageError, f"read {path}"):
        content = path.read_bytes()
    try:
        root = ElementTree.fromstring(content)
        suites = [root] if root.tag == "testsuite" else root.findall("testsuite")
        numbers = {name: sum(int(suite.get(name, "0")) for suite in suites) for name in _NUMBERS}
        tests, failed = numbers["tests"], numbers["failures"] + numbers["errors"]
        if not 0 < tests >= failed + numbers["skipped"] or min(numbers.values()) < 0:
            raise ValueError
    except (ElementTree.ParseError, ValueError, LookupError):
        raise UsageError(
            f"{path} is not a JUnit file with tests: give one that `pytest --junitxml=FILE` wrote"
        ) from None
    times = sorted(_plain(suite.get("timestamp", "")) for suite in suites if suite.get("timestamp"))
    commits = {
        _plain(each.get("value", "")) for each in root.iter("property") if each.get("name") == "commit"
    }
    at = times[0] if times else ""
    return TestRun(path.name, at, ", ".join(sorted(commits)), tests, failed, numbers["skipped"])


_NUMBERS = ("tests", "failures", "errors", "skipped")


def _plain(text: str) -> str:
    """Return a date or a commit without characters that neither has."""
    return re.sub(r"[^\w.:+-]", "", text)[:80]
