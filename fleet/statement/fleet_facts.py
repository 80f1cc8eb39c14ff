"""The facts behind a fleet's statement, read from the store, the policy, its folder and this package."""

import datetime
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...server.accounting import Guarantee, History, ZcdpFilter
from ...server.answers.query import Facts, Selected, Selection
from ...server.answers.second_epsilon import TwoEpsilons, overview
from ...server.budgets import policy as policies
from ...server.budgets.policy import Policy
from ...server.epsilon import MICRO
from ...server.errors import HushmoteError, refusing
from ...server.experiments.budget import USUAL_DELTA
from ...server.plain_text import visible
from ...server.store.store import Participation, Store, Version
from ...server.store.versions import check_readable
from ...server.wire import board_files, keys
from ...server.wire.experiments import reports_in_budget
from ...server.wire.limits import kept_hours
from ...server.words import label as words
from ...server.words.label import Disclosure, Phrase
from ..provisioning import flash, umqtt
from ..provisioning.extra_modules import further_files
from ..provisioning.fleet_folder import FleetFolder
from .junit import TestRun
from .versions_in_use import VersionsInUse, read_versions
from .vex import VexStatement


class StatementError(HushmoteError):
    """Raised if a statement cannot be made or verified; the message says what is missing and where."""


@dataclass(frozen=True)
class FleetQuestion:
    """An experiment of a fleet, with all its versions.

    Attributes:
        is_asked: Whether boards are asked today.
        digest: See digest_of().
        since: The day on which boards were first asked.
        keep: How long counts are kept.
        most: The maximum number of reports in a board's lifetime.
        devices: Number of devices that have reported.
        erased: Reports in windows that have been erased.
        epsilons: The ε of a report and of all ended windows' histograms; None before the first report.
    """

    version: Version
    is_asked: bool
    digest: str
    since: datetime.date
    keep: Phrase
    most: int
    reports: int
    devices: int
    erased: int
    epsilons: TwoEpsilons | None

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.version.experiment.name

    @property
    def owner(self) -> str | Phrase:
        """The owner, as the experiment's file names it."""
        return visible(self.version.owner) or words.maker("no_owner")

    @property
    def purpose(self) -> str | Phrase:
        """The purpose, in the owner's words."""
        return self.version.purpose or words.maker("no_purpose")

    @property
    def epsilon(self) -> float:
        """ε of one report, nats; the largest if versions differ."""
        epsilon = self.version.experiment.epsilon / MICRO
        return epsilon if self.epsilons is None else max(epsilon, self.epsilons.report)

    @property
    def planned(self) -> Disclosure:
        """The disclosure by all reports that the experiment's budget allows a device.

        It is the sum of their ε or, if that is less, their composition by zero-concentrated privacy, with δ.
        """
        squares = ZcdpFilter(1.0, USUAL_DELTA).spent(History.equal(round(self.epsilon * MICRO), self.most))
        disclosures = Disclosure(self.most * self.epsilon), Disclosure(squares.epsilon, squares.delta)
        return min(disclosures, key=lambda disclosure: disclosure.epsilon)


@dataclass(frozen=True)
class Consent:
    """The way people consent: on the board, or already elsewhere.

    Attributes:
        given: Consent was given elsewhere.
        because: Where consent was given.
        network: The policy lets the server start a board.
        each: Each question needs its own consent.
        button, light: Whether the firmware has one; None if it does not state that.
        id_at: Where people find the device's id, as the firmware states it, or "".
    """

    given: bool = False
    because: str = ""
    network: bool = False
    each: bool = False
    button: bool | None = None
    light: bool | None = None
    id_at: str = ""


@dataclass(frozen=True)
class BoardFile:
    """A file on a board: its path without .py or .mpy, and the size and SHA-256 of its source."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Evidence:
    """The maker's additions to the facts of the store, the firmware and the folder.

    Attributes:
        vulnerable: The versions of the firmware that are vulnerable, as an open group names them.
        vex: The statements on vulnerabilities from OpenVEX files.
        tests: The results of tests from JUnit files.
        micropython: The version of MicroPython on the devices, or "".
    """

    vulnerable: Sequence[str] = ()
    vex: Sequence[VexStatement] = ()
    tests: Sequence[TestRun] = ()
    micropython: str = ""


@dataclass(frozen=True)
class FleetFacts:
    """All facts behind a statement.

    Attributes:
        policy_file: The file of the policy.
        promised: The guarantee for all reports in a board's lifetime.
        hosts: The broker's hosts, reached by TLS; empty if the fleet has no folder.
        interval_s: The seconds between two readings, or None if the firmware does not state them.
        firmware_version: The version that the firmware states, or "".
        in_use: The versions that the devices run.
        evidence: What the maker adds.
    """

    fleet: str
    keyed: bool
    questions: tuple[FleetQuestion, ...]
    policy: Policy
    policy_file: str
    promised: Guarantee
    consent: Consent
    hosts: tuple[str, ...]
    files: tuple[BoardFile, ...]
    at: datetime.datetime
    interval_s: float | None
    firmware_version: str
    in_use: VersionsInUse
    evidence: Evidence

    @property
    def current_questions(self) -> tuple[FleetQuestion, ...]:
        """Questions that boards are asked today."""
        return tuple(q for q in self.questions if q.is_asked)

    @property
    def owners(self) -> tuple[str | Phrase, ...]:
        """The owners of all questions, each once."""
        owners: list[str | Phrase] = []
        for q in self.questions:
            owners += [q.owner] if q.owner not in owners else []
        return tuple(owners)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Questions whose files do not state how long counts are kept."""
        return tuple(q.name for q in self.questions if q.keep == words.UNDECIDED)


def read(
    store: Store,
    fleet: str,
    folder: FleetFolder | None,
    firmware: Path,
    at: datetime.datetime,
    evidence: Evidence = Evidence(),
) -> FleetFacts:
    """Read a fleet's facts.

    Args:
        store: The store.
        fleet: The fleet's name.
        folder: The fleet's folder, if there is one.
        firmware: A Python file with the boards' POLICY, or the policy as .json.
        at: The current time, UTC.
        evidence: What the maker adds.

    Raises:
        StatementError: Something is missing.
        UsageError: If no open group lists a vulnerable version.
        PolicyError: If the policy cannot be read.
        StoreError: If the store cannot be read.
    """
    policy, facts = policies.read(firmware), Facts(store, at)
    check_readable(facts.unreadable(fleet))  # a statement covers every experiment
    participation = store.participation(fleet)
    selected = [facts.selected(Selection(name, fleet)) for name in facts.names(fleet)]
    questions = [_question(of, policy, participation.get(of.selection.experiment)) for of in selected]
    questions = [q for q in questions if q.is_asked or q.reports]
    if not questions:
        raise StatementError(f"fleet {fleet} has no questions: add one with `hushmote experiment add`")
    for q in questions:
        _check(q, policy, firmware)
    return FleetFacts(
        fleet,
        store.fleets()[fleet],
        tuple(questions),
        policy,
        firmware.name,
        policies.guarantee_of(policy),
        consent_of(folder, policy, firmware),
        () if folder is None else folder.fleet.hosts,
        board_contents(firmware, [q.version for q in questions if q.is_asked]),
        at,
        policies.number_constant(firmware, "INTERVAL_S"),
        policies.text_constant(firmware, "VERSION"),
        read_versions(facts, fleet, policy, evidence.vulnerable),
        evidence,
    )


def _question(selected: Selected, policy: Policy, sent: Participation | None) -> FleetQuestion:
    now, versions = selected.facts.at, selected.versions
    version = next((v for v in versions if v.current), selected.newest)
    described = [version, *sorted(versions, key=lambda v: -v.serial)]
    descriptions = {
        name: next((getattr(v, name) for v in described if getattr(v, name)), "") for name in _WORDS
    }
    is_asked, experiment = version.published_on(now.date()), version.experiment
    endless = experiment.window == "all"  # such an experiment cannot have `keep`
    for name, text in descriptions.items():
        if not text and is_asked and name != "keep":
            raise StatementError(
                f"{selected.selection.experiment} of fleet {version.fleet} has no {name}: put {_WORDS[name]}"
                " into its experiment file and run `hushmote experiment add` again"
            )
    hours = None if endless else kept_hours(descriptions["keep"])
    keep = words.ENDLESS if endless else words.UNDECIDED
    if hours is not None:
        keep = words.storage_period(hours * 3600, experiment.window)
    report_limit = reports_in_budget(experiment)
    lifetime = policy.remaining_reports(experiment.epsilon)
    return FleetQuestion(
        replace(version, owner=descriptions["owner"], purpose=descriptions["purpose"], unit=selected.unit),
        is_asked,
        digest_of(version),
        datetime.datetime.fromtimestamp(min(v.first_serial for v in versions), datetime.UTC).date(),
        keep,
        lifetime if report_limit is None else min(report_limit, lifetime),
        selected.reports,
        sent.devices if sent else 0,
        sum(v.erased for v in versions),
        overview(selected.facts, selected.selection).all_windows if selected.reports else None,
    )


def digest_of(version: Version) -> str:
    """Return the SHA-256, in hex, of a version's question and of its texts in a statement."""
    words = [str(version.expires), version.unit, version.purpose, version.owner, version.keep]
    return hashlib.sha256(version.payload + json.dumps(words).encode()).hexdigest()


_WORDS = {"owner": 'owner = "..."', "purpose": 'purpose = "..."', "keep": 'keep = "400d"'}


def _check(question: FleetQuestion, policy: Policy, firmware: Path) -> None:
    """Raise StatementError if boards would refuse the question: its numbers would apply to no one."""
    e = question.version.experiment
    is_accepted = e.name in policy.experiments and e.rule in policy.rules and e.epsilon <= policy.epsilon
    is_accepted &= not e.group or e.group in policy.groups
    if question.is_asked and not is_accepted:
        raise StatementError(
            f"boards with the POLICY of {firmware} refuse {e.name}: give their actual firmware with --policy"
        )


def consent_of(folder: FleetFolder | None, policy: Policy, firmware: Path) -> Consent:
    """Return how people consent; by default boards ask, and send nothing until someone says yes."""
    because = "" if folder is None else folder.fleet.consent
    button, light = (policies.has_pin(firmware, name) for name in ("BUTTON", "LED"))
    network, each = policy.consent_from == "network", policy.ask == "each"
    id_at = policies.text_constant(firmware, "ID_AT")
    return Consent(bool(because), because, network, each, button, light, id_at)


def board_contents(firmware: Path, versions: Sequence[Version]) -> tuple[BoardFile, ...]:
    """Return the files of a board with this firmware and these experiments.

    If the firmware file contains only a policy, the application is unknown and left out.
    """
    is_application = policies.is_application(firmware)
    with refusing(StatementError, f"read {firmware}"):
        main = (firmware if is_application else flash.EXAMPLE).read_bytes()
    needed = {str(path): path for v in versions for path in board_files.needed_files(v.experiment).values()}
    contents = flash.sources(main, further_files([*needed], flash.MODULES))
    contents |= {"umqtt/simple": umqtt.bundled()}
    files = {f"/lib/{module}": content for module, content in contents.items()}
    files |= {"/main": main} if is_application else {}
    return tuple(BoardFile(p, len(c), hashlib.sha256(c).hexdigest()) for p, c in files.items())


def check_keys(store: Store, fleet: str, fleet_keys: keys.FleetKeys | None) -> None:
    """Raise StatementError unless these are the keys of the keyed fleet."""
    where = "its folder, or its key files with --master-key and --signing-key"
    if fleet_keys is None:
        raise StatementError(f"fleet {fleet} has keys, so its statement must be signed: give {where}")
    try:
        keys.check_masters(fleet_keys, fleet, store.master_checks().get(fleet))
    except keys.MasterKeyError:
        raise StatementError(
            f"these are not the keys of fleet {fleet} in {store.where}: give {where}"
        ) from None
