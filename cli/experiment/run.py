"""The subcommands of `hushmote experiment`."""

import datetime
import json
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import typer

from ...device.ldp_client import Experiment, Level
from ...fleet.provisioning.master_key import load_signing_key
from ...planning.fleet_questions import share_of_policy
from ...server.accounting.compare import plain_guarantee
from ...server.answers import tables as show
from ...server.budgets.policy import read as read_policy
from ...server.epsilon import MICRO
from ...server.errors import UsageError, choose_name, refusing
from ...server.experiments import signed_file
from ...server.experiments.answerable import answerable_questions
from ...server.experiments.budget import cap_in_nats
from ...server.experiments.changes import Difference, differences
from ...server.experiments.definition import load
from ...server.experiments.judged import JudgedQuestion, judged_questions, worse_from_text
from ...server.experiments.reading import MILLI
from ...server.experiments.signed_file import SignedExperiment
from ...server.mechanisms import mechanism_of
from ...server.overview.search import matches
from ...server.plain_text import shorten, visible
from ...server.service.audit_log import audit_log, system_user
from ...server.store.database import StoreAbsent
from ...server.store.store import Store
from ...server.store.versions import (
    Addition,
    Description,
    Version,
    check_readable,
    most_reports,
    newest_versions,
)
from ...server.wire import board_files
from ...server.wire.experiments import (
    every_by_index,
    every_by_value,
    group_values,
    parse_experiment,
    report_size,
    reports_in_budget,
    scale_of,
    value_count,
)
from ...server.wire.topics import SIMULATED_PREFIX
from ...server.words import experiment as words
from ...server.words import release
from ...server.words.days import describe as describe_days
from ...server.words.epsilon import belief
from ...server.words.numbers import time_since
from ..broker import connection
from ..options import choose_fleet, is_library, load_experiment, print_json
from ..provision.options import fleet_name, open_folder

_MAX_VALUE = 200  # characters of a changed value


def describe(experiment: Experiment, words: Description) -> dict[str, Any]:
    """Return an experiment version as plain values: ε in nats, low and high in the reading's unit."""
    is_number = experiment.type == "number"
    type_fields: dict[str, Any] = vars(experiment)  # including those added by the type's board module
    return {
        "name": experiment.name,
        "digest": experiment.digest.hex(),
        "purpose": words.purpose,
        "owner": words.owner,
        "asks": words.asked.splitlines(),
        "type": experiment.type,
        "unit": words.unit,
        "low": experiment.low / MILLI if is_number else None,
        "high": experiment.high / MILLI if is_number else None,
        "scale": scale_of(experiment),
        "labels": [*experiment.labels, "other"] if experiment.type == "choice" else None,
        "salt": type_fields["salt"].decode() if "salt" in type_fields else None,
        "slots": type_fields.get("slots"),
        "prefixes": list(type_fields["prefixes"]) if "prefixes" in type_fields else None,
        "answers": sorted(answerable_questions(experiment)),
        "missing": value_count(experiment) < experiment.domain,
        "domain": experiment.domain,
        "mechanism": experiment.mechanism,
        "parameters": {k: v for k, v in mechanism_of(experiment).fields().items() if k != "mechanism"},
        "cells": [level.g for level in experiment.levels if isinstance(level, Level)],
        "epsilon": experiment.epsilon / MICRO,
        "every": experiment.every,
        "every_by_group": every_by_value(experiment) or None,
        "group": experiment.group or None,
        "groups": list(group_values(experiment)) or None,
        "rule": experiment.rule,
        "cap": cap_in_nats(experiment.rule, experiment.cap),
        "window": experiment.window,
        "keep": words.keep or None,
        "day": words.day or None,
        "week": words.week or None,
        "release": [
            {"question": judged.ask.text, "worse": judged.worse, "worse_by": judged.margin}
            for judged in _judged(experiment, words)
        ],
        "codes": experiment.code_count,
        "report_bytes": report_size(experiment, authenticated=False),
        "authenticated_report_bytes": report_size(experiment, authenticated=True),
    }


def _judged(experiment: Experiment, words: Description) -> tuple[JudgedQuestion, ...]:
    """Return the questions by which a release is judged, none without a group."""
    asks = words.asked.splitlines()
    return judged_questions(experiment, asks, worse_from_text(words.worse)) if experiment.group else ()


def flash_options(experiment: Experiment) -> str:
    """Return the options of `hushmote flash` that a board needs to take part, or "" if none."""
    return " ".join(f"--with {word}" for word in board_files.needed_files(experiment))


def show_file(file: Path, as_json: bool) -> None:
    """Check an experiment file and print what boards will receive."""
    definition = load_experiment(file)
    payload = definition.payload()
    experiment = parse_experiment(payload)
    if as_json:
        extra_fields = {
            "expires": definition.expires.isoformat(),
            "belief": belief(experiment.epsilon / MICRO),
        }
        extra_fields |= {"guarantee": plain_guarantee(definition.guarantee()), "payload": payload.decode()}
        extra_fields |= {"boards_need": [*board_files.needed_files(experiment)]}
        print_json(describe(experiment, definition.description()) | extra_fields)
        return
    sizes = [report_size(experiment, authenticated=each) for each in (False, True)]
    facts = [
        ("name", definition.name),
        ("purpose", definition.purpose),
        ("owner", definition.owner),
        ("expires", f"at the end of {definition.expires}{' (has expired)' * definition.expired}"),
        ("readings", words.readings(experiment, definition.unit)),
        ("missing", words.missing(experiment)),
        ("mechanism", words.mechanism(experiment)),
        ("privacy", f"ε = {experiment.epsilon / MICRO:g} per report, {words.budget(experiment)}"),
        ("", belief(experiment.epsilon / MICRO)),
        ("together", words.together(definition.guarantee(), definition.spent(), definition.epsilon)),
        *([("in clear", words.unprotected(experiment))] if experiment.group else []),
        ("report", " bytes, ".join(map(str, sizes)) + " authenticated"),
        ("digest", experiment.digest.hex()),
    ]
    for number, judged in enumerate(definition.judged(experiment)):
        unit = definition.unit if judged.ask.kind == "mean" else None
        text = release.judged_text(judged.ask.text, judged.worse, judged.margin, unit)
        facts.append(("" if number else "release", text))
    if days := describe_days(definition.description().calendar):
        facts.append(("days", days))
    if definition.keep:
        facts.append(("kept", f"windows are erased {definition.keep} after their end"))
    if options := flash_options(experiment):
        facts.append(("boards", f"need hushmote flash {options}"))
    show.out.print(show.facts_table(facts))
    show.out.print()
    # Bypass rich, which would wrap lines: these must be the exact bytes.
    typer.echo(payload.decode())


def sign_file(
    file: Path, fleet: str | None, folder: Path | None, key: Path | None, after: int, output: Path | None
) -> None:
    """Sign an experiment and its withdrawal for a fleet, into a file."""
    if is_library(file):
        name = str(file).partition(":")[2]
        raise UsageError(
            f"sign a copy: `hushmote questions {name} > {name}.toml`, with your owner and last day"
        )
    definition = load(file)
    definition.check_not_expired()
    opened = None if folder is None else open_folder(folder)
    if opened is not None and key is None:
        key = opened.signing_file() or opened.master_file()
    signing_key = load_signing_key(key)
    serial = max(int(time.time()), after + 1)
    if serial >= 2**32 - 1:
        raise UsageError(f"--after {after} leaves no serial; the highest is 4294967295")
    signed = signed_file.sign(definition, fleet_name(fleet, opened), signing_key, serial)
    path = output or Path(file.name.removesuffix(".toml") + signed_file.SUFFIX)
    with refusing(UsageError, f"write {path}"):
        path.write_text(signed_file.to_text(signed, signing_key), encoding="utf-8")
    show.out.print(
        f"{path}: {definition.name} for fleet {signed.fleet} until {definition.expires}, and its withdrawal, "
        "signed; next: `hushmote experiment add`",
        soft_wrap=True,
    )


def _load_to_add(file: Path) -> tuple[bytes, datetime.date, Description, SignedExperiment | None]:
    if file.suffix == ".json":
        signed = signed_file.load_signed(file)
        return signed.payload, signed.expires, signed.description, signed
    definition = load(file)
    definition.check_not_expired()
    return definition.payload(), definition.expires, definition.description(), None


def _fleet_of_experiment(store: str, fleet: str | None, keyed: bool | None) -> str:
    """Return the fleet to add an experiment to; a store that does not exist is not created."""
    fleets: Collection[str] = ()
    with suppress(StoreAbsent), Store(store, create=False) as opened:
        fleets = opened.fleets()
        if fleet is None:  # exclude simulated fleets, which boards would not find
            real = [name for name in fleets if not name.startswith(SIMULATED_PREFIX)]
            fleet = choose_name("fleet", None, real, f"in {opened.where}") if real else None
    fleet = fleet or "home"
    if keyed is None and fleet not in fleets:
        raise UsageError(f"fleet {fleet} is new: add --keys (reports carry tags) or --open (trials)")
    return fleet


def _versions(store: str, fleet: str) -> tuple[Version, ...]:
    """Return a fleet's versions; none if there is no store yet."""
    with suppress(StoreAbsent), Store(store, create=False) as opened:
        return opened.experiments(fleet)
    return ()


@dataclass(frozen=True)
class Target:
    """Where to add an experiment.

    Attributes:
        store: The store's URL.
        fleet: The fleet's name, or None for the only one.
        keyed: For a new fleet, whether reports carry tags; None for a fleet that exists.
        grace: For how many days late reports of an earlier version count.
    """

    store: str
    fleet: str | None
    keyed: bool | None
    grace: int

    def with_fleet(self) -> "Target":
        """Return the target with its fleet's name; raise UsageError if it names none of several."""
        return replace(self, fleet=_fleet_of_experiment(self.store, self.fleet, self.keyed))

    def versions(self) -> tuple[Version, ...]:
        """Return the fleet's versions; none if there is no store yet."""
        assert self.fleet is not None
        return _versions(self.store, self.fleet)


@dataclass(frozen=True)
class AddedVersion:
    """An added version.

    Attributes:
        addition: What was added, and what it replaces.
        needs_key: Whether `serve` needs the signing key to publish it.
        most: The most reports that a device can count under it, or None without a limit.
    """

    addition: Addition
    needs_key: bool
    most: int | None

    def to_dict(self, fleet: str) -> dict[str, Any]:
        """Return plain values, for JSON."""
        addition = self.addition
        version, previous = addition.version, addition.previous
        changes = () if previous is None else differences(previous, version)
        return (
            {"fleet": fleet}
            | describe(version.experiment, version.description)
            | {
                "change": addition.kind,
                "replaces": None if previous is None else previous.experiment.digest.hex(),
                "differences": [asdict(change) for change in changes],
                "highest_number": self.most,
            }
        )


def add_version(
    target: Target,
    payload: bytes,
    expires: datetime.date | None,
    description: Description,
    seen: Sequence[Version],
    signed: SignedExperiment | None = None,
) -> AddedVersion:
    """Add a version to the target's fleet, unless the store has changed since its versions were `seen`."""
    fleet = target.fleet
    assert fleet is not None
    log = audit_log(target.store)
    log.check()
    with Store(target.store) as opened:
        if target.keyed is not None:
            opened.add_fleet(fleet, keyed=target.keyed)
        addition = opened.add_version(
            fleet,
            payload,
            expires,
            grace_days=target.grace,
            description=description,
            signatures=signed and signed.signatures,
            expected=seen,
        )
        experiment = addition.version.experiment
        log.note(
            system_user(), "add", fleet=fleet, experiment=experiment.name, digest=experiment.digest.hex()
        )
        versions, is_keyed = opened.experiments(fleet), opened.fleets()[fleet]
    return AddedVersion(
        addition, is_keyed and signed is None, most_reports(versions).get(addition.version.id)
    )


def add(file: Path, target: Target, policy_file: Path | None, as_json: bool) -> None:
    """Add an experiment, or a new version of it, to a fleet; `serve` publishes it."""
    payload, expires, description, signed = _load_to_add(file)
    if signed is not None:
        if target.fleet not in (None, signed.fleet):
            raise UsageError(f"{file} is signed for fleet {signed.fleet}; omit --fleet")
        if target.keyed is False:
            raise UsageError(f"{file} is signed, but an open fleet has no signatures; omit --open")
        target = replace(target, fleet=signed.fleet)
    target = target.with_fleet()
    seen = target.versions()
    shared = share_of_policy(parse_experiment(payload), seen, policy_file and read_policy(policy_file))
    added = add_version(target, payload, expires, description, seen, signed)
    if as_json:
        print_json(added.to_dict(target.fleet or ""))
        return
    print_added(added)
    if shared:
        show.out.print(shared)


def print_added(added: AddedVersion) -> None:
    """Print what was added, what it changes, and a warning if an earlier version was cheaper."""
    addition = added.addition
    show.out.print(_outcome(addition, added.needs_key))
    if addition.previous is not None and (changes := differences(addition.previous, addition.version)):
        show.out.print(changes_table(changes))
    honest_reports = reports_in_budget(addition.version.experiment)
    if added.most is not None and honest_reports is not None and added.most > honest_reports:
        show.out.print(
            f"An earlier version was cheaper, so a stolen device could count up to {added.most:,} "
            f"times under this one, but an honest device at most {honest_reports:,} times. A new name limits "
            f"both to {honest_reports:,}."
        )


def _outcome(addition: Addition, needs_key: bool) -> str:
    """Say what an addition changed, and which version it replaces."""
    version, previous = addition.version, addition.previous
    subject = f"{version.experiment.name} {version.experiment.digest.hex()}"
    publishes = "`serve` publishes it" + " if it has the signing key" * needs_key
    if previous is None:
        return f"{subject} added to fleet {version.fleet}; {publishes}"
    age = time_since(previous.serial, time.time())
    owner = f" of {previous.owner}" if previous.owner else ""
    if addition.version.id != previous.id:
        return (
            f"{subject} added to fleet {version.fleet}: {addition.kind}; {publishes}. "
            f"It replaces {previous.experiment.digest.hex()}{owner}, published {age}."
        )
    again = "" if previous.current else f"; {publishes} again"
    text = f"{subject} of fleet {version.fleet}: {addition.kind}{again}"
    if addition.kind == "unchanged":
        return text
    return f"{text}. Devices and counts stay as they are. It replaces the words{owner}, published {age}."


def changes_table(changes: Iterable[Difference]) -> show.FittedTable:
    """Return the fields that differ between two versions, as a table."""
    table = show.table("", ("change", "before", "now"), range(3))
    for change in changes:
        table.add_row(change.field, *map(value_text, (change.before, change.after)))
    return table


def value_text(value: Any) -> str:
    """Return a field's value for a table, shortened."""
    if isinstance(value, list) and all(isinstance(item, str) for item in cast(list[Any], value)):
        return ", ".join(cast(list[str], value))
    text = value if isinstance(value, str) else "-" if value is None else json.dumps(value)
    return shorten(text, _MAX_VALUE)


def list_versions(store: str, fleet: str | None, search: str, as_json: bool) -> None:
    """List all versions of the experiments with these words in one of their versions, oldest first.

    Raises:
        StoreError: After the rest was printed, if an experiment cannot be read here.
    """
    with Store(store, create=False) as opened:
        fleet = None if fleet is None else choose_fleet(opened, fleet)
        versions, unreadable = opened.readable_experiments(fleet)
    if versions or not unreadable:
        _print_versions(versions, fleet, search, as_json)
    elif as_json:
        print_json([])
    check_readable(unreadable)


def _print_versions(versions: Sequence[Version], fleet: str | None, search: str, as_json: bool) -> None:
    names = {
        (v.fleet, v.experiment.name)
        for v in versions
        if matches(search, v.experiment.name, v.purpose, v.owner)
    }
    versions = tuple(v for v in versions if (v.fleet, v.experiment.name) in names)
    if as_json:
        print_json(
            [
                {
                    "fleet": v.fleet,
                    "current": v.current,
                    "expires": v.expires and v.expires.isoformat(),
                    "counted_until": v.counted_until and v.counted_until.isoformat(),
                }
                | describe(v.experiment, v.description)
                for v in versions
            ]
        )
        return
    if not versions:
        nothing = (
            f"no experiment matches {visible(search)}" if search else "no experiments have been added yet"
        )
        show.out.print(nothing + (f" in fleet {fleet}" if fleet else ""), markup=False)
        return
    headings = ("fleet", "name", "digest", "ε", "every", "current", "until", "late until")
    table = show.table("", headings, range(len(headings)))
    for v in versions:
        e = v.experiment
        every = sorted({*every_by_index(e)})
        rates = f"{every[0]:,}" if len(every) == 1 else f"{every[0]:,} to {every[-1]:,}"
        cells = (v.fleet, e.name, e.digest.hex(), f"{e.epsilon / MICRO:g}", rates)
        days = (str(day or "-") for day in (v.expires, v.counted_until))
        table.add_row(*cells, "yes" if v.current else "no", *days)
    show.out.print(table)
    for (fleet, name), v in newest_versions(v for v in versions if v.purpose).items():
        show.out.print(f"{name} of {fleet}: {v.purpose} ({v.owner})")


def withdraw(name: str, store: str, fleet: str | None, grace: int) -> None:
    """Withdraw an experiment so that boards stop reporting; its counts are kept."""
    log = audit_log(store)
    with Store(store, create=False) as opened:
        log.check()
        fleet = choose_fleet(opened, fleet)
        opened.withdraw_experiment(fleet, name, grace_days=grace)
        log.note(system_user(), "withdraw", fleet=fleet, experiment=name)
    show.out.print(f"{name} is withdrawn from fleet {fleet}")


def clear(
    name: str, store: str, fleet: str | None, broker: str, signing_key: Path | None, *, typed: bool
) -> None:
    """Clear an experiment that the broker retains but the store does not have."""
    from ...server.ingest.clear_experiment import Clearing
    from ...server.ingest.clear_experiment import clear as clear_retained

    address, tls = connection(broker, typed=typed)
    log = audit_log(store)
    with suppress(StoreAbsent), Store(store, create=False) as opened:
        fleet = fleet or choose_fleet(opened, None)
        names = {version.experiment.name for version in opened.experiments(fleet)}
        if name in names:
            raise UsageError(
                f"{opened.where} has {name}: use `hushmote experiment withdraw {name} --fleet {fleet}`, "
                "because `serve` would publish it again"
            )
        log.check()
    if fleet is None:
        raise UsageError("add --fleet NAME, the fleet whose boards receive the experiment")
    clearing = clear_retained(address, tls, fleet, name, lambda: load_signing_key(signing_key))
    subject = f"{name} of fleet {fleet}"
    if clearing is Clearing.CLEARED:
        with suppress(StoreAbsent), Store(store, create=False):
            log.note(system_user(), "clear", fleet=fleet, experiment=name)
        show.out.print(f"{subject} is cleared: boards stop reporting to it", soft_wrap=True)
    elif clearing is Clearing.WITHDRAWN:
        show.out.print(f"{subject} had already been withdrawn: boards do not report to it", soft_wrap=True)
    else:
        raise UsageError(f"{address} retains no experiment {subject}, or does not let this user read it")
