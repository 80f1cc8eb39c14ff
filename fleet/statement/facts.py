"""What a fleet's papers rest on: store, policy, the fleet's folder and this package, read once."""

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
from ...server.wire import board_files, keys
from ...server.wire.experiments import reports_in_budget
from ...server.wire.limits import kept_hours
from ...server.words import label as words
from ...server.words.label import Disclosure, Phrase
from ..provisioning import flash, umqtt
from ..provisioning.fleet_folder import FleetFolder
from ..provisioning.further import further_files


class StatementError(HushmoteError):
    """Papers that cannot be made or checked; the text says what is missing, and where it belongs."""


@dataclass(frozen=True)
class FleetQuestion:
    """An experiment of a fleet, all its versions together.

    asked: whether boards are asked today. digest: as digest_of() has it. since: the day on which they first
    were. keep: how long counts are kept. most: reports of a board's life. devices: that reported.
    erased: reports of windows that are no more. epsilons: of a report, and of all ended windows' histograms;
    None before the first report.
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
        """Its name."""
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
        """ε of one report, nats; of versions that differ the largest."""
        own = self.version.experiment.epsilon / MICRO
        return own if self.epsilons is None else max(own, self.epsilons.report)

    @property
    def planned(self) -> Disclosure:
        """The disclosure by all reports of a device that the experiment's budget allows.

        The sum of their ε, or with δ what zero-concentrated privacy makes of many small ones if that is less.
        """
        squares = ZcdpFilter(1.0, USUAL_DELTA).spent(History.equal(round(self.epsilon * MICRO), self.most))
        plain = Disclosure(self.most * self.epsilon)
        return plain if plain.epsilon <= squares.epsilon else Disclosure(squares.epsilon, squares.delta)


@dataclass(frozen=True)
class Consent:
    """How boards come to take part: asked, or by a yes that the owner has already, for a reason.

    network: the policy lets the server start a board. each: each question needs a yes of its own. button,
    light: whether the firmware has one; None if it does not say. id_at: where people find the device's id,
    as the firmware says it; empty if it does not.
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
    """A file that goes onto a board: its path there without .py or .mpy, its source's size and SHA-256."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class FleetFacts:
    """All of it. policy_file: where the policy was read. promised: for all reports of a board's life.

    hosts: of the broker, which a fleet with a folder reaches by TLS; none where there is no folder.
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

    @property
    def current_questions(self) -> tuple[FleetQuestion, ...]:
        """The questions that boards are asked today."""
        return tuple(q for q in self.questions if q.is_asked)

    @property
    def owners(self) -> tuple[str | Phrase, ...]:
        """The owner, as the experiment's file names it."""
        owners: list[str | Phrase] = []
        for q in self.questions:
            owners += [q.owner] if q.owner not in owners else []
        return tuple(owners)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The questions whose files do not say how long counts are kept."""
        return tuple(q.name for q in self.questions if q.keep == words.UNDECIDED)


def read(
    store: Store, fleet: str, folder: FleetFolder | None, firmware: Path, at: datetime.datetime
) -> FleetFacts:
    """Read a fleet's facts. firmware: a Python file with the boards' POLICY, or it as .json; at: now, UTC.

    Raises StatementError for what is missing, PolicyError and StoreError.
    """
    policy, facts = policies.read(firmware), Facts(store, at)
    sent = store.participation(fleet)
    selected = [facts.selected(Selection(name, fleet)) for name in facts.names(fleet)]
    questions = [_question(of, policy, sent.get(of.selection.experiment)) for of in selected]
    questions = [q for q in questions if q.is_asked or q.reports]
    if not questions:
        raise StatementError(f"nothing is asked of fleet {fleet}: `hushmote experiment add` adds a question")
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
    )


def _question(selected: Selected, policy: Policy, sent: Participation | None) -> FleetQuestion:
    now, versions = selected.facts.at, selected.versions
    version = next((v for v in versions if v.current), selected.newest)
    described = [version, *sorted(versions, key=lambda v: -v.serial)]
    descriptions = {
        name: next((getattr(v, name) for v in described if getattr(v, name)), "") for name in _WORDS
    }
    is_asked, experiment = version.published_on(now.date()), version.experiment
    endless = experiment.window == "all"  # it can have no keep
    for name, text in descriptions.items():
        if not text and is_asked and name != "keep":
            raise StatementError(
                f"{selected.selection.experiment} of fleet {version.fleet} says no {name}: put {_WORDS[name]}"
                " into its experiment's file, and give that to `hushmote experiment add` again"
            )
    hours = None if endless else kept_hours(descriptions["keep"])
    keep = words.ENDLESS if endless else words.UNDECIDED if hours is None else words.keeping(hours * 3600)
    own = reports_in_budget(experiment)
    life = policy.remaining_reports(experiment.epsilon)
    return FleetQuestion(
        replace(version, owner=descriptions["owner"], purpose=descriptions["purpose"], unit=selected.unit),
        is_asked,
        digest_of(version),
        datetime.datetime.fromtimestamp(min(v.first_serial for v in versions), datetime.UTC).date(),
        keep,
        life if own is None else min(own, life),
        selected.reports,
        sent.devices if sent else 0,
        sum(v.erased for v in versions),
        overview(selected.facts, selected.selection).all_windows if selected.reports else None,
    )


def digest_of(version: Version) -> str:
    """SHA-256, in hex, of what a version asks and of the words on it that a statement tells."""
    words = [str(version.expires), version.unit, version.purpose, version.owner, version.keep]
    return hashlib.sha256(version.payload + json.dumps(words).encode()).hexdigest()


_WORDS = {"owner": 'owner = "..."', "purpose": 'purpose = "..."', "keep": 'keep = "400d"'}


def _check(question: FleetQuestion, policy: Policy, firmware: Path) -> None:
    """Raise StatementError where boards would refuse what they are asked: its numbers would be nobody's."""
    e = question.version.experiment
    is_accepted = e.name in policy.experiments and e.rule in policy.rules and e.epsilon <= policy.epsilon
    if question.is_asked and not is_accepted:
        raise StatementError(
            f"boards with the POLICY of {firmware} refuse {e.name}: give the firmware they have with --policy"
        )


def consent_of(folder: FleetFolder | None, policy: Policy, firmware: Path) -> Consent:
    """Return how boards come to take part; where nothing is said they ask, and are silent until then."""
    because = "" if folder is None else folder.fleet.consent
    button, light = (policies.has_pin(firmware, name) for name in ("BUTTON", "LED"))
    network, each = policy.consent_from == "network", policy.ask == "each"
    id_at = policies.text_in(firmware, "ID_AT")
    return Consent(bool(because), because, network, each, button, light, id_at)


def board_contents(firmware: Path, versions: Sequence[Version]) -> tuple[BoardFile, ...]:
    """The files that go onto a board with this firmware that is asked these experiments.

    Where the file holds a policy alone, no application is known, and none is named.
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
    """Raise StatementError where these keys are not those of a keyed fleet."""
    where = "its folder, or its key files with --master-key and --signing-key"
    if fleet_keys is None:
        raise StatementError(f"fleet {fleet} signs what it says: give {where}")
    try:
        keys.check_masters(fleet_keys, fleet, store.master_checks().get(fleet))
    except keys.MasterKeyError:
        raise StatementError(
            f"these are not the keys of fleet {fleet} in {store.where}: give {where}"
        ) from None
