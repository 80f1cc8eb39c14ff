"""Tables and tiles of an answer's rows, with name, estimate and interval."""

from collections.abc import Iterable, Sequence

from nicegui import ui

from ...server.answers.answer import Answer
from ...server.answers.rows import Row
from ...server.words import answers as words
from ...server.words import findings
from ...server.words.numbers import decimals, format_estimate
from ..frame import tag
from ..in_locale import in_locale
from ..reader import Reader
from .controls import PanelContext


def format_row(row: Row, reader: Reader, *more: float, share: bool = True) -> list[str]:
    """Return a row's value, interval and further numbers, with as many digits as the interval supports.

    The numbers are shares, shown in percent, or with share=False, readings.
    """
    scale, write = (100, reader.percent) if share else (1, reader.number)
    places = decimals(row.low * scale, row.high * scale)
    return [write(x, places) for x in (row.value, row.low, row.high, *more)]


_SPREAD = "standard deviation"


def number_tiles(container: ui.element, answers: Iterable[Answer], context: PanelContext) -> None:
    """Fill a container with a tile for each reading, which shows its name, value and interval."""
    unit, reader = context.unit, context.reader
    container.clear()
    with container:
        for row in (row for answer in answers for row in answer.telling().rows):
            at_most = row.low <= 0 and row.name == _SPREAD
            value, interval = format_estimate(row.value, row.low, row.high, unit, reader)
            high = findings.level(row.high, row, unit, reader)
            with ui.element("li"):
                tag("span", in_locale(words.capitalize(row.name), reader)).classes("faint")
                tag("strong", f"at most {high}" if at_most else value)
                tag("span", "" if at_most else interval).classes("faint")


def table_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[dict[str, str | int]]:
    """Return rows in the form that ui.table needs; missing cells are empty."""
    empty = dict.fromkeys(columns, "")
    return [{**empty, **dict(zip(columns, row, strict=False)), "key": n} for n, row in enumerate(rows)]


def rows_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> ui.table:
    """Return a table that is dense enough for a phone."""
    headings = [{"name": n, "label": n, "field": n, "align": "left"} for n in columns]
    table = ui.table(rows=table_rows(columns, rows), columns=headings, row_key="key", pagination=0)
    return table.props("dense wrap-cells hide-pagination").classes("rows-table")
