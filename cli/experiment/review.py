"""Review a change of an experiment's file: what it means for devices, for people and pull requests."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...device import consent
from ...device.ldp_client import Experiment
from ...server.accounting import Guarantee
from ...server.answers import tables as show
from ...server.budgets.policy import Policy, guarantee_of
from ...server.budgets.policy import read as read_policy
from ...server.epsilon import MICRO
from ...server.errors import UsageError
from ...server.experiments.budget import rule_guarantee
from ...server.experiments.changes import Difference, differences
from ...server.experiments.definition import Definition
from ...server.plain_text import visible
from ...server.store.versions import Version
from ...server.wire.experiments import report_size
from ...server.words import experiment as words
from ...server.words.epsilon import confidence, rounded_up
from ..options import load_experiment, print_json
from .run import changes_table, value_text

_Side = tuple[Version, Guarantee]


@dataclass(frozen=True)
class Review:
    """The changes between two states of an experiment.

    Attributes:
        name: The experiment's name, or POLICY.
        kind: "new", "removed", "new version" of an experiment, "only words", "changed" for a policy, or
            "unchanged".
        changes: The fields that differ, as in the experiment's file; none if it is new or removed.
        privacy: What differs for a device's owner: the fact's name, before and after; "-" for none.
        asks_again: Whether devices with "ask": "each" ask their owners again.
    """

    name: str
    kind: str
    changes: tuple[Difference, ...]
    privacy: tuple[tuple[str, str, str], ...]
    asks_again: bool


def reviews(before: Definition | None, after: Definition | None) -> tuple[Review, ...]:
    """Return the review of an experiment; of two, the removed and the new one, if its name changes."""
    if before is not None and after is not None and before.name != after.name:
        return *reviews(before, None), *reviews(None, after)
    sides = [None if each is None else (_version(each), each.guarantee()) for each in (before, after)]
    return () if sides == [None, None] else (_review(*sides),)


def review_announced(before: bytes | None, after: bytes) -> Review:
    """Return the review of an experiment's JSON as devices get it, compared with an earlier one or None.

    Raises:
        ExperimentRefused: If it cannot be read here.
    """
    sides = [None if each is None else _announced(each) for each in (before, after)]
    return _review(*sides)


def _announced(payload: bytes) -> _Side:
    experiment = Experiment.parse(payload)  # which imports no custom code for bytes from a network
    version = Version(0, "", payload, True, None, experiment)
    return version, rule_guarantee(experiment.rule, experiment.cap, experiment.epsilon)


def _review(before: _Side | None, after: _Side | None) -> Review:
    privacy = _differing(*({} if side is None else _privacy(*side) for side in (before, after)))
    if before is None or after is None:
        shown = before or after
        assert shown is not None  # ensured by the callers
        kind = "new" if before is None else "removed"
        return Review(shown[0].experiment.name, kind, (), privacy, before is None)
    old, new = before[0], after[0]
    changes = differences(old, new)
    kind = "new version" if old.payload != new.payload else "only words" if changes else "unchanged"
    (asked, epsilon), (asks, new_epsilon) = (_question(each.payload) for each in (old, new))
    return Review(new.experiment.name, kind, changes, privacy, asked != asks or new_epsilon > epsilon)


def _differing(before: dict[str, str], after: dict[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Return the facts that differ: the name, before and after."""
    rows = ((name, before.get(name, "-"), after.get(name, "-")) for name in dict.fromkeys([*before, *after]))
    return tuple(row for row in rows if row[1] != row[2])


def _version(definition: Definition) -> Version:
    payload = definition.payload()
    return Version(
        0,
        "",
        payload,
        True,
        definition.expires,
        definition.experiment(),
        **asdict(definition.description()),
    )


def _question(payload: bytes) -> tuple[bytes, int]:
    """Return what a consent covers: the question's hash and its ε, in micro-nats."""
    covered = consent.question(json.loads(payload))
    return covered[:8], int.from_bytes(covered[8:], "big")


def _privacy(version: Version, guarantee: Guarantee) -> dict[str, str]:
    experiment = version.experiment
    nats = experiment.epsilon / MICRO
    facts = {
        "ε of one report": f"{nats:g}",
        "a guess of 10% rises to": f"{confidence(nats)}% at most",
        "ε of all reports": _total(guarantee),
        "budget": words.budget(experiment),
        "bytes of a report": str(report_size(experiment, authenticated=True)),
    }
    return facts | ({"in the clear": words.unprotected(experiment)} if experiment.group else {})


def _total(guarantee: Guarantee) -> str:
    if not math.isfinite(guarantee.epsilon):
        return "unlimited"
    return rounded_up(guarantee.epsilon) + (f", δ = {guarantee.delta:g}" if guarantee.delta else "")


_OUTCOMES = {
    "new": "`{}` is new",
    "removed": "`{0}` is removed: devices report to it until `hushmote experiment withdraw {0}`",
    "policy removed": "`{}` is removed",
    "new version": "`{}` gets a new version",
    "only words": "`{}` changes only in words that devices never see",
    "changed": "`{}` changes for devices that get the new firmware",
    "unchanged": "`{}` is unchanged",
}


def sentences(review: Review) -> Iterator[str]:
    """Yield the sentences that say what a change means."""
    kind = "policy removed" if (review.name, review.kind) == ("POLICY", "removed") else review.kind
    yield _OUTCOMES[kind].format(review.name) + "."
    if review.kind == "new version":
        again = "ask their owners again" if review.asks_again else "do not ask their owners again"
        yield f'Devices that need consent to each question ("ask": "each") {again}.'


def review_policies(before: Policy | None, after: Policy | None) -> Review:
    """Return the review of a firmware's policy."""
    facts = [{} if policy is None else _promise(policy) for policy in (before, after)]
    if before is None or after is None:
        return Review("POLICY", "new" if before is None else "removed", (), _differing(*facts), False)
    values = [_in_nats(policy) for policy in (before, after)]
    changes = tuple(
        Difference(name, old, new) for name, old in values[0].items() if old != (new := values[1][name])
    )
    return Review("POLICY", "changed" if changes else "unchanged", changes, _differing(*facts), False)


def _in_nats(policy: Policy) -> dict[str, Any]:
    scales = {"sum": MICRO, "epsilon": MICRO, "squares": MICRO**2}
    values: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(policy).items()
    }
    return values | {name: values[name] / scale for name, scale in scales.items()}


def _promise(policy: Policy) -> dict[str, str]:
    reports = f"{policy.remaining_reports(policy.epsilon):,} of ε = {policy.epsilon / MICRO:g}"
    return {
        "ε of one report": f"at most {policy.epsilon / MICRO:g}",
        "ε of all reports": _total(guarantee_of(policy)),
        "reports in a lifetime": reports,
        "in the clear": ", ".join(policy.groups) or "-",
        "log": "-" if policy.log is None else f"{policy.log.origin}: {policy.log.words}",
    }


def diff(old: Path, new: Path, as_json: bool, as_markdown: bool) -> None:
    """Print what differs between two states of an experiment's file, or of a file with a POLICY.

    Raises:
        UsageError: If both files are empty, which stands for a missing file.
    """
    given = [path for path in (old, new) if not _is_empty(path)]
    if not given:
        raise UsageError("both files are empty: name an experiment's file")
    if all(path.suffix in (".py", ".json") for path in given):
        found = (review_policies(*(None if _is_empty(path) else read_policy(path) for path in (old, new))),)
    else:
        found = reviews(*(None if _is_empty(path) else load_experiment(path) for path in (old, new)))
    if as_json:
        print_json([asdict(review) for review in found])
    elif as_markdown:
        print("\n\n".join(_markdown(review) for review in found))
    else:
        for number, review in enumerate(found):
            if number:
                show.out.print()
            print_review(review)


def _is_empty(path: Path) -> bool:
    """Return whether a file is empty, as /dev/null is, which git uses for a file that does not exist."""
    return path.exists() and not path.read_bytes().strip()


def print_review(review: Review) -> None:
    """Print what a change means."""
    for sentence in sentences(review):
        show.out.print(sentence)
    if review.changes:
        show.out.print(changes_table(review.changes))
    if review.privacy:
        table = show.table("", ("for devices", "before", "now"), range(3))
        for row in review.privacy:
            table.add_row(*row)
        show.out.print(table)


def _markdown(review: Review) -> str:
    """Return a review as Markdown in which no text of the file acts as markup."""
    parts = [" ".join(sentences(review))]
    changes = [(change.field, *map(value_text, (change.before, change.after))) for change in review.changes]
    for heading, rows in (("change", changes), ("for devices", review.privacy)):
        if rows:
            lines = [f"| {heading} | before | now |", "| --- | --- | --- |"]
            lines += [f"| {' | '.join(map(_literal, row))} |" for row in rows]
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _literal(text: str) -> str:
    """Return Markdown that shows the text, without its markup, links and mentions."""
    return re.sub(r"[^\w\s.,;:()%=·ε-]|[_\n]", lambda found: f"&#{ord(found[0])};", visible(text))
