"""`hushmote demo`: real readings, a real broker, a whole fleet."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..server.errors import UsageError
from ..server.ingest.broker_url import NatsAddress
from .broker import settings
from .options import AsJson, print_json
from .progress import progress

if TYPE_CHECKING:
    from ..simulator.live_demo import Opened


def demo_command(
    broker: Annotated[
        str,
        "auto (mosquitto where it is installed), embedded, mosquitto, nats (three servers, of which "
        "one dies), or what runs: mqtt://[user@]host[:1883], nats://[user@]host[:4222],host,...",
    ] = "auto",
    out: Annotated[Path, "Folder for the plots, the store and the log.", "FOLDER"] = Path("out"),
    question: Annotated[
        Literal["mean", "pairs", "labels"] | None,
        "Ask about flights: their mean delay, late airlines, or where they go, without a list.",
    ] = None,
    devices: Annotated[
        int | None,
        "Number of readings to use, of 26,115 (else all), or of flights, of 327,346 (else 20,000).",
    ] = None,
    page: Annotated[bool, "Keep reporting, and show it in a browser, until Ctrl-C."] = False,
    as_json: AsJson = False,
) -> None:
    """Watch thousands of devices report real readings through a real broker, and see what is learned.

    With --page devices keep reporting, and a page shows what is learned as reports arrive.
    """
    from ..simulator import demo  # with a plot and a store, which --help need not wait for
    from ..simulator.stage import Place

    where = settings(broker).address() if "://" in broker else broker
    if (broker == "nats" or isinstance(where, NatsAddress)) and find_spec("nats") is None:
        raise UsageError("a demo on NATS needs more: pip install 'hushmote[cluster]'")
    if not page:
        asked = question or demo.TEMPERATURES
        outcome = demo.run(Place(where, out, as_json, progress), devices, asked)
        print_json(outcome.to_dict()) if as_json else demo.show_outcome(outcome)
        return
    if question is not None:
        raise UsageError("the page shows the demo without --question: leave one of them out")
    if find_spec("nicegui") is None:
        raise UsageError("the page needs NiceGUI: pip install 'hushmote[page]', or make page in a clone")
    from ..simulator import live_demo

    live_demo.run(Place(where, out, True, progress), _opened)


def _opened(live: Opened) -> None:
    """Tell somebody where to look."""
    from ..simulator.live_demo import PER_S

    print(f"broker    {live.broker}")
    if live.servers:
        print(f"servers   processes {', '.join(map(str, live.servers))}: kill any one, and reports go on")
    print(f"devices   {PER_S:g} of fleet airports report each second")
    print(f"page      {live.page}   <- open this; Ctrl-C ends it", flush=True)
