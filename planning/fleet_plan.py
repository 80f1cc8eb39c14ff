"""hushmote.plan(), which solves for one of devices, ε, values and error, given the other three."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ParamSpec

from rich.console import RenderableType

from hushmote.planning.answer import PlanAnswer, answer
from hushmote.planning.devices import Plan, PlanError
from hushmote.planning.lifetime import LifetimePlan
from hushmote.planning.request import PlanRequest, in_python
from hushmote.planning.second_epsilon import HistogramEpsilon
from hushmote.planning.sentences import mechanism
from hushmote.server.answers import tables
from hushmote.server.answers.tables import Printable

_P = ParamSpec("_P")


@dataclass(frozen=True, repr=False)
class FleetPlan(Printable):
    """A plan for a fleet; printing it gives the output of `hushmote plan`.

    Attributes:
        answer: The plan's sentences, facts, tables and experiment file.
    """

    answer: PlanAnswer

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
        return self.answer.to_dict()

    def __rich__(self) -> RenderableType:
        return tables.sheet(self.answer.lines, self.answer.facts, self.answer.tables)

    def _repr_html_(self) -> str:
        return tables.facts_html(self.answer.lines, self.answer.facts)


def _from_request(request: Callable[_P, PlanRequest]) -> Callable[_P, FleetPlan]:
    """Return a function that accepts the fields of a request, with their help texts in its docstring."""

    @functools.wraps(request, assigned=(), updated=())
    def plan(*arguments: _P.args, **keywords: _P.kwargs) -> FleetPlan:
        """Solve for one of devices, epsilon, values and error, given the other three.

        With lifetime, horizon and call instead of epsilon, the plan describes the best way for a board to
        spend its lifetime budget.

        Raises:
            PlanError: If there is no such plan; the message is one line.
        """
        try:
            return FleetPlan(answer(request(*arguments, **keywords)))
        except PlanError as e:
            raise PlanError(in_python(str(e)), e.field) from None

    lines = (f"    {field.name}: {in_python(field.metadata['help'])}" for field in fields(PlanRequest))
    plan.__doc__ = "\n".join([inspect.cleandoc(plan.__doc__ or ""), "", "Args:", *lines])
    return plan


plan = _from_request(PlanRequest)
"""Plan a fleet: solve for one of devices, epsilon, values and error, given the other three.

The parameters are the fields of `PlanRequest`, below.
"""
