"""Run the parts of a simulation or a study in any order, and return their results in the parts' order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..server.errors import HushmoteError

Part = TypeVar("Part")
Result = TypeVar("Result")


class WorkersError(HushmoteError):
    """Workers that cannot be started or were lost; the message says what would be right."""


def _here(
    function: Callable[..., Result], parts: Sequence[Any], common: tuple[Any, ...]
) -> Iterator[tuple[int, Result]]:
    for number, part in enumerate(parts):
        yield number, function(part, *common)


class Workers:
    """Workers that run a function on each of some parts.

    Args:
        run: Like _here(), which uses this process: yields each part's number and result, in any order.
    """

    def __init__(self, run: Callable[..., Iterator[tuple[int, Any]]] = _here) -> None:
        self._run = run

    def map(
        self,
        function: Callable[..., Result],
        parts: Sequence[Part],
        *common: Any,
        advance: Callable[[Part], object] = lambda part: None,
    ) -> Iterator[Result]:
        """Yield function(part, *common) of each part, in the order of the parts.

        Args:
            function: Defined at a module's top level, without side effects: a part whose worker died is run
                again.
            parts: The first arguments of the calls.
            *common: Further arguments, the same for all parts.
            advance: Called with each part when it is done, in order of completion.

        Raises:
            WorkersError: If workers are lost. Errors of the function are raised too.
        """
        early: dict[int, Result] = {}
        following = 0
        for number, result in self._run(function, parts, common):
            advance(parts[number])
            early[number] = result
            while following in early:
                yield early.pop(following)
                following += 1


THIS_PROCESS = Workers()
