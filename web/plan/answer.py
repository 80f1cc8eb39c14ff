"""The answer of the Plan view: a plan's, a curve of more devices, and the command's line; pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...server.epsilon import nats
from ...server.estimate.shuffled import LIMITS
from ...server.mechanisms.about import said_of
from ...server.planning.answer import PlanAnswer, answer
from ...server.planning.devices import MOST_DEVICES, Plan, PlanError, Z, best_design, devices_for, half_width
from ...server.planning.expected_error import Design, Question, variance
from ...server.planning.experiment_file import Named
from ...server.planning.lifetime import LifetimePlan, plan_lifetime
from ...server.planning.sentences import cost, mechanism, short
from ...server.words.epsilon import rounded_up
from ...server.words.numbers import NOTHING, percent
from .question import Setting, wished

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
class Worked:
    """A plan, as the view shows it.

    made      the plan: one report of each device, or a life
    fourth    the plan of one report each that worked out the fourth; a life may take another number
    fixed     devices that a yes or no takes to be known as well, where a range of bins takes more
    """

    setting: Setting
    made: PlanAnswer
    fourth: Plan
    fixed: int | None = None

    @property
    def life(self) -> LifetimePlan | None:
        """How a board spends its life, where boards are asked again and again."""
        return None if isinstance(self.made.plan, Plan) else self.made.plan

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.made.plan.devices

    @property
    def met(self) -> bool:
        """Whether it is as exact as wanted, over one of the windows at least; a step of rounding is none."""
        return self.made.wanted is None or self.made.error <= self.made.wanted * (1 + 1e-9)

    @property
    def fixed_limit(self) -> str:
        """What a fixed limit would save, as a sentence; empty where it saves nothing."""
        if self.fixed is None:
            return ""
        return f"Is your limit fixed? Asked as yes or no, the same takes {self.fixed:,} devices."

    @property
    def solved(self) -> float:
        """The fourth, in the unit of its field: devices, nats, values, or % as the sentence has it."""
        plan = self.fourth
        values = {"devices": self.devices, "epsilon": plan.epsilon, "domain": plan.design.domain}
        return values[plan.solved] if plan.solved in values else float(f"{100 * self.made.error:.3g}")

    @property
    def said(self) -> list[str]:
        """What to take, and how exact that is; what an ε means stands beside it."""
        takes = self.life is not None and self.fourth.solved == "devices"
        return [*([f"Take {self.devices:,} devices."] if takes else []), *self.made.sentences[:2]]

    @property
    def not_met(self) -> str:
        """Where it is not as exact as wanted: that in one sentence, for the answer and for the file."""
        if self.met or self.made.wanted is None:
            return ""
        wanted = short(self.made.wanted, self.made.plan.question)
        return (
            f"This does not reach the {wanted} that you asked for: work out the devices, or allow a larger ε."
        )

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and what is said of them: both ε, and how boards answer."""
        seen, design = self.made.seen["all of it"], self.made.plan.design
        histogram = f"ε = {rounded_up(seen.epsilon)} (δ = {seen.delta:g})"
        if self.life is not None:
            histogram = f"It stands in the table below (δ = {seen.delta:g})"
        return [
            ("ε of a report", f"ε = {nats(design.epsilon)}, against everybody, the broker included."),
            ("ε of the histogram", f"{histogram}, {LIMITS}. {ONCE}"),
            ("How boards answer", f"{said_of(design.mechanism)} ({mechanism(design)})".strip()),
        ]

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Devices and half-width in %, from a hundredth to a hundred times the plan's devices."""
        n = self.devices
        return [(float(x), self._percent(x)) for x in np.geomspace(max(2, n / 100), 100 * n, _POINTS)]

    @property
    def steps(self) -> list[tuple[int, str]]:
        """A quarter of the devices, all of them and four times as many, with what is then known."""
        counts = [max(2, round(self.devices * factor)) for factor in _FACTORS]
        return [(n, percent(self._percent(n) / 100)) for n in counts]

    def _percent(self, devices: float) -> float:
        plan = self.made.plan
        each = 1.0 if isinstance(plan, Plan) else _each(plan)
        return 100 * half_width(devices * each, plan.design, plan.question)

    @property
    def lasting(self) -> list[str]:
        """What all that a board sends in its life tells, and what it costs the board."""
        if self.life is None:
            return []
        text = cost(self.life)
        return [self.made.sentences[2], text[0].upper() + text[1:]]

    @property
    def windows(self) -> list[Window]:
        """What the last reports of a life show."""
        life, seen = self.life, self.made.seen
        if life is None:
            return []
        best = life.best
        return [
            Window(
                name,
                life.devices * best.per_device(days),
                life.error(best, days),
                seen[name].epsilon,
                seen[name].own_reports,
            )
            for name, days in life.windows().items()
        ]

    def command(self, named: Named) -> str:
        """The line for a shell that gives the same plan, and its file without owner and purpose."""
        return shlex.join(["hushmote", "plan", *self.made.wish.words(), "--output", f"./{named.name}.toml"])


def answered(setting: Setting, before_each: Callable[[], object] = object) -> Worked:
    """Work a setting out; up to seconds where many designs are looked at.

    before_each: called before each of them; what it raises ends the work. Raises PlanError, with the field
    that cannot hold what it does where there is one, and where there is no such plan.
    """
    wish = wished(setting)
    made = answer(replace(wish, lifetime=None, horizon=None, call=None), before_each)
    before_each()
    fourth = made.plan
    assert isinstance(fourth, Plan)
    if wish.lifetime is not None:
        values = fourth.design.domain if setting.form == "number" else wish.values
        wish = replace(wish, devices=fourth.devices, values=values, epsilon=None, limit=fourth.epsilon)
        made = answer(wish)
        if fourth.solved == "devices" and made.wanted is not None and isinstance(made.plan, LifetimePlan):
            # How a board spends its life does not depend on how many there are.
            needed = _devices(made.plan.design, made.plan.question, made.wanted, _each(made.plan))
            made = replace(made, wish=replace(wish, devices=needed), plan=replace(made.plan, devices=needed))
        before_each()
    worked = Worked(setting, made, fourth)
    _ = worked.made.seen, worked.windows  # what takes long is worked out here, in a thread of its own
    before_each()
    return replace(worked, fixed=_fixed(worked))


def _each(life: LifetimePlan) -> float:
    """Reports that a board makes in the longest window at the end of its life."""
    return life.best.per_device(list(life.windows().values())[-1])


def _devices(design: Design, question: Question, error: float, each: float) -> int:
    """Devices of so many reports each that know a share so well. Raises PlanError above the most."""
    if variance(design, question) * (Z / error) ** 2 > each * MOST_DEVICES:
        raise PlanError(f"±{error:g} takes more than {MOST_DEVICES:,} devices: ask for less, or allow more")
    return devices_for(design, question, error, each)


def _fixed(worked: Worked) -> int | None:
    """Devices for the same error of a yes or no, in the place of a share of any range; None unless fewer."""
    made, epsilon, life = worked.made, worked.fourth.design.epsilon, worked.life
    wanted = made.wanted if worked.fourth.solved == "devices" else made.error
    if made.plan.question.kind != "range" or wanted is None or wanted >= NOTHING:
        return None
    if life is None:
        needed = _devices(best_design(2, epsilon, _YES_NO), _YES_NO, wanted, 1.0)
    else:
        single = plan_lifetime(_YES_NO, life.devices, 2, life.budget, life.rhythm, epsilon)
        needed = _devices(single.design, _YES_NO, wanted, _each(single))
    return needed if needed < worked.devices else None
