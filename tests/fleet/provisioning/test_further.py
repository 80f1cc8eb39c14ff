"""`hushmote flash --with`: a board gets the files of further mechanisms, and main.py imports them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from experiments import number_json
from flashing import ROOT, Bench, on_board
from own_channels import EXAMPLES
from refusals import fails

from hushmote.fleet.provisioning.flash import MODULES
from hushmote.fleet.provisioning.further import MOST_BYTES, further_files
from hushmote.fleet.provisioning.usb import compile_mpy
from hushmote.server.errors import HushmoteError
from hushmote.server.wire import board_files
from hushmote.server.wire import experiments as wire

BOARD_FILE = EXAMPLES / "unary_board.py"
ARMV6M = 6 | 4 << 10
ASK = """
import json, main
main.READINGS["room_temp"] = lambda: 21.4
app = main.Application()
app.client._announce_key = None
try: app.kept.take("room_temp", PAYLOAD)
except main.ldp_client.LDPError as e: print("refused", e)
app.client.report("room_temp", 21.4)
print(json.dumps(app.client.status()["experiments"]["room_temp"]))
"""


def payload() -> bytes:
    budget = {"rule": "sum", "cap": 4_000_000}
    return number_json(5, name="room_temp", mechanism="unary:Unary", high=50_000, budget=budget)


def asked(board, first: str = "") -> str:
    """Return a board's answer to an experiment by unary, and the modules that it could not import."""
    return on_board(board, f"{first}PAYLOAD = {payload()!r}\n{ASK}")


def test_board_needs_copied_module_for_custom_mechanism(used: Bench):
    refusal = "no mechanism unary:Unary on this board"
    with used.board() as board:
        said = asked(board).splitlines()
        assert said[-2] == f"refused {refusal}"
        line = json.loads(said[-1])
        assert (line["state"], line["reason"]) == ("refused", refusal)
        done = used.flash(board, further=[str(BOARD_FILE)])
        assert "/lib/unary_board.mpy" in done.copied
        assert json.loads(bytes.fromhex(used.contents()["/settings.json"]))["with"] == ["unary_board"]
        line = json.loads(asked(board).splitlines()[-1])
        assert (line["state"], line["reports"]) == ("reporting", 1)
        assert used.flash(board, further=[str(BOARD_FILE)]).copied == ()
        missing = asked(board, "import os\nos.remove('/lib/unary_board.mpy')\n")
        fails = asked(board, "with open('/lib/unary_board.py', 'w') as f: f.write('1 / 0')\n")
    # A missing or a broken file is a line, and the board goes on.
    assert "hushmote: unary_board.py: ImportError: no module named 'unary_board': flash it again" in missing
    assert "hushmote: unary_board.py: ZeroDivisionError: divide by zero: flash it again" in fails
    for said in (missing, fails):
        assert refusal in said.splitlines()[-1]


def test_detects_module_that_registers_nothing_without_changes(used: Bench, tmp_path: Path):
    empty = tmp_path / "empty_one.py"
    empty.write_text("x = 1\n")
    raises = tmp_path / "raising.py"
    raises.write_text("import ldp_client\nldp_client.no_such_thing\n")
    with used.board() as board:
        before = used.contents()
        said = used.fails(board, further=[str(empty)])
        assert "empty_one.py enters nothing in ldp_client.MECHANISMS or TYPES" in said
        assert said.endswith("the board's files are unchanged")
        said = used.fails(board, further=[str(raises)])
        assert "AttributeError" in said
        assert used.contents() == before


def test_a_class_names_its_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wire, "FOLDERS", [str(EXAMPLES)])
    assert further_files(["unary:Unary"], MODULES) == {"unary_board": BOARD_FILE.read_bytes()}


def test_each_shipped_file_is_a_word_and_brings_what_it_imports():
    for word, path in board_files.shipped_files().items():
        found = further_files([word], MODULES)
        assert list(found)[-1] == path.stem
        assert found[path.stem] == path.read_bytes()
        assert [p.stem for p in board_files.with_imports(path.read_bytes())] == list(found)[:-1]


def test_imports_of_shipped_files_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, text in [
        ("ldp_client", ""),
        ("ldp_one", "import ldp_client\n"),
        ("ldp_two", "if '.' in __name__:\n    from . import ldp_one\nelse:\n    import ldp_one\n"),
        ("ldp_three", "import ldp_two\nimport ldp_one\n"),
    ]:
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(board_files, "DEVICE", tmp_path)
    assert list(board_files.shipped_files()) == ["one", "three", "two"]
    assert list(further_files(["three"], MODULES)) == ["ldp_one", "ldp_two", "ldp_three"]


def written(name: str, content: str | bytes) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return [str(path)]

    return make


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda folder: ["nonsense"], "--with nonsense: take "),
        (lambda folder: [str(folder / "none.py")], "No such file"),
        (lambda folder: ["no_such_module:X"], "there is no module no_such_module"),
        (written("ldp_client.py", "x = 1"), "boards have their own module ldp_client"),
        (written("json.py", "x = 1"), "boards have their own module json"),
        (written("my-file.py", "x = 1"), "name the file with a-z, 0-9 and _"),
        (written("large.py", "#" * (MOST_BYTES + 1)), "16,385 bytes, but a board takes at most 16,384"),
        (written("faulty.py", "def"), "does not compile: invalid syntax"),
        (written("nul.py", b"x = 1\0"), "does not compile: "),
        (
            lambda folder: [*written("mine.py", "x = 1")(folder), *TWICE(folder)],
            "there are two files mine.py",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, make: Callable[[Path], list[str]], text: str):
    with fails(re.escape(text), HushmoteError):
        further_files(make(tmp_path), MODULES)


def TWICE(folder: Path) -> list[str]:
    (folder / "other").mkdir()
    return written("mine.py", "x = 2")(folder / "other")


def test_each_shipped_file_is_at_most_1500_bytes_compiled():
    paths = [*board_files.shipped_files().values(), ROOT / "device" / "ldp_p256.py"]
    sizes = {path.name: len(compile_mpy(path, ARMV6M, path.name)) for path in paths}
    assert {name: size for name, size in sizes.items() if size > 1500} == {}
