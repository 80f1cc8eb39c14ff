"""Traps that silently lose reports, each with and without its remedy.

tests/server/test_aggregator.py tests the remedies: an absent aggregator whose broker keeps 1,500 reports, a
broker that caps the window, and a kill in mid-stream.
"""

import shutil
import subprocess
import sys

import pytest
from running_aggregator import running, until
from sessions import drain, publish, reports_kept_while_away, subscribed, turn
from traffic import counted_reports

from hushmote.simulator.broker import EmbeddedBroker, MosquittoBroker


def saves_again(broker):
    """Wait until mosquitto has completed a save that began after this call."""
    for _ in range(2):
        before = broker.saved_ns
        until(lambda since=before: broker.saved_ns > since, "a save")


class TestMosquitto:
    def test_drops_messages_above_its_queue_limit(self):
        with MosquittoBroker(settings=("max_queued_messages 1000",)) as broker:  # its default
            assert reports_kept_while_away(broker, 1500, 1000) < 1100
        with MosquittoBroker() as broker:
            assert reports_kept_while_away(broker, 1500, 1500) == 1500

    @pytest.mark.parametrize(
        ("interval_s", "message_count"), [(1800, 0), (1, 40)], ids=["saves rarely", "saves often"]
    )
    def test_loses_unsaved_messages_when_killed(self, interval_s, message_count):
        with MosquittoBroker(settings=(f"autosave_interval {interval_s}",)) as broker:
            with subscribed(broker):
                pass
            broker.restart()  # the session is saved; later messages are not
            publish(broker, 40)
            if interval_s == 1:
                saves_again(broker)
            broker.kill()
            broker.start()
            with subscribed(broker) as link:
                assert drain(link, message_count) == message_count

    def test_sends_saved_unacknowledged_messages_again(self, store):
        aggregator = {"client_id": "again", "batch_s": 0.1}
        with MosquittoBroker(settings=("autosave_interval 1800",)) as broker:
            with running(store, broker, **aggregator):
                pass
            publish(broker, 300)
            broker.restart()  # saves all 300 as waiting, and saves no more
            with running(store, broker, **aggregator) as aggregator_thread:
                until(lambda: aggregator_thread.counters.accepted == 300, aggregator_thread.counters)
            broker.kill()
            broker.start()
            with running(store, broker, **aggregator) as aggregator_thread:
                until(
                    lambda: aggregator_thread.counters.rejected == {"duplicate": 300},
                    aggregator_thread.counters,
                )
                publish(broker, 10, start=300)
                until(lambda: aggregator_thread.counters.accepted == 10, aggregator_thread.counters)
        assert counted_reports(store) == 310
        assert store.participation("open")["temp"].devices == 310

    @pytest.mark.parametrize(("share", "come"), [(None, 30), ("group", 10)], ids=["alone", "group"])
    def test_forgets_shared_subscriptions_when_it_restarts(self, share, come):
        with MosquittoBroker() as broker:
            with subscribed(broker, share=share):
                pass
            publish(broker, 10)
            broker.restart()
            publish(broker, 20, start=10)  # acknowledged nevertheless
            with subscribed(broker, share=share) as link:
                assert drain(link, come) == come


class TestSessions:
    def test_without_expiry_interval_keeps_nothing(self):
        with MosquittoBroker() as broker:
            assert reports_kept_while_away(broker, 50, 50) == 50
        with MosquittoBroker() as broker:
            assert reports_kept_while_away(broker, 50, 0, keep_session=False) == 0

    def test_receive_maximum_below_the_batch_stalls(self):
        for max_in_flight, come in ((20, 20), (200, 200), (1000, 300)):
            with MosquittoBroker() as broker, subscribed(broker, max_in_flight=max_in_flight) as link:
                publish(broker, 300)
                assert drain(link, come) == come

    def test_late_acknowledgement_has_no_effect(self):
        with MosquittoBroker() as broker:
            with subscribed(broker) as old:
                publish(broker, 30)
                assert drain(old, 30) == 30
                mids = list(old.mids)
                with subscribed(broker) as new:  # the broker drops the old connection
                    turn(old, lambda: not old.client.is_connected())
                    for mid in mids:
                        old.client.ack(mid, 1)
                    assert drain(new, 30) == 30
            with subscribed(broker) as link:
                assert drain(link, 30) == 30
                link.acknowledge()
            with subscribed(broker) as once_more:
                assert drain(once_more, 0) == 0


class TestAmqtt:
    def test_keeps_almost_nothing_for_an_absent_session(self):
        with EmbeddedBroker() as broker:
            assert reports_kept_while_away(broker, 300, 0, "3.1.1") < 30
        assert "stores almost nothing for an absent one" in EmbeddedBroker.description


COMMITS = """
import sys
from sqlalchemy import event
from hushmote.server.store import Store

store = Store("sqlite:///" + sys.argv[1])
if sys.argv[2] == "NORMAL":
    event.listen(store.engine, "checkout", lambda c, *_: c.execute("PRAGMA synchronous=NORMAL").close())
for i in range(20):
    sys.stdout.write("commit\\n")
    sys.stdout.flush()
    with store.ingest() as transaction:
        transaction.write({}, {}, {("", "malformed"): 1})
sys.stdout.write("commit\\n")
sys.stdout.flush()
"""


class TestSqlite:
    @pytest.mark.slow
    @pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
    def test_syncs_every_commit_only_with_synchronous_full(self, tmp_path, synchronous):
        if shutil.which("strace") is None:
            pytest.skip("strace is not installed")
        trace = tmp_path / "trace"
        command = ["strace", "-f", "-o", trace, "-e", "trace=write,fsync,fdatasync"]
        command += [sys.executable, "-c", COMMITS, tmp_path / "store.sqlite", synchronous]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if "Operation not permitted" in result.stderr:
            pytest.skip("strace may not trace here")
        assert result.returncode == 0, result.stderr
        between = trace.read_text().split('"commit\\n"')[1:-1]
        synced = sum("fsync(" in calls or "fdatasync(" in calls for calls in between)
        assert len(between) == 20
        # The first commit of a new log syncs the log's head, whatever the setting.
        assert synced == 20 if synchronous == "FULL" else synced <= 1
