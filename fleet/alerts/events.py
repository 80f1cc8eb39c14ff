"""Turn what a store contains into alerts; nothing here sends or remembers anything.

All changes of a fleet share one allowance: at most 5 of 100 fleets in which nothing changes ever raise an
alert about a change within a year (estimate/detector.py). So their boundary counts every question that the
fleet has ever asked, over all devices and over each value of an open group.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...server.answers import second_epsilon
from ...server.answers.finding import Finding, comparisons_of, find
from ...server.answers.query import Facts
from ...server.answers.question import Selection
from ...server.answers.releases.first_plan import PlanRequest
from ...server.answers.releases.judge import judge, stored_plans
from ...server.budgets.forecast import SPENT_SHARE
from ...server.budgets.remaining import Remaining
from ...server.errors import HushmoteError
from ...server.experiments.asks import Ask, asks_of
from ...server.ingest.tls import validity
from ...server.plain_text import visible
from ...server.release.verdict import Verdict
from ...server.store.store import Version
from ...server.words.numbers import ENGLISH, counted
from .alert import BEGIN, Alert
from .silence import Arrivals, arrivals

_EVER = datetime.date.min, datetime.date.max
"""The days of an event that a subject can have only once."""
_HALF = 0.5
_BUDGET_AHEAD = datetime.timedelta(days=30)
_MIN_BOARDS = 20  # below, a few devices with no reports left are most of them
_CERTIFICATE_DAYS = (30, 7)
_LIFETIME_PARTS = (3, 10)  # earlier for certificates that are renewed every few weeks or hours


def current_versions(facts: Facts, fleet: str) -> list[Version]:
    """Return the published versions of a fleet's experiments, without those that have expired."""
    return [version for version in facts.versions(fleet) if version.published_on(facts.at.date())]


def count_comparisons(facts: Facts, fleet: str) -> int:
    """Return the comparisons of all questions that a fleet's experiments ask, withdrawn ones too, at least 1.

    Each question counts once over all devices, and once for each value of its open group.
    """
    total = 0
    for name in facts.names(fleet):
        selected = facts.selected(Selection(name, fleet))
        asks: dict[tuple[str, str], Ask] = {}
        for version in selected.versions:
            asks |= {(ask.kind, ask.text): ask for ask in _asks(version)}
        experiment = selected.newest.experiment
        total += comparisons_of(experiment, asks.values()) * (1 + len(selected.group_values))
    return max(total, 1)


def _asks(version: Version) -> Sequence[Ask]:
    try:
        return asks_of(version.experiment, version.asked.splitlines())
    except HushmoteError:  # the questions of an old file may not fit
        return ()


def changes(facts: Facts, fleet: str, comparisons: int) -> Iterator[Alert]:
    """Yield the recent changes of a fleet's current experiments.

    A group's value that is suppressed has no finding, and so no alert.

    Args:
        facts: The contents of the store.
        fleet: The fleet's name.
        comparisons: The number of comparisons that share the allowance.
    """
    for version in current_versions(facts, fleet):
        name = version.experiment.name
        selected = facts.selected(Selection(name, fleet))
        for group in ("", *selected.group_values):
            selection = Selection(name, fleet, group=group)
            boards = facts.selected(selection).boards
            try:
                findings = find(facts, selection, comparisons=comparisons).findings
            except HushmoteError:  # an experiment that cannot be answered changes nothing for the others
                continue
            for finding in findings:
                if finding.change is not None:
                    yield _change(facts, fleet, name, (group, boards), finding)


def _change(facts: Facts, fleet: str, name: str, boards: tuple[str, str], finding: Finding) -> Alert:
    change = finding.change
    assert change is not None
    moved = "is up" if change.size > 0 else "is down"
    scope = ", ".join(filter(None, [fleet, visible(boards[1])]))
    return Alert(
        "change",
        (name, boards[0], finding.question, finding.title),
        f"{visible(finding.title)} {moved}: {name} ({scope})",
        "\n\n".join([finding.sentence, _epsilons(facts, fleet, name)]),
        change.since,
        change.settled,
        fleet,
        name,
        finding.direction,
    )


def _epsilons(facts: Facts, fleet: str, name: str) -> str:
    both = second_epsilon.of_messages(facts, fleet, name)
    return "" if both is None else f"{both.words('what all messages about it show')}"


def releases(facts: Facts, fleet: str) -> Iterator[Alert]:
    """Yield the verdicts on releases whose plans are stored, except "not yet"."""
    try:
        plans = stored_plans(facts, fleet)
    except HushmoteError:
        return
    for plan in plans:
        try:
            judged = judge(facts, fleet, PlanRequest(plan.new), None, group=plan.group)
        except HushmoteError:  # a plan that no longer fits its experiments
            continue
        if judged.verdict is Verdict.NOT_YET:
            continue
        notes = {name: _epsilons(facts, fleet, name) for name in judged.days.experiments}
        parts = [judged.sentence(), *(f"{name}: {note}" for name, note in notes.items() if note)]
        yield Alert(
            "release",
            (plan.group, plan.new),
            f"{str(judged.verdict).capitalize()}: {plan.group} {visible(plan.new)} ({fleet})",
            "\n\n".join(parts),
            *_EVER,
            fleet,
            direction=str(judged.verdict),
        )


@dataclass(frozen=True)
class Reporting:
    """When an experiment's reports last arrived, and the alert if they have stopped."""

    alert: Alert
    arrivals: Arrivals


def reporting(facts: Facts, fleet: str) -> Iterator[Reporting]:
    """Yield when reports to each current experiment last arrived, if there are any."""
    interrupted = facts.store.interrupted_days()
    for version in current_versions(facts, fleet):
        name = version.experiment.name
        counts: dict[str, int] = {}
        for other in facts.versions(fleet):
            if other.experiment.name == name:
                for window, n in facts.reports(fleet).get(other.id, {}).items():
                    counts[window] = counts.get(window, 0) + n
        if (seen := arrivals(counts, facts.at, interrupted)) is not None:
            yield Reporting(_silence(facts, fleet, name, seen), seen)


def _silence(facts: Facts, fleet: str, name: str, seen: Arrivals) -> Alert:
    today, expected = facts.at.date(), ENGLISH.number(seen.missing, 0)
    text = (
        f"No report to {name} of fleet {fleet} has been counted since {_time(seen.last)}, "
        f"although about {expected} were expected. Check whether devices reach the broker, whether the "
        "aggregator does (`hushmote status`), and whether reports are rejected."
    )
    return Alert("silence", (name,), f"No reports: {name} ({fleet})", text, today, today, fleet, name, BEGIN)


def silence_ended(alert: Alert, at: datetime.datetime) -> Alert:
    """Return the alert that reports arrive again."""
    text = f"Reports to {alert.experiment} of fleet {alert.fleet} are arriving again."
    return alert.ended(f"Reports again: {alert.experiment} ({alert.fleet})", text, at.date())


def budget_alerts(fleet: str, lines: Sequence[Remaining], today: datetime.date) -> Iterator[Alert]:
    """Yield the budgets of which little is left; those of questions that are asked only once are meant to be.

    Args:
        fleet: The fleet's name.
        lines: Its budgets.
        today: The current day, UTC.
    """
    for line in lines:
        share, name = line.share_able_to_report, line.budget.experiment.name
        if share is None or line.boards < _MIN_BOARDS:
            continue
        devices = f"the {counted(line.boards, 'device')} that have reported"
        able = f"{ENGLISH.percent(share, 0)} of {devices} can still report"
        if share <= SPENT_SHARE:
            level, text = "spent", f"Only {able}; {name} learns nothing more from the others."
        elif share <= _HALF or (line.half is not None and line.half <= today + _BUDGET_AHEAD):
            days = [(line.half, "half of them"), (line.dry, "all but 5%")]
            ahead = [
                f"{who} will have no reports left on {_date(day)}" for day, who in days if day and day > today
            ]
            rate = f" At the rate of the last 7 days, {' and '.join(ahead)}." if ahead else ""
            level, text = "low", f"{able}.{rate}"
        else:
            continue
        text += " Budgets cannot be refilled: decide whether the answer is precise enough."
        title = f"{'Budget used up' if level == 'spent' else 'Budget nearly used up'}: {name} ({fleet})"
        yield Alert("budget", (name, level), title, text, *_EVER, fleet, name)


def certificate_alert(option: str, path: Path, at: datetime.datetime) -> Alert | None:
    """Return the alert about a certificate that expires soon, or None.

    It is due 30 days and 7 days before, or for a certificate that is valid for less than three months, when
    a third and a tenth of its time remain.

    Args:
        option: The setting that names the file, such as HUSHMOTE_BROKER_CERT.
        path: The file.
        at: The time, UTC.

    Raises:
        CertificateError: If the file contains no certificate.
    """
    start, end = validity(path)
    limits = [
        min(datetime.timedelta(days=days), (end - start) / part)
        for days, part in zip(_CERTIFICATE_DAYS, _LIFETIME_PARTS, strict=True)
    ]
    reached = [days for days, limit in zip(_CERTIFICATE_DAYS, limits, strict=True) if end - at <= limit]
    if not reached:
        return None
    when = f"{'expires' if end > at else 'expired'} on {_date(end)}"
    text = (
        f"The certificate in {path} ({option}) {when}. After that, the broker refuses this aggregator and "
        "queues the reports. Create a new one with `hushmote provision`, and restart the aggregator."
    )
    level = str(reached[-1])
    return Alert("certificate", (option, end.isoformat(), level), f"A certificate {when}", text, *_EVER)


def clock_alert(reason: str, client: str, at: datetime.date) -> Alert:
    """Return the alert that the clock is wrong and reports wait.

    Args:
        reason: ClockWrong.reason.
        client: The name of the aggregator.
        at: The day that the clock shows.
    """
    text = (
        f"The clock of the machine that runs the aggregator {client} is wrong: {reason}. Reports wait at the "
        "broker. Set the clock, or if it is right run `hushmote store clock --accept`."
    )
    return Alert("clock", (client,), f"Wrong clock: {client} counts nothing", text, at, at, direction=BEGIN)


def clock_ended(alert: Alert, client: str, at: datetime.date) -> Alert:
    """Return the alert that reports are counted again."""
    text = f"The clock of the aggregator {client} is right again: reports are counted."
    return alert.ended(f"Clock right again: {client}", text, at)


START_SUBJECT = Alert("start", (), "", "", *_EVER).subject


def started(fleets: Sequence[str], comparisons: int, old: int, at: datetime.date) -> Alert:
    """Return the message that alerts are on.

    Args:
        fleets: The store's fleets.
        comparisons: The number of comparisons that share the largest allowance.
        old: The number of events before now, which are not sent.
        at: The day, UTC.
    """
    about = f"the fleet {fleets[0]}" if len(fleets) == 1 else counted(len(fleets), "fleet")
    before = f" {counted(old, 'event')} before now will not be sent." if old else ""
    text = (
        f"You will get a message when an answer of {about} changes, a release is judged, reports stop, or a "
        f"budget or certificate runs out.{before} Of 100 fleets in which nothing changes, at most 5 a year "
        f"send an alert about a change; {counted(comparisons, 'comparison')} share that allowance."
    )
    return Alert("start", (), "Alerts are on", text, at, at)


def _date(day: datetime.date) -> str:
    return f"{day.day} {day:%b %Y}"


def _time(at: datetime.datetime) -> str:
    return f"{_date(at)} {at:%H:%M} UTC"
