"""A plan's answer, with its sentences, facts, tables, JSON and experiment file; other modules render it."""

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..server.epsilon import MICRO
from ..server.estimate.shuffled import LIMITS
from ..server.plain import plain
from ..server.words.epsilon import rounded_up
from ..server.words.numbers import (
    MAX_HALF_WIDTH,
    counted,
    format_expected_count,
    is_too_wide,
    length,
    with_unit,
)
from ..server.words.text_table import TextTable
from . import json_values
from .devices import MAX_RANGE_VALUES, Plan, PlanError, half_width, missing_half_width, solve
from .expected_error import Question
from .experiment_file import ExperimentInfo, file_text, nats
from .lifetime import LifetimePlan, plan_lifetime
from .request import (
    YES_NO,
    PlanRequest,
    Reading,
    epsilon_of_report,
    error_per_unit,
    histogram_delta,
    lifetime_of,
    question_of,
    reading_of,
    wanted_error,
)
from .second_epsilon import HistogramEpsilon, histogram, lifetime_histograms
from .sentences import (
    cost,
    describe_population,
    describe_question,
    format_half_width,
    mechanism,
    not_met,
    sentences,
    unit_of,
)

_LIFETIME_FIELDS = ("lifetime", "delta", "horizon", "call", "limit")
_ANSWER = "   <- the answer"
_UNIT = "half_width_95_in_unit"
_WINDOW_WORDS = {"a day": "the last day", "a week": "the last week", "30 days": "the last 30 days"}
_WINDOW_WORDS |= {"all of it": "all reports"}
_OTHER_QUESTIONS = {
    "a value that hardly any device holds": Question("frequency", 0.0),
    "any one value, at its worst share": Question("frequency"),
    "any range": Question("range"),
    "the median": Question("quantile", 0.5),
}


@dataclass(frozen=True)
class LastWindow:
    """The last window of a lifetime.

    Attributes:
        name: The name of the window's length.
        reports: The expected number of reports in it.
        error: The half-width over it.
        histogram: The ε of its histogram.
    """

    name: str
    reports: float
    error: float
    histogram: HistogramEpsilon


@dataclass(frozen=True)
class PlanAnswer:
    """The results of a request.

    Attributes:
        request: The request.
        reading: The possible readings.
        plan: The plan for one report per device, or for a device's lifetime budget.
        target_error: The requested half-width, as in Plan.error, or None.
        unit: The fraction of the range that one unit covers or, for a quantile, the share of devices; None
            if unknown.
    """

    request: PlanRequest
    reading: Reading
    plan: Plan | LifetimePlan
    target_error: float | None
    unit: float | None

    @property
    def error(self) -> float:
        """The half-width of the 95% interval; for a lifetime, over its longest last window."""
        if isinstance(self.plan, Plan):
            return self.plan.error
        return [*self.plan.errors.values()][-1]

    @property
    def solved(self) -> str:
        """The solved quantity: devices, epsilon, domain or error; for a lifetime, devices or error."""
        if isinstance(self.plan, Plan):
            return self.plan.solved
        return "devices" if self.request.devices is None else "error"

    def error_with(self, devices: float) -> float:
        """Return the half-width with another number of devices."""
        return self.error * math.sqrt(self.plan.devices / devices)

    @cached_property
    def sentences(self) -> tuple[str, str, str]:
        """The plan's advice, its precision and its privacy, one sentence each."""
        devices_solved = self.solved == "devices"
        return sentences(self.plan, self.target_error, self.reading.yes_no, devices_solved)

    @property
    def not_met(self) -> str:
        """A sentence if a lifetime plan is less precise than requested, otherwise ""."""
        return "" if isinstance(self.plan, Plan) else not_met(self.plan, self.target_error)

    @property
    def cost(self) -> str:
        """A sentence on what a device sends over its lifetime, or "" for one report."""
        return "" if isinstance(self.plan, Plan) else cost(self.plan)

    @cached_property
    def fixed_limit(self) -> str:
        """A sentence on the saving from a fixed limit if any range may be asked for, otherwise ""."""
        target = self.target_error if self.solved == "devices" else self.error
        if self.plan.question.kind != "range" or target is None or is_too_wide(target):
            return ""
        if isinstance(self.plan, Plan):
            other = PlanRequest(
                values=YES_NO, epsilon=self.plan.epsilon, error=target, missing=self.request.missing
            )
        else:
            lifetime_fields = {name: getattr(self.request, name) for name in _LIFETIME_FIELDS}
            other = PlanRequest(values=YES_NO, error=target, missing=self.request.missing, **lifetime_fields)
        needed = answer(other).plan.devices
        if needed >= self.plan.devices:
            return ""
        return f"Is your limit fixed? Asked as a yes-or-no question, it needs only {needed:,} devices."

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentences, each on its own line."""
        advice, accuracy, privacy = self.sentences
        return (f"{advice} {accuracy}", privacy) if isinstance(self.plan, Plan) else self.sentences

    @cached_property
    def histograms(self) -> Mapping[str, HistogramEpsilon]:
        """The ε of histograms, for each window of a lifetime and for all reports."""
        if isinstance(self.plan, Plan):
            return {
                "all of it": histogram(self.plan.design, self.plan.devices, 1, histogram_delta(self.request))
            }
        return lifetime_histograms(self.plan)

    @cached_property
    def windows(self) -> tuple[LastWindow, ...]:
        """The last windows of a lifetime, or () if each device sends one report."""
        plan = self.plan
        if isinstance(plan, Plan):
            return ()
        return tuple(
            LastWindow(
                name,
                plan.devices * plan.best.per_device(days),
                plan.error(plan.best, days),
                self.histograms[name],
            )
            for name, days in plan.windows().items()
        )

    @cached_property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Short facts about the plan, each a name and a text; a long text continues under ""."""
        question, design = self.plan.question, self.plan.design
        about = (
            ("asked", f"{describe_question(question)} ({describe_population(question, design)})"),
            *self._missing,
            ("mechanism", mechanism(design)),
        )
        plan = self.plan
        return (
            (*_single_report_facts(self, plan), *about)
            if isinstance(plan, Plan)
            else _lifetime_facts(self, plan, about)
        )

    @property
    def _missing(self) -> tuple[tuple[str, str], ...]:
        """A fact about devices without a reading, if a missing reading has an index."""
        plan = self.plan
        if plan.design.missing is None:
            return ()
        reports = plan.devices
        if not isinstance(plan, Plan):
            reports = plan.devices * plan.best.used * plan.best.cap
        half_width = format_half_width(missing_half_width(plan.design, reports), Question("frequency"))
        share = f"{100 * plan.design.missing:.3g}% of the devices, known to {half_width}"
        return (("no reading", f"{share}; errors apply to the others"),)

    @cached_property
    def tables(self) -> tuple[TextTable, ...]:
        """Tables of other answers from the same plan, and of the alternatives."""
        if isinstance(self.plan, Plan):
            return (_other_answers_table(self.plan, self.reading),)
        return _spendings_table(self.plan), _accuracy_table(self, self.plan)

    def in_unit(self, error: float) -> dict[str, float]:
        """Return the half-width of a quantile or a mean in the reading's unit, and half of a bin."""
        if self.unit is None:
            return {}
        assert self.reading.span is not None
        half_bin = self.reading.span / self.plan.design.domain / 2
        return {_UNIT: error / self.unit, "half_bin_in_unit": half_bin}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plan, lines = self.plan, {"answer": list(self.lines)}
        if isinstance(plan, Plan):
            target = {"wanted": self.request.histogram_epsilon}
            histogram_values = {"histogram": plain(self.histograms["all of it"]) | target}
            return json_values.plan_values(plan) | self.in_unit(plan.error) | histogram_values | lines
        windows = [
            {"window": name, **plain(histogram_values)} for name, histogram_values in self.histograms.items()
        ]
        values = json_values.lifetime_values(plan) | {"histograms": windows}
        if (error := self.target_error) is not None:
            needed = {name: plan.devices_for(days, error) for name, days in plan.windows().items()}
            values["devices_for_error"] = needed
        return values | lines

    def command(self, name: str) -> str:
        """Return the shell command that writes the same plan to NAME.toml, without owner and purpose."""
        return shlex.join(["hushmote", "plan", *self.request.words(), "--output", f"./{name}.toml"])

    def file(self, info: ExperimentInfo) -> str:
        """Return the text of the experiment file.

        Raises:
            PlanError: If the plan cannot be written as an experiment file.
        """
        return file_text(self.plan, self.reading, info)


def answer(request: PlanRequest, before_each: Callable[[], object] = object) -> PlanAnswer:
    """Return the answer to a request; this can take seconds if there are many designs.

    Args:
        request: The request.
        before_each: Called before each design; an exception from it stops the work.

    Raises:
        PlanError: If the request is contradictory or cannot be fulfilled; it names the field to change, if
            there is one.
    """
    reading = reading_of(request)
    question = question_of(request, reading)
    unit = error_per_unit(reading, question)
    error = wanted_error(request, question, unit)
    if request.lifetime is None:
        epsilon = epsilon_of_report(request, question, reading.domain)
        parts = {"devices": request.devices, "epsilon": epsilon, "domain": reading.domain, "error": error}
        return PlanAnswer(request, reading, solve(question, **parts, before_each=before_each), error, unit)
    spent = lifetime_of(request)
    if reading.domain is None or (request.devices is None and error is None):
        raise PlanError("--lifetime requires --values, and --devices or --error")
    devices = 2 if request.devices is None else request.devices
    lifetime = plan_lifetime(question, devices, reading.domain, *spent)
    if request.devices is None and error is not None:
        lifetime = lifetime.with_enough_devices(error)
    return PlanAnswer(request, reading, lifetime, error, unit)


def _single_report_facts(a: PlanAnswer, plan: Plan) -> list[tuple[str, str]]:
    histogram, target = a.histograms["all of it"], a.request.histogram_epsilon
    largest = "" if target is None else f", the largest that keeps the histogram at {target:g};"
    histogram_words = f"{rounded_up(histogram.epsilon)} of the histogram (δ = {histogram.delta:g}), {LIMITS}"
    rows = {
        "devices": ("devices", f"{plan.devices:,}", "" if plan.solved == "devices" else ", one report each"),
        "epsilon": ("ε", f"{plan.epsilon:g}", f" of a report{largest or ','} against everyone"),
        "histogram": ("", histogram_words, ""),
        "domain": ("values", f"{plan.design.domain:,}", ""),
        "error": ("error", with_unit(f"±{100 * plan.error:.3f}", unit_of(plan.question)), ""),
    }
    facts = [
        (name, f"{text}{_ANSWER if key == plan.solved else ''}{more}")
        for key, (name, text, more) in rows.items()
    ]
    facts.append(("", f"half-width of the 95% interval; standard error {100 * plan.stderr:.3f}"))
    widths = a.in_unit(plan.error)
    if widths:
        condition = "" if plan.question.kind == "mean" else " at the stated density of devices"
        text = f"±{widths[_UNIT]:.3g} {a.reading.unit}".rstrip()
        facts.append(("in unit", f"{text}{condition}; half a bin is {widths['half_bin_in_unit']:.3g}"))
    return facts


def _cell(error: float) -> str:
    """Return a half-width for a table whose heading gives the unit, or a dash if it is too wide to use."""
    return "—" if is_too_wide(error) else f"±{100 * error:.3g}"


def _other_answers_table(plan: Plan, reading: Reading) -> TextTable:
    warning = "An interval this wide is useless; use more devices, a larger ε or fewer values."
    rows = [
        (text, _cell(half_width(plan.devices, plan.design, question)))
        for text, question in _OTHER_QUESTIONS.items()
        if 2 < plan.design.domain <= MAX_RANGE_VALUES
        and question != plan.question
        and _fits(question, reading)
        and plan.design.answers(question)
    ]
    notes = (warning,) if is_too_wide(plan.error) else ()
    return TextTable(
        "other answers from the same reports", ("asked", "error, points"), tuple(rows), notes=notes
    )


def _fits(question: Question, reading: Reading) -> bool:
    """Return whether a question makes sense for a reading, because labels have no order."""
    return question.kind == "frequency" or not reading.labels


def _lifetime_facts(
    a: PlanAnswer, lifetime: LifetimePlan, about: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    best, rhythm, budget = lifetime.best, lifetime.rhythm, lifetime.budget
    total = f"ε = {budget.epsilon / MICRO:g}" + (f", δ = {budget.delta:g}" if budget.delta else "")
    calls = f"{length(rhythm.horizon_s)}, a call every {length(rhythm.call_s).removeprefix('1 ')}"
    frequency = "every call" if best.every == 1 else f"one call in {best.every:,}"
    composition = "" if best.composition == "basic" else " (optimal composition)"
    note = _ANSWER if a.solved == "devices" else ""
    policy = f'"sum": {best.cap * best.epsilon:_}'
    if best.composition == "optimal":
        policy += f' or "squares": {best.cap * best.epsilon**2:_}'
    return (
        ("devices", f"{lifetime.devices:,}{note}, {best.design.domain:,} values"),
        ("budget", f"{total} per lifetime; {calls}"),
        *about,
        ("best", f"{counted(best.cap)} of ε = {nats(best.epsilon)}{composition}; {frequency} makes one"),
        ("policy", f'must allow rule "{best.rule}", "epsilon": {best.epsilon:_}, {policy}'),
    )


def _spendings_table(lifetime: LifetimePlan) -> TextTable:
    """Return a table of the compared ways to spend the budget, and notes on those that no device accepts."""
    windows = lifetime.windows()

    def count(cap: int, composition: str) -> str:
        return f"{cap:,}{' optimal' if composition == 'optimal' else ''}"

    rows = tuple(
        (
            f"{'>' if s is lifetime.best else ' '} {count(s.cap, s.composition)}",
            f"{s.epsilon / MICRO:.3g}",
            f"{s.every:,}",
            f"{s.used:.0%}",
            *(_cell(lifetime.error(s, days)) for days in windows.values()),
        )
        for s in lifetime.spendings
    )
    refused = (
        f"  {count(r.cap, r.composition)}: ε would be {r.epsilon / MICRO:.2g}, and no device accepts an "
        "ε below 0.001"
        for r in lifetime.refused
    )
    optimal = "; optimal: with optimal composition at δ" if lifetime.budget.delta else ""
    return TextTable(
        f"ways to spend the budget, with their errors at the end, {unit_of(lifetime.question)}",
        ("reports for life", "ε each", "every", "used", *windows),
        rows,
        notes=(*refused, f"  used: share of a device's budget used at the end{optimal}"),
    )


def _accuracy_table(a: PlanAnswer, lifetime: LifetimePlan) -> TextTable:
    """Return a table of the best spending's accuracy, first and last, with a note on its histograms' ε."""
    best, windows, target = lifetime.best, lifetime.windows(), a.target_error
    questions = [q for q in lifetime.questions().values() if q == lifetime.question or _fits(q, a.reading)]
    rows: list[tuple[str, ...]] = []
    for name, days in windows.items():
        for first in (True, False):
            cells = [_cell(lifetime.error(best, days, q, first=first)) for q in questions]
            needed = "" if target is None or first else f"{lifetime.devices_for(days, target):,}"
            place = f"{name}, {'first' if first else 'last'}"
            reports = format_expected_count(lifetime.devices * best.per_device(days, first))
            rows.append((place, reports, *cells, *([] if target is None else [needed])))
    errors = lifetime.errors
    notes: list[str] = []
    if a.unit is not None:
        half_widths = ", ".join(f"{name} ±{a.in_unit(error)[_UNIT]:.3g}" for name, error in errors.items())
        notes.append(
            f"  {describe_question(lifetime.question)} in {a.reading.unit or 'its unit'}, last: {half_widths}"
        )
    if is_too_wide(min(errors.values())):
        warning = f"Errors above ±{100 * MAX_HALF_WIDTH:g} points are useless"
        notes.append(f"{warning}; use more devices, a larger budget or fewer values.")
    epsilons = ", ".join(
        f"{rounded_up(histogram.epsilon)} of {_WINDOW_WORDS[name]}"
        for name, histogram in a.histograms.items()
    )
    notes.append(f"  ε of the histogram (δ = {a.histograms['all of it'].delta:g}): {epsilons}; {LIMITS}")
    heads = ["window", "reports", *map(_heading, questions)]
    heads += [] if target is None else [f"devices for {_cell(target)}"]
    title = "accuracy of the best way, first and last, points"
    return TextTable(title, tuple(heads), tuple(rows), notes=tuple(notes))


def _heading(question: Question) -> str:
    if question.kind == "frequency":
        return "a value" if question.share is None else f"a value at {question.share:g}"
    if question.kind == "quantile":
        return describe_question(question)
    if question.kind == "mean":
        return "mean, % of range"
    if question.width or question.ranges:
        return f"{question.width} bins" if question.width else "the ranges"
    return "any range"
