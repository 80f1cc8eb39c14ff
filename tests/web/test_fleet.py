"""The first view in a real Chromium: what a store holds, while it changes, in a reader's own language."""

import contextlib
import datetime
from dataclasses import replace

import pytest
from accessibility import barriers
from babel import Locale
from boards import experiment, payload_of, reports
from browser import SWISS, paged
from later import away_from_midnight
from running import running

from hushmote.server.answers.finding import Finding, find, reports_a_day
from hushmote.server.answers.query import Facts, Selection
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
from hushmote.web.tile import spark

TEMP = experiment()
EVIL = experiment(name="evil", mechanism="rr", type="bool", bins=None, low=None, high=None)
SCRIPT = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>{{7*7}}"


def count(store, devices, exp=TEMP):
    """Commit reports of devices."""
    value = True if exp is EVIL else 20.0
    sent = [(topics.report_topic("home", d), one) for d in devices for one in reports(d, exp, 2, value=value)]
    pipeline.ingest(store, sent, pipeline.fleets(store, names=["home"]), datetime.datetime.now(datetime.UTC))


@pytest.fixture
def store(tmp_path):
    """A store with two experiments, one of them a stranger's; the day is not over for a minute."""
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


def test_what_there_is_while_it_grows(browser, store):
    count(store, [f"board-{i}" for i in range(1000)])
    browser.renew("de-CH")
    with paged(url(store)) as page:
        browser.open(page)
        browser.says(f"evil of fleet home, asked by {SCRIPT}")  # a stranger's words are words
        # As the Swiss write it.
        browser.says(f"2{SWISS}000 reports in all, 2{SWISS}000 today (UTC). Asked until ")
        browser.says("temp of fleet home, asked by heating@example.org")
        browser.says("Fleet home: it is open. Its reports have no tags, so anyone can forge some.")
        browser.says("Fleet work: every report has a tag that only its own device can make.")
        browser.says("Health: unknown.")
        browser.says(
            "Nothing monitors the aggregator: start the page with --aggregator URL. No report was thrown"
        )
        swiss = Reader(Locale("de", "CH"))
        browser.says(find(Facts(store), Selection("temp", "home"), swiss).sentence)
        assert "reports a day" not in browser.text  # today may have begun a minute ago
        before = browser.script("window.same = true; return document.querySelectorAll('#main *').length")
        count(store, ["one-more"])
        browser.says(f"2{SWISS}002 reports in all")
        browser.until(lambda: browser.find("#reports").text.startswith(f"2{SWISS}002 reports so far. "))
        assert browser.script("return window.same && document.querySelectorAll('#main *').length") == before
        sent = [(topics.report_topic("home", "board-1"), b"no")] * 3
        pipeline.ingest(
            store, sent, pipeline.fleets(store, names=["home"]), datetime.datetime.now(datetime.UTC)
        )
        browser.says("3 reports were thrown away: they are no reports as the wire format has them.")
        browser.says("Something is wrong.")
        store.withdraw_experiment("home", "temp")
        browser.says("Withdrawn: no device is asked any more.")
        assert "board-1" not in browser.driver.page_source
        assert browser.driver.title == "Answers - Hushmote"
        assert browser.errors() == []
        browser.named("How warm is it?").click()
        browser.until(lambda: browser.driver.current_url.endswith("/experiment/home/temp"))


def test_nothing_bars_anybody_in_light_and_in_dark(browser, store):
    count(store, ["a"])
    with store.writing() as connection:
        row = {"experiment": 1, "window": "2026-11-21", "code": 5, "count": 5000}
        connection.execute(schema.histogram.insert().values(**row))
    with paged(url(store), "--aggregator", "http://127.0.0.1:1") as page:
        for width, dark in ((1440, False), (360, True)):
            browser.resize(width, dark=dark)
            browser.open(page)
            browser.says("Honest devices do not send this")
            browser.says("The aggregator at http://127.0.0.1:1 gives no answer: Connection refused.")
            assert browser.overflow() <= 0
            assert barriers(browser) == []


@pytest.mark.parametrize("quiet", [3, 0])
def test_a_tile_is_marked_where_something_is_wrong_and_a_spent_budget_is_not_wrong(browser, store, quiet):
    last = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(quiet)
    most = NumberSet()
    for number in range(1, 5):  # all that the budget holds
        most = most.add(number)
    (version,) = (v for v in store.experiments("home") if v.experiment.name == "temp")
    seen = {("home", "temp", f"d{n}"): most if n else NumberSet().add(1) for n in range(20)}
    with store.ingest() as transaction:
        transaction.write(seen, {(version.id, last.isoformat(), 0): 77}, {})
    with paged(url(store)) as page:
        browser.open(page)
        browser.says("The budget is nearly spent: 5 % of devices can still report.")
        browser.says("The budget of 1 experiment is spent, or nearly.")
        if quiet:
            browser.says(f"No report has come since {Reader(Locale('en', 'US')).day(last)}.")
            browser.says("Something is wrong.")
            browser.says("1 of 2 experiments needs a look.")
        else:
            browser.says("Health: unknown.")
        assert barriers(browser) == []


def series(*rows):
    return tuple(TrendRow("yes", *row, window="2026-11-21", reports=9) for row in rows)


def test_a_spark_line_is_numbers_in_a_band_without_rows_that_tell_nothing():
    known = Finding("yes", "yes", "", series=series((0.2, 0.1, 0.3), (0.5, 0.1, 0.9), (0.4, 0.3, 0.5)))
    drawn = spark(known)
    assert 'polyline points="0.00,21.50 100.00,8.50"' in drawn  # of two: the middle one is 80 points wide
    assert 'polygon points="0.00,15.00 100.00,2.00 100.00,15.00 0.00,28.00"' in drawn
    assert spark(replace(known, series=known.series[:2])) == ""
    assert 'points="0.00' in spark(replace(known, quantity="reading", series=known.series[:2]))


def test_reports_a_day_are_over_all_days_between():
    assert reports_a_day(("2026-11-01", "2026-11-04T05", "2026-11-10"), 104) == 10.4
    assert reports_a_day(("all",), 104) == 0


class TestHealth:
    def test_is_good_while_a_monitored_aggregator_works(self, browser, store):
        metrics = Metrics()
        with MosquittoBroker() as broker, contextlib.ExitStack() as stack:
            aggregator = stack.enter_context(
                running(store, broker, fleets=["home"], on_commit=metrics.committed)
            )
            metrics.watch(lambda: aggregator.counters, lambda: aggregator.condition)
            endpoint = stack.enter_context(Endpoint("127.0.0.1", 0, metrics.text, lambda: None))
            with paged(url(store), "--aggregator", f"http://127.0.0.1:{endpoint.port}") as page:
                browser.open(page)
                browser.says(
                    "The aggregator is connected to the broker, and all that came is counted. No report was"
                )
                browser.says("All is well.")
                assert "well" in browser.find(".health-mark").get_attribute("class").split()

    def test_is_unknown_where_nothing_monitors_it(self, browser, store):
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

    def test_is_bad_where_the_aggregator_does_not_answer(self, browser, store):
        count(store, ["a"])
        with paged(url(store), "--aggregator", "http://127.0.0.1:1") as page:
            browser.open(page)
            browser.says("Something is wrong.")
            assert "All is well" not in browser.text


def test_one_fleet_of_several(browser, store):
    count(store, ["a"])
    with paged(url(store), "--fleet", "work") as page:
        browser.open(page)
        browser.says("Fleet work")
        assert "Fleet home" not in browser.text
        browser.says("0 reports so far")
