"""`hushmote experiment add std:NAME` and `pack:NAME`: standard questions that share a policy's budget."""

import datetime
from dataclasses import dataclass, replace
from pathlib import Path

from ...planning import library
from ...planning.fleet_questions import USUAL_POLICY, FleetQuestions
from ...planning.lifetime import DAY_S, Rhythm, parse_duration
from ...planning.question_set import USUAL_RHYTHM
from ...server.answers import tables as show
from ...server.budgets.policy import read as read_policy
from ...server.epsilon import nats
from ...server.errors import UsageError
from ...server.experiments.definition import Definition, parse
from ...server.store.database import StoreAbsent
from ...server.store.store import Store
from ..options import print_json
from . import run
from .run import AddedVersion, Target

_USUAL_DEVICES = 20_000
_MIN_DEVICES = 100  # below this, a fleet has just started, and its devices say nothing about its size


@dataclass(frozen=True)
class Options:
    """The options of a standard question; None if not given."""

    owner: str | None
    labels: tuple[str, ...]
    rename: str | None
    devices: int | None
    horizon: str | None
    call: str | None
    policy: Path | None


def add(source: str, target: Target, options: Options, as_json: bool) -> None:
    """Add a question or a pack to a fleet, and adjust the rate of the standard questions that it has.

    Raises:
        UsageError: If the library has no such question, or an option is missing or does not apply.
        PolicyTooSmall: If the policy does not pay for it.
    """
    names = library.question_names(source)
    if not options.owner:
        raise UsageError(
            f"{source} needs --owner, the person or team responsible, such as --owner ops@example.org"
        )
    if len(names) > 1 and (options.labels or options.rename):
        raise UsageError(f"--label and --name apply to one question: add those of {source} one by one")
    if names == ("feature",) and not options.rename:
        raise UsageError("std:feature needs --name, the name of the feature, such as --name dark_mode")
    target = target.with_fleet()
    policy = read_policy(options.policy) if options.policy else USUAL_POLICY
    rhythm = Rhythm(
        parse_duration(options.call, "call") if options.call else USUAL_RHYTHM.call_s,
        parse_duration(options.horizon, "horizon") if options.horizon else USUAL_RHYTHM.horizon_s,
    )
    today = datetime.datetime.now(datetime.UTC).date()
    expires = today + datetime.timedelta(seconds=DAY_S * round(rhythm.days))

    def definition(name: str, every: int = 1) -> Definition:
        text = library.customize(
            name,
            owner=options.owner or "",
            expires=expires,
            every=every,
            cap=nats(max(policy.sum, library.question(name).experiment().epsilon)),  # else no file is valid
            rename=options.rename or "",
            labels=options.labels,
        )
        return parse(text)

    seen = target.versions()
    new = tuple(definition(name) for name in names)
    added_names = [d.name for d in new]
    others = tuple(v for v in seen if v.current and v.experiment.name not in added_names)
    devices = options.devices or _devices(target)
    questions = FleetQuestions(others, new, policy, devices, rhythm)
    lines, every = questions.lines, questions.plan.every
    questions.check_signatures()
    adjusted: list[AddedVersion] = []
    for version in questions.adjusted:
        payload = questions.payload_at_rate(version.payload)
        adjusted.append(run.add_version(target, payload, version.expires, version.description, seen))
        seen = target.versions()
    added: list[AddedVersion] = []
    for name in names:
        final = definition(name, every)
        added.append(run.add_version(target, final.payload(), expires, final.description(), seen))
        target, seen = replace(target, keyed=None), target.versions()
    if as_json:
        fleet = target.fleet or ""
        values = {"added": [each.to_dict(fleet) for each in added]}
        values |= {"adjusted": [each.to_dict(fleet) for each in adjusted]}
        print_json(values | {"plan": questions.plan.to_dict()})
        return
    for each in added:
        run.print_added(each)
    for line in lines:
        show.out.print(line)


def _devices(target: Target) -> int:
    """Return the number of the fleet's devices that have reported, or a usual number for a new fleet."""
    assert target.fleet is not None
    try:
        with Store(target.store, create=False) as opened:
            most = max((p.devices for p in opened.participation(target.fleet).values()), default=0)
    except StoreAbsent:
        most = 0
    return most if most >= _MIN_DEVICES else _USUAL_DEVICES
