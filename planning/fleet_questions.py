"""What another question changes for a fleet whose questions share the budget of its devices' policy.

Questions of the library share what the fleet's other experiments leave of the policy's Σε, and have the same
rate. A new one lowers the rate of the others, which needs a new version of each.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..device.ldp_client import Experiment
from ..server.budgets.policy import Policy
from ..server.epsilon import MICRO, nats
from ..server.errors import UsageError
from ..server.experiments.definition import Definition
from ..server.store.versions import Version
from ..server.wire.experiments import reports_in_budget
from ..server.words.numbers import counted, is_too_wide, length
from . import library
from .lifetime import LifetimeBudget, Rhythm
from .question_set import SetPlan, SetQuestion, format_error, question_about, set_question

USUAL_POLICY = Policy(8 * MICRO, 0, 4 * MICRO, ("sum", "squares", "count"), ())
"""The limits of the policy in device/main.py, for a fleet whose policy is not known. It names nothing."""


class PolicyTooSmall(UsageError):
    """Raised if a policy does not pay for a question; the message says what would fit."""


def reserved_epsilon(experiment: Experiment) -> float:
    """Return the Σε that an experiment's own budget allows, in micro-nats, infinite if it has no limit."""
    reports = reports_in_budget(experiment)
    return float("inf") if reports is None else reports * experiment.epsilon


def check_policy(experiment: Experiment, policy: Policy) -> None:
    """Raise PolicyTooSmall if devices with a policy refuse an experiment or cannot pay for one report."""
    name, epsilon = experiment.name, nats(experiment.epsilon)
    if policy.experiments and name not in policy.experiments:
        names = ",".join([*policy.experiments, name])
        raise PolicyTooSmall(
            f"the policy does not name {name}, so devices would ignore it: `hushmote budget policy --epsilon "
            f"{nats(policy.sum)} --experiments {names}` writes one that does"
        )
    if experiment.rule not in policy.rules:
        raise PolicyTooSmall(
            f'{name} has the budget rule "{experiment.rule}", but the policy accepts only '
            + ", ".join(policy.rules)
        )
    if experiment.epsilon > policy.epsilon:
        raise PolicyTooSmall(
            f"a report of {name} costs ε = {epsilon}, but the policy allows {nats(policy.epsilon)}: lower "
            f"the question's epsilon to {nats(policy.epsilon)}"
        )
    if not policy.remaining_reports(experiment.epsilon):
        raise PolicyTooSmall(
            f"a report of {name} costs ε = {epsilon}, but the policy pays for Σε = {nats(policy.sum)}: lower "
            f"the question's epsilon to {nats(policy.sum)}"
        )


def share_of_policy(experiment: Experiment, versions: Sequence[Version], policy: Policy | None) -> str:
    """Say what an experiment of your own leaves of a policy's budget; "" if it is the only one or fits.

    Args:
        experiment: The experiment to add.
        versions: The fleet's versions.
        policy: The policy of the fleet's devices, or None if it is not known.

    Raises:
        PolicyTooSmall: If a known policy cannot pay for the experiment in addition to the others.
    """
    others = [v for v in versions if v.current and v.experiment.name != experiment.name]
    standard = [v.experiment for v in others if library.question_of(v.experiment.name, v.purpose)]
    own = [v.experiment for v in others if v.experiment not in standard]
    assumed = policy or USUAL_POLICY
    limit = assumed.sum
    if policy is not None:
        check_policy(experiment, policy)
        _check_reports(experiment, own, policy)
    before, after = (
        int(max(0.0, limit - sum(map(reserved_epsilon, es)))) for es in (own, [*own, experiment])
    )
    if standard:
        names, needed = ", ".join(e.name for e in standard), max(e.epsilon for e in standard)
        if after >= needed:
            return (
                f"It leaves ε = {nats(after)} of a device's {nats(limit)} for the standard questions "
                f"({names}), instead of {nats(before)}. Add one of them again to adjust their rate."
            )
        if policy is not None:
            raise PolicyTooSmall(
                f"the policy's Σε = {nats(limit)} would leave {nats(after)} for the standard questions "
                f"({names}): lower the cap of {experiment.name} so that {nats(needed)} is left, or withdraw "
                "them"
            )
    if not others or (not standard and _fits(experiment, own, assumed)):
        return ""
    names = ", ".join([_amounts([*own, experiment]), *(e.name for e in standard)])
    return (
        f"These budgets exceed a policy of Σε = {nats(limit)}, which pays only for the reports that come "
        f"first: {names}. Lower the caps to reserve a share for each."
    )


def _check_reports(experiment: Experiment, own: Sequence[Experiment], policy: Policy) -> None:
    """Raise PolicyTooSmall unless a policy pays for all reports of an experiment in addition to others."""
    reports, left = reports_in_budget(experiment), _reports_left(experiment, own, policy)
    if reports is not None and reports <= left:
        return
    if left < 1:
        raise PolicyTooSmall(_no_share(experiment, own, policy.sum))
    without = f" after {_amounts(own)}" if own else ""
    raise PolicyTooSmall(
        f"the policy pays for Σε = {nats(policy.sum)}, which allows {counted(left)} of {experiment.name}"
        f"{without}, not {'an unlimited number' if reports is None else f'{reports:,}'}: lower its cap to "
        f"{counted(left)}"
    )


def _reports_left(experiment: Experiment, own: Sequence[Experiment], policy: Policy) -> int:
    """Return how many reports of an experiment a policy pays for after all reports of others."""
    counts = [reports_in_budget(e) for e in own]
    if None in counts:
        return 0
    total = sum((n or 0) * e.epsilon for n, e in zip(counts, own, strict=True))
    squares = sum((n or 0) * e.epsilon**2 for n, e in zip(counts, own, strict=True))
    return policy.remaining_reports(experiment.epsilon, total, squares)


def _fits(experiment: Experiment, own: Sequence[Experiment], policy: Policy) -> bool:
    reports = reports_in_budget(experiment)
    return reports is not None and reports <= _reports_left(experiment, own, policy)


def _no_share(experiment: Experiment, others: Sequence[Experiment], limit: int) -> str:
    own = sum(map(reserved_epsilon, others))
    larger = f", or use a policy of Σε = {nats(int(own) + experiment.epsilon)}" if own < 2**48 else ""
    return (
        f"the policy pays for Σε = {nats(limit)}, and a device may spend it on {_amounts(others)}: withdraw "
        f"one, lower its cap so that {nats(experiment.epsilon)} is left for {experiment.name}{larger}"
    )


@dataclass(frozen=True)
class FleetQuestions:
    """A fleet's questions after an addition.

    Attributes:
        others: The fleet's current versions, without those of the new questions' names.
        new: The new questions of the library.
        policy: The policy of the fleet's devices.
        devices: The number of devices.
        rhythm: How often a device calls report(), and for how long.

    Raises:
        PolicyTooSmall: If the policy does not pay for the new questions.
    """

    others: tuple[Version, ...]
    new: tuple[Definition, ...]
    policy: Policy
    devices: int
    rhythm: Rhythm

    def __post_init__(self) -> None:
        for definition in self.new:
            check_policy(definition.experiment(), self.policy)
        for definition in self.new:
            if self.left < (experiment := definition.experiment()).epsilon:
                own = [v.experiment for v in self.own]
                raise PolicyTooSmall(_no_share(experiment, own, self.policy.sum))

    @cached_property
    def shared(self) -> tuple[Version, ...]:
        """The other versions that are questions of the library."""
        return tuple(v for v in self.others if library.question_of(v.experiment.name, v.purpose))

    @cached_property
    def own(self) -> tuple[Version, ...]:
        """The other versions, whose budgets are reserved for them."""
        return tuple(v for v in self.others if v not in self.shared)

    @cached_property
    def left(self) -> int:
        """The Σε that the fleet's own experiments leave for questions of the library, in micro-nats."""
        reserved = sum(reserved_epsilon(v.experiment) for v in self.own)
        return int(max(0.0, self.policy.sum - reserved))

    @cached_property
    def plan(self) -> SetPlan:
        """The plan of all questions of the library."""
        return self._plan((*map(_question_of_version, self.shared), *map(set_question, self.new)))

    @cached_property
    def before(self) -> SetPlan | None:
        """The plan of the questions that the fleet had before, or None if it had none."""
        return self._plan(tuple(map(_question_of_version, self.shared))) if self.shared else None

    def _plan(self, questions: Sequence[SetQuestion]) -> SetPlan:
        return SetPlan(tuple(questions), self.devices, LifetimeBudget(self.left), self.rhythm)

    def payload_at_rate(self, payload: bytes) -> bytes:
        """Return an experiment's JSON with the rate of this plan."""
        fields = json.loads(payload)
        fields["every"] = self.plan.every
        return json.dumps(fields, separators=(",", ":")).encode()

    @property
    def adjusted(self) -> tuple[Version, ...]:
        """The versions of the fleet whose rate the plan changes."""
        return tuple(v for v in self.shared if v.experiment.every != self.plan.every)

    def check_signatures(self) -> None:
        """Raise UsageError if a version whose rate changes was signed on another machine."""
        for version in self.adjusted:
            if version.signatures is not None:
                name, every = version.experiment.name, self.plan.every
                raise UsageError(
                    f"{name} was signed on another machine: set every = {every} in its file, sign it with "
                    "`hushmote experiment sign` and add it again; then add this question"
                )

    @property
    def lines(self) -> tuple[str, ...]:
        """The changes that the new questions make, in two or three lines."""
        plan, before = self.plan, self.before
        count, reports = len(plan.questions), counted(plan.shared.reports_in_life)
        life = f"{reports} in {length(self.rhythm.horizon_s)}"
        subject = f"{count} standard questions share" if count > 1 else f"{plan.questions[0].name} has"
        reserved = _amounts([v.experiment for v in self.own])
        without = f" after what is reserved for {reserved}" if reserved else ""
        lines = [f"{subject} a device's ε of {nats(self.left)}{without}: at most {life}."]
        old = {} if before is None else {q.name: before.error(q) for q in before.questions}
        errors = []
        for q in plan.questions:
            was = f" (before: {_half_width(old[q.name])})" if q.name in old else ""
            errors.append(f"{q.name} {_half_width(plan.error(q))}{was}")
        lines.append(
            f"Errors in points in the last quarter with {self.devices:,} devices: {', '.join(errors)}."
        )
        if changed := self.adjusted:
            rates = sorted({f"{v.experiment.every:,}" for v in changed})
            names = ", ".join(v.experiment.name for v in changed)
            lines.append(
                f"One call in {plan.every:,} makes a report; for {names} it was {' or '.join(rates)}."
            )
        return tuple(lines)


def _half_width(error: float) -> str:
    return "too wide" if is_too_wide(error) else f"±{format_error(error)}"


def _amounts(experiments: Sequence[Experiment]) -> str:
    """Return the experiments' names, each with the Σε that its budget allows."""
    reserved = [(e.name, reserved_epsilon(e)) for e in experiments]
    return ", ".join(
        f"{name} ({'no limit' if amount == float('inf') else f'ε = {nats(int(amount))}'})"
        for name, amount in reserved
    )


def _question_of_version(version: Version) -> SetQuestion:
    name = library.question_of(version.experiment.name, version.purpose)
    return question_about(version.experiment, version.asked.splitlines(), library.question(name).planned)
