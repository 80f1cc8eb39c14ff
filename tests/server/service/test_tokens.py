"""Named tokens are valid until their line is removed; an unreadable file admits nobody."""

import logging
import os

import pytest

from hushmote.server.errors import UsageError
from hushmote.server.service import tokens as module
from hushmote.server.service.tokens import TokenFile, Tokens

ADA, BEN = "a" * 16, "b" * 16


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "page.token"
    path.touch(0o600)
    return path


def age(path):
    """Make a file look older than one that may change within a tick of the clock."""
    before = path.stat().st_mtime - 60
    os.utime(path, (before, before))


class TestTokenFile:
    def test_single_token_of_before_holds(self, file):
        file.write_text(f"{ADA}\n")
        assert TokenFile(file).name_of(ADA) == "token"
        assert TokenFile(file).name_of(ADA + " ") is None

    def test_each_token_has_its_holders_name(self, file):
        file.write_text(f"# who may look\nada {ADA}\n\nben {BEN}  \n")
        tokens = TokenFile(file)
        assert (tokens.name_of(ADA), tokens.name_of(BEN)) == ("ada", "ben")
        for token in (None, "", "ada", f"ada {ADA}", ADA[:-1], "\xff" * 16):
            assert tokens.name_of(token) is None

    @pytest.mark.parametrize("old", [False, True])
    def test_removed_line_revokes_only_that_token(self, file, old):
        file.write_text(f"ada {ADA}\nben {BEN}\n")
        if old:
            age(file)
        tokens = TokenFile(file)
        assert tokens.name_of(ADA) == "ada"
        file.write_text(f"ben {BEN}\n")
        if old:
            age(file)  # so that only its size and change time differ
        assert (tokens.name_of(ADA), tokens.name_of(BEN)) == (None, "ben")
        file.write_text(f"ben {ADA}\n")
        assert (tokens.name_of(ADA), tokens.name_of(BEN)) == ("ben", None)

    @pytest.mark.parametrize(
        "fault", ["", "missing", "short", "readable"], ids=["empty", "missing", "short", "readable"]
    )
    def test_admits_nobody_while_it_is_unreadable(self, file, fault, caplog):
        caplog.set_level(logging.ERROR, "hushmote")
        file.write_text(f"ada {ADA}\n")
        tokens = TokenFile(file)
        assert tokens.name_of(ADA) == "ada"
        for failures in (1, 2):
            if fault == "missing":
                file.unlink()
            elif fault == "readable":
                file.chmod(0o644)
            else:
                file.write_text(fault)
            assert [tokens.name_of(ADA) for _ in range(3)] == [None] * 3
            assert len(caplog.records) == failures
            assert "all access is refused until then" in caplog.messages[-1]
            file.touch(0o600)
            file.chmod(0o600)
            file.write_text(f"ada {ADA}\n")
            assert tokens.name_of(ADA) == "ada"

    def test_change_within_a_tick_takes_effect(self, file, monkeypatch):
        """A file system's clock may tick only every two seconds."""
        file.write_text(f"ada {ADA}\n")
        written = file.stat()
        monkeypatch.setattr(module.os, "stat", lambda _path: written)
        monkeypatch.setattr(module.time, "time", lambda: written.st_mtime + 1.9)
        tokens = TokenFile(file)
        file.write_text(f"ada {BEN}\n")
        assert (tokens.name_of(ADA), tokens.name_of(BEN)) == (None, "ada")

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("", "must contain a token, or NAME TOKEN on each line"),
            ("# nobody\n", "must contain a token, or NAME TOKEN on each line"),
            ("short\n", "a token of 16 or more letters and digits"),
            ("ada short\n", "a token of 16 or more letters and digits"),
            ("ada and ben share this token\n", "a token of 16 or more letters and digits"),
            (f"ada/b {ADA}\n", "a name must be 1 to 32 letters, digits, ., _ and -"),
            (f"ada {ADA}\nada {BEN}\n", "without duplicates"),
            (f"ada {ADA}\nben {ADA}\n", "without duplicates"),
            (f"{ADA}\n{BEN}\n", "without duplicates"),
        ],
        ids=[
            "empty",
            "only a comment",
            "short token",
            "short named token",
            "several words",
            "invalid name",
            "name twice",
            "token twice",
            "two unnamed tokens",
        ],
    )
    def test_rejects_malformed_file_unquoted(self, file, text, error):
        file.write_text(text)
        with pytest.raises(UsageError) as caught:
            TokenFile(file)
        assert error in str(caught.value)
        assert "\n" not in str(caught.value)
        assert ADA not in str(caught.value)

    def test_rejects_file_that_others_can_read(self, file):
        file.write_text(f"ada {ADA}\n")
        file.chmod(0o640)
        with pytest.raises(UsageError, match="can be read by others; run `chmod 600` on it"):
            TokenFile(file)


class TestTokens:
    def test_hide_secrets_in_repr(self):
        assert ADA not in repr(Tokens({"ada": ADA}))
