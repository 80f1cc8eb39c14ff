"""What a change of an experiment's file or of a policy means, for people and in pull requests."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_line import hushmote

ROOT = Path(__file__).parents[2]
ROOM_TEMP = (ROOT / "examples" / "room_temp.toml").read_text("utf-8")
ACTION = ROOT / "deploy" / "github-action"


@pytest.fixture
def diff(tmp_path):
    """Return a function that compares two texts and returns the output."""

    def compare(old: str, new: str, *options: str, suffix: str = ".toml", expect: int = 0) -> str:
        for name, text in (("old", old), ("new", new)):
            (tmp_path / f"{name}{suffix}").write_text(text, "utf-8")
        files = (f"old{suffix}", f"new{suffix}")
        return hushmote("experiment", "diff", *files, *options, cwd=tmp_path, expect=expect)

    return compare


def changed(**values: str) -> str:
    lines = [line for line in ROOM_TEMP.splitlines() if line.partition(" = ")[0] not in values]
    return "\n".join([*(f"{name} = {value}" for name, value in values.items()), *lines])


class TestDiff:
    def test_higher_epsilon_shows_belief_and_new_consent(self, diff):
        (review,) = json.loads(diff(ROOM_TEMP, changed(epsilon="2"), "--json"))
        assert review["kind"] == "new version"
        assert review["asks_again"]
        assert ["a guess of 10% rises to", "24% at most", "46% at most"] in review["privacy"]
        assert {"field": "epsilon", "before": 1, "after": 2} in review["changes"]
        assert "again." in diff(ROOM_TEMP, changed(epsilon="2"))

    @pytest.mark.parametrize(
        ("values", "kind", "asks_again"),
        [
            ({"owner": '"x"'}, "only words", False),
            ({}, "unchanged", False),
            ({"every": "91"}, "new version", False),
            ({"high": "51.2", "low": "-12.8"}, "new version", True),
        ],
    )
    def test_kinds_of_changes(self, diff, values: dict[str, str], kind: str, asks_again: bool):
        (review,) = json.loads(diff(ROOM_TEMP, changed(**values), "--json"))
        assert (review["kind"], review["asks_again"]) == (kind, asks_again)

    def test_empty_file_stands_for_none(self, diff):
        assert diff("", ROOM_TEMP).startswith("`room_temp` is new.\n")
        assert "`hushmote experiment withdraw" in diff(ROOM_TEMP, "\n")
        assert "both files are empty" in diff("", "", expect=1)

    def test_new_name_is_another_experiment(self, diff):
        reviews = json.loads(diff(ROOM_TEMP, changed(name='"hall_temp"'), "--json"))
        assert [(r["name"], r["kind"]) for r in reviews] == [("room_temp", "removed"), ("hall_temp", "new")]

    def test_markdown_has_no_markup_of_the_file(self, diff):
        text = diff(ROOM_TEMP, changed(owner='"a|b `x` @me <b> [l](u) # _i_"'), "--markdown")
        (row,) = (line for line in text.splitlines() if line.startswith("| owner"))
        assert row.count("|") == 4
        assert not set("`@<>[]_") & set(row)

    def test_policy(self, diff):
        policy = (ROOT / "device" / "main.py").read_text("utf-8")
        more = policy.replace('"sum": 8_000_000', '"sum": 9_000_000')
        (review,) = json.loads(diff(policy, more, "--json", suffix=".py"))
        assert review["changes"] == [{"field": "sum", "before": 8.0, "after": 9.0}]
        assert ["ε of all reports", "8, δ = 1e-06", "9, δ = 1e-06"] in review["privacy"]
        assert "`POLICY` is unchanged." in diff(policy, policy + "\n# note\n", suffix=".py")


class TestAction:
    @pytest.fixture
    def repository(self, tmp_path):
        def git(*arguments: str) -> str:
            identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
            command = ["git", *identity, *arguments]
            return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

        git("init", "-q")
        (tmp_path / "q").mkdir()
        (tmp_path / "q" / "room.toml").write_text(ROOM_TEMP, "utf-8")
        shutil.copy(ROOT / "device" / "main.py", tmp_path / "main.py")
        git("add", ".")
        git("commit", "-qm", "base")
        return tmp_path, git

    def review(self, folder: Path, base: str) -> tuple[int, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = ["bash", ACTION / "review.sh", base, "out.md", "q/*.toml main.py"]
        run = subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path}, check=False)
        return run.returncode, (folder / "out.md").read_text("utf-8")

    def test_reviews_what_a_branch_changes(self, repository):
        folder, git = repository
        base = git("rev-parse", "HEAD").strip()
        (folder / "q" / "room.toml").write_text(changed(epsilon="2"), "utf-8")
        shutil.copy(ROOT / "examples" / "door_open.toml", folder / "q" / "door.toml")
        (folder / "readme.txt").write_text("no question\n")
        git("add", ".")
        git("commit", "-qm", "change")
        status, text = self.review(folder, base)
        assert status == 0
        assert [line for line in text.splitlines() if line[:1] == "#"] == [
            "### q/door.toml",
            "### q/room.toml",
        ]
        assert "`door_open` is new." in text
        assert "| epsilon | 1 | 2 |" in text

    def test_invalid_file_fails_and_says_why(self, repository):
        folder, git = repository
        (folder / "q" / "room.toml").write_text(changed(epsilon="20"), "utf-8")
        git("commit", "-qam", "change")
        status, text = self.review(folder, "HEAD~1")
        assert status == 1
        assert "    hushmote: epsilon must be" in text

    def test_unchanged_files_give_no_comment(self, repository):
        folder, git = repository
        (folder / "readme.txt").write_text("no question\n")
        git("add", ".")
        git("commit", "-qm", "change")
        assert self.review(folder, "HEAD~1") == (0, "")

    def test_inputs_reach_the_shell_only_as_variables(self):
        action = yaml.safe_load((ACTION / "action.yml").read_text("utf-8"))
        for step in action["runs"]["steps"]:
            assert "${{" not in step.get("run", "")
