"""The verdict on a release, from a store: it reads the days, makes or loads the plan, and judges."""

import datetime
import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import HushmoteError, UsageError
from ...experiments.judged import JudgedQuestion
from ...hints import option
from ...release.difference import ReleaseError
from ...release.plan import (
    PlanChanged,
    QuestionPlan,
    ReleasePlan,
    check_unchanged,
    experiment_of,
    plan_from_json,
)
from ...release.progress import Progress, rollout_progress
from ...release.silence import SilenceLook
from ...release.verdict import ReleaseVerdict, release_verdict
from ...wire.experiments import OTHER
from ..query import Facts
from ..suppression import MIN_REPORTS, suppressed_values
from .evidence import GroupDays, GroupExperiment, group_of
from .first_plan import PlanRequest, Question, first_plan
from .installed import Installed, silence, silence_plan
from .result import JudgedRelease, Rollout, Subject

AddPlan = Callable[[str, str, str, str], str]
"""A function like Store.add_release_plan()."""
_DAY = datetime.timedelta(days=1)


def judge(
    facts: Facts,
    fleet: str,
    request: PlanRequest,
    add_plan: AddPlan | None,
    *,
    group: str = "",
    installed: Installed | None = None,
) -> JudgedRelease:
    """Return the verdict on a release.

    The plan is stored by the first call that can look, or that has the number of installed devices.

    Args:
        facts: The contents of the store.
        fleet: The fleet's name.
        request: The versions, and the settings of the plan.
        add_plan: The function that stores a plan, or None to use only a stored one.
        group: The group's name, or "" for the only one that lists the version.
        installed: The installed devices, or None if they are not available.

    Raises:
        UsageError: If the group or a version is unknown, or the versions to compare with are missing.
        PlanChanged: If the request differs from the stored plan.
        ReleaseError: If the stored plan is damaged.
    """
    group = group_of(facts, fleet, request.new, group)
    days = GroupDays.read(facts, fleet, group)
    plan = _stored_plan(facts, fleet, group, request)
    others = request.others if plan is None else plan.others
    _check_versions(days, request.new, others)
    installed = _with_total(facts, fleet, installed)
    days = days.since(_first_day(days, request.new, installed))
    now = _questions(days, request.new, others)
    if plan is None and add_plan is not None:
        plan = _first_plan(facts, days, request, now.questions, installed, add_plan)
    if plan is None:
        rollout = _rollout(days, request.new, others)
        return JudgedRelease(days, request.new, others, None, None, {}, rollout, tuple(now.unjudged))
    if installed is not None and plan.silence is None:
        raise PlanChanged(
            f"the plan of {plan.new} cannot change after its first look: it was stored without the number of "
            f"installed devices; omit {option('installed')}"
        )
    matches = {planned.name: _match(planned, now.questions) for planned in plan.questions}
    looks = {name: () if each is None else each.comparison.looks() for name, each in matches.items()}
    names = {each.name: name for name, each in matches.items() if each is not None}
    missing = [question for question in now.questions if question.name not in names]
    dropped = [
        name for name, each in matches.items() if each is None and experiment_of(name) not in now.blocking
    ]
    blocking = *now.blocking, *dropped, *(question.name for question in missing if _blocks(question, days))
    hidden = _hidden(days, plan, [name for name, each in looks.items() if each])
    verdict = release_verdict(plan, looks, _silence(days, plan, installed), is_complete=not blocking)
    return JudgedRelease(
        days,
        plan.new,
        plan.others,
        plan,
        _without_numbers(verdict, hidden),
        {names.get(name, name): subject for name, subject in now.subjects.items()},
        _rollout(days, plan.new, plan.others),
        unjudged=(*now.unjudged, *map(_dropped_note, dropped), *(_missing_note(q, days) for q in missing)),
        lacks_installed=plan.silence is None or installed is None,
        blocking=blocking,
        hidden=hidden,
    )


def stored_plans(facts: Facts, fleet: str) -> list[ReleasePlan]:
    """Return the stored plans of a fleet, the versions listed last first.

    Raises:
        ReleaseError: If a plan is damaged.
    """
    pairs = dict[tuple[str, str], None]()
    for version in reversed(facts.versions(fleet)):
        experiment = version.experiment
        pairs |= dict.fromkeys((experiment.group, value) for value in reversed(experiment.groups))
    texts = facts.store.release_plans(fleet)
    return [plan_from_json(texts[pair]) for pair in pairs if pair in texts]


def _stored_plan(facts: Facts, fleet: str, group: str, request: PlanRequest) -> ReleasePlan | None:
    """Return the stored plan, or None before the first look; raise PlanChanged for another request."""
    text = facts.store.release_plan(fleet, group, request.new)
    if text is None:
        return None
    plan = plan_from_json(text)
    check_unchanged(plan, request.applied_to(plan))
    return plan


def _with_total(facts: Facts, fleet: str, installed: Installed | None) -> Installed | None:
    """Return the installed devices; if only a number was given, all devices are those on the allow-list."""
    if installed is None or installed.total is not None or "" not in installed.devices:
        return installed
    is_listed = fleet in facts.store.listed_fleets()
    allowed = [state for state in facts.store.roster(fleet).values() if state == "allowed"]
    return replace(installed, total=len(allowed)) if is_listed else installed


def _check_versions(days: GroupDays, new: str, others: tuple[str, ...]) -> None:
    if not others:
        earlier = ", ".join(value for value in days.values if value not in (new, OTHER)) or OTHER
        raise UsageError(
            f"name the version to compare {new} with ({option('against')}); {days.group} has {earlier}"
        )
    for value in others:
        if value not in days.values:
            raise UsageError(f"group {days.group} does not list {value}; it has {', '.join(days.values)}")
    if new in others:
        raise UsageError(f"compare {new} with another version, not with itself")


def _first_day(days: GroupDays, new: str, installed: Installed | None) -> datetime.date:
    """Return the first day with a report from the new version, or with a device that has it."""
    firsts = [] if (first := days.first_day_of(new)) is None else [first]
    if installed is not None:
        firsts += [day for day, devices in installed.by_day.items() if devices.get(new)][:1]
    return min(firsts, default=days.last)


@dataclass(frozen=True)
class _Questions:
    """What the experiments ask now.

    Attributes:
        questions: The judged questions.
        subjects: What each of them is about, by its name.
        unjudged: Sentences about the experiments that are not judged.
        blocking: Those of these experiments that may have a margin, so that the release cannot proceed.
    """

    questions: list[Question] = field(default_factory=list[Question])
    subjects: dict[str, Subject] = field(default_factory=dict[str, Subject])
    unjudged: list[str] = field(default_factory=list[str])
    blocking: list[str] = field(default_factory=list[str])


def _questions(days: GroupDays, new: str, others: tuple[str, ...]) -> _Questions:
    """Return the questions that the experiments ask now."""
    result = _Questions()
    for experiment in days.experiments.values():
        judged, reason = _judged(experiment)
        if reason:
            result.unjudged.append(f"{experiment.name} {reason}")
            may_have_margin = judged is None or any(question.margin is not None for question in judged)
            if may_have_margin and _is_published(experiment, days):
                result.blocking.append(experiment.name)
        if reason or not judged:
            continue
        new_every, other_every = (days.mean_every(experiment.name, side) for side in ([new], others))
        comparisons = days.looks(experiment.name, judged, new, others)
        for question, comparison in zip(judged, comparisons, strict=True):
            is_only = len(judged) == 1
            name = experiment.name if is_only else f"{experiment.name}: {question.ask.text}"
            result.questions.append(Question(name, question, comparison, new_every, other_every))
            result.subjects[name] = _subject(experiment, question.ask.kind, question.ask.text)
    return result


def _judged(experiment: GroupExperiment) -> tuple[tuple[JudgedQuestion, ...] | None, str]:
    """Return an experiment's judged questions, or None if its file has an error; and why it is not judged."""
    try:
        judged = experiment.judged()
    except HushmoteError as e:
        return None, f"is not judged: {e}."
    if not experiment.has_days:
        return judged, 'is not judged, because its window is "all", not "day".'
    return judged, "" if judged else "is not judged: its file asks for no share and no mean."


def _is_published(experiment: GroupExperiment, days: GroupDays) -> bool:
    """Return whether boards can report to an experiment during the release; withdrawn ones ask nothing."""
    newest = experiment.newest
    return newest.current and (newest.expires is None or newest.expires >= days.first)


def _subject(experiment: GroupExperiment, kind: str, text: str) -> Subject:
    newest = experiment.newest
    if kind == "mean":
        return Subject(f"the mean of {experiment.name}", newest.unit)
    if newest.experiment.type == "bool" and text == "yes":
        return Subject(experiment.name, None)
    return Subject(f'"{text}" of {experiment.name}', None)


def _first_plan(
    facts: Facts,
    days: GroupDays,
    request: PlanRequest,
    questions: list[Question],
    installed: Installed | None,
    add_plan: AddPlan,
) -> ReleasePlan | None:
    """Make and store the plan, and return the one that applies; None if no look is possible yet."""
    if not questions:
        raise ReleaseError(
            f"no experiment with the group {days.group} has a share or a mean to judge: list one in asks"
        )
    if installed is None and not any(question.comparison.looks() for question in questions):
        return None
    plan = first_plan(days.group, request, questions, days.count)
    if plan is None:
        return None
    if installed is not None:
        plan = replace(plan, silence=silence_plan(installed, plan, days, _fastest(days, plan.new)))
    stored = plan_from_json(add_plan(days.fleet, days.group, request.new, plan.to_json()))
    check_unchanged(stored, request.applied_to(stored))  # another call may have been first
    return stored


def _match(planned: QuestionPlan, questions: list[Question]) -> Question | None:
    """Return the question that was planned, or None if the experiment's file no longer asks it.

    `asks` may have changed since, so an experiment's name alone does not tell what is asked.
    """
    if not planned.asked:
        return next((question for question in questions if question.name == planned.name), None)
    experiment, asked = experiment_of(planned.name), planned.asked
    same = (question for question in questions if experiment_of(question.name) == experiment)
    return next((question for question in same if question.judged.ask.text == asked), None)


def _blocks(question: Question, days: GroupDays) -> bool:
    """Return whether a question that is not in the plan prevents "proceed"."""
    is_published = _is_published(days.experiments[experiment_of(question.name)], days)
    return question.judged.margin is not None and is_published


def _hidden(days: GroupDays, plan: ReleasePlan, questions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the experiments whose differences are not shown, each with its versions with few reports.

    A difference is not shown if `hushmote estimate` would refuse one of its versions in the same days: with
    the answers that are shown, it would reveal the histogram of a version with few reports.
    """
    result = dict[str, tuple[str, ...]]()
    for name in dict.fromkeys(map(experiment_of, questions)):
        reports = {value: int(days.reports(name, [value]).sum()) for value in days.values}
        if not suppressed_values(reports).isdisjoint((plan.new, *plan.others)):
            result[name] = tuple(value for value, n in reports.items() if 0 < n < MIN_REPORTS)
    return result


def _without_numbers(verdict: ReleaseVerdict, hidden: Container[str]) -> ReleaseVerdict:
    """Return the verdict without the numbers about the questions of hidden experiments."""
    nothing: dict[str, Any] = {"value": None, "low": -math.inf, "high": math.inf}
    nothing |= {"fraction": math.nan, "remaining": None}
    questions = (replace(q, **nothing) if experiment_of(q.name) in hidden else q for q in verdict.questions)
    return replace(verdict, questions=tuple(questions))


def _dropped_note(name: str) -> str:
    return f"{name} is not judged any more: its file no longer asks what the plan of this release does."


def _missing_note(question: Question, days: GroupDays) -> str:
    effect = "; it has worse_by, so the release cannot proceed" if _blocks(question, days) else ""
    reason = "it had too few reports, or did not exist, when the plan was stored"
    return f"{question.name} is not judged: {reason}{effect}."


def _fastest(days: GroupDays, new: str) -> GroupExperiment:
    """Return the experiment to which boards with the new version report most often, the first of several.

    An experiment without any report in these days, such as a withdrawn one, shows nothing.
    """

    def key(experiment: GroupExperiment) -> tuple[bool, bool, int]:
        has_reports = bool(days.reports(experiment.name, days.values).any())
        return not experiment.has_days, not has_reports, experiment.every(new)

    return min(days.experiments.values(), key=key)


def _rollout(days: GroupDays, new: str, others: tuple[str, ...]) -> Rollout:
    experiment = _fastest(days, new)
    rest = [value for value in days.values if value not in (new, *others)]
    columns = {value: days.reports(experiment.name, [value]) for value in (new, *others)}
    remaining = days.reports(experiment.name, rest)
    progress = _progress(days, experiment.name, new, (*others, *rest))
    unseen = _unseen_devices(days, experiment, progress.part if progress else 0.0)
    return Rollout(
        experiment.name,
        tuple(days.day(k) for k in range(days.count)),
        columns,
        remaining,
        None if unseen else progress,
        unseen,
    )


def _unseen_devices(days: GroupDays, experiment: GroupExperiment, part: float) -> str:
    """Return why reports do not show the rollout, or ""; only the experiment's own budget is known."""
    devices, spent = days.facts.spent_devices(days.fleet, experiment.newest.experiment)
    return days.unseen_devices(experiment.name, devices, spent, part)


def _progress(days: GroupDays, experiment: str, new: str, others: tuple[str, ...]) -> Progress | None:
    sides = [days.daily_reports(experiment, values) for values in ([new], others)]
    return rollout_progress(*(side.effective for side in sides), *(side.rate for side in sides))


def _silence(days: GroupDays, plan: ReleasePlan, installed: Installed | None) -> tuple[SilenceLook, ...]:
    return () if installed is None else silence(installed, plan, days, _fastest(days, plan.new))
