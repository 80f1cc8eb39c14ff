"""A picture that a reader can drag over: NiceGUI's ECharts, with a brush that the server can move too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import events, ui

Ends = tuple[float, float]

CHOSEN = "update:model-value"
"""What a field does when a reader, and not the server, changes it."""

# What was dragged over, with what is told to the server: the ends, on the axis.
_DRAGGED = "e => { const a = (e.areas || [])[0]; if (a && a.coordRange) emit(...a.coordRange.map(Number)); }"
# The first time that something is drawn; before, ECharts knows no axis to put a brush on.
_DRAWN = """() => {
  const chart = getElement(ID).chart;
  performance.mark('chart drawn');
  // It was begun before the page had its width.
  if (chart && Math.abs(chart.getWidth() - chart.getDom().clientWidth) > 1) chart.resize();
  if (!chart || chart.hushmote || !chart.getOption().series.length) return;
  chart.hushmote = true;
  emit();
}"""


class DraggedChart:
    """A picture; dragged is called with both ends of what was dragged over, on its horizontal axis."""

    def __init__(self, name: str, dragged: Callable[[Ends], Awaitable[None]] | None = None) -> None:
        self._dragged = dragged
        self._ready = False
        self._area: Ends | None = None
        self.element = (
            ui.echart({}, renderer="svg")
            .classes("experiment-chart waiting")
            .props(f'role="img" aria-label="{name}"')
        )
        if dragged is not None:
            self.element.classes("experiment-drag")
        self.element.on("chart:finished", self._begin, js_handler=_DRAWN.replace("ID", str(self.element.id)))
        if dragged is not None:
            self.element.on("chart:brush", self._drag, js_handler=_DRAGGED, throttle=0.05)
            self.element.on("chart:brushEnd", self._drag, js_handler=_DRAGGED)

    def show(self, options: dict[str, Any], area: Ends | None = None, height: int = 340) -> None:
        """Draw other options, and the brush at an area."""
        self.element.classes(remove="waiting").options.clear()
        self.element.options.update(options)
        self.element.style(f"height: {height}px")
        self.element.update()
        self.move(area)

    def move(self, area: Ends | None) -> None:
        """Put the brush at an area, or take it away."""
        if area == self._area and self._ready:
            return
        self._area = area
        if self._ready and self._dragged is not None:
            areas = [{"brushType": "lineX", "xAxisIndex": 0, "coordRange": list(area)}] if area else []
            self.element.run_chart_method("dispatchAction", {"type": "brush", "areas": areas})

    def _begin(self) -> None:
        area, self._area, self._ready = self._area, None, True
        if self._dragged is None:
            return
        brush = {"brushType": "lineX", "brushMode": "single"}
        cursor = {"type": "takeGlobalCursor", "key": "brush", "brushOption": brush}
        self.element.run_chart_method("dispatchAction", cursor)
        self.move(area)

    async def _drag(self, event: events.GenericEventArguments) -> None:
        low, high = (float(x) for x in event.args)
        if (low, high) != self._area and self._dragged is not None:
            self._area = low, high
            await self._dragged((low, high))
