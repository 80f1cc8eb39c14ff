"""The command line around the commands: fast help, and errors without a traceback."""

import contextlib
import inspect
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_line import DOOR, hushmote
from refusals import Refusal, refusals
from running_aggregator import WAIT_S, until

from hushmote._version import VERSION
from hushmote.cli import main as cli

ROOT = Path(__file__).parents[2]
HEAVY = {"numpy", "scipy", "sqlalchemy", "matplotlib", "pydantic", "paho", "cryptography", "uvicorn"}
# Runs one line after another, and prints the loaded modules after each line's output.
LOADED = """
import contextlib, sys
from hushmote.__main__ import main
for line in sys.argv[1:]:
    sys.argv = ["hushmote", *line.split()]
    with contextlib.suppress(SystemExit):
        main()
    print()
    print("LOADED", *sys.modules)
"""


@pytest.fixture
def door(tmp_path: Path) -> Path:
    (tmp_path / "door.toml").write_text(DOOR)
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 64)
    return tmp_path


def start(*arguments: str, cwd: Path, program: tuple[str, ...] = ("-m", "hushmote"), **options):
    return subprocess.Popen(
        [sys.executable, *program, *arguments], cwd=cwd, stderr=subprocess.PIPE, text=True, **options
    )


PICTURES = {"matplotlib", "pandas"}
NUMBERS = {"numpy", "scipy", "sqlalchemy", *PICTURES}
UNUSED_BY_STORE_COMMANDS = (NUMBERS - {"sqlalchemy"}) | {
    "sqlalchemy.dialects.postgresql",
    "rich",
    "hushmote.simulator",
}
RARELY_NEEDED = {
    "scipy.special",
    "scipy.fft",
    "scipy.stats",
    "numpy.testing",
    "sqlalchemy.dialects.postgresql",
    "unittest",
}


class TestImports:
    def test_help_and_version_load_no_command(self, tmp_path: Path):
        for loaded in modules("--help", "--version", "-h", cwd=tmp_path):
            assert not HEAVY & {name.partition(".")[0] for name in loaded}
            assert not {"hushmote.simulator", "rich.progress", "rich.markdown"} & loaded

    @pytest.mark.slow
    def test_help_and_errors_load_no_slow_modules(self, tmp_path: Path):
        lines = (
            "estimate --help",
            "simulate --help",
            "mechanisms --help",
            "simulate nothing.toml",
            "experiment show nothing.toml",
            "experiment add nothing.toml",
            "serve --rate none",
            "status --nothing",
            "estimate nothing --store sqlite:///nothing.sqlite",
            "status --store sqlite:///nothing.sqlite",
        )
        late = {*NUMBERS, "paho", "cryptography", "rich.live"}
        *each, of_flash = modules(*lines, "flash", cwd=tmp_path)
        for line, loaded in zip(lines, each, strict=True):
            assert not late & loaded, line
        assert not NUMBERS & of_flash

    @pytest.mark.slow
    def test_commands_load_only_needed_parts(self, tmp_path: Path):
        store = f"sqlite:///{tmp_path / 'store.sqlite'}"
        room = ROOT / "examples/room_temp.toml"
        hushmote("simulate", str(room), "--devices", "300", "--days", "3", "--to", store, cwd=tmp_path)
        (refused,) = modules(f"estimate nothing --store {store}", cwd=tmp_path)
        assert not UNUSED_BY_STORE_COMMANDS & refused
        for line in ("status", "estimate room_temp"):
            (loaded,) = modules(f"{line} --store {store}", cwd=tmp_path)
            assert "scipy.special._ufuncs" in loaded
            assert not (RARELY_NEEDED | PICTURES) & loaded


def modules(*lines: str, cwd: Path) -> list[set[str]]:
    """Return the modules that one process has loaded after each of these lines."""
    run = start(*lines, cwd=cwd, program=("-c", LOADED), stdout=subprocess.PIPE)
    printed = run.communicate()[0].splitlines()
    return [set(line.split()) for line in printed if line.startswith("LOADED ")]


class TestNoArguments:
    @pytest.mark.parametrize("path", ["", "budget", "experiment", "provision", "store"])
    def test_prints_help(self, path: str, tmp_path: Path):
        assert hushmote(*path.split(), cwd=tmp_path) == hushmote(*path.split(), "--help", cwd=tmp_path)


class TestHelp:
    def test_version_matches_package(self, tmp_path: Path):
        assert hushmote("--version", cwd=tmp_path) == f"hushmote {VERSION}\n"

    @pytest.mark.parametrize("name", cli.COMMANDS)
    def test_summary_matches_command(self, name: str):
        loaded, line = cli.load(name), cli.COMMANDS[name][1]
        assert loaded.name == name
        summary = loaded.help if loaded.callback is None else inspect.getdoc(loaded.callback)
        assert summary is not None
        assert " ".join(summary.split("\n\n")[0].split()) == line

    def test_lists_every_command(self, tmp_path: Path):
        page = hushmote("--help", cwd=tmp_path)
        names = [
            line.split()[0] for line in page.splitlines() if line.startswith("  ") and line[2:3].isalpha()
        ]
        assert [name for name in names if name in cli.COMMANDS] == list(cli.COMMANDS)
        assert "docs/commands-fleet.md" in page


class TestRefusals:
    @pytest.mark.parametrize(
        ("line", "words", "where"),
        [
            ("status --foo", "No such option: --foo", "status"),
            ("status x", "unexpected extra argument", "status"),
            ("provision keys", "Missing argument 'file'", "provision keys"),
            ("store merge a", "Missing argument 'FROM'", "store merge"),
            ("store upgrade", "Missing argument 'URL'", "store upgrade"),
            ("budget compare", "Missing option '--total'", "budget compare"),
            ("plan --devices ten", "Invalid value for '--devices'", "plan"),
            ("plan --devices", "Option '--devices' requires an argument", ""),
            ("simulate door.toml --seed -1", "Invalid value for '--seed'", "simulate"),
            ("experiment shwo", "Did you mean 'show'?", "experiment"),
            ("sevre", "No such command 'sevre'. Did you mean 'serve'", ""),
            ("--colour", "No such option: --colour", ""),
        ],
    )
    def test_second_line_points_to_options(self, line: str, words: str, where: str, tmp_path: Path):
        first, second = hushmote(*line.split(), cwd=tmp_path, expect=2).splitlines()
        assert words in first
        assert second == " ".join(["Try", "hushmote", *where.split(), "--help"])

    @refusals(
        ("provision keys no/x", "cannot write no/x"),
        ("experiment show .", "cannot read .: Is a directory"),
        ("experiment show noise", "cannot read noise"),
        ("status --store sqlite:///no/x", "no does not exist; create it"),
        ("status --store sqlite:///.", "it is a folder"),
        ("status --store sqlite:///noise", "not a SQLite database"),
        ("store check nonsense", "not a store: write"),
        ("store merge sqlite:///a sqlite:///b", "there is no store at a"),
        ("study curves --output no/x.png", "cannot write no/x.png"),
        ("study curves --output x.txt", "must end in .png, .pdf or .svg"),
        ("budget compare --total nan --reports 3", "a positive number"),
        ("epsilon 10 --epsilon inf", "must be a positive multiple of one millionth, not inf"),
        ("study composition --epsilon=nan", "must be a positive multiple of one millionth, not nan"),
        ("study central --records=1e400,2 --risk=1/2", "a number is too large"),
        (
            "plan --lifetime 1e308 --devices 9 --values yes-no --horizon 1y --call 1h",
            "lifetime must be a number",
        ),
        ("ledger --status no", "cannot read no"),
        ("ledger --policy noise", "cannot read noise"),
        ("flash /dev/nope door.toml", "door.toml is not JSON"),
        ("provision fleet f --host 'a b'", "host 'a b' must be a lowercase DNS name"),
        ("provision list --folder no", "no is not a fleet's folder"),
        ("provision rotate devices", "give the fleet's folder"),
        ("provision list --allow @noise", "must contain one device id per line"),
        ("provision list --allow UPPER", "device id 'UPPER' must be"),
    )
    def test_is_one_line(self, refusal: Refusal, door: Path):
        refusal.check(door)


QUESTION = """
name = "room_temp"
purpose = "How warm is it at this desk?"
owner = "me@example.org"
expires = 9999-12-31
type = "number"
unit = "°C"
low = 16
high = 28
bins = 6
epsilon = 1.0
window = "day"
[budget]
rule = "sum"
cap = 4.0
"""
BROKER_OPTIONS = "--wifi-ssid any --broker mqtt://localhost"
WIFI = {"HUSHMOTE_WIFI_PASSWORD": "any-password"}
FLEET_OPTIONS = "--fleet home --master-key master.key"
BROKER_FORMAT = "a broker is written mqtt://[user@]host[:port]"


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder after the first steps: an experiment, keys, a board's settings and a store."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "room.toml").write_text(QUESTION)
    (folder / "notes.txt").write_text("hello")
    hushmote("provision", "keys", "master.key", cwd=folder)
    hushmote("experiment", "add", "room.toml", "--fleet", "home", "--keys", cwd=folder)
    month = "simulate room.toml --devices 300 --days 2 --to sqlite:///hushmote.sqlite"
    hushmote(*month.split(), cwd=folder)
    device = f"provision device desk {FLEET_OPTIONS} {BROKER_OPTIONS}"
    hushmote(*device.split(), cwd=folder, environment=WIFI)
    return folder


class TestNewcomer:
    """A new user's mistakes, and the line that corrects each."""

    @refusals(
        ("server", "Did you mean 'serve'?"),
        ("experiments list", "Did you mean 'experiment'?"),
        ("estimate room_temp --fleets home", "Possible options: --fleet"),
        ("simulate room.toml --device 1000", "Possible options: --devices"),
        ("serve --master master.key", "--master-key"),
        ("flash desk.settings.json", "Missing argument 'settings'"),
        ("plan --devices 20000 --values 64 --epsilon 5%", "must be a number, not '5%': write 0.05"),
        ("plan --devices 20.000 --values 64 --epsilon 2", "must be a whole number, not '20.000'"),
        ("plan --devices 20kk --values 64 --epsilon 2", "must be a whole number, not '20kk'"),
        ("plan --devices 20000 --values 64 --epsilon 2,0", "must be a number, not '2,0': write 2.0"),
        ("simulate room.toml --rows 0", "must be 1 or more, not '0'"),
        status=2,
    )
    def test_wrong_options_name_the_right_options(self, refusal: Refusal, newcomer: Path):
        refusal.check(newcomer)

    @refusals(
        ("flash desk.settings.json /dev/ttyACM0", "no settings /dev/ttyACM0: make them with"),
        ("flash /dev/ttyUSB9 room.toml", "it must be a file that `hushmote provision` wrote"),
        ("experiment show romm.toml", "did you mean room.toml?"),
        ("experiment add room --fleet home", "did you mean room.toml?"),
        ("simulate room", "did you mean room.toml?"),
        ("experiment show notes.txt", "notes.txt: not TOML"),
        ("serve --master-key mastr.key", "did you mean master.key?"),
        ("serve --master-key room.toml", "a master key of exactly 64 hex digits"),
        ("provision keys master.key", "master.key exists"),
        (f"provision device desk {FLEET_OPTIONS} {BROKER_OPTIONS}", "desk.settings.json exists"),
        (f"provision device Desk {FLEET_OPTIONS} {BROKER_OPTIONS}", "must be 1 to 32 of a-z, 0-9 and -"),
        (f"provision device x --fleet home {BROKER_OPTIONS}", "--master-key FILE for a keyed fleet"),
        ("provision device x --folder home", "create one with `hushmote provision fleet home"),
        ("provision fleet f --host http://a.example", "without a port or wildcard"),
        ("status --store hushmote.sqlite", "write sqlite:///path"),
        ("status --store sqlite:///other.sqlite", "there is no store at other.sqlite"),
        ("status --broker mqtt://localhost:1", "(Connection refused); start one or correct the address"),
        ("serve --broker localhost", BROKER_FORMAT),
        ("serve --broker http://localhost", BROKER_FORMAT),
        ("serve --broker mqtt://localhost:99999", f"{BROKER_FORMAT}, the port from 1 to 65535"),
        ("serve --broker mqtt://u:secret@localhost", "HUSHMOTE_BROKER_PASSWORD_FILE"),
        ("serve", "fleet home is keyed: give its master key"),
        ("estimate room_temp", "name one fleet in this store; its fleets: home, simulated"),
        ("estimate room_tmp --fleet home", "its experiments: room_temp"),
        ("estimate room_temp --fleet hme", "its fleets: home, simulated"),
        ("estimate room_temp --fleet home", "an estimate needs 2"),
        ("estimate room_temp --fleet simulated --range 24", "a range must be low:high"),
        ("estimate room_temp --fleet simulated --quantile 95", "a quantile must be between 0 and 1"),
        ("estimate room_temp --fleet home --last week", "a length of time must look like 7d"),
        ("estimate room_temp --fleet home --output x.gif", "must end in .csv, .json"),
        ("experiment withdraw room_tmp --fleet home", "its experiments: room_temp"),
        ("experiment add room.toml --fleet Home --keys", "name 'Home' must be 1 to 32 of a-z"),
        ("experiment add room.toml --fleet home --open", "fleet home is keyed"),
        ("experiment add room.toml --fleet new", "add --keys (reports carry tags) or --open"),
        ("plan --devices 20000 --values 64 --error 1,5", "such as 0.01 or 0.5°C, not '1,5'"),
        ("plan --devices 20000 --values 64", "add epsilon (2 is a common choice) or error"),
        ("epsilon 64 --epsilon 2000000", "boards count in millionths, but here write 2"),
        ("epsilon 64 --risk half", "a number such as 0.25 or 1/4"),
        ("simulate room.toml --population gauss:19:3", "choose from uniform, normal,"),
        ("simulate room.toml --to hushmote.sqlite", "write sqlite:///path"),
        ("demo --devices 5", "from 100 to 26115"),
        environment=WIFI,
    )
    def test_wrong_command_gets_one_helpful_line(self, refusal: Refusal, newcomer: Path):
        refusal.check(newcomer)

    @pytest.mark.parametrize(
        ("right", "wrong", "words"),
        [
            ("epsilon = 1.0", "epsilon = 1,0", "line 11: write a number with a point"),
            ("epsilon = 1.0", "epsilon = 1000000", "boards count in millionths, but here write 1"),
            ("epsilon = 1.0", "epsilom = 1.0", "did you mean epsilon?"),
            ("9999-12-31", "31.12.2030", "write a date as 2027-12-31"),
            ("9999-12-31", '"31.12.2030"', "a date such as 2027-12-31, not '31.12.2030'"),
            ('"room_temp"', "room_temp", "line 2: put a text into quotes"),
            ('"room_temp"', '"Room temperature"', "name must be 1 to 32 of a-z"),
            ("bins = 6", "bins: 6", "write = in place of the colon"),
            ("bins = 6", "bins = 6\nmissing = True", "write true or false"),
            ('"number"', '"float"', "type must be 'bool', 'choice', 'number'"),
            ("low = 16", "low = 30", "low must be less than high"),
            ('"day"', '"daily"', "window must be 'hour', 'day' or 'all', not 'daily'"),
            ('"sum"', '"total"', "budget.rule must be 'sum', 'squares'"),
            ("[budget]", '["budget', "not TOML"),
            ('window = "day"', 'mechanism = "laplace"', "not 'laplace'"),
            (QUESTION, '{"name": "room_temp"}', "write TOML, not JSON"),
        ],
    )
    def test_wrong_question_gets_one_helpful_line(self, right: str, wrong: str, words: str, tmp_path: Path):
        assert right in QUESTION
        files = {"question.toml": QUESTION.replace(right, wrong)}
        Refusal("experiment show question.toml", words, files).check(tmp_path)

    @pytest.mark.parametrize(
        "line", ["serve --master-key master.key", "page", "door --broker mqtt://localhost:1"]
    )
    def test_names_port_in_use(self, line: str, newcomer: Path):
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            error = hushmote(*line.split(), "--http", address, cwd=newcomer, expect=1)
        assert f"cannot listen at {address}" in error
        assert "choose another address with --http" in error


class TestSystemErrors:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (
                PermissionError(13, "Permission denied", "secret"),
                "cannot read or write secret: Permission denied",
            ),
            (MemoryError(), "a number is too large"),
            (
                UnicodeEncodeError("ascii", "ε", 0, 1, "no"),
                "ascii cannot represent ε; set PYTHONIOENCODING=utf-8",
            ),
            (typer.Abort(), "interrupted"),
        ],
        ids=["permission", "memory", "encoding", "abort"],
    )
    def test_give_one_line(
        self, error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        def refuse(**_options: object) -> None:
            raise error

        monkeypatch.setattr(cli, "app", refuse)
        Refusal("status", words).check(tmp_path)

    @pytest.mark.slow
    def test_full_disk_gives_one_line(self, door: Path):
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        with open("/dev/full", "w") as full:
            run = start("experiment", "show", "door.toml", cwd=door, stdout=full)
            error = run.communicate()[1]
        assert (run.returncode, error) == (1, "hushmote: cannot read or write: No space left on device\n")

    @pytest.mark.slow
    def test_closed_pipe_is_silent(self, door: Path):
        reading, writing = os.pipe()
        os.close(reading)
        run = start("experiment", "show", "door.toml", cwd=door, stdout=writing)
        os.close(writing)
        assert run.communicate()[1] == ""
        assert run.returncode == 1

    @pytest.mark.slow
    def test_control_c_gives_one_line_and_status_130(self, door: Path):
        question = door / "waits.toml"
        os.mkfifo(question)
        # Children of a shell's background job, as a test run may be, ignore SIGINT.
        run = start(
            *("simulate", "waits.toml", "--population", "zipf:1", "--devices", "10"),
            cwd=door,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        opened: list[int] = []
        until(lambda: run.poll() is not None or opens(question, opened), "the command reads the file")
        run.send_signal(signal.SIGINT)
        # A signal just before read() does not interrupt it; closing the file lets Python handle the signal.
        os.close(opened[0])
        assert run.communicate(timeout=WAIT_S)[1] == "hushmote: stopped by Ctrl-C\n"
        assert run.returncode == 130


def opens(fifo: Path, opened: list[int]) -> bool:
    """Return whether a reader has opened the FIFO and waits for data."""
    with contextlib.suppress(OSError):  # ENXIO: no reader yet
        opened.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    return bool(opened)
