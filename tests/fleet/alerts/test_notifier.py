"""`hushmote serve --notify` with real processes, a real broker and real receivers, and faults."""

import datetime
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import hushmote
from experiments import experiment_json
from filled_store import fill
from receivers import Webhook, mail_server, notify_file
from running_aggregator import until
from serve_process import Served, served
from sqlalchemy import update

from hushmote.fleet.alerts.notifier import Notifier
from hushmote.fleet.alerts.outbox import CLAIM_S, AlertOutbox
from hushmote.fleet.alerts.receivers import parse_receivers
from hushmote.server.store import Store, schema
from hushmote.simulator.broker import MosquittoBroker, free_port

DAY = datetime.timedelta(days=1)
SECRET = "s3cretpassword"


def fill_change(store: Store, name: str = "door") -> None:
    """Add an experiment whose share of yes rose ten days ago."""
    today = datetime.datetime.now(datetime.UTC).date()
    days = {str(today - i * DAY): [0.5, 0.5] if i < 10 else [0.7, 0.3] for i in range(1, 31)}
    fill(store, "home", experiment_json(name=name, epsilon=1_000_000), dict.fromkeys(days, 4_000), days)


@contextmanager
def notifying(url: str, broker: MosquittoBroker, *more: str, **options: str) -> Iterator[Served]:
    arguments = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}", *more)
    with served(*arguments, environment=options) as process:
        yield process.ready()


class TestServe:
    def test_sends_a_change_by_mail_and_webhook_once(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with (
            Store(url) as store,
            MosquittoBroker() as broker,
            Webhook() as hook,
            mail_server() as (mail, mails),
        ):
            store.add_fleet("home", keyed=False)
            file = notify_file(tmp_path, hook.url, mail)
            with notifying(url, broker, "--notify", str(file)) as process:
                until(lambda: hook.titles == ["Alerts are on"] and len(mails) == 1, process.log)
                fill_change(store)
                until(lambda: len(hook.titles) == 2 and len(mails) == 2, process.log)
                assert process.end() == 0
                assert SECRET not in process.log()
            assert hook.titles[1] == "Yes is up: door (home)"
            assert mails[1]["Subject"] == "Yes is up: door (home)"
            with notifying(url, broker, HUSHMOTE_NOTIFY=f"{hook.url}\n{mail}") as process:
                fill_change(store, "second")
                until(lambda: len(hook.titles) == 3 and len(mails) == 3, process.log)
            assert hook.titles[2] == "Yes is up: second (home)"

    def test_refuses_bad_files_in_one_line(self, tmp_path: Path):
        file = notify_file(tmp_path, f"nosuch://{SECRET}")
        before = set(tmp_path.iterdir())
        error = hushmote("serve", "--notify", str(file), cwd=tmp_path, expect=1)
        assert "line 1 of" in error
        assert SECRET not in error
        assert "omit --notify" in hushmote("serve", "--notify", str(file), "--retire", cwd=tmp_path, expect=1)
        assert set(tmp_path.iterdir()) == before


class TestTwoAggregators:
    def test_send_each_event_once(self, postgres_url: str):
        with Store(postgres_url) as store, Webhook() as hook:
            store.add_fleet("home", keyed=False)
            receivers = parse_receivers(hook.url, "x")
            with Notifier(postgres_url, receivers, "one"), Notifier(postgres_url, receivers, "two"):
                until(lambda: hook.titles == ["Alerts are on"], lambda: hook.titles)
                for name in ("a", "b", "c"):
                    fill_change(store, name)
                outbox = AlertOutbox(store, [])
                until(lambda: len(outbox.alerts()) == 4 and not outbox.waiting(), lambda: hook.titles)
            assert sorted(hook.titles) == [
                "Alerts are on",
                *(f"Yes is up: {name} (home)" for name in ("a", "b", "c")),
            ]


class TestKills:
    def test_restart_sends_what_was_not_sent(self, tmp_path: Path):
        """A process killed while it sends leaves a claim, which ends; the message then arrives."""
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        arrived, go_on = threading.Event(), threading.Event()
        with Store(url) as store, Webhook() as hook:
            store.add_fleet("home", keyed=False)
            hook.before_answer = lambda: (arrived.set(), go_on.wait(60))
            receivers = parse_receivers(hook.url, "x")
            outbox = AlertOutbox(store, [receiver.id for receiver in receivers])
            with Notifier(url, receivers, "one") as notifier:
                assert arrived.wait(60)
                process = notifier._process
                assert process is not None
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                go_on.set()
                assert outbox.waiting() == 1
                assert outbox.claim() is None  # claimed by the killed process
                with store.writing() as connection:
                    due = schema.alert_delivery.c.due
                    connection.execute(update(schema.alert_delivery).values(due=due - CLAIM_S))
                until(lambda: not outbox.waiting(), lambda: hook.titles)
            # The killed process did not learn that the first one had arrived.
            assert hook.titles == ["Alerts are on"] * 2

    def test_stop_waits_until_a_message_is_recorded(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        arrived = threading.Event()
        with Store(url) as store, Webhook() as hook:
            store.add_fleet("home", keyed=False)
            pause = threading.Event()
            hook.before_answer = lambda: (arrived.set(), pause.wait(1.0))
            with Notifier(url, parse_receivers(hook.url, "x"), "one"):
                assert arrived.wait(60)
            assert AlertOutbox(store, []).waiting() == 0
            assert hook.titles == ["Alerts are on"]


class TestUnreachableReceiver:
    def test_is_logged_once_and_sent_later(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        url, port = f"sqlite:///{tmp_path / 'hushmote.sqlite'}", free_port()
        hook = Webhook(port)
        with Store(url) as store:
            store.add_fleet("home", keyed=False)
            with Notifier(url, parse_receivers(hook.url, "x"), "one"):
                until(lambda: "trying again" in caplog.text, lambda: caplog.text)
                assert "the server cannot be reached" in caplog.text
                assert SECRET not in caplog.text
                with hook:
                    with store.writing() as connection:
                        connection.execute(update(schema.alert_delivery).values(due=0))
                    until(lambda: hook.titles == ["Alerts are on"], lambda: caplog.text)
        assert caplog.text.count("trying again") == 1
