"""The estimate of an experiment in a store, over these windows, these versions and this fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..errors import UsageError
from ..estimate.estimate import Estimates, estimate
from ..estimate.fisher import fisher
from ..estimate.pooling import pool
from ..estimate.statistic import EstimateError
from ..plain_text import visible
from ..store.store import Store, Version

WeighBy = Literal["reports", "variance", "fisher"]
"""What pools versions, see pool(); "fisher" pools by reports, and weighs codes within each, see fisher()."""


@dataclass(frozen=True)
class Selection:
    """Reports that an estimate rests on: an experiment's, of some windows or all, of a version or all.

    version: how the digest begins, in hexadecimal digits; empty for all versions.
    """

    experiment: str
    fleet: str
    windows: tuple[str, ...] = ()
    version: str = ""

    def __str__(self) -> str:
        parts = [f"fleet {self.fleet}", *self.windows]
        return ", ".join(parts + ([f"version {self.version}"] if self.version else []))


class ReportSource(NamedTuple):
    """Where reports were counted: two estimates with a source in common share reports."""

    store: str
    fleet: str
    digest: bytes
    window: str


def versions(store: Store, selection: Selection) -> list[Version]:
    """The selected versions, oldest first; raises UsageError where fleet, name or version is not there."""
    name, fleet = selection.experiment, selection.fleet
    the_name("fleet", fleet, tuple(store.fleets()), "in this store")
    the_name("experiment", name, experiment_names(store, fleet), f"in fleet {fleet}")
    named = [v for v in store.experiments(fleet) if v.experiment.name == name]
    selected = [v for v in named if v.experiment.digest.hex().startswith(selection.version)]
    if not selected:
        digests = ", ".join(v.experiment.digest.hex() for v in named)
        raise UsageError(f"{name} has no version {selection.version}; its versions: {digests}")
    return selected


def unit(store: Store, selection: Selection) -> str:
    """What the selected versions' readings are in: as the newest says that says it, empty where none does."""
    newest_first = sorted(versions(store, selection), key=lambda v: v.serial, reverse=True)
    # A store may come from anybody; on pictures and in JSON nothing else makes control characters visible.
    return visible(next((v.unit for v in newest_first if v.unit), ""))


def experiment_names(store: Store, fleet: str) -> tuple[str, ...]:
    """Names of a fleet's experiments, sorted."""
    return tuple(sorted({v.experiment.name for v in store.experiments(fleet)}))


def the_name(what: str, name: str | None, there: Sequence[str], where: str) -> str:
    """The name, or where it is None the only one there is; UsageError that lists them otherwise."""
    listed = f"its {what}s: {', '.join(there)}" if there else f"it has no {what} yet"
    if name is None:
        if len(there) == 1:
            return there[0]
        raise UsageError(f"name one {what} {where}; {listed}")
    if name not in there:
        raise UsageError(f"no {what} {name} {where}; {listed}")
    return name


def windows(store: Store, selected: Sequence[Version]) -> list[str]:
    """The windows in which any of the versions has reports, oldest first."""
    return sorted({w for v in selected for w in store.windows(v.fleet, v.experiment.digest)})


def read(store: Store, selection: Selection, weigh: WeighBy = "reports") -> Estimates:
    """The estimate of a selection: its windows' histograms added, its versions pooled.

    Raises UsageError where something selected is not there or has too many values for weigh, EstimateError
    where it has fewer than 2 reports or versions do not go together.
    """
    selected = versions(store, selection)
    if selection.windows:
        _asked(selection, windows(store, selected))
    return pooled(store, selected, selection, weigh)


def _asked(selection: Selection, there: Sequence[str]) -> Sequence[str]:
    """The selection's windows, or all; raises EstimateError for one without reports."""
    for window in selection.windows:
        if window not in there:
            raise EstimateError(
                f"{selection.experiment} has no reports in window {window}; "
                + (f"it has {_few(there)}" if there else "no report has been counted yet")
            )
    return selection.windows or there


def pooled(
    store: Store, selected: Sequence[Version], selection: Selection, weigh: WeighBy = "reports"
) -> Estimates:
    """The estimate of versions, in the selection's windows; EstimateError as read()."""
    estimates: list[Estimates] = []
    for version in selected:
        digest = version.experiment.digest
        counts = [store.histogram(version.fleet, digest, w) for w in selection.windows or (None,)]
        total = sum(counts[1:], counts[0])
        if total.sum() >= 2:
            estimates.append((fisher if weigh == "fisher" else estimate)(version.experiment, total))
    if not estimates:
        raise EstimateError(
            f"{selection.experiment} has fewer than 2 reports yet in {selection}: an estimate needs 2"
        )
    if len(estimates) == 1:
        return estimates[0]
    return pool(estimates, by="reports" if weigh == "fisher" else weigh)


def _few(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{len(names)}, {names[0]} to {names[-1]}"


def by_window(store: Store, selection: Selection, weigh: WeighBy = "reports") -> dict[str, Estimates]:
    """Window -> its estimate, oldest first or as selected; without windows of too few reports.

    Raises EstimateError where fewer than 2 are left, otherwise as read().
    """
    estimates: dict[str, Estimates] = {}
    for window in _asked(selection, windows(store, versions(store, selection))):
        one = Selection(selection.experiment, selection.fleet, (window,), selection.version)
        try:
            estimates[window] = read(store, one, weigh)
        except EstimateError:
            continue  # too few reports there: the next window may have more
    if len(estimates) < 2:
        of = "what was chosen has" if selection.windows else f"{selection.experiment} has"
        raise EstimateError(f"a trend needs at least 2 windows with reports; {of} {len(estimates)}")
    return estimates


def sources(store: Store, selection: Selection) -> frozenset[ReportSource]:
    """Where the selected reports were counted."""
    return frozenset(
        ReportSource(store.where, v.fleet, v.experiment.digest, window)
        for v in versions(store, selection)
        for window in selection.windows or store.windows(v.fleet, v.experiment.digest)
    )


def check_apart(before: frozenset[ReportSource], after: frozenset[ReportSource]) -> None:
    """Raise UsageError where reports would be on both sides: a comparison takes them as independent."""
    both = before & after
    if both:
        window = min(source.window for source in both)
        raise UsageError(
            f"reports of {window} would be on both sides: compare windows, versions or fleets that are apart"
        )
