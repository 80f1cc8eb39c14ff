"""Simulate a fleet before it is built: the estimate from its reports, compared with the truth."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.rows import CONFIDENCE
from ..server.arrays import Counts, Floats
from ..server.errors import UsageError
from ..server.estimate.estimate import estimate
from ..server.estimate.readings import among_readings
from ..server.experiments.answerable import answerable_questions, require
from ..server.experiments.definition import Definition, load
from ..server.wire.experiments import parse_experiment
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
from .drift import choose_population
from .faithful import Faults
from .planned_case import PlannedError, case_of
from .population import FileRows, Population, PopulationError, reported_shares, rows_of, shares_with_reading
from .texts import is_text_type, text_shares
from .worker_pool import THIS_PROCESS, Workers

Advance = Callable[[float], object]
"""Called with the share of the work done since the last call."""

DEVICES = 100_000
MAX_FAITHFUL = 100_000_000  # calls of real clients, which take about an hour
_BATCH = 1 << 22  # number of reports drawn between two calls of advance


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
    """

    devices: int = 0
    population: str = ""
    reporting: Reporting | None = None
    attack: attacks.AttackOutcome | None = None
    convergence: Convergence | None = None
    planned: PlannedError | None = None
    purpose: str = ""
    rows: FileRows | None = None


def simulate(  # noqa: PLR0913 (public, and all arguments but the file have defaults)
    file: Path | str | Definition,
    *,
    devices: int | None = None,
    population: str | None = None,
    calls: int | None = None,
    faults: Faults | None = None,
    attack: str | None = None,
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
        calls: Number of calls to report() by each device; default: until it has made the reports that its
            budget allows, at most 10.
        faults: Run the real client on every device with these faults, Faults() for none; otherwise reports
            are drawn in NumPy, from the same distribution.
        attack: Codes that a share of the devices sends, such as "promote:30:0.05".
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
    if case is not None and population is None:
        people, population_words = case.population, case.words
        calls = case.planned.calls if calls is None and case.planned.calls > 1 else calls
    else:
        people, population_words = choose_population(definition, population)
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
        rounds = _rounds(experiment, devices, calls)
        clients = faithful_parts.RealClients(payload, people, faults, rounds, repeatable=seed is not None)
        reporting, truth, codes = faithful_parts.run(
            clients, devices, seed, calls is not None, workers, advance
        )
        whole = np.bincount(codes, minlength=experiment.code_count)
        grown = accumulate(experiment, codes) if steps else [whole]
    else:
        reporting, truth, grown = _vectorised(
            experiment, people, devices - fake_devices, calls, rng, steps, advance
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
        planned=None if case is None or attack else case.error(estimates, true, population is not None),
    )


def _vectorised(
    experiment: Experiment,
    people: Population,
    devices: int,
    calls: int | None,
    rng: np.random.Generator,
    steps: bool,
    advance: Advance,
) -> tuple[Reporting, Floats, Iterable[Counts]]:
    """Return the result of the calls, the truth, and the growing histogram.

    The truth is taken over all calls to report(), or with `steps`, over the reports.
    """
    reporting = calling.draw(experiment, devices, calls, rng)
    chances, of = people.probabilities(experiment), people.indices(experiment)
    batches = [*range(_BATCH, reporting.reports, _BATCH), reporting.reports]
    ends = sizes(reporting.reports, fewest_reports(experiment)) if steps else batches
    batch_counts = [rng.multinomial(n, chances) for n in np.diff([0, *ends]).tolist()]
    readings = np.sum(batch_counts, axis=0)
    if not steps:
        readings = readings + rng.multinomial(reporting.readings - reporting.reports, chances)

    def grown() -> Iterator[Counts]:
        counts = np.zeros(experiment.code_count, np.int64)
        for batch in batch_counts:
            counts += vectorised.histogram(experiment, batch[:-1], rng, no_reading=int(batch[-1]), of=of)
            advance(float(batch.sum()) / max(1, reporting.reports))
            yield counts

    return reporting, reported_shares(readings[:-1], int(readings[-1])), grown()


def _rounds(experiment: Experiment, devices: int, calls: int | None) -> int:
    """Return the number of calls per real client; raise PopulationError if they would take too long."""
    rounds = calling.usual_calls(experiment) if calls is None else calls
    if devices * rounds > MAX_FAITHFUL:
        raise PopulationError(
            f"--faithful makes {devices * rounds:,} calls, more than the {MAX_FAITHFUL:,} allowed; "
            "use fewer devices or --calls, or omit --faithful"
        )
    return rounds
