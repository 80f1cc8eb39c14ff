"""The answer of the Plan view: sentences, facts, a curve, a command line and an experiment file; pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...server.epsilon import nats, rounded_up
from ...server.estimate.shuffled import LIMITS
from ...server.mechanisms.about import said_of
from ...server.planning import experiment_file, sentences
from ...server.planning.devices import (
    MOST_DEVICES,
    Plan,
    PlanError,
    Z,
    best_design,
    devices_for,
    half_width,
    solve,
)
from ...server.planning.expected_error import Design, Question, variance
from ...server.planning.experiment_file import Named
from ...server.planning.lifetime import LifetimePlan, plan_lifetime
from ...server.planning.second_epsilon import HistogramEpsilon, histogram, lifetime_histograms
from ...server.planning.words import NOTHING, mechanism, percent
from .question import FieldRefused, PlanQuestion, Setting, asked

_POINTS = 41
_YES_NO = Question("frequency")
_FACTORS = (0.25, 1, 4)
ONCE = (
    "It holds for a histogram that is seen once. Who watches it grow, report by report, learns what a report"
    " tells."
)


@dataclass(frozen=True)
class Window:
    """What the last reports of a life show: a name, expected reports, half-width, and the histogram's ε.

    own: how many of them one board makes at most.
    """

    name: str
    reports: float
    error: float
    epsilon: float
    own: int


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, as the view shows it. seen: what the histogram of one report from each device gives away.

    fixed: devices that a yes or no takes to be known as well, where a range of bins takes more.
    """

    setting: Setting
    asked: PlanQuestion
    plan: Plan
    seen: HistogramEpsilon
    life: LifetimePlan | None
    windows: tuple[Window, ...]
    fixed: int | None

    @property
    def error(self) -> float:
        """Half-width of the 95 % interval, share of devices; of a life, over its longest window."""
        return self.plan.error if self.life is None else self.windows[-1].error

    @property
    def met(self) -> bool:
        """Whether it is as exact as wanted, over one of the windows at least; a step of rounding is none."""
        wanted = self.asked.error
        return wanted is None or self.error <= wanted * (1 + 1e-9)

    @property
    def fixed_limit(self) -> str:
        """What a fixed limit would save, as a sentence; empty where it saves nothing."""
        if self.fixed is None:
            return ""
        return f"Is your limit fixed? Asked as yes or no, the same takes {self.fixed:,} devices."

    @property
    def solved(self) -> float:
        """The fourth, in the unit of its field: devices, nats, values, or % as the sentence has it."""
        plan = self.plan
        values = {"devices": plan.devices, "epsilon": plan.epsilon, "domain": plan.design.domain}
        return values[plan.solved] if plan.solved in values else float(f"{100 * self.error:.3g}")

    @property
    def sentences(self) -> list[str]:
        """What to take, and how exact that is; what an ε means stands beside it."""
        yes_no = self.asked.reading.yes_no
        if self.life is None:
            return sentences.one_report(self.plan, yes_no).split("\n")[:1]
        return sentences.lifetime(self.life, self.asked.error, yes_no).split("\n")[:2]

    @property
    def said(self) -> list[str]:
        """The sentences; of a life after how many devices it takes, where that is the answer."""
        takes = self.life is not None and self.plan.solved == "devices"
        return [*([f"Take {self.plan.devices:,} devices."] if takes else []), *self.sentences]

    @property
    def not_met(self) -> str:
        """Where it is not as exact as wanted: that in one sentence, for the answer and for the file."""
        if self.met or self.asked.error is None:
            return ""
        wanted = percent(self.asked.error)
        return (
            f"This does not reach the {wanted} that you asked for: work out the devices, or allow a larger ε."
        )

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and what is said of them: both ε, and how boards answer."""
        best = self.plan if self.life is None else self.life.best
        epsilon, design = best.design.epsilon, best.design
        if self.life is None:
            histogram = f"ε = {rounded_up(self.seen.epsilon)} (δ = {self.seen.delta:g})"
        else:
            histogram = f"It stands in the table below (δ = {self.seen.delta:g})"
        return [
            ("ε of a report", f"ε = {nats(epsilon)}, against everybody, the broker included."),
            ("ε of the histogram", f"{histogram}, {LIMITS}. {ONCE}"),
            (
                "How boards answer",
                f"{said_of(design.mechanism)} ({mechanism(design)})".strip(),
            ),
        ]

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Devices and half-width in %, from a hundredth to a hundred times the plan's devices."""
        n = self.plan.devices
        return [(float(x), self._percent(x)) for x in np.geomspace(max(2, n / 100), 100 * n, _POINTS)]

    @property
    def steps(self) -> list[tuple[int, str]]:
        """A quarter of the devices, all of them and four times as many, with what is then known."""
        counts = [max(2, round(self.plan.devices * factor)) for factor in _FACTORS]
        return [(n, percent(self._percent(n) / 100)) for n in counts]

    def _percent(self, devices: float) -> float:
        if self.life is None:
            return 100 * half_width(devices, self.plan.design, self.plan.question)
        return 100 * half_width(devices * _each(self.life), self.life.best.design, self.life.question)

    @property
    def lasting(self) -> list[str]:
        """What all that a board sends in its life tells, and what it costs the board."""
        if self.life is None:
            return []
        cost = sentences.cost(self.life)
        return [sentences.privacy(self.life), cost[0].upper() + cost[1:]]

    def file(self, named: Named) -> str:
        """The text of the experiment's file. Raises FileRefused, and FieldRefused where there is no range."""
        reading = self.asked.reading
        if self.setting.form == "number" and (reading.low is None or reading.high is None):
            raise FieldRefused("low", "write the lowest and the highest reading: the file needs both")
        if self.life is None:
            return experiment_file.of_one_report(self.plan, reading, named)
        return experiment_file.of_life(
            self.life, experiment_file.sized(reading, self.plan.design.domain), named
        )

    def command(self, named: Named) -> str:
        """The line for a shell that gives the same plan and writes the same file."""
        setting, plan, question = self.setting, self.plan, self.plan.question
        words: list[str] = ["hushmote", "plan"]
        if self.life is not None or plan.solved != "devices":
            words += ["--devices", str(plan.devices)]
        words += self._spending()
        if setting.form == "yes_no":
            words += ["--yes-no"]
        elif setting.form == "labels":
            words += ["--labels", ",".join(self.asked.reading.labels)]
        else:
            words += (
                [] if self.life is None and plan.solved == "domain" else ["--bins", str(plan.design.domain)]
            )
            reading = self.asked.reading
            if reading.low is not None and reading.high is not None:
                words += ["--low", _plain(reading.low), "--high", _plain(reading.high)]
            words += ["--unit", reading.unit] if reading.unit else []
            words += ["--for", question.kind]
            words += ["--quantile", repr(question.share)] if question.kind == "quantile" else []
        words += ["--error", repr(self.asked.error)] if self.asked.error is not None else []
        file = f"{named.name}.toml"
        words += ["--output", file, "--owner", named.owner]
        words += [] if experiment_file.name_from(Path(file)) == named.name else ["--name", named.name]
        words += ["--purpose", named.purpose] if named.purpose else []
        return shlex.join(words)

    def _spending(self) -> list[str]:
        epsilon = nats(self.plan.design.epsilon)
        if self.life is None:
            return [] if self.plan.solved == "epsilon" else ["--epsilon", epsilon]
        total = ["--lifetime", nats(self.life.budget.epsilon), "--limit", epsilon]
        return [*total, "--horizon", self.setting.horizon, "--call", self.setting.call]


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def answered(setting: Setting, before_each: Callable[[], object] = object) -> PlanAnswer:
    """Work a setting out; up to seconds where many designs are looked at.

    before_each: called before each of them; what it raises ends the work. Raises FieldRefused for what a
    field cannot hold, and PlanError where there is no such plan.
    """
    what = asked(setting)
    domain = what.reading.domain
    plan = solve(
        what.question, devices=what.devices, epsilon=what.epsilon, domain=domain, error=what.error,
        before_each=before_each,
    )  # fmt: skip
    before_each()
    life = None
    if what.life is not None:
        limit = plan.design.epsilon
        life = plan_lifetime(what.question, plan.devices, plan.design.domain, *what.life, limit)
        if what.error is not None and plan.solved == "devices":
            # How a board spends its life does not depend on how many there are.
            needed = _devices(life.best.design, what.question, what.error, _each(life))
            plan, life = replace(plan, devices=needed), replace(life, devices=needed)
        before_each()
    seen = histogram(plan.design, plan.devices)
    answer = PlanAnswer(setting, what, plan, seen, life, () if life is None else _windows(life), None)
    before_each()
    return replace(answer, fixed=_fixed(answer))


def _each(life: LifetimePlan) -> float:
    """Reports that a board makes in the longest window at the end of its life."""
    return life.best.per_device(list(life.windows().values())[-1])


def _devices(design: Design, question: Question, error: float, each: float) -> int:
    """Devices of so many reports each that know a share so well. Raises PlanError above the most."""
    if variance(design, question) * (Z / error) ** 2 > each * MOST_DEVICES:
        raise PlanError(f"±{error:g} takes more than {MOST_DEVICES:,} devices: ask for less, or allow more")
    return devices_for(design, question, error, each)


def _fixed(answer: PlanAnswer) -> int | None:
    """Devices for the same error of a yes or no, in the place of a share of any range; None unless fewer."""
    wanted = answer.asked.error if answer.plan.solved == "devices" else answer.error
    if answer.plan.question.kind != "range" or wanted is None or wanted >= NOTHING:
        return None
    epsilon = answer.plan.design.epsilon
    if answer.asked.life is None:
        needed = _devices(best_design(2, epsilon, _YES_NO), _YES_NO, wanted, 1.0)
    else:
        life = plan_lifetime(_YES_NO, answer.plan.devices, 2, *answer.asked.life, epsilon)
        needed = _devices(life.best.design, _YES_NO, wanted, _each(life))
    return needed if needed < answer.plan.devices else None


def _windows(life: LifetimePlan) -> tuple[Window, ...]:
    best, seen = life.best, lifetime_histograms(life)
    return tuple(
        Window(
            name,
            life.devices * best.per_device(days),
            life.error(best, days),
            seen[name].epsilon,
            seen[name].own,
        )
        for name, days in life.windows().items()
    )
