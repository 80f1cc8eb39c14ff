"""The answer of the Plan view: sentences, facts, a curve, a command line and an experiment file; pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...server.epsilon import nats, rounded_up
from ...server.estimate.shuffled import LIMITS
from ...server.planning import experiment_file, sentences
from ...server.planning.devices import Plan, half_width, solve
from ...server.planning.experiment_file import Named
from ...server.planning.lifetime import LifetimePlan, plan_lifetime
from ...server.planning.second_epsilon import HistogramEpsilon, histogram, lifetime_histograms
from ...server.planning.words import mechanism, percent
from .question import FieldRefused, PlanQuestion, Setting, asked

_POINTS = 41
_FACTORS = (0.25, 1, 4)
_MECHANISMS = {
    "rr": "Each board tells the truth somewhat more often than the opposite.",
    "grr": "Each board names its true value somewhat more often than any other one.",
    "olh": "Each board sorts the values into a few groups at random, and names the group of its own; now and"
    " then a wrong one.",
    "hh": "Each board answers about one part of a tree: in which half the reading lies, or in which quarter,"
    " and so on; now and then it names a wrong one.",
}
ONCE = (
    "It holds for a histogram that is seen once. Who watches it grow, report by report, learns what a report"
    " tells."
)


@dataclass(frozen=True)
class Window:
    """What the last reports of a life show: a name, expected reports, half-width, and the histogram's ε."""

    name: str
    reports: float
    error: float
    epsilon: float


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, as the view shows it. seen: what the histogram of one report from each device gives away."""

    setting: Setting
    asked: PlanQuestion
    plan: Plan
    seen: HistogramEpsilon
    life: LifetimePlan | None
    windows: tuple[Window, ...]

    @property
    def solved(self) -> float:
        """The fourth, in the unit of its field: devices, nats, values, or % as the sentence has it."""
        plan = self.plan
        values = {"devices": plan.devices, "epsilon": plan.epsilon, "domain": plan.design.domain}
        return values[plan.solved] if plan.solved in values else float(f"{100 * plan.error:.3g}")

    @property
    def sentences(self) -> list[str]:
        """What to take, and how exact that is; what an ε means stands beside it."""
        if self.life is None:
            return sentences.one_report(self.plan).split("\n")[:1]
        return sentences.lifetime(self.life, self.asked.error).split("\n")[:2]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and what is said of them: both ε, and how boards answer."""
        best = self.plan if self.life is None else self.life.best
        epsilon, choice = best.design.epsilon, best.design.choice
        if self.life is None:
            histogram = f"ε = {rounded_up(self.seen.epsilon)} (δ = {self.seen.delta:g})"
        else:
            histogram = f"It stands in the table below (δ = {self.seen.delta:g})"
        return [
            ("ε of a report", f"ε = {nats(epsilon)}, against everybody, the broker included."),
            ("ε of the histogram", f"{histogram}, {LIMITS}. {ONCE}"),
            ("How boards answer", f"{_MECHANISMS.get(choice.mechanism, '')} ({mechanism(choice)})".strip()),
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
        return 100 * half_width(devices, self.plan.design, self.plan.question)

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
    seen = histogram(plan.design, plan.devices)
    if what.life is None:
        return PlanAnswer(setting, what, plan, seen, None, ())
    before_each()
    life = plan_lifetime(what.question, plan.devices, plan.design.domain, *what.life, plan.design.epsilon)
    return PlanAnswer(setting, what, plan, seen, life, _windows(life))


def _windows(life: LifetimePlan) -> tuple[Window, ...]:
    best, seen = life.best, lifetime_histograms(life)
    return tuple(
        Window(name, life.devices * best.per_device(days), life.error(best, days), seen[name].epsilon)
        for name, days in life.windows().items()
    )
