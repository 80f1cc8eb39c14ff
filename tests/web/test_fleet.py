"""The first view in a real Chromium, which follows a changing store in the reader's language."""

import contextlib
import datetime
from dataclasses import replace

import numpy as np
import pytest
from accessibility import barriers
from babel import Locale
from boards import experiment, payload_of, reports
from browser import SWISS, paged
from designs import choice_payload, number_payload
from experiment_kinds import PAIR, put
from filled_store import fill
from running_aggregator import running
from time_of_day import WRONG_CLOCKS, away_from_midnight, set_times

from hushmote.server.answers.finding import Finding, find
from hushmote.server.answers.headline import Headline, headline, spark
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.answers.report_rate import reports_a_day
from hushmote.server.answers.rows import TrendRow
from hushmote.server.ingest import pipeline
from hushmote.server.service.http_endpoint import Endpoint
from hushmote.server.service.metrics import Metrics
from hushmote.server.store import Description, schema
from hushmote.server.store.number_set import NumberSet
from hushmote.server.store.store import Store
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker
from hushmote.web.reader import Reader

TEMP = experiment()
EVIL = experiment(name="evil", mechanism="rr", type="bool", bins=None, low=None, high=None)
SCRIPT = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>{{7*7}}"


def count(store, devices, exp=TEMP):
    """Commit two reports from each device."""
    value = True if exp is EVIL else 20.0
    messages = [
        (topics.report_topic("home", device), report)
        for device in devices
        for report in reports(device, exp, 2, value=value)
    ]
    pipeline.ingest(
        store, messages, pipeline.fleets(store, names=["home"]), datetime.datetime.now(datetime.UTC)
    )


@pytest.fixture
def store(tmp_path):
    """Provide a store with two experiments, one of them hostile; midnight is at least a minute away."""
    away_from_midnight()
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        store.add_fleet("home", keyed=False)
        store.add_fleet("work", keyed=True)
        until = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(41)
        words = Description("°C", "How warm is it?", "heating@example.org")
        store.add_experiment("home", payload_of(TEMP), until, description=words)
        store.add_experiment("home", payload_of(EVIL), description=Description(SCRIPT, SCRIPT, SCRIPT))
        yield store


def url(store):
    return f"sqlite:///{store.where}"


def series(*rows):
    return tuple(TrendRow("yes", *row, window="2026-11-21", reports=9) for row in rows)


class TestSpark:
    answer = Finding("yes", "yes", "", series=series((0.2, 0.1, 0.3), (0.4, 0.3, 0.5)))

    def test_is_line_in_band(self):
        svg = spark(self.answer)
        assert 'polyline points="0.00,21.50 100.00,8.50"' in svg
        assert 'polygon points="0.00,15.00 100.00,2.00 100.00,15.00 0.00,28.00"' in svg

    def test_single_value_is_point_on_its_interval(self):
        svg = spark(replace(self.answer, series=self.answer.series[:1]))
        assert '<polyline points="50.00,28.00 50.00,2.00"/><path d="M50.00,15.00h0"/>' in svg
        first_day = replace(self.answer, series=(), value=0.2, low=0.1, high=0.3)
        assert spark(first_day) == svg
        assert spark(replace(first_day, value=None)) == ""


class TestReportsADay:
    def test_are_averaged_over_all_days(self):
        at = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
        assert reports_a_day(("2026-11-01", "2026-11-04T05", "2026-11-10"), 104, at) == 10.4
        assert reports_a_day(("all",), 104, at) == 0


TODAY = datetime.datetime.now(datetime.UTC).date()
# Up to two days ago, to let a test run past midnight.
PAST = [f"{TODAY - datetime.timedelta(ago)}" for ago in range(41, 1, -1)]


def fill_answers(store):
    """Add a number that rose a week ago, steady labels, a pair, and an experiment with few reports."""
    rise = {w: np.eye(8)[1 if n < 33 else 6] for n, w in enumerate(PAST)}
    temp = number_payload(8, 2, 0, 8_000, "rise")
    fill(store, "home", temp, dict.fromkeys(PAST, 900), rise, "°C", asked="5:\nmean")
    labels = np.array([5, 3, 1, 1]) / 10
    fill(store, "home", choice_payload(["tea", "milk", "none"], 2), dict.fromkeys(PAST, 900), labels)
    fill(store, "home", number_payload(64, 1, 0, 8_000, "few"), {PAST[-1]: 3})
    values = [("1.0", True), ("1.0", False), ("1.1", False), ("1.2", False)] * 200
    put(store, "home", PAIR, dict.fromkeys(PAST[-3:], values))


class TestHeadline:
    @pytest.fixture
    def answers(self, tmp_path):
        """Provide a function that returns an experiment's first finding."""
        with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            fill_answers(store)
            yield lambda name: find(Facts(store), Selection(name, "home"), series=True).findings[0]

    def parts(self, finding: Finding, language: str = "en") -> Headline:
        parts = headline(finding, datetime.datetime.now(datetime.UTC), Reader(Locale(language)))
        assert parts is not None
        return parts

    def test_has_number_change_and_certainty(self, answers):
        finding = answers("rise")
        parts = self.parts(finding)
        assert (parts.value, parts.title) == ("at least 95%", "5 °C and above")
        assert parts.direction == "up"
        assert parts.change.startswith("Up from 0% before ")
        assert (parts.badge, parts.certainty) == ("certain", "certain")
        unsure = self.parts(replace(finding, change=replace(finding.change, chance=1 / 40)))
        assert (unsure.badge, unsure.certainty) == ("likely", "about 1 in 40 by chance")

    def test_uses_readers_number_format(self, answers):
        parts = self.parts(answers("mode"), "de")
        assert parts.value.endswith("\xa0%")
        assert ", 95\xa0% interval " in parts.dates

    def test_has_no_arrow_without_change(self, answers):
        finding = answers("mode")
        parts = self.parts(finding)
        assert (parts.title, parts.direction, parts.badge) == ("Tea", "", "")
        assert parts.change.startswith("No change since ")
        assert len(finding.series) > 10

    def test_pair_is_difference_in_points(self, answers):
        finding = answers("crash_by_version")
        parts = self.parts(finding)
        assert parts.value.endswith(" points")
        assert parts.title.startswith("crashed=yes: version=1.0 less version=1.")
        assert spark(finding).count("<polygon") == 1

    def test_is_empty_with_too_few_reports(self, answers):
        now = datetime.datetime.now(datetime.UTC)
        assert headline(answers("few"), now, Reader(Locale("en"))) is None


class TestTile:
    def tile(self, browser, name):
        return browser.until(
            lambda: next(t for t in browser.driver.find_elements("css selector", ".tile") if name in t.text)
        )

    @pytest.mark.parametrize(("width", "dark"), [(1440, False), (360, True)])
    def test_shows_number_arrow_and_badge(self, browser, tmp_path, width, dark):
        with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            fill_answers(store)
            findings = find(Facts(store), Selection("rise", "home"), Reader(Locale("en", "US")))
            with paged(url(store)) as page:
                browser.resize(width, dark=dark)
                browser.open(page)
                for line in findings.lines:
                    browser.says(line)
                browser.until(lambda: len(browser.driver.find_elements("css selector", ".spark svg")) == 3)
                tile = self.tile(browser, "rise of fleet home")
                assert "at least 95%" in tile.find_element("css selector", ".tile-value").text
                assert tile.find_element("css selector", ".tile-change.up").text.startswith("▲")
                badge = tile.find_element("css selector", ".tile-badge")
                assert (badge.text, badge.get_attribute("title")) == ("certain", "certain")
                assert badge.accessible_name == "certain"
                few = self.tile(browser, "few of fleet home")
                assert not few.find_element("css selector", ".tile-answer").is_displayed()
                assert "3 reports" in few.find_element("css selector", ".tile-lines").text
                assert browser.overflow() <= 0
                assert barriers(browser) == []

    def test_shows_time_of_last_report(self, browser, tmp_path):
        with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            fill(store, "home", number_payload(8, 2, 0, 8_000, "old"), dict.fromkeys(PAST[:9], 900))
            (*_, line) = find(Facts(store), Selection("old", "home"), Reader(Locale("en", "US"))).lines
            assert line.startswith("Last report ")
            with paged(url(store)) as page:
                browser.open(page)
                browser.says(line)
                browser.open(f"{page}/experiment/home/old")
                browser.says(line)

    @pytest.mark.parametrize("quiet", [3, 0])
    def test_spent_budget_is_not_a_problem(self, browser, store, quiet):
        last = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(quiet)
        all_numbers = NumberSet()
        for number in range(1, 5):  # the whole budget
            all_numbers = all_numbers.add(number)
        (version,) = (v for v in store.experiments("home") if v.experiment.name == "temp")
        seen = {("home", "temp", f"d{n}"): all_numbers if n else NumberSet().add(1) for n in range(20)}
        with store.ingest() as transaction:
            transaction.write(seen, {(version.id, last.isoformat(), 0, 0): 77}, {})
        with paged(url(store)) as page:
            browser.open(page)
            browser.says("The budget is nearly spent: 5% of devices can still report.")
            browser.says("The budget of 1 experiment is spent or nearly spent.")
            if quiet:
                browser.says(f"No report has arrived since {Reader(Locale('en', 'US')).day(last)}.")
                browser.says("Something is wrong.")
                browser.says("1 of 2 experiments needs attention.")
            else:
                browser.says("Health: unknown.")
            assert barriers(browser) == []


class TestHealth:
    def test_is_good_while_aggregator_works(self, browser, store):
        metrics = Metrics()
        with MosquittoBroker() as broker, contextlib.ExitStack() as stack:
            aggregator = stack.enter_context(
                running(store, broker, fleets=["home"], on_commit=metrics.note_commit)
            )
            metrics.watch(lambda: aggregator.counters, lambda: aggregator.condition)
            endpoint = stack.enter_context(Endpoint("127.0.0.1", 0, metrics.text, lambda: None))
            with paged(url(store), "--aggregator", f"http://127.0.0.1:{endpoint.port}") as page:
                browser.open(page)
                browser.says(
                    "The aggregator is connected to the broker, and has counted all reports. No reports were"
                )
                browser.says("All is well.")
                assert "well" in browser.find(".health-mark").get_attribute("class").split()

    def test_is_unknown_without_monitoring(self, browser, store):
        count(store, ["a"])
        with paged(url(store)) as page:
            browser.open(page)
            browser.says("Health: unknown.")
            mark = browser.find(".health-mark.unknown")
            shade = browser.script("return getComputedStyle(arguments[0], '::before').backgroundColor", mark)
            red, green, blue = map(int, shade.removeprefix("rgb(").removesuffix(")").split(", "))
            assert max(red, green, blue) - min(red, green, blue) < 30  # grey
            assert "All is well" not in browser.text
            assert barriers(browser) == []

    def test_says_when_counting_last_worked(self, browser, store):
        then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=3, minutes=5)
        set_times(store, alive=then)
        with paged(url(store)) as page:
            browser.open(page)
            browser.says("Counting last worked 3 h ago.")
            title = browser.find("#counting").get_attribute("title")
            assert title == f"{then:%Y-%m-%d %H:%M} UTC"

    @pytest.mark.parametrize(("since", "words"), WRONG_CLOCKS[:1])
    def test_is_bad_with_a_wrong_clock(self, browser, store, since, words):
        set_times(store, alive=datetime.datetime.now(datetime.UTC) - since)
        with paged(url(store)) as page:
            browser.open(page)
            browser.says("Something is wrong.")
            browser.says("Nothing is counted with this clock: the clock says ")
            browser.says(words)

    def test_names_an_unreadable_experiment_and_shows_the_rest(self, browser, store):
        count(store, ["d1", "d2"])
        with store.writing() as connection:
            connection.exec_driver_sql("UPDATE experiment SET owner = x'ff' WHERE name = 'evil'")
        with paged(url(store)) as page:
            browser.open(page)
            browser.says("Something is wrong.")
            browser.says("Experiment evil of fleet home cannot be read here: the unit, purpose, ")
            browser.says("How warm is it?")
            browser.open(f"{page}/experiment/home/evil")
            browser.says("cannot be read here: the unit, purpose, ")

    def test_is_bad_if_aggregator_does_not_answer(self, browser, store):
        count(store, ["a"])
        with paged(url(store), "--aggregator", "http://127.0.0.1:1") as page:
            browser.open(page)
            browser.says("Something is wrong.")
            assert "All is well" not in browser.text


class TestView:
    def test_follows_growing_store(self, browser, store):
        count(store, [f"board-{i}" for i in range(1000)])
        browser.renew("de-CH")
        with paged(url(store)) as page:
            browser.open(page)
            browser.says(f"evil of fleet home, asked by {SCRIPT}")  # untrusted text is shown as text
            # The Swiss number format.
            browser.says(f"2{SWISS}000 reports in all, 2{SWISS}000 today (UTC). Asked until ")
            browser.says("temp of fleet home, asked by heating@example.org")
            browser.says("Fleet home: it is open. Its reports have no tags, so anyone can forge reports.")
            browser.says("Fleet work: every report has a tag that only its device can make.")
            browser.says("Health: unknown.")
            browser.says(
                "The aggregator is not monitored; to monitor it, start the page with --aggregator URL. "
                "No reports were rejected"
            )
            swiss = Reader(Locale("de", "CH"))
            for line in find(Facts(store), Selection("temp", "home"), swiss).lines:
                browser.says(line)
            assert "reports a day" not in browser.text  # the current day is incomplete
            before = browser.script("window.same = true; return document.querySelectorAll('#main *').length")
            count(store, ["one-more"])
            browser.says(f"2{SWISS}002 reports in all")
            browser.until(lambda: browser.find("#reports").text.startswith(f"2{SWISS}002 reports so far. "))
            assert (
                browser.script("return window.same && document.querySelectorAll('#main *').length") == before
            )
            messages = [(topics.report_topic("home", "board-1"), b"no")] * 3
            pipeline.ingest(
                store, messages, pipeline.fleets(store, names=["home"]), datetime.datetime.now(datetime.UTC)
            )
            browser.says("3 reports were rejected: they are not valid reports.")
            browser.says("Something is wrong.")
            store.withdraw_experiment("home", "temp")
            browser.says("Withdrawn, so no device is asked any more.")
            assert "board-1" not in browser.driver.page_source
            assert browser.driver.title == "Answers - Hushmote"
            assert browser.errors() == []
            browser.find_by_name("How warm is it?").click()
            browser.until(lambda: browser.driver.current_url.endswith("/experiment/home/temp"))

    def test_many_experiments_can_be_searched(self, browser, store):
        for n in range(40):
            words = Description("°C", f"How warm is room {n}?", "heating@example.org")
            store.add_experiment("work", payload_of(experiment(name=f"room{n}")), description=words)
        with paged(url(store)) as page:
            browser.open(page)
            browser.says("1 to 24 of 42 experiments.")
            assert len(browser.driver.find_elements("css selector", ".tile")) == 24
            browser.find_by_name("Next").click()
            browser.says("25 to 42 of 42 experiments.")
            browser.until(lambda: browser.driver.current_url.endswith("?page=2"))
            browser.find("input[type=search]").send_keys("room 7")
            browser.says("1 to 4 of 4 matching of 42 experiments.")
            browser.until(lambda: browser.driver.current_url.endswith("?search=room+7"))
            browser.driver.refresh()
            browser.says("1 to 4 of 4 matching of 42 experiments.")
            assert browser.find("input[type=search]").get_attribute("value") == "room 7"
            assert barriers(browser) == []
            browser.resize(360, dark=True)
            browser.until(lambda: browser.overflow() <= 0, "it is too wide")
            assert barriers(browser) == []
            assert browser.errors() == []

    def test_link_to_warned_finds_spent_budgets(self, browser, store):
        for n in range(30):
            store.add_experiment("work", payload_of(experiment(name=f"room{n}")))
        (version,) = (v for v in store.experiments("home") if v.experiment.name == "temp")
        seen = {("home", "temp", f"d{n}"): NumberSet(4) for n in range(20)}  # the whole budget
        with store.ingest() as transaction:
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            transaction.write(seen, {(version.id, today, 0, 0): 80}, {})
        with paged(url(store)) as page:
            browser.open(f"{page}/?warned=yes")
            browser.says("1 to 1 of 1 matching of 32 experiments.")
            browser.says("The budget is spent")

    def test_is_accessible_in_light_and_dark(self, browser, store):
        count(store, ["a"])
        with store.writing() as connection:
            row = {"experiment": 1, "window": "2026-11-21", "group_index": 0, "code": 5, "count": 5000}
            connection.execute(schema.histogram.insert().values(**row))
        with paged(url(store), "--aggregator", "http://127.0.0.1:1") as page:
            for width, dark in ((1440, False), (360, True)):
                browser.resize(width, dark=dark)
                browser.open(page)
                browser.says("Honest devices do not produce this")
                browser.says("The aggregator at http://127.0.0.1:1 does not answer: Connection refused.")
                assert browser.overflow() <= 0
                assert barriers(browser) == []

    def test_shows_one_fleet_of_several(self, browser, store):
        count(store, ["a"])
        with paged(url(store), "--fleet", "work") as page:
            browser.open(page)
            browser.says("Fleet work")
            assert "Fleet home" not in browser.text
            browser.says("0 reports so far")
