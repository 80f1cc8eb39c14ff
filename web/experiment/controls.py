"""How an estimate is shown: rows, post-processing, confidence, version, quantiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from nicegui import ui

from ...server.experiments.units import UnitsError
from ..reader import Reader
from .chart import CHOSEN
from .choices import CONFIDENCES, Choices, typed_quantiles
from .shares_panel import Choose

_POSTS = {"raw": "none: unbiased", "nonnegative": "nonnegative", "smooth": "smooth"}


class Controls:
    """The fields above the picture; can: what the experiment answers, domain: how many values there are."""

    def __init__(self, can: Set[str], domain: int, reader: Reader, choices: Choices, choose: Choose):
        self._choose = choose
        number = "quantiles" in can
        finest = sorted({n for n in (8, 16, 32, 64, 256) if n < domain} | {domain})
        rows = {0: "as fine as reports tell"} | {n: reader.number(n, 0) for n in finest}
        posts = {name: text for name, text in _POSTS.items() if number or name != "smooth"}
        sure = {c: reader.percent(c, 0) for c in sorted({*CONFIDENCES, choices.confidence})}
        with ui.row().classes("experiment-controls"):
            self._rows = ui.select(
                rows if (choices.rows or 0) in rows else rows | {choices.rows: f"{choices.rows}"},
                label="Rows", value=choices.rows or 0,
            )  # fmt: skip
            self._post = ui.select(posts, label="Post-processing", value=choices.post)
            self._confidence = ui.select(sure, label="Confidence", value=choices.confidence)
            self._version = ui.select({"": "all, pooled"}, label="Version", value="")
            self._shown = choices.quantiles
            self._quantiles = ui.input("Quantiles, %", value=_percents(self._shown))
            for field in (self._rows, self._post, self._confidence, self._version):
                field.on(CHOSEN, self._chosen).classes("experiment-field")
            self._quantiles.on("change", self._chosen).classes("experiment-field")
        self._rows.visible = self._quantiles.visible = number
        self._post.visible = "frequencies" in can

    async def _chosen(self) -> None:
        changed: dict[str, Any] = {}
        try:
            changed["quantiles"] = self._shown = typed_quantiles(self._quantiles.value or "")
        except UnitsError as e:
            self._quantiles.error = f"Wanted: {e}. Shown are still {_percents(self._shown)}."
        else:
            self._quantiles.error = None
        await self._choose(
            rows=self._rows.value or None,
            post=self._post.value,
            confidence=self._confidence.value,
            version=self._version.value or "",
            **changed,
        )

    def show(self, choices: Choices, versions: Mapping[str, str]) -> None:
        """Show what is chosen; versions: digest -> what it is called."""
        options = {"": "all, pooled", **versions}
        if options != self._version.options:
            self._version.set_options(options)
        self._version.visible = len(versions) > 1
        self._version.value = choices.version


def _percents(quantiles: Sequence[float]) -> str:
    return ", ".join(f"{q * 100:g}" for q in quantiles)
