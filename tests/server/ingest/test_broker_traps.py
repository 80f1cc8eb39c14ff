"""Traps that silently lose reports: each is shown with and without its remedy.

tests/server/test_aggregator.py shows the remedies at work: an absent aggregator whose broker keeps 1,500
reports, a broker that caps the window, a kill in mid-stream.
"""

import shutil
import subprocess
import sys

import pytest
from running_aggregator import running, until
from sessions import drain, kept_while_away, publish, subscribed, turn
from traffic import counted

from hushmote.simulator.broker import EmbeddedBroker, MosquittoBroker


def saves_again(broker):
    """Wait until mosquitto has made a save that began after this call."""
    for _ in range(2):
        before = broker.saved_ns
        until(lambda since=before: broker.saved_ns > since, "a save")


class TestMosquitto:
    def test_drops_messages_above_its_queue_limit(self):
        with MosquittoBroker(settings=("max_queued_messages 1000",)) as broker:  # its default
            assert kept_while_away(broker, 1500, 1000) < 1100
        with MosquittoBroker() as broker:
            assert kept_while_away(broker, 1500, 1500) == 1500

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
            with subscribed(broker) as one:
                assert drain(one, message_count) == message_count

    def test_sends_saved_unacknowledged_messages_again(self, store):
        aggregator = {"client_id": "again", "batch_s": 0.1}
        with MosquittoBroker(settings=("autosave_interval 1800",)) as broker:
            with running(store, broker, **aggregator):
                pass
            publish(broker, 300)
            broker.restart()  # saves all 300 as waiting, and saves no more
            with running(store, broker, **aggregator) as one:
                until(lambda: one.counters.accepted == 300, one.counters)
            broker.kill()
            broker.start()
            with running(store, broker, **aggregator) as one:
                until(lambda: one.counters.rejected == {"duplicate": 300}, one.counters)
                publish(broker, 10, start=300)
                until(lambda: one.counters.accepted == 10, one.counters)
        assert counted(store) == 310
        assert store.participation("open")["temp"].devices == 310

    @pytest.mark.parametrize(("share", "come"), [(None, 30), ("group", 10)], ids=["alone", "group"])
    def test_forgets_shared_subscriptions_when_it_restarts(self, share, come):
        with MosquittoBroker() as broker:
            with subscribed(broker, share=share):
                pass
            publish(broker, 10)
            broker.restart()
            publish(broker, 20, start=10)  # acknowledged nevertheless
            with subscribed(broker, share=share) as one:
                assert drain(one, come) == come


class TestSessions:
    def test_without_expiry_interval_keeps_nothing(self):
        with MosquittoBroker() as broker:
            assert kept_while_away(broker, 50, 50) == 50
        with MosquittoBroker() as broker:
            assert kept_while_away(broker, 50, 0, keep_session=False) == 0

    def test_receive_maximum_below_the_batch_stalls(self):
        for most, come in ((20, 20), (200, 200), (1000, 300)):
            with MosquittoBroker() as broker, subscribed(broker, most=most) as one:
                publish(broker, 300)
                assert drain(one, come) == come

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
            with subscribed(broker) as again:
                assert drain(again, 30) == 30
                again.acknowledge()
            with subscribed(broker) as once_more:
                assert drain(once_more, 0) == 0


class TestAmqtt:
    def test_keeps_almost_nothing_for_an_absent_session(self):
        with EmbeddedBroker() as broker:
            assert kept_while_away(broker, 300, 0, "3.1.1") < 30
        assert "keeps next to nothing for an absent one" in EmbeddedBroker.description


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
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "Operation not permitted" in done.stderr:
            pytest.skip("strace may not trace here")
        assert done.returncode == 0, done.stderr
        between = trace.read_text().split('"commit\\n"')[1:-1]
        synced = sum("fsync(" in calls or "fdatasync(" in calls for calls in between)
        assert len(between) == 20
        # The first commit of a new log syncs the log's head, whatever the setting.
        assert synced == 20 if synchronous == "FULL" else synced <= 1
