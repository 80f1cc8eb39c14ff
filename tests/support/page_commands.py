"""Commands that a page shows with their output: an sh block directly followed by a text block."""

import re
import shlex

_PAIR = re.compile(r"^```sh\nhushmote ((?:[^\n`]|\\\n)+)\n```\n+```text\n(.*?)```", re.MULTILINE | re.DOTALL)


def command_examples(page: str, *commands: str) -> list[tuple[list[str], list[str]]]:
    """Return the arguments and printed lines of each such command on a page; commands: accepted prefixes."""
    pairs = [(shlex.split(command, comments=True), text) for command, text in _PAIR.findall(page)]
    return [
        (arguments, [line.rstrip() for line in text.splitlines()])
        for arguments, text in pairs
        if not commands or arguments[0] in commands
    ]


def prints(output: str, lines: list[str]) -> bool:
    """Return whether a command printed these lines; "..." matches any number of omitted lines."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in lines)
    printed = "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())
    return re.fullmatch(pattern, printed) is not None
