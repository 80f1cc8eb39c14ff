"""Controls for the form of an estimate: rows, post-processing, confidence, version, quantiles."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from ...device.ldp_client import Experiment
from ...server.experiments.units import UnitsError
from ..reader import Reader
from .chart import CHOSEN
from .choices import CONFIDENCES, Choices, typed_quantiles

OF_WINDOWS = ("Over time", "Compare")
EXPORT = "Export"
PARTS = (*OF_WINDOWS, "How private", EXPORT)
"""Parts of the view with links to them; an address may end in #how-private."""

Choose = Callable[..., Awaitable[None]]
"""Called with a reader's new choices, by field name of Question, or `over`."""

_POSTS = {"raw": "none: unbiased", "nonnegative": "nonnegative", "smooth": "smooth"}


@dataclass(frozen=True)
class PanelContext:
    """The context of every panel: the question and unit, the answers, the reader, and the callback."""

    experiment: Experiment
    unit: str
    can: Set[str]
    reader: Reader
    choose: Choose


def select(options: Any, label: str, chosen: Callable[[], Awaitable[None]], **more: Any) -> ui.select:
    """Return a list to choose from; `chosen` is called when the reader, not the server, chooses."""
    field = ui.select(options, label=label, **more).classes("experiment-field")
    field.on(CHOSEN, chosen)
    return field


def offer(field: ui.select, options: Any, value: Any) -> None:
    """Set the options of a list, and its chosen value or values."""
    if options != field.options:
        field.set_options(options)
    field.value = value


def summarize(field: ui.select, chosen: int, there: int) -> None:
    """Show the number of chosen windows in a list: their names would fill many lines."""
    field.props["display-value"] = f"{chosen:,} of {there:,}" if chosen else ""
    field.update()


def versioned(first: str, field: ui.select, versions: Mapping[str, str], value: str) -> None:
    """Offer versions (digest -> name) below the first; hide the field if there is only one."""
    offer(field, {"": first, **versions}, value)
    field.visible = len(versions) > 1


class Parts:
    """Links to the parts of the view."""

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
        finest = sorted({n for n in (8, 16, 32, 64, 256) if n < domain} | {domain})
        rows = {0: "as fine as reports tell"} | {n: reader.number(n, 0) for n in finest}
        posts = {name: text for name, text in _POSTS.items() if number or name != "smooth"}
        sure = {c: reader.percent(c, 0) for c in sorted({*CONFIDENCES, choices.question.confidence})}
        with ui.row().classes("experiment-controls"):
            row_count = choices.question.rows or 0
            self._rows = select({row_count: f"{row_count}"} | rows, "Rows", self._chosen, value=row_count)
            self._post = select(posts, "Post-processing", self._chosen, value=choices.question.post)
            self._confidence = select(sure, "Confidence", self._chosen, value=choices.question.confidence)
            self._version = select({"": "all, pooled"}, "Version", self._chosen, value="")
            self._quantiles_shown = choices.quantiles
            self._quantiles = ui.input("Quantiles, %", value=_percents(self._quantiles_shown))
            self._quantiles.on("change", self._chosen).classes("experiment-field")
        self._rows.visible = self._quantiles.visible = number
        self._post.visible = "frequencies" in context.can

    async def _chosen(self) -> None:
        changed: dict[str, Any] = {}
        try:
            changed["quantiles"] = self._quantiles_shown = typed_quantiles(self._quantiles.value or "")
        except UnitsError as e:
            self._quantiles.error = f"Type {e}. The page still shows {_percents(self._quantiles_shown)}."
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
        """Show the choices; `versions` maps digest -> name."""
        versioned("all, pooled", self._version, versions, choices.question.version)


def _percents(quantiles: Sequence[float]) -> str:
    return ", ".join(f"{q * 100:g}" for q in quantiles)
