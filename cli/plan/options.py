"""The options of `hushmote plan`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ...planning.request import PlanRequest
from ..options import AsJson
from ..output import output_option

EXPERIMENT = ".toml"
"""The end of an experiment file's name."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions(PlanRequest):
    """All of the command's options: the request, whose fields have their help, and what comes out."""

    input: Annotated[
        str | None,
        "Propose range, bins and unit, labels, or yes and no from readings in a CSV file, and "
        "simulate the plan on them.",
        "FILE:COLUMN",
    ] = None
    output: Annotated[
        list[Path] | None,
        output_option("the experiment as .toml, a picture as .png, .pdf or .svg"),
    ] = None
    as_json: AsJson = False
