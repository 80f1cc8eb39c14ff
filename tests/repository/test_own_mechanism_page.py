"""docs/own-mechanism.md shows the files in examples/channels.

test_commands.py saves the files and runs the page's commands.
"""

import re
from collections.abc import Callable
from pathlib import Path

import page_blocks
import pytest
from custom_mechanisms import EXAMPLES

from hushmote.server.mechanisms.custom import MechanismError
from hushmote.simulator.contract import check
from hushmote.simulator.contract.cases import cases

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-mechanism.md").read_text("utf-8")


def test_files_match_examples():
    saved = {block.file: block.text for block in page_blocks.read(PAGE).blocks if block.file}
    assert set(saved) == {"unary_board.py", "unary.py", "room.toml", "rounded.py"}
    for name in ("unary_board.py", "unary.py"):
        content = (EXAMPLES / name).read_text("utf-8")
        assert saved[name] == f"cat > {name} <<'END_OF_FILE'\n{content}END_OF_FILE\n"


def test_shows_every_checked_property():
    names = re.findall(r"^([a-z ]+?) +holds: ", PAGE, re.MULTILINE)
    assert names == [*check.PROPERTIES, check.SAME_CODES]


def test_missing_and_broken_modules_are_named(own_folder: Callable[[str, str], str]):
    own_folder("foo", "1 / 0")
    for word, line in [
        ("foo", "unknown mechanism 'foo'; choose from rr"),
        ("foo:Foo", "foo cannot be imported: Zero"),
    ]:
        with pytest.raises(MechanismError) as caught:
            cases(word)
        assert line in str(caught.value)


def test_saved_file_keeps_every_character():
    code = "x = '$HOME `ls` \\n'  # 'é\n"
    text = f"<!-- file: a_b.py -->\n```python\n{code}```\n<!-- file: ../x -->\n```toml\n```\n"
    page = page_blocks.read(text)
    assert page.blocks[0].text == f"cat > a_b.py <<'END_OF_FILE'\n{code}END_OF_FILE\n"
    assert list(page.blocks[0].commands()) == []
    assert page.faults == ((5, "<!-- file: ../x --> is no file of a page"),)
    assert page_blocks.read("<!-- file: a.py -->\n```sh\ntrue\n```\n").faults
    assert page_blocks.read("<!-- file: a.py -->\ntext\n").faults
