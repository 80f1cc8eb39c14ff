"""Controls for an estimate's rows, post-processing, confidence, version and quantiles."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from ...device.ldp_client import Experiment
from ...server.experiments.units import UnitsError
from ...server.words.scope import ALL_VERSIONS
from ..reader import Reader
from .chart import CHOSEN
from .choices import CONFIDENCES, Choices, typed_quantiles

OF_WINDOWS = ("Over time", "Compare")
EXPORT = "Export"
PARTS = (*OF_WINDOWS, "How private", EXPORT)
"""Parts of the view, which links refer to; a URL may end in #how-private."""

Choose = Callable[..., Awaitable[None]]
"""A function called with a reader's new choices; its keyword arguments are Question's fields and `over`."""

_DEFAULT_VERSIONS = "all with the newest values"
_POSTS = {"raw": "none: unbiased", "nonnegative": "nonnegative", "smooth": "smooth"}


@dataclass(frozen=True)
class PanelContext:
    """The context that all panels share.

    Attributes:
        experiment: The newest version of the experiment.
        unit: The unit of its readings.
        can: The kinds of answers that it supports.
        reader: The reader's number and date formats.
        choose: Called with the reader's new choices.
    """

    experiment: Experiment
    unit: str
    can: Set[str]
    reader: Reader
    choose: Choose


def select(options: Any, label: str, chosen: Callable[[], Awaitable[None]], **more: Any) -> ui.select:
    """Return a drop-down list; chosen() is called when the reader, but not the server, changes it."""
    field = ui.select(options, label=label, **more).classes("experiment-field")
    field.on(CHOSEN, chosen)
    return field


def offer(field: ui.select, options: Any, value: Any) -> None:
    """Set a list's options, and its chosen value or values."""
    if options != field.options:
        field.set_options(options)
    field.value = value


def summarize(field: ui.select, chosen: int, available: int) -> None:
    """Show the number of chosen windows in a list, because their names would fill many lines."""
    field.props["display-value"] = f"{chosen:,} of {available:,}" if chosen else ""
    field.update()


def offer_versions(first: str, field: ui.select, versions: Mapping[str, str], value: str) -> None:
    """Offer versions (digest -> name) below a first option; hide the field if only one version exists."""
    offer(field, {"": first, **versions}, value)
    field.visible = len(versions) > 1


class Parts:
    """Links to the view's parts."""

    def __init__(self) -> None:
        self._links: dict[str, ui.link] = {}
        with ui.element("nav").classes("experiment-parts").props('aria-label="Parts"') as self.element:
            for name in PARTS:
                self._links[name] = ui.link(name, f"#{name.lower().replace(' ', '-')}")
        self.show(())

    def show(self, names: Sequence[str]) -> None:
        """Show links to only these parts."""
        for name, link in self._links.items():
            link.visible = name in names


class Controls:
    """The fields above the picture."""

    def __init__(self, context: PanelContext, choices: Choices):
        self._choose, reader, domain = context.choose, context.reader, context.experiment.domain
        number = "quantiles" in context.can
        finest = sorted({min(n, domain) for n in (8, 16, 32, 64, 256, domain)})
        rows = {0: "as many as the reports support"} | {n: reader.number(n, 0) for n in finest}
        posts = {name: text for name, text in _POSTS.items() if number or name != "smooth"}
        confidences = {c: reader.percent(c, 0) for c in sorted({*CONFIDENCES, choices.question.confidence})}
        with ui.row().classes("experiment-controls"):
            row_count = choices.question.rows or 0
            self._rows = select({row_count: f"{row_count}"} | rows, "Rows", self._chosen, value=row_count)
            self._post = select(posts, "Post-processing", self._chosen, value=choices.question.post)
            self._confidence = select(
                confidences, "Confidence", self._chosen, value=choices.question.confidence
            )
            self._version = select({"": _DEFAULT_VERSIONS}, "Version", self._chosen, value="")
            self._current_quantiles = choices.quantiles
            self._quantiles = ui.input("Quantiles, %", value=_percents(self._current_quantiles))
            self._quantiles.on("change", self._chosen).classes("experiment-field")
        self._rows.visible = self._quantiles.visible = number
        self._post.visible = "frequencies" in context.can

    async def _chosen(self) -> None:
        quantiles: dict[str, Any] = {}
        try:
            quantiles["quantiles"] = self._current_quantiles = typed_quantiles(self._quantiles.value or "")
        except UnitsError as e:
            self._quantiles.error = f"Type {e}. The page still shows {_percents(self._current_quantiles)}."
        else:
            self._quantiles.error = None
        await self._choose(
            rows=self._rows.value or None,
            post=self._post.value,
            confidence=self._confidence.value,
            version=self._version.value or "",
            **quantiles,
        )

    def show(self, choices: Choices, versions: Mapping[str, str]) -> None:
        """Show the choices; `versions` maps digests to names."""
        every = {ALL_VERSIONS: "all, for the values in common"} if len(versions) > 1 else {}
        offer_versions(_DEFAULT_VERSIONS, self._version, {**versions, **every}, choices.question.version)


def _percents(quantiles: Sequence[float]) -> str:
    return ", ".join(f"{q * 100:g}" for q in quantiles)
