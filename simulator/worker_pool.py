"""Run the parts of a simulation or a study in any order, and return their results in the parts' order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..server.errors import HushmoteError

Part = TypeVar("Part")
Result = TypeVar("Result")


class WorkersError(HushmoteError):
    """Raised if workers cannot be started or were lost; the message says what to do."""


def _run_here(
    function: Callable[..., Result], parts: Sequence[Any], common: tuple[Any, ...]
) -> Iterator[tuple[int, Result]]:
    for number, part in enumerate(parts):
        yield number, function(part, *common)


class Workers:
    """Workers that run a function on each of several parts.

    Args:
        run: A function like _run_here(), which uses this process: yields each part's index and result, in
            any order.
    """

    def __init__(self, run: Callable[..., Iterator[tuple[int, Any]]] = _run_here) -> None:
        self._run = run

    def map(
        self,
        function: Callable[..., Result],
        parts: Sequence[Part],
        *common: Any,
        advance: Callable[[Part], object] = lambda part: None,
    ) -> Iterator[Result]:
        """Yield function(part, *common) for each part, in the order of the parts.

        Args:
            function: Defined at a module's top level, without side effects: a part is rerun if its
                worker dies.
            parts: The first arguments of the calls.
            *common: Additional arguments, the same for all parts.
            advance: Called with each part when it is done, in order of completion.

        Raises:
            WorkersError: If workers are lost. The function's errors are raised as well.
        """
        waiting: dict[int, Result] = {}
        next_number = 0
        for number, result in self._run(function, parts, common):
            advance(parts[number])
            waiting[number] = result
            while next_number in waiting:
                yield waiting.pop(next_number)
                next_number += 1


THIS_PROCESS = Workers()
