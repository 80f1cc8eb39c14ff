"""The page's demo, whose clients keep reporting until a part ends; tests/web opens its page."""

import signal
from pathlib import Path
from threading import Thread

import psutil
import pytest
from refusals import fails
from running_aggregator import until

from hushmote.server.store.store import Store
from hushmote.simulator import live_demo
from hushmote.simulator.demo_data import NAME
from hushmote.simulator.deployment import FLEET, DemoError, Place
from hushmote.simulator.live_demo import RunningDemo


@pytest.mark.broker
def test_reports_until_its_page_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, size in (("HISTORY_BOARDS", 100), ("HISTORY_DAYS", 1), ("INITIAL_DEVICES", 10)):
        monkeypatch.setattr(live_demo, name, size)
    before = signal.getsignal(signal.SIGTERM)
    counts: list[int] = []

    def end_page(url: str) -> None:
        """Kill the page once further devices have reported."""

        def is_reporting() -> bool:
            counts.append(store.participation(FLEET)[NAME].reports)
            return counts[-1] > 100

        (page,) = (p for p in psutil.Process().children() if "page" in p.cmdline())
        try:
            with Store(url) as store:
                until(is_reporting, "further reports")
        finally:
            page.kill()

    def on_open(demo: RunningDemo) -> None:
        Thread(target=end_page, args=(demo.store,)).start()

    try:
        with fails(f"the page ended; its log in {tmp_path} says why", DemoError):
            live_demo.run(Place("mosquitto", tmp_path, quiet=True), on_open)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert counts[-1] > 100
    assert (tmp_path / "page.log").exists()
