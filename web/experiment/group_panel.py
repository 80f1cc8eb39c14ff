"""The choice of an open group's value, with the number of reports of each."""

from nicegui import ui

from ...server.answers.suppression import GroupReports
from ...server.words.answers import capitalize
from ..reader import Reader
from .answer_table import rows_table
from .controls import Choose, offer, select


class GroupPanel:
    """A list of the values, and a table of their reports; hidden if the experiment has no group."""

    def __init__(self, choose: Choose, reader: Reader) -> None:
        self._choose, self._reader = choose, reader
        self._shown: GroupReports | None = None
        with ui.row().classes("experiment-controls").props('id="group"') as self._row:
            self._value = select({"": "all, pooled"}, "Group", self._chosen, value="")
            self._reports = ui.column().classes("experiment-lines")
        self._row.visible = False

    async def _chosen(self) -> None:
        await self._choose(group=self._value.value or "")

    def show(self, reports: GroupReports | None) -> None:
        """Show the reports by value in the chosen period, or hide the panel."""
        self._row.visible = reports is not None
        if reports is None:
            return
        options = {row.value: f"{row.value} ({row.not_shown})".removesuffix(" ()") for row in reports.rows}
        offer(self._value, {"": "all, pooled"} | options, reports.value)
        if reports == self._shown:
            return
        self._shown = reports
        self._value.props["label"] = capitalize(reports.name)
        self._reports.clear()
        table = reports.table(self._reader)
        with self._reports:
            rows_table([capitalize(heading) for heading in table.headings], table.rows)
            for note in table.notes:
                ui.label(note)
