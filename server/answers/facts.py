"""Sentences, facts and tables of texts for a terminal and a notebook, whatever they are of."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from .fitted_table import plain
from .tables import table


class Section(Protocol):
    """A table: the first column words, the others numbers, "> " marks the best row; notes stand below it."""

    @property
    def title(self) -> str: ...
    @property
    def headings(self) -> Sequence[str]: ...
    @property
    def rows(self) -> Sequence[Sequence[str]]: ...
    @property
    def notes(self) -> Sequence[str]: ...


def printed(
    lines: Iterable[str], facts: Iterable[tuple[str, str]], sections: Iterable[Section]
) -> RenderableType:
    """Lines, facts (a name and what it is; without a name the last one goes on) and tables."""
    names = table(header=False)
    names.add_column(style="bold", no_wrap=True)
    names.add_column()
    for fact in facts:
        names.add_row(*fact)
    parts: list[RenderableType] = [*map(plain, lines), "", names]
    for section in sections:
        if section.rows:
            made = table()
            for number, heading in enumerate(section.headings):
                made.add_column(heading, justify="right" if number else "left")
            for row in section.rows:
                made.add_row(*row, style="bold" if row[0].startswith("> ") else "")
            parts += ["", Text(section.title, style="bold"), made]
        parts += map(plain, section.notes)
    return Group(*parts)


def html(lines: Iterable[str], facts: Iterable[tuple[str, str]]) -> str:
    """Lines and facts for a notebook."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts)
    return f"{''.join(f'<p>{escape(line)}</p>' for line in lines)}<table>{''.join(rows)}</table>"
