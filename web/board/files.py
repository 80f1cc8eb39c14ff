"""The browser board's files and their paths, and a copy of them in a folder."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

STATIC = Path(__file__).parent / "static"
# Files that the board runs unchanged, and files that check them: in a clone at their original paths, in a
# wheel beside the page, where setup.py puts the last two.
_ROOT = Path(__file__).parents[2]
_BORROWED = (
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
    """The contents of config.json; paths are from the server's root, None if absent.

    Attributes:
        fleet: The fleet whose experiments the door serves.
        door: The HTTP door, such as /v1.
        result: The prefix of <fleet>/<experiment>.json with a result document, such as /api.
        experiment: The first one shown.
        home: The page to which the board belongs.
        broker: Whether there is a broker; if so, but without a door, nothing is asked at the moment.
    """

    fleet: str | None = None
    door: str | None = None
    result: str | None = None
    experiment: str | None = None
    home: str | None = None
    broker: bool = False


def files() -> Iterator[tuple[str, Path]]:
    """Yield (path from the page's folder, file) of each; MicroPython is included once fetch.py has run."""
    for file in sorted(STATIC.rglob("*")):
        if file.is_file():
            yield file.relative_to(STATIC).as_posix(), file
    for file in _BORROWED:
        if file.is_file():
            yield file.name, file


def copy(folder: Path, config: BoardConfig | None = None) -> None:
    """Copy all files into a folder for any static server; without a config, the browser counts."""
    for path, file in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / path)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(asdict(config)) + "\n")
