"""`hushmote estimate`: what the fleet says, whether it changed, and how it went over the windows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..device.ldp_client import Experiment
from ..server.answers import answer, moments
from ..server.answers import change as compare
from ..server.answers import tables as show
from ..server.answers.answer import Answer
from ..server.errors import UsageError
from ..server.estimate.estimate import Estimates, estimate
from ..server.estimate.pooling import pool
from ..server.estimate.postprocess import METHODS
from ..server.estimate.statistic import EstimateError, Statistic
from ..server.experiments.units import IndexRange, parse_range
from ..server.store.store import Store, Version
from .options import DEFAULT_STORE, AsJson, FleetName, StoreUrl, print_json


class Weigh(enum.StrEnum):
    """How versions of an experiment are pooled."""

    reports = "reports"
    variance = "variance"


class Method(enum.StrEnum):
    """Post-processing by name."""

    raw = "raw"
    nonnegative = "nonnegative"
    smooth = "smooth"


@dataclass(frozen=True)
class Selection:
    """Reports that an estimate rests on: a fleet's, of some windows or of all, of a version or of all."""

    fleet: str
    windows: tuple[str, ...] = ()
    version: str = ""

    def __str__(self) -> str:
        parts = [f"fleet {self.fleet}", *self.windows]
        return ", ".join(parts + ([f"version {self.version}"] if self.version else []))


@dataclass(frozen=True)
class Question:
    """What is asked of the selected reports, in the experiment's units; see the options."""

    ranges: tuple[IndexRange, ...]
    quantiles: tuple[float, ...]
    top: int
    cdf: bool
    rows: int
    method: Method
    unit: str
    confidence: float


def _versions(store: Store, name: str, chosen: Selection) -> list[Version]:
    if chosen.fleet not in store.fleets():
        raise UsageError(f"there is no fleet {chosen.fleet}; there is {', '.join(store.fleets()) or 'none'}")
    found = [v for v in store.experiments(chosen.fleet) if v.experiment.name == name]
    if not found:
        names = sorted({v.experiment.name for v in store.experiments(chosen.fleet)})
        raise UsageError(
            f"there is no experiment {name} in fleet {chosen.fleet}; there is {', '.join(names) or 'none'}"
        )
    digests = [v.experiment.digest.hex() for v in found]
    matching = [v for v, d in zip(found, digests, strict=True) if d.startswith(chosen.version)]
    if not matching:
        raise UsageError(f"{name} has no version {chosen.version}; it has {', '.join(digests)}")
    return matching


def _windows(store: Store, versions: Sequence[Version]) -> list[str]:
    return sorted({w for v in versions for w in store.windows(v.fleet, v.experiment.digest)})


def _read(store: Store, name: str, chosen: Selection, weigh: Weigh) -> Estimates:
    """The estimate of a selection: its windows' histograms added, its versions pooled."""
    versions = _versions(store, name, chosen)
    there = _windows(store, versions)
    for window in chosen.windows:
        if window not in there:
            raise EstimateError(f"{name} has no reports in window {window}; it has {_few(there)}")
    estimates = []
    for v in versions:
        digest = v.experiment.digest
        counts = [store.histogram(v.fleet, digest, w) for w in chosen.windows or (None,)]
        total = sum(counts[1:], counts[0])
        if total.sum() >= 2:
            estimates.append(estimate(v.experiment, total))
    if not estimates:
        raise EstimateError(f"{name} has no 2 reports yet in {chosen}")
    return estimates[0] if len(estimates) == 1 else pool(estimates, by=weigh.value)


def _few(windows: Sequence[str]) -> str:
    if len(windows) <= 4:
        return ", ".join(windows) or "none"
    return f"{len(windows)}, {windows[0]} to {windows[-1]}"


def _ranges(
    experiment: Experiment, ranges: list[str], above: list[float], below: list[float]
) -> tuple[IndexRange, ...]:
    texts = [*ranges, *(f"{x:g}:" for x in above), *(f":{x:g}" for x in below)]
    if experiment.type != "number" and (above or below):
        raise UsageError(f"--above and --below are for numbers; {experiment.name} is a {experiment.type}")
    return tuple(parse_range(experiment, text) for text in texts)


def _trends(store: Store, name: str, chosen: Selection, weigh: Weigh, asked: Question) -> list[Answer]:
    windows: dict[str, Estimates] = {}
    for window in chosen.windows or _windows(store, _versions(store, name, chosen)):
        try:
            windows[window] = _read(store, name, Selection(chosen.fleet, (window,), chosen.version), weigh)
        except EstimateError:
            continue  # too few reports there: the next window may have more
    if len(windows) < 2:
        raise EstimateError(f"a trend needs at least 2 windows with reports; {name} has {len(windows)}")
    experiment = next(iter(windows.values())).experiment
    wanted = asked.ranges
    if not wanted and experiment.type != "number":
        labels = answer.histogram_ranges(experiment, experiment.domain)
        wanted = labels[1:] if experiment.type == "bool" else labels
    found = []
    if wanted:
        shares: dict[str, Callable[[Estimates], Statistic]] = {
            r.text: partial(Estimates.range, lo=r.low, hi=r.high) for r in wanted
        }
        found.append(compare.trend(windows, shares, "share", asked.unit, asked.confidence))
    if experiment.type == "number":
        means = {"mean": moments.mean}
        found.append(compare.trend(windows, means, "reading", asked.unit, asked.confidence))
    return found


def _changes(before: Estimates, after: Estimates, asked: Question) -> list[Answer]:
    wanted = asked.ranges or answer.histogram_ranges(after.experiment, asked.rows)
    found = [compare.changed_shares(before, after, wanted, asked.unit, asked.confidence)]
    if after.experiment.type == "number":
        readings = compare.changed_readings(before, after, asked.quantiles, asked.unit, asked.confidence)
        found.append(readings)
    return found


def _answers(found: Estimates, asked: Question) -> list[Answer]:
    processed = None if asked.method is Method.raw else METHODS[asked.method](found)
    common = (None, asked.unit, asked.confidence)  # no truth is known
    answers = [answer.histogram(found, asked.rows, *common, processed)]
    if asked.ranges:
        answers.append(answer.ranges(found, asked.ranges, *common, processed))
    if asked.quantiles:
        answers.append(answer.quantiles(found, asked.quantiles, *common))
    if found.experiment.type == "number":
        answers.append(answer.mean_and_deviation(found, *common))
    if asked.top:
        answers.append(answer.most_common(found, asked.top, *common))
    if asked.cdf:
        answers.append(answer.cdf(found, *common))
    return answers


def estimate_command(
    name: Annotated[str, typer.Argument(help="Name of the experiment.")],
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = "home",
    windows: Annotated[
        list[str] | None, typer.Option("--window", help="Such as 2026-11-21; several are added up.")
    ] = None,
    version: Annotated[str, typer.Option(help="One version only: its digest, or how that begins.")] = "",
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, or a label.")
    ] = None,
    above: Annotated[list[float] | None, typer.Option(help="Share at or above, in the unit.")] = None,
    below: Annotated[list[float] | None, typer.Option(help="Share below, in the unit.")] = None,
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None,
    top: Annotated[int, typer.Option(help="The most common values, and how sure that is.", min=0)] = 0,
    cdf: Annotated[bool, typer.Option("--cdf", help="The share below every bin's edge.")] = False,
    rows: Annotated[int, typer.Option(help="Rows of a number's histogram at most.", min=1)] = 16,
    post: Annotated[
        Method, typer.Option(help="Post-processed shares beside the unbiased ones.")
    ] = Method.raw,
    trend: Annotated[bool, typer.Option("--trend", help="One row for each window.")] = False,
    against_window: Annotated[
        list[str] | None, typer.Option(help="What changed since this window, or these.")
    ] = None,
    against_fleet: Annotated[str, typer.Option(help="How it differs from another fleet.")] = "",
    against_version: Annotated[str, typer.Option(help="How it differs from another version.")] = "",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = answer.CONFIDENCE,
    weigh: Annotated[Weigh, typer.Option(help="What pools an experiment's versions.")] = Weigh.reports,
    unit: Annotated[str, typer.Option(help="Written beside readings, such as °C.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Write the first table as a picture.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all tables as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.

    With --trend there is a row for each window; with an --against option, what changed since then, or differs
    from there.
    """
    chosen = Selection(fleet, tuple(windows or ()), version)
    other = None
    if against_window or against_fleet or against_version:
        other = Selection(
            against_fleet or fleet,
            tuple(against_window or ()) or chosen.windows,
            against_version or ("" if against_fleet else version),
        )
    if other == chosen:
        raise UsageError("both sides are the same: name another window, fleet or version to compare with")
    if trend and other:
        raise UsageError("--trend and --against are two questions: ask one at a time")
    with Store(store, create=False) as opened:
        found = _read(opened, name, chosen, weigh)
        experiment = found.experiment
        asked = Question(
            _ranges(experiment, ranges or [], above or [], below or []),
            tuple(quantiles or ()),
            top,
            cdf,
            rows,
            post,
            unit,
            confidence,
        )
        if trend:
            answers = _trends(opened, name, chosen, weigh, asked)
        elif other:
            _check_apart(opened, name, chosen, other)
            answers = _changes(_read(opened, name, other, weigh), found, asked)
        else:
            answers = _answers(found, asked)
    if plot:
        show.plot(plot, experiment, answers[0])
    if csv:
        _write(csv, answer.to_csv(answers))
    if as_json:
        head = {"experiment": name, "selection": str(chosen), "against": other and str(other)}
        head |= {"reports": found.reports, "confidence": confidence, "stderr_method": found.stderr_method}
        print_json(head | {"answers": [one.to_dict() for one in answers]})
        return
    show.out.print(f"{name}: {found.reports:,} reports, {chosen}" + (f"; against {other}" if other else ""))
    show.answers(answers)
    for path in (plot, csv):
        if path:
            show.out.print(f"written: {path}")


def _check_apart(store: Store, name: str, a: Selection, b: Selection) -> None:
    """Raise UsageError where reports would be on both sides: the test takes them as independent."""
    if a.fleet != b.fleet:
        return
    versions = [{v.experiment.digest for v in _versions(store, name, s)} for s in (a, b)]
    if not versions[0] & versions[1]:
        return
    there = _windows(store, _versions(store, name, a))
    both = set(a.windows or there) & set(b.windows or there)
    if both:
        raise UsageError(
            f"reports of {min(both)} would be on both sides: say --window and --against-window, apart"
        )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror}") from None
