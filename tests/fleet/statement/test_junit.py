"""The results of tests for the technical file: only what a JUnit file states, and marks for the rest."""

import subprocess
import sys
from pathlib import Path

import pytest
from refusals import fails

from hushmote.fleet.statement import junit
from hushmote.server.errors import UsageError

ROOT = Path(__file__).parents[3]


class TestRead:
    def test_adds_up_suites_and_marks_what_is_missing(self, tmp_path: Path):
        path = tmp_path / "t.xml"
        suite = '<testsuite tests="5" failures="1" errors="1" skipped="1"/>'
        path.write_text(f"<testsuites>{suite}{suite}</testsuites>")
        assert junit.read(path).words == (
            "t.xml: 10 tests at commit [For the maker: commit], [For the maker: date]: 4 passed, 4 failed, "
            "2 skipped."
        )

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{}",
            "<html/>",
            "<testsuites/>",
            '<testsuite tests="0"/>',
            '<testsuite tests="two"/>',
            '<testsuite tests="2" failures="3"/>',
            '<testsuite tests="2" skipped="-1"/>',
            '<testsuite tests="2"',
        ],
    )
    def test_rejects_other_files_in_one_line(self, text: str, tmp_path: Path):
        path = tmp_path / "t.xml"
        path.write_text(text)
        with fails("t.xml is not a JUnit file with tests: give one that", UsageError):
            junit.read(path)

    @pytest.mark.slow
    def test_this_repositorys_tests_name_their_commit(self, tmp_path: Path):
        path = tmp_path / "t.xml"
        test = "tests/fleet/statement/test_junit.py::TestRead::test_adds_up_suites_and_marks_what_is_missing"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", test]
        subprocess.run([*command, f"--junitxml={path}"], cwd=ROOT, check=True, capture_output=True)
        run = junit.read(path)
        assert (run.tests, run.failed, run.skipped) == (1, 0, 0)
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert run.commit.startswith(head.stdout.strip())
        assert "T" in run.at
