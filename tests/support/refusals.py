"""Commands, files and calls that must fail with a one-line error and write nothing."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import hushmote, unchanged

from hushmote.server.errors import HushmoteError
from hushmote.server.store import StoreError


@contextmanager
def fails(match: str, error: type[Exception] = StoreError) -> Iterator[None]:
    """Check that the block raises this error, with a one-line message that matches."""
    with pytest.raises(error, match=match) as caught:
        yield
    assert str(caught.value)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Refusal:
    """A command line or a call that must fail.

    action: the arguments of `hushmote`, as typed in a shell, or a callable that takes the test's folder.
    words: part of the error message. files: files to write first, readable only by their owner. error: the
    exception that a call raises. status: the command's exit status.
    """

    action: str | Callable[[Path], object]
    words: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    error: type[Exception] = HushmoteError
    status: int = 1

    def __str__(self) -> str:
        alike = self.files or self.environment  # other rows probably have the same action
        return self.action if isinstance(self.action, str) and not alike else self.words

    def check(self, folder: Path | None = None) -> None:
        """Check that the action fails with one line that contains the words, and writes nothing to a folder.

        folder: may be omitted for calls that neither read nor write files.
        """
        folder = folder or Path(os.devnull)
        for name, content in self.files.items():
            (folder / name).touch(0o600)
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        if isinstance(self.action, str):
            line = shlex.split(self.action)
            message = hushmote(*line, cwd=folder, expect=self.status, environment=self.environment)
            assert self.words in message
        else:
            with unchanged(folder), fails(re.escape(self.words), self.error):
                self.action(folder)


def refusals(
    *rows: tuple[Any, ...], command: str = "", call: Callable[..., object] | None = None, **common: Any
) -> pytest.MarkDecorator:
    """Parametrize a test with `refusal`, one per row: an action, words, and optional files and environment.

    command: a prefix for each action. call: called with a row's values before its words. common: fields
    shared by all rows.
    """
    if call is not None:
        rows = tuple((_bound(call, row[:-1]), row[-1]) for row in rows)
    if command:
        rows = tuple((f"{command} {action}", *more) for action, *more in rows)
    return pytest.mark.parametrize("refusal", [Refusal(*row, **common) for row in rows], ids=str)


def _bound(call: Callable[..., object], arguments: tuple[Any, ...]) -> Callable[[Path], object]:
    return lambda _folder: call(*arguments)
