"""The command line: its commands, loaded when they are called, and how it reports mistakes.

Every command that prints a result takes --json. A mistake is one line on standard error and exit status 1. A
mistake in the command line itself has status 2, and a second line that says where the options are.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ..device.ldp_client import LDPError
from ..server.errors import HushmoteError, os_reason
from ..server.hints import use_interface
from ..server.plain_text import one_line
from ..server.wire.experiments import FOLDERS
from ..server.wrong_value import wrong_value
from .examples import EXAMPLES

# Every version of typer has this class, some have its base from click and some bring it along.
_UsageMistake = cast(type[typer.BadParameter], typer.BadParameter.__base__)


# What `hushmote --help` shows, in that order: panels, and in each the line of a command.
_PANELS = {
    "Start": {
        "demo": (
            "Watch thousands of devices report real readings through a real broker, and see what is learned."
        ),
        "simulate": "Simulate a fleet before it is built, and compare its estimates with the truth.",
    },
    "Plan": {
        "plan": "Plan an experiment: devices, ε, error, and how to spend a lifetime budget.",
        "mechanisms": 'List the mechanisms: what each is for, and when "auto" picks it.',
        "epsilon": "Choose ε from a disclosure risk: what an attacker may come to believe.",
        "budget": "Privacy budgets: what each composition theorem allows, and what it guarantees.",
    },
    "Run a fleet": {
        "provision": "Who is who: a fleet's authority, broker and keys, and its devices.",
        "experiment": "The questions to a fleet: check, add, list and withdraw them.",
        "serve": "Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge.",
        "door": "Accept reports over HTTP and publish them: for LoRaWAN servers, scripts and browsers.",
        "status": "Show a store's health, what each experiment has found out, what was rejected, and why.",
    },
    "Boards": {
        "flash": "Put Hushmote on a board over USB; a ledger that is there is kept.",
        "board": "Run a board in software, to try everything without hardware.",
        "check-mechanism": (
            "Prove a mechanism's ε over every branch, and check all else that it must keep. "
            "Exit 1 if it fails."
        ),
        "ledger": "Show what devices' budgets still hold, and when they run out at the present rate.",
    },
    "Read results": {
        "page": "Look at a store in a browser: live, and only read.",
        "estimate": "Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.",
    },
    "Look after": {
        "statement": (
            "A fleet's papers: what is asked, what it costs in privacy, for people, auditors and authorities."
        ),
        "store": "Look after the store: upgrade, back up, check, seal, erase, merge, accept a clock.",
    },
    "Study": {"study": "Run a study, which reproduces a source or a claim, beside its theory."},
}
COMMANDS = {name: (panel, line) for panel, lines in _PANELS.items() for name, line in lines.items()}
"""Panel and line of help of each command, which is NAME.py or NAME/command.py in this package."""


def module_name(name: str) -> str:
    """Return the module of a command of COMMANDS."""
    word = name.replace("-", "_")
    # Not the folder alone: one that was a package may be left with nothing but its cache.
    is_package = (Path(__file__).with_name(word) / "command.py").exists()
    return f"{__package__}.{word}" + ".command" * is_package


def load(name: str) -> Any:
    """Import a command of COMMANDS; its help, and that of what is below it, ends with EXAMPLES."""
    module, word = import_module(module_name(name)), name.replace("-", "_")
    command = getattr(module, f"{word}_app", None) or getattr(module, f"{word}_command")
    group = typer.Typer(rich_markup_mode=None)  # texts stand as they are written
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name, help=COMMANDS[name][1], no_args_is_help=True)
    else:
        group.command(name, cls=getattr(command, "command_class", None))(command)
    loaded = typer.main.get_group(group).commands[name]
    for path, member in walk_commands(name, loaded):
        for parameter in member.params:
            parameter.process_value = _reject_decimals(parameter, parameter.process_value)
        member.short_help = " ".join((member.help or "").partition("\n\n")[0].split())  # click would cut it
        if lines := EXAMPLES.get(path):
            member.epilog = "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])
    return loaded


def _reject_decimals(parameter: Any, process: Callable[..., Any]) -> Callable[..., Any]:
    """Have a parameter take 20.000, which may mean 20 or 20000, for no whole number, as some typers do."""

    def process_whole(context: Any, value: Any) -> Any:
        number = process(context, value)
        if type(number) is int and isinstance(value, str) and "." in value:
            text = f"must be a whole number, not {value!r}"
            raise typer.BadParameter(text, ctx=context, param=parameter)
        return number

    return process_whole


def walk_commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command and all commands below it, each with its path."""
    yield path, command
    for name, member in getattr(command, "commands", {}).items():
        yield from walk_commands(f"{path} {name}", member)


class _Commands(TyperGroup):
    """COMMANDS, each no more than its line of help until it is called: what it needs takes long to load."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:
        name, line, rest = super().resolve_command(ctx, args)
        return name, line and name and load(name), rest

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:
        del ctx
        for panel, lines in _PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(list(lines.items()))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        typer.echo(f"hushmote {version('hushmote')}")
        raise typer.Exit


@app.callback()
def hushmote(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Private telemetry for fleets of microcontrollers.

    Settings that are the same each time can be HUSHMOTE_* variables: docs/commands-fleet.md lists them all.
    """


def main() -> None:
    """Entry point: run the command of sys.argv and exit; a mistake is a line or two, never a traceback."""
    FOLDERS[:] = [""]  # the folder it is run in, for mechanisms of one's own
    with use_interface("command"):
        status = _run()
    sys.exit(status)


def _run() -> int:
    try:
        status = app(standalone_mode=False) or 0
        print(end="", flush=True)  # now, while a full disk can still be told
    except _UsageMistake as e:
        if type(e).__name__ == "NoArgsIsHelpError":  # click 8.2 and newer raise the help of a group
            print(e.format_message(), flush=True)
            return 0
        if errors := getattr(e.__cause__, "errors", None):  # pydantic's, through which typer refuses values
            e.message = wrong_value(errors()[0])
        path = e.ctx.command_path if e.ctx else "hushmote"
        _print_error(e.format_message(), f"Try {path} --help")
        return e.exit_code
    except (HushmoteError, LDPError) as e:
        _print_error(str(e))
        return getattr(e, "exit_status", 1)
    except (typer.Abort, KeyboardInterrupt):
        _print_error("stopped before its end")
    except (MemoryError, OverflowError):
        _print_error("a number is too large for this machine: take a smaller one")
    except UnicodeEncodeError as e:
        letter = e.object[e.start]
        _print_error(f"the output's encoding, {e.encoding}, has no {letter}: set PYTHONIOENCODING=utf-8")
    except BrokenPipeError:  # `hushmote status | head -1`: the reader has what it wanted
        _drop_output()
    except OSError as e:
        _print_error(f"cannot read or write {e.filename or ''}".rstrip() + f": {os_reason(e)}")
        _drop_output()
    else:
        if status == 130:
            _print_error("stopped by Ctrl-C")
        return status
    return 1


def _print_error(text: str, *more: str) -> None:
    print("\n".join([f"hushmote: {one_line(text)}", *more]), file=sys.stderr)


def _drop_output() -> None:
    """Close standard output with output that failed, which Python would retry at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
