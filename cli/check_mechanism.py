"""`hushmote check-mechanism`: prove a mechanism's properties, or audit a board that uses it."""

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
    """Raised if a mechanism must not be used; the message names the properties that fail."""


class PrivacyViolated(AuditError):
    """Raised if a lower bound on ε is above the nominal ε; the message names the experiment and function."""


def check_mechanism_command(
    mechanism: Annotated[
        str | None,
        typer.Argument(
            help="A name such as olh; package.module:Class, which may be in this folder; or an "
            "experiment's TOML file. Default with --port: an example of each core mechanism."
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            help="Serial port of a board: sample its installed randomizer instead, and bound ε from the "
            "counts."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=100, help="With --port: number of draws for each of two inputs.")
    ] = _DRAWS,
    confidence: Annotated[
        float, typer.Option(help="With --port: joint confidence in all bounds, at least 0.5 and below 1.")
    ] = 0.95,
    runtime: Annotated[
        str | None,
        typer.Option(help="MicroPython executable to compare codes with; default: one on this machine."),
    ] = None,
    policy_file: PolicyFile = None,
    as_json: AsJson = False,
) -> None:
    """Prove a mechanism's ε over every branch, and check its other properties. Exit 1 if a check fails.

    With --port, sample the randomizer that is installed on a board, and derive lower bounds on ε from the
    counts. Exit 1 if a bound is above the nominal ε.
    """
    board_policy = None if policy_file is None else policy.read(policy_file)
    extra_fields = {} if board_policy is None else {"policy": plain(board_policy)}
    if board_policy is not None and not as_json:
        for note in policy.notes(board_policy):
            show.out.print(note)
    if port is not None:
        if not 0.5 <= confidence < 1:
            raise AuditError(f"confidence must be at least 0.5 and below 1, not {confidence:g}")
        _audit(example_payloads(mechanism), port, samples, confidence, extra_fields if as_json else None)
        return
    if mechanism is None:
        raise UsageError("name a mechanism to prove, or give --port to sample a board")
    if mechanism.endswith(".toml"):
        mechanism = load(Path(mechanism)).experiment().mechanism
    properties = [prop if as_json else _print_property(prop) for prop in check(mechanism, runtime)]
    broken = [prop.name for prop in properties if prop.holds is False]
    if as_json:
        print_json(
            {
                "mechanism": mechanism,
                "holds": not broken,
                "properties": [prop.to_dict() for prop in properties],
            }
            | extra_fields
        )
    if broken:
        raise PropertyBroken(f"{mechanism} must not be used: it fails {', '.join(broken)}")


def _print_property(prop: Property) -> Property:
    style = "red" if prop.holds is False else ""
    show.out.print(f"{prop.name:<10}  {_WORDS[prop.holds]}: {prop.words}", style=style, soft_wrap=True)
    return prop


def example_payloads(name: str | None) -> list[bytes]:
    """Return the payload of a TOML file, an example of a mechanism, or an example of each core mechanism.

    Raises:
        HushmoteError: If the mechanism is unknown.
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
    experiments: list[bytes], port: str, draws: int, confidence: float, extra_fields: dict[str, Any] | None
) -> None:
    """Run a board's randomizer on two inputs many times, and print lower bounds on ε.

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
    if extra_fields is not None:
        print_json({"confidence": confidence, "findings": [f.to_dict() for f in findings]} | extra_fields)
    else:
        _print_findings(findings, confidence)
    worst = max(findings, key=lambda f: (not f.private, f.lower - f.nominal))
    if not worst.private:
        measured = f"by {worst.path} on {worst.runtime} has ε of at least {worst.lower:.4g}"
        words = measured if worst.lower > worst.nominal else f"has an exact ε of {_format_exact(worst)}"
        raise PrivacyViolated(f"not {worst.nominal:g}-LDP: {worst.name} {words}; do not let it report")


def _format_exact(finding: AuditResult) -> str:
    """Format the exact ε as the nominal ε and the difference, which may be tiny."""
    difference = finding.exact - finding.nominal
    return f"{finding.nominal:g} {'-' if difference <= 0 else '+'} {abs(difference):.1g}"


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
