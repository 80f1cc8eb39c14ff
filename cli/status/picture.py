"""The display of `hushmote status` as lines for terminals of 45 columns or more, without any I/O."""

import datetime
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from rich.cells import set_cell_size
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from ...fleet.results.result import Result
from ...server.answers.rows import Row
from ...server.answers.tables import sparkline
from ...server.overview.aggregator import AggregatorHealth
from ...server.overview.fleets import ExperimentOverview, FleetOverview, StoreOverview, state_words
from ...server.overview.watch import StoreState
from ...server.plain_text import shorten, visible
from ...server.wire.limits import kept_hours
from ...server.words.numbers import counted, format_estimate, is_too_wide, time_since

MAX_LISTED = 20
"""The number of experiments that are shown with their findings, and of fleets of which none is."""

_MAX_LABELS = 5
_LABEL = 12  # columns
_BAR = 20
_WATCHING = (
    "Someone watching live counts can see individual reports, but learns no more from the counts than "
    "from the reports themselves."
)
_EXACT = "95 of 100 such intervals contain the truth."
_Name = tuple[str, str]  # fleet, experiment


@dataclass(frozen=True)
class Snapshot:
    """The data to draw: the states of the store and the aggregator, and the store's contents if readable.

    Attributes:
        results, rates: Values by fleet and experiment; rates are reports per second, and empty until known.
        errors: Why there is no result, by fleet and experiment.
        privacy: Sentences on how much the reports can reveal at most, or "" without reports or if unknown.
        at: When the store was last read, UTC, or None to leave it out.
        now: The current time, UTC.
        where: The store's path, or its URL without the password.
    """

    state: StoreState
    health: AggregatorHealth | None = None
    overview: StoreOverview | None = None
    results: Mapping[_Name, Result] = field(default_factory=dict)
    rates: Mapping[_Name, float] = field(default_factory=dict)
    errors: Mapping[_Name, str] = field(default_factory=dict)
    at: datetime.datetime | None = None
    where: str = ""
    privacy: str = ""
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))

    @property
    def selection(self) -> Set[_Name]:
        """The experiments to show, by fleet and experiment."""
        return self.results.keys() | self.errors.keys()


def picture(snapshot: Snapshot) -> Group:
    """Return the whole display, for a terminal of any width."""
    return Group(contents(snapshot), conclusion(snapshot))


def contents(snapshot: Snapshot) -> Group:
    """Return the health of the aggregator and the contents of the store."""
    lines: list[Text | Padding] = []
    if snapshot.health is not None:
        color = "yellow" if snapshot.health.needs_attention else "green"
        lines.append(Text(snapshot.health.words, "red" if snapshot.health.problem else color))
        if snapshot.health.certificates:
            lines.append(Text(snapshot.health.certificates))
    if snapshot.overview is None:
        lines.append(Text(_sentence(snapshot.state.words), "bold red"))
    else:
        at = "" if snapshot.at is None else f", updated {_age(snapshot.at, snapshot)}"
        count = f"{counted(snapshot.overview.reports)} in {visible(snapshot.where)}{at}"
        lines.append(Text(count, "bold"))
        if snapshot.overview.counting_at is not None:
            lines.append(
                Text(f"Counting last worked {_age(snapshot.overview.counting_at, snapshot)}.", "dim")
            )
        if snapshot.overview.clock:
            lines.append(
                Text(_sentence(f"nothing is counted with this clock: {snapshot.overview.clock}"), "bold red")
            )
        if not snapshot.overview.fleets:
            lines.append(
                Text("There is no fleet yet. Add one with hushmote experiment add FILE --fleet NAME.")
            )
        lines += [Text(_sentence(e.words), "bold red") for e in snapshot.overview.unreadable[:MAX_LISTED]]
        if (more := len(snapshot.overview.unreadable) - MAX_LISTED) > 0:
            lines.append(Text(f"{counted(more, 'more experiment')} cannot be read here.", "bold red"))
        lines += _attention(snapshot.overview)
        skipped = _skipped_fleets(snapshot)
        for fleet in snapshot.overview.fleets:
            if fleet not in skipped:
                lines += _fleet(fleet, snapshot)
        if skipped:
            experiments = [e for fleet in skipped for e in fleet.experiments]
            words = f"{counted(len(skipped), 'other fleet')} with {_total(experiments, 'experiment')}"
            lines += [Text(), Text(words, "bold cyan")]
        lines += [Text(r.words(), "yellow") for r in snapshot.overview.rejects]
        lines += [Text(_sentence(line), "yellow") for line in snapshot.overview.unfinished]
    return Group(*lines)


def _age(then: datetime.datetime, snapshot: Snapshot) -> str:
    return time_since(then.timestamp(), snapshot.now.timestamp())


def _attention(store_overview: StoreOverview) -> list[Text]:
    """Return how many experiments need attention, if there are too many to show all."""
    total = len(store_overview.experiments)
    if total <= MAX_LISTED:
        return []
    urgent = sum(bool(e.problems()) for e in store_overview.experiments)
    needs = "needs" if urgent < 2 else "need"
    words = f"{f'{urgent:,}' if urgent else 'None'} of {total:,} experiments {needs} attention. "
    first = ", these first" if urgent else ""
    words += (
        f"{MAX_LISTED} are shown{first}; `hushmote experiment list` lists the {total - MAX_LISTED:,} others "
        "too, and --json shows all."
    )
    return [Text(words, "yellow" if urgent else "green")]


def _skipped_fleets(snapshot: Snapshot) -> tuple[FleetOverview, ...]:
    """Return the fleets to sum up in one line, because there are many and nothing of them is shown."""
    assert snapshot.overview is not None
    fleets = snapshot.overview.fleets
    if len(fleets) <= MAX_LISTED:
        return ()
    names = {fleet for fleet, _ in snapshot.selection}
    return tuple(f for f in fleets if f.name not in names and all(r.harmless for r in f.rejects))


def _total(experiments: Sequence[ExperimentOverview], noun: str) -> str:
    return f"{counted(len(experiments), noun)} and {counted(sum(e.reports for e in experiments))}"


def conclusion(snapshot: Snapshot) -> Group:
    """Return the last lines on privacy, precision and the next command, if there are any."""
    if not snapshot.privacy:
        return Group()
    lines = [f"Privacy: {snapshot.privacy} {_WATCHING}"]
    if experiments_with_finding := [name for name, result in snapshot.results.items() if result.finding]:
        fleet, experiment = experiments_with_finding[0]
        assert snapshot.overview is not None  # it has results
        is_only = len({e.fleet for e in snapshot.overview.experiments}) == 1
        arguments = experiment if is_only else f"{experiment} --fleet {fleet}"
        lines += [
            f"How exact: {_EXACT}",
            f"Next: `hushmote estimate {arguments}` shows the estimates in full.",
        ]
    return Group(Text(), *(Text(line, "dim") for line in lines))


def _fleet(fleet: FleetOverview, snapshot: Snapshot) -> list[Text | Padding]:
    kind = "keyed, so only its devices can report" if fleet.keyed else "open, so anyone can forge reports"
    lines: list[Text | Padding] = [Text(), Text(f"Fleet {fleet.name}: {kind}", "bold cyan")]
    if not fleet.experiments:
        lines.append(Padding(Text("There are no experiments."), (0, 0, 0, 2)))
    names = snapshot.selection
    experiments = [e for e in fleet.experiments if (e.fleet, e.name) in names]
    for e in sorted(experiments, key=lambda e: not e.problems()):
        lines += [Padding(line, (0, 0, 0, 2), expand=False) for line in _experiment(e, snapshot)]
    if others := [e for e in fleet.experiments if (e.fleet, e.name) not in names]:
        words = _total(others, "other experiment" if experiments else "experiment")
        lines.append(Padding(Text(words, "dim"), (0, 0, 0, 2)))
    lines += [Text(r.words(), "dim" if r.harmless else "yellow") for r in fleet.rejects]
    return lines


def _experiment(e: ExperimentOverview, snapshot: Snapshot) -> list[Text]:
    name = e.fleet, e.name
    result, rate = snapshot.results.get(name), snapshot.rates.get(name)
    count = counted(e.reports)
    zone = f" ({e.calendar.day})" if e.calendar.is_local else ""
    count += "" if e.today is None else f", {e.today:,} today{zone}"
    count += "" if rate is None else f", {rate:,.1f} a second"
    lines = [Text.assemble((e.name, "bold"), f"  {count}")]
    if e.purpose:
        lines.append(Text(e.purpose, "dim"))
    if result is None:
        lines.append(Text(_sentence(snapshot.errors[name]), "bold red"))
    elif result.finding:
        lines.append(Text(result.finding, "bold"))
    if e.state != "current" or not e.reports:
        lines.append(Text(state_words(e), "dim"))
    for kind, words in e.problems().items():
        lines.append(Text(words, "bold red" if kind == "implausible" else "yellow"))
    lines += [] if result is None else _statistics(result)
    if e.keep or e.erased:
        lines.append(Text(_describe_retention(e), "dim"))
        if e.due.time is not None:
            time = f"{e.calendar.local(e.due.time):%Y-%m-%d %H:%M} {e.calendar.zone_name}"
            window = f"{e.due.window}{' (UTC)' * e.calendar.is_local}"
            lines.append(Text(f"Data of {window} will be deleted next, on {time}.", "dim"))
    return lines


def _describe_retention(e: ExperimentOverview) -> str:
    """Describe how long data is kept and how much has been deleted so far."""
    have_been = "has been" if e.erased == 1 else "have been"
    deleted = f"{counted(e.erased)} {have_been} deleted so far"
    hours = kept_hours(e.keep)
    if hours is None:
        return f"{deleted}."
    age = counted(hours // 24, "day") if hours % 24 == 0 else counted(hours, "hour")
    return f"Data older than {age} is deleted; {deleted if e.erased else 'nothing has been deleted so far'}."


def _statistics(result: Result) -> list[Text]:
    """Return lines with the mean, or with the shares and small bars; both with intervals."""
    if not result.statistics:
        if not (result.note and result.reports):
            return []
        # Keep the experiment's name in lower case.
        starts_with_name = result.note.startswith(f"{result.experiment} ")
        return [Text(_with_full_stop(result.note) if starts_with_name else _sentence(result.note), "dim")]
    rows = [row for row in result.statistics.values() if not is_too_wide(row.half_width, _extent(result))]
    if result.type == "number":
        lines = [_line(result, row) for row in rows[:1]]
        lines += [Text(_bars(result), "cyan")] if result.histogram and rows else []
    else:
        largest = sorted(rows, key=lambda row: -row.value)[:_MAX_LABELS]
        lines = [_line(result, row) for row in largest]
    return lines


def _extent(result: Result) -> float:
    """Return the range of the readings if the histogram gives it, or 1 for shares."""
    ends = [end for bar in result.histogram for end in (bar.lower, bar.upper) if end is not None]
    return 1.0 if result.type != "number" else max(ends) - min(ends) if ends else math.inf


def _line(result: Result, row: Row) -> Text:
    unit = None if result.quantity == "share" else result.unit
    text = ", ".join(filter(None, format_estimate(row.value, row.low, row.high, unit)))
    if unit is None:
        name = set_cell_size(shorten(row.name, _LABEL), _LABEL)
        bar = "█" * round(_BAR * min(1, max(0, row.value)))
        return Text.assemble((f"{name} {bar}".rstrip(), "cyan"), f" {text}")
    return Text(f"{row.name} {text} ({result.confidence:.0%})")


def _bars(result: Result) -> str:
    """Return a number's histogram as one line with two columns per bar, between the ends of its range."""
    bars = "".join(2 * block for block in sparkline([bar.value for bar in result.histogram], 0.0))
    if not bars:
        return ""
    low, high = result.histogram[0].lower, result.histogram[-1].upper
    return f"{low:g} {bars} {high:g}" if low is not None and high is not None else bars


def _sentence(words: str) -> str:
    return _with_full_stop(f"{words[:1].upper()}{words[1:]}")


def _with_full_stop(words: str) -> str:
    return words + ("" if words.endswith((".", "!", "?")) else ".")
