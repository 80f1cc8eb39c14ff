"""`hushmote demo --board`: one software board, from its sensor to the count, in one window.

docs/first-report.md uses four windows for the same steps: a broker, `hushmote serve`, a keyed fleet,
`hushmote board` and `hushmote flash`. The folder holds the same files, so either can continue the other's
work.
"""

import dataclasses
import datetime
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from ..device.ldp_client import Experiment
from ..fleet.provisioning import interpreters, master_key
from ..fleet.provisioning.flash import Load, flash
from ..fleet.provisioning.settings import (
    Network,
    load_settings,
    provision_device,
    replace_settings,
    settings_path,
)
from ..fleet.provisioning.usb import UsbLink
from ..server.answers import tables as show
from ..server.answers.files import output_folder
from ..server.answers.store_reader import StoreReader
from ..server.epsilon import MICRO
from ..server.experiments import definition
from ..server.plain_text import visible
from ..server.service.process import READY
from ..server.store.store import Store
from ..server.wire.keys import FleetKeys
from .board import storage
from .board.board import ANY_WIFI, THERMOMETER_C, SoftwareBoard
from .broker import Broker, ExternalBroker
from .deployment import DemoError, Place, process
from .open_broker import open_broker

FLEET, DEVICE = "home", "desk"
NAME = "room_temp"  # the experiment that the example application for boards knows
FOLDER = Path("hushmote-try")
_SPEED = 1800  # an hour of the board's sleep takes two seconds
_MQTT_PORT = 1883  # the port in docs/first-report.md, so that the board's settings fit it
_WAIT_S = 120.0  # maximum wait for a process to start and for delivered reports to be counted
_EXPERIMENT_FILE = """name = "room_temp"
purpose = "A first try: how warm is it at this desk?"
owner = "me@example.org"
expires = {expires}
type = "number"
unit = "°C"
low = 16
high = 28
bins = 6
mechanism = "grr"
epsilon = 1.0
window = "day"
[budget]
rule = "sum"
cap = 4.0
"""
# What device/main.py prints.
_REPORT = re.compile(rf"hushmote: {NAME}: code (\d+) of (\d+), (\d+) bytes, epsilon \S+; (.*)")
_REPORT_TOTAL = re.compile(rf"hushmote: {NAME}: (\d+) reports? made, \d+ left")
_BUDGET_USED = re.compile(rf"hushmote: {NAME}: silent: its budget is spent, after (\d+) reports")
_SENT = re.compile(r"hushmote: \d+ sent, (\d+) waiting")
_SILENT = re.compile(r"hushmote: silent, as (nobody has said yes yet|someone said no)")
_STARTS = re.compile(r"hushmote: starts in (\d+) s")
_DETAIL = re.compile(r"\(asleep |hushmote: first reading in |MicroPython, |>>>|Type |$")
_OPT_IN = ("resume", "exec", "import main; main.yes()", "reset")


@dataclasses.dataclass(frozen=True)
class BoardResult:
    """The outcome of a board's trial.

    Attributes:
        answer: Whether someone at the board opted in; None if its ledger already had the answer.
        reports: Number of reports that the board has ever made.
        counted: Number of reports that the aggregator counted.
        finding: The conclusion from these reports.
    """

    folder: str
    device: str
    answer: bool | None
    reports: int
    counted: int
    epsilon_spent: float
    finding: str


def run(place: Place, consent: Callable[[bool], bool]) -> BoardResult:
    """Run a board until its budget is spent, someone declines to opt in, or Ctrl-C is pressed.

    The folder keeps everything: a second run continues with the same board and its ledger.

    Args:
        place: The demo's folder, broker and experiment.
        consent: Asks the people at the board for consent. Its argument is True if the board's
            ledger holds no answer yet, and False if it holds an opt-out.

    Raises:
        HushmoteError: If the interpreter, the broker, the board or the store fails; the message is one line.
    """
    interpreter = interpreters.for_board()  # before any file is created
    broker = open_broker(place.broker)
    _check_off(place.folder)
    # Otherwise, the processes below would outlive this one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = place.folder
    output_folder(folder)
    keys = _keys(folder / "master.key")
    question = _question(folder / f"{NAME}.toml")
    url = f"sqlite:///{folder / 'hushmote.sqlite'}"
    if not place.quiet:
        show.out.print("Hushmote demo: a board, from its sensor to the count\n", style="bold")
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=True)
        experiment = store.add_experiment(
            FLEET, question.payload(), question.expires, description=question.description()
        )
        trial = _Trial(place, store, experiment, consent)
        try:
            _run_trial(trial, keys, url, broker, interpreter)
        except KeyboardInterrupt:
            place.say("stopped", "for the board, this is a power cut; its ledger is kept")
        counted = trial.count()
    with StoreReader(url) as reader:
        finding = reader.fleet(FLEET).experiment(NAME).finding.sentence
    spent = trial.reports * experiment.epsilon / MICRO
    return BoardResult(str(folder), DEVICE, trial.answer, trial.reports, counted, spent, finding)


def show_outcome(result: BoardResult) -> None:
    """Print the result and what to type next, in 80 columns."""
    show.out.print(f"\n{result.finding}")
    lines = (
        f"cd {shlex.quote(result.folder)} && hushmote status",
        f"hushmote estimate {NAME}",
        f"hushmote simulate {NAME}.toml --devices 20000    # what a fleet would show",
    )
    show.out.print("\nnext\n" + "\n".join(f"  {line}" for line in lines), soft_wrap=True)
    show.out.print("\ndocs/first-report.md shows the same step by step, also on a real board")


def _check_off(folder: Path) -> None:
    """Raise DemoError if the folder's board is already running."""
    if not (folder / "board").exists():
        return
    try:
        with storage.open_image(folder / "board"):
            pass
    except storage.StorageError:
        raise DemoError(
            f"the board in {folder} is already running; use --out FOLDER for another one"
        ) from None


def _keys(path: Path) -> FleetKeys:
    return (path.exists() and master_key.load_keys(path)) or master_key.create_keys(path)


def _question(path: Path) -> definition.Definition:
    if not path.exists():
        in_a_year = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=365)
        path.write_text(_EXPERIMENT_FILE.format(expires=in_a_year), encoding="utf-8")
    question = definition.load(path)
    question.check_not_expired()
    if question.name != NAME:
        raise DemoError(
            f"{path} asks for {question.name}, but the board's firmware knows only {NAME}; use another --out"
        )
    return question


def _run_trial(
    trial: "_Trial", keys: FleetKeys, url: str, broker: Broker, interpreter: interpreters.Interpreter
) -> None:
    """Start a broker, an aggregator and a board, flash it, and follow its reports."""
    place, folder = trial.place, trial.place.folder
    with _on_usual_port(broker):
        place.say("broker", f"{broker.description}; port {broker.port}")
        settings = _settings(folder, keys, broker)
        environment = {"HUSHMOTE_BROKER": broker.url, "HUSHMOTE_PROTOCOL": broker.protocol}
        serve = ["serve", "--store", url, "--master-key", str(folder / "master.key")]
        with process(serve, environment, folder / "aggregator.log", READY) as (aggregator, _):
            place.say("server", f"aggregator, process {aggregator.pid}; it published the question, signed")
            with _switched_on(trial, interpreter) as board:
                trial.aggregator, trial.board = aggregator, board
                trial.flash(settings)
                trial.follow()


def _on_usual_port(broker: Broker) -> Broker:
    """Return the broker, on the usual port unless that is taken."""
    if not isinstance(broker, ExternalBroker) and not _listens(broker.host, _MQTT_PORT):
        broker.port = _MQTT_PORT
    return broker


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def _settings(folder: Path, keys: FleetKeys, broker: Broker) -> Path:
    path = settings_path(DEVICE, folder)
    network = {
        "mqtt_host": broker.host,
        "mqtt_port": broker.port,
        "mqtt_user": broker.username,
        "mqtt_password": broker.password,
    }
    if not path.exists():
        provision_device(keys, FLEET, DEVICE, Network("any", **network), path=path)
        return path
    settings = load_settings(path)
    replace_settings(path, dataclasses.replace(settings, **network))
    return path


@contextmanager
def _switched_on(trial: "_Trial", interpreter: interpreters.Interpreter) -> Iterator[SoftwareBoard]:
    folder = trial.place.folder / "board"

    def console(line: str) -> None:
        trial.lines.put(visible(line))

    with (
        storage.open_image(folder) as image,
        SoftwareBoard(
            interpreter.argv, image, wifi=ANY_WIFI, sleep_scale=1 / _SPEED, console=console
        ) as board,
        storage.link_port(folder, board.port),
    ):
        version = ".".join(map(str, interpreter.version))
        trial.place.say(
            "board",
            f"MicroPython {version}, device {DEVICE} of fleet {FLEET}; its flash is in {folder}",
        )
        yield board


class _Trial:
    """One board's run: its output, the count, and the answer of the people at the board.

    Attributes:
        reports: Number of reports that the board has ever made.
        answer: Whether someone opted in; None before anyone was asked.
    """

    def __init__(
        self, place: Place, store: Store, experiment: Experiment, consent: Callable[[bool], bool]
    ) -> None:
        self.place = place
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.aggregator: subprocess.Popen[str] | None = None
        self.board: SoftwareBoard | None = None
        self.answer: bool | None = None
        self.reports = 0
        self._store = store
        self._experiment = experiment
        self._consent = consent
        self._report: re.Match[str] | None = None  # the line about a report that is not printed yet
        self._count = self.count()
        self._port = str(place.folder / "board" / "port")

    def count(self) -> int:
        """Return the number of reports counted by the aggregator, over all versions of the experiment."""
        participation = self._store.participation(FLEET).get(NAME)
        return participation.reports if participation else 0

    def flash(self, settings: Path) -> None:
        """Put Hushmote on the board, once it has started; ask for consent if the ledger is new."""
        while not re.match("MicroPython, |hushmote: ", self._next()):
            pass
        result = flash(self._port, settings, Load(), ask=lambda: self._ask(True), say=lambda _line: None)
        files = f"{len(result.copied)} files copied" if result.copied else "all files were up to date"
        ledger = "the ledger is kept as it was" if result.ledger == "kept" else "its ledger is empty"
        self.place.say("flashed", f"{files}; {ledger}")

    def follow(self) -> None:
        """Print the board's actions until it has nothing more to send."""
        while not self._handle(self._next()):
            pass

    def _next(self) -> str:
        """Return the board's next line; raise DemoError if the board or the aggregator has ended."""
        while True:
            try:
                return self.lines.get(timeout=0.5)
            except Empty:
                if self.board is not None and self.board.failure:
                    raise DemoError(self.board.failure) from None
                if self.aggregator is not None and self.aggregator.poll() is not None:
                    log = self.place.folder / "aggregator.log"
                    raise DemoError(f"the aggregator ended; {log} says why") from None

    def _handle(self, line: str) -> bool:
        """Explain a line that the board printed; return whether the board has finished."""
        if report := _REPORT.match(line):
            self._report = report
        elif total := _REPORT_TOTAL.match(line) or _BUDGET_USED.match(line):
            self.reports = int(total[1])
            self._print_report()
            if total.re is _BUDGET_USED:
                return self._finish()
        elif sent := _SENT.match(line):
            self._wait_until_counted(int(sent[1]))
        elif silent := _SILENT.match(line):
            return self._handle_silence(silent[1].startswith("nobody"))
        elif starts := _STARTS.match(line):
            text = f"starts in {starts[1]} s; from then on an hour of its sleep passes in {3600 / _SPEED:g} s"
            self.place.say("board", text)
        elif not _DETAIL.match(line):
            self.place.say("board", line.removeprefix("hushmote: "))
        return False

    def _print_report(self) -> None:
        if self._report is None:
            return
        code, codes, size, remaining = self._report.groups()
        self._report = None
        epsilon, cap = self._experiment.epsilon / MICRO, self._experiment.cap / MICRO
        self.place.say(f"report {self.reports}", f"the reading, {THERMOMETER_C:g} °C, stays on the board")
        self.place.say("", f"randomized to code {code} of {codes}, sent in {size} bytes")
        self.place.say("", f"ε spent: {self.reports * epsilon:g} of {cap:g}; {remaining}")

    def _wait_until_counted(self, waiting: int) -> None:
        """Print the count once it includes every report that is not still on the board."""
        expected, end = self.reports - waiting, time.monotonic() + _WAIT_S
        while (count := self.count()) < expected and time.monotonic() < end:
            time.sleep(0.05)
        if count < expected:
            log = self.place.folder / "aggregator.log"
            raise DemoError(f"the aggregator counted {count} of {expected} reports; {log} says why")
        if count != self._count:
            self.place.say("", f"counted by the aggregator: {count}")
        self._count = count

    def _finish(self) -> bool:
        """Print that the budget is used up once every report is counted; return True."""
        while not (sent := _SENT.match(self._next())) or int(sent[1]):
            pass
        self._wait_until_counted(0)
        self.place.say("silent", "the board's budget is used up permanently; its ledger is in its flash")
        return True

    def _handle_silence(self, unanswered: bool) -> bool:
        """Ask for consent at a silent board, unless asked before; type an opt-in at its prompt."""
        if self.answer is None and self._ask(unanswered):
            UsbLink(self._port, _WAIT_S).run(*_OPT_IN, failure="the opt-in did not reach the board")
            return False
        rule = "without an opt-in, the board does not read its sensor, spend budget or send anything"
        self.place.say("silent", f"{rule}; on a terminal the next run asks again")
        return True

    def _ask(self, unanswered: bool) -> bool:
        self.answer = self._consent(unanswered)
        return self.answer
