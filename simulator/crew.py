"""What runs the parts of a simulation or a study, in any order, and hands on their results in theirs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..server.errors import HushmoteError

Part = TypeVar("Part")
Result = TypeVar("Result")


class WorkersError(HushmoteError):
    """Workers that cannot be had, or that are lost; the text says what would be right."""


def _here(
    function: Callable[..., Result], parts: Sequence[Any], given: tuple[Any, ...]
) -> Iterator[tuple[int, Result]]:
    for number, part in enumerate(parts):
        yield number, function(part, *given)


class Workers:
    """What runs a function on each of some parts.

    run: as _here(), which is this process: yields each part's number and result, in any order.
    """

    def __init__(self, run: Callable[..., Iterator[tuple[int, Any]]] = _here) -> None:
        self._run = run

    def map(
        self,
        function: Callable[..., Result],
        parts: Sequence[Part],
        *given: Any,
        advance: Callable[[Part], object] = lambda part: None,
    ) -> Iterator[Result]:
        """Yield function(part, *given) of each part, in the order of the parts.

        function: of a module's top level, without side effects: a part whose worker died is run again.
        given: the same for all parts. advance: told of each part as it is done, in the order in which that
        happens. Raises what the function raises, WorkersError where workers are lost.
        """
        early: dict[int, Result] = {}
        following = 0
        for number, result in self._run(function, parts, given):
            advance(parts[number])
            early[number] = result
            while following in early:
                yield early.pop(following)
                following += 1


THIS_PROCESS = Workers()
