"""Simulate a fleet before it is built: the estimate from its reports, compared with the truth."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..device.ldp_client import Experiment
from ..planning.written_numbers import ReadingRules
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.rows import CONFIDENCE, Row
from ..server.arrays import Counts, Floats
from ..server.errors import UsageError
from ..server.estimate.estimate import estimate
from ..server.estimate.readings import among_readings
from ..server.experiments.answerable import answerable_questions, require
from ..server.experiments.definition import Definition, load
from ..server.wire.experiments import group_values, parse_experiment
from . import attack as attacks
from . import calls as calling
from . import faithful_parts, vectorised
from .attack import AttackError
from .calls import Reporting
from .convergence import (
    Convergence,
    ConvergenceError,
    PictureContent,
    accumulate,
    fewest_reports,
    follow,
    sizes,
)
from .drift import choose_population, shift_groups
from .faithful import Faults
from .known_truth import Tally, estimate_with_truth
from .planned_case import PlannedError, case_of
from .population import (
    FileRows,
    Population,
    PopulationError,
    record,
    reported_shares,
    rows_of,
    shares_with_reading,
)
from .rollout import default_shares, parse_shares, parse_shifts
from .texts import is_text_type, text_shares
from .worker_pool import THIS_PROCESS, Workers

Advance = Callable[[float], object]
"""Called with the share of the work done since the last call."""

DEVICES = 100_000
MAX_FAITHFUL = 100_000_000  # calls of real clients, which take about an hour
_BATCH = 1 << 22  # number of reports drawn between two calls of advance


@dataclass(frozen=True)
class GroupOutcome:
    """The boards with one value of the experiment's open group, and one statistic of their reports.

    Attributes:
        index: The value's index in the experiment.
        name: The value, or "other".
        statistic: The statistic's name; "" if there are too few reports.
        row: Its estimate and truth; None if there are too few reports.
    """

    index: int
    name: str
    devices: int
    reports: int
    statistic: str = ""
    row: Row | None = None


@dataclass(frozen=True, repr=False)
class SimulatedEstimate(FleetEstimate):
    """A simulated fleet's estimate; its answers include the true values.

    Attributes:
        devices: Number of devices, including fake ones.
        population: The devices' readings, as a spec.
        reporting: The result of the honest devices' calls.
        attack: The fake devices' results, or None.
        convergence: The estimates as the reports arrived, if requested.
        planned: The planned error and the measured one, if the file has a plan.
        purpose: The experiment's purpose.
        rows: Total and blank row counts of the readings' file; None without a file.
        groups: Results by value of the open group, for values that boards have; () without a group.
    """

    devices: int = 0
    population: str = ""
    reporting: Reporting | None = None
    attack: attacks.AttackOutcome | None = None
    convergence: Convergence | None = None
    planned: PlannedError | None = None
    purpose: str = ""
    rows: FileRows | None = None
    groups: tuple[GroupOutcome, ...] = ()


class _Group(NamedTuple):
    """A value of the open group: its index, the boards that have it, and their reports."""

    index: int
    devices: int
    tally: Tally


def simulate(  # noqa: PLR0913 (public, and all arguments but the file have defaults)
    file: Path | str | Definition,
    *,
    devices: int | None = None,
    population: str | None = None,
    readings: str | Path | Iterable[Any] | None = None,
    keep_value: Sequence[float] = (),
    decimal: str = "",
    calls: int | None = None,
    faults: Faults | None = None,
    attack: str | None = None,
    groups: Sequence[str] = (),
    shifts: Sequence[str] = (),
    seed: int | None = None,
    confidence: float = CONFIDENCE,
    convergence: PictureContent | None = None,
    workers: Workers = THIS_PROCESS,
    advance: Advance = lambda more: None,
) -> SimulatedEstimate:
    """Simulate a fleet for an experiment file and estimate from its reports.

    Args:
        file: The experiment's file, or its definition.
        devices: Number of devices, at least 2; default: as planned in the file, otherwise 100,000.
        population: Readings of the devices, such as "normal:21:3" or "file:FILE:COLUMN", see
            drift.choose_population(); default: the planned case.
        readings: Instead of a population, readings to draw from: "FILE:COLUMN", a list, an array, or a data
            frame's column; None and NaN are missing.
        keep_value: Numbers to keep as readings although they look like sensor errors.
        decimal: Decimal separator in the file or the readings, "." or ","; default: detected.
        calls: Number of calls to report() by each device; default: until it has made the reports that its
            budget allows, at most 10.
        faults: Run the real client on every device with these faults, Faults() for none; otherwise reports
            are drawn in NumPy, from the same distribution.
        attack: Codes that a share of the devices sends, such as "promote:30:0.05".
        groups: Shares of the open group's values, such as "2.4.0=0.05"; the others have the newest value
            that is not listed here. Default: 5% have the last value.
        shifts: Changes of readings on boards with a value of the open group, such as "2.4.0=0.03", see
            drift.shift_population().
        seed: Repeats a run exactly.
        confidence: Coverage of the intervals, such as 0.95.
        convergence: Also estimate while the reports arrive; PictureContent() for the largest shares.
        workers: Workers to run real clients; the numbers do not depend on them.
        advance: Called with the share of the work done since the last call.

    Raises:
        UsageError, PopulationError, AttackError, ConvergenceError: If an argument is invalid.
        DefinitionError: If the experiment's file is invalid.
        EstimateError: If there are too few reports.
        WorkersError: If a worker fails.
    """
    for name, value in (("seed", seed), ("devices", devices)):
        if value is not None and (not isinstance(value, int | np.integer) or value < 0):
            raise UsageError(f"{name} must be a whole number, 0 or more, not {value}")
    definition = file if isinstance(file, Definition) else load(Path(file))
    payload = definition.payload()
    experiment = parse_experiment(payload)
    case = case_of(definition)
    if case is not None and population is None and readings is None:
        people, population_words = case.population, case.words
        calls = case.planned.calls if calls is None and case.planned.calls > 1 else calls
    else:
        rules = ReadingRules(tuple(keep_value), decimal)
        people, population_words = _population(definition, population, readings, rules)
    people = shift_groups(people, experiment, parse_shifts(experiment, shifts))
    shares = (parse_shares(experiment, groups, 1) if groups else default_shares(experiment, 1, people))[0]
    devices = devices or (case.planned.devices if case else DEVICES)
    rng = np.random.default_rng(seed)
    forgery, fake_devices, outcome = None, 0, None
    if attack is not None:
        if faults is not None:
            raise AttackError("fake devices do not run the real client; use --attack without --faithful")
        forgery = attacks.parse(experiment, attack)
        fake_devices = round(devices * forgery.share)
        if not 0 < fake_devices < devices - 1:
            raise AttackError(
                f"a share of {forgery.share:g} of {devices:,} devices rounds to 0 or to all of them"
            )
    if convergence is not None and attack is not None:
        raise ConvergenceError("a convergence picture does not support fake devices; omit --attack")
    for choice, option in ((convergence, "the convergence picture"), (attack, "the attack")):
        if choice is not None and answerable_questions(experiment) == {"mean"}:
            require([experiment], "frequencies", f"omit {option}, which is about shares")
    steps = convergence is not None
    if faults is not None:
        rounds = _rounds(experiment, devices, calls, shares)
        clients = faithful_parts.RealClients(
            payload, people, faults, rounds, seed is not None, tuple(shares.tolist())
        )
        reporting, real = faithful_parts.run(clients, devices, seed, calls is not None, workers, advance)
        truth = reported_shares(real.readings[:, :-1].sum(axis=0), int(real.readings[:, -1].sum()))
        by_group = [
            _Group(i, n, Tally(real.readings[i], _counted(experiment, real.codes[real.groups == i])))
            for i, n in enumerate(real.devices.tolist())
            if n
        ]
        grown = accumulate(experiment, real.codes) if steps else [_counted(experiment, real.codes)]
    else:
        reporting, truth, by_group, grown = _vectorised(
            experiment, people, devices - fake_devices, calls, rng, steps, advance, shares
        )
    growth = None
    if convergence is not None:
        growth = follow(
            experiment, grown, truth, unit=definition.unit, confidence=confidence, showing=convergence
        )
        estimates = growth.estimates
    else:
        *_, counts = grown
        if forgery is not None:
            outcome, counts = attacks.run(
                experiment, forgery, fake_devices, reporting.calls, counts, truth, rng
            )
        estimates = among_readings(estimate(experiment, counts))
    true = shares_with_reading(experiment, truth)
    return SimulatedEstimate(
        estimates,
        f"{devices:,} simulated devices",
        definition.unit,
        confidence,
        true,
        missing_truth=None if experiment.missing is None else float(truth[experiment.missing]),
        rows=rows_of(people),
        texts=text_shares(people) if is_text_type(experiment.type) else None,
        devices=devices,
        population=population_words,
        reporting=reporting,
        attack=outcome,
        convergence=growth,
        purpose=definition.purpose,
        groups=tuple(_outcome(experiment, people, definition.unit, group) for group in by_group)
        if experiment.group
        else (),
        planned=None
        if case is None or attack
        else case.error(estimates, true, population is not None or readings is not None),
    )


def _population(
    definition: Definition,
    spec: str | None,
    readings: str | Path | Iterable[Any] | None,
    rules: ReadingRules,
) -> tuple[Population, str]:
    """Return the devices' readings, and what they are in words."""
    if readings is None:
        return choose_population(definition, spec, rules)
    if spec is not None:
        raise UsageError("give either a population or readings, not both")
    if isinstance(readings, str | Path):
        return choose_population(definition, f"file:{readings}", rules)
    people = record(readings, definition.type, definition.labels or (), rules)
    return people, f"readings drawn from {len(people.readings):,}"


def _counted(experiment: Experiment, codes: Counts) -> Counts:
    return np.bincount(codes, minlength=experiment.code_count)


def _vectorised(
    experiment: Experiment,
    people: Population,
    devices: int,
    calls: int | None,
    rng: np.random.Generator,
    steps: bool,
    advance: Advance,
    shares: Floats,
) -> tuple[Reporting, Floats, list[_Group], Iterable[Counts]]:
    """Return the result of the calls, the truth, the groups, and the growing histogram.

    The truth is taken over all calls to report(), or with `steps` or an open group, over the reports. The
    groups' histograms are complete once the growing histogram is.
    """
    sizes_of_groups = enumerate(rng.multinomial(devices, shares).tolist())
    parts = {i: calling.draw(experiment, n, calls, rng, i) for i, n in sizes_of_groups if n}
    reporting = calling.total(list(parts.values()))
    of = people.indices(experiment)
    chances = {i: people.of_group(i).probabilities(experiment) for i in parts}
    batches = [*range(_BATCH, reporting.reports, _BATCH), reporting.reports]
    ends = sizes(reporting.reports, fewest_reports(experiment)) if steps else batches
    reports_of_groups = [part.reports for part in parts.values()]
    batch_counts = [
        {i: rng.multinomial(n, chances[i]) for i, n in zip(parts, batch, strict=True)}
        for batch in _mixed(reports_of_groups, np.diff([0, *ends]).tolist(), rng)
    ]
    groups = [
        _Group(
            i,
            part.devices,
            Tally(
                np.sum([batch[i] for batch in batch_counts], axis=0),
                np.zeros(experiment.code_count, np.int64),
            ),
        )
        for i, part in parts.items()
    ]
    readings = np.sum([group.tally.readings for group in groups], axis=0)
    if not steps and not experiment.group:
        readings = readings + rng.multinomial(reporting.readings - reporting.reports, chances[0])

    def grown() -> Iterator[Counts]:
        counts = np.zeros(experiment.code_count, np.int64)
        for batch in batch_counts:
            for group in groups:
                readings_of_group = batch[group.index]
                codes = vectorised.histogram(
                    experiment, readings_of_group[:-1], rng, no_reading=int(readings_of_group[-1]), of=of
                )
                np.add(group.tally.codes, codes, out=group.tally.codes)
                counts += codes
            advance(sum(float(n.sum()) for n in batch.values()) / max(1, reporting.reports))
            yield counts

    return reporting, reported_shares(readings[:-1], int(readings[-1])), groups, grown()


def _mixed(reports: Sequence[int], batches: Sequence[int], rng: np.random.Generator) -> Iterator[list[int]]:
    """Yield each group's number of reports in each batch, if the groups' reports arrive in random order."""
    if len(reports) == 1:
        yield from ([n] for n in batches)
        return
    calling.check_reports(sum(reports) + 1)  # NumPy needs fewer than the limit
    waiting = np.array(reports)
    for n in batches:
        batch = rng.multivariate_hypergeometric(waiting, n)
        waiting -= batch
        yield batch.tolist()


def _outcome(experiment: Experiment, people: Population, unit: str, group: _Group) -> GroupOutcome:
    statistic, row = estimate_with_truth(experiment, people, unit, group.tally) or ("", None)
    name = group_values(experiment)[group.index] if experiment.group else ""
    return GroupOutcome(group.index, name, group.devices, group.tally.reports, statistic, row)


def _rounds(experiment: Experiment, devices: int, calls: int | None, shares: Floats) -> int:
    """Return the number of calls per real client; raise PopulationError if they would take too long."""
    if calls is None:
        calls = max(calling.usual_calls(experiment, i) for i in np.flatnonzero(shares).tolist())
    if devices * calls > MAX_FAITHFUL:
        raise PopulationError(
            f"--faithful makes {devices * calls:,} calls, more than the {MAX_FAITHFUL:,} allowed; "
            "use fewer devices or --calls, or omit --faithful"
        )
    return calls
