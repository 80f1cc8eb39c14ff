"""The rule by which a witness signs: one version of a question at a time, and at most one change a day.

Pure functions: they get the entries since the last signature, what the witness remembers of each question,
and the time, and return what to remember next and what forbids a signature.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ...server.errors import HushmoteError
from ...server.log.change import DAY_S, GROUP_ADDITIONS_A_DAY, Change, compare, fault, is_readable
from ...server.log.entry import Entry
from ...server.log.note import ED25519, NoteRefused, PublicKey
from ...server.wrong_value import wrong_toml, wrong_value

Count = Annotated[int, Field(ge=0, strict=True)]
"""A whole number in a state file."""
_Fleet = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,32}$")]


class RuleError(HushmoteError):
    """Raised for a rule file that cannot be used; the message is one line."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    origin: str
    log: str
    fleets: Literal["all"] | list[_Fleet]
    most_fleets: Annotated[int, Field(ge=1, le=1000)] | None = None
    most_names: Annotated[int, Field(ge=1, le=1000)] = 200
    changes_a_day: Annotated[int, Field(ge=1, le=4)] = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits within which a witness signs a log.

    Attributes:
        log: The log's Ed25519 key, whose name is the origin.
        fleets: The fleets that the log may have; None for all.
        most_fleets: The largest number of fleets if all are allowed.
        most_names: The largest number of questions of all fleets, which bounds the state file.
        changes_a_day: The largest number of changes of one question in 24 hours.
    """

    log: PublicKey
    fleets: frozenset[str] | None
    most_fleets: int = 0
    most_names: int = 200
    changes_a_day: int = 1

    @property
    def origin(self) -> str:
        """The log's name."""
        return self.log.name

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule file.

        Raises:
            RuleError: If it is not a rule; the message is one line.
        """
        try:
            file = _File.model_validate(tomllib.loads(text))
            log = PublicKey.parse(file.log)
        except ValidationError as e:
            raise RuleError(_describe(e)) from None
        except NoteRefused as e:
            raise RuleError(f"log: {e}") from None
        except (ValueError, RecursionError) as e:  # tomllib.TOMLDecodeError is a ValueError
            raise RuleError(wrong_toml(text, ValueError(e))) from None
        if log.kind != ED25519 or log.name != file.origin:
            raise RuleError(
                f"log must be the key of {file.origin!r} that `hushmote log key` prints for witnesses, not "
                f"{'one of another type' if log.name == file.origin else f'a key of {log.name!r}'}"
            )
        if (file.fleets == "all") != (file.most_fleets is not None):
            raise RuleError('most_fleets must be given with fleets = "all", and only then')
        fleets = None if file.fleets == "all" else frozenset(file.fleets)
        return cls(log, fleets, file.most_fleets or 0, file.most_names, file.changes_a_day)

    def __str__(self) -> str:
        """Return the rule as a sentence."""
        changes = "one change" if self.changes_a_day == 1 else f"{self.changes_a_day} changes"
        if self.fleets is None:
            scope = f"{self.most_fleets} fleet{'s' * (self.most_fleets != 1)} at most"
        else:
            names = ", ".join(sorted(self.fleets))
            scope = f"the fleet{'s' * (len(self.fleets) > 1)} {names}" if self.fleets else "no fleet"
        return f"one version of a question at a time, at most {changes} of it in 24 hours, for {scope}"


@dataclass(frozen=True, slots=True)
class Record:
    """A witness's memory of one question.

    Attributes:
        question: The JSON of the newest version, also after a withdrawal.
        is_withdrawn: Whether it has been withdrawn since.
        versions: The number of its versions, counting every change.
        changes: Unix times of the signatures that covered its last changes, oldest first.
        additions: The same of the versions that only appended values to its open group.
        serial: The highest serial of its versions and withdrawals; 0 in an open fleet.
    """

    question: bytes
    is_withdrawn: Annotated[bool, Field(strict=True)] = False
    versions: Count = 1
    changes: tuple[Count, ...] = ()
    additions: tuple[Count, ...] = ()
    serial: Count = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason not to sign.

    Attributes:
        text: What is wrong, and what would be right.
        wait_s: After how many seconds it ends by itself; None if a person must decide.
        is_acceptable: Whether a person can accept it without changing the rule.
    """

    text: str
    wait_s: int | None = None
    is_acceptable: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of applying a rule.

    Attributes:
        records: What to remember after signing, by (fleet, name).
        changed: How many versions each question with new versions or withdrawals gained, by "fleet/name".
        problems: The reasons not to sign.
    """

    records: Mapping[tuple[str, str], Record]
    changed: Mapping[str, int]
    problems: tuple[Problem, ...]


def judge(
    rule: Rule,
    records: Mapping[tuple[str, str], Record],
    entries: Sequence[bytes],
    now: int,
    is_accepted: bool = False,
) -> Verdict:
    """Apply a rule to the entries since the last signature.

    A change counts from its signature, by the witness's clock. If that clock is set back, times in the future
    count as changes of today, so it never allows more changes.

    Args:
        rule: The rule.
        records: What the witness remembers.
        entries: The new entries.
        now: Unix time.
        is_accepted: Whether a person has read the entries; then changes have no limit, but fleets do.
    """
    after, problems = dict(records), list[Problem]()
    counts: dict[Change, Counter[tuple[str, str]]] = {change: Counter() for change in Change}
    for data in entries:
        key, change, problem = _apply(rule, after, data, is_accepted)
        if problem:
            problems.append(problem)
        if key and change:
            counts[change][key] += 1
    changes, additions = counts[Change.QUESTION], counts[Change.GROUPS]
    for key in changes.keys() | additions.keys():
        if not is_accepted:
            problems.extend(_limits(rule, records.get(key), key, changes[key], additions[key], now))
        after[key] = replace(
            after[key],
            changes=(*after[key].changes, *[now] * changes[key])[-rule.changes_a_day :],
            additions=(*after[key].additions, *[now] * additions[key])[-GROUP_ADDITIONS_A_DAY:],
        )
    problems.extend(_sizes(rule, after))
    changed = {
        "/".join(key): changes[key] + additions[key]
        for key in sorted(set[tuple[str, str]]().union(*counts.values()))
    }
    return Verdict(after, changed, tuple(dict.fromkeys(problems)))


def _apply(
    rule: Rule, records: dict[tuple[str, str], Record], data: bytes, is_accepted: bool
) -> tuple[tuple[str, str] | None, Change | None, Problem | None]:
    """Apply one entry to the records; return its question, how that changed, and what forbids the entry."""
    try:
        entry = Entry.parse(data)
    except NoteRefused as e:
        return None, None, None if is_accepted else Problem(str(e))
    key = entry.experiment
    fleet = key[0] if key else entry.policy_fleet
    is_withdrawal = key is not None and not entry.question
    if fleet and rule.fleets is not None and fleet not in rule.fleets and not is_withdrawal:
        return (
            None,
            None,
            _outside(
                f"the fleet {fleet} is not in the witness's rule: its operator can add it, after asking why"
            ),
        )
    if key is None:
        return None, None, None
    before, serial = records.get(key), entry.serial
    highest = max(serial or 0, before.serial if before else 0)
    if is_withdrawal:
        if before is None:
            return None, None, None
        records[key] = replace(before, is_withdrawn=True, serial=highest)
        return None if before.is_withdrawn else key, Change.NONE, None
    change = compare(before.question if before else None, entry.question)
    text = fault(entry, change, before.serial if before else -1)
    problem = Problem(f"{'/'.join(key)} {text}") if text and not is_accepted else None
    if not is_readable(entry.question):
        return None, None, problem
    if before is None:
        records[key] = Record(entry.question, serial=highest)
    else:
        versions = before.versions + (change is not Change.NONE)
        records[key] = replace(
            before, question=entry.question, is_withdrawn=False, versions=versions, serial=highest
        )
    return key, change, problem


def _limits(
    rule: Rule, before: Record | None, key: tuple[str, str], changes: int, additions: int, now: int
) -> list[Problem]:
    """Return what forbids this many changes of a question and additions to its groups."""
    name, problems = "/".join(key), list[Problem]()
    if changes > 1:
        problems.append(
            Problem(f"{name} has {changes} versions since the last signature: one at a time is allowed")
        )
    elif wait_s := _wait_s(before.changes if before else (), changes, rule.changes_a_day, now):
        problems.append(
            Problem(f"{name} changes again within 24 hours: at most {rule.changes_a_day} a day", wait_s)
        )
    if additions > GROUP_ADDITIONS_A_DAY:
        problems.append(Problem(f"{name} appends to its groups {additions} times: two are allowed"))
    elif wait_s := _wait_s(before.additions if before else (), additions, GROUP_ADDITIONS_A_DAY, now):
        problems.append(
            Problem(f"{name} appends to its groups again within 24 hours: at most twice a day", wait_s)
        )
    return problems


def _wait_s(times: Sequence[int], more: int, most: int, now: int) -> int:
    """Return after how many seconds `more` events may follow those at these times, `most` in 24 hours."""
    recent = sorted(time for time in times if time > now - DAY_S)
    excess = len(recent) + more - most
    return recent[excess - 1] + DAY_S - now if more and excess > 0 else 0


def _sizes(rule: Rule, records: Mapping[tuple[str, str], Record]) -> list[Problem]:
    problems, fleets = list[Problem](), {fleet for fleet, _ in records}
    if rule.fleets is None and len(fleets) > rule.most_fleets:
        text = f"the log has {len(fleets)} fleets: the rule allows most_fleets = {rule.most_fleets}"
        problems.append(_outside(text))
    if len(records) > rule.most_names:
        text = f"the log has {len(records)} questions: the rule allows most_names = {rule.most_names}"
        problems.append(_outside(text))
    return problems


def _outside(text: str) -> Problem:
    return Problem(text, is_acceptable=False)


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "the file"
    if name == "fleets":
        return 'fleets must be a list of fleets\' names, or "all"'
    if first["type"] == "extra_forbidden":
        return f"{name} is not a field; the fields are {', '.join(_File.model_fields)}"
    return f"{name} {wrong_value(first)}"
