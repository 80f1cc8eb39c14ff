"""A fleet before it is built: the estimate that its reports would give, beside the truth."""

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
from ..server.experiments.asking import answers_of, require
from ..server.experiments.definition import Definition, load
from ..server.wire.experiments import parse_experiment
from . import attack as attacks
from . import calls as calling
from . import faithful_parts, vectorised
from .attack import AttackError
from .calls import Reporting
from .convergence import Convergence, ConvergenceError, Showing, accumulated, fewest_reports, follow, sizes
from .crew import THIS_PROCESS, Workers
from .drift import chosen
from .faithful import Faults
from .planned import PlannedError, case_of
from .population import FileRows, Population, PopulationError, reported_shares, rows_of, shares_with_reading
from .texts import of_texts, text_shares

Advance = Callable[[float], object]
"""Told how much more of the work is done, in parts of 1."""

DEVICES = 100_000
MOST_FAITHFUL = 100_000_000  # calls of real clients, about an hour
_BATCH = 1 << 22  # reports drawn between two steps of progress


@dataclass(frozen=True, repr=False)
class SimulatedEstimate(FleetEstimate):
    """The estimate of a simulated fleet; its answers have the truth beside each value.

    devices: how many there were, fake ones among them. held: what they held, as a spec.
    reporting: what became of the calls of those that are not fake. attack: what those came to, None without
    any. convergence: the estimates as the reports came in, where they were asked for. planned: the planned
    error beside the measured one, of a file that keeps what it was planned for. purpose: why it is asked.
    rows: of the file that the readings are from, and how many have none; None without a file.
    """

    devices: int = 0
    held: str = ""
    reporting: Reporting | None = None
    attack: attacks.AttackOutcome | None = None
    convergence: Convergence | None = None
    planned: PlannedError | None = None
    purpose: str = ""
    rows: FileRows | None = None


def simulate(  # noqa: PLR0913 (public, and all but the file have defaults)
    file: Path | str | Definition,
    *,
    devices: int | None = None,
    population: str | None = None,
    calls: int | None = None,
    faults: Faults | None = None,
    attack: str | None = None,
    seed: int | None = None,
    confidence: float = CONFIDENCE,
    convergence: Showing | None = None,
    workers: Workers = THIS_PROCESS,
    advance: Advance = lambda more: None,
) -> SimulatedEstimate:
    """Simulate a fleet of an experiment file and estimate what its reports say.

    devices: 2 or more; without it what the file was planned for, else 100,000. population: what they hold,
    such as "normal:21:3" or "file:FILE:COLUMN", see drift.chosen(); without it the planned case.
    calls: calls to report() of each device; without it each makes the reports that its budget holds, 10 at
    most. faults: run the real client on every device with these, Faults() for none;
    otherwise reports are drawn in NumPy, from the same distribution. attack: what a share of the devices
    sends, such as "promote:30:0.05". seed: repeat a run exactly. convergence: also estimate while the
    reports come in, Showing() for the largest shares. workers: what runs real clients; the numbers are the
    same. advance: told how much more of the work is done, in parts of 1.

    Raises UsageError, DefinitionError, PopulationError, AttackError, ConvergenceError, EstimateError or
    WorkersError with one line.
    """
    for name, given in (("seed", seed), ("devices", devices)):
        if given is not None and (not isinstance(given, int | np.integer) or given < 0):
            raise UsageError(f"{name} is a whole number, 0 or more, not {given}")
    definition = file if isinstance(file, Definition) else load(Path(file))
    payload = definition.payload()
    experiment = parse_experiment(payload)
    case = case_of(definition)
    if case is not None and population is None:
        people, held = case.population, case.words
        calls = case.planned.calls if calls is None and case.planned.calls > 1 else calls
    else:
        people, held = chosen(definition, population)
    devices = devices or (case.planned.devices if case else DEVICES)
    rng = np.random.default_rng(seed)
    forgery, fake, outcome = None, 0, None
    if attack is not None:
        if faults is not None:
            raise AttackError("fake devices do not run the real client: --attack is without --faithful")
        forgery = attacks.parse(experiment, attack)
        fake = round(devices * forgery.share)
        if not 0 < fake < devices - 1:
            raise AttackError(f"of {devices:,} devices, {forgery.share:g} are none, or all of them")
    if convergence is not None and attack is not None:
        raise ConvergenceError("a picture of convergence has no fake devices: it is without --attack")
    for asked, option in ((convergence, "the picture of convergence"), (attack, "the attack")):
        if asked is not None and answers_of(experiment) == {"mean"}:
            require([experiment], "frequencies", f"leave {option} out, which is about shares")
    steps = convergence is not None
    if faults is not None:
        rounds = _rounds(experiment, devices, calls)
        clients = faithful_parts.RealClients(payload, people, faults, rounds, repeatable=seed is not None)
        reporting, truth, codes = faithful_parts.run(
            clients, devices, seed, calls is not None, workers, advance
        )
        whole = np.bincount(codes, minlength=experiment.code_count)
        grown = accumulated(experiment, codes) if steps else [whole]
    else:
        reporting, truth, grown = _vectorised(experiment, people, devices - fake, calls, rng, steps, advance)
    growth = None
    if convergence is not None:
        growth = follow(
            experiment, grown, truth, unit=definition.unit, confidence=confidence, showing=convergence
        )
        estimates = growth.estimates
    else:
        *_, counts = grown
        if forgery is not None:
            outcome, counts = attacks.run(experiment, forgery, fake, reporting.calls, counts, truth, rng)
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
        texts=text_shares(people) if of_texts(experiment.type) else None,
        devices=devices,
        held=held,
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
    """What was reported, the truth, and the growing histogram.

    The truth is that among all calls to report(); where steps are looked at, that among the reports.
    """
    made = calling.draw(experiment, devices, calls, rng)
    chances, of = people.probabilities(experiment), people.indices(experiment)
    batches = [*range(_BATCH, made.reports, _BATCH), made.reports]
    ends = sizes(made.reports, fewest_reports(experiment)) if steps else batches
    held = [rng.multinomial(n, chances) for n in np.diff([0, *ends]).tolist()]
    readings = np.sum(held, axis=0)
    if not steps:
        readings = readings + rng.multinomial(made.readings - made.reports, chances)

    def grown() -> Iterator[Counts]:
        counts = np.zeros(experiment.code_count, np.int64)
        for batch in held:
            counts += vectorised.histogram(experiment, batch[:-1], rng, no_reading=int(batch[-1]), of=of)
            advance(float(batch.sum()) / max(1, made.reports))
            yield counts

    return made, reported_shares(readings[:-1], int(readings[-1])), grown()


def _rounds(experiment: Experiment, devices: int, calls: int | None) -> int:
    """Calls of each real client; PopulationError for more than can be waited for."""
    rounds = calling.usual_calls(experiment) if calls is None else calls
    if devices * rounds > MOST_FAITHFUL:
        raise PopulationError(
            f"--faithful makes {devices * rounds:,} calls of real clients, more than {MOST_FAITHFUL:,}: "
            "take fewer devices or --calls, or leave --faithful out"
        )
    return rounds
