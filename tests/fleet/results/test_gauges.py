"""Gauges match their sources, and a scrape shows the latest results without computing any."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from boards import ask_fleet, experiment, payload_of
from certificates import DAY, Authority
from experiments import experiment_json
from filled_store import fill
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from hushmote.fleet.results.gauges import WORDS, Gauges
from hushmote.fleet.results.publication import Gauge, Publication, Scrape
from hushmote.fleet.results.snapshot import budgets, take_snapshot
from hushmote.server.budgets import remaining
from hushmote.server.service.metrics import CertificateEnds
from hushmote.server.store import Store, schema
from hushmote.server.store.number_set import NumberSet

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
DAYS = {"2026-11-20": 400, "2026-11-21": 500, "2026-11-22": 60}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        yield opened


def scraped(collector) -> dict[tuple[str, ...], float]:
    """Return Prometheus's samples as (name, label values) -> number."""
    registry = CollectorRegistry()
    registry.register(collector)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


class TestBudgets:
    def test_match_the_ledger(self, store: Store):
        exp = experiment()
        fill(store, "home", payload_of(exp), DAYS)  # only one board's first report is known
        with store.ingest() as transaction:
            transaction.write({("home", "temp", "b2"): NumberSet().add(1).add(2).add(3).add(4)}, {}, {})
        fill(store, "home", experiment_json(name="free", budget={"rule": "unlimited"}), DAYS)
        values = {(g.name, g.labels["experiment"]): g.value for g in budgets(store, NOON)}
        lines = {
            x.budget.experiment.name: x for x in remaining.read(store, "home", NOON.date()).lines(NOON.date())
        }
        # Two boards have 4 reports each, and have sent 5 of the 8.
        assert values["hushmote_budget_reports_left", "temp"] == lines["temp"].total_left == 3
        assert values["hushmote_budget_boards", "temp"] == lines["temp"].boards == 2
        assert values["hushmote_budget_boards_silent", "temp"] == 1
        assert ("hushmote_budget_reports_left", "free") not in values
        assert values["hushmote_budget_boards", "free"] == 2
        with store.ingest() as transaction:
            transaction.write({("home", "temp", "b1"): NumberSet().add(1).add(2).add(3).add(4)}, {}, {})
        spent = {g.name: g.value for g in budgets(store, NOON) if g.labels["experiment"] == "temp"}
        assert spent == {
            "hushmote_budget_boards": 2,
            "hushmote_budget_boards_silent": 2,
            "hushmote_budget_reports_left": 0,
        }

    def test_leave_out_only_what_cannot_be_read(self, store: Store):
        for name in ("temp", "free"):
            fill(store, "home", experiment_json(name=name), DAYS)
        with store.writing() as connection:
            damaged = update(schema.experiment).where(schema.experiment.c.name == "free")
            connection.execute(damaged.values(payload=b"{"))
        names = {gauge.labels["experiment"] for gauge in budgets(store, NOON)}
        assert names == {"temp"}

    def test_are_absent_before_the_first_report(self, store: Store):
        ask_fleet(store, "home", experiment_json(name="temp"))
        assert budgets(store, NOON) == []


class TestSnapshot:
    def test_statistic_lies_within_its_interval(self, store: Store):
        fill(store, "home", payload_of(experiment()), DAYS)
        snapshot = take_snapshot(store, Publication(), NOON)
        values = {(gauge.name, gauge.labels.get("statistic")): gauge.value for gauge in snapshot.gauges}
        statistics = snapshot.results["home", "temp"].statistics
        assert statistics
        for statistic in statistics.values():
            ends = [values["hushmote_estimate" + part, statistic.name] for part in ("_low", "", "_high")]
            assert ends == [statistic.low, statistic.value, statistic.high]
            assert statistic.low < statistic.value < statistic.high

    @pytest.mark.slow
    def test_shows_forged_histogram_of_open_window(self, store: Store):
        def implausible() -> float:
            gauges = take_snapshot(store, Publication(), NOON).gauges
            (gauge,) = [gauge for gauge in gauges if gauge.name == "hushmote_histogram_implausible"]
            return gauge.value

        temp = fill(store, "home", payload_of(experiment(mechanism="olh", g=5)), DAYS)
        assert implausible() == 0
        (version,) = store.experiments("home")
        with store.ingest() as transaction:  # 5,000 reports of one code
            transaction.write({}, {(version.id, "2026-11-22", 0, temp.code_count - 1): 5_000}, {})
        assert implausible() == 1

    def test_expiry_is_the_end_of_the_last_day(self, store: Store):
        ask_fleet(store, "home", experiment(), datetime.date(2026, 12, 31))
        gauges = take_snapshot(store, Publication(), NOON).gauges
        (gauge,) = [gauge for gauge in gauges if gauge.name.startswith("hushmote_experiment_expires")]
        assert gauge.value == datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC).timestamp()


class TestScrape:
    def test_any_unit_is_a_single_label(self, store: Store):
        unit = "°C\"\n} 7\nx{a='{{ 1 }}'\\"
        fill(store, "home", payload_of(experiment()), DAYS, unit=unit)
        snapshot = take_snapshot(store, Publication(), NOON)
        samples = scraped(Gauges(lambda: Scrape(snapshot.gauges, NOON.timestamp())))
        (info,) = [key for key in samples if key[0] == "hushmote_experiment_info"]
        assert set(info[1:]) == {"home", "temp", "number", snapshot.results["home", "temp"].unit}
        of_the_publisher = {"hushmote_results_failing", "hushmote_results_timestamp_seconds"}
        assert {key[0] for key in samples} - of_the_publisher <= {*WORDS}
        assert samples[("hushmote_results_timestamp_seconds",)] == NOON.timestamp()

    def test_shows_latest_findings_without_computing(self):
        scrapes = [Scrape(failing=True)]
        collector = Gauges(lambda: scrapes[0])
        assert scraped(collector) == {("hushmote_results_failing",): 1}
        labels = {"fleet": "home", "experiment": "temp"}
        scrapes[0] = Scrape([Gauge("hushmote_estimate_reports", labels, 7)], 5.0)
        assert scraped(collector) == {
            ("hushmote_estimate_reports", "temp", "home"): 7,
            ("hushmote_results_failing",): 0,
            ("hushmote_results_timestamp_seconds",): 5,
        }

    def test_certificate_expiry_is_the_earliest_in_its_file(self, tmp_path: Path):
        authority = Authority(tmp_path)
        soon, _ = authority.sign("soon", end=2)
        late, _ = authority.sign("late", end=5)
        both = tmp_path / "both.pem"
        both.write_bytes(late.read_bytes() + soon.read_bytes())
        ends = CertificateEnds({"cert": both, "ca": None})
        (end,) = scraped(ends).values()
        left = datetime.datetime.fromtimestamp(end, datetime.UTC) - datetime.datetime.now(datetime.UTC)
        assert 1.9 * DAY < left < 2 * DAY
        both.unlink()  # it keeps its last values
        assert list(scraped(ends).values()) == [end]
        assert scraped(CertificateEnds({"cert": None, "ca": None})) == {}
