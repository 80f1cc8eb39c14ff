"""The option --workers, of commands whose work can be divided."""

from __future__ import annotations

from typing import Annotated

import typer

WhichWorkers = Annotated[
    str | None,
    typer.Option(
        "--workers",
        metavar="N|URL",
        help="Divide the work among processes of this machine, or a Dask scheduler's workers: 4, "
        "tcp://10.0.0.5:8786. The numbers stay the same.",
    ),
]
