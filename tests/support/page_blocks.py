"""A page's commands: its fenced `sh` blocks, their HTML comment directives, and commands outside both.

<!-- needs: board -->       not run, because it needs a board, a root shell, the network, a terminal
                           or a clone
<!-- background -->         started, and stopped at the end of the page
<!-- fails -->              one command, which must fail
<!-- slow -->               more than 10 s of CPU: run by `make long` alone
<!-- setup: COMMAND -->     run before the block, for setup that the page does not show
<!-- file: NAME -->         before a block of another language: the reader saves it under this name
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from textwrap import dedent

NEEDS = {
    "board": "a board",
    "root": "a root shell",
    "network": "the network",
    "terminal": "a terminal",
    "clone": "a clone of the project",
}
_FENCE = re.compile(r" *(`{3,}|~{3,}) *(.*)")
_COMMENT = re.compile(r" *<!-- *(.*?) *--> *")
_DIRECTIVE = re.compile(r"(needs|setup|file): *(.+)|background|fails|slow")
_FILE_NAME = re.compile(r"[a-z0-9_]+\.[a-z]+")
_SHELLS = {"bash", "console", "shell", "shell-session", "zsh"}
# A command outside `sh` blocks: one with a prompt, or one that starts with a known program.
_PROMPT = re.compile(r" *\$ \S")
_PROGRAM = re.compile(r" *(hushmote [a-z-]|(make|git|pip|pipx|uv|mpremote|python3?|\.) [\w./-])")
_BEHIND = re.compile(r"\S {3,}[^\s#\\]")
_REDIRECTION = re.compile(r"\s\d?(?:>>?|<)&?\s*(?:'[^']*'|\S+)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_LEFT_OUT = re.compile(r"(?:^|\s|/)(?:\.\.\.|…)")
_PLACEHOLDER = re.compile(r"<[a-z][^<>|&]*>")


@dataclass(frozen=True)
class Block:
    """A fenced `sh` block: the line number of its first command, its text, and its directives.

    file: the name under which a block in another language is saved; its text then does so.
    """

    line: int
    text: str = ""
    needs: str = ""
    background: bool = False
    fails: bool = False
    slow: bool = False
    setup: tuple[str, ...] = ()
    file: str = ""

    def commands(self) -> Iterator[tuple[int, str]]:
        """Return each command's line number and text, with continued lines joined and comments omitted."""
        command, first = "", 0
        if self.file:
            return
        for number, line in enumerate(self.text.splitlines(), self.line):
            first = first if command else number
            command += (line.lstrip() if command else line).removesuffix("\\")
            if not line.endswith("\\"):
                if command.strip() and not command.strip().startswith("#"):
                    yield first, command.strip()
                command = ""

    def programs(self) -> Iterator[tuple[int, list[str]]]:
        """Return the line number and words of each program in the block, including those after && and |."""
        for line, command in self.commands():
            lexer = shlex.shlex(_REDIRECTION.sub("", command), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            lexer.commenters = "#"
            words: list[str] = []
            for word in lexer:
                if word in ("&&", "||", "|", ";", "&"):
                    yield line, words
                    words = []
                else:
                    words.append(word)
            yield line, words


@dataclass(frozen=True)
class Page:
    """A page's blocks, and the line and text of each fault: an invalid block, or text that should be one."""

    blocks: tuple[Block, ...] = ()
    faults: tuple[tuple[int, str], ...] = ()


@dataclass
class _Reader:
    blocks: list[Block] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    comments: list[tuple[int, str]] = field(default_factory=list)  # directly before the current line

    def drop_comments(self) -> None:
        for line, text in self.comments:
            if _DIRECTIVE.fullmatch(text):
                self.faults.append((line, f"<!-- {text} --> stands before no sh block"))
        self.comments = []

    def take(self, block: Block) -> None:
        for line, text in self.comments:
            match = _DIRECTIVE.fullmatch(text)
            if match is None or match[1] == "file" or (match[1] == "needs" and match[2] not in NEEDS):
                self.faults.append((line, f"<!-- {text} --> says nothing that is known here"))
            elif match[1] == "setup":
                block = replace(block, setup=(*block.setup, match[2]))
            elif match[1] == "needs":
                block = replace(block, needs=match[2])
            else:
                block = replace(block, **{text: True})
        self.comments = []
        self.blocks.append(block)
        self.faults += _faults(block)

    def foreign(self, number: int, language: str, text: str) -> None:
        """Return a block in another language: a file to save, or text that must not contain commands."""
        if len(self.comments) == 1 and (match := re.fullmatch(r"file: *(.+)", self.comments[0][1])):
            self.comments = []
            if _FILE_NAME.fullmatch(match[1]) is None or "END_OF_FILE" in text:
                self.faults.append((number - 2, f"<!-- file: {match[1]} --> is no file of a page"))
            saved = f"cat > {match[1]} <<'END_OF_FILE'\n{text}END_OF_FILE\n"
            self.blocks.append(Block(number - 1, saved, file=match[1]))
            return
        self.drop_comments()
        if language in _SHELLS:
            self.faults.append((number - 1, f"```{language}: write ```sh, and output as ```text"))
            return
        for line, shown in enumerate(text.splitlines(), number):
            if _PROMPT.match(shown) or (language in ("", "text") and _PROGRAM.match(shown)):
                self.faults.append((line, f"a command outside of an sh block: {shown.strip()}"))


def read(text: str) -> Page:
    """Return the blocks and faults in a page's Markdown."""
    reader = _Reader()
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        fence, comment = _FENCE.fullmatch(line), _COMMENT.fullmatch(line)
        if fence:
            inner = []
            for _, next_line in lines:
                if next_line.strip() == fence[1]:
                    break
                inner.append(next_line)
            else:
                reader.faults.append((number, "a block that is not closed"))
            language, content = fence[2].partition(" ")[0], dedent("\n".join(inner) + "\n")
            if language == "sh":
                reader.take(Block(number + 1, content))
            else:
                reader.foreign(number + 1, language, content)
        elif comment:
            reader.comments.append((number, comment[1]))
        elif line.strip():
            reader.drop_comments()
            if line.startswith("    ") and (_PROMPT.match(line) or _PROGRAM.match(line)):
                reader.faults.append((number, f"a command outside of an sh block: {line.strip()}"))
    reader.drop_comments()
    return Page(tuple(reader.blocks), tuple(sorted(reader.faults)))


def _faults(block: Block) -> Iterator[tuple[int, str]]:
    commands = list(block.commands())
    if block.fails and len(commands) != 1:
        yield block.line, "<!-- fails --> stands before a block of more than one command"
    for line, command in commands:
        bare = _QUOTED.sub("''", command).partition(" #")[0]
        if command.startswith("$ "):
            yield line, f"a prompt in an sh block: {command}"
        elif _BEHIND.search(bare):
            yield line, f"text behind a command, write # before it: {command}"
        elif _LEFT_OUT.search(bare):
            yield line, f"a command that leaves something out: {command}"
        elif _PLACEHOLDER.search(bare):
            yield line, f"<...> is no placeholder for a shell, write CAPITALS: {command}"
