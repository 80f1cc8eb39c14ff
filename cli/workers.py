"""The options --workers and --dask, of commands whose work can be divided."""

from __future__ import annotations

from typing import Annotated

import typer

WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Processes on this machine, by Dask; the numbers stay the same.",
    ),
]
DaskUrl = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="URL",
        help="A Dask scheduler whose workers do it: tcp://10.0.0.5:8786.",
    ),
]
