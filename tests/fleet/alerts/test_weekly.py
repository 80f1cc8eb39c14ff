"""The weekly summary: when it is due, its tiles as mail, and hostile texts in it."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from boards import experiment, payload_of
from experiments import experiment_json
from filled_store import fill
from receivers import mail_server

from hushmote.fleet.alerts.receivers import parse_receivers
from hushmote.fleet.alerts.weekly import summary_html, summary_text, weekly_alert
from hushmote.fleet.alerts.worker import AlertWatch
from hushmote.server.answers.finding import find
from hushmote.server.answers.headline import spark
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Selection
from hushmote.server.store import Store
from hushmote.server.store.store import Description

DAY = datetime.timedelta(days=1)
FIRST = datetime.date(2026, 10, 1)
MONDAY = datetime.datetime(2026, 11, 2, 9, tzinfo=datetime.UTC)
DOOR = experiment_json(name="door", epsilon=1_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        days = {str(FIRST + i * DAY): [0.7, 0.3] if i < 20 else [0.5, 0.5] for i in range(31)}
        fill(opened, "home", DOOR, dict.fromkeys(days, 4_000), days)
        fill(opened, "home", payload_of(experiment()), dict.fromkeys(days, 400), unit="°C")
        yield opened


class TestDue:
    @pytest.mark.parametrize(
        ("hours", "day"), [(-2, "2026-10-26"), (0, "2026-11-02"), (6 * 24, "2026-11-02"), (167, "2026-11-09")]
    )
    def test_is_the_newest_monday_at_eight(self, store: Store, hours: int, day: str):
        alert = weekly_alert(Facts(store, MONDAY + datetime.timedelta(hours=hours)), "home", "monday")
        assert alert is not None
        assert alert.key == (day,)

    def test_follows_local_time(self, store: Store):
        hourly = experiment_json(name="far", window="hour")
        store.add_fleet("tokyo", keyed=False)
        store.add_experiment("tokyo", hourly, description=Description(day="Asia/Tokyo"))
        sunday = datetime.datetime(2026, 11, 1, 22, 30, tzinfo=datetime.UTC)  # 7:30 on Monday in Tokyo
        for at, day in ((sunday, "2026-10-26"), (sunday + DAY / 24, "2026-11-02")):
            alert = weekly_alert(Facts(store, at), "tokyo", "monday")
            assert alert is not None
            assert alert.key == (day,)


class TestContent:
    def test_has_the_pages_tiles(self, store: Store):
        facts = Facts(store, MONDAY)
        html = summary_html(facts, "home")
        finding = find(facts, Selection("door", "home"), series=True).findings[0]
        assert finding.sentence in html
        assert spark(finding).partition('points="')[2].partition('"')[0] in html
        assert html.count("<svg ") == 2
        assert "▲ Up from" in html
        assert "door: ε of a report: 1. ε of what all messages about it show: " in html
        for forbidden in ("<script", "http:", "https:", "<img", "<link", "class="):
            assert forbidden not in html
        assert finding.sentence in summary_text(facts, "home")

    def test_escapes_hostile_texts(self, store: Store):
        purpose = "<script>alert(1)</script>\x1b[31m & more"
        store.add_experiment("home", DOOR, description=Description(purpose=purpose))
        html = summary_html(Facts(store, MONDAY), "home")
        assert "<script" not in html
        assert "\x1b" not in html
        assert "&lt;script&gt;" in html


class TestMail:
    def test_arrives_once_a_week(self, store: Store):
        with mail_server() as (url, mails):
            watch = AlertWatch(store, parse_receivers(url, "x"), weekly="monday")
            for hours in (-48, 0, 1, 30, 7 * 24):
                at = MONDAY + datetime.timedelta(hours=hours)
                watch.clock = lambda at=at: at
                watch.turn(at.timestamp())
            weekly = [mail for mail in mails if mail["Subject"] == "Weekly summary: home"]
            assert len(weekly) == 2
            html = weekly[0].get_body(("html",)).get_content()
            assert "<svg " in html
            assert "door" in weekly[0].get_body(("plain",)).get_content()
