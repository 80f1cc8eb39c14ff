"""The implementation of `hushmote simulate`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...server.answers import tables
from ...server.answers.answer import Answer, Answers
from ...server.answers.ask import ROWS, check_rows
from ...server.answers.rows import Row, coverage
from ...server.answers.summary import answer_in_focus, exactness, half_width
from ...server.errors import UsageError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.answerable import require
from ...server.plain_text import CsvDialect
from ...server.words.numbers import counted
from ...simulator.convergence import PictureContent
from ...simulator.faithful import parse_faults
from ...simulator.population import PopulationError
from ...simulator.simulate import SimulatedEstimate, simulate
from ...simulator.workers import workers
from .. import output
from ..options import load_experiment, print_json
from ..progress import progress
from . import words
from .options import CONVERGENCE, SUFFIXES, SimulateOptions


def run(options: SimulateOptions) -> None:
    """Simulate a fleet, and print and write the result; raise UsageError if the options are incompatible."""
    faithful = options.faithful or bool(options.faults)
    if not (options.population or "").startswith("file:"):
        message = "numbers are read only from files: add --population file:FILE:COLUMN, or omit"
        _refuse(message, {"--keep-value": options.rules.keep, "--decimal": options.rules.decimal})
    if not faithful:
        message = "only real clients (--faithful) are divided among workers; omit"
        _refuse(message, {"--workers": options.workers})
    if options.to is not None:
        _refuse(
            "with --to, use estimate, ledger and status on the store afterwards; omit",
            {
                "--range": options.ranges,
                "--quantile": options.quantiles,
                "--rows": options.rows,
                "--output": options.output,
                "--faithful": faithful,
                "--attack": options.attack,
                "--privacy": options.privacy,
                "--verbose": options.verbose,
                "--csv-dialect": options.csv_dialect != "plain",
            },
        )
        from .days import fill_store

        fill_store(options, options.to)
        return
    store_options = {"--days": options.days, "--fleet": options.fleet, "--drift": options.drift}
    _refuse("days are written to a store; add --to, or omit", store_options)
    paths = output.check_paths(options.output, *SUFFIXES)
    output.check_dialect(options.csv_dialect, paths)
    convergence_paths = [
        path for path in paths if path.stem == CONVERGENCE and path.suffix in output.PICTURES
    ]
    ranges, quantiles = options.ranges or [], options.quantiles or []
    definition = load_experiment(options.file)
    if options.rows is not None and definition.type != "text":
        check_rows(definition.experiment())
    with workers(options.workers) as pool, progress("simulating", 1.0) as advance:
        try:
            estimate = simulate(
                definition,
                devices=options.devices,
                population=options.population,
                keep_value=options.rules.keep,
                decimal=options.rules.decimal,
                calls=_whole(options.calls),
                faults=parse_faults(options.faults or []) if faithful else None,
                attack=options.attack,
                groups=options.groups or (),
                shifts=options.shifts or (),
                seed=options.seed,
                convergence=PictureContent(ranges, quantiles) if convergence_paths else None,
                workers=pool,
                advance=advance,
            )
        except EstimateError as e:
            raise EstimateError(f"{e}; use more --devices or --calls") from None
    answers = select_answers(estimate, options.rows or ROWS, ranges, quantiles)
    result = to_dict(estimate, answers, options.seed)
    for path in paths:
        if path in convergence_paths and estimate.convergence:
            from ...simulator.convergence_plot import plot  # matplotlib takes a second to load

            plot(estimate.convergence, path, estimate.purpose)
        else:
            _write(path, options.csv_dialect, estimate, answers, result)
    if options.as_json:
        print_json(result)
        return
    show(estimate, answers, options.file, privacy=options.privacy, verbose=options.verbose)
    for path in paths:
        tables.out.print(f"written: {path}", soft_wrap=True)


def show(
    estimate: SimulatedEstimate,
    answers: Answers,
    file: Path | None,
    *,
    privacy: bool,
    verbose: bool,
) -> None:
    """Print the result of a simulation.

    Args:
        estimate: The result.
        answers: The tables to print.
        file: The experiment's file, if it has one.
        privacy: Whether to print each ε.
        verbose: Whether to print the mechanism.
    """
    if warning := words.too_few(estimate, answers):
        tables.out.print(warning, style="bold red")
    else:
        tables.out.print(exactness(answers))
    tables.out.print()
    words.heading(estimate)
    tables.out.print()
    tables.print_answers(answers)
    words.groups_table(estimate)
    if estimate.attack:
        words.attack(estimate.attack)
    if verbose:
        words.method(estimate)
    words.conclusion(estimate, file, answers, privacy=privacy)


def _refuse(text: str, options: dict[str, Any]) -> None:
    """Raise UsageError if any of the options is given."""
    names = [name for name, value in options.items() if value]
    if names:
        raise UsageError(f"{text} {', '.join(names)}")


def _whole(calls: float | None) -> int | None:
    if calls is not None and not calls.is_integer():
        raise PopulationError(
            f"--calls must be a whole number per device, not {calls:g}; only with --to, calls per day "
            "may be fractional"
        )
    return None if calls is None else int(calls)


def select_answers(
    estimate: SimulatedEstimate, rows: int = ROWS, ranges: Sequence[str] = (), quantiles: Sequence[float] = ()
) -> Answers:
    """Return the answers to show for a simulation."""
    versions = estimate.estimates.versions
    if ranges:
        require(versions, ("ranges", "candidates"), "omit --range")
    if quantiles:
        require(versions, "quantiles", "omit --quantile")
    if "discovery" in estimate.answers:
        return Answers([estimate.discover()])
    if estimate.experiment.type == "text":
        return Answers([estimate.candidates(ranges or estimate.texts or (), most=rows)])
    if estimate.experiment.type == "pair":
        return estimate.pairs.summary(rows)
    answers: list[Answer] = []
    if "frequencies" in estimate.answers:
        answers.append(estimate.histogram(rows))
    if ranges:
        answers.append(estimate.share(*ranges))
    if quantiles:
        answers.append(estimate.quantile(*quantiles))
    if "mean" in estimate.answers:
        answers.append(estimate.mean())
    return Answers(answers)


def to_dict(estimate: SimulatedEstimate, answers: Answers, seed: int | None = None) -> dict[str, Any]:
    """Return plain values, for JSON."""
    covered, interval_count = coverage(answers)
    reporting = estimate.reporting
    if estimate.experiment.type == "pair":  # there are several answers of one kind
        rows: dict[str, Any] = {"answers": [answer.to_dict() for answer in answers]}
    else:
        rows = {answer.kind: [row.to_dict() for row in answer.rows] for answer in answers}
    result: dict[str, Any] = {
        "experiment": estimate.experiment.name,
        "unit": estimate.unit,
        "epsilon": estimate.experiment.epsilon / 1e6,
        "devices": estimate.devices,
        "population": estimate.population,
        "reports": estimate.reports,
        "approximate": estimate.approximate,
        "seed": seed,
        **(
            {"calls": reporting.calls, "spoke": reporting.reporting_devices, "spent": reporting.spent}
            if reporting
            else {}
        ),
        **_rows(estimate),
        **_groups(estimate),
        **rows,
        "notes": [note for answer in answers for note in answer.notes],
        "intervals": interval_count,
        "intervals_that_hold_the_truth": covered,
        "half_width": half_width(answer_in_focus(answers)),
    }
    parts = {"attack": estimate.attack, "convergence": estimate.convergence}
    planned = {"planned": dataclasses.asdict(estimate.planned)} if estimate.planned else {}
    return result | planned | {name: part.to_dict() for name, part in parts.items() if part}


def _rows(estimate: SimulatedEstimate) -> dict[str, Any]:
    """Return a file's numbers of rows and of rows without a reading, and the missing share if estimated."""
    rows, missing = estimate.rows, estimate.missing
    result: dict[str, Any] = {}
    if rows is not None:
        result = {"rows": rows.count, "rows_without_reading": rows.blank, "file_notes": list(rows.notes)}
    return result | ({"missing": missing.to_dict()} if missing else {})


def _groups(estimate: SimulatedEstimate) -> dict[str, Any]:
    """Return the devices, the reports and one statistic of each value of the open group."""
    groups = {
        group.name: {
            "devices": group.devices,
            "reports": group.reports,
            **({"statistic": group.statistic} | _statistic(group.row) if group.row else {}),
        }
        for group in estimate.groups
    }
    return {"groups": groups} if groups else {}


def _statistic(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.to_dict().items() if key != "name"}


def _write(
    path: Path, dialect: CsvDialect, estimate: SimulatedEstimate, answers: Answers, result: dict[str, Any]
) -> None:
    if path.suffix.lower() == ".json":
        output.write(path, json.dumps(result, indent=2) + "\n")
    elif path.suffix.lower() == ".csv":
        output.write(path, answers.to_csv(dialect))
    else:
        e = estimate.experiment
        name = f"{e.name}, {estimate.unit}" if estimate.unit else e.name
        title = f"{name}: {counted(estimate.devices, 'simulated device')} with {estimate.population}"
        level = f"{estimate.confidence * 100:g}% intervals"
        subtitle = f"{title}; {counted(estimate.reports)} of ε = {e.epsilon / 1e6:g}; {level}"
        answers[0].plot(path, estimate.purpose, subtitle)
