"""A chart on which the user drags to select a range; the server can move the selection as well."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import events, ui

Ends = tuple[float, float]

CHOSEN = "update:model-value"
"""A field's event for changes by the user, but not by the server."""

# During a drag, emit both ends of the selection to the server, in the axis's unit.
_DRAGGED = "e => { const a = (e.areas || [])[0]; if (a && a.coordRange) emit(...a.coordRange.map(Number)); }"
# At the end of a drag, do the same; a click outside the selection clears it.
_RELEASED = (
    "e => { const a = (e.areas || [])[0]; a ? a.coordRange && emit(...a.coordRange.map(Number)) : emit(); }"
)
# Set the brush when the chart is first drawn, because the user may drag before the server's next message.
_WHEN_DRAWN = """() => {
  const element = getElement(ID), chart = element.chart;
  hushmote.fit(chart);
  if (!chart || !chart.getOption().series.length) return;
  const areas = element.$el.dataset.areas;
  if (!chart.hushmote && areas) {
    const brushOption = {brushType: 'lineX', brushMode: 'single'};
    chart.dispatchAction({type: 'takeGlobalCursor', key: 'brush', brushOption});
    chart.dispatchAction({type: 'brush', areas: JSON.parse(areas)});
  }
  performance.mark('chart drawn');
  if (!chart.hushmote) emit(areas || '');
  chart.hushmote = true;
}"""


class RangeSelectChart:
    """A chart on which a range of the horizontal axis can be selected."""

    def __init__(
        self,
        name: str,
        on_drag: Callable[[Ends], Awaitable[None]] | None = None,
        on_clear: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Create the chart.

        Args:
            name: The chart's name for screen readers.
            on_drag: Called with both ends of the selection on the horizontal axis; None to disable dragging.
            on_clear: Called when the user clears the selection; None to restore the selection instead.
        """
        self._on_drag, self._on_clear = on_drag, on_clear
        self._ready = False
        self._area: Ends | None = None
        self.element = (
            ui.echart({}, renderer="svg")
            .classes("experiment-chart waiting")
            .props(f'role="img" aria-label="{name}"')
        )
        if on_drag is not None:
            self.element.classes("experiment-drag")
        self.element.on(
            "chart:finished", self._begin, js_handler=_WHEN_DRAWN.replace("ID", str(self.element.id))
        )
        if on_drag is not None:
            self.element.on("chart:brush", self._drag, js_handler=_DRAGGED, throttle=0.05)
            self.element.on("chart:brushEnd", self._drag, js_handler=_RELEASED)

    def show(self, options: dict[str, Any], area: Ends | None = None, height: int = 340) -> None:
        """Draw new options, with the brush on an area."""
        self.element.classes(remove="waiting").options.update(options)
        self.element.style(f"height: {height}px")
        self.element.update()
        self.move(area)

    def move(self, area: Ends | None) -> None:
        """Move the brush to an area, or remove it."""
        if self._on_drag is None or (area == self._area and self._ready):
            return
        self._area = area
        if self._ready:
            self.element.run_chart_method("dispatchAction", {"type": "brush", "areas": self._areas()})
        else:
            self.element.props["data-areas"] = json.dumps(self._areas())
            self.element.update()

    def _areas(self) -> list[dict[str, Any]]:
        return [{"brushType": "lineX", "xAxisIndex": 0, "coordRange": list(self._area)}] if self._area else []

    def _begin(self, event: events.GenericEventArguments) -> None:
        area, self._ready = self._area, True
        if self._on_drag is not None and event.args != json.dumps(self._areas()):
            self._area = None
            self.move(area)

    async def _drag(self, event: events.GenericEventArguments) -> None:
        if not isinstance(event.args, list) or len(event.args) != 2:
            await self._clear()
            return
        low, high = (float(x) for x in event.args)
        if (low, high) != self._area and self._on_drag is not None:
            self._area = low, high
            await self._on_drag((low, high))

    async def _clear(self) -> None:
        area, self._area = self._area, None
        if area is None:
            return
        if self._on_clear is None:
            self.move(area)
        else:
            await self._on_clear()
