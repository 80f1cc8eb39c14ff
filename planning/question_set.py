"""Plans a set of questions that share a device's lifetime budget: the error of each in a quarter of a year.

A device makes the same few reports, however many questions it is asked: each question gets a share of them.
At each call, every question makes a report with probability 1/every until the budget allows no other report.
The number of questions therefore limits what a fleet can show about its health.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from ..server.arrays import Floats
from ..server.budgets.policy import Policy, policy_for
from ..server.epsilon import MICRO, nats
from ..server.experiments.asks import asks_of
from ..server.experiments.definition import Definition
from ..server.experiments.planned_case import PlannedCase
from ..server.experiments.units import parse_range
from ..server.mechanisms import mechanism_of
from ..server.mechanisms.choice import Choice
from ..server.plain import plain
from ..server.wire.experiments import value_count
from ..server.words.epsilon import ALL_SEEN, ITS_REPORT, belief
from ..server.words.numbers import counted, is_too_wide, length
from ..server.words.release import listed
from ..server.words.text_table import TextTable
from .devices import PlanError, check_sizes, half_width
from .expected_error import Design, Question
from .lifetime import DAY_S, MAX_EVERY, LifetimeBudget, Rhythm, parse_duration
from .request import PlanRequest, finite
from .sentences import format_half_width

QUARTER_DAYS = 365 / 4
USUAL_BUDGET = LifetimeBudget(8 * MICRO)
"""The budget of the policies in device/main.py and the documents: Σε 8 in a device's lifetime."""
USUAL_RHYTHM = Rhythm(3600, 5 * 365 * DAY_S)
"""The rhythm of the boards' application, device/main.py, for five years."""
_SIZES = (1, 3, 12)
_MAX_STEPS = 64  # the steps into which a budget is divided; an ε is rounded up to whole steps
_CANDIDATES = 200
_PAIR = "a pair or a text has no planned error: plan it alone, or ask for its parts"


@dataclass(frozen=True)
class SetQuestion:
    """A question of a set.

    Attributes:
        name: The experiment's name.
        ask: The statistic, as in the experiment's file.
        question: The statistic whose error is planned.
        design: The mechanism that the experiment's file chooses.
    """

    name: str
    ask: str
    question: Question
    design: Design

    @property
    def epsilon(self) -> int:
        """ε of a report, in micro-nats."""
        return self.design.epsilon


def set_question(definition: Definition) -> SetQuestion:
    """Return the first of an experiment's questions, in the population of its [planned] table if it has one.

    Raises:
        PlanError: If the experiment's error cannot be planned.
    """
    if definition.type in ("pair", "text"):
        raise PlanError(f"{definition.name}: {_PAIR}")
    experiment, planned = definition.experiment(), definition.planned
    first = question_about(experiment, definition.asks, planned)
    if planned is None:
        return first
    share, spread = (None if x is None else float(x) for x in (planned.share, planned.spread))
    question = Question(planned.of, share, planned.width, planned.ranges, spread, first.question.missing)
    check_sizes(question, None, first.design.domain)
    return replace(first, question=question)


def question_about(experiment: Experiment, asks: Sequence[str], planned: PlannedCase | None) -> SetQuestion:
    """Return the first of a published experiment's questions, at the planned share.

    Args:
        experiment: The experiment, neither a pair nor a text.
        asks: The questions in its file.
        planned: The planned case, whose shares are used; None for the worst case.
    """
    ask = asks_of(experiment, asks)[0]
    values = value_count(experiment)
    share = None if planned is None or planned.share is None else float(planned.share)
    missing = None
    if values < experiment.domain:
        missing = 0.0 if planned is None or planned.missing is None else float(planned.missing)
    if ask.kind in ("quantile", "mean"):
        question = Question(ask.kind, ask.level if ask.kind == "quantile" else None, missing=missing)
    elif ask.kind == "share" and experiment.type != "bool":
        indices = parse_range(experiment, ask.text)
        question = Question("range", share, ranges=((indices.low, indices.high),), missing=missing)
    else:
        question = Question("frequency", share, missing=missing)
    check_sizes(question, None, values)
    fields = mechanism_of(experiment).fields()
    choice = Choice(fields.pop("mechanism"), tuple((k, _frozen(v)) for k, v in fields.items()), 0.0)
    return SetQuestion(
        experiment.name, ask.text, question, Design(values, experiment.epsilon, choice, missing)
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class SharedBudget:
    """The reports that a device makes for a set of questions, all with the same 1/every.

    Attributes:
        epsilons: ε of each question's reports, in micro-nats.
        budget: The device's budget for all of them.
        rhythm: How often a device calls report() for each question, and for how long.
    """

    epsilons: tuple[int, ...]
    budget: LifetimeBudget
    rhythm: Rhythm

    @property
    def quarters(self) -> int:
        """The number of whole quarters of a year within the horizon, at least 1."""
        return max(1, round(self.rhythm.days / QUARTER_DAYS))

    @cached_property
    def every(self) -> int:
        """The `every` with which the last quarter has the most reports, to three digits."""
        draws = self.rhythm.calls * len(self.epsilons)
        reports = max(1, self.budget.epsilon // min(self.epsilons))
        low = max(1.0, draws / (reports + 10 * math.sqrt(reports) + 10))
        high = min(2.0 * draws, MAX_EVERY)
        candidates = np.geomspace(min(low, high), high, _CANDIDATES)
        best = max(candidates, key=lambda every: self._reports(every)[-1].sum())
        return min(MAX_EVERY, int(float(f"{best:.3g}"))) if best >= 2 else 1

    @cached_property
    def reports(self) -> Floats:
        """The expected number of a device's reports for each question, shape (quarters, questions)."""
        return self._reports(self.every, self.quarters)

    @cached_property
    def used(self) -> float:
        """The expected share of the budget that is used at the end."""
        return float(self.reports.sum(axis=0) @ np.array(self.epsilons)) / self.budget.epsilon

    @property
    def reports_in_life(self) -> int:
        """The largest number of reports that the budget allows, at the smallest ε."""
        return self.budget.epsilon // min(self.epsilons)

    def _reports(self, every: float, quarters: int = 1) -> Floats:
        """Return the reports of each question in the last quarters, oldest first.

        The state of a device is the part of its budget that it has spent, in steps; each call moves it.
        """
        step = max(math.gcd(*self.epsilons, self.budget.epsilon), -(-self.budget.epsilon // _MAX_STEPS))
        total, costs = self.budget.epsilon // step, [-(-epsilon // step) for epsilon in self.epsilons]
        chance, states = 1 / every, np.arange(total + 1)
        move = np.eye(total + 1)
        for cost in costs:
            once = np.eye(total + 1)
            allowed = states[states + cost <= total]
            once[allowed, allowed] -= chance
            once[allowed, allowed + cost] += chance
            move = move @ once
        calls = self.rhythm.calls
        ends = [round(calls * (self.quarters - n) / self.quarters) for n in range(quarters, -1, -1)]
        state = np.linalg.matrix_power(move, ends[0])[0]
        result = []
        for begin, end in pairwise(ends):
            visits, state = _visits(move, state, end - begin)
            result.append([chance * visits[: total - cost + 1].sum() for cost in costs])
        return np.array(result)


def _visits(move: Floats, state: Floats, calls: int) -> tuple[Floats, Floats]:
    """Return the expected number of calls in each state, and the chances of the states after these calls."""
    n = len(state)
    both = np.block([[move, np.eye(n)], [np.zeros((n, n)), np.eye(n)]])
    after = state @ np.linalg.matrix_power(both, calls)[:n]
    return after[n:], after[:n]


@lru_cache(maxsize=256)
def shared_budget(epsilons: tuple[int, ...], budget: LifetimeBudget, rhythm: Rhythm) -> SharedBudget:
    """Return the reports of a set of questions, computed once for each set.

    Raises:
        PlanError: If the budget does not allow a report of one of the questions, or the horizon is too short.
    """
    if not rhythm.calls:
        raise PlanError(
            "the horizon contains no call; use a longer horizon, or call report() more frequently"
        )
    if rhythm.days < QUARTER_DAYS - 2:
        raise PlanError(
            f"a set is planned by quarters of a year: the horizon must be at least 90d, not "
            f"{length(rhythm.horizon_s)}",
            "horizon",
        )
    if max(epsilons) > budget.epsilon:
        raise PlanError(
            f"a report of ε = {nats(max(epsilons))} does not fit into a lifetime budget of "
            f"{nats(budget.epsilon)}: raise the budget, or lower the question's epsilon",
            "lifetime",
        )
    return SharedBudget(epsilons, budget, rhythm)


@dataclass(frozen=True)
class SetPlan:
    """A set of questions that a fleet's devices answer with one budget.

    Attributes:
        questions: The questions.
        devices: The number of devices.
        budget: A device's budget for all of them.
        rhythm: How often a device calls report() for each question, and for how long.
    """

    questions: tuple[SetQuestion, ...]
    devices: int
    budget: LifetimeBudget = USUAL_BUDGET
    rhythm: Rhythm = USUAL_RHYTHM

    def __post_init__(self) -> None:
        check_sizes(Question("frequency"), self.devices, None)
        names = [q.name for q in self.questions]
        for name in names:
            if names.count(name) > 1:
                raise PlanError(f"{name} is listed twice: each question of a set needs its own name")

    @cached_property
    def shared(self) -> SharedBudget:
        """How the questions share the budget."""
        return shared_budget(tuple(q.epsilon for q in self.questions), self.budget, self.rhythm)

    @property
    def every(self) -> int:
        """The `every` of each question."""
        return self.shared.every

    def error(self, question: SetQuestion, first: bool = False) -> float:
        """Return a question's half-width of the 95% interval in the last (or first) quarter."""
        reports = self.shared.reports[0 if first else -1][self.questions.index(question)]
        return half_width(self.devices * float(reports), question.design, question.question)

    def even_error(self, question: SetQuestion) -> float:
        """Return the half-width in a quarter if devices could spread all of their budget evenly."""
        total = sum(q.epsilon for q in self.questions)
        reports = self.budget.epsilon / total / self.shared.quarters
        return half_width(self.devices * reports, question.design, question.question)

    def all_reports(self, question: SetQuestion) -> float:
        """Return a question's half-width from all reports of the horizon together."""
        reports = float(self.shared.reports[:, self.questions.index(question)].sum())
        return half_width(self.devices * reports, question.design, question.question)

    def of_size(self, question: SetQuestion, size: int) -> "SetPlan":
        """Return the plan of a question and others with the same ε, `size` in all."""
        others = tuple(replace(question, name=str(n)) for n in range(1, size))
        return replace(self, questions=(question, *others))

    def with_devices(self, devices: int) -> "SetPlan":
        """Return the same plan for another number of devices."""
        return replace(self, devices=devices)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of sets to compare: one question, this set, and some others."""
        return tuple(sorted({*_SIZES, len(self.questions)}))

    @property
    def policy(self) -> Policy:
        """The smallest policy that pays for this set."""
        names = [q.name for q in self.questions]
        return policy_for(self.budget.epsilon / MICRO, self.budget.delta, names, self.max_epsilon, ("sum",))

    @property
    def max_epsilon(self) -> int:
        """The largest ε of a question's report, in micro-nats."""
        return max(self.shared.epsilons)

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan in sentences: what devices make, what a quarter shows, and the privacy of it."""
        count = len(self.questions)
        subject = f"{counted(count, 'question')} share" if count > 1 else "The question has"
        reports, total = counted(self.shared.reports_in_life), nats(self.budget.epsilon)
        advice = (
            f"{subject} a device's budget of ε = {total}: at most {reports} in its lifetime. "
            f"For each question, one call in {self.every:,} makes one."
        )
        quarter = f"With {self.devices:,} devices, the last quarter of {length(self.rhythm.horizon_s)} shows"
        useful = [q for q in self.questions if not is_too_wide(self.error(q))]
        errors = [f"{q.name} to {format_half_width(self.error(q), q.question)}" for q in useful]
        accuracy = f"{quarter} {listed(errors)}." if errors else f"{quarter} nothing."
        if useless := [q.name for q in self.questions if q not in useful]:
            accuracy += f" A quarter is too short for {listed(useless)}: use more devices or fewer questions."
        once = self.shared.reports_in_life == 1
        return advice, accuracy, belief(self.budget.epsilon / MICRO, reports=ITS_REPORT if once else ALL_SEEN)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Short facts about the plan, each a name and a text."""
        policy, rhythm = self.policy, self.rhythm
        names = ", ".join(f'"{name}"' for name in policy.experiments)
        return (
            ("devices", f"{self.devices:,}"),
            (
                "budget",
                f"ε = {nats(self.budget.epsilon)} per lifetime; {length(rhythm.horizon_s)}, a call "
                f"every {length(rhythm.call_s).removeprefix('1 ')}; {self.shared.used:.0%} used at the end",
            ),
            (
                "policy",
                f'"sum": {policy.sum:_}, "epsilon": {policy.epsilon:_}, "rules": ("sum",), '
                f'"experiments": ({names})',
            ),
        )

    @cached_property
    def tables(self) -> tuple[TextTable, ...]:
        """A table of the questions' errors, alone and in sets of several sizes."""
        sizes = self.sizes
        rows = tuple(
            (q.name, q.ask, *(format_error(self.of_size(q, n).error(q)) for n in sizes))
            for q in self.questions
        )
        example = self.questions[0]
        first, even = (format_error(e) for e in (self.error(example, first=True), self.even_error(example)))
        note = (
            f"  the first quarter is more precise, {example.name} {first}: later, some devices have used "
            f"their budget. Spent evenly to the last report, it would be {even}"
        )
        heads = ("question", "asks", *("alone" if n == 1 else f"of {n}" for n in sizes))
        title = "what the last quarter shows if the budget is shared, ± points"
        return (TextTable(title, heads, rows, (0, 1), (note,)),)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "devices": self.devices,
            "lifetime": self.budget.epsilon / MICRO,
            "reports_in_life": self.shared.reports_in_life,
            "quarters": self.shared.quarters,
            "every": self.every,
            "used": self.shared.used,
            "policy": plain(self.policy),
            "questions": [self._question_values(q) for q in self.questions],
            "answer": list(self.lines),
        }

    def _question_values(self, q: SetQuestion) -> dict[str, Any]:
        return {
            "name": q.name,
            "asks": q.ask,
            "epsilon": q.epsilon / MICRO,
            "reports_in_quarters": [float(n) for n in self.shared.reports[:, self.questions.index(q)]],
            "first_quarter": self.error(q, first=True),
            "last_quarter": self.error(q),
            "spent_evenly": self.even_error(q),
            "all_reports": self.all_reports(q),
            "by_size": {str(n): self.of_size(q, n).error(q) for n in self.sizes},
        }


def format_error(error: float) -> str:
    """Return a half-width in points, or a dash if it is too wide to use."""
    return "—" if is_too_wide(error) else f"{100 * error:.3g}"


def plan_set(questions: Sequence[SetQuestion], request: PlanRequest) -> SetPlan:
    """Return the plan of a set for a request's devices, lifetime budget and rhythm.

    Args:
        questions: The questions.
        request: The request; without them, its lifetime is 8, its horizon 5y and its call 1h.

    Raises:
        PlanError: If the request has no devices, or options that a set does not use.
    """
    used = {"devices", "lifetime", "horizon", "call"}
    for name in (f.name for f in fields(PlanRequest) if f.name not in used):
        if getattr(request, name) not in (None, ""):
            raise PlanError(
                f"a set takes its readings from its questions: omit --{name.replace('_', '-')}", name
            )
    if request.devices is None:
        raise PlanError("a set of questions needs --devices, such as --devices 20000", "devices")
    budget = USUAL_BUDGET
    if request.lifetime is not None:
        budget = LifetimeBudget(round(finite("lifetime", request.lifetime) * MICRO))
    call_s, horizon_s = USUAL_RHYTHM.call_s, USUAL_RHYTHM.horizon_s
    rhythm = Rhythm(
        call_s if request.call is None else parse_duration(request.call, "call"),
        horizon_s if request.horizon is None else parse_duration(request.horizon, "horizon"),
    )
    return SetPlan(tuple(questions), request.devices, budget, rhythm)
