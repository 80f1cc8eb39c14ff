"""docs/mechanisms.md matches the registry."""

import make_mechanisms
import pytest

from hushmote.server.mechanisms import MECHANISMS

PAGE = make_mechanisms.FILE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_tables_match_code():
    assert make_mechanisms.text(PAGE) == PAGE, "run tools/make_mechanisms.py"


def test_every_mechanism_has_a_paragraph():
    section = PAGE.partition("## What each one is")[2]
    for word in MECHANISMS:
        assert f"`{word}`" in section
