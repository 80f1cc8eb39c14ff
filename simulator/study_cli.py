"""`hushmote study ...`: simulations that a planner can repeat, each with its theory beside it."""

from __future__ import annotations

import typer

study_app = typer.Typer(help="Studies: simulations with their theory beside them.", no_args_is_help=True)
