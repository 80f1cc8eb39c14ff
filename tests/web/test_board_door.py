"""The browser board on `hushmote page --broker`: from Chromium through door and mosquitto to the store."""

import contextlib
import datetime
import functools
import threading
from collections.abc import Callable, Iterator

import paho.mqtt.client as mqtt
import pytest
from browser import Browser, paged
from browser_board import BoardPage, require_micropython
from experiments import experiment_json, number_json
from paho.mqtt.enums import CallbackAPIVersion
from running_aggregator import running, until

from hushmote.device.ldp_client import Experiment
from hushmote.server.store.store import Store
from hushmote.server.store.versions import Description
from hushmote.simulator.broker import MosquittoBroker, free_port

pytestmark = [pytest.mark.slow, pytest.mark.broker]

BOARDS = 1_000
BUDGET = {"rule": "sum", "cap": 8_000_000}
ROOM = number_json(16, name="room", low=10_000, high=26_000, epsilon=2_000_000, budget=BUDGET, window="all")
CROWD = number_json(16, name="crowd", low=10_000, high=26_000, epsilon=2_000_000, budget=BUDGET, window="all")
THINNED = experiment_json(name="thinned", every=4, budget=BUDGET)
LABEL = "<img src=x onerror=document.title=1>"
OWNER = "owner@example.org"
LABELS = experiment_json(name="labels", type="choice", labels=[LABEL, "b"], mechanism="grr", budget=BUDGET)


class System:
    """A broker, a store with an aggregator, a page connected to both, and a browser with the page's board."""

    def __init__(self, broker: MosquittoBroker, store: Store, page: BoardPage) -> None:
        self.broker, self.store, self.page = broker, store, page

    @contextlib.contextmanager
    def broker_outage(self) -> Iterator[None]:
        self.broker.terminate()
        try:
            yield
        finally:
            self.broker.start()

    def counted(self, payload: bytes) -> int:
        return int(self.store.histogram("home", Experiment.parse(payload).digest).sum())


@pytest.fixture(scope="module")
def system(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    require_micropython()
    folder = tmp_path_factory.mktemp("system")
    url = f"sqlite:///{folder / 'store.sqlite'}"
    store = Store(url)
    store.add_fleet("home", keyed=False)
    for payload in (ROOM, CROWD, THINNED, LABELS):
        store.add_experiment("home", payload, datetime.date.max, description=Description("", LABEL, OWNER))
    broker = MosquittoBroker(free_port())
    broker.start()
    try:
        with running(store, broker), paged(url, "--broker", f"mqtt://127.0.0.1:{broker.port}") as page:
            yield System(broker, store, BoardPage(chromium, f"{page}/board/"))
    finally:
        broker.terminate()
        store.close()


@contextlib.contextmanager
def new_messages(broker: MosquittoBroker) -> Iterator[list[tuple[str, bytes]]]:
    """Collect (topic, payload) of all new messages on a broker except an aggregator's experiments."""
    messages: list[tuple[str, bytes]] = []
    subscribed = threading.Event()

    def collect(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        if "/experiment/" not in message.topic:
            messages.append((message.topic, bytes(message.payload)))

    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = collect
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(broker.host, broker.port)
    client.subscribe("#", 1)
    client.loop_start()
    try:
        assert subscribed.wait(60)
        yield messages
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def page(system: System) -> BoardPage:
    """Provide a new board with an experiment on room temperature."""
    system.page.open(fresh=True)
    ask(system.page, "room")
    system.page.browser.errors()
    return system.page


def ask(page: BoardPage, name: str, wait: Callable[[BoardPage], None] = BoardPage.ready) -> None:
    """Choose an experiment, and wait with wait(); by default, opt in and wait until the board takes part."""
    page.browser.until(lambda: page.browser.find(f'#experiment option[value="{name}"]'))
    page.choose("experiment", name)
    page.browser.until(lambda: page.module("main.js", "return m.board.exp?.name") == name)
    wait(page)


def opt_in_and_report(system: System, messages: list[tuple[str, bytes]]) -> None:
    """Opt in and send a report; wait until it is counted, and check that no other message arrived."""
    before = system.counted(ROOM)
    system.page.ready()
    report = system.page.report()
    until(lambda: messages and system.counted(ROOM) > before, "the report was not counted")
    assert messages == [(f"hushmote/v1/home/report/{system.page.call('state')['device']}", report)]


class TestConsent:
    def test_opt_out_drops_waiting_report(self, system: System, page: BoardPage):
        with system.broker_outage():
            page.report()
            page.says("step-sent", "Not yet. The door rejected the report: the broker")
            page.click("no")
            page.says("step-sent", "Dropped, because this board no longer takes part.")
            assert page.call("state")["outbox"] == []
        with new_messages(system.broker) as messages:
            opt_in_and_report(system, messages)

    def test_nothing_is_sent_before_opt_in(self, system: System):
        page = system.page
        with new_messages(system.broker) as messages:
            page.open(fresh=True)
            ask(page, "room", BoardPage.wait_for_question)
            for reading in (12.5, 20.5):
                page.fill("reading", reading)
                page.browser.script("document.getElementById('form').requestSubmit()")
                assert page.call("report", "room", reading)["report"] is None
            page.browser.script("document.getElementById('crowd-form').requestSubmit()")
            opt_in_and_report(system, messages)


class TestCrowd:
    def test_estimate_approaches_truth(self, system: System, page: BoardPage):
        """Send 1,000 boards' reports on 16 bins at ε = 2 through the door, the broker and the aggregator.

        Each share must lie within 9 standard errors of the truth; by a Chernoff bound for 1,000 reports, the
        test fails by chance with a probability below 1e-12.
        """
        ask(page, "crowd")
        page.choose("population", "groups")
        page.fill("many", BOARDS)
        page.click("send")
        text = page.text("crowd-message")
        while "1,000 of 1,000 reports are acknowledged by the broker." not in text:  # while the count grows
            page.browser.until(lambda before=text: page.text("crowd-message") not in ("", before), text)
            text = page.text("crowd-message")
        until(lambda: system.counted(CROWD) == BOARDS, "not all reports are in the store")
        page.says("source", f"The aggregator has counted {BOARDS:,} reports")
        page.says("finding", "Median: ")
        print(page.says("comparison", "of 16 intervals contain the truth"))
        script = (
            "return [...document.querySelectorAll('#rows tr')]"
            ".map((r) => [...r.cells].map((c) => c.innerText))"
        )
        rows = page.browser.script(script)
        assert len(rows) == 16
        for _, share, interval, truth in rows:
            low, high = (float(x.rstrip("%")) for x in interval.split(" to "))
            assert abs(float(share.rstrip("%")) - float(truth.rstrip("%"))) < 9 * (high - low) / 2 / 1.96
        # Another board knows only its own reading, not the true shares of all counted reports.
        page.open(fresh=True)
        ask(page, "crowd")
        page.report()
        page.says("source", "Other pages or devices sent some of the counted reports")
        assert page.text("comparison") == ""
        assert not page.find("truth-head").is_displayed()
        assert [len(row) for row in page.browser.script(script)] == [3] * 16

    def test_survives_broker_outage(self, system: System, page: BoardPage):
        before = system.counted(ROOM)
        # After the first 50, hold reports back until the outage has begun.
        hold = """let n = 0; const { post } = m.board.to, outage = new Promise((to) => { window.goOn = to; });
    m.board.to.post = async (...report) => { if (n++ >= 50) await outage; return post(...report); };"""
        page.module("main.js", hold)
        page.fill("many", 200)
        page.click("send")
        page.browser.until(
            lambda: page.browser.script("return document.getElementById('progress').value > 10")
        )
        with system.broker_outage():
            page.browser.script("window.goOn()")
            page.says("crowd-at", "The door rejected the report: the broker")
        page.says("crowd-message", "200 of 200 reports are acknowledged")
        until(lambda: system.counted(ROOM) == before + 200, lambda: f"{system.counted(ROOM) - before} of 200")


class TestDelivery:
    def test_reload_before_acknowledgement_resends_same_bytes(self, system: System, page: BoardPage):
        """The page is reloaded during a broker outage, after the board has made a report."""
        before = system.counted(ROOM)
        with system.broker_outage():
            report = page.report()
            page.says("step-sent", "Not yet. The door rejected the report: the broker")
            page.open()
            ask(page, "room")
            page.says("lifetime-text", "All its reports together have cost ε 2.")
            assert page.call("state")["outbox"] == [report.hex()]
            page.says("waiting", f"1 report waiting to be sent unchanged: {report.hex()}")
        page.says("step-sent", f"The count went from {before} to {before + 1}.")
        assert page.call("state")["outbox"] == []
        page.report()
        page.says(
            "step-sent", f"Acknowledged by the broker. The count went from {before + 1} to {before + 2}."
        )
        assert system.counted(ROOM) == before + 2

    def test_sampling_sends_some_readings(self, system: System, page: BoardPage):
        ask(page, "thinned")
        page.says("facts", "It reports 1 reading in 4, drawn at random.")
        page.pick(1)
        before = system.counted(THINNED)
        page.click("until")
        page.says("step-sent", f"to {before + 1}.")
        page.fill("many", 50)
        page.click("send")
        page.says("crowd-message", "50 of 50")
        until(lambda: system.counted(THINNED) == before + 51, "not all 51 reports are in the store")
        assert page.browser.errors() == []


class TestQuestions:
    def test_shows_unreachable_server(self, system: System, page: BoardPage):
        before = system.counted(ROOM)
        page.report()
        page.says("step-sent", "The count went from")
        online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        network = functools.partial(page.browser.driver.execute_cdp_cmd, "Network.emulateNetworkConditions")
        page.browser.driver.execute_cdp_cmd("Network.enable", {})
        network(online | {"offline": True})
        try:
            page.report()
            page.says("step-sent", "Not yet. The door does not answer.")
            text = page.says("source", f"; the last count was {before + 1:,}. This page has sent 1 report.")
            assert text.startswith("No answer since ")
        finally:
            network(online)
            page.browser.driver.execute_cdp_cmd("Network.disable", {})
        page.says("step-sent", "Acknowledged by the broker.")
        page.says("source", f"The aggregator has counted {before + 2} reports; this page has sent 2 reports.")

    def test_escapes_text_and_reports_withdrawal(self, system: System, page: BoardPage):
        ask(page, "labels")
        assert (page.text("purpose"), page.text("owner")) == (LABEL, f"Asked by {OWNER}.")
        assert page.browser.script("return document.querySelectorAll('img').length") == 0
        ask(page, "room")
        system.store.withdraw_experiment("home", "labels")
        page.browser.until(lambda: "labels" not in page.module("main.js", "return m.board.to.experiments()"))
        page.choose("experiment", "labels")
        page.says("problem-text", "The door has no experiment labels")

    def test_distinguishes_idle_fleet_from_page_without_broker(self, system: System, page: BoardPage):
        versions = [v for v in system.store.experiments("home") if v.current]
        for version in versions:
            system.store.withdraw_experiment("home", version.experiment.name)
        try:
            config = "return fetch('config.json').then((answer) => answer.json())"
            page.browser.until(
                lambda: page.module("main.js", config)["door"] is None, "the page still has a door"
            )
            page.open()
            page.ready()
            page.says("idle", "so these are examples.")
        finally:
            for version in versions:
                system.store.add_experiment("home", version.payload, datetime.date.max)
