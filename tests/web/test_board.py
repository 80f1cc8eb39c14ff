"""The browser board in a real Chromium on a static server without a broker, with one board and with many."""

import binascii
import contextlib
import hashlib
import json
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import make_board_examples
import pytest
from accessibility import barriers
from browser import Browser
from browser_board import BoardPage, serve_board
from enumeration import memory
from experiment_kinds import PAIR, TEXT
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from hushmote.device.ldp_client import Client, Experiment, provision
from hushmote.device.preview import preview
from hushmote.server.wire.report import decode
from hushmote.web.board import fetch

ROOT = Path(__file__).parents[2]
EXAMPLES = json.loads(make_board_examples.examples())
NAMES = [json.loads(example["payload"])["name"] for example in EXAMPLES]
PAYLOADS = [example["payload"].encode() for example in EXAMPLES]
HOSTILE = "<img src=x onerror=document.title=1>"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serve_board(folder) as url:
        yield url


@pytest.fixture
def page(browser: Browser, url: str) -> BoardPage:
    """Provide a new board in a browser without any state."""
    page = BoardPage(browser, url)
    page.open(fresh=True)
    page.ready()
    browser.errors()
    return page


@pytest.fixture
def ask(folder: Path) -> Iterator[Callable[..., object]]:
    """Provide a function that replaces the page's experiments until the test ends."""
    examples = folder / "a" / "board" / "examples.json"
    original = examples.read_text()
    yield lambda *rows: examples.write_text(json.dumps(rows))
    examples.write_text(original)


SLOTS = "return ['slot0', 'slot1'].map((name) => localStorage.getItem(arguments[0] + name))"
PREFIX = "hushmote:/a/board/::"  # of the board's names in localStorage


@pytest.fixture
def silent(browser: Browser, url: str) -> BoardPage:
    """Provide a new board, before anyone opts in."""
    page = BoardPage(browser, url)
    page.open(fresh=True)
    page.wait_for_question()
    return page


def check_silent(page: BoardPage) -> None:
    """Check that neither the page nor its board makes a report, whatever button is pressed."""
    before = (page.call("state")["sum"], page.browser.script(SLOTS, PREFIX))
    assert not page.find("report").is_enabled()
    assert not page.find("crowd").is_displayed()
    page.browser.script("document.getElementById('form').requestSubmit()")
    page.says("message", "This board does not take part. This reading cost nothing.")
    assert page.call("report", NAMES[0], 20.5)["report"] is None
    assert page.call("state")["outbox"] == []
    assert (page.call("state")["sum"], page.browser.script(SLOTS, PREFIX)) == before


def before_consent(record: bytes) -> bytes:
    """Return a record in the format without consent, where a bit says that reporting is not switched off."""
    old = bytes((0x4D, record[1] | 0x80)) + record[2:-4]
    return old + binascii.crc32(old).to_bytes(4, "big")


class TestFiles:
    def test_are_written_to_one_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        for arguments in ([], ["--help"], [str(tmp_path), "b"]):
            monkeypatch.setattr(sys, "argv", ["board", *arguments])
            with pytest.raises(SystemExit, match=r"^usage: python -m hushmote\.web\.board FOLDER$"):
                runpy.run_module("hushmote.web.board")
        assert list(tmp_path.iterdir()) == []
        monkeypatch.setattr(sys, "argv", ["board", str(tmp_path)])
        runpy.run_module("hushmote.web.board")
        for name, original in (("ldp_client.py", "device"), ("index.html", "web/board/static")):
            assert (tmp_path / name).read_bytes() == (ROOT / original / name).read_bytes()

    @pytest.mark.parametrize("program", ["neither", "node", "npm"])
    def test_fetching_needs_node_and_npm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str):
        (tmp_path / program).touch(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(fetch.CannotFetch, match=r"^Node\.js with npm is not installed$"):
            fetch.packages(tmp_path / "npm")
        assert [path.name for path in tmp_path.iterdir()] == [program]


class TestRuntime:
    @pytest.mark.parametrize(
        ("missing", "broken", "words"),
        [
            (
                "window, 'localStorage'",
                "get() { throw new DOMException('no', 'SecurityError'); }",
                "A board that cannot keep its budget stays silent",
            ),
            ("window, 'indexedDB'", "value: undefined", "cannot store data on disk for this page"),
            ("window, 'crypto'", "value: {}", "no crypto"),
            ("navigator, 'locks'", "value: undefined", "Without them, two tabs could spend one budget twice"),
            (
                "navigator.locks, 'request'",
                "value: async () => { throw new DOMException('no', 'SecurityError'); }",
                "Without them, two tabs could spend one budget twice",
            ),
        ],
        ids=("storage", "disk", "randomness", "locks", "refused locks"),
    )
    def test_needs_storage_randomness_and_locks(
        self, browser: Browser, url: str, missing: str, broken: str, words: str
    ):
        source = {"source": f"Object.defineProperty({missing}, {{ {broken} }})"}
        script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
        try:
            BoardPage(browser, url).open()
            browser.says(words)
            assert not browser.find("#measure").is_displayed()
        finally:
            browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)

    @pytest.mark.slow
    def test_loads_every_mechanism_file(self):
        text = (ROOT / "web" / "board" / "static" / "port.js").read_text("utf-8")
        files = re.findall(r"'(ldp_\w+\.py)'", text)
        names = (path.name for path in (ROOT / "device").glob("ldp_*.py"))
        assert sorted(files) == sorted(name for name in names if not name.startswith("ldp_log"))

    def test_passes_all_test_vectors(self, page: BoardPage):
        page.click("vectors")
        files = [ROOT / "tests" / name for name in ("vectors.json", "vectors_further.json")]
        cases = sum(line.startswith("{") and len(line) > 2 for file in files for line in file.open())
        page.says("vectors-message", f"{cases} vectors agree, bit for bit")
        assert page.call("vectors", 10)["done"] == 10  # they can be checked again


class TestConsent:
    def test_board_is_silent_without_it(self, silent: BoardPage):
        def check_reload(title: str) -> None:
            silent.open()
            silent.wait_for_question()
            silent.says("consent-title", title)

        numbers = [bytes.fromhex(text)[5] for text in silent.browser.script(SLOTS, PREFIX)]
        assert numbers == [1, 2]  # the new ledger is unchanged, so no consent was withdrawn from it
        check_silent(silent)
        check_reload("Will you take part?")
        check_silent(silent)
        for number in (1, 2):
            silent.click("no")
            check_silent(silent)
            check_reload("You do not take part")
            check_silent(silent)
            silent.click("yes")
            assert decode(silent.report()).number == number
            check_reload("You take part")
        assert decode(silent.report()).number == 3

    @pytest.mark.parametrize(("answer", "refused"), [("no", "slot"), ("yes", "slot"), ("yes", "board")])
    def test_board_is_silent_if_answer_cannot_be_stored(self, silent: BoardPage, answer: str, refused: str):
        page = silent
        if answer == "no":
            page.ready()
            page.call("report", NAMES[0], 20.5)  # remains in the outbox
        script = """
        const [set, refused] = [Storage.prototype.setItem, arguments[0]];
        Storage.prototype.setItem = function (name, text) {
          if (name.includes('::' + refused)) throw new Error('full');
          set.call(this, name, text);
        }"""
        page.browser.script(script, refused)
        page.click(answer)
        page.says("problem-text", "its storage is blocked or full")
        check_silent(page)
        page.open()
        page.wait_for_question()
        page.says("consent-title", "Will you take part?")
        check_silent(page)

    def test_opt_out_cancels_pending_request(self, page: BoardPage):
        waits = "new Promise((_, no) => signal.addEventListener('abort', () => no(signal.reason)))"
        page.module("main.js", f"m.board.to.post = (device, body, signal) => {waits}")
        page.report()
        page.says("waiting", "1 report waiting to be sent")
        page.click("no")
        page.says("step-sent", "Dropped, because this board no longer takes part.")
        page.module("main.js", "m.board.to.post = async () => {}")
        page.ready()
        assert decode(page.report()).number == 2
        page.says("step-sent", "Counted in this browser: 1 so far.")

    @pytest.mark.parametrize("change", [bytes, before_consent], ids=("no answer stored", "older format"))
    def test_older_ledger_asks_again_and_keeps_budget(
        self, page: BoardPage, change: Callable[[bytes], bytes]
    ):
        page.report()
        page.says("step-sent", "Counted in this browser: 1 so far.")
        page.call("report", NAMES[0], 20.5)
        state = page.call("state")
        assert len(state["outbox"]) == 1
        records = [change(bytes.fromhex(text)).hex() for text in page.browser.script(SLOTS, PREFIX)]
        texts = (*records, json.dumps({"id": state["device"], "names": [NAMES[0]]}))
        for name, text in zip(("slot0", "slot1", "board"), texts, strict=True):
            page.browser.script("localStorage.setItem(arguments[0], arguments[1])", PREFIX + name, text)
        page.open()
        page.wait_for_question()
        page.says("consent-title", "Will you take part?")
        page.says("lifetime-text", "All its reports together have cost ε 4.")
        assert page.call("state")["consent"] is None
        page.says("source", ": 0 reports.")
        check_silent(page)
        assert page.call("state")["device"] == state["device"]
        page.click("yes")
        assert page.call("state")["outbox"] == []
        assert decode(page.report()).number == 3

    def test_opt_in_covers_one_question_and_opt_out_all(self, page: BoardPage):
        page.choose("experiment", NAMES[2])
        page.says("consent-title", "Will you take part in this, too?")
        page.pick(1)
        assert not page.find("report").is_enabled()
        assert page.call("report", NAMES[2], True)["report"] is None
        page.click("no")
        page.choose("experiment", NAMES[0])
        page.says("consent-title", "You do not take part")
        page.click("yes")
        page.choose("experiment", NAMES[2])
        page.says("consent-title", "Will you take part in this, too?")
        page.click("yes")
        page.pick(1)
        page.report()
        assert page.call("state")["yes"] == [NAMES[0], NAMES[2]]

    @pytest.mark.parametrize(
        "change",
        [{"epsilon": 3_000_000}, {"bins": 7}, {"missing": 1}],
        ids=["epsilon", "bins", "missing readings"],
    )
    def test_changed_question_asks_again(
        self, page: BoardPage, ask: Callable[..., object], change: dict[str, int]
    ):
        fields = json.loads(PAYLOADS[0])

        def publish(**changes: int) -> None:
            ask({"title": "room", "payload": json.dumps(fields | changes)})
            page.open()
            page.wait_for_question()

        assert page.report()
        publish(**change)
        page.says("consent-title", "Will you also take part in this?")
        check_silent(page)
        publish(epsilon=1_000_000, every=1)  # a lower epsilon does not change the question
        page.says("consent-title", "You take part")
        publish(**change)
        page.click("yes")
        assert page.report()
        publish()
        page.says(
            "consent-title", "You take part" if "epsilon" in change else "Will you also take part in this?"
        )


@contextlib.contextmanager
def another_window(page: BoardPage) -> Iterator[tuple[str, str]]:
    """Open a new window; yield the handles of the old and new windows, and close all but one at the end."""
    driver = page.browser.driver
    first = driver.current_window_handle
    driver.switch_to.new_window("window")
    try:
        yield first, driver.current_window_handle
    finally:
        remaining, *others = driver.window_handles
        for window in others:
            driver.switch_to.window(window)
            driver.close()
        driver.switch_to.window(remaining)


# Report readings as fast as possible with this tab's board, starting at an agreed time.
SIMULTANEOUS = """
    while (Date.now() < a[0]);
    window.made = [];
    for (let n = 0; n < 12; n++)
      try { made.push(m.board.call('report', a[1], true).report); } catch { made.push(null); }
"""


def is_ready(page: BoardPage, window: str) -> bool:
    """Wait until a tab has the board or is queued for it; return whether the tab has the board."""
    page.browser.driver.switch_to.window(window)
    visible = "['measure', 'problem'].filter((id) => document.getElementById(id)?.hidden === false)"
    sections = page.browser.until(lambda: page.browser.script(f"return window.isOldPage ? [] : {visible}"))
    return sections == ["measure"]


class TestBudget:
    def test_remains_spent_after_reload(self, page: BoardPage):
        reports = [page.report() for _ in range(4)]
        assert [decode(report).number for report in reports] == [1, 2, 3, 4]
        few = "4 reports so far. ±10 points needs about "
        assert page.says("finding", few).removeprefix(few).removesuffix(".").replace(",", "").isdigit()
        assert not page.find("beside").is_displayed()  # all intervals are too wide
        assert page.report() == b""
        page.says(
            "message", "report() returns None, which is all that the application sees. The budget is spent."
        )
        page.says("preview", "Nothing, because the budget is spent.")
        page.open()  # like a power cut
        page.ready()
        page.says("left", f"The budget is spent. The board is now silent for {NAMES[0]}")
        page.says("lifetime-text", "ε 0 of 8 is left. All its reports together have cost ε 8.")
        assert page.report() == b""

    def test_new_board_starts_new_bound(self, page: BoardPage):
        page.report()
        device = page.call("state")["device"]
        page.click("new")
        alert = page.browser.driver.switch_to.alert
        assert "starts a new privacy bound" in alert.text
        alert.accept()
        page.says("left", "4 of 4 reports are left")
        page.says("consent-title", "Will you take part?")
        page.says("last-none", "None yet.")
        new = page.call("state")["device"]
        assert new != device
        page.open()
        page.wait_for_question()
        assert page.call("state")["device"] == new

    @pytest.mark.parametrize("lost", ["the last writes", "all"])
    def test_killed_browser_refunds_nothing(self, page: BoardPage, lost: str):
        device = page.call("state")["device"]
        before = page.browser.script(SLOTS, PREFIX)
        first = decode(page.report())
        page.says("step-sent", "Counted in this browser: 1 so far.")
        if lost == "all":
            page.clear_storage("local_storage")
        for name, text in zip(("slot0", "slot1"), before, strict=True):
            if lost != "all":
                page.browser.script("localStorage.setItem(arguments[0], arguments[1])", PREFIX + name, text)
        page.open()
        page.ready()
        assert page.call("state")["device"] == device
        page.says("lifetime-text", "All its reports together have cost ε 2.")
        assert (first.number, decode(page.report()).number) == (1, 2)

    def test_simultaneous_tabs_share_one(self, page: BoardPage, ask: Callable[..., object]):
        many = json.loads(PAYLOADS[2]) | {"name": "many", "budget": {"rule": "count", "cap": 8}}
        ask({"title": "many", "payload": json.dumps(many)})
        driver = page.browser.driver
        page.open(fresh=True)
        page.ready()
        with another_window(page) as windows:
            # Both tabs load at the same time, so neither has the board first.
            for window in windows:
                driver.switch_to.window(window)
                leave = "window.isOldPage = true; setTimeout(() => location.assign(arguments[0]), 300)"
                driver.execute_script(leave, page.url)
            first, second = sorted(windows, key=lambda window: not is_ready(page, window))
            is_ready(page, second)
            start = f"const a = [{int(time.time() * 1000) + 2000}, 'many'];"
            for window in (first, second):
                driver.switch_to.window(window)
                script = f"{start} setTimeout(() => import('./main.js').then((m) => {{ {SIMULTANEOUS} }}), 0)"
                driver.execute_script(script)
            reports: list[str] = []
            for window in (first, second):
                driver.switch_to.window(window)
                page.browser.until(lambda: page.browser.script("return window.made?.length === 12"))
                reports += [report for report in page.browser.script("return made") if report]
            assert len(reports) == len(set(reports)) == 8
            page.says("problem-text", "This board is in use in another tab of this browser.")
            assert not page.find("measure").is_displayed()
            driver.switch_to.window(first)
            driver.close()
            driver.switch_to.window(second)
            page.ready()  # the second tab takes over
            page.says("left", "The budget is spent.")

    def test_second_client_on_ledger_locks_tab(self, page: BoardPage):
        """If the browser's locks fail, the board itself detects the conflict."""
        driver = page.browser.driver
        with another_window(page) as (first, second):
            no_exclusion = "LockManager.prototype.request = async (name, options, held) => held({})"
            script = {"source": no_exclusion}
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
            page.open()
            page.ready()
            page.report()
            driver.switch_to.window(first)
            assert page.report() == b""
            page.says("problem-text", "Another tab has used this board, so this one has locked itself")
            driver.switch_to.window(second)
            driver.close()
            driver.switch_to.window(first)
            page.open()
            page.ready()
            page.says("left", "3 of 4 reports are left")

    def test_full_storage_spends_nothing(self, page: BoardPage):
        page.browser.script("""
        window.fillers = [];
        for (let size = 4 << 20; size; size >>= 1)
          for (let i = 0; ; i++) {
            const name = `full${size}-${i}`;
            try { localStorage.setItem(name, 'x'.repeat(size)); fillers.push(name); } catch { break }
          }""")
        assert page.report() == b""
        page.says("message", "its storage is blocked or full")
        page.browser.script("for (const name of fillers) localStorage.removeItem(name)")
        assert decode(page.report()).number == 1
        page.says("lifetime-text", "All its reports together have cost ε 2.")


class TestManyBoards:
    def test_are_counted_and_estimated_in_browser(self, page: BoardPage):
        page.choose("experiment", NAMES[1])
        page.says("facts", "km")
        page.ready()
        page.choose("population", "groups")
        page.fill("many", 600)
        before = page.call("memory")
        page.click("send")
        page.says("crowd-message", "600 of 600 reports are counted.")
        page.says("source", "600 reports")
        page.says("comparison", "of 16 intervals contain the truth")
        assert not page.find("few-note").is_displayed()
        rows = page.browser.driver.find_elements(By.CSS_SELECTOR, "#rows tr")
        assert len(rows) == len(page.browser.driver.find_elements(By.CSS_SELECTOR, "#chart .bar")) == 16
        # The 600 boards are freed, because the garbage collector runs between turns of the event loop.
        assert page.call("memory") < before + 200_000
        assert page.browser.errors() == []

    @pytest.mark.parametrize("button", ["cancel", "no"])
    def test_can_be_stopped(self, page: BoardPage, button: str):
        page.fill("many", 20000)
        page.click("send")
        page.browser.until(
            lambda: page.browser.script("return document.getElementById('progress').value > 20")
        )
        page.click(button)
        page.ready()
        page.says("crowd-message", "Cancelled.")
        assert page.find("send").is_enabled()

    def test_typed_readings_alternate_and_show_errors(self, page: BoardPage):
        page.choose("population", "own")
        page.fill("own", "12, none")
        page.click("send")
        page.says("crowd-message", "“none” is not a reading. Type digits")
        page.fill("own", "12.5; 1e999")
        page.click("send")
        page.says("crowd-message", "“1e999” is not a reading.")
        page.fill("own", "12,5; 18.5")
        page.fill("many", 200)  # with fewer, all intervals may be too wide to be shown
        page.click("send")
        page.says("crowd-message", "200 of 200")
        page.says("comparison", "intervals contain the truth")
        cells = [row.text.split() for row in page.browser.driver.find_elements(By.CSS_SELECTOR, "#rows tr")]
        truth = {row[0]: row[-1] for row in cells}
        assert (truth["12"], truth["18"], truth["20"]) == ("50.0%", "50.0%", "0.0%")

    def test_few_reports_give_a_warning(self, page: BoardPage):
        report = "00" * 9 + "02"  # all reports have the same code, so the other codes' intervals are narrow
        add = f"for (let n = 0; n < 40; n++) m.board.view.add(2, '{report}'); return m.board.view.refresh()"
        page.module("main.js", add)
        page.says(
            "few-note", "40 reports are too few to say much. Estimates are right on average, but estimates"
        )
        page.says("few-note", "Shares with too wide an interval are not shown.")


class TestReport:
    def test_is_made_by_device_client(self, page: BoardPage):
        page.fill("reading", 20.5)
        report = page.report()
        exp = Experiment.parse(PAYLOADS[0])
        decoded = decode(report)
        assert (decoded.digest, decoded.number, len(report)) == (exp.digest, 1, 9 + exp.code_bytes)
        assert page.text("step-index").startswith("10 (20 to 21)")
        assert page.text("step-code").startswith(f"{int.from_bytes(report[9:], 'big')}.")
        page.says("left", "3 of 4 reports are left.")
        page.says("lifetime-text", "ε 6 of 8 is left. All its reports together have cost ε 2.")
        page.says("step-sent", "Counted in this browser: 1")
        page.says("source", "This page counts reports in this browser, until it is reloaded: 1 report.")
        page.says("finding", "One report tells nothing yet: an estimate needs 2.")
        source = (ROOT / "device" / "ldp_client.py").read_bytes()
        assert page.text("sha256") == hashlib.sha256(source).hexdigest()
        assert page.browser.errors() == []

    def test_is_not_sent_unless_stored(self, page: BoardPage):
        page.module("main.js", "m.board.to.post = async (...a) => { window.posted = a }")
        page.browser.script("IDBDatabase.prototype.transaction = () => { throw new Error('full') }")
        assert page.report()
        page.says("step-sent", "Not yet. This browser cannot store data on disk for this page.")
        assert page.browser.script("return window.posted") is None

    def test_preview_matches_board_and_spends_nothing(self, silent: BoardPage):
        slots = memory({})
        provision(slots)
        client = Client(silent.call("state")["policy"], slots, device_id="board-1")
        client.enroll(PAYLOADS[0])
        before = silent.browser.script(SLOTS, PREFIX)
        for reading in (12.5, 20.5):
            silent.fill("reading", reading)
            assert silent.text("preview") == preview(client, NAMES[0], reading)
        silent.fill("reading", "2 1")
        silent.says("preview", "“2 1” is not a reading.")
        assert silent.browser.script(SLOTS, PREFIX) == before

    def test_last_reports_are_listed_newest_first(self, page: BoardPage):
        codes = [page.report()[9] for _ in range(2)]
        expected = [
            f"room_temp: code {code} of 16, 10 bytes, epsilon 2; {left} more reports left"
            for code, left in zip(codes[::-1], (2, 3), strict=True)
        ]
        for _ in range(2):
            lines = page.text("last").splitlines()
            assert [re.sub(r"^[-0-9]{10} [0-9:]{5} ", "", line) for line in lines] == expected
            page.open()
            page.wait_for_question()

    def test_reading_is_not_reported_for_another_question(self, page: BoardPage, ask: Callable[..., object]):
        rare = json.loads(PAYLOADS[0]) | {"every": 1 << 24}
        other = json.loads(PAYLOADS[0]) | {"name": "other"}
        ask(*({"title": fields["name"], "payload": json.dumps(fields)} for fields in (rare, other)))
        page.open(fresh=True)
        page.ready()
        current = "return m.board.exp.name"
        for name in ("other", rare["name"], "other"):
            page.choose("experiment", name)
            page.browser.until(lambda name=name: page.module("main.js", current) == name, name)
            page.ready()
            if name == rare["name"]:
                page.click("until")
        page.report()
        page.says("left", "3 of 4 reports are left.")

    def test_typing_error_spends_nothing(self, page: BoardPage):
        for text in ("2 1", "1e3", "1,2,3", ""):
            page.fill("reading", text)
            page.click("report")
            page.says("message", f"“{text}” is not a reading.")
        page.fill("reading", "-400")
        page.click("report")
        page.says("message", "-400 is below 10, so it counts in the lowest bin. Press again to send it.")
        assert page.call("state")["sum"] == 0
        page.report()
        assert page.text("step-index") == "0 (below 11)"
        page.fill("reading", "21,5")
        page.report()
        assert page.text("step-index") == "11 (21 to 22)"


class TestExperiments:
    @pytest.mark.slow
    def test_examples_match_server(self):
        assert make_board_examples.FILE.read_text() == make_board_examples.examples()

    def test_label_must_be_chosen(self, page: BoardPage):
        for name in NAMES[2:]:
            page.choose("experiment", name)
            exp = Experiment.parse(PAYLOADS[NAMES.index(name)])
            page.says("consent-title", "Will you take part in this, too?")
            page.ready()
            assert not page.find("report").is_enabled()  # nobody has chosen a reading yet
            page.click("send")
            page.says("crowd-message", "Choose a reading above first.")
            page.pick(exp.domain - 1)
            assert decode(page.report()).digest == exp.digest
            last = "yes" if exp.type == "bool" else "other"
            assert page.text("step-index").startswith(f"{exp.domain - 1} ({last})")
            page.fill("many", 30)
            page.click("send")
            page.says("crowd-message", "30 of 30")

    def test_escapes_untrusted_text(self, page: BoardPage, ask: Callable[..., object]):
        payload = json.loads(PAYLOADS[3]) | {"labels": [HOSTILE, "b"]}
        row = {"title": HOSTILE, "purpose": HOSTILE, "unit": HOSTILE, "payload": json.dumps(payload)}
        ask(row)
        page.open(fresh=True)
        page.says("purpose", HOSTILE)
        page.ready()
        page.pick(0)
        page.report()
        page.fill("many", 200)
        page.click("send")
        page.says("crowd-message", "200 of 200")
        assert HOSTILE in page.find("rows").text
        assert page.browser.script("return document.querySelectorAll('img').length") == 0
        assert page.browser.driver.title != "1"

    def test_rejects_unsupported_types_by_name(self, page: BoardPage, ask: Callable[..., object]):
        kinds = {"text": TEXT, "pair": PAIR}
        ask(*({"title": kind, "payload": payload.decode()} for kind, payload in kinds.items()))
        page.open(fresh=True)
        for kind, payload in kinds.items():
            name = json.loads(payload)["name"]
            page.browser.until(lambda name=name: page.browser.find(f'#experiment option[value="{name}"]'))
            page.choose("experiment", name)
            message = f"This board refuses the experiment: {name}: this page has no field for a {kind}."
            page.says("problem-text", message)
            assert not page.find("measure").is_displayed()

    def test_rejects_keyed_fleet(self, page: BoardPage):
        # As long as a signed experiment: the JSON, a zero byte, a serial number and a signature.
        signed = (
            "m.board.to.payload = async () => new Uint8Array([...new TextEncoder().encode(a[0]), 0, ...a[1]])"
        )
        page.module("main.js", signed, PAYLOADS[0].decode(), [7] * 68)
        page.choose("experiment", NAMES[0])
        page.says("problem-text", "a browser has no device key")
        assert not page.find("measure").is_displayed()


class TestPage:
    def test_is_usable_at_any_width_and_by_keyboard(self, page: BoardPage):
        for width, dark in ((360, True), (1440, False)):
            page.browser.resize(width, dark=dark)
            page.report()
            page.fill("many", 20)
            page.click("send")
            page.says("source", "reports")
            page.says("crowd-message", "20 of 20")
            assert page.browser.overflow() <= 0
            assert barriers(page.browser) == []
        page.browser.resize(360)
        page.choose("experiment", NAMES[3])
        page.says("consent-title", "Will you take part in this, too?")
        page.ready()
        page.says("population", "7 in 10 the same as mine")
        assert page.browser.overflow() <= 0
        page.browser.resize(1440)
        # Tab moves from the field to the button, and Enter sends a report.
        page.open(fresh=True)
        page.ready()
        page.find("reading").send_keys(Keys.TAB)
        assert page.browser.driver.switch_to.active_element.get_attribute("id") == "report"
        page.browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
        page.says("left", "3 of 4")

    def test_colors_follow_url_or_surrounding_page(self, page: BoardPage):
        background = "return getComputedStyle(document.body).backgroundColor"
        page.open(query="?theme=dark")
        assert page.browser.script(background) == "rgb(18, 22, 27)"
        page.browser.script("localStorage.setItem('hushmote-colours', 'dark')")
        page.open()
        assert page.browser.script(background) == "rgb(18, 22, 27)"
        page.open(query="?theme=light")
        assert page.browser.script(background) == "rgb(255, 255, 255)"
