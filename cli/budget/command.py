"""`hushmote budget`: compare composition theorems for a total, and write the firmware's policy."""

import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ...planning.privacy.beliefs import ByEpsilon, fixed_mechanism
from ...planning.privacy.histogram import (
    SHUFFLE,
    for_histogram,
    for_reports,
    shuffled_for_epsilon,
    shuffled_for_reports,
)
from ...planning.privacy.questions import check_domain, choose_mechanism
from ...server.accounting import THEOREMS, AccountingError, Guarantee, Kind
from ...server.accounting import compare as budget
from ...server.accounting.compare import TheoremRow, plain_guarantee
from ...server.answers import tables as show
from ...server.budgets import policy
from ...server.budgets.policy import Policy
from ...server.epsilon import check_epsilon, micro_nats, nats
from ...server.errors import UsageError
from ...server.estimate.shuffled import LIMITS
from ...server.experiments.budget import cap_in_nats
from ...server.experiments.definition import load
from ...server.experiments.payload import AUTO
from ...server.plain import plain
from ...server.typed_numbers import plain_whole_number
from ...server.words.epsilon import ALL_REPORTS, belief, with_exception
from ...server.words.numbers import counted
from ..options import AsJson, print_json
from . import answers

budget_app = typer.Typer()

Total = Annotated[float, typer.Option(help="Total ε of all of a device's reports, in nats.")]
Delta = Annotated[
    float, typer.Option(help="δ of (total, δ)-LDP; 0 compares only theorems that do not need a δ.")
]


@budget_app.command("compare")
def compare(
    total: Total,
    delta: Delta = 0.0,
    reports: Annotated[
        int | None, typer.Option(help="Number of reports; the command computes the ε of each.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="ε per report, in nats; the command computes the number of reports.")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(help="For shuffle: number of honest devices in a histogram; default: the file's."),
    ] = None,
    domain: Annotated[
        int | None, typer.Option(help="For shuffle: number of values; 2 means yes or no.")
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(
            help="For shuffle, instead of --domain: an experiment file, which may also "
            "set the planned number of devices.",
            metavar="FILE.toml",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a total under every theorem, for a number of reports or an ε per report.

    shuffle is for people who see only the histogram of all devices' reports. The table omits
    the theorem none, which guarantees nothing across all reports; --json includes it.
    """
    if (reports is None) == (epsilon is None):
        raise UsageError("give either --reports or --epsilon; the command computes the other")
    boards, mechanism = _shuffle_setting(devices, domain, experiment)
    shuffle_arguments = (
        None if boards is None or mechanism is None or not delta else (mechanism, boards, total, delta)
    )
    if reports is not None:
        rows = budget.for_reports(total, delta, reports)
        answer, subject = answers.largest_epsilon(rows, reports, total), f"{counted(reports)} of a device"
        shuffled = shuffle_arguments and shuffled_for_reports(*shuffle_arguments, reports)
    else:
        assert epsilon is not None
        micro = micro_nats(epsilon, AccountingError)
        rows = budget.for_epsilon(total, delta, micro)
        answer, subject = answers.most_reports(rows, epsilon, total), f"ε = {epsilon:g} per report"
        shuffled = shuffle_arguments and shuffled_for_epsilon(*shuffle_arguments, micro)
    rows.append(shuffled or answers.incomparable_shuffle(delta, boards, mechanism))
    if as_json:
        print_json([asdict(row) | {"cap": cap_in_nats(row.rule, row.cap)} for row in rows])
        return
    show.out.print(f"{answer}\n")
    headings = (
        "theorem",
        "ε per report" if reports else "reports",
        "Σε",
        "the device keeps",
        "all together are",
    )
    table = show.table(f"total {total:g}, δ = {delta:g}, {subject}", headings, (0, 3, 4))
    for row in rows:
        if not row.guarantee or row.kind == Kind.UNBOUNDED:
            continue
        solved = row.epsilon if reports else row.reports
        table.add_row(
            budget.TITLES.get(row.theorem, row.theorem),
            "any" if solved is None else f"{solved:.6f}" if reports else f"{solved:,}",
            "" if row.sum is None else f"{row.sum:,.6g}",
            _cap(row),
            row.guarantee,
        )
    show.out.print(table)
    if not delta:
        absent = set(THEOREMS) - {row.theorem for row in rows}
        names = ", ".join(budget.TITLES.get(name, name) for name in THEOREMS if name in absent)
        show.out.print(f"not compared: {names}; add --delta")
    for row in rows:
        if not row.guarantee:
            show.out.print(row.words)
    if shuffled:
        show.out.print(f"{SHUFFLE} holds {LIMITS}.")
    show.out.print("`hushmote budget histogram` shows shuffling by mechanism.")


def _shuffle_setting(
    devices: int | None, domain: int | None, file: Path | None
) -> tuple[int | None, ByEpsilon | None]:
    """Return the number of devices in a histogram and their mechanism by ε, each None if not given."""
    if file is None:
        return devices, None if domain is None else choose_mechanism(check_domain(domain), AUTO)
    if domain is not None:
        raise UsageError("the experiment file already defines the values; omit --domain")
    definition = load(file)
    if devices is None and definition.planned is not None:
        devices = definition.planned.devices
    return devices, fixed_mechanism(definition.experiment())


def _cap(row: TheoremRow) -> str:
    if row.rule == "count":
        return counted(row.cap)
    quantity, unit = ("Σε", 1e6) if row.rule == "sum" else ("Σε²", 1e12)
    return f"{quantity} <= {row.cap / unit:.6g}" if row.cap else ""


@budget_app.command("histogram")
def histogram(
    devices: Annotated[
        str, typer.Option(help="Number of honest devices in the histogram; 20000x2 means two reports each.")
    ],
    epsilon: Annotated[
        float | None,
        typer.Option(help="Target ε of the histogram, in nats; the command computes the ε per report."),
    ] = None,
    local: Annotated[
        float | None, typer.Option(help="ε per report, in nats; the command computes the ε of the histogram.")
    ] = None,
    domain: Annotated[int, typer.Option(help="Number of values; 2 means yes or no.")] = 64,
    delta: Annotated[float, typer.Option(help="δ of the histogram's ε.")] = 1e-6,
    as_json: AsJson = False,
) -> None:
    """Show what a histogram reveals to someone who sees nothing else, for each mechanism."""
    if (epsilon is None) == (local is None):
        raise UsageError("give either --epsilon (of the histogram) or --local (of a report)")
    boards, reports_each = _boards(devices)
    if local is not None:
        micro = micro_nats(local, AccountingError)
        check_epsilon(micro, AccountingError, "ε of a report")
        rows = for_reports(domain, boards, micro, delta, reports_each)
        answer = answers.for_reports(rows, boards, local, delta)
    else:
        assert epsilon is not None
        rows = for_histogram(domain, boards, epsilon, delta, reports_each)
        answer = answers.for_histogram(rows, boards, epsilon, delta)
    if as_json:
        print_json({"delta": delta, "holds": LIMITS, "rows": [asdict(row) for row in rows]})
        return
    reports_text = "one report each" if reports_each == 1 else f"{reports_each:,} reports each"
    show.out.print(f"{answer}\n")
    show.out.print(f"{boards:,} devices, {reports_text}, {domain:,} values; δ = {delta:g}", style="bold")
    table = show.table("", ("mechanism", "ε of a report", "ε of the histogram"))
    for row in rows:
        epsilons = ("none", "") if row.local is None else (f"{row.local:.6f}", f"{row.histogram:.6f}")
        table.add_row(row.described, *epsilons)
    show.out.print(table)
    if any(row.local is None for row in rows):
        show.out.print("none: the mechanism cannot achieve this with any ε per report from 0.001 to 16.")
    show.out.print(
        f"The ε of the histogram holds {LIMITS}. It covers all these reports in one histogram; if windows "
        "are viewed one at a time, give the number of reports in a window."
    )


def _boards(text: str) -> tuple[int, int]:
    """Return the number of boards and the number of reports per board from "20000" or "20000x2"."""
    boards, _, reports_each = text.partition("x")
    try:
        return int(plain_whole_number(boards)), int(plain_whole_number(reports_each or "1"))
    except ValueError:
        raise UsageError(f"--devices must be a number such as 20000, or 20000x2, not {text}") from None


@budget_app.command("policy")
def policy_command(
    epsilon: Annotated[
        float, typer.Option(help="Maximum total ε of all reports in a device's lifetime, in nats.")
    ],
    experiments: Annotated[str, typer.Option(help="Experiments that devices may take part in: a,b,c.")],
    delta: Delta = 0.0,
    max_epsilon: Annotated[
        float | None, typer.Option(help="Maximum ε of one report, in nats.  [default: 4, or the total]")
    ] = None,
    rules: Annotated[str, typer.Option(help="Budget rules that may be used.")] = ",".join(policy.RULES),
    groups: Annotated[
        str, typer.Option(help="Open groups, such as firmware, that reports may contain unprotected: a,b,c.")
    ] = "",
    write: Annotated[
        Path | None, typer.Option(help="Firmware file such as device/main.py; its POLICY is replaced.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the firmware's POLICY for a total (ε, δ) over a device's lifetime, and what it guarantees."""
    board_policy = policy.policy_for(
        epsilon,
        delta,
        _names(experiments),
        None if max_epsilon is None else micro_nats(max_epsilon, AccountingError),
        _names(rules),
    )
    board_policy = replace(board_policy, groups=_names(groups))
    guarantee = policy.guarantee(epsilon, delta)
    statement = policy.policy_statement(board_policy, _comment(board_policy, guarantee))
    missing_readings = [] if write is None else policy.write(write, statement, board_policy.experiments)
    if as_json:
        reports = {nats(e): n for e, n in policy.examples(board_policy).items()}
        summary = {"guarantee": plain_guarantee(guarantee), "answer": _belief(guarantee)}
        fields = {name: value for name, value in plain(board_policy).items() if value is not None}
        print_json({"policy": fields, **summary, "reports": reports})
        return
    typer.echo(statement, nl=False)
    if write is not None:
        typer.echo(f"\nwritten to {write}")
    if missing_readings:
        typer.echo(f"Add a function to its READINGS for: {', '.join(missing_readings)}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _comment(board_policy: Policy, guarantee: Guarantee) -> list[str]:
    counts = ", ".join(f"{n:,} of ε = {nats(e)}" for e, n in policy.examples(board_policy).items())
    condition = "Σε <= sum or Σε² <= squares" if board_policy.squares else "Σε <= sum"
    text = (
        "What this firmware allows, whatever a server asks, in micro-nats. For the device's lifetime, over "
        f"all experiments and their versions, reports go on while {condition}. {guarantee.words} "
        f"{_belief(guarantee)} A lifetime allows this many reports: {counts}, or a mixture."
    )
    if board_policy.groups:
        text += f" Reports may contain the board's {', '.join(board_policy.groups)}, which is not protected."
    return textwrap.wrap(text, 98)


def _belief(guarantee: Guarantee) -> str:
    return with_exception(guarantee.delta, belief(guarantee.epsilon, reports=ALL_REPORTS))
