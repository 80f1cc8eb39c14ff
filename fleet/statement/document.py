"""A fleet's statement as plain values, signed or unsigned, and the checks of `hushmote statement verify`."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from ...server.errors import refusing
from ...server.wire import keys, topics
from ...server.wire.topics import NameRefused
from ...server.words import label as words
from ...server.words.label import Disclosure, Language, Phrase
from ..provisioning import flash
from . import page
from .fleet_facts import FleetFacts, FleetQuestion, StatementError
from .tables import chapters, registry

FORMAT = "hushmote statement 1"
_BOARD_PATH = re.compile(r"/(?:lib/)?([a-z0-9_]+|umqtt/simple)")


Paragraph: TypeAlias = Sequence[Phrase]


def label(facts: FleetFacts, *, public: bool) -> dict[str, list[Paragraph]]:
    """Return the label: five questions, each with a short answer.

    Args:
        facts: The fleet's facts.
        public: Leave out counts.
    """
    named = facts.current_questions or facts.questions
    phrases = [words.question(q.name, q.purpose, q.version.experiment, q.version.unit, q.most) for q in named]
    times = _group_by(((q.version.expires, q.is_asked, q.keep), q) for q in facts.questions)
    open_groups = _group_by((q.version.experiment.group, q) for q in named if q.version.experiment.group)
    consent, log = facts.consent, facts.policy.log
    alike = [] if log is None else [words.alike(log.origin, log.witnesses, log.need)]
    return {
        words.ASKED: [
            *([phrase] for phrase in phrases),
            *([phrase] for phrase in alike),
            [Phrase.of("hidden")],
        ],
        words.WHO: [words.who(facts.owners, facts.hosts), [Phrase.of("seen")]],
        words.LEARN: [
            *([words.open_group(_names(each), group)] for group, each in open_groups),
            [words.GUESS],
            *([phrase] for phrase in _disclosure(facts, named, public)),
        ],
        words.LONG: [*([words.retention(_names(each), *time)] for time, each in times), [words.IDS]],
        words.STOP: [
            words.consent(
                consent.given, consent.because, consent.network, consent.each, consent.button, consent.light
            ),
            words.stop_sentences(consent.button, consent.light),
            words.erasure_sentences(facts.owners, consent.id_at),
        ],
    }


def _disclosure(facts: FleetFacts, named: Sequence[FleetQuestion], public: bool) -> list[Phrase]:
    """Return sentences on what reports reveal: as planned, one by one, at the device's limit, in counts."""
    life = Disclosure(facts.promised.epsilon, facts.promised.delta)
    plans = [min(q.planned, life, key=lambda loss: loss.epsilon) for q in named]
    phrases = [words.planned_disclosure(q.name, q.most, loss) for q, loss in zip(named, plans, strict=True)]
    total = Disclosure(sum(loss.epsilon for loss in plans), sum(loss.delta for loss in plans))
    if len(facts.current_questions) > 1 and total.epsilon < life.epsilon:
        phrases.append(words.total_planned_disclosure(total))
    several = _group_by((q.epsilon, q) for q in named if q.most > 1)
    phrases += [words.report_disclosure(_names(each), epsilon) for epsilon, each in several]
    phrases.append(words.limit(life))
    if public:
        phrases.append(words.counts_disclosure(_names(named), 0, None))
    for q in named:
        if q.epsilons is not None and not public:
            epsilons = q.epsilons
            loss = None if epsilons.histogram is None else Disclosure(epsilons.histogram, epsilons.delta)
            phrases.append(words.counts_disclosure([q.name], epsilons.reports, loss))
    return [*phrases, Phrase.of("together")]


def _names(questions: Iterable[FleetQuestion]) -> tuple[str, ...]:
    return tuple(q.name for q in questions)


def _group_by(pairs: Iterable[tuple[Any, FleetQuestion]]) -> list[tuple[Any, list[FleetQuestion]]]:
    groups: list[tuple[Any, list[FleetQuestion]]] = []
    for common, question in pairs:
        same = [questions for other, questions in groups if other == common]
        if same:
            same[0].append(question)
        else:
            groups.append((common, [question]))
    return groups


def document(facts: FleetFacts, *, public: bool = False, language: Language = "en") -> dict[str, Any]:
    """Return the whole statement, unsigned, as plain values for JSON.

    Args:
        facts: The fleet's facts.
        public: Include only the label, the files and each question's digest, without counts, so that anyone
            may have it.
        language: The language of the label; tables for experts are in English.
    """
    write = words.words_in(language).write
    paragraphs = {
        write(Phrase.of(question)): [" ".join(map(write, phrases)) for phrases in answers]
        for question, answers in label(facts, public=public).items()
    }
    digests = {"asked": {q.name: q.digest for q in facts.current_questions}}
    return {
        "format": FORMAT,
        "fleet": facts.fleet,
        "made_at": facts.at.isoformat(timespec="seconds"),
        "hushmote": version("hushmote"),
        "consent": asdict(facts.consent),
        "language": language,
        "label": paragraphs,
        **(digests if public else {"chapters": chapters(facts), "registry": registry(facts)}),
        "micropython": facts.evidence.micropython,
        "board_files": [asdict(file) for file in facts.files],
    }


def sign(statement: dict[str, Any], fleet_keys: keys.FleetKeys | None) -> dict[str, Any]:
    """Sign a statement with the key that signs the fleet's experiments; None for an open fleet.

    Raises:
        StatementError: If that key is missing.
    """
    if fleet_keys is None:
        why = f"fleet {statement['fleet']} is open and has no signing key: nobody vouches for this statement"
        return {"statement": statement, "unsigned": why}
    if fleet_keys.signing is None:
        raise StatementError("a statement needs the signing key, which is missing: give --signing-key")
    signature = keys.sign_document(fleet_keys.signing, topics.statement_topic(statement["fleet"]), statement)
    return {
        "statement": statement,
        "announce_key": fleet_keys.announce_key.hex(),
        "signature": signature.hex(),
    }


def verify(path: Path, announce_key: bytes | None = None) -> list[str]:
    """Check a statement's signature and its files' hashes; return a line for each check.

    A board file that is not in this package is looked up next to the statement.

    Args:
        path: The statement.
        announce_key: The fleet's announce key; None checks with the key in the statement, which anyone could
            have made.

    Raises:
        StatementError: If the statement is damaged, altered, unsigned or signed with another key, or its
            files are different.
    """
    whole, files = _read(path)
    if "unsigned" in whole:
        raise StatementError(f"{path} is unsigned: nobody can tell whether it was altered")
    statement, signer = whole["statement"], bytes.fromhex(whole["announce_key"])
    if announce_key not in (None, signer):
        raise StatementError(
            f"{path} is signed with another key, {signer.hex()}, than the announce key of fleet "
            f"{statement['fleet']}: someone else made it"
        )
    lines = [
        f"signed for fleet {statement['fleet']} on {statement['made_at']}, unchanged, by the announce key",
        signer.hex(),
    ]
    return lines + [_compare_file(path, name, sha256) for name, sha256 in files]


def fleet_of(path: Path) -> str:
    """Return the fleet that a statement names; raise StatementError if the file is damaged."""
    fleet: str = _read(path)[0]["statement"]["fleet"]
    return fleet


def read_public(path: Path) -> dict[str, Any]:
    """Read a public statement, signed or unsigned, as sign() returned it.

    Raises:
        StatementError: If the file is damaged or altered, or contains counts.
    """
    whole, _ = _read(path)
    if "chapters" in whole["statement"] or "asked" not in whole["statement"]:
        raise StatementError(
            f"{path} contains counts: make a public one with `hushmote statement write --public`"
        )
    try:
        page.html(whole)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise _damaged(path) from None
    return whole


def _damaged(path: Path) -> StatementError:
    return StatementError(f"{path} is not a statement, or is damaged: use the file that was published")


def _read(path: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Read a statement, check its signature if it has one, and return it with its board files' hashes."""
    with refusing(StatementError, f"read {path}"):
        content = path.read_bytes()
    try:
        whole = json.loads(content)
        statement, fleet = whole["statement"], topics.check_fleet(whole["statement"]["fleet"])
        files = [(_BOARD_PATH.fullmatch(f["path"])[1], f["sha256"]) for f in statement["board_files"]]  # type: ignore[index]
        if "unsigned" in whole:
            return whole, files
        by, signature = bytes.fromhex(whole["announce_key"]), bytes.fromhex(whole["signature"])
        is_whole = keys.is_document_signed(by, topics.statement_topic(fleet), statement, signature)
    except (NameRefused, ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(path) from None
    if not is_whole:
        raise StatementError(f"{path} was altered after it was signed, or signed with another key")
    return whole, files


def _compare_file(path: Path, name: str, sha256: str) -> str:
    """Compare a board's file with the one in this package or next to the statement; return a line."""
    module = f"{name}.py"
    ours = flash.EXAMPLE.parent / module
    neighbour = path.with_name(Path(module).name)
    for file in (ours, neighbour):
        if file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256:
            return f"{name}: as {'in this package' if file == ours else file}, SHA-256 {sha256}"
    if module == "main.py" or not ours.exists():
        raise StatementError(
            f"{name} is not the file that {path} names: put the firmware's {module} next to it"
        )
    raise StatementError(
        f"{name} of this package is not the one that {path} names: install the version it states"
    )
