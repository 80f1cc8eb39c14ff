"""`mpremote mip install` of `make mip`'s package: the real mpremote, an HTTP server and a board on a pty."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flashing import ROOT, Bench, on_board
from mip_site import install, serve_packages
from refusals import fails

from hushmote.fleet.provisioning import flash, mip, usb
from hushmote.server.wire.board_files import shipped_files


def test_package_contains_every_module_and_is_reproducible(tmp_path: Path):
    files = mip.write_package(tmp_path / "one")
    assert mip.write_package(tmp_path / "two") == files
    assert {p.name: p.read_bytes() for p in (tmp_path / "two").iterdir()} == files
    assert files["LICENSE"] == (ROOT / "LICENSE").read_bytes()
    package = json.loads(files["package.json"])
    modules = [*flash.MODULES, *(path.stem for path in shipped_files().values())]
    assert package["urls"] == [[f"{m}.mpy", f"{m}.mpy"] for m in modules]
    for module in modules:
        source = ROOT / "device" / f"{module}.py"
        compiled = files[f"{module}.mpy"]
        assert compiled[:2] == b"M\x06"
        assert compiled == usb.compile_mpy(source, 6, source.name)
        assert len(compiled) < source.stat().st_size / 2


def test_unwritable_folder_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with fails(r"^cannot write to .*file/package: Not a directory$", usb.FlashError):
        mip.write_package(tmp_path / "file" / "package")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Provide an address with the package at /package, and a package index with umqtt.simple at /index."""
    mip.write_package(tmp_path / "package")
    with serve_packages(tmp_path) as address:
        yield address


def test_mpremote_installs_package_from_web_server(bench: Bench, site: str):
    with bench.board() as board:
        install(board.port, site)
        modules = [m for m in flash.MODULES if m != "async_reporter"]  # this board has no asyncio
        output = on_board(board, f"for m in {modules}: print(__import__(m).__file__)")
        assert output.split() == [f"/lib/{module}.mpy" for module in modules]
        assert on_board(board, "import umqtt.simple; print(umqtt.simple.__file__)") == "/lib/umqtt/simple.py"
    library = {path for path in bench.contents() if re.match(r"/lib/[^/]*$", path)}
    installed = {*flash.MODULES, *(path.stem for path in shipped_files().values())}
    assert library == {f"/lib/{module}.mpy" for module in installed}
