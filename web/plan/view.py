"""The Plan view, which answers a question's parameters as they change and writes the experiment's file."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nicegui import background_tasks, ui

from ...planning.devices import PlanError
from ...planning.request import PlanRequest, in_python
from ...server.errors import HushmoteError
from ...server.words.epsilon import ALL_SEEN, ITS_REPORT, belief
from .. import charts
from ..frame import frame
from ..in_locale import in_locale
from ..page import Page
from ..reader import Reader, reader
from .answer import SolvedPlan, solve
from .entries import Entries, Fourth, plan_request
from .form import FormPart
from .result import ResultPart

log = logging.getLogger(__name__)

_WORKERS = ThreadPoolExecutor(2, "plan")  # separate, because a long search must not delay the other views
_CACHE: dict[tuple[PlanRequest, Fourth], SolvedPlan] = {}
_MAX_CACHED = 256
# Keep the answer, at the bottom edge, above a phone's keyboard.
_VIEWPORT = "width=device-width, initial-scale=1, interactive-widget=resizes-content"
_PAUSE_S = 0.1  # pause in the slider's movement after which the search begins


class Superseded(Exception):
    """The reader has changed the request, so the answer to the old one is no longer needed."""


def register(page: Page) -> None:
    """Register the view's route."""
    charts.register()
    ui.add_css(Path(__file__).with_name("plan.css"), shared=True)

    @ui.page("/plan", viewport=_VIEWPORT)
    def _() -> None:
        with frame(page, "Plan", "/plan"):
            PlanView(reader())


class PlanView:
    """One reader's request and its answer; the latest request wins."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._client = ui.context.client
        self._is_working = False
        ui.label("Choose which of the four numbers is calculated, and set the other three.")
        with ui.element("div").classes("plan"):
            self._form = FormPart(reader, self._change)
            self._result = ResultPart(reader)
        self._change()

    def _change(self) -> None:
        self._show_beliefs()
        if not self._is_working:
            self._is_working = True
            background_tasks.create(self._work(), name="plan")

    def _show_beliefs(self) -> None:
        """Show what the current ε mean immediately, because this needs no search."""
        for name, view in (("epsilon", ITS_REPORT), ("lifetime", ALL_SEEN)):
            nats = self._form.epsilon(name)
            text = belief(nats, reports=view) if nats is not None and 0 < nats <= 1000 else ""
            self._form.update_props(name, note=in_locale(text, self._reader))

    async def _work(self) -> None:
        await self._client.connected()
        try:
            entries = None
            while entries != self._form.entries and not self._client.is_deleted:
                entries = self._form.entries
                await asyncio.sleep(_PAUSE_S)
                if entries == self._form.entries:
                    with self._client:
                        await self._answer(entries)
        finally:
            self._is_working = False

    async def _answer(self, entries: Entries) -> None:
        def check_current() -> None:
            if entries != self._form.entries or self._client.is_deleted:
                raise Superseded

        self._form.clear()
        try:
            key = plan_request(entries), entries["answer"]
            answer = _CACHE.get(key)
            if answer is None:
                self._result.show_busy()
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(_WORKERS, solve, *key, check_current)
                while len(_CACHE) >= _MAX_CACHED:
                    del _CACHE[next(iter(_CACHE))]
                _CACHE[key] = answer
        except Superseded:
            return
        except PlanError as e:
            text = in_python(str(e))
            self._result.refuse("" if self._form.refuse(e.field, text) else text)
        except HushmoteError as e:
            self._result.refuse(str(e))
        except Exception:
            log.exception("unexpected error while planning %s", entries)
            self._result.refuse(
                "this plan failed because of a bug in Hushmote; see the page's log for details"
            )
        else:
            if entries == self._form.entries:
                self._show(answer)

    def _show(self, answer: SolvedPlan) -> None:
        """Show an answer; its number remains in the field if another number is calculated next."""
        self._form.show(answer.fourth, answer.solved)
        self._form.show_fixed_limit(in_locale(answer.plan_answer.fixed_limit, self._reader))
        self._show_beliefs()
        self._result.show(answer)
