"""`hushmote check-mechanism`: what every mechanism must keep, proven, or bounded from below by counting."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..fleet.audit import audit_runtimes
from ..fleet.audit.audit import AuditError, AuditFinding, judge, subject
from ..fleet.audit.audit_runtimes import Job
from ..server.answers import tables as show
from ..server.budgets import policy
from ..server.errors import HushmoteError, UsageError
from ..server.experiments.definition import load
from ..server.mechanisms import MECHANISMS, class_of
from ..server.plain import plain
from ..simulator.contract.check import Property, check
from .options import AsJson, PolicyFile, print_json
from .progress import progress
from .tables import table

_WORDS = {True: "holds", False: "FAILS", None: "not looked at"}
_DRAWS, _BOARD_DRAWS = 20_000, 1_000
_HEADINGS = ("experiment", "function", "nominal ε", "exact ε", "ε at least", "as specified")

_NUMBER = {"type": "number", "low": 0, "high": 64_000, "bins": 64}
_CORE: dict[str, dict[str, Any]] = {
    "rr": {"type": "bool", "epsilon": 1_000_000},
    "grr": {"type": "choice", "labels": ["ok", "low", "high", "fault"], "epsilon": 2_000_000},
    "olh": _NUMBER | {"g": 3, "epsilon": 1_000_000},
    "hh": _NUMBER | {"fanout": 4, "cells": [4, 5, 5], "epsilon": 1_500_000},
}


class PropertyBroken(HushmoteError):
    """A mechanism must not be used; the text names the properties that fail."""


class PrivacyViolated(AuditError):
    """A lower bound of ε is above the nominal one; the text says where."""


def check_mechanism_command(
    mechanism: Annotated[
        str | None,
        typer.Argument(
            help="A word such as olh; package.module:Class, also from this folder; or an "
            "experiment's TOML file. With --samples or --port, one of each if left out."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=100, help="Draw this often from each of two inputs instead, and bound ε by counting."
        ),
    ] = None,
    port: Annotated[
        str | None, "Draw on the board at this serial port instead, from what is installed."
    ] = None,
    runtime: Annotated[
        str | None,
        "Where samples are drawn: cpython, all, unix32f, mp32, path, wasm, env, a command line. "
        "For the proof: a MicroPython to compare codes with, else one of this machine's.",
    ] = None,
    confidence: Annotated[float, "Confidence in all the bounds together, from 0.5 to below 1."] = 0.95,
    policy_file: PolicyFile = None,
    as_json: AsJson = False,
) -> None:
    """Prove a mechanism's ε over every branch, and check all else that it must keep. Exit 1 if it fails.

    With --samples or --port it draws from the shipped randomizer instead, and the counts bound ε from
    below. Exit 1 if a bound is above the nominal ε.
    """
    known = None if policy_file is None else policy.read(policy_file)
    more = {} if known is None else {"policy": plain(known)}
    if known is not None and known.consent_from == "network" and not as_json:
        show.out.print(policy.STARTED)
    if samples or port:
        if not 0.5 <= confidence < 1:
            raise AuditError(f"confidence must be at least 0.5 and below 1, not {confidence:g}")
        where = [audit_runtimes.board(port)] if port else audit_runtimes.select(runtime or "cpython")
        draws = samples or (_BOARD_DRAWS if port else _DRAWS)
        _audit(payloads(mechanism, not port), where, draws, confidence, more if as_json else None)
        return
    if mechanism is None:
        raise UsageError("name a mechanism to prove, or give --samples to draw from one of each")
    if mechanism.endswith(".toml"):
        mechanism = load(Path(mechanism)).experiment().mechanism
    properties = [one if as_json else _shown(one) for one in check(mechanism, runtime)]
    broken = [one.name for one in properties if one.holds is False]
    if as_json:
        print_json(
            {"mechanism": mechanism, "holds": not broken, "properties": [one.to_dict() for one in properties]}
            | more
        )
    if broken:
        raise PropertyBroken(f"{mechanism} must not be used: it fails {', '.join(broken)}")


def _shown(one: Property) -> Property:
    """Print a property as soon as it is looked at."""
    style = "red" if one.holds is False else ""
    show.out.print(f"{one.name:<10}  {_WORDS[one.holds]}: {one.words}", style=style, soft_wrap=True)
    return one


def payloads(name: str | None, further: bool = True) -> list[bytes]:
    """The experiment of a TOML file, an example of a mechanism, or one of each where nothing is named.

    further: of those beside the core as well. Raises HushmoteError for a mechanism that is not there.
    """
    if name is not None and name.endswith(".toml"):
        return [load(Path(name)).payload()]
    known = _CORE.keys() | MECHANISMS.keys() if further else _CORE
    words = [name] if name is not None else [word for word in MECHANISMS if word in known]
    common = {"v": 1, "budget": {"rule": "unlimited"}, "window": "all", "epsilon": 1_000_000}
    rows = [
        common
        | {"name": word if word in MECHANISMS else "own", "mechanism": word}
        | (_CORE[word] if word in _CORE else dict(class_of(word).examples[-1]))
        for word in words
    ]
    return [json.dumps(fields).encode() for fields in rows]


def _audit(
    of: list[bytes],
    where: list[audit_runtimes.Runtime],
    draws: int,
    confidence: float,
    more: dict[str, Any] | None,
) -> None:
    """Run the randomizer on two inputs many times; print lower bounds of ε; more: in JSON; None: as tables.

    Raises PrivacyViolated where a bound is above the nominal ε.
    """
    subjects = [subject(payload, whole) for payload in of for whole in (False, True)]
    jobs = [Job(s, (draws // 2, draws - draws // 2)) for s in subjects]
    error = (1 - confidence) / (len(where) * len(jobs))
    findings: list[AuditFinding] = []
    for runtime in where:
        with progress(f"drawing on {runtime.name}", 2 * draws * len(jobs)) as advance:
            tallies = audit_runtimes.run(runtime, jobs, drawn=advance)
        findings += [judge(s, t.runtime, t.halves, error) for s, t in zip(subjects, tallies, strict=True)]
    if more is not None:
        print_json({"confidence": confidence, "findings": [f.to_dict() for f in findings]} | more)
    else:
        _print(findings, confidence)
    worst = max(findings, key=lambda f: (not f.private, f.lower - f.nominal))
    if not worst.private:
        seen = f"by {worst.path} on {worst.runtime} has ε of at least {worst.lower:.4g}"
        words = seen if worst.lower > worst.nominal else f"has an exact ε of {_exact(worst)}"
        raise PrivacyViolated(f"not {worst.nominal:g}-LDP: {worst.name} {words}; do not let it report")


def _exact(finding: AuditFinding) -> str:
    """The exact ε by how far it is from the nominal one."""
    over = finding.exact - finding.nominal
    return f"{finding.nominal:g} {'-' if over <= 0 else '+'} {abs(over):.1g}"


def _print(findings: list[AuditFinding], confidence: float) -> None:
    for runtime in dict.fromkeys(f.runtime for f in findings):
        rows = [f for f in findings if f.runtime == runtime]
        made = table(f"{runtime}: {rows[0].draws:,} draws of each of two inputs", _HEADINGS, 2, no_wrap=True)
        for f in rows:
            fits = "yes" if f.fit > (1 - confidence) / len(findings) else f"no, p = {f.fit:.1g}"
            name = f.name if f.name == f.mechanism else f"{f.name} ({f.mechanism})"
            numbers = f"{f.nominal:g}", _exact(f), f"{f.lower:.4f}"
            made.add_row(name, f.path, *numbers, fits, style="" if f.private else "red")
        made.columns[1].no_wrap, made.columns[-1].justify = True, "left"
        show.out.print(made)
        show.out.print()
    show.out.print(
        f"All bounds hold together with {confidence * 100:g} % confidence. An audit can refute a claim of "
        "privacy, not prove it: it sees two inputs and what it counted. The proof is the enumeration of "
        "every branch: hushmote check-mechanism."
    )
