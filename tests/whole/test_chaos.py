"""Exactly-once counting whatever is killed, in a short form of benchmarks/chaos.py, and failing verdicts."""

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boards import ask_fleet, experiment
from chaos_boards import Board, Encoded
from chaos_plan import Fault, Setting, plan
from chaos_run import run
from chaos_verdict import FLEET, judge
from postgres import Cluster, Pgbouncer
from serve_process import with_setting

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store
from hushmote.server.wire.topics import report_topic

FAULTS = {
    "kill aggregator": 4,
    "kill aggregator as it commits": 4,
    "kill aggregator as it starts": 1,
    "stop aggregator": 1,
    "pause aggregator": 1,
    "stop broker": 2,
    "cut aggregators": 1,
    "swallow aggregators": 1,
    "cut boards": 2,
    "swallow boards": 1,
    "swallow answers to boards": 1,
    "board dies": 1,
}


# At times only killed servers have some reports; returning aggregators must then count them.
NODES = ("kill nodes with no aggregator", "kill aggregator as it commits", "kill node", "kill all nodes")
SITES = ("cut node", "unplug all nodes", "fill node")
# A killed aggregator's messages go to another after ACK_WAIT_S, which is a minute by default.
FAST_REDELIVERY = ("-c", with_setting("ingest.nats.consumer", "ACK_WAIT_S", 5.0))
CLUSTER = Setting(boards=10, gap_s=0.05, cluster=True, aggregators=2, between=600, program=FAST_REDELIVERY)


class TestFaults:
    def test_counts_acknowledged_reports_once_whatever_is_killed(self, tmp_path):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        verdict = run(tmp_path, url, plan(211, FAULTS, 11, gap_s=0.3), Setting(boards=20, min_reports=1001))
        assert verdict.exact, verdict
        assert verdict.kills >= 6
        assert verdict.told > 1000
        assert verdict.duplicates > 0  # something was sent or delivered again
        assert set(verdict.rejected) == {"duplicate"}
        assert verdict.unanswered == 0  # only a dead board leaves unanswered reports

    def test_killed_group_counts_numbers_with_many_gaps(self, tmp_path):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        setting = Setting(boards=4, gap_s=0.003, aggregators=2, share="chaos", min_reports=4800)
        faults = plan(7, {"kill aggregator": 3, "kill aggregator as it commits": 2, "cut boards": 1}, 4)
        verdict = run(tmp_path, url, faults, setting)
        assert verdict.exact, verdict
        assert verdict.told >= 4800  # three boards skip 40 numbers, and then send hundreds in a row

    def test_database_failures_lose_and_duplicate_nothing(self, tmp_path):
        faults = {"kill database": 2, "cut database": 2, "swallow database": 1, "kill aggregator": 1}
        with Cluster() as postgres:
            url = postgres.url(postgres.create())
            verdict = run(
                tmp_path, url, plan(23, faults, 7, gap_s=0.3), Setting(boards=20), database=postgres
            )
        assert verdict.exact, verdict
        assert verdict.kills == 4
        assert verdict.published == verdict.told == verdict.counted

    def test_killed_pooler_loses_and_duplicates_nothing(self, tmp_path):
        faults = {"kill database": 4, "kill aggregator": 4}
        setting = Setting(boards=20, aggregators=2, share="pooled")
        with Cluster(settings={"synchronous_commit": "off"}) as postgres, Pgbouncer(postgres) as pooler:
            url = postgres.url(postgres.create())
            verdict = run(tmp_path, url, plan(1, faults, 10, gap_s=0.3), setting, database=pooler)
        assert verdict.exact, verdict
        assert verdict.kills == 10
        assert verdict.published == verdict.told == verdict.counted

    def test_broker_kill_loses_nothing_while_aggregator_keeps_up(self, tmp_path):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        verdict = run(tmp_path, url, plan(1, {"kill broker while connected": 1}, 1), Setting(boards=10))
        assert verdict.exact, verdict
        assert verdict.kills == 1
        assert verdict.published == verdict.counted

    @pytest.mark.long
    def test_counts_once_though_all_servers_and_aggregators_die(
        self,
        tmp_path,
    ):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        verdict = run(tmp_path, url, [Fault(kind, 0.5, 0.0) for kind in NODES], CLUSTER)
        assert verdict.exact, verdict
        assert verdict.published == verdict.told == verdict.counted
        assert verdict.unseen > 0  # confirmed reports that no aggregator had when servers were killed
        assert verdict.servers >= 5
        assert set(verdict.rejected) <= {"duplicate"}

    @pytest.mark.long
    def test_split_network_full_disk_and_power_cut_lose_nothing(self, tmp_path, needs_sites):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        faults = [Fault(kind, 0.5, 0.0) for kind in SITES]
        verdict = run(tmp_path, url, faults, replace(CLUSTER, aggregators=1, sites=True, sync="always"))
        assert verdict.exact, verdict
        assert verdict.published == verdict.told == verdict.counted
        assert verdict.servers == 3


class TestPlan:
    def test_is_drawn_from_its_seed(self):
        assert plan(1, FAULTS, 50) == plan(1, FAULTS, 50) != plan(2, FAULTS, 50)


NUMBERS = range(1, 11)


@pytest.fixture
def counted_store(tmp_path):
    """Provide a store that counted a board's ten reports, and the board."""
    exp = experiment(budget={"rule": "unlimited"})
    source = Encoded("d", exp, None, int)
    board = Board(report_topic(FLEET, "d"), (), source, np.random.default_rng(1))
    board.published = {number: source.make(number) for number in NUMBERS}
    board.told = set(NUMBERS)
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        ask_fleet(store, FLEET, exp)
        messages = [(report_topic(FLEET, "d"), payload) for payload in board.published.values()]
        now = datetime.datetime.now(datetime.UTC)
        assert ingest.ingest(store, messages, ingest.fleets(store), now).accepted == 10
        yield store, board


class TestVerdict:
    @pytest.mark.parametrize("cluster", [False, True])
    def test_detects_acknowledgement_before_commit(self, tmp_path, cluster):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        hasty = Path(__file__).parent.parent / "support" / "hasty_serve.py"
        faults = [Fault("kill aggregator between acknowledging and committing", 0.0, 0.0)]
        program = (str(hasty), str(tmp_path / "hasty"))
        setting = replace(CLUSTER, cluster=cluster, aggregators=1, program=program)
        verdict = run(tmp_path, url, faults, setting)
        assert verdict.lost > 0, verdict
        assert not verdict.exact
        assert verdict.kills == 1

    def test_store_with_all_published_reports_is_exact(self, counted_store):
        store, board = counted_store
        board.told.remove(10)  # it may have arrived
        verdict = judge(store, {"d": board})
        assert verdict.exact
        assert (verdict.published, verdict.told, verdict.counted, verdict.untold) == (10, 9, 10, 1)

    def test_acknowledged_but_uncounted_report_is_lost(self, counted_store):
        store, board = counted_store
        board.published[11] = board.published[10]
        board.told.add(11)
        verdict = judge(store, {"d": board})
        assert verdict.lost == 1
        assert not verdict.exact

    def test_unpublished_report_is_strange(self, counted_store):
        store, board = counted_store
        del board.published[10]
        assert judge(store, {"d": board}).strange == 1

    @pytest.mark.parametrize(("change", "off"), [("count = 2", 1), ("code = 40", 2)])
    def test_report_counted_twice_or_wrongly_is_miscounted(self, counted_store, change, off):
        store, board = counted_store
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE histogram SET {change} WHERE code = 7")
        verdict = judge(store, {"d": board})
        assert verdict.miscounted == off
        assert not verdict.exact
