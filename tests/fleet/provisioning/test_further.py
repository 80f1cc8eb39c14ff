"""`hushmote flash --with` copies additional mechanisms' files to a board, and main.py imports them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from custom_mechanisms import EXAMPLES
from experiments import number_json
from flashing import ROOT, Bench, on_board
from refusals import fails

from hushmote.fleet.provisioning.extra_modules import MAX_BYTES, further_files
from hushmote.fleet.provisioning.flash import MODULES
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


def board_output(board, first: str = "") -> str:
    """Return a board's output about an experiment with unary and about failed imports."""
    return on_board(board, f"{first}PAYLOAD = {payload()!r}\n{ASK}")


class TestBoard:
    def test_needs_copied_module_for_custom_mechanism(self, used: Bench):
        refusal = "this board does not support mechanism unary:Unary"
        with used.board() as board:
            message = board_output(board).splitlines()
            assert message[-2] == f"refused {refusal}"
            line = json.loads(message[-1])
            assert (line["state"], line["reason"]) == ("refused", refusal)
            result = used.flash(board, further=[str(BOARD_FILE)])
            assert "/lib/unary_board.mpy" in result.copied
            assert json.loads(bytes.fromhex(used.contents()["/settings.json"]))["with"] == ["unary_board"]
            line = json.loads(board_output(board).splitlines()[-1])
            assert (line["state"], line["reports"]) == ("reporting", 1)
            assert used.flash(board, further=[str(BOARD_FILE)]).copied == ()
            missing = board_output(board, "import os\nos.remove('/lib/unary_board.mpy')\n")
            fails = board_output(board, "with open('/lib/unary_board.py', 'w') as f: f.write('1 / 0')\n")
        # A missing or broken file gives one line, and the board continues.
        assert (
            "hushmote: unary_board.py: ImportError: no module named 'unary_board': flash it again" in missing
        )
        assert "hushmote: unary_board.py: ZeroDivisionError: divide by zero: flash it again" in fails
        for message in (missing, fails):
            assert refusal in message.splitlines()[-1]

    def test_needs_copied_module_for_logarithmic_bins(self, used: Bench):
        budget = {"rule": "sum", "cap": 4_000_000}
        log = number_json(6, name="room_temp", low=1_000, high=1_000_000, scale="log", budget=budget)
        script = f"PAYLOAD = {log!r}\n{ASK}"
        with used.board() as board:
            assert "refused unknown field scale" in on_board(board, script)
            assert "/lib/ldp_scale.mpy" in used.flash(board, further=["scale"]).copied
            line = json.loads(on_board(board, script).splitlines()[-1])
            assert (line["state"], line["reports"]) == ("reporting", 1)

    def test_module_without_mechanisms_changes_nothing(self, used: Bench, tmp_path: Path):
        empty_file = tmp_path / "empty_one.py"
        empty_file.write_text("x = 1\n")
        raises = tmp_path / "raising.py"
        raises.write_text("import ldp_client\nldp_client.no_such_thing\n")
        with used.board() as board:
            before = used.contents()
            message = used.fails(board, further=[str(empty_file)])
            assert "empty_one.py adds nothing to ldp_client.MECHANISMS or TYPES" in message
            assert message.endswith("the board's files are unchanged")
            message = used.fails(board, further=[str(raises)])
            assert "AttributeError" in message
            assert used.contents() == before


def written(name: str, content: str | bytes) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return [str(path)]

    return make


def TWICE(folder: Path) -> list[str]:
    (folder / "other").mkdir()
    return written("mine.py", "x = 2")(folder / "other")


class TestFiles:
    def test_class_names_its_file(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(wire, "FOLDERS", [str(EXAMPLES)])
        assert further_files(["unary:Unary"], MODULES) == {"unary_board": BOARD_FILE.read_bytes()}

    def test_shipped_file_is_a_word_and_brings_its_imports(self):
        for word, path in board_files.shipped_files().items():
            files = further_files([word], MODULES)
            assert list(files)[-1] == path.stem
            assert files[path.stem] == path.read_bytes()
            assert [p.stem for p in board_files.with_imports(path.read_bytes())] == list(files)[:-1]

    def test_imports_come_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda folder: ["nonsense"], "--with nonsense: use "),
            (lambda folder: [str(folder / "none.py")], "No such file"),
            (lambda folder: ["no_such_module:X"], "cannot find module no_such_module"),
            (written("ldp_client.py", "x = 1"), "boards already have a module ldp_client"),
            (written("json.py", "x = 1"), "boards already have a module json"),
            (written("my-file.py", "x = 1"), "name the file with a-z, 0-9 and _"),
            (written("large.py", "#" * (MAX_BYTES + 1)), "16,385 bytes, but boards accept at most 16,384"),
            (written("faulty.py", "def"), "does not compile: invalid syntax"),
            (written("nul.py", b"x = 1\0"), "does not compile: "),
            (
                lambda folder: [*written("mine.py", "x = 1")(folder), *TWICE(folder)],
                "there are two files mine.py",
            ),
        ],
        ids=[
            "nonsense",
            "missing file",
            "missing module",
            "ldp_client",
            "json",
            "hyphen",
            "large",
            "syntax error",
            "null byte",
            "same name twice",
        ],
    )
    def test_mistakes_are_one_line(self, tmp_path: Path, make: Callable[[Path], list[str]], text: str):
        with fails(re.escape(text), HushmoteError):
            further_files(make(tmp_path), MODULES)

    def test_shipped_file_is_at_most_1500_bytes_compiled(self):
        paths = [*board_files.shipped_files().values(), ROOT / "device" / "ldp_p256.py"]
        sizes = {path.name: len(compile_mpy(path, ARMV6M, path.name)) for path in paths}
        assert {name: size for name, size in sizes.items() if size > 1500} == {}
