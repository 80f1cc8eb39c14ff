"""A progress bar on standard error, if that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..server.answers import tables as show


@contextmanager
def progress(doing: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with each further part of the total that is done.

    It shows nothing if standard error is not a terminal.

    Args:
        doing: The label, such as "Simulating".
        total: The whole work, or None if it is unknown.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(40),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=show.err, transient=True, disable=not show.err.is_terminal) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda more: bar.advance(task, more)
