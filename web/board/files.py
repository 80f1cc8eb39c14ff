"""The browser board's files and their paths, and a function to copy them to a folder."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

STATIC = Path(__file__).parent / "static"
# Files that the board runs unchanged, and files that check them. A clone has them at their original paths; in
# a wheel, setup.py puts the latter in the static folder.
_ROOT = Path(__file__).parents[2]
_SHARED = (
    *sorted((_ROOT / "device").glob("ldp_*.py")),
    *(
        _ROOT / "device" / f"{name}.py"
        for name in ("preview", "consent", "reporter_base", "kept_experiments")
    ),
    _ROOT / "firmware_tests" / "check_vectors.py",
    _ROOT / "tests" / "vectors.json",
    _ROOT / "tests" / "vectors_further.json",
)


@dataclass(frozen=True)
class BoardConfig:
    """The contents of config.json; addresses are relative to the board's folder, missing entries None.

    Attributes:
        fleet: The fleet whose experiments the door serves.
        door: The HTTP door, such as /v1.
        result: The path under which result documents are at <fleet>/<experiment>.json, such as /api.
        experiment: The experiment to show first.
        broker: Whether reports can reach a broker; with a broker but no door, no experiment is running.
    """

    fleet: str | None = None
    door: str | None = None
    result: str | None = None
    experiment: str | None = None
    broker: bool = False


def files() -> Iterator[tuple[str, Path]]:
    """Yield (path in the board's folder, file) for each file, including MicroPython if fetch.py has run."""
    for file in sorted(STATIC.rglob("*")):
        if file.is_file():
            yield file.relative_to(STATIC).as_posix(), file
    for file in _SHARED:
        if file.is_file():
            yield file.name, file


def copy(folder: Path, config: BoardConfig | None = None) -> None:
    """Copy all files to a folder for any static server; without a config, the browser counts the reports."""
    for path, file in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / path)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(asdict(config)) + "\n")
