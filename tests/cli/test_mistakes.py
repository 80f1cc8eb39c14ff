"""The command line around a command: help that loads nothing, mistakes without a traceback."""

import contextlib
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_line import DOOR, hushmote
from running import WAIT_S, until

from hushmote.cli import main as cli

ROOT = Path(__file__).parents[2]
HEAVY = {"numpy", "scipy", "sqlalchemy", "matplotlib", "pydantic", "paho", "cryptography", "uvicorn"}
# Runs one line after another, and prints below what each prints the names of the modules loaded by then.
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


def test_help_and_version_load_no_command(tmp_path: Path):
    for loaded in modules("--help", "--version", "-h", cwd=tmp_path):
        assert not HEAVY & {name.partition(".")[0] for name in loaded}
        assert not {"hushmote.simulator", "rich.progress", "rich.markdown"} & loaded


PICTURES = {"matplotlib", "pandas"}
NUMBERS = {"numpy", "scipy", "sqlalchemy", *PICTURES}
OF_A_STORE = (NUMBERS - {"sqlalchemy"}) | {"sqlalchemy.dialects.postgresql", "rich", "hushmote.simulator"}
WHOLE = {
    "scipy.special",
    "scipy.fft",
    "scipy.stats",
    "numpy.testing",
    "sqlalchemy.dialects.postgresql",
    "unittest",
}


def test_help_and_refusals_wait_for_nothing_that_takes_long_to_load(tmp_path: Path):
    lines = (
        "estimate --help",
        "simulate --help",
        "mechanisms --help",
        "simulate nothing.toml",
        "experiment show nothing.toml",
        "experiment add nothing.toml",
        "plan --devices x",
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


def test_answers_load_no_other_database_and_of_scipy_the_compiled_functions_alone(tmp_path: Path):
    store = f"sqlite:///{tmp_path / 'store.sqlite'}"
    room = ROOT / "examples/room_temp.toml"
    hushmote("simulate", str(room), "--devices", "300", "--days", "3", "--to", store, cwd=tmp_path)
    (refused,) = modules(f"estimate nothing --store {store}", cwd=tmp_path)
    assert not OF_A_STORE & refused
    for line in ("status", "estimate room_temp"):
        (loaded,) = modules(f"{line} --store {store}", cwd=tmp_path)
        assert "scipy.special._ufuncs" in loaded
        assert not (WHOLE | PICTURES) & loaded


def modules(*lines: str, cwd: Path) -> list[set[str]]:
    """Names of the modules that one process has loaded after each of these lines."""
    run = start(*lines, cwd=cwd, program=("-c", LOADED), stdout=subprocess.PIPE)
    printed = run.communicate()[0].splitlines()
    return [set(line.split()) for line in printed if line.startswith("LOADED ")]


def test_the_version_is_the_package_s(tmp_path: Path):
    assert hushmote("--version", cwd=tmp_path) == "hushmote 0.1.0\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_can_be_loaded_and_its_line_of_help_is_its_own(name: str):
    loaded, line = cli.load(name), cli.COMMANDS[name][1]
    assert loaded.name == name
    own = loaded.help if loaded.callback is None else inspect.getdoc(loaded.callback)
    assert own is not None
    assert " ".join(own.split("\n\n")[0].split()) == line


class TestNoArguments:
    @pytest.mark.parametrize("path", ["", "budget", "experiment", "provision", "store"])
    def test_prints_help(self, path: str, tmp_path: Path):
        assert hushmote(*path.split(), cwd=tmp_path) == hushmote(*path.split(), "--help", cwd=tmp_path)


def test_the_page_of_help_names_every_command(tmp_path: Path):
    page = hushmote("--help", cwd=tmp_path)
    names = [line.split()[0] for line in page.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
    assert [name for name in names if name in cli.COMMANDS] == list(cli.COMMANDS)
    assert "docs/commands-fleet.md" in page


@pytest.mark.parametrize(
    ("arguments", "says", "where"),
    [
        (("status", "--foo"), "No such option: --foo", "status"),
        (("status", "x"), "unexpected extra argument", "status"),
        (("provision", "keys"), "Missing argument 'file'", "provision keys"),
        (("store", "merge", "a"), "Missing argument 'FROM'", "store merge"),
        (("store", "upgrade"), "Missing argument 'URL'", "store upgrade"),
        (("budget", "compare"), "Missing option '--total'", "budget compare"),
        (("plan", "--devices", "ten"), "Invalid value for '--devices'", "plan"),
        (("mechanisms", "--for", "mode"), "Invalid value for '--for'", "mechanisms"),
        (("plan", "--devices"), "Option '--devices' requires an argument", ""),
        (("simulate", "door.toml", "--seed", "-1"), "Invalid value for '--seed'", "simulate"),
        (("experiment", "shwo"), "Did you mean 'show'?", "experiment"),
        (("sevre",), "No such command 'sevre'. Did you mean 'serve'", ""),
        (("--colour",), "No such option: --colour", ""),
    ],
)
def test_a_mistake_in_the_command_line_is_two_lines_and_status_2(
    arguments, says, where, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["hushmote", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    first, second = error.splitlines()
    assert first.startswith("hushmote: ")
    assert says in first
    assert second == " ".join(["Try", "hushmote", *where.split(), "--help"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("provision", "keys", "no/x"), "cannot write no/x"),
        (("experiment", "show", "."), "cannot read .: Is a directory"),
        (("experiment", "show", "noise"), "cannot read noise"),
        (("status", "--store", "sqlite:///no/x"), "no does not exist; create it"),
        (("status", "--store", "sqlite:///."), "it is a folder"),
        (("status", "--store", "sqlite:///noise"), "not an SQLite database"),
        (("store", "check", "nonsense"), "not a store: write"),
        (("store", "merge", "sqlite:///a", "sqlite:///b"), "there is no store at a"),
        (("study", "curves", "--output", "no/x.png"), "cannot write no/x.png"),
        (("study", "curves", "--output", "x.txt"), "must end in .png or .pdf or .svg"),
        (("budget", "compare", "--total", "nan", "--reports", "3"), "a number above 0"),
        (("epsilon", "10", "--epsilon", "inf"), "millionths above 0, not inf"),
        (("study", "composition", "epsilon=nan"), "millionths above 0, not nan"),
        (("study", "central", "records=1e400,2", "risk=1/2"), "a number is too large"),
        (
            (
                "plan",
                "--lifetime",
                "1e308",
                "--devices",
                "9",
                "--values",
                "yes-no",
                "--horizon",
                "1y",
                "--call",
                "1h",
            ),
            "lifetime must be a number",
        ),
        (("ledger", "--status", "no"), "cannot read no"),
        (("ledger", "--policy", "noise"), "cannot read noise"),
        (("check-mechanism", "--samples", "100", "--runtime", "nope"), "there is no runtime 'nope'"),
        (("flash", "/dev/nope", "door.toml"), "door.toml is not JSON"),
        (("provision", "fleet", "f", "--host", "a b"), "host 'a b' must be a DNS name"),
        (("provision", "list", "--folder", "no"), "no is not a fleet's folder"),
        (("provision", "rotate", "devices"), "give the fleet's folder"),
        (("provision", "list", "--allow", "@noise"), "must hold a device id on each line"),
        (("provision", "list", "--allow", "UPPER"), "device id 'UPPER' must be"),
    ],
)
def test_any_other_mistake_is_one_line_and_status_1(
    arguments, says, door: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(door)
    monkeypatch.setattr("sys.argv", ["hushmote", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    error = capsys.readouterr().err
    assert ended.value.code == 1
    assert error.startswith("hushmote: ")
    assert error.count("\n") == 1
    assert says in error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            PermissionError(13, "Permission denied", "secret"),
            "cannot read or write secret: Permission denied",
        ),
        (MemoryError(), "a number is too large"),
        (UnicodeEncodeError("ascii", "ε", 0, 1, "no"), "ascii, has no ε: set PYTHONIOENCODING=utf-8"),
        (typer.Abort(), "stopped before its end"),
    ],
)
def test_what_the_machine_refuses_is_one_line(
    error, says, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(**_options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert says in said
    assert said.count("\n") == 1


def test_a_full_disk_is_one_line(door: Path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        run = start("experiment", "show", "door.toml", cwd=door, stdout=full)
        error = run.communicate()[1]
    assert (run.returncode, error) == (1, "hushmote: cannot read or write: No space left on device\n")


def test_a_reader_who_goes_away_is_told_nothing(door: Path):
    reading, writing = os.pipe()
    os.close(reading)
    run = start("experiment", "show", "door.toml", cwd=door, stdout=writing)
    os.close(writing)
    assert run.communicate()[1] == ""
    assert run.returncode == 1


def test_control_c_is_one_line_and_status_130(door: Path):
    question = door / "waits.toml"
    os.mkfifo(question)
    # A shell's background job, as a test run may be, has its children ignore SIGINT.
    run = start(
        *("simulate", "waits.toml", "--population", "zipf:1", "--devices", "10"),
        cwd=door,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    opened: list[int] = []
    until(lambda: run.poll() is not None or opens(question, opened), "it is loaded and reads")
    run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=WAIT_S)[1] == "hushmote: stopped by Ctrl-C\n"
    assert run.returncode == 130
    os.close(opened[0])


def opens(fifo: Path, opened: list[int]) -> bool:
    """Whether somebody reads it, which then waits for what this end writes."""
    with contextlib.suppress(OSError):  # ENXIO: nobody yet
        opened.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    return bool(opened)
