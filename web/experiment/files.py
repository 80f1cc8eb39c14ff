"""Exports for readers: the files of `hushmote estimate --output`, and its command line."""

import shlex
import tempfile
import threading
from pathlib import Path
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import app, ui
from sqlalchemy.engine import make_url

from ...server.answers.ask import Reply, ask
from ...server.answers.query import Facts, Selected
from ...server.answers.question import Question, Selection
from ...server.answers.store_reader import StoreReader
from ...server.errors import HushmoteError
from ...server.experiments.answerable import OF_VALUES
from ...server.hints import use_command_hints
from ..frame import heading
from ..page import Page
from .choices import Choices, fitting, from_query
from .defaults import file_texts, with_opening, without_file_texts

TABLES = ("estimate", "trend", "change")
KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json", "png": "image/png"}

_drawing = threading.Lock()  # matplotlib's settings are global to the process


def question(table: str, choices: Choices, of: Selected) -> Question:
    """Return the question of a table: an estimate, a trend, or a change."""
    return {"estimate": choices.estimate, "trend": choices.trend, "change": choices.change}[table](of)


def command_line(table: str, choices: Choices, of: Selected, store: str) -> str:
    """Return the equivalent command; a store's password is not shown, since it belongs in HUSHMOTE_STORE."""
    secret = make_url(store).password is not None
    where = [] if secret else ["--store", store]
    one, there = question(table, without_file_texts(choices, of), of), tuple(of.there)
    before = tuple(text for text in one.against if "=" not in text)
    against = (*_spans(before, there), *one.against[len(before) :])
    one = one.replace(windows=_spans(one.windows, there), against=against)
    return shlex.join(["hushmote", "estimate", *one.arguments(), *where])


def _spans(windows: tuple[str, ...], there: tuple[str, ...]) -> tuple[str, ...]:
    """Return windows in the command's form: as one span if they are adjacent."""
    if len(windows) < 2 or windows[0] not in there:
        return windows
    first = there.index(windows[0])
    neighbours = there[first : first + len(windows)] == windows
    return (f"{windows[0]}..{windows[-1]}",) if neighbours else windows


def file_of(reply: Reply, kind: str) -> bytes:
    """Return a file: csv, json or png."""
    if kind == "csv":
        return reply.answers.to_csv().encode()
    if kind == "json":
        return reply.to_json().encode()
    with _drawing, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        reply.picture_answers().plot(path)
        return path.read_bytes()


def address(of: Selection, table: str, kind: str, choices: Choices) -> str:
    """Return the address of a file."""
    path = f"/experiment/{quote(of.fleet, safe='')}/{quote(of.experiment, safe='')}/{table}.{kind}"
    return f"{path}?{choices.query()}".removesuffix("?")


def register(page: Page) -> None:
    """Register the routes of the files."""

    @app.get("/experiment/{fleet}/{name}/{table}.{kind}", include_in_schema=False)
    async def _(request: Request, fleet: str, name: str, table: str, kind: str) -> Response:
        if table not in TABLES or kind not in KINDS or not is_shown(page, fleet):
            return PlainTextResponse("there is no such file", 404)
        choices = from_query(request.url.query, Question(experiment=name, fleet=fleet))

        def write(store: StoreReader) -> bytes:
            facts = Facts(store.store)
            of = facts.selected(Selection(name, fleet))
            fitted = with_opening(fitting(choices, of), of)
            one = question(table, fitted, of)
            if kind == "png" and table == "estimate" and "candidates" not in of.can:  # as on the page
                one = one.replace(ranges=(), together=False, quantiles=())
            with use_command_hints():
                return file_of(ask(facts, one), kind)

        try:
            data = await page.live.ask(("file", fleet, name, table, kind, choices), write)
        except HushmoteError as e:
            return PlainTextResponse(str(e), 404)
        attached = f'attachment; filename="{name}-{table}.{kind}"'
        return Response(
            data,
            media_type=KINDS[kind],
            headers={"Content-Disposition": attached, "Cache-Control": "no-store"},
        )


def is_shown(page: Page, fleet: str) -> bool:
    """Return whether the page shows a fleet."""
    return page.settings.fleet is None or page.settings.fleet == fleet


_CALLED = {"estimate": "These numbers", "trend": "Over time", "change": "The comparison"}


class ExportPanel:
    """Links to CSV, JSON and PNG, and the commands."""

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
                    ui.label(_CALLED[table])
                    for kind in KINDS:
                        link = ui.link(kind.upper(), "#").props(
                            f'download aria-label="{_CALLED[table]}, {kind}"'
                        )
                        self._links[table, kind] = link
                command = ui.label().props(f'id="command-{table}" role="code" tabindex="0"')
                self._commands[table] = command.classes("experiment-command")

    def show(self, of: Selected, choices: Choices) -> None:
        """Show files and commands of these choices."""
        choices = without_file_texts(choices, of)
        values = bool(of.can & OF_VALUES)
        there = {
            "estimate": "candidates" not in of.can or bool(file_texts(of) or choices.ranges),
            "trend": values and len(of.there) > 1,
            "change": values and choices.compares,
        }
        self._heading.visible = self.has_files = any(there.values())
        for table, row in self._rows.items():
            row.visible = there[table]
            if row.visible:
                self._commands[table].text = command_line(table, choices, of, self._store)
                for kind in KINDS:
                    link = self._links[table, kind]
                    link.props["href"] = address(of.selection, table, kind, choices)
                    link.update()
