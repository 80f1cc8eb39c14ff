"""`hushmote serve --publish` with a real process, a real mosquitto, and faults."""

import datetime
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from boards import experiment, payload_of, reports
from command_line import hushmote
from experiments import experiment_json
from filled_store import fill
from fleet_broker import FLEET, Visitor, context, make_fleet, visit
from fleet_broker import running as fleet_running
from prometheus_client.parser import text_string_to_metric_families
from running_aggregator import until
from serve_process import Served, get, served
from traffic import publish

from hushmote.fleet.provisioning.fleet_folder import now_utc
from hushmote.fleet.provisioning.fleet_spec import aggregator_name
from hushmote.fleet.results.publication import Publication
from hushmote.fleet.results.publisher import Publisher
from hushmote.fleet.results.result import LIVE, result_of
from hushmote.server.answers.windows import SETTLED
from hushmote.server.store import Store
from hushmote.server.wire.topics import report_topic, result_topic
from hushmote.simulator.broker import MosquittoBroker, free_port

TEMP = payload_of(experiment())
DISCOVERED = "homeassistant/sensor/hushmote_open"


def days() -> dict[str, int]:
    """Return window -> reports: 400 in each of three past days, and 90 in the unsettled day."""
    today = (now_utc() - SETTLED).date()
    return {str(today - datetime.timedelta(days)): 400 for days in (1, 2, 3)} | {str(today): 90}


@contextmanager
def published(
    url: str, broker: MosquittoBroker, *more: str, protocol: str = "auto"
) -> Iterator[tuple[Served, Visitor]]:
    """Run `hushmote serve` on a store, with a client that reads all results and discovery messages."""
    with visit(broker.port, None, host="127.0.0.1") as reader:
        reader.connected()
        for topic in ("hushmote/v1/+/result/+", "homeassistant/#"):
            reader.subscribe(topic)
        arguments = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}", "--batch", "0.1s")
        environment = {"HUSHMOTE_PROTOCOL": protocol}
        with served(*arguments, *(more or ("--publish", "ended")), environment=environment) as process:
            process.ready()
            yield process, reader


def last(reader: Visitor) -> dict[str, bytes]:
    """Return each topic's last message."""
    return dict(reader.messages)


def _worker(process: Served) -> int:
    """Return the worker's process id once it runs."""
    children = Path(f"/proc/{process.process.pid}/task")

    def pids() -> list[int]:
        return [int(pid) for task in children.glob("*/children") for pid in task.read_text().split()]

    until(pids, process.log)
    (pid,) = pids()
    # Neither its command line nor its environment contains the store's URL or any other setting.
    assert b"sqlite" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert b"HUSHMOTE_" not in Path(f"/proc/{pid}/environ").read_bytes()
    return pid


class TestResults:
    def test_are_retained_and_cleared(self, tmp_path: Path):
        url, port = f"sqlite:///{tmp_path / 'hushmote.sqlite'}", free_port()
        with Store(url) as store, MosquittoBroker() as broker:
            fill(store, "open", TEMP, days(), unit="°C")
            fill(store, "open", experiment_json(name="door"), days())
            fill(store, "open", experiment_json(name="ever", window="all"), {"all": 500})
            options = ("--publish", "ended,home-assistant", "--http", f"127.0.0.1:{port}")
            with published(url, broker, *options) as (process, reader):
                topics = {name: result_topic("open", name) for name in ("temp", "door", "ever")}
                until(
                    lambda: last(reader).keys() >= set(topics.values()),
                    lambda: (process.log(), reader.messages),
                )
                for name, topic in topics.items():
                    document = json.loads(last(reader)[topic])
                    at = datetime.datetime.fromisoformat(document["at"])
                    assert document == result_of(store, "open", name, at).to_dict()
                assert json.loads(last(reader)[topics["temp"]])["reports"] == 1_200  # not today's
                assert process.log().count("publish it with --publish SECONDS") == 1
                # One sensor per statistic, and no others.
                sensors = {
                    topic for topic, payload in last(reader).items() if "/sensor/" in topic and payload
                }
                names = ("temp-mean", "temp-median", "door-share_1")
                assert sensors == {f"{DISCOVERED}/{name}/config" for name in names}
                # Scrapes show the published values.
                samples = {
                    (s.name, s.labels.get("experiment"), s.labels.get("statistic")): s.value
                    for family in text_string_to_metric_families(get(f"http://127.0.0.1:{port}/metrics")[1])
                    for s in family.samples
                }
                mean = json.loads(last(reader)[topics["temp"]])["statistics"][0]
                for end in ("", "_low", "_high"):
                    value = mean[end[1:] or "value"]
                    assert samples[f"hushmote_estimate{end}", "temp", "mean"] == value
                assert samples["hushmote_estimate_reports", "door", None] == 1_200
                assert samples["hushmote_histogram_implausible", "door", None] == 0
                assert samples["hushmote_results_failing", None, None] == 0
                assert abs(samples["hushmote_results_timestamp_seconds", None, None] - time.time()) < 600
                assert ("hushmote_histogram_epsilon", "ever", None) not in samples
                # After a withdrawal the broker retains nothing, so later subscribers get nothing either.
                store.withdraw_experiment("open", "temp")
                until(lambda: last(reader)[topics["temp"]] == b"", lambda: reader.messages)
                until(
                    lambda: last(reader)[f"{DISCOVERED}/temp-median/config"] == b"", lambda: reader.messages
                )
                with visit(broker.port, None, host="127.0.0.1") as later:
                    later.connected()
                    later.subscribe("hushmote/v1/+/result/+")
                    until(lambda: len(later.messages) == 2, lambda: later.messages)
                    assert last(later).keys() == {topics["door"], topics["ever"]}
                assert process.end() == 0
                assert "Traceback" not in process.log()

    def test_live_results_follow_reports_without_epsilon(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as store, MosquittoBroker() as broker:
            temp = fill(store, "open", TEMP, {})
            with published(url, broker, "--publish", "1") as (process, reader):
                messages = [(report_topic("open", f"d{i}"), reports(f"d{i}", temp, 1)[0]) for i in range(30)]
                publish(broker, messages)
                topic = result_topic("open", "temp")

                def seen() -> dict:
                    return json.loads(last(reader).get(topic, b"{}"))

                until(lambda: seen().get("reports") == 30, lambda: (process.log(), seen()))
                assert (seen()["epsilon"]["histogram"], seen()["epsilon"]["holds"]) == (None, LIVE)

    def test_keyed_fleet_publishes_over_tls(self, tmp_path: Path):
        """A user has only one connection, so results are published on the one that receives reports."""
        folder = make_fleet(tmp_path / "fleet")
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as store, fleet_running(folder) as broker:
            store.add_fleet(FLEET, keyed=True)
            fill(store, FLEET, TEMP, days())
            aggregator = folder.path / "aggregator"
            login = {
                "HUSHMOTE_BROKER_CA": f"{aggregator}/ca.pem",
                "HUSHMOTE_BROKER_CERT": f"{aggregator}/aggregator_1.pem",
            }
            keys = ("--master-key", aggregator / "master.key")
            address = (
                "--store",
                url,
                "--broker",
                f"mqtts://localhost:{folder.fleet.port}",
                "--batch",
                "0.1s",
            )
            port = free_port()
            options = ("--publish", "ended,home-assistant", "--http", f"127.0.0.1:{port}")
            pem = tmp_path / "k3f9.pem"
            pem.write_bytes(folder.issue_device("k3f9", now_utc()).to_pem())
            with (
                served(*address, *keys, *options, environment=login) as process,
                visit(folder.fleet.port, context(folder, pem)) as board,
            ):
                process.ready()
                assert board.connected()
                for topic in (f"hushmote/v1/{FLEET}/result/+", "homeassistant/#"):
                    board.subscribe(topic)
                mean = f"homeassistant/sensor/hushmote_{FLEET}/temp-mean/config"
                wanted = {result_topic(FLEET, "temp"), mean}
                until(lambda: last(board).keys() >= wanted, lambda: process.log() + broker.log())
                assert json.loads(last(board)[result_topic(FLEET, "temp")])["reports"] == 1_200
                # No other client writes there.
                board.publish(result_topic(FLEET, "temp"), b"forged", retain=True)
                assert "not authorized" in board.acknowledged[-1].lower()
                metrics = get(f"http://127.0.0.1:{port}/metrics")[1]
                for option in ("cert", "ca"):
                    assert f'hushmote_certificate_expires_timestamp_seconds{{option="{option}"}} ' in metrics
                    assert process.log().count("subscribed at") == 1  # no connection was lost
                ends = folder.certificate(f"aggregator/{aggregator_name(1)}.pem").not_valid_after_utc
                message = hushmote(
                    "status", "--store", url, "--aggregator", f"http://127.0.0.1:{port}", cwd=tmp_path
                )
                assert f"The aggregator's certificates expire: cert on {ends:%Y-%m-%d}, ca on " in message
                assert process.end() == 0


class TestFailure:
    def test_dead_worker_is_one_line_and_restarts(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as store, MosquittoBroker() as broker:
            temp = fill(store, "open", TEMP, days())
            with published(url, broker) as (process, reader):
                until(lambda: reader.messages, process.log)
                for n in (1, 2):
                    os.kill(_worker(process), signal.SIGKILL)
                    publish(broker, [(report_topic("open", f"n{n}"), reports(f"n{n}", temp, 1)[0])])
                    until(lambda n=n: process.log().count("computing results again") == n, process.log)
                fill(store, "open", experiment_json(name="later"), days())
                until(lambda: result_topic("open", "later") in last(reader), process.log)
                until(lambda: store.histogram("open", temp.digest).sum() == 1_292, process.log)
                # SIGTERM to the whole group, as from systemd, ends everything cleanly.
                worker = _worker(process)
                os.kill(worker, signal.SIGTERM)
                assert process.end() == 0
                until(lambda: not os.path.exists(f"/proc/{worker}"), "the worker ends")
                assert process.log().count("restarting it") == 2  # one line per death
                assert "Traceback" not in process.log()

    @pytest.mark.parametrize("protocol", ["5", "3.1.1"])
    def test_broker_that_refuses_results_still_delivers_reports(self, tmp_path: Path, protocol: str):
        """With MQTT 5 the broker states its limit; with 3.1.1 it ends the connection, three times."""
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as store, MosquittoBroker(settings=("max_packet_size 600",)) as broker:
            temp = fill(store, "open", TEMP, days())
            with published(url, broker, protocol=protocol) as (process, reader):
                words = "the broker accepts 600" if protocol == "5" else "no more are published"
                until(lambda: words in process.log(), process.log)
                publish(broker, [(report_topic("open", "d1"), reports("d1", temp, 1)[0])])
                until(lambda: store.histogram("open", temp.digest).sum() == 1_291, process.log)
                assert process.log().count(words) == 1
                assert not reader.messages

    @pytest.mark.slow
    def test_unreadable_store_is_one_line(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        with Publisher(f"sqlite:///{tmp_path / 'absent.sqlite'}", Publication()) as publisher:
            until(lambda: publisher.findings.failing, "a failed check")
            assert publisher.retained == {}
        assert "results" not in {thread.name for thread in threading.enumerate()}  # the end of its process
        (line,) = [record.getMessage() for record in caplog.records]
        assert "there is no store at" in line

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--publish", "ended", "--retire"), "omit --publish"),
            *(
                (("--publish", entry), "must be ended or 1 to 86400 seconds")
                for entry in ("often", "0.5", "ended,0", "ended,3,4", "ended,homes")
            ),
        ],
        ids=["retire", "word", "too often", "zero", "two periods", "unknown word"],
    )
    def test_rejects_incompatible_options(self, tmp_path: Path, options: tuple[str, ...], words: str):
        assert words in hushmote("serve", *options, cwd=tmp_path, expect=1)
        assert not list(tmp_path.iterdir())
