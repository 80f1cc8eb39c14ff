"""clients/js in Chromium: the ledger in IndexedDB, and the example form with a door, a broker and a store."""

import contextlib
import datetime
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browsing
from browser_board import serve_folder
from experiments import experiment_json, number_json
from running_aggregator import WAIT_S, running, until

from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker, free_port

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parents[2] / "clients" / "js"
E = experiment_json(budget={"rule": "count", "cap": 40}).decode()
OPEN = """
    const [{ Client }, { Database }] = await Promise.all([import('/hushmote.js'), import('/database.js')]);
    const storage = new Database('test');
    const policy = { sum: 1e9, squares: 0, epsilon: 1e6, rules: ['count'], experiments: ['e'] };
    const open = async () => {
      const client = await Client.open({ policy, storage });
      await client.enroll(new TextEncoder().encode(a[0]));
      return client;
    };
"""
FRESH = "await Client.provision(storage, { consent: true, replace: true }); window.client = await open();"
CYCLES = """
    const client = await open();
    const numbers = [];
    for (let report; (report = await client.report('e', true)); await client.sent(report)) {
      numbers.push(report[8]);
    }
    return numbers;
"""
LOOK = "const report = await client.report('e', true); return [report && report[8], await client.status()];"


class Page:
    """A page on the origin that serves the client's files."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self) -> None:
        self.browser.open(self.url + "package.json")

    def run(self, text: str, *, wait: bool = True) -> Any:
        """Run JavaScript and return its result; with wait=False, do not wait for it."""
        done = "arguments[arguments.length - 1]" if wait else "() => {}"
        body = f"const done = {done}, a = arguments; (async () => {{ {OPEN} {text} }})()"
        script = body + ".then((v) => done({v}), (e) => done({e: String(e)}));"
        if not wait:
            return self.browser.script(script, E)
        answer = self.browser.driver.execute_async_script(script, E)
        assert "e" not in answer, answer["e"]
        return answer.get("v")

    def command(self, name: str, **more: Any) -> None:
        """Send Chromium a command about this page's storage."""
        self.browser.driver.execute_cdp_cmd(f"Storage.{name}", {"origin": self.url} | more)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser")) as browser, serve_folder(CLIENT) as url:
        browser.driver.set_script_timeout(WAIT_S)
        yield Page(browser, url)


def test_two_tabs_share_one_budget(page):
    page.open()
    page.run(FRESH)
    first = page.browser.driver.current_window_handle
    page.run(CYCLES.replace("return numbers", "window.numbers = numbers"), wait=False)
    page.browser.driver.switch_to.new_window("tab")
    page.open()
    second = page.run(CYCLES)
    page.browser.driver.close()
    page.browser.driver.switch_to.window(first)
    page.browser.until(lambda: page.browser.script("return window.numbers"))
    assert sorted([*second, *page.browser.script("return window.numbers")]) == list(range(1, 41))


def test_record_number_is_written_once(page):
    page.open()
    written = page.run(
        """
        const records = new Database('records');
        const results = [];
        for (const record of [[3, 'a'], [3, 'b'], [2, 'c']]) results.push(await records.write(...record));
        return [results, await records.read()];
    """
    )
    assert written == [[True, False, False], [[3, "a"]]]


def test_proofs_of_a_log_are_checked(page):
    vectors = json.loads((CLIENT.parents[1] / "tests" / "vectors_log.json").read_text())
    page.open()
    answers = page.run(
        f"const {{ logs, proofs }} = {json.dumps(vectors)};"
        """
        const { verifyProof } = await import('/log.js');
        const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (two) => parseInt(two, 16));
        const answer = ({ log, fleet, name, payload, proof }) =>
          verifyProof(logs[log], fleet, name, unhex(payload), unhex(proof)).catch((e) => e.message);
        return Promise.all(proofs.map(answer));
    """
    )
    assert answers == [case["refused"] or case["index"] for case in vectors["proofs"]]


def test_reload_refunds_nothing(page):
    page.open()
    page.run(FRESH)
    assert page.run(LOOK)[0] == 1
    page.open()
    number, status = page.run("const client = await open();" + LOOK)
    assert (number, status["pending"], status["experiments"]["e"]["left"]) == (2, 2, 38)


def test_quota_error_makes_no_report_and_spends_nothing(page):
    page.open()
    page.run(FRESH)
    number, status = page.run(
        """
        const full = new DOMException('full', 'QuotaExceededError');
        Object.defineProperty(IDBTransaction.prototype, 'error', { get: () => full });
        const { put } = IDBObjectStore.prototype;
        IDBObjectStore.prototype.put = function (...record) {
          put.apply(this, record).onsuccess = () => this.transaction.abort();
        };
    """
        + LOOK
    )
    assert (number, status["sum"], status["pending"]) == (None, "0", 0)
    assert status["error"] == "storage failed: QuotaExceededError: full"
    page.open()
    assert page.run("const client = await open();" + LOOK)[0] == 1


def test_cleared_storage_locks_until_provisioned(page):
    page.open()
    page.run(FRESH)
    assert page.run(LOOK)[0] == 1
    page.command("clearDataForOrigin", storageTypes="all")
    for text in (LOOK, "const client = await open();" + LOOK):
        number, status = page.run(text)
        assert (number, status["locked"]) == (None, "locked: no ledger; provision this client")
        page.open()
    page.run(FRESH)
    assert page.run(LOOK)[0] == 1


def test_is_silent_without_storage_and_shows_why(page):
    page.open()
    throws = "get() { throw new DOMException('no', 'SecurityError'); }"
    throws = f"Object.defineProperty(window, 'indexedDB', {{ {throws} }});"
    number, status = page.run(throws + "const client = await open();" + LOOK)
    assert (number, status["locked"]) == (None, "locked: storage failed: SecurityError: no")


BUDGET = {"rule": "sum", "cap": 2_000_000}
WAYS = ["bicycle", "train", "car", "another"]
QUESTIONS = [
    experiment_json(name="night", budget=BUDGET),
    experiment_json(name="way", type="choice", labels=WAYS, mechanism="grr", budget=BUDGET),
    number_json(8, name="minutes", low=0, high=120_000, epsilon=1_000_000, budget=BUDGET, window="day"),
]


@contextlib.contextmanager
def run_door(port: int, broker: MosquittoBroker, origin: str) -> Iterator[None]:
    """Run `hushmote door` until it accepts reports, and kill it at the end."""
    command = [sys.executable, "-m", "hushmote", "door", "--http", f"127.0.0.1:{port}", "--origin", origin]
    command += ["--broker", f"mqtt://127.0.0.1:{broker.port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


class Form:
    """The example form in the browser, and the aggregator's counts for each question."""

    def __init__(self, page: Page, store: Store, port: int) -> None:
        self.page, self.store, self.port = page, store, port

    def open(self) -> None:
        self.page.browser.open(self.page.url + "example/index.html")

    def answer(self, way: str) -> None:
        for css in ("[name=night][value=yes]", f"[name=way][value={way}]", "form button"):
            self.page.browser.until(lambda css=css: self.page.browser.find(css).click() or True)

    def requests(self) -> list[str]:
        """Return the URLs of the requests to the door."""
        names = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        return [name for name in self.page.browser.script(names) if f":{self.port}/" in name]

    def waiting(self) -> int:
        last = "(await new Database('example').read()).at(-1)[1]"
        return len(self.page.run(f"return JSON.parse({last}.slice(64)).unsent"))

    def counts(self) -> list[int]:
        return [int(self.store.histogram("trial", Experiment.parse(q).digest).sum()) for q in QUESTIONS]


def test_counts_form_answers_once_through_restarts(page, tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    store.add_fleet("trial", keyed=False)
    for payload in QUESTIONS:
        store.add_experiment("trial", payload, datetime.date.max)
    broker, port = MosquittoBroker(free_port()), free_port()
    shutil.copytree(CLIENT, tmp_path / "site")
    html = tmp_path / "site" / "example" / "index.html"
    html.write_text(html.read_text().replace("127.0.0.1:9418", f"127.0.0.1:{port}"))
    broker.start()
    try:
        with running(store, broker), serve_folder(tmp_path / "site") as url:
            form, origin = Form(Page(page.browser, url), store, port), url.rstrip("/")
            form.open()
            page.browser.until(lambda: page.browser.script("return !!yes.onclick"))
            page.browser.find("#no").click()
            page.browser.wait_until_settled()
            assert form.requests() == [], "the form sent requests before an opt-in"
            page.browser.find("#yes").click()
            form.answer("train")
            page.browser.says("An answer may be missing: minutes: ")
            assert form.requests(), "failed requests are not listed"
            with run_door(form.port, broker, origin):
                form.answer("train")
                page.browser.says("All reports have been sent.")
                until(lambda: form.counts() == [1, 1, 1] and form.waiting() == 0, form.counts)
                broker.terminate()
                form.answer("car")
                page.browser.until(lambda: form.waiting() == 3)
            broker.start()
            form.open()  # the door is down, so the page starts with waiting reports
            with run_door(form.port, broker, origin):
                page.browser.says("All reports have been sent.")
                until(lambda: form.counts() == [2, 2, 2], form.counts)
            assert (form.waiting(), form.counts()) == (0, [2, 2, 2])
    finally:
        broker.terminate()
        store.close()
