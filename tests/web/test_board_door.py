"""The browser board on `hushmote page --broker`: from Chromium through door and mosquitto to the store."""

import contextlib
import datetime
import functools
import threading
from collections.abc import Callable, Iterator

import paho.mqtt.client as mqtt
import pytest
from browser import Browser, paged
from browser_board import BoardPage, fetched
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
WHO = "who@example.org"
LABELS = experiment_json(name="labels", type="choice", labels=[LABEL, "b"], mechanism="grr", budget=BUDGET)


class Whole:
    """A broker, a store with an aggregator, the page over both, and a browser that looks at its board."""

    def __init__(self, broker: MosquittoBroker, store: Store, page: BoardPage) -> None:
        self.broker, self.store, self.page = broker, store, page

    @contextlib.contextmanager
    def broker_away(self) -> Iterator[None]:
        self.broker.terminate()
        try:
            yield
        finally:
            self.broker.start()

    def counted(self, payload: bytes) -> int:
        return int(self.store.histogram("home", Experiment.parse(payload).digest).sum())


@pytest.fixture(scope="module")
def whole(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    fetched()
    folder = tmp_path_factory.mktemp("whole")
    url = f"sqlite:///{folder / 'store.sqlite'}"
    store = Store(url)
    store.add_fleet("home", keyed=False)
    for payload in (ROOM, CROWD, THINNED, LABELS):
        store.add_experiment("home", payload, datetime.date.max, description=Description("", LABEL, WHO))
    broker = MosquittoBroker(free_port())
    broker.start()
    try:
        with running(store, broker), paged(url, "--broker", f"mqtt://127.0.0.1:{broker.port}") as page:
            yield Whole(broker, store, BoardPage(chromium, f"{page}/board/"))
    finally:
        broker.terminate()
        store.close()


@contextlib.contextmanager
def heard(broker: MosquittoBroker) -> Iterator[list[tuple[str, bytes]]]:
    """(topic, payload) of all that comes to a broker from now on, but what an aggregator asks."""
    came: list[tuple[str, bytes]] = []
    subscribed = threading.Event()

    def take(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        if "/experiment/" not in message.topic:
            came.append((message.topic, bytes(message.payload)))

    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = take
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(broker.host, broker.port)
    client.subscribe("#", 1)
    client.loop_start()
    try:
        assert subscribed.wait(60)
        yield came
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def page(whole: Whole) -> BoardPage:
    """Provide a board that was just made, with an experiment on the room's temperature."""
    whole.page.open(fresh=True)
    ask(whole.page, "room")
    whole.page.browser.errors()
    return whole.page


def ask(page: BoardPage, name: str, shows: Callable[[BoardPage], None] = BoardPage.ready) -> None:
    """Choose an experiment; shows: waits for what the page shows then, by default after a yes."""
    page.browser.until(lambda: page.browser.find(f'#experiment option[value="{name}"]'))
    page.choose("experiment", name)
    page.browser.until(lambda: page.module("main.js", "return m.board.exp?.name") == name)
    shows(page)


def says_yes_and_reports(whole: Whole, came: list[tuple[str, bytes]]) -> None:
    """Opt in, and check that only the report after it comes and is counted before the next test looks."""
    before = whole.counted(ROOM)
    whole.page.ready()
    report = whole.page.report()
    until(lambda: came and whole.counted(ROOM) > before, "the report after the yes")
    assert came == [(f"hushmote/v1/home/report/{whole.page.call('state')['device']}", report)]


class TestConsent:
    def test_opt_out_drops_waiting_report(self, whole: Whole, page: BoardPage):
        with whole.broker_away():
            page.report()
            page.says("step-sent", "Not yet. The door says: the broker")
            page.click("no")
            page.says("step-sent", "Dropped: this board no longer takes part.")
            assert page.call("state")["outbox"] == []
        with heard(whole.broker) as came:
            says_yes_and_reports(whole, came)

    def test_nothing_is_sent_before_it(self, whole: Whole):
        page = whole.page
        with heard(whole.broker) as came:
            page.open(fresh=True)
            ask(page, "room", BoardPage.asked)
            for reading in (12.5, 20.5):
                page.fill("reading", reading)
                page.browser.script("document.getElementById('form').requestSubmit()")
                assert page.call("report", "room", reading)["report"] is None
            page.browser.script("document.getElementById('crowd-form').requestSubmit()")
            says_yes_and_reports(whole, came)


class TestCrowd:
    def test_estimate_approaches_truth(self, whole: Whole, page: BoardPage):
        """A crowd of 1,000 over 16 bins at ε 2, through door, broker and aggregator.

        Each share lies within 9 standard errors of the truth: by a Chernoff bound for 1,000 reports, a false
        alarm has a probability below 1e-12.
        """
        ask(page, "crowd")
        page.choose("population", "groups")
        page.fill("many", BOARDS)
        page.click("send")
        said = page.text("crowd-said")
        while "1,000 of 1,000 reports are acknowledged by the broker." not in said:  # as long as some come in
            page.browser.until(lambda before=said: page.text("crowd-said") not in ("", before), said)
            said = page.text("crowd-said")
        until(lambda: whole.counted(CROWD) == BOARDS, "all reports are in the store")
        page.says("source", f"The aggregator has counted {BOARDS:,} reports")
        page.says("found", "Median: ")
        print(page.says("compared", "of 16 intervals hold the truth"))
        script = (
            "return [...document.querySelectorAll('#rows tr')]"
            ".map((r) => [...r.cells].map((c) => c.innerText))"
        )
        rows = page.browser.script(script)
        assert len(rows) == 16
        for _, share, interval, truth in rows:
            low, high = (float(x.rstrip("%")) for x in interval.split(" to "))
            assert abs(float(share.rstrip("%")) - float(truth.rstrip("%"))) < 9 * (high - low) / 2 / 1.96
        # Another board knows only its own reading, which is not the truth of all that is counted.
        page.open(fresh=True)
        ask(page, "crowd")
        page.report()
        page.says("source", "Not all that is counted was sent from here")
        assert page.text("compared") == ""
        assert not page.browser.find("#truth-head").is_displayed()
        assert [len(row) for row in page.browser.script(script)] == [3] * 16

    def test_survives_broker_outage(self, whole: Whole, page: BoardPage):
        before = whole.counted(ROOM)
        # All but the first 50 wait until the broker is away.
        hold = """let n = 0; const { post } = m.board.to, away = new Promise((to) => { window.goOn = to; });
    m.board.to.post = async (...report) => { if (n++ >= 50) await away; return post(...report); };"""
        page.module("main.js", hold)
        page.fill("many", 200)
        page.click("send")
        page.browser.until(
            lambda: page.browser.script("return document.getElementById('progress').value > 10")
        )
        with whole.broker_away():
            page.browser.script("window.goOn()")
            page.says("crowd-at", "The door says: the broker")
        page.says("crowd-said", "200 of 200 reports are acknowledged")
        until(lambda: whole.counted(ROOM) == before + 200, lambda: f"{whole.counted(ROOM) - before} of 200")


class TestDelivery:
    def test_reload_before_acknowledgement_resends_same_bytes(self, whole: Whole, page: BoardPage):
        """The broker goes away, the board has debited and made its report, and the page is reloaded."""
        before = whole.counted(ROOM)
        with whole.broker_away():
            report = page.report()
            page.says("step-sent", "Not yet. The door says: the broker")
            page.open()
            ask(page, "room")
            page.says("lifetime-text", "All its reports together have cost ε 2.")
            assert page.call("state")["outbox"] == [report.hex()]
            page.says("waiting", f"1 waiting to be sent, as they are: {report.hex()}")
        page.says("step-sent", f"The count moved from {before} to {before + 1}.")
        assert page.call("state")["outbox"] == []
        page.report()
        said = f"Acknowledged by the broker. The count moved from {before + 1} to {before + 2}."
        page.says("step-sent", said)
        assert whole.counted(ROOM) == before + 2

    def test_sampling_sends_some_of_the_readings(self, whole: Whole, page: BoardPage):
        ask(page, "thinned")
        page.says("facts", "It reports 1 reading in 4, drawn at random.")
        page.pick(1)
        before = whole.counted(THINNED)
        page.click("until")
        page.says("step-sent", f"to {before + 1}.")
        page.fill("many", 50)
        page.click("send")
        page.says("crowd-said", "50 of 50")
        until(lambda: whole.counted(THINNED) == before + 51, "the crowd's draws passed")
        assert page.browser.errors() == []


class TestQuestions:
    def test_distinguishes_silent_server_from_one_without_questions(self, whole: Whole, page: BoardPage):
        before = whole.counted(ROOM)
        page.report()
        page.says("step-sent", "The count moved")
        online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        network = functools.partial(page.browser.driver.execute_cdp_cmd, "Network.emulateNetworkConditions")
        page.browser.driver.execute_cdp_cmd("Network.enable", {})
        network(online | {"offline": True})
        try:
            page.report()
            page.says("step-sent", "Not yet. The door does not answer.")
            said = page.says("source", f"; the last count was {before + 1:,}. 1 report went out from here.")
            assert said.startswith("No answer since ")
        finally:
            network(online)
            page.browser.driver.execute_cdp_cmd("Network.disable", {})
        page.says("step-sent", "Acknowledged by the broker.")
        page.says("source", f"The aggregator has counted {before + 2} reports; 2 reports went out")

    def test_escapes_text_and_shows_withdrawal_in_one_sentence(self, whole: Whole, page: BoardPage):
        ask(page, "labels")
        assert (page.text("purpose"), page.text("owner")) == (LABEL, f"Asked by {WHO}.")
        assert page.browser.script("return document.querySelectorAll('img').length") == 0
        ask(page, "room")
        whole.store.withdraw_experiment("home", "labels")
        page.browser.until(lambda: "labels" not in page.module("main.js", "return m.board.to.experiments()"))
        page.choose("experiment", "labels")
        page.says("problem-text", "The door has no experiment labels")

    def test_distinguishes_idle_fleet_from_page_without_broker(self, whole: Whole, page: BoardPage):
        asked = [v for v in whole.store.experiments("home") if v.current]
        for version in asked:
            whole.store.withdraw_experiment("home", version.experiment.name)
        try:
            config = "return fetch('config.json').then((answer) => answer.json())"
            page.browser.until(lambda: page.module("main.js", config)["door"] is None, "there is a door")
            page.open()
            page.ready()
            page.says("idle", "These are examples, counted in this browser.")
        finally:
            for version in asked:
                whole.store.add_experiment("home", version.payload, datetime.date.max)
