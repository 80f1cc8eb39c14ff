"""What runs the parts of a simulation or a study, in any order, and hands on their results in theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..server.errors import HushmoteError

Part = TypeVar("Part")
Result = TypeVar("Result")


class WorkersError(HushmoteError):
    """Workers that cannot be had, or that are lost; the text says what would be right."""


class Workers(ABC):
    """What runs a function on each of some parts."""

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

    @abstractmethod
    def _run(
        self, function: Callable[..., Result], parts: Sequence[Any], given: tuple[Any, ...]
    ) -> Iterator[tuple[int, Result]]:
        """Yield each part's number and result, in any order."""


class _ThisProcess(Workers):
    def _run(
        self, function: Callable[..., Result], parts: Sequence[Any], given: tuple[Any, ...]
    ) -> Iterator[tuple[int, Result]]:
        for number, part in enumerate(parts):
            yield number, function(part, *given)


THIS_PROCESS: Workers = _ThisProcess()
