"""A page of help: what a command does, its arguments and options in panels, examples that can be pasted.

Texts are shown as they are written, without markup or emoji, and no value is cut. What --help prints
and docs/command-line.md come from the same HelpPage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .examples import EXAMPLES

# What typer's versions call a value's type, and what a page says.
_VALUES = {
    "int": "N",
    "integer": "N",
    "float": "X",
    "str": "TEXT",
    "text": "TEXT",
    "path": "FILE",
    "file": "FILE",
    "directory": "FOLDER",
}


@dataclass(frozen=True)
class HelpRow:
    """An argument, an option or a command: how it is written, what it means, and notes, as its default."""

    written: str
    meaning: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class HelpPage:
    """A command's help: its path, how it is called, paragraphs, panels of rows by their titles, examples."""

    path: str
    usage: str
    paragraphs: tuple[str, ...]
    panels: dict[str, tuple[HelpRow, ...]]
    examples: tuple[str, ...]


def page_of(command: Any, context: Any) -> HelpPage:
    """Return the page of a click command or group, as typer makes them."""
    path = context.command_path
    text = (command.help or "").partition("\f")[0]
    paragraphs = tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())
    shown = [p for p in command.get_params(context) if not getattr(p, "hidden", False)]
    panels: dict[str, list[HelpRow]] = {}
    pieces = ["[OPTIONS]"]
    for param in shown:
        is_argument = param.param_type_name == "argument"
        if is_argument:
            pieces.append(_argument(param))
        title = getattr(param, "rich_help_panel", None) or ("Arguments" if is_argument else "Options")
        panels.setdefault(title, []).append(_row(param, context))
    for name, member in getattr(command, "commands", {}).items():
        title = getattr(member, "rich_help_panel", None)
        line = (member.help or "").partition("\n\n")[0]
        row = HelpRow(name, " ".join(line.split()))
        panels.setdefault(title if isinstance(title, str) else "Commands", []).append(row)
    if hasattr(command, "commands"):
        pieces.append("COMMAND ...")
    examples = EXAMPLES.get(" ".join(path.split()[1:]), ())
    usage = " ".join((path, *pieces))
    shown_panels = {k: tuple(v) for k, v in _ordered(panels)}
    more = getattr(command, "more_help", lambda _: None)(context)
    if more:  # about what an argument names
        line, first, examples = more
        return HelpPage(path, usage, (line,), first | shown_panels, examples)
    return HelpPage(path, usage, paragraphs, shown_panels, examples)


def _ordered(panels: dict[str, list[HelpRow]]) -> Iterator[tuple[str, list[HelpRow]]]:
    """Arguments first, the general options after those of the command's own panels."""
    last = ("Options",)
    for title in sorted(panels, key=lambda t: (t != "Arguments", t in last)):
        yield title, panels[title]


def _argument(param: Any) -> str:
    name = (param.metavar or param.name).upper() + ("..." if param.nargs != 1 else "")
    return name if param.required else f"[{name}]"


def _row(param: Any, context: Any) -> HelpRow:
    if param.param_type_name == "argument":
        written = _argument(param)
    else:
        names = ", ".join(sorted(param.opts, key=len, reverse=True))
        names += "".join(f" / {name}" for name in param.secondary_opts)
        written = names if param.is_flag else f"{names} {_value(param, context)}"
    notes = list(_notes(param, context))
    return HelpRow(written, " ".join((getattr(param, "help", None) or "").split()), tuple(notes))


def _value(param: Any, context: Any) -> str:
    """What stands behind an option."""
    if param.metavar:
        return param.metavar
    show = getattr(param, "display_type", None) or param.make_metavar
    text = re.sub(r"^[<\[](list\[)?(.*?)\]?[>\]]$", r"\2", show(context))
    if "|" in text:
        return text
    return _VALUES.get(text.split()[0].lower(), text.upper())


def _notes(param: Any, context: Any) -> Iterator[str]:
    if getattr(param, "multiple", False) and "repeated" not in (param.help or ""):
        yield "may be repeated"
    kind = getattr(param, "type", None)
    least, most = (getattr(param, end, getattr(kind, end, None)) for end in ("min", "max"))
    if least is not None or most is not None:
        yield f"{least} to {most}" if None not in (least, most) else f"at least {least}"
    if param.envvar and getattr(param, "show_envvar", True):
        yield f"env: {param.envvar}"
    default = _default(param, context)
    if default:
        yield f"default: {default}"


def _default(param: Any, context: Any) -> str:
    shown = getattr(param, "show_default", True)
    if isinstance(shown, str):
        return shown
    value = param.get_default(context, call=False)
    if not shown or value is None or value is False or not str(value) or value in ((), []):
        return ""
    if value is True:
        return max(param.opts, key=len) if param.secondary_opts else ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value.value if isinstance(value, Enum) else value)


def show(page: HelpPage) -> None:
    """Print a page on standard output, as wide as the terminal, 80 columns in a pipe."""
    # Only here: a command that is run needs none of it.
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    console.print()
    console.print(Text.assemble(" Usage: ", (page.usage, "bold")), soft_wrap=True)
    console.print()
    for paragraph in page.paragraphs:
        for line in Text(paragraph).wrap(console, console.width - 2):
            line.rstrip()
            console.print(Text(" ") + line, soft_wrap=True)
        console.print()
    for title, rows in page.panels.items():
        inside = console.width - 4
        # Names above that width have a line of their own.
        names = max((len(row.written) for row in rows if len(row.written) <= inside // 3), default=0) + 2
        lines = []
        for row in rows:
            meaning = Text(row.meaning)
            for note in row.notes:
                meaning.append(" " if meaning else "").append(f"[{note}]", "dim")
            name = Text(row.written, "bold cyan")
            if len(name) > names:
                lines.append(name)
                name = Text()
            for line in meaning.wrap(console, inside - names) or [Text()]:
                lines.append(Text(name.plain.ljust(names), name.style) + line)
                name = Text()
        panel = Panel(Text("\n").join(lines), title=Text(title), title_align="left", border_style="dim")
        console.print(panel)
    if page.examples:
        console.print(Text("\n Examples:", "bold"))
        for line in page.examples:
            console.print(Text(f"   {line}"), soft_wrap=True)


def walk(command: Any, context: Any) -> Iterable[tuple[Any, Any]]:
    """Yield a command and all below it, each with a context of its own."""
    yield command, context
    for name, member in getattr(command, "commands", {}).items():
        yield from walk(member, type(context)(member, info_name=name, parent=context))
