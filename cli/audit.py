"""What `hushmote check-mechanism --samples` does: lower bounds of ε, counted on a runtime or a board."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..server.answers import tables as show
from ..server.experiments.definition import load
from ..server.mechanisms import MECHANISMS, class_of
from ..server.privacy import audit_runtimes
from ..server.privacy.audit import AuditError, Finding, judge, subject
from ..server.privacy.audit_runtimes import CLIENT, Job
from .options import print_json
from .progress import progress

_DRAWS, _BOARD_DRAWS = 20_000, 1_000

_NUMBER = {"type": "number", "low": 0, "high": 64_000, "bins": 64}
_CORE: tuple[dict[str, Any], ...] = (
    {"name": "rr", "type": "bool", "mechanism": "rr", "epsilon": 1_000_000},
    {
        "name": "grr",
        "type": "choice",
        "labels": ["ok", "low", "high", "fault"],
        "mechanism": "grr",
        "epsilon": 2_000_000,
    },
    {"name": "olh"} | _NUMBER | {"mechanism": "olh", "g": 3, "epsilon": 1_000_000},
    {"name": "hh"} | _NUMBER | {"mechanism": "hh", "fanout": 4, "cells": [4, 5, 5], "epsilon": 1_500_000},
)


class PrivacyViolated(AuditError):
    """A lower bound of ε above the nominal one; the text says where."""


def payloads(name: str | None, further: bool = True) -> list[bytes]:
    """The experiment of a TOML file, an example of a mechanism, or one of each where nothing is named.

    further: of those beside the core as well. Raises HushmoteError for a mechanism that is not there.
    """
    if name is not None and name.endswith(".toml"):
        return [load(Path(name)).payload()]
    known = {fields["mechanism"] for fields in _CORE}
    examples = {word: of.examples[-1] for word, of in MECHANISMS.items() if word not in known}
    ends = {"epsilon": 1_000_000}
    rows = [dict(fields) for fields in _CORE]
    if further or name is not None:
        rows += [{"name": word, "mechanism": word} | dict(of) | ends for word, of in examples.items()]
    if name is not None:
        rows = [row for row in rows if row["mechanism"] == name] or [
            {"name": "own", "mechanism": name} | dict(class_of(name).examples[-1]) | ends
        ]
    common = {"v": 1, "budget": {"rule": "unlimited"}, "window": "all"}
    return [json.dumps(common | fields).encode() for fields in rows]


@dataclass(frozen=True)
class Audit:
    """What is sampled: see the options of the same names of `hushmote check-mechanism`."""

    subject: str | None
    samples: int | None
    port: str | None
    runtime: str
    client: Path | None
    confidence: float


def audit(asked: Audit, as_json: bool) -> None:
    """Run the shipped randomizer on two inputs many times; print lower bounds of ε.

    Raises AuditError for what cannot be asked, PrivacyViolated where a bound is above the nominal ε.
    """
    confidence, client, port = asked.confidence, asked.client, asked.port
    if not 0.5 <= confidence < 1:
        raise AuditError(f"confidence must be at least 0.5 and below 1, not {confidence:g}")
    if client is not None and (port or not client.is_file()):
        why = "a board has its own: leave --client out" if port else f"there is no file {client}"
        raise AuditError(why)
    where = [audit_runtimes.board(port)] if port else audit_runtimes.select(asked.runtime)
    draws = asked.samples or (_BOARD_DRAWS if port else _DRAWS)
    found = payloads(asked.subject, not port)
    subjects = [subject(payload, whole) for payload in found for whole in (False, True)]
    jobs = [Job(s, (draws // 2, draws - draws // 2)) for s in subjects]
    findings = _findings(where, jobs, (1 - confidence) / (len(where) * len(jobs)), client or CLIENT)
    if as_json:
        rows = [finding.to_dict() for finding in findings]
        print_json({"confidence": confidence, "findings": rows})
    else:
        _print(findings, confidence)
    worst = max(findings, key=lambda f: (not f.private, f.lower - f.nominal))
    if not worst.private:
        seen = f"by {worst.path} on {worst.runtime} has ε of at least {worst.lower:.4g}"
        words = seen if worst.lower > worst.nominal else f"has an exact ε of {_exact(worst)}"
        raise PrivacyViolated(f"not {worst.nominal:g}-LDP: {worst.name} {words}; do not let it report")


def _findings(
    where: list[audit_runtimes.Runtime], jobs: list[Job], error: float, client: Path
) -> list[Finding]:
    findings = []
    draws = sum(2 * sum(job.halves) for job in jobs)
    for runtime in where:
        with progress(f"drawing on {runtime.name}", draws) as advance:
            tallies = audit_runtimes.run(runtime, jobs, client=client, drawn=advance)
        findings += [
            judge(job.subject, t.runtime, t.halves, error) for job, t in zip(jobs, tallies, strict=True)
        ]
    return findings


def _exact(finding: Finding) -> str:
    """The exact ε by how far it is from the nominal one."""
    over = finding.exact - finding.nominal
    return f"{finding.nominal:g} {'-' if over <= 0 else '+'} {abs(over):.1g}"


def _print(findings: list[Finding], confidence: float) -> None:
    by_runtime: dict[str, list[Finding]] = {}
    for finding in findings:
        by_runtime.setdefault(finding.runtime, []).append(finding)
    for name, rows in by_runtime.items():
        table = show.table(f"{name}: {rows[0].draws:,} draws of each of two inputs")
        table.add_column("experiment")
        table.add_column("function", no_wrap=True)
        for heading in ("nominal ε", "exact ε", "ε at least"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("as specified", no_wrap=True)
        for f in rows:
            style = "" if f.private else "red"
            fits = "yes" if f.fit > (1 - confidence) / len(findings) else f"no, p = {f.fit:.1g}"
            table.add_row(
                f.name if f.name == f.mechanism else f"{f.name} ({f.mechanism})",
                f.path,
                f"{f.nominal:g}",
                _exact(f),
                f"{f.lower:.4f}",
                fits,
                style=style,
            )
        show.out.print(table)
        show.out.print()
    show.out.print(
        f"All bounds hold together with {confidence * 100:g} % confidence. An audit can refute a claim of "
        "privacy, not prove it: it sees two inputs and what it counted. The proof is the enumeration of "
        "every branch: hushmote check-mechanism."
    )
