"""The Budget view's sentences about a ledger, and the view in a real Chromium over a growing store."""

import asyncio
import datetime
import itertools
import json
import re
from pathlib import Path

import pytest
from accessibility import barriers
from boards import ask_fleet
from browser import SWISS, Browser, paged
from experiments import experiment_json
from filled_store import fill
from time_of_day import advance_clock

from hushmote.device.ldp_client import Experiment
from hushmote.server.budgets import remaining
from hushmote.server.budgets.policy import Policy, policy_for
from hushmote.server.budgets.remaining import BudgetLine, FleetLedger
from hushmote.server.budgets.words import COUNTED, NO_POLICY
from hushmote.server.errors import UsageError
from hushmote.server.ingest.pipeline import fleets, ingest
from hushmote.server.store import Store, StoreError
from hushmote.server.wire.report import encode
from hushmote.web.budget.answer import HEADINGS, FleetBudgets, fleet_budgets
from hushmote.web.budget.ledgers import Ledgers
from hushmote.web.glossary import WORDS
from hushmote.web.live import LiveStore

TODAY = datetime.date(2026, 11, 22)
ONCE = {"rule": "count", "cap": 1}
FOUR = "at most 4 reports of ε = 1"
DAYS = {TODAY - datetime.timedelta(days=n): 100 for n in range(1, 8)}


def line(state: str = "current", days=DAYS, **fields) -> BudgetLine:
    changes = {"name": "room", "epsilon": 1_000_000, "budget": {"rule": "sum", "cap": 4_000_000}, **fields}
    e = Experiment.parse(experiment_json(**changes))
    return BudgetLine(e, state, e.epsilon, e.epsilon, 700, days)


def budget(*lines: BudgetLine, profiles, policy: Policy | None = None):
    return fleet_budgets(FleetLedger("home", lines, profiles, policy), TODAY)


class TestChart:
    def test_series_match_ledger_forecast(self):
        ledger = FleetLedger("home", (line(),), {(0,): 600, (2,): 300, (4,): 100})
        (e,), (row,) = fleet_budgets(ledger, TODAY).experiments, ledger.lines(TODAY)
        assert row.forecast is not None
        assert e.counted == tuple((day.isoformat(), 100.0) for day in DAYS)
        assert e.forecast[0] == (f"{TODAY}T00:00:00+00:00", pytest.approx(100))
        assert e.forecast[-1][0] == f"{TODAY + datetime.timedelta(30)}T00:00:00+00:00"
        assert e.forecast[-1][1] == pytest.approx(66.667)  # the boards with 2 reports left are silent
        assert [n for _, n in e.forecast] == sorted((n for _, n in e.forecast), reverse=True)


class TestPolicy:
    def test_missing_policy_gives_warning(self):
        assert budget(line(), profiles={(0,): 10}).lifetime == (COUNTED, NO_POLICY)

    def test_is_shown_with_its_guarantee(self):
        limits, guarantee, *_ = budget(
            line(), profiles={(0,): 10}, policy=policy_for(8, 1e-6, ("room",))
        ).lifetime
        assert "Σε up to 8, or Σε² up to 1.81941" in limits
        assert "(8, 1e-06)-LDP" in guarantee
        assert "Except with that probability, all the reports that a device ever sends can raise" in guarantee
        _, pure, *_ = budget(line(), profiles={(0,): 10}, policy=policy_for(2, 0, ("room",))).lifetime
        assert pure.startswith("All the reports that a device ever sends can raise")
        assert "from 10% to at most 46%" in pure

    def test_promise_depends_on_most_expensive_version(self):
        row = line(budget={"rule": "count", "cap": 3})
        dear = BudgetLine(row.experiment, "current", 2_000_000, 1_000_000, 700, DAYS)
        (cheap,), (costly,) = (budget(x, profiles={(0,): 1}).experiments for x in (row, dear))
        assert "3-LDP" in cheap.promise
        assert "6-LDP" in costly.promise


class TestSelection:
    def test_begins_with_those_that_run_out_first(self):
        later = {day: n // 10 for day, n in DAYS.items()}
        budgets = budget(
            line(days=later, name="slow"), line(), line(days=later, name="room2"), profiles={(0, 0, 0): 9}
        )
        assert budgets.select("", 3) == budgets
        assert [e.name for e in budgets.select("", 2).experiments] == ["room", "slow"]
        assert [e.name for e in budgets.select("ROOM 2", 2).experiments] == ["room2"]


class TestTable:
    @pytest.mark.parametrize(
        ("row", "profiles", "cells"),
        [
            (line("withdrawn"), {(1,): 10}, ("withdrawn after 700 reports", "", "100.0", "", "", "")),
            (line("refused"), {(1,): 10}, ("refused by the policy", "", "100.0", "", "", "")),
            (line(), {(4,): 10}, ("0", "10 of 10", "100.0", "", "", FOUR)),
            (line(), {}, ("no device has reported yet", "", "100.0", "", "", FOUR)),
            (
                line(budget=ONCE),
                {(1,): 10},
                ("asked once: 10 devices answered", "", "100.0", "", "", "at most 1 report of ε = 1"),
            ),
            (
                line(budget={"rule": "unlimited"}),
                {(9,): 10},
                ("no cap", "", "100.0", "never", "never", "any number of reports of ε = 1"),
            ),
            (line(days={}), {(0,): 10}, ("40", "0 of 10", "no full day yet", "", "", FOUR)),
            (
                line(days=dict.fromkeys(DAYS, 0)),
                {(0,): 10},
                ("40", "0 of 10", "0.0", "never at this rate", "never at this rate", FOUR),
            ),
            (line(), {(4,): 60, (0,): 40}, ("160", "60 of 100", "100.0", "already", None, FOUR)),
            (line(every=90), {(4,): 10}, (*(None,) * 5, f"{FOUR}; 1 call in 90 makes a report")),
        ],
        ids=[
            "withdrawn",
            "refused",
            "spent",
            "no reports",
            "once",
            "unlimited",
            "no full day",
            "no recent reports",
            "half silent",
            "rare calls",
        ],
    )
    def test_covers_every_state(self, row, profiles, cells):
        (e,) = budget(row, profiles=profiles).experiments
        assert len(e.cells) == len(HEADINGS)
        assert e.cells == tuple(
            actual if cell is None else cell for actual, cell in zip(e.cells, cells, strict=True)
        )

    def test_shows_dates_of_forecast(self):
        (e,) = budget(line(), profiles={(0,): 600, (2,): 300, (4,): 100}).experiments
        assert e.cells[:5] == ("3,000", "100 of 1,000", "100.0", str(e.line.half), str(e.line.dry))

    def test_experiments_share_the_same_guarantee(self):
        rows = line(), line(name="door"), line(name="lux", budget={"rule": "count", "cap": 1})
        promises = budget(*rows, profiles={(0, 0, 0): 1}).promises
        assert [text.partition(" alone: ")[0] for text in promises] == ["room, door", "lux"]


class TestSentences:
    def test_begin_with_remaining_budget(self):
        ledger = FleetLedger("home", (line(),), {(0,): 600, (2,): 300, (4,): 100})
        budgets, (row,) = fleet_budgets(ledger, TODAY), ledger.lines(TODAY)
        (e,) = budgets.experiments
        assert row.total_left == 600 * 4 + 300 * 2
        assert e.sentences[0] == f"Devices in home can still send {row.total_left:,} reports for room."
        assert e.sentences[1].startswith(
            f"At the current rate of 100 reports a day, half will run out by {row.half}"
        )
        assert f"95% by {row.dry}" in e.sentences[1]
        assert e.sentences[2] == "100 of 1,000 devices have no reports left."
        assert "at most 4 reports of ε = 1" in e.sentences[3]
        one_device = FleetLedger("home", (line(),), {(0,): 999, (4,): 1})
        (silent,) = fleet_budgets(one_device, TODAY).experiments
        assert silent.sentences[2] == "1 of 1,000 devices has no reports left."
        assert e.line == row
        assert budgets.boards == 1_000

    @pytest.mark.parametrize(
        ("row", "profiles", "first"),
        [
            (
                line("withdrawn"),
                {(1,): 10},
                "room is withdrawn: devices in home send no more reports for it. They sent 700 reports.",
            ),
            (
                line("expired"),
                {(1,): 10},
                "room is expired: devices in home send no more reports for it. They sent 700 reports.",
            ),
            (
                line("refused"),
                {(1,): 10},
                "The devices' policy refuses room: devices in home send no reports for it.",
            ),
            (line(), {(4,): 10}, "No device in home that has reported can send any more reports for room."),
            (line(), {}, "No device has reported for room yet."),
            (line(budget=ONCE), {(1,): 10}, "room asks each device once: 10 devices have answered."),
            (line(), {(3,): 1}, "Devices in home can still send 1 report for room."),
            (
                line(budget={"rule": "unlimited"}),
                {(9,): 10},
                "Nothing limits how many reports devices in home send for room: its budget has no cap.",
            ),
        ],
        ids=[
            "withdrawn",
            "expired",
            "refused",
            "spent",
            "no reports",
            "once",
            "one report left",
            "unlimited",
        ],
    )
    def test_cover_every_state(self, row, profiles, first):
        (e,) = budget(row, profiles=profiles).experiments
        assert e.sentences[0] == first

    @pytest.mark.parametrize(
        ("row", "second"),
        [
            (line(days={}), "No full day has been counted yet, so it is not known when they will run out."),
            (
                line(days=dict.fromkeys(DAYS, 0)),
                "No reports arrived in the last full days, so at this rate they never",
            ),
            (line(budget={"rule": "unlimited"}), "They send 100 reports a day, and never run out."),
        ],
        ids=["no full day", "no recent reports", "unlimited"],
    )
    def test_omit_unknown_date(self, row, second):
        (e,) = budget(row, profiles={(0,): 10}).experiments
        assert e.sentences[1].startswith(second)

    def test_single_question_raises_no_alarm(self):
        (e,) = budget(line(budget=ONCE), profiles={(1,): 90, (0,): 10}).experiments
        assert e.sentences == (
            "room asks each device once: 90 devices have answered.",
            "A new device sends at most 1 report of ε = 1.",
        )
        assert (e.line.share_able_to_report, e.forecast) == (None, ())
        (repeated,) = budget(line(), profiles={(4,): 90, (0,): 10}).experiments
        assert repeated.line.share_able_to_report == pytest.approx(0.1)

    def test_half_may_already_be_silent(self):
        (e,) = budget(line(), profiles={(4,): 60, (0,): 40}).experiments
        assert "half of them have already run out, and 95% by" in e.sentences[1]

    def test_words_match_glossary(self):
        page = Path(__file__).parents[2].joinpath("docs/glossary.md").read_text()
        plain = " ".join(re.sub(r"\*(?!\*)(?<!\*\*)([^*]+)\*(?!\*)", r"\1", page).split())
        for word, meaning in WORDS.items():
            assert f"**{word}.** {meaning}" in plain


ROOM = experiment_json(name="room", epsilon=1_000_000, budget={"rule": "sum", "cap": 4_000_000})


def report(store: Store, devices: range, number: int) -> None:
    """Commit one report from each of an open fleet's devices."""
    e = Experiment.parse(ROOM)
    messages = [(f"hushmote/v1/home/report/d{n}", encode(e, number, n % 2)) for n in devices]
    tally = ingest(store, messages, fleets(store), datetime.datetime.now(datetime.UTC))
    assert tally.accepted == len(messages)


class TestLedgers:
    def test_are_shared_and_read_only_when_due(self, tmp_path, monkeypatch):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"

        async def readers(store: Store) -> None:
            live, loop = LiveStore(url), asyncio.get_running_loop()
            await live.check()
            ledgers = Ledgers(live, None)
            first, *others = await asyncio.gather(*(ledgers.read("home") for _ in range(20)))
            assert all(other is first for other in others)
            report(store, range(5), 1)
            await live.check()
            assert live.version != first.version
            early = await ledgers.read("home")
            assert early is first or loop.time() >= first.due_s
            await asyncio.sleep(first.due_s - loop.time())
            newer = await ledgers.read("home")
            assert (newer.version, newer.budget.boards) == (live.version, 5)
            assert [e.today for e in (await live.overview()).fleets[0].experiments] == [5]
            advance_clock(monkeypatch, datetime.timedelta(1))  # without a commit
            await live.check()
            assert [e.today for e in (await live.overview()).fleets[0].experiments] == [0]
            assert (await ledgers.read("home")).budget.experiments[0].line.per_day
            live.close()

        with Store(url) as store:
            ask_fleet(store, "home", ROOM)
            asyncio.run(readers(store))

    @pytest.mark.parametrize("policy", [None, policy_for(8, 0, ["room"])], ids=["no policy", "policy"])
    def test_leave_out_only_what_cannot_be_read(self, tmp_path, policy):
        async def budgets(url: str) -> FleetBudgets:
            live = LiveStore(url)
            await live.check()
            cached = await Ledgers(live, policy).read("home")
            live.close()
            return cached.budget

        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        with Store(url) as store:
            ask_fleet(store, "home", ROOM)
            store.add_experiment("home", experiment_json(name="other"))
            with store.writing() as connection:
                connection.exec_driver_sql("UPDATE experiment SET payload = x'7b' WHERE name = 'other'")
        budget = asyncio.run(budgets(url))
        assert [e.line.budget.experiment.name != "other" for e in budget.experiments] == [True]
        assert budget.unreadable[0].startswith("experiment other of fleet home cannot be read here: ")

    def test_leave_missing_store_to_frame(self, tmp_path):
        path = tmp_path / "store.sqlite"

        async def messages() -> list[str]:
            live = LiveStore(f"sqlite:///{path}")
            await live.check()
            texts = [
                await live.error_message(StoreError("of one row")),
                await live.error_message(UsageError("no such name")),
            ]
            path.unlink()
            # The page has not checked again yet.
            texts.append(await live.error_message(StoreError("there is no store")))
            live.close()
            return texts

        Store(f"sqlite:///{path}").close()
        assert asyncio.run(messages()) == ["of one row", "no such name", ""]


def row(browser: Browser) -> dict[str, str]:
    """Return the first experiment's cells by heading."""
    return browser.script(
        "return Object.fromEntries([...document.querySelectorAll('.budget tbody tr:first-child td')]"
        ".map(cell => [cell.dataset.head, cell.textContent]))"
    )


class TestView:
    def test_stays_short_and_says_each_thing_once(self, browser, tmp_path):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        day = datetime.datetime.now(datetime.UTC).date()
        windows = {f"{day - datetime.timedelta(ago)}": 300 for ago in range(1, 10)}
        with Store(url) as store:
            for n in range(12):
                fill(
                    store, "home", experiment_json(name=f"e{n}", budget={"rule": "count", "cap": 3}), windows
                )
        with paged(url) as page:
            for width, height, dark in ((1280, 1200, False), (360, 3400, True)):
                browser.resize(width, dark=dark)
                browser.open(f"{page}/budget")
                browser.until(lambda: len(browser.driver.find_elements("css selector", ".chart svg")) == 1)
                browser.wait_until_settled()
                assert len(browser.driver.find_elements("css selector", ".budget table")) == 1
                assert browser.script("return document.documentElement.scrollHeight") < height
                assert browser.overflow() <= 0
                assert barriers(browser) == []
                assert browser.text.count("3-LDP") == 0
            browser.find_by_name(
                "What all of a device's reports for one experiment reveal", "summary"
            ).click()
            browser.says("3-LDP")
            assert browser.text.count("3-LDP") == 1
            assert browser.complaints() == []

    def test_many_experiments_can_be_searched(self, browser, tmp_path):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        with Store(url) as store:
            store.add_fleet("home", keyed=False)
            for n in range(40):
                store.add_experiment("home", experiment_json(name=f"room{n}", budget=ONCE))
        with paged(url) as page:
            browser.open(f"{page}/budget")
            browser.says("24 of 40 experiments, those that run out first.")
            assert len(browser.driver.find_elements("css selector", ".budget tbody tr")) == 24
            browser.find("input[type=search]").send_keys("room 7")
            browser.says("4 of 40 experiments")
            browser.says("room37")
            browser.find("input[type=search]").send_keys("7")
            browser.says("No experiment of 40 matches.")
            assert barriers(browser) == []
            assert browser.errors() == []

    def test_follows_growing_store(self, browser, tmp_path):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        with Store(url) as store:
            policy = tmp_path / "policy.json"
            policy.write_text(json.dumps(policy_for(8, 0, ("room",)).to_dict()))
            browser.renew("de-CH")
            with paged(url, "--policy", policy) as page:
                browser.open(f"{page}/budget")
                browser.says("This store has no fleet yet")
                ask_fleet(store, "home", ROOM)
                browser.says("no device has reported yet")
                browser.says("at most 4 reports of ε = 1")
                assert "nothing left to give" not in browser.text
                report(store, range(2_000), 1)
                browser.until(lambda: row(browser)["reports left"] == f"6{SWISS}000")
                report(store, range(1_000), 2)
                browser.until(lambda: row(browser)["reports left"] == f"5{SWISS}000")
                assert row(browser)["used-up devices"] == f"0 of 2{SWISS}000"
                browser.says("The firmware allows Σε up to 8,")
                assert barriers(browser) == []
                browser.resize(360, dark=True)
                browser.until(lambda: browser.overflow() <= 0, "it is too wide")
                assert barriers(browser) == []
                assert not [word for word in browser.text.split() if re.fullmatch(r"d\d+", word)]
                ledger = remaining.read(store, "home", datetime.datetime.now(datetime.UTC).date())
                assert sum(ledger.profiles.values()) == 2_000
                assert not browser.errors()


class TestTimeAxis:
    def test_names_each_day_once(self, browser, tmp_path):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        day = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(1)
        payload = experiment_json(
            name="door", type="bool", mechanism="rr", budget={"rule": "count", "cap": 3}
        )
        with Store(url) as store:
            fill(store, "home", payload, {f"{day - datetime.timedelta(ago)}": 300 for ago in range(10)})
        with paged(url) as page:
            browser.open(f"{page}/budget")
            days = (
                "const chart = document.querySelector('.chart');"
                "return chart ? [...chart.querySelectorAll('text')].map(t => t.textContent) : []"
            )
            browser.until(
                lambda: any(re.fullmatch(r"[A-Z][a-z]{2} \d+", text) for text in browser.script(days))
            )
            browser.wait_until_settled()
            labels = [text for text in browser.script(days) if re.fullmatch(r"[A-Z][a-z]{2} \d+", text)]
            assert len(labels) == len(set(labels))
            dates = [datetime.datetime.strptime(f"{text} {day.year}", "%b %d %Y") for text in labels]
            assert len({(b - a).days % 365 for a, b in itertools.pairwise(dates)}) == 1
