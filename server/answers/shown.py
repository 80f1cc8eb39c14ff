"""What shows itself: as a table of 80 columns wherever it is printed, and as HTML in a notebook."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


class Shown:
    """The base of results that people look at; __rich__ and _repr_html_ say how they look."""

    def __rich__(self) -> RenderableType:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        text = io.StringIO()
        # Without force_jupyter rich would print into a notebook's cell by itself.
        console = Console(file=text, width=80, color_system=None, highlight=False, force_jupyter=False)
        console.print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__
