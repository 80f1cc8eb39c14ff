"""A progress bar on standard error, if that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..server.answers import tables as show


@contextmanager
def progress(label: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """Yield a function that advances the bar by an amount of work.

    Nothing is shown if standard error is not a terminal.

    Args:
        label: The label, such as "Simulating".
        total: The total amount of work, or None if unknown.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(40),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=show.err, transient=True, disable=not show.err.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda amount: bar.advance(task, amount)
