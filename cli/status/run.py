"""The implementation of `hushmote status`."""

import dataclasses
import datetime
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...server.answers import second_epsilon
from ...server.answers import tables as show
from ...server.answers.query import Facts, Selection
from ...server.answers.windows import due
from ...server.budgets import policy
from ...server.errors import HushmoteError, UsageError, refusing
from ...server.estimate import plausibility
from ...server.ingest.broker_url import is_nats
from ...server.overview.aggregator import ask, check_url
from ...server.overview.fleets import overview
from ...server.overview.watch import StoreState
from ...server.plain import plain
from ...server.plain_text import visible
from ...server.store.counting import clock_fault
from ...server.store.database import affects_whole_store
from ...server.store.erase import unfinished_erasures
from ...server.store.store import Store, Version
from ...server.store.versions import UnreadableExperiment, check_readable, newest_versions
from ...server.words.epsilon import rounded_up
from ..broker import connection, settings
from ..options import print_json
from .follow import SnapshotReader, follow
from .picture import conclusion, contents

_MAX_BOARDS = 20
_KINDS = {True: "keyed", False: "open"}


def live(store: str, aggregator: str | None, once: str | Path | None, *, as_json: bool) -> bool:
    """Draw a store's status until Ctrl-C, or return False without a terminal.

    Args:
        store: The store.
        aggregator: URL of the aggregator's endpoint, or None.
        once: A source that is read only once, or None.
        as_json: Whether JSON was requested.
    """
    url = None if aggregator is None else check_url(aggregator)
    if as_json or not show.out.is_terminal:
        return False
    if once is not None:
        raise UsageError("--broker and --policy are read only once; omit --follow")
    follow(store, url)
    return True


def run(
    store: Store,
    aggregator: str | None,
    broker: str | None,
    firmware: Path | None,
    *,
    as_json: bool,
    privacy: bool,
    verbose: bool,
) -> None:
    """Print the status of a store and its boards.

    Args:
        store: The store.
        aggregator: URL of the aggregator's endpoint, or None.
        broker: URL of the broker, for its boards' status, or None.
        firmware: The firmware file with the boards' policy, or None.
        as_json: Print JSON.
        privacy: Also print each ε.
        verbose: Also print the versions and the rejected reports by reason.

    Raises:
        StoreError: After the rest was printed, if an experiment cannot be read here.
    """
    url = None if aggregator is None else check_url(aggregator)
    board_policy = None if firmware is None else policy.read(firmware)
    facts = Facts(store)
    fleets, rejects = store.fleets(), store.rejects()
    lines, unreadable = _lines(facts) if as_json or privacy or verbose else ([], [])
    snapshot = None if as_json else SnapshotReader().read(store, StoreState("ready", "", 0), facts)
    boards = None if broker is None else _boards(broker, list(fleets))
    health = None if url is None else ask(url)
    if snapshot is None:
        fleet_rows = [{"fleet": name, "reports": _KINDS[keyed]} for name, keyed in fleets.items()]
        with store.reading() as opened:
            unfinished = unfinished_erasures(opened)
        clock = clock_fault(datetime.datetime.now(datetime.UTC), store.last_time())
        document: dict[str, Any] = {"fleets": fleet_rows, "experiments": lines, "rejected": rejects}
        document |= {"unfinished_erasures": unfinished, "clock": clock and str(clock)}
        store_overview = overview(store, facts.at)
        counting_at = store_overview.counting_at
        document["counting_at"] = counting_at and counting_at.isoformat()
        urgent = [e for e in store_overview.urgent_first() if e.problems()]
        document["unreadable"] = [
            {"fleet": e.fleet, "experiment": e.name, "problem": e.words} for e in unreadable
        ]
        document["attention"] = [
            {"fleet": e.fleet, "experiment": e.name, "problems": e.problems()} for e in urgent
        ]
        if boards is not None:
            document["devices"] = boards
        if board_policy is not None:
            document["policy"] = plain(board_policy)
        if health is not None:
            document["aggregator"] = health.to_dict()
        print_json(document)
        check_readable(unreadable)
        return
    snapshot = dataclasses.replace(snapshot, health=health, at=None)
    show.out.print(contents(snapshot))
    if privacy:
        show.out.print()
        _show_epsilons(lines)
    if verbose:
        show.out.print()
        _show_versions(lines)
        counts = [
            (name or "(unknown)", reason, n)
            for name, reasons in rejects.items()
            for reason, n in reasons.items()
        ]
        _print("rejected", ("fleet", "reason", "reports"), 2, counts)
    if boards is not None:
        _show_boards(boards)
    for note in policy.notes(board_policy) if board_policy is not None else ():
        show.out.print(note)
    show.out.print(conclusion(snapshot))
    assert snapshot.overview is not None
    failures = (_failure(*name, words) for name, words in snapshot.errors.items())
    check_readable([*snapshot.overview.unreadable, *failures])


def _print(
    title: str, headings: Sequence[str], words: int, rows: Iterable[Iterable[object]], none: str = ""
) -> None:
    """Print rows as a table whose first `words` columns are texts, or print `none` if it has no rows."""
    table = show.table(title, headings, range(words))
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    if table.row_count or none:
        show.out.print(table if table.row_count else none)


def _lines(facts: Facts) -> tuple[list[dict[str, Any]], list[UnreadableExperiment]]:
    """Return the versions as plain values, and the experiments that are left out because they fail."""
    store, lines = facts.store, list[dict[str, Any]]()
    versions, unreadable = store.readable_experiments()
    failures = {(e.fleet, e.name): e for e in unreadable}
    newest, now = newest_versions(versions), datetime.datetime.now(datetime.UTC)
    for v in versions:
        key = v.fleet, v.experiment.name
        try:
            lines.append(_line(facts, v, newest[key].keep, now))
        except HushmoteError as e:  # damaged counts, or a custom mechanism that fails
            if affects_whole_store(e):
                raise
            failures[key] = _failure(*key, visible(str(e)))
    lines = [line for line in lines if (line["fleet"], line["experiment"]) not in failures]
    # Read participation last and once per fleet, so that every counted report has its device even if an
    # aggregator is running.
    participation_by_fleet = {
        fleet: store.participation(fleet) for fleet in {line["fleet"] for line in lines}
    }
    for line in lines:
        participation = participation_by_fleet[line["fleet"]].get(line["experiment"])
        line["devices"] = participation.devices if participation else 0
    return lines, list(failures.values())


def _failure(fleet: str, name: str, words: str) -> UnreadableExperiment:
    return UnreadableExperiment(
        fleet, name, f"experiment {name} of fleet {fleet} cannot be read here: {words}"
    )


def _line(facts: Facts, version: Version, keep: str, now: datetime.datetime) -> dict[str, Any]:
    """Return a version as plain values; its number of devices is filled in later."""
    counts = facts.store.counts(version)
    windows = sorted(facts.reports(version.fleet).get(version.id, ()))
    erased = due(windows, keep, now)
    return {
        "fleet": version.fleet,
        "experiment": version.experiment.name,
        "digest": version.experiment.digest.hex(),
        "current": version.current,
        "reports": int(counts.sum()),
        "windows": len(windows),
        "devices": 0,
        "keep": version.keep or None,
        "erased_reports": version.erased,
        "erased_next": erased.window or None,
        "erased_next_at": erased.time and erased.time.isoformat(),
        "overdue": list(erased.overdue),
        "epsilon": _epsilons(facts, version) if counts.any() else None,
        "plausibility": plausibility.check(version.experiment, counts).to_dict(),
    }


_KEY_COLUMNS = ("fleet", "experiment", "digest")


def _show_versions(lines: list[dict[str, Any]]) -> None:
    rows = [
        [*(line[n] for n in _KEY_COLUMNS), "yes" if line["current"] else "no"]
        + [line[n] for n in ("reports", "windows", "devices")]
        for line in lines
    ]
    _print("accepted", (*_KEY_COLUMNS, "current", "reports", "windows", "devices of the name"), 4, rows)
    for line in lines:
        if line["plausibility"]["implausible"]:
            text = f"implausible: {line['experiment']} {line['digest']} of fleet {line['fleet']}: "
            show.out.print(text + line["plausibility"]["words"], style="red")


def _show_epsilons(lines: list[dict[str, Any]]) -> None:
    """Print both ε values of each version."""
    lines_with_epsilon = [line for line in lines if line["epsilon"]]
    if lines_with_epsilon:
        rows = [
            [*(line[n] for n in _KEY_COLUMNS)]
            + [rounded_up(line["epsilon"][n]) for n in ("report", "newest", "added_up", "all_windows")]
            + [line["epsilon"]["own"]]
            for line in lines_with_epsilon
        ]
        headings = (*_KEY_COLUMNS, "report", "newest window", "windows added", "each seen", "own")
        _print("ε of a report, and of histograms", headings, 3, rows)
        show.out.print(
            f"ε of a histogram is for δ = {lines_with_epsilon[0]['epsilon']['delta']:g} and a device with up "
            f"to `own` reports, and holds {second_epsilon.ENDED}."
        )
    if any(line["epsilon"]["none_holds"] for line in lines_with_epsilon):
        show.out.print(second_epsilon.RUNNING)


def _epsilons(facts: Facts, version: Version) -> dict[str, Any]:
    """Return the ε of a report and of a version's histograms: newest window, sum, all windows."""
    digest = version.experiment.digest.hex()
    epsilons = second_epsilon.overview(
        facts, Selection(version.experiment.name, version.fleet, version=digest)
    )
    return {
        "report": epsilons.added_up.report,
        "delta": epsilons.added_up.delta,
        "own": epsilons.added_up.own,
        "newest_window": epsilons.newest_window,
        "newest": epsilons.newest.histogram,
        "added_up": epsilons.added_up.histogram,
        "all_windows": epsilons.all_windows.histogram,
        "histogram_holds": second_epsilon.ENDED,
        "none_holds": None if epsilons.added_up.histogram is not None else epsilons.added_up.holds,
    }


def _boards(broker: str, fleets: list[str]) -> list[dict[str, Any]]:
    """Return the contents of each board's status topic."""
    from ...server.ingest import device_health  # imported lazily because it takes a tenth of a second

    broker_settings = settings(broker)
    if (
        broker_settings.cert
        and not is_nats(broker_settings.url)
        and _is_first_aggregator(Path(broker_settings.cert))
    ):
        raise UsageError(
            f"{broker_settings.cert} belongs to the aggregator, so the broker would end the aggregator's "
            "connection and drop its queued reports; create another with `hushmote provision rotate "
            "new-aggregator`"
        )
    address, tls = connection(broker)
    health = device_health.read(address, fleets, tls)
    return [
        {"fleet": fleet, "device": device, "readable": board_health is not None}
        | ({} if board_health is None else dataclasses.asdict(board_health))
        for (fleet, device), board_health in sorted(health.items())
    ]


def _is_first_aggregator(path: Path) -> bool:
    """Return whether a certificate is that of `serve`, whose name the broker uses as the client id."""
    from cryptography import x509

    with refusing(UsageError, f"read {path}"):
        pem = path.read_bytes()
    try:
        subject = x509.load_pem_x509_certificate(pem).subject.rfc4514_string()
    except ValueError:
        raise UsageError(f"{path} contains no certificate; it must be a PEM file") from None
    return re.search(r"CN=aggregator_1(,|$)", subject) is not None


def _show_boards(boards: list[dict[str, Any]]) -> None:
    counts: dict[str, Counter[str]] = {}
    unhealthy = []
    for board in boards:
        words = ["boards", *(w for w in ("online", "locked", "fault") if board.get(w))]
        words += ["duplicate id"] if board.get("duplicate") else []
        words += ["unreadable"] if not board["readable"] else []
        words += [f"{kind} {name}" for kind in ("spent", "refused") for name in board.get(kind, ())]
        counts.setdefault(board["fleet"], Counter()).update(words)
        if not board["readable"] or any(board.get(w) for w in ("locked", "fault", "duplicate", "refused")):
            unhealthy.append((board["fleet"], board["device"], ", ".join(words[1:])))
    rows = [
        (fleet, "all" if state == "boards" else state, count)
        for fleet, states in counts.items()
        for state, count in states.items()
    ]
    title = "devices, by published status"
    _print(title, ("fleet", "state", "devices"), 2, rows, "no device has published a status")
    for fleet, device, words in unhealthy[:_MAX_BOARDS]:
        show.out.print(f"board {device} of fleet {fleet}: {words}", markup=False)
    if len(unhealthy) > _MAX_BOARDS:
        show.out.print(f"and {len(unhealthy) - _MAX_BOARDS:,} more; --json lists all", markup=False)
