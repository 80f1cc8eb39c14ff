"""What a server takes: the build context of the container, and the Home Assistant app."""

from pathlib import Path

from .archives import write_tar
from .source import ReleaseError, Source

_APP = "deploy/home-assistant"
_LOCKS = ("build.txt", "container.txt", "sbom.py")
_OF_A_CLONE = ("# MicroPython for the browser board", "#   python web/board/fetch.py")  # of the Containerfile


def build_container(source: Source, dist: Path) -> None:
    """Pack deploy/, the locks and the wheel."""
    (wheel,) = dist.glob(f"hushmote-{source.version}-*.whl")
    files = {f"deploy/{name}": data for name, data in source.tree("deploy").items()}
    del files["deploy/compose.demo.yaml"]  # it builds from the sources
    files = {name: data for name, data in files.items() if not name.startswith(f"{_APP}/")}
    files["deploy/Containerfile"] = _with_wheel(files["deploy/Containerfile"].decode(), wheel.name).encode()
    files |= {f"locks/{name}": source.read(f"locks/{name}") for name in _LOCKS}
    files |= {wheel.name: wheel.read_bytes(), "LICENSE": source.read("LICENSE")}
    files["README.md"] = source.page("tools/release/container.md")
    top = f"hushmote-container-{source.version}"
    write_tar(dist / f"{top}.tar.gz", {f"{top}/{name}": data for name, data in files.items()})


def build_app(source: Source, dist: Path) -> None:
    """Pack the Home Assistant app, with the wheel, as the repository that Home Assistant reads."""
    files = source.tree(_APP)
    (wheel,) = dist.glob(f"hushmote-{source.version}-*.whl")
    files[f"hushmote/{wheel.name}"] = wheel.read_bytes()
    top = f"hushmote-home-assistant-{source.version}"
    files["LICENSE"] = source.read("LICENSE")
    write_tar(dist / f"{top}.tar.gz", {f"{top}/{name}": data for name, data in files.items()})


def _with_wheel(containerfile: str, wheel: str) -> str:
    """Return a Containerfile that takes the wheel from the build context."""
    lines = containerfile.splitlines(keepends=True)
    first = [i for i, line in enumerate(lines) if line.startswith("COPY pyproject.toml ")]
    last = [i for i, line in enumerate(lines) if line.startswith("RUN pip wheel ")]
    if len(first) != 1 or len(last) != 1:
        raise ReleaseError(
            "deploy/Containerfile no longer builds the wheel once: adapt tools/release/server.py"
        )
    kept = [*lines[: first[0]], f"COPY {wheel} /wheels/\n", *lines[last[0] + 1 :]]
    return "".join(line for line in kept if not line.startswith(_OF_A_CLONE))
