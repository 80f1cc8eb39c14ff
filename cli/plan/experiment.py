"""The experiment file of a planned life."""

from __future__ import annotations

from pathlib import Path

from ...server.planning import experiment_file as plan_file
from ...server.planning.experiment_file import Reading
from ...server.planning.lifetime import LifetimePlan
from . import words
from .options import PlanOptions


def experiment_of(life: LifetimePlan, reading: Reading, path: Path, options: PlanOptions) -> str:
    """The text of the file that asks what was planned. Raises PlanError where a board would refuse it."""
    best = life.best
    said = (
        f"{words.asked(life.question)}, {life.devices:,} devices, for {words.length(life.rhythm.horizon_s)}"
    )
    cap = plan_file.nats(best.cap * best.epsilon) if best.rule == "sum" else str(best.cap)
    terms = options.terms(path, said, life.rhythm.days, best.every, best.rule, cap)
    return plan_file.toml(reading, best.design, terms)
