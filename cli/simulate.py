"""`hushmote simulate`: a fleet before it is built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..server.answers import tables
from ..server.answers.answer import coverage
from ..server.experiments import words
from ..simulator.attack import AttackOutcome
from ..simulator.convergence import ConvergenceError, Showing
from ..simulator.faithful import Faults
from ..simulator.population import PopulationError
from ..simulator.simulate import simulate as run
from . import tables as columns
from .options import AsJson, check_picture, print_json


def simulate(
    file: Annotated[Path, typer.Argument(help="TOML file of the experiment.")],
    devices: Annotated[int, typer.Option(help="Number of devices.", min=2)] = 100_000,
    spec: Annotated[
        str | None,
        typer.Option("--population", help="Such as normal:21:3, zipf:1.2, uniform:0:40, weights:1:2:7."),
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="FILE:COLUMN of readings, drawn from with replacement.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Write the reports of some days into this store, by its SQLAlchemy URL."),
    ] = None,
    days: Annotated[int | None, typer.Option(help="Whole days before today, with --store.")] = None,
    fleet: Annotated[
        str | None,
        typer.Option(help="With --store: a fleet whose name begins with sim.", show_default="simulated"),
    ] = None,
    calls_per_day: Annotated[
        float | None,
        typer.Option(help="With --store: calls of each device to report().", show_default="from the budget"),
    ] = None,
    drift: Annotated[
        float | None,
        typer.Option(help="With --store: how much the readings, or the first label's share, move a day."),
    ] = None,
    calls: Annotated[int, typer.Option(help="Calls to report() of each device.", min=1)] = 1,
    faithful: Annotated[
        bool, typer.Option("--faithful", help="Run the real client on every device, about 2,000 a second.")
    ] = False,
    offline: Annotated[float, typer.Option(help="Faithful: chance of losing the connection.")] = 0.0,
    duplicate: Annotated[float, typer.Option(help="Faithful: chance of sending a report twice.")] = 0.0,
    late: Annotated[float, typer.Option(help="Faithful: share of devices that send only at the end.")] = 0.0,
    reboot: Annotated[float, typer.Option(help="Faithful: chance of a restart.")] = 0.0,
    attack: Annotated[
        str | None,
        typer.Option(help="Fake devices: random, promote:VALUE, shift:LOW:HIGH or flood:VALUE (one code)."),
    ] = None,
    attackers: Annotated[float, typer.Option(help="Share of the devices that are fake.")] = 0.05,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, or a label.")
    ] = None,
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of a number's histogram at most.", min=1)] = 16,
    seed: Annotated[
        int | None, typer.Option(help="Repeat a run exactly; without it every run differs.", min=0)
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the histogram as a PNG.")] = None,
    plot_convergence: Annotated[
        Path | None, typer.Option(help="Write a picture of the estimates as the reports come in.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a fleet before it is built: what would be estimated, beside the truth."""
    if store is not None:
        from .simulate_days import fill_store

        fill_store(file, store, fleet, devices, spec, input, days, calls_per_day, drift, seed, as_json)
        return
    check_picture(plot_convergence, ConvergenceError)
    faults = None
    if faithful:
        try:
            faults = Faults(offline=offline, duplicate=duplicate, late=late, reboot=reboot)
        except ValueError as e:
            raise PopulationError(str(e)) from None
    elif offline or duplicate or late or reboot:
        raise PopulationError(
            "offline, duplicate, late and reboot need --faithful: only real clients have faults"
        )
    estimate = run(
        file,
        devices=devices,
        population=spec,
        input=input,
        calls=calls,
        faults=faults,
        attack=attack,
        attackers=attackers,
        seed=seed,
        convergence=Showing(ranges or (), quantiles or ()) if plot_convergence else None,
    )
    experiment = estimate.experiment
    answers = [estimate.histogram(rows)]
    if ranges:
        answers.append(estimate.share(*ranges))
    if quantiles:
        answers.append(estimate.quantile(*quantiles))
    if experiment.type == "number":
        answers.append(estimate.mean())
    covered, known = coverage(answers)
    if plot:
        tables.plot(plot, experiment, answers[0])
    if estimate.convergence:
        estimate.convergence.plot(plot_convergence)
    if as_json:
        result = {
            "experiment": experiment.name,
            "devices": devices,
            "reports": estimate.reports,
            "seed": seed,
        }
        result |= {one.kind: [row.to_dict() for row in one.rows] for one in answers}
        result |= {"intervals": known, "intervals_that_hold_the_truth": covered}
        if estimate.attack:
            result["attack"] = estimate.attack.to_dict()
        if estimate.convergence:
            result["convergence"] = estimate.convergence.to_dict()
        print_json(result)
        return
    tables.out.print(
        f"{experiment.name}: {devices:,} devices, {estimate.reports:,} reports; {words.mechanism(experiment)}"
    )
    tables.answers(answers)
    tables.out.print(f"{covered} of {known} intervals hold the truth")
    if estimate.attack:
        _show_attack(estimate.attack)
    for path in (plot, plot_convergence):
        if path:
            tables.out.print(f"plot: {path}")


def _show_attack(outcome: AttackOutcome) -> None:
    headings = ("", "true %", "honest est. %", "est. %", "gain", "in theory")
    table = columns.table(f"attack: {outcome.kind}", headings, no_wrap=True)
    shares = (outcome.truth, outcome.honest, outcome.attacked)
    gains = (outcome.gain, outcome.theory)
    table.add_row(outcome.target, *(f"{x * 100:.2f}" for x in shares), *(f"{x * 100:+.2f}" for x in gains))
    tables.out.print()
    tables.out.print(table)
    tables.out.print(
        f"{outcome.fake_devices:,} fake devices sent {outcome.forged:,} of {outcome.reports:,} reports"
        f" ({outcome.share * 100:.2f} %)"
    )
    if outcome.uncapped != outcome.theory:
        tables.out.print(f"without the cap, in theory: {outcome.uncapped * 100:+.2f}")
    seen = outcome.plausibility
    chance = "" if seen.p is None else f" (p {seen.p:.2g})" if seen.p else " (p below 1e-300)"
    tables.out.print(f"detection: {seen.words}{chance}")
