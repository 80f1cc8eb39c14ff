"""serve with a log, and real brokers, databases and witnesses: boards get what anyone can check."""

import contextlib
import queue
import signal

import paho.mqtt.client as mqtt
import pytest
from boards import FLEET_KEYS, MASTER, SIGNING, MemoryStorage, ask_fleet, experiment_payload
from command_line import hushmote
from enumeration import POLICY
from log_witness import LOG, TestWitness
from paho.mqtt.enums import CallbackAPIVersion
from running_aggregator import until
from serve_process import get, served
from traffic import publish

from hushmote.device import ldp_client, ldp_log
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.fleet.provisioning import master_key
from hushmote.server.log.note import COSIGNATURE, ECDSA, ED25519, board_keys
from hushmote.server.log.proof import proof_topic
from hushmote.server.store import Store
from hushmote.server.store.log import StoredLog
from hushmote.server.wire import keys, topics
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
    public = board_keys([LOG.public(ECDSA), witness.secret.public(ECDSA)])
    policy = {"origin": LOG.name, "keys": public, "need": 1}
    return ldp_log.verify(policy, TOPIC, heard[TOPIC][-1], heard[PROOF][-1], lambda: None)


class HomeBoard:
    """A board in fleet home with a log in its policy, from its first start on."""

    def __init__(self, broker, device, *witnesses):
        public = board_keys([LOG.public(ECDSA), *(each.secret.public(ECDSA) for each in witnesses)])
        log = {"origin": LOG.name, "keys": public, "need": len(witnesses)}
        policy = POLICY | {"experiments": ("e0", "e1", "e2"), "log": log}
        storage, key = MemoryStorage(), keys.device_key(MASTER, "home", device)
        ldp_client.provision(storage, consent=True)
        self.client = ldp_client.Client(policy, storage, device, key, keys.public_key_bytes(SIGNING), "home")
        self.kept = KeptExperiments(self.client, None)
        self.broker, self.topic = broker, topics.report_topic("home", device)
        self.messages = queue.SimpleQueue()
        self.mqtt = mqtt.Client(CallbackAPIVersion.VERSION2)
        self.mqtt.on_message = lambda _c, _d, m: self.messages.put((m.topic.split("/")[3:], m.payload))
        self.mqtt.connect(broker.host, broker.port)
        self.mqtt.subscribe([("hushmote/v1/home/experiment/+", 1), ("hushmote/v1/home/proof/+", 1)])
        self.mqtt.loop_start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.mqtt.disconnect()
        self.mqtt.loop_stop()

    def has(self, name):
        """Read the messages so far; return whether the board takes part in an experiment."""
        while not self.messages.empty():
            (kind, of), payload = self.messages.get()
            self.kept.put_aside(of + "/proof" * (kind == "proof"), payload)
            while self.kept.waiting:
                self.kept.consider()
        return self.client.status()["experiments"][name]["state"] == "reporting"

    def answer(self, *names):
        """Send a report of each experiment, once the board takes part in it."""
        for name in names:
            until(lambda name=name: self.has(name), self.client.status)
            publish(self.broker, [(self.topic, self.client.report(name, 20.0))])


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


@pytest.mark.slow
class TestRotation:
    def test_boards_with_old_and_new_policy_answer_throughout(self, tmp_path, broker):
        log_key, master, file = tmp_path / "log.key", tmp_path / "master.key", tmp_path / "witnesses.txt"
        for path, text in ((log_key, str(LOG)), (master, master_key.to_text(FLEET_KEYS))):
            path.write_text(text)
            path.chmod(0o600)
        options = ["--broker", f"mqtt://127.0.0.1:{broker.port}", "--log-key", log_key, "--witnesses", file]
        options += ["--master-key", master, "--store", f"sqlite:///{tmp_path}/home.sqlite"]
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            store = enter(Store(options[-1]))
            asked = [ask_fleet(store, "home", experiment_payload(name="e0"), keyed=True)]
            gone, stays, comes = (enter(TestWitness(f"w{n}.example", n)) for n in (10, 20, 30))

            def counts():
                return [int(store.histogram("home", exp.digest).sum()) for exp in asked]

            def serve(*witnesses):
                file.write_text("".join(each.line for each in witnesses))
                return served(*options)

            with serve(gone, stays) as process:
                old = enter(HomeBoard(broker, "old-0", gone, stays))
                old.answer("e0")
                until(lambda: counts() == [1], process.log)
                assert process.end() == 0
            with serve(gone, stays, comes) as process:
                asked.append(store.add_experiment("home", experiment_payload(name="e1")))
                new = enter(HomeBoard(broker, "new-0", stays, comes))
                for board in (old, new, enter(HomeBoard(broker, "old-1", gone, stays))):
                    board.answer("e0", "e1")
                until(lambda: counts() == [4, 3], process.log)
                assert process.end() == 0
            with serve(stays, comes) as process:
                asked.append(store.add_experiment("home", experiment_payload(name="e2")))
                for board in (new, enter(HomeBoard(broker, "new-1", comes, stays))):
                    board.answer("e0", "e1", "e2")
                old.answer("e0", "e1")  # it keeps them, although it cannot have e2
                until(lambda: counts() == [7, 6, 2], process.log)
                assert not old.has("e2")
                assert process.end() == 0
