"""Commands that a page shows with what they print: a block of sh, and a block of text right below it."""

import re
import shlex

_PAIR = re.compile(r"^```sh\nhushmote ((?:[^\n`]|\\\n)+)\n```\n+```text\n(.*?)```", re.MULTILINE | re.DOTALL)


def shown(page: str, *commands: str) -> list[tuple[list[str], list[str]]]:
    """Arguments and printed lines of each such command of a page; commands: only those that start so."""
    pairs = [(shlex.split(command, comments=True), text) for command, text in _PAIR.findall(page)]
    return [
        (arguments, [line.rstrip() for line in text.splitlines()])
        for arguments, text in pairs
        if not commands or arguments[0] in commands
    ]
