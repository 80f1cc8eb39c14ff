"""Untrusted text is shortened to the space that it has."""

import pytest

from hushmote.server.plain_text import shorten


class TestShorten:
    @pytest.mark.parametrize(("text", "result"), [("", ""), ("abcd", "abcd"), ("abcde", "abc…")])
    def test_replaces_only_what_does_not_fit(self, text: str, result: str):
        assert shorten(text, 4) == result
