"""`hushmote simulate`: a fleet before it is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ...server.answers import tables
from ...server.answers.answer import Answer, Answers
from ...server.answers.guide import asked_about, half_width
from ...server.answers.rows import coverage
from ...server.errors import UsageError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.asking import require
from ...simulator.convergence import Showing
from ...simulator.faithful import Faults
from ...simulator.population import PopulationError
from ...simulator.simulate import SimulatedEstimate
from ...simulator.simulate import simulate as run
from ...simulator.workers import workers
from .. import output
from ..broker import FILE, URLS, connection
from ..options import AsJson, print_json
from ..output import Results
from ..progress import progress
from ..workers import WhichWorkers
from . import words


def simulate(
    file: Annotated[Path, typer.Argument(help="TOML file of the experiment.")],
    devices: Annotated[
        int | None,
        typer.Option(help="Number of devices.", min=2, show_default="100000; with --publish 20000"),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(
            "--population",
            help="What devices hold: normal:21:3, zipf:1.2, uniform:0:40, weights:1:2:7; texts: "
            "zipf:1:FILE; pairs: file:FILE.",
            show_default="by the experiment's type",
        ),
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(help="FILE:COLUMN of readings, drawn from with replacement.", metavar="FILE:COLUMN"),
    ] = None,
    calls: Annotated[
        int | None,
        typer.Option(
            help="Calls to report() of each device.", min=1, show_default="until its budget is spent"
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, a label, or a text.")
    ] = None,
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of a number's histogram at most.", min=1)] = 16,
    seed: Annotated[
        int | None, typer.Option(help="Repeat a run exactly; without it every run differs.", min=0)
    ] = None,
    results: Results = None,
    plot_convergence: Annotated[
        Path | None,
        typer.Option(help="Write a picture of the estimates as the reports come in.", metavar="FILE"),
    ] = None,
    as_json: AsJson = False,
    faithful: Annotated[
        bool,
        typer.Option("--faithful", help="Run the real client on every device."),
    ] = False,
    offline: Annotated[float, typer.Option(help="Chance of losing the connection, each call.")] = 0.0,
    duplicate: Annotated[float, typer.Option(help="Chance of sending a report twice.")] = 0.0,
    late: Annotated[float, typer.Option(help="Share of devices that send only at the end.")] = 0.0,
    reboot: Annotated[float, typer.Option(help="Chance of a restart, each call.")] = 0.0,
    attack: Annotated[
        str | None,
        typer.Option(help="random, promote:VALUE, shift:LOW:HIGH or flood:VALUE (one code)."),
    ] = None,
    attackers: Annotated[float, typer.Option(help="Share of the devices that are fake.")] = 0.05,
    store: Annotated[
        str | None,
        typer.Option(
            help="Write the reports of some days into this store, by its SQLAlchemy URL.",
            metavar="URL",
        ),
    ] = None,
    publish: Annotated[
        str | None,
        typer.Option(
            help=f"Publish them through this broker, 10 s a day: {URLS}; {FILE}",
            metavar="URL|FILE.toml",
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="Whole days before today, UTC.", show_default="30; with --publish 8"),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(help="A name that begins with sim.", show_default="simulated"),
    ] = None,
    calls_per_day: Annotated[
        float | None,
        typer.Option(
            help="Calls to report() of each device, a day.",
            show_default="uses 2/3 of the budget",
        ),
    ] = None,
    drift: Annotated[
        float | None,
        typer.Option(
            help="How much readings move a day; else the share that turns to yes or the first label.",
            show_default="1/8 of the range in all",
        ),
    ] = None,
    crew: WhichWorkers = None,
) -> None:
    """Simulate a fleet before it is built: what would be estimated, beside the truth.

    With --store the fleet's reports of the last days go into a store, for estimate --trend, ledger, status;
    with --publish they go through a broker to an aggregator.
    """
    if not faithful:
        _refuse(
            "only real clients (--faithful) are divided, all else takes seconds: leave out",
            {"--workers": crew},
        )
    if store is not None or publish is not None:
        _refuse(
            "these are reports that estimate, ledger and status are asked about: leave out",
            {
                "--store or --publish": store is not None and publish is not None,
                "--calls": calls is not None,
                "--range": ranges,
                "--quantile": quantiles,
                "--output": results,
                "--plot-convergence": plot_convergence,
                "--faithful": faithful,
                "--attack": attack,
            },
        )
        from .days import AskedDays, fill_store, publish_days

        asked = AskedDays(file, fleet, devices, spec, input, days, calls_per_day, drift, seed, as_json)
        if store is not None:
            fill_store(asked, store)
        elif publish is not None:
            publish_days(asked, *connection(publish))
        return
    timed = {"--days": days, "--fleet": fleet, "--calls-per-day": calls_per_day, "--drift": drift}
    _refuse("days need a place to go to: add --store or --publish, or leave out", timed)
    written = output.checked(results, ".csv", ".json", *output.PICTURES)
    pictured = output.checked(None if plot_convergence is None else [plot_convergence], *output.PICTURES)
    with workers(crew) as hands, progress("simulating", 1.0) as advance:
        try:
            estimate = run(
                file,
                devices=devices or 100_000,
                population=spec,
                input=input,
                calls=calls,
                faults=_faults(faithful, offline, duplicate, late, reboot),
                attack=attack,
                attackers=attackers,
                seed=seed,
                convergence=Showing(ranges or (), quantiles or ()) if pictured else None,
                workers=hands,
                advance=advance,
            )
        except EstimateError as e:
            raise EstimateError(f"{e}: take more --devices or --calls") from None
    answers = _answers(estimate, rows, ranges or [], quantiles or [])
    result = _plain(estimate, answers, seed)
    for path in written:
        _write(path, estimate, answers, result)
    if estimate.convergence:
        estimate.convergence.plot(plot_convergence)
    if as_json:
        print_json(result)
        return
    words.heading(estimate)
    if few := words.too_few(estimate, answers):
        tables.out.print(few, style="bold red")
    tables.out.print()
    tables.answers(answers)
    covered, known = coverage(answers)
    if known:
        hold = f"{covered} of {known} intervals hold the truth"
        tables.out.print(f"{hold} (95 % of them should, in the long run)")
    if estimate.attack:
        words.attack(estimate.attack)
    words.conclusion(estimate, file, answers)
    for path in (*written, *pictured):
        tables.out.print(f"written: {path}", soft_wrap=True)


def _refuse(text: str, given: dict[str, Any]) -> None:
    """Raise UsageError where one of the options is given."""
    names = [
        name for name, value in given.items() if value is not None and value != [] and value is not False
    ]
    if names:
        raise UsageError(f"{text} {', '.join(names)}")


def _faults(faithful: bool, offline: float, duplicate: float, late: float, reboot: float) -> Faults | None:
    if faithful:
        try:
            return Faults(offline=offline, duplicate=duplicate, late=late, reboot=reboot)
        except ValueError as e:
            raise PopulationError(str(e)) from None
    if offline or duplicate or late or reboot:
        raise PopulationError(
            "offline, duplicate, late and reboot need --faithful: only real clients have faults"
        )
    return None


def _answers(estimate: SimulatedEstimate, rows: int, ranges: list[str], quantiles: list[float]) -> Answers:
    if "discovery" in estimate.answers:
        return Answers([estimate.discover()])
    if estimate.experiment.type == "text":
        return Answers([estimate.candidates(ranges or estimate.texts or (), most=rows)])
    if estimate.experiment.type == "pair":
        return estimate.pairs.summary(rows)
    versions = estimate.estimates.versions
    answers: list[Answer] = []
    if "frequencies" in estimate.answers:
        answers.append(estimate.histogram(rows))
    if ranges:
        require(versions, "ranges", "leave --range out")
        answers.append(estimate.share(*ranges))
    if quantiles:
        require(versions, "quantiles", "leave --quantile out")
        answers.append(estimate.quantile(*quantiles))
    if "mean" in estimate.answers and estimate.experiment.type == "number":
        answers.append(estimate.mean())
    return Answers(answers)


def _plain(estimate: SimulatedEstimate, answers: Answers, seed: int | None) -> dict[str, Any]:
    """Plain values, for JSON."""
    covered, known = coverage(answers)
    made = estimate.reporting
    result: dict[str, Any] = {
        "experiment": estimate.experiment.name,
        "unit": estimate.unit,
        "epsilon": estimate.experiment.epsilon / 1e6,
        "devices": estimate.devices,
        "population": estimate.held,
        "reports": estimate.reports,
        "seed": seed,
    }
    if made is not None:
        result |= {"calls": made.calls, "spoke": made.spoke, "spent": made.spent}
    if estimate.experiment.type == "pair":  # several of one kind
        result["answers"] = [one.to_dict() for one in answers]
    else:
        result |= {one.kind: [row.to_dict() for row in one.rows] for one in answers}
    result["notes"] = [note for one in answers for note in one.notes]
    result |= {
        "intervals": known,
        "intervals_that_hold_the_truth": covered,
        "half_width": half_width(asked_about(answers)),
    }
    if estimate.attack:
        result["attack"] = estimate.attack.to_dict()
    if estimate.convergence:
        result["convergence"] = estimate.convergence.to_dict()
    return result


def _write(path: Path, estimate: SimulatedEstimate, answers: Answers, result: dict[str, Any]) -> None:
    if path.suffix.lower() == ".json":
        output.write(path, json.dumps(result, indent=2) + "\n")
    elif path.suffix.lower() == ".csv":
        output.write(path, answers.to_csv())
    else:
        e = estimate.experiment
        name = f"{e.name}, {estimate.unit}" if estimate.unit else e.name
        title = f"{name}: {estimate.devices:,} simulated boards that hold {estimate.held}"
        level = f"{estimate.confidence * 100:g} % intervals"
        answers[0].plot(path, title, f"{estimate.reports:,} reports of ε = {e.epsilon / 1e6:g}; {level}")
