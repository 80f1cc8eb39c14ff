"""`hushmote demo --log`: a question for one home only, and why its board does not take it.

Every part is real: a broker, an aggregator with a log of questions, two witnesses, and boards that require
both. The demo plays the maker: first an honest one, then one that targets a home.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from ..device import async_reporter, ldp_client
from ..fleet.provisioning import master_key
from ..server.answers import tables as show
from ..server.answers.files import output_folder
from ..server.epsilon import MICRO
from ..server.experiments.definition import Definition, parse
from ..server.ingest.log_witnesses import WitnessFailed, board_keys_of, load_witnesses, request_signatures
from ..server.log.entry import Entry
from ..server.log.key_file import create_key
from ..server.log.note import COSIGNATURE, ECDSA, ED25519, SecretKey, board_keys
from ..server.log.proof import encode_proof, proof_topic
from ..server.service.http_endpoint import Endpoint
from ..server.service.log_files import LogFiles
from ..server.service.process import READY
from ..server.store.log import StoredLog
from ..server.store.store import Store
from ..server.wire import keys, topics
from .broker import Broker, free_port
from .deployment import DemoError, Place, process
from .open_broker import open_broker

FLEET, NAME = "home", "room_temp"
BOARDS = ("kitchen", "attic", "office")
TARGET = "attic"
ORIGIN = "maker.example/questions"
_WITNESSES = {"partner.example": 4, "residents.example": 1}  # how many changes a day each allows
_WAIT_S = 60.0
_QUESTION = """name = "room_temp"
purpose = "How warm are the rooms?"
owner = "maker@example.org"
expires = {expires}
type = "number"
unit = "°C"
low = 16
high = 28
bins = {bins}
mechanism = "grr"
epsilon = {epsilon}
window = "day"
[budget]
rule = "sum"
cap = 8.0
"""

_any: Any = async_reporter  # board files have no type annotations


@dataclasses.dataclass(frozen=True)
class LogDemo:
    """The outcome of the demo.

    Attributes:
        asked: Each board's entry of the log for the question to everyone.
        unlogged: Why the targeted board refused a question that is not in the log.
        signed: The witnesses that signed the log with that question.
        objection: What the other witness answered.
        logged: Why the board refused the question even so.
        spent: The ε that the targeted board spent on it.
    """

    asked: dict[str, int]
    unlogged: str
    signed: tuple[str, ...]
    objection: str
    logged: str
    spent: float


class Boards:
    """Boards that run device/async_reporter.py in a thread, each with its own ledger."""

    def __init__(self, folder: Path, policy: dict[str, object], fleet_keys: keys.FleetKeys) -> None:
        self._folder, self._policy, self._keys = folder, policy, fleet_keys
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: dict[str, Any] = {}
        self._clients: dict[str, Any] = {}
        self._reporters: dict[str, Any] = {}

    def __enter__(self) -> "Boards":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self._tasks):
            self.switch_off(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def switch_on(self, name: str, broker: Broker) -> None:
        """Provision a board and connect it to the broker."""
        storage = str(self._folder / name)
        ldp_client.provision(storage, consent=True)
        client = ldp_client.Client(
            self._policy,
            storage=storage,
            device_id=name,
            key=keys.device_key(self._keys.masters[0], FLEET, name),
            announce_key=self._keys.announce_key,
            fleet=FLEET,
        )
        login = {"user": broker.username, "password": broker.password}
        reporter = _any.AsyncReporter(
            client, broker.host, broker.port, **login, backoff_s=1, backoff_max_s=1, spread_s=1, settle_s=1
        )
        self._clients[name], self._reporters[name] = client, reporter
        self._tasks[name] = self._in_loop(_start(reporter.run()))

    def switch_off(self, name: str) -> None:
        """Disconnect a board."""
        self._in_loop(_stop(self._tasks.pop(name)))

    def _in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    def leaf(self, name: str) -> int | None:
        """Return the log's entry that a board takes part in, or None."""
        leaf: int | None = self._clients[name].status()["experiments"][NAME].get("leaf")
        return leaf

    def refusal(self, name: str) -> str | None:
        """Return why a board refuses the message on the question's topic, or None."""
        reason: str | None = self._reporters[name].refused.get(NAME)
        return reason

    def spent(self, name: str) -> float:
        """Return the ε that a board has spent."""
        epsilon: float = self._clients[name].status()["sum"] / MICRO
        return epsilon


async def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run(place: Place) -> LogDemo:
    """Ask every board a question, then only one, first without the log and then with it.

    Raises:
        HushmoteError: If a part fails; the message is one line.
    """
    folder = place.folder / "log"
    output_folder(place.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if not place.quiet:
        show.out.print("Hushmote demo: a question for one home only\n", style="bold")
    fleet_keys = master_key.create_keys(folder / "master.key")
    log = create_key(folder / "log.key", ORIGIN)
    url = f"sqlite:///{folder / 'hushmote.sqlite'}"
    witnesses = [create_key(folder / f"{name}.key", name) for name in _WITNESSES]
    with (
        open_broker(place.broker) as broker,
        Store(url) as store,
        Endpoint("127.0.0.1", 0, bytes, lambda: None, log=LogFiles(url)) as files,
        _witness_processes(folder, log, witnesses, f"http://127.0.0.1:{files.port}/log") as lines,
    ):
        (folder / "witnesses.txt").write_text("".join(lines.values()), encoding="utf-8")
        policy = _policy(log, witnesses)
        place.say("broker", broker.description)
        place.say("witnesses", f"{' and '.join(_WITNESSES)}: every board requires both")
        store.add_fleet(FLEET, keyed=True)
        _add(store, _question(bins=6, epsilon=1.0))
        with Boards(folder, policy, fleet_keys) as boards:
            return _play(place, broker, store, boards, log)


def show_outcome(outcome: LogDemo) -> None:
    """Print what this shows and what it does not, in 80 columns."""
    lines = (
        "",
        "So every board of the fleet gets the same question or none, as long as",
        f"{list(_WITNESSES)[1]} keeps to its rule: at most one change of a question a day.",
        f"The board in the {TARGET} spent ε = {outcome.spent:g} on the question that only it was asked.",
        "If the maker owned the log and both witnesses, nothing here would stop it.",
        "docs/log.md explains how to run a log, and docs/witness.md how to run a witness.",
    )
    show.out.print("\n".join(lines), soft_wrap=True)


def _play(place: Place, broker: Broker, store: Store, boards: Boards, log: SecretKey) -> LogDemo:
    folder = place.folder / "log"
    serve = ["serve", "--store", f"sqlite:///{folder / 'hushmote.sqlite'}"]
    serve += ["--master-key", str(folder / "master.key"), "--log-key", str(folder / "log.key")]
    serve += ["--witnesses", str(folder / "witnesses.txt")]
    environment = {"HUSHMOTE_BROKER": broker.url, "HUSHMOTE_PROTOCOL": broker.protocol}
    place.say("1", "The maker asks every home how warm its rooms are: 6 ranges, ε = 1.")
    with process(serve, environment, folder / "aggregator.log", READY):
        for name in BOARDS:
            boards.switch_on(name, broker)
        asked = {
            name: _wait(lambda name=name: boards.leaf(name), f"{name} accepts no question") for name in BOARDS
        }
    place.say(
        "",
        f"It is entry {asked[TARGET]} of the log, both witnesses have signed, and "
        f"{', '.join(BOARDS[:-1])} and {BOARDS[-1]} take part.",
    )
    for name in BOARDS:
        if name != TARGET:
            boards.switch_off(name)
    fleet_keys = master_key.load_keys(folder / "master.key")
    assert fleet_keys is not None
    assert fleet_keys.signing is not None
    topic = topics.experiment_topic(FLEET, NAME)
    question = _question(bins=240, epsilon=4.0).payload()
    message = keys.sign_experiment(fleet_keys.signing, topic, question, int(time.time()) + 1)
    place.say("2", f"Now it asks only the {TARGET}: 240 ranges, ε = 4, signed with the fleet's key.")
    _publish(broker, topic, message)
    unlogged = _wait(lambda: boards.refusal(TARGET), f"{TARGET} does not refuse the question")
    place.say("", f"The board refuses: {unlogged}.")
    place.say("3", "It puts that question into the log as well, and asks the witnesses to sign.")
    signed, objection, proof = _log_and_sign(store, log, folder, Entry(topic, message))
    place.say("", f"{' and '.join(signed)} signs. {objection[:1].upper()}{objection[1:]}.")
    _publish(broker, proof_topic(FLEET, NAME), proof)
    logged = _wait(
        lambda: (why := boards.refusal(TARGET)) != unlogged and why, f"{TARGET} does not check the proof"
    )
    place.say("", f"The board refuses: {logged}.")
    return LogDemo(asked, unlogged, signed, objection, logged, boards.spent(TARGET))


def _log_and_sign(
    store: Store, log: SecretKey, folder: Path, entry: Entry
) -> tuple[tuple[str, ...], str, bytes]:
    """Add an entry without waiting a day; return who signs, why the other does not, and the entry's proof."""
    stored = StoredLog(store)
    stored.append(log, lambda _: [entry], int(time.time()))
    witnesses = load_witnesses(folder / "witnesses.txt")
    signed, objections = [], []
    for witness in witnesses:
        try:
            request_signatures(stored, log, witness, int(time.time()))
            signed.append(witness.name)
        except WitnessFailed as e:
            objections.append(str(e))
    stored.refresh()
    checkpoint = stored.checkpoint
    assert checkpoint is not None
    number = checkpoint.size - 1
    proof = encode_proof(stored.tree, number, checkpoint, board_keys_of(log, witnesses))
    return tuple(signed), ", and ".join(objections), proof


@contextlib.contextmanager
def _witness_processes(
    folder: Path, log: SecretKey, witnesses: list[SecretKey], url: str
) -> Iterator[dict[str, str]]:
    """Run the witnesses; yield their lines for the file of witnesses, by name."""
    with contextlib.ExitStack() as stack:
        lines = {}
        for key in witnesses:
            rule, state = folder / f"{key.name}.toml", folder / f"{key.name}.json"
            rule.write_text(
                f'origin = "{ORIGIN}"\nlog = "{log.public(ED25519)}"\nfleets = ["{FLEET}"]\n'
                f"changes_a_day = {_WITNESSES[key.name]}\n",
                encoding="utf-8",
            )
            command = ["witness", "--log", url, "--key", str(folder / f"{key.name}.key")]
            command += ["--rule", str(rule), "--state", str(state)]
            file = folder / f"{key.name}.log"
            with process([*command, "--new-state"], {}, file, ""):
                pass
            address = f"127.0.0.1:{free_port()}"
            stack.enter_context(process([*command, "--http", address], {}, file, READY))
            lines[key.name] = f"http://{address} {key.public(COSIGNATURE)} {key.public(ECDSA)}\n"
        yield lines


def _policy(log: SecretKey, witnesses: list[SecretKey]) -> dict[str, object]:
    public = board_keys([key.public(ECDSA) for key in (log, *witnesses)])
    return {
        "sum": 8_000_000,
        "squares": 0,
        "epsilon": 4_000_000,
        "rules": ("sum",),
        "experiments": (NAME,),
        "log": {"origin": ORIGIN, "keys": tuple(public), "need": len(witnesses)},
    }


def _question(bins: int, epsilon: float) -> Definition:
    expires = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=30)
    return parse(_QUESTION.format(bins=bins, epsilon=epsilon, expires=expires))


def _add(store: Store, question: Definition) -> None:
    store.add_experiment(FLEET, question.payload(), question.expires, description=question.description())


def _publish(broker: Broker, topic: str, message: bytes) -> None:
    """Retain a message, as the maker does who has the broker's password."""
    client = paho.Client(CallbackAPIVersion.VERSION2)
    if broker.username is not None:
        client.username_pw_set(broker.username, broker.password)
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.publish(topic, message, qos=1, retain=True).wait_for_publish(_WAIT_S)
    client.disconnect()
    client.loop_stop()


def _wait(look: Callable[[], Any], failed: str) -> Any:
    """Return the first result that is not None or False."""
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        result = look()
        if result is not None and result is not False:
            return result
        time.sleep(0.1)
    raise DemoError(f"{failed} within {_WAIT_S:g} s; the demo's log files say why")
