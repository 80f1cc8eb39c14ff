"""serve with a log, and real brokers, databases and witnesses: boards get what anyone can check."""

import contextlib
import signal

import paho.mqtt.client as mqtt
import pytest
from boards import ask_fleet, experiment_payload
from command_line import hushmote
from log_witness import LOG, TestWitness
from paho.mqtt.enums import CallbackAPIVersion
from running_aggregator import until
from serve_process import get, served
from traffic import publish

from hushmote.device import ldp_log
from hushmote.server.log.note import COSIGNATURE, ECDSA, ED25519, board_keys
from hushmote.server.log.proof import proof_topic
from hushmote.server.store import Store
from hushmote.server.store.log import StoredLog
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker, free_port

TOPIC, PROOF = topics.experiment_topic("open", "temp"), proof_topic("open", "temp")
KEY = str(LOG.public(ED25519))
KILLED_AFTER_COMMIT = """
import os, signal, sys
from hushmote.cli.main import main
from hushmote.server.store.log import StoredLog
append = StoredLog.append
def append_and_die(*arguments):
    append(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
StoredLog.append = append_and_die
sys.argv[0] = "hushmote"
main()
"""


@pytest.fixture
def broker():
    with MosquittoBroker(port=free_port()) as broker:
        yield broker


@pytest.fixture
def witness():
    with TestWitness() as witness:
        yield witness


@contextlib.contextmanager
def board(broker):
    """Collect what a board can receive, by topic, oldest first."""
    heard: dict[str, list[bytes]] = {}
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _c, _d, m: heard.setdefault(m.topic, []).append(bytes(m.payload))
    client.connect(broker.host, broker.port)
    client.subscribe([("hushmote/v1/open/experiment/+", 1), ("hushmote/v1/open/proof/+", 1)])
    client.loop_start()
    try:
        yield heard
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def arguments(tmp_path, broker, witness):
    """Return the arguments of serve without a store."""
    key, file = tmp_path / "log.key", tmp_path / "witnesses.txt"
    key.write_text(str(LOG))
    key.chmod(0o600)
    file.write_text(witness.line)
    return "--broker", f"mqtt://127.0.0.1:{broker.port}", "--log-key", key, "--witnesses", file


def accepted(heard, witness):
    """Return the index that a board finds in the newest proof."""
    keys = board_keys([LOG.public(ECDSA), witness.secret.public(ECDSA)])
    policy = {"origin": LOG.name, "keys": keys, "need": 1}
    return ldp_log.verify(policy, TOPIC, heard[TOPIC][-1], heard[PROOF][-1], lambda: None)


def has_proof(heard):
    return bool(heard.get(PROOF, [b""])[-1])


@pytest.mark.slow
class TestServe:
    def test_boards_and_auditors_see_the_same(self, store, broker, witness, arguments, tmp_path):
        http = f"127.0.0.1:{free_port()}"
        options = ("--store", store.engine.url.render_as_string(), "--http", http)
        with served(*options, *arguments) as process, board(broker) as heard:
            process.ready()
            until(lambda: has_proof(heard), process.log)
            assert accepted(heard, witness) == 0
            assert get(f"http://{http}/log/checkpoint")[0] == 200
            for path in ("tile/entries/000", "tile/0/000.p/0", "tile/0/000.p/01", "../x", "tile/9/000.p/1"):
                assert get(f"http://{http}/log/{path}")[0] == 404
            cosigner = str(witness.secret.public(COSIGNATURE))
            options = ("--key", KEY, "--witness", cosigner)
            text = hushmote("log", "check", f"http://{http}/log/", *options, cwd=tmp_path)
            assert "example.org/questions has 1 entry" in text
            assert process.end() == 0

    def test_cleared_or_altered_proof_is_published_again(self, store, broker, arguments):
        options = ("--store", store.engine.url.render_as_string(), *arguments)
        with served(*options) as process, board(broker) as heard:
            process.ready()
            until(lambda: has_proof(heard), process.log)
            proof = heard[PROOF][-1]
            for payload in (b"", b"another"):
                publish(broker, [(PROOF, payload)], retain=True)
                until(lambda p=payload: heard[PROOF][-2:] == [p, proof], process.log)
            assert f"another client changed {PROOF}; it is published again" in process.log()
            assert set(heard[TOPIC]) == {experiment_payload()}

    def test_first_request_comes_when_the_log_can_be_read(self, store, witness, arguments, monkeypatch):
        http, statuses, respond = f"127.0.0.1:{free_port()}", [], witness.respond

        def read_and_respond(body):
            try:
                statuses.append(get(f"http://{http}/log/checkpoint")[0])
            except OSError as e:
                statuses.append(e)
            return respond(body)

        monkeypatch.setattr(witness, "respond", read_and_respond)
        options = ("--store", store.engine.url.render_as_string(), "--http", http)
        with served(*options, *arguments) as process:
            process.ready()
            until(lambda: statuses, process.log)
            assert statuses[0] == 200

    def test_killed_before_it_announces(self, store, broker, witness, arguments):
        options = ("--store", store.engine.url.render_as_string(), *arguments)
        with board(broker) as heard:
            with served(*options, script=KILLED_AFTER_COMMIT) as process:
                assert process.wait() == -signal.SIGKILL
            assert heard == {}
            with served(*options) as process:
                process.ready()
                until(lambda: has_proof(heard), process.log)
                assert accepted(heard, witness) == 0
                log = StoredLog(store)
                log.refresh()
                assert log.tree.size == 1

    @pytest.mark.database
    def test_two_aggregators_keep_one_log(self, postgres_url, broker, witness, arguments):
        with Store(postgres_url) as store:
            ask_fleet(store, "open", experiment_payload())
            environments = (
                {"HUSHMOTE_STORE": postgres_url, "HUSHMOTE_CLIENT_ID": name, "HUSHMOTE_SHARE": "s"}
                for name in ("one", "two")
            )
            with contextlib.ExitStack() as stack, board(broker) as heard:
                both = [stack.enter_context(served(*arguments, environment=each)) for each in environments]
                for process in both:
                    process.ready()
                for number in range(5):
                    store.add_experiment("open", experiment_payload(name=f"e{number}"))
                expected = [TOPIC, *(topics.experiment_topic("open", f"e{n}") for n in range(5))]
                proofs = [topic.replace("/experiment/", "/proof/") for topic in expected]
                until(
                    lambda: all(heard.get(topic, [b""])[-1] for topic in (*expected, *proofs)),
                    lambda: "".join(process.log() for process in both),
                )
                assert accepted(heard, witness) >= 0
                assert all(len(set(heard[topic])) == 1 for topic in expected)
                log = StoredLog(store)
                log.refresh()
                assert sorted(each.entry.key for each in log.entries) == sorted(expected)
                for process in both:
                    assert "ERROR" not in process.log()
