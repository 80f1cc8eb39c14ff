"""`hushmote budget`: what each composition theorem makes of a total; the firmware's policy from one."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ...server.accounting import AccountingError, Guarantee, Kind
from ...server.accounting import compare as budget
from ...server.accounting.compare import TheoremRow, plain_guarantee
from ...server.answers import tables as show
from ...server.epsilon import micro_nats, nats
from ...server.errors import UsageError
from ...server.experiments.budget import cap_in_nats
from ...server.plain import plain
from ...server.planning import policy
from ...server.planning.policy import Policy
from ...server.words.epsilon import belief
from ..options import AsJson, print_json
from . import answers
from .histogram import histogram

budget_app = typer.Typer(
    help="Privacy budgets: what each composition theorem allows, and what it guarantees.",
    no_args_is_help=True,
)
budget_app.command("histogram")(histogram)

Total = Annotated[float, typer.Option(help="What all reports of a board may cost together, nats.")]
Delta = Annotated[float, typer.Option(help="δ of (total, δ)-LDP; 0: only theorems that need none.")]


@budget_app.command("compare")
def compare(
    total: Total,
    delta: Delta = 0.0,
    reports: Annotated[int | None, typer.Option(help="Number of reports: gives ε of each.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε of each report, nats: gives their number.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List the theorems that promise no LDP, too; JSON always does.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The same total under every theorem, for a number of reports or for an ε per report."""
    if (reports is None) == (epsilon is None):
        raise UsageError("give either --reports or --epsilon: the other one is the answer")
    if reports is not None:
        rows = budget.for_reports(total, delta, reports)
        title = f"total {total:g}, δ = {delta:g}, {reports:,} reports of a board"
    else:
        assert epsilon is not None
        rows = budget.for_epsilon(total, delta, micro_nats(epsilon, AccountingError))
        title = f"total {total:g}, δ = {delta:g}, ε = {epsilon:g} per report"
    if as_json:
        print_json([asdict(row) | {"cap": cap_in_nats(row.rule, row.cap)} for row in rows])
        return
    if reports is not None:
        show.out.print(answers.of_each(rows, reports, total))
    else:
        show.out.print(answers.how_many(rows, epsilon or 0, total))
    show.out.print()
    _show(
        title,
        rows if everything else [row for row in rows if answers.promises(row)],
        total,
        reports is not None,
    )
    if not everything:
        names = [row.theorem for row in rows if not answers.promises(row)]
        show.out.print(answers.left_out(names, "promise no LDP"))


@budget_app.command("policy")
def policy_command(
    epsilon: Annotated[float, typer.Option(help="What all reports of a board's life may cost, nats.")],
    experiments: Annotated[str, typer.Option(help="Names that boards may take part in: a,b,c.")],
    delta: Delta = 0.0,
    max_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Most that one report may cost, nats.  [default: 4, or the total]", show_default=False
        ),
    ] = None,
    rules: Annotated[str, typer.Option(help="Budget rules that may be asked for.")] = ",".join(policy.RULES),
    write: Annotated[
        Path | None, typer.Option(help="Firmware file, as device/main.py, whose POLICY is replaced.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The firmware's POLICY for a total (ε, δ) over a board's life, and what it guarantees."""
    made = policy.policy_for(
        epsilon,
        delta,
        _names(experiments),
        None if max_epsilon is None else micro_nats(max_epsilon, AccountingError),
        _names(rules),
    )
    promised = policy.guarantee(epsilon, delta)
    statement = policy.literal(made, _comment(made, promised))
    lacking = [] if write is None else policy.write(write, statement, made.experiments)
    if as_json:
        reports = {nats(e): n for e, n in policy.examples(made).items()}
        told = {"guarantee": plain_guarantee(promised), "answer": _belief(promised)}
        print_json({"policy": plain(made), **told, "reports": reports})
        return
    typer.echo(statement, nl=False)
    if write is not None:
        typer.echo(f"\nwritten to {write}")
    if lacking:
        typer.echo(f"READINGS in it needs a function for: {', '.join(lacking)}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _comment(made: Policy, promised: Guarantee) -> list[str]:
    holds = ", ".join(f"{n:,} of ε = {nats(e)}" for e, n in policy.examples(made).items())
    while_ = "Σε <= sum or Σε² <= squares" if made.squares else "Σε <= sum"
    text = (
        "What this firmware allows, whatever a server asks, in micro-nats. For the board's whole life, over "
        f"all experiments and their versions, reports go on while {while_}. {promised.words} "
        f"{_belief(promised)} A life holds this many reports: {holds}, or a mixture."
    )
    return textwrap.wrap(text, 98)


def _belief(promised: Guarantee) -> str:
    told = belief(promised.epsilon, seen=answers.ALL_SEEN)
    return answers.joined("Except with that probability", told) if promised.delta else told


def _show(title: str, rows: list[TheoremRow], total: float, by_reports: bool) -> None:
    table = show.table(title)
    table.add_column("theorem")
    table.add_column("ε per report" if by_reports else "reports", justify="right")
    table.add_column("Σε", justify="right")
    table.add_column("the board keeps")
    table.add_column("all together are")
    for row in rows:
        answer = row.epsilon if by_reports else row.reports
        table.add_row(
            budget.TITLES.get(row.theorem, row.theorem),
            "any" if answer is None else f"{answer:.6f}" if by_reports else f"{answer:,}",
            "" if row.sum is None else f"{row.sum:,.6g}",
            _kept(row),
            row.guarantee,
        )
    show.out.print(table)
    for row in rows:
        if row.kind == Kind.ONE_BIT and row.delta is not None:
            real = f"{row.sum:g}-LDP, and ({total:g}, {row.delta:.3g})-LDP"
            show.out.print(f"majority is not about LDP: its reports are {real}.")


def _kept(row: TheoremRow) -> str:
    if row.rule == "sum":
        return f"Σε <= {row.cap / 1e6:g}" if row.cap else ""
    if row.rule == "squares":
        return f"Σε² <= {row.cap / 1e12:.6g}" if row.cap else ""
    return f"{row.cap:,} reports" if row.rule == "count" else "no cap"
