"""`hushmote check-mechanism`: prove the properties of a mechanism, or audit a board that uses it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..fleet.audit import serial_port
from ..fleet.audit.audit import AuditError, AuditResult, judge, subject
from ..fleet.audit.serial_port import Job
from ..server.answers import tables as show
from ..server.budgets import policy
from ..server.errors import HushmoteError, UsageError
from ..server.experiments.definition import load
from ..server.mechanisms import MECHANISMS, class_of
from ..server.plain import plain
from ..simulator.contract.check import Property, check
from .options import AsJson, PolicyFile, print_json
from .progress import progress

_WORDS = {True: "holds", False: "FAILS", None: "not checked"}
_DRAWS = 1_000
_HEADINGS = ("experiment", "function", "nominal ε", "exact ε", "ε at least", "as specified")

_NUMBER = {"type": "number", "low": 0, "high": 64_000, "bins": 64}
_CORE: dict[str, dict[str, Any]] = {
    "rr": {"type": "bool", "epsilon": 1_000_000},
    "grr": {"type": "choice", "labels": ["ok", "low", "high", "fault"], "epsilon": 2_000_000},
    "olh": _NUMBER | {"g": 3, "epsilon": 1_000_000},
    "hh": _NUMBER | {"fanout": 4, "cells": [4, 5, 5], "epsilon": 1_500_000},
}


class PropertyBroken(HushmoteError):
    """A mechanism must not be used; the message names the properties that fail."""


class PrivacyViolated(AuditError):
    """A lower bound on ε is above the nominal ε; the message says where."""


def check_mechanism_command(
    mechanism: Annotated[
        str | None,
        typer.Argument(
            help="A word such as olh; package.module:Class, also from this folder; or an "
            "experiment's TOML file. With --port, one of each of the core's if left out."
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            help="Draw on the board at this serial port instead, from what is installed, and bound ε by "
            "counting."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=100, help="With --port: draws from each of two inputs.")
    ] = _DRAWS,
    confidence: Annotated[
        float, typer.Option(help="With --port: confidence in all the bounds together, from 0.5 to below 1.")
    ] = 0.95,
    runtime: Annotated[
        str | None, typer.Option(help="A MicroPython to compare codes with; else one of this machine's.")
    ] = None,
    policy_file: PolicyFile = None,
    as_json: AsJson = False,
) -> None:
    """Prove a mechanism's ε over every branch, and check all else that it must keep. Exit 1 if it fails.

    With --port it draws from the randomizer that is installed on a board, and the counts bound ε from below.
    Exit 1 if a bound is above the nominal ε.
    """
    board_policy = None if policy_file is None else policy.read(policy_file)
    more = {} if board_policy is None else {"policy": plain(board_policy)}
    if board_policy is not None and board_policy.consent_from == "network" and not as_json:
        show.out.print(policy.STARTED)
    if port is not None:
        if not 0.5 <= confidence < 1:
            raise AuditError(f"confidence must be at least 0.5 and below 1, not {confidence:g}")
        _audit(example_payloads(mechanism), port, samples, confidence, more if as_json else None)
        return
    if mechanism is None:
        raise UsageError("name a mechanism to prove, or give the --port of a board to draw from")
    if mechanism.endswith(".toml"):
        mechanism = load(Path(mechanism)).experiment().mechanism
    properties = [one if as_json else _print_property(one) for one in check(mechanism, runtime)]
    broken = [one.name for one in properties if one.holds is False]
    if as_json:
        print_json(
            {"mechanism": mechanism, "holds": not broken, "properties": [one.to_dict() for one in properties]}
            | more
        )
    if broken:
        raise PropertyBroken(f"{mechanism} must not be used: it fails {', '.join(broken)}")


def _print_property(one: Property) -> Property:
    style = "red" if one.holds is False else ""
    show.out.print(f"{one.name:<10}  {_WORDS[one.holds]}: {one.words}", style=style, soft_wrap=True)
    return one


def example_payloads(name: str | None) -> list[bytes]:
    """Return a TOML file's experiment, an example of a mechanism, or one example of each core mechanism.

    Raises:
        HushmoteError: For an unknown mechanism.
    """
    if name is not None and name.endswith(".toml"):
        return [load(Path(name)).payload()]
    words = list(_CORE) if name is None else [name]
    common = {"v": 1, "budget": {"rule": "unlimited"}, "window": "all", "epsilon": 1_000_000}
    rows = [
        common
        | {"name": word if word in MECHANISMS else "own", "mechanism": word}
        | (_CORE[word] if word in _CORE else dict(class_of(word).examples[-1]))
        for word in words
    ]
    return [json.dumps(fields).encode() for fields in rows]


def _audit(
    experiments: list[bytes], port: str, draws: int, confidence: float, more: dict[str, Any] | None
) -> None:
    """Run a board's randomizer on two inputs many times; print lower bounds of ε.

    Raises:
        PrivacyViolated: If a bound is above the nominal ε.
    """
    board = serial_port.connect(port)
    subjects = [subject(payload, whole) for payload in experiments for whole in (False, True)]
    jobs = [Job(s, (draws // 2, draws - draws // 2)) for s in subjects]
    with progress("drawing on the board", 2 * draws * len(jobs)) as advance:
        tallies = serial_port.draw(board, jobs, on_draws=advance)
    error = (1 - confidence) / len(jobs)
    findings = [judge(s, t.runtime, t.halves, error) for s, t in zip(subjects, tallies, strict=True)]
    if more is not None:
        print_json({"confidence": confidence, "findings": [f.to_dict() for f in findings]} | more)
    else:
        _print_findings(findings, confidence)
    worst = max(findings, key=lambda f: (not f.private, f.lower - f.nominal))
    if not worst.private:
        measured = f"by {worst.path} on {worst.runtime} has ε of at least {worst.lower:.4g}"
        words = measured if worst.lower > worst.nominal else f"has an exact ε of {_format_exact(worst)}"
        raise PrivacyViolated(f"not {worst.nominal:g}-LDP: {worst.name} {words}; do not let it report")


def _format_exact(finding: AuditResult) -> str:
    """Format the exact ε as the nominal ε and the difference, which may be tiny."""
    over = finding.exact - finding.nominal
    return f"{finding.nominal:g} {'-' if over <= 0 else '+'} {abs(over):.1g}"


def _print_findings(findings: list[AuditResult], confidence: float) -> None:
    title = f"{findings[0].runtime}: {findings[0].draws:,} draws of each of two inputs"
    table = show.table(title, _HEADINGS, (0, 1))
    for f in findings:
        fits = "yes" if f.fit > (1 - confidence) / len(findings) else f"no, p = {f.fit:.1g}"
        name = f.name if f.name == f.mechanism else f"{f.name} ({f.mechanism})"
        numbers = f"{f.nominal:g}", _format_exact(f), f"{f.lower:.4f}"
        table.add_row(name, f.path, *numbers, fits, style="" if f.private else "red")
    table.columns[1].no_wrap, table.columns[-1].justify = True, "left"
    show.out.print(table)
    show.out.print()
    show.out.print(
        f"All bounds hold together with {confidence * 100:g}% confidence. An audit can refute a privacy "
        "claim but not prove it: it tests two inputs and counts outputs. For a proof, which enumerates every "
        "branch, run hushmote check-mechanism."
    )
