"""The Plan view: parameters of a question, answered while they are changed, and the experiment's file."""

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
from ..glossary import words
from ..in_locale import in_locale
from ..page import Page
from ..reader import Reader, reader
from .answer import SolvedPlan, solve
from .entries import Entries, Fourth, plan_request
from .form import FormPart
from .result import ResultPart

log = logging.getLogger(__name__)

_WORKERS = ThreadPoolExecutor(2, "plan")  # separate, so that a long search never delays the other views
_CACHE: dict[tuple[PlanRequest, Fourth], SolvedPlan] = {}
_MOST_KEPT = 256
_PAUSE_S = 0.1  # the slider must rest this long before the search begins


class Superseded(Exception):
    """The reader has changed the request, so this answer is no longer needed."""


def register(page: Page) -> None:
    """Register the view's route."""
    charts.register()
    ui.add_css(Path(__file__).with_name("plan.css"), shared=True)

    @ui.page("/plan")
    def _() -> None:
        with frame(page, "Plan", "/plan"):
            PlanView(reader())
            words(
                "ε (epsilon)",
                "What an ε means",
                "ε of a report",
                "ε of the histogram",
                "δ (delta)",
                "Histogram",
            )


class PlanView:
    """One reader's request and its answer; the latest request wins."""

    def __init__(self, who: Reader) -> None:
        self._reader = who
        self._client = ui.context.client
        self._at_work = False
        ui.label(
            "Three of four numbers give the fourth: choose which one is worked out, and move the others."
        )
        with ui.element("div").classes("plan"):
            self._form = FormPart(who, self._change)
            self._result = ResultPart(who)
        self._change()

    def _change(self) -> None:
        self._tell_beliefs()
        if not self._at_work:
            self._at_work = True
            background_tasks.create(self._work(), name="plan")

    def _tell_beliefs(self) -> None:
        """Show what the present ε mean at once, since that needs no search."""
        for name, view in (("epsilon", ITS_REPORT), ("lifetime", ALL_SEEN)):
            nats = self._form.epsilon(name)
            text = belief(nats, reports=view) if nats is not None and 0 < nats <= 1000 else ""
            self._form.tell(name, note=in_locale(text, self._reader))

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
            self._at_work = False

    async def _answer(self, entries: Entries) -> None:
        def still_wanted() -> None:
            if entries != self._form.entries or self._client.is_deleted:
                raise Superseded

        self._form.clear()
        try:
            key = plan_request(entries), entries["answer"]
            answer = _CACHE.get(key)
            if answer is None:
                self._result.at_work()
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(_WORKERS, solve, *key, still_wanted)
                while len(_CACHE) >= _MOST_KEPT:
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
            log.exception("a fault in the plan of %s", entries)
            self._result.refuse("this plan could not be worked out; the page's log says why")
        else:
            if entries == self._form.entries:
                self._show(answer)

    def _show(self, answer: SolvedPlan) -> None:
        """Show an answer; its number stays when another one is chosen to be computed."""
        self._form.show(answer.fourth, answer.solved)
        self._form.tell_fixed(in_locale(answer.plan_answer.fixed_limit, self._reader))
        self._tell_beliefs()
        self._result.show(answer)
