"""Exports for readers, with the files that `hushmote estimate --output` writes and the command itself."""

import shlex
import tempfile
import threading
from pathlib import Path
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import app, context, ui
from sqlalchemy.engine import make_url

from ...server.answers.ask import Reply, ask
from ...server.answers.query import Facts, Selected
from ...server.answers.question import Question, Selection
from ...server.answers.store_reader import StoreReader
from ...server.errors import HushmoteError
from ...server.experiments.answerable import OF_VALUES
from ...server.hints import use_command_hints
from ...server.plain_text import CsvDialect
from ..frame import heading, tag
from ..page import Page
from .choices import Choices, as_span, fitting, from_query
from .defaults import file_texts, with_defaults, without_file_texts

_DIALECT = "csv-dialect"  # the field of an address, and the cookie with a reader's choice
_DIALECTS: dict[CsvDialect, str] = {
    "plain": "any program",
    "excel-eu": "spreadsheets with a decimal comma (excel-eu)",
}
TABLES = ("estimate", "trend", "change")
KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json", "png": "image/png"}

_drawing = threading.Lock()  # matplotlib's settings are global to the process


def question(table: str, choices: Choices, selected: Selected) -> Question:
    """Return the question for a table, which is "estimate", "trend" or "change"."""
    return {"estimate": choices.estimate, "trend": choices.trend, "change": choices.change}[table](selected)


def command_line(table: str, choices: Choices, selected: Selected, store: str) -> str:
    """Return the equivalent command, without a store's password, which belongs in HUSHMOTE_STORE."""
    has_password = make_url(store).password is not None
    store_option = [] if has_password else ["--store", store]
    table_question, available = (
        question(table, without_file_texts(choices, selected), selected),
        tuple(selected.all_counts),
    )
    before = tuple(text for text in table_question.against if "=" not in text)
    against = (*as_span(before, available), *table_question.against[len(before) :])
    table_question = table_question.replace(
        windows=as_span(table_question.windows, available), against=against
    )
    return shlex.join(["hushmote", "estimate", *table_question.arguments(), *store_option])


def file_of(reply: Reply, kind: str, dialect: CsvDialect = "plain") -> bytes:
    """Return a reply as a file of this kind, which is csv, json or png."""
    if kind == "csv":
        return reply.answers.to_csv(dialect).encode()
    if kind == "json":
        return reply.to_json().encode()
    with _drawing, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        reply.picture_answers().plot(path)
        return path.read_bytes()


def address(selection: Selection, table: str, kind: str, choices: Choices) -> str:
    """Return a file's address."""
    fleet, name = quote(selection.fleet, safe=""), quote(selection.experiment, safe="")
    path = f"/experiment/{fleet}/{name}/{table}.{kind}"
    return f"{path}?{choices.query()}".removesuffix("?")


def register(page: Page) -> None:
    """Register the files' routes."""

    @app.get("/experiment/{fleet}/{name}/{table}.{kind}", include_in_schema=False)
    async def _(request: Request, fleet: str, name: str, table: str, kind: str) -> Response:
        if table not in TABLES or kind not in KINDS or not is_shown(page, fleet):
            return PlainTextResponse("no such file", 404)
        choices = from_query(request.url.query, Question(experiment=name, fleet=fleet))

        def write(store: StoreReader) -> bytes:
            facts = Facts(store.store)
            selected = facts.selected(Selection(name, fleet))
            fitted = with_defaults(fitting(choices, selected), selected)
            table_question = question(table, fitted, selected)
            if kind == "png" and table == "estimate" and "candidates" not in selected.answerable:
                # Draw the same picture as on the page.
                table_question = table_question.replace(ranges=(), together=False, quantiles=())
            with use_command_hints():
                return file_of(ask(facts, table_question), kind, dialect)

        dialect: CsvDialect = _dialect(request)
        try:
            data = await page.live.ask(("file", fleet, name, table, kind, choices, dialect), write)
        except HushmoteError as e:
            return PlainTextResponse(str(e), 404)
        disposition = f'attachment; filename="{name}-{table}.{kind}"'
        return Response(
            data,
            media_type=KINDS[kind],
            headers={"Content-Disposition": disposition, "Cache-Control": "no-store"},
        )


def _dialect(request: Request) -> CsvDialect:
    """Return the CSV dialect that a reader has chosen, in the address or else in the page's cookie."""
    name = request.query_params.get(_DIALECT) or request.cookies.get(_DIALECT)
    return "excel-eu" if name == "excel-eu" else "plain"


def is_shown(page: Page, fleet: str) -> bool:
    """Return whether the page shows a fleet."""
    return page.settings.fleet is None or page.settings.fleet == fleet


_TITLES = {"estimate": "These numbers", "trend": "Over time", "change": "The comparison"}


class ExportPanel:
    """Links to CSV, JSON and PNG files, the equivalent commands, and the choice of a CSV dialect."""

    def __init__(self, store: str) -> None:
        self._store = store
        self.has_files = True
        self._heading = heading("Export", 2).props('id="export"')
        self._links: dict[tuple[str, str], ui.link] = {}
        self._commands: dict[str, ui.label] = {}
        self._rows: dict[str, ui.column] = {}
        for table in TABLES:
            with ui.column().classes("experiment-lines") as self._rows[table]:
                with ui.row().classes("experiment-controls"):
                    ui.label(_TITLES[table])
                    for kind in KINDS:
                        link = ui.link(kind.upper(), "#").props(
                            f'download aria-label="{_TITLES[table]}, {kind}"'
                        )
                        self._links[table, kind] = link
                command = ui.label().props(f'id="command-{table}" role="code" tabindex="0"')
                self._commands[table] = command.classes("experiment-command")
        chosen = _dialect(context.client.request)
        with (
            tag("label", "CSV for").classes("faint experiment-dialect") as self._dialects,
            ui.element("select").props('id="csv-dialect"'),  # page.js remembers the choice
        ):
            for dialect, text in _DIALECTS.items():
                tag("option", text).props(f'value="{dialect}"' + " selected" * (dialect == chosen))

    def show(self, selected: Selected, choices: Choices) -> None:
        """Show the files and commands for these choices."""
        choices = without_file_texts(choices, selected)
        has_values = bool(selected.answerable & OF_VALUES)
        available = {
            "estimate": "candidates" not in selected.answerable
            or bool(file_texts(selected) or choices.ranges),
            "trend": has_values and len(selected.all_counts) > 1,
            "change": choices.compares,
        }
        self._heading.visible = self.has_files = self._dialects.visible = any(available.values())
        for table, row in self._rows.items():
            row.visible = available[table]
            if row.visible:
                self._commands[table].text = command_line(table, choices, selected, self._store)
                for kind in KINDS:
                    link = self._links[table, kind]
                    link.props["href"] = address(selected.selection, table, kind, choices)
                    link.update()
