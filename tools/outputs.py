"""Record every command's output at a commit, and compare it with another commit's after a refactoring.

    python tools/outputs.py record FOLDER [--only TEXT]  run outputs.txt, write FOLDER/NAME.txt of each
    python tools/outputs.py compare BEFORE AFTER         print the differences; exit 1 if there are any

A line in outputs.txt is `name: command`. Lines run in order in the same folder, on 1 June 2026, so that later
lines find the files of earlier ones. `~name:` compares only words, since numbers and identifiers differ
between runs. Files that a line writes are compared by the hash of their content, except for pictures.
"""

import argparse
import difflib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINES = Path(__file__).with_suffix(".txt")
ROOT = Path(__file__).resolve().parents[1]
_CHANGES = re.compile(r"[0-9a-f]{8,}|\d+([.,:]\d+)*")
_HASHED = (".csv", ".json", ".toml", ".md", ".py")


def lines(only: str) -> list[tuple[str, str]]:
    """Return each line's name and command; later lines may depend on lines that `only` excludes."""
    entries = [line.partition(": ") for line in LINES.read_text().splitlines() if line and line[0] != "#"]
    return [(name, command) for name, _, command in entries if only in name or name.startswith("make-")]


def run(command: str, folder: Path) -> str:
    """Return a command's output, its exit status, and the files that it wrote."""
    before = _files(folder)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {
        "PATH": path,
        "HOME": str(folder),
        "COLUMNS": "80",
        "LANG": "C.UTF-8",
        "EXAMPLES": str(ROOT / "examples"),
        "DEVICE": str(ROOT / "device"),
    }
    clock = ["faketime", "-f", "@2026-06-01 12:00:00", "sh", "-c", command]
    done = subprocess.run(clock, cwd=folder, env=environment, capture_output=True, text=True, timeout=3600)
    files_written = [f"{name} {digest}" for name, digest in sorted(_files(folder).items() - before.items())]
    text = "\n".join([f"$ {command}", done.stdout, done.stderr, f"exit {done.returncode}", *files_written])
    return text.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT") + "\n"


def _files(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.suffix in _HASHED]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def record(target: Path, only: str) -> int:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, command in lines(only):
            text = run(command, Path(folder))
            (target / f"{name.lstrip('~')}.txt").write_text(
                _CHANGES.sub("#", text) if name[0] == "~" else text
            )
    return 0


def compare(before: Path, after: Path) -> int:
    names = sorted({path.name for folder in (before, after) for path in folder.iterdir()})
    different = 0
    for name in names:
        texts = [
            (folder / name).read_text() if (folder / name).exists() else "" for folder in (before, after)
        ]
        old, new = ([line for line in text.splitlines() if line[:2] != "$ "] for text in texts)
        if old != new:
            different += 1
            print(
                "\n".join(difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", lineterm="", n=1))
            )
    print(f"{len(names)} commands, {different} with different output")
    return 1 if different else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Record what every command prints, or compare two recordings."
    )
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="record: lines whose name contains this")
    arguments = parser.parse_args()
    if arguments.what == "record":
        return record(arguments.folders[0], arguments.only)
    return compare(*arguments.folders)


if __name__ == "__main__":
    sys.exit(main())
