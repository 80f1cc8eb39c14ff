"""hushmote.plan(), which solves for one of devices, ε, values and error, given the other three."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ParamSpec

from rich.console import RenderableType

from hushmote.planning.answer import PlanAnswer, answer
from hushmote.planning.devices import Plan, PlanError
from hushmote.planning.lifetime import LifetimePlan
from hushmote.planning.proposal import Proposal, propose
from hushmote.planning.request import PlanRequest, in_python
from hushmote.planning.second_epsilon import HistogramEpsilon
from hushmote.planning.sentences import mechanism
from hushmote.planning.written_numbers import ReadingRules
from hushmote.server.answers import tables
from hushmote.server.answers.tables import Printable

_P = ParamSpec("_P")


@dataclass(frozen=True, repr=False)
class FleetPlan(Printable):
    """A plan for a fleet; printing it gives the output of `hushmote plan`.

    Attributes:
        answer: The plan's sentences, facts, tables and experiment file.
        proposal: What was derived from readings; None without them.
    """

    answer: PlanAnswer
    proposal: Proposal | None = None

    @property
    def plan(self) -> Plan | LifetimePlan:
        """The plan itself, with its question, mechanism and standard error, or its lifetime budget."""
        return self.answer.plan

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.plan.devices

    @property
    def epsilon(self) -> float:
        """ε of one report, against everyone, in nats."""
        return self.plan.design.epsilon / 1e6

    @property
    def values(self) -> int:
        """The number of values: a number's bins, labels including "other", or 2 for yes and no."""
        return self.plan.design.domain

    @property
    def error(self) -> float:
        """The half-width of the 95% interval: a share of devices or, for a mean, a fraction of the range.

        For a lifetime, it is over the longest window at the end.
        """
        return self.answer.error

    @property
    def mechanism(self) -> str:
        """The mechanism with the least error, and its parameters."""
        return mechanism(self.plan.design)

    @property
    def histogram(self) -> HistogramEpsilon:
        """The ε of the histogram of all reports, and whom it protects against."""
        return self.answer.histograms["all of it"]

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values of `hushmote plan --json`."""
        return self.answer.to_dict() | ({"input": " ".join(self.proposal.lines)} if self.proposal else {})

    def __rich__(self) -> RenderableType:
        return tables.sheet(self._lines, self.answer.facts, self.answer.tables)

    def _repr_html_(self) -> str:
        return tables.facts_html(self._lines, self.answer.facts)

    @property
    def _lines(self) -> list[str]:
        return [*map(in_python, self.proposal.lines if self.proposal else ()), *self.answer.lines]


_INPUT_HELP = (
    "Readings from which to derive the range, bins and unit, the labels, or yes and no: FILE:COLUMN, a list, "
    "an array, or a data frame's column."
)
_KEEP_HELP = "Numbers to keep as readings although they look like sensor errors."
_DECIMAL_HELP = "Decimal separator in the input, . or ,; default: detected."


@dataclass(frozen=True, kw_only=True)
class PlanArguments(PlanRequest):
    """The arguments of plan(): a request, and readings that complete it."""

    input: str | Path | Iterable[Any] | None = field(default=None, metadata={"help": _INPUT_HELP})
    keep_value: Sequence[float] = field(default=(), metadata={"help": _KEEP_HELP})
    decimal: str = field(default="", metadata={"help": _DECIMAL_HELP})


def _from_arguments(parse: Callable[_P, PlanArguments]) -> Callable[_P, FleetPlan]:
    """Return a function that accepts the fields of a request, with their help texts in its docstring."""

    @functools.wraps(parse, assigned=(), updated=())
    def plan(*arguments: _P.args, **keywords: _P.kwargs) -> FleetPlan:
        """Solve for one of devices, epsilon, values and error, given the other three.

        With lifetime, horizon and call instead of epsilon, the plan describes the best way for a board to
        spend its lifetime budget.

        Raises:
            PlanError: If there is no such plan; the message is one line.
        """
        try:
            options = parse(*arguments, **keywords)
            request = PlanRequest(
                **{field.name: getattr(options, field.name) for field in fields(PlanRequest)}
            )
            if options.input is None:
                return FleetPlan(answer(request))
            rules = ReadingRules(tuple(options.keep_value), options.decimal)
            proposal = propose(options.input, request, rules)
            return FleetPlan(answer(proposal.request), proposal)
        except PlanError as e:
            raise PlanError(in_python(str(e)), e.field) from None

    lines = (f"    {field.name}: {in_python(field.metadata['help'])}" for field in fields(PlanArguments))
    plan.__doc__ = "\n".join([inspect.cleandoc(plan.__doc__ or ""), "", "Args:", *lines])
    return plan


plan = _from_arguments(PlanArguments)
"""Plan a fleet: solve for one of devices, epsilon, values and error, given the other three.

The parameters are the fields of `PlanRequest`, below.
"""
