"""The browser board's files: what stands where, and a copy of them in a folder."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

STATIC = Path(__file__).parent / "static"
# What the board runs as it is on boards, and what checks it: in a clone from where it stands, and in a wheel
# beside the page, where setup.py puts the last two.
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
    """What config.json tells the page; a path is from the server's top, None where there is none.

    fleet       whose experiments are asked, through the door
    door        of the HTTP door, such as /v1
    result      under which <fleet>/<experiment>.json is a result document, such as /api
    experiment  that is shown first
    home        the page that the board belongs to
    broker      whether there is a broker: without a door then, it asks nothing at the moment
    """

    fleet: str | None = None
    door: str | None = None
    result: str | None = None
    experiment: str | None = None
    home: str | None = None
    broker: bool = False


def files() -> Iterator[tuple[str, Path]]:
    """(path from the page's folder, file) of each; MicroPython is among them once fetch.py has got it."""
    for file in sorted(STATIC.rglob("*")):
        if file.is_file():
            yield file.relative_to(STATIC).as_posix(), file
    for file in _BORROWED:
        if file.is_file():
            yield file.name, file


def copy(folder: Path, config: BoardConfig | None = None) -> None:
    """Put all of it into a folder for any static server; without a config it counts in the browser."""
    for path, file in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / path)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(asdict(config)) + "\n")
