"""The command line: its lazily loaded commands and its error messages.

Every command that prints a result takes --json. An error prints one line on standard error and exits with
status 1. A usage error exits with status 2, and a second line points to the help. `release` exits with
status 3 for stop and 4 for not yet.
"""

import contextlib
import re
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

# Every version of typer has BadParameter, whose base class comes from click or from typer's copy of click.
_UsageMistake = cast(type[typer.BadParameter], typer.BadParameter.__base__)


# The panels of `hushmote --help` in order, with each command's help line.
_PANELS = {
    "Start": {
        "demo": (
            "Watch thousands of devices report real readings through a real broker, and see what is learned."
        ),
        "simulate": "Simulate a fleet before it is built and compare its estimates with the truth.",
    },
    "Plan": {
        "plan": "Plan an experiment: devices, ε, error, and how to spend a lifetime budget.",
        "questions": "List the standard questions about a fleet's health, and what each can show.",
        "mechanisms": 'List the mechanisms: what each is for and when "auto" picks it.',
        "epsilon": "Choose ε from a disclosure risk: what an attacker may come to believe.",
        "budget": "Privacy budgets: what each composition theorem allows, and what it guarantees.",
    },
    "Run a fleet": {
        "provision": "Set up a fleet: its authority, broker and keys, and its devices.",
        "experiment": "Check, add, list, withdraw and clear a fleet's experiments.",
        "serve": "Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge.",
        "log": "The public log of questions: its key, entries, proofs and files, and checks of them.",
        "door": "Accept reports over HTTP and publish them: for LoRaWAN servers, scripts and browsers.",
        "witness": "Watch a log of questions for others, and sign it only while your rule holds.",
        "notify": "Check the addresses that `hushmote serve --notify` sends alerts to.",
        "status": "Show a store's health, each experiment's finding, and the rejected reports.",
    },
    "Boards": {
        "flash": "Put Hushmote on a board over USB; an existing ledger is kept.",
        "board": "Run a software board, to try everything without hardware.",
        "check-mechanism": (
            "Prove a mechanism's ε over every branch, and check its other properties. "
            "Exit 1 if a check fails."
        ),
        "ledger": "Show devices' remaining budgets, and when they run out at the current rate.",
    },
    "Read results": {
        "page": "Show a store in a browser, live and read-only.",
        "release": "Say whether a release is worse than the version before: stop, proceed or not yet.",
        "estimate": "Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.",
    },
    "Maintain": {
        "statement": "Write and verify a fleet's compliance documents: what it asks, and at what ε.",
        "store": "Maintain the store: upgrade, back up, check, seal, erase, merge, accept a clock.",
    },
    "Study": {
        "study": "Run a study, which reproduces a published result or a claim and compares it with theory."
    },
}
COMMANDS = {name: (panel, line) for panel, lines in _PANELS.items() for name, line in lines.items()}
"""Panel and help line of each command, whose module is NAME.py or NAME/command.py in this package."""


def module_name(name: str) -> str:
    """Return the name of the module that defines a command in COMMANDS."""
    word = name.replace("-", "_")
    # Checking for the folder is not enough because a deleted package may leave one with only __pycache__.
    is_package = (Path(__file__).with_name(word) / "command.py").exists()
    return f"{__package__}.{word}" + ".command" * is_package


def load(name: str) -> Any:
    """Import a command in COMMANDS, and add EXAMPLES to its help and its subcommands' help."""
    module, word = import_module(module_name(name)), name.replace("-", "_")
    command = getattr(module, f"{word}_app", None) or getattr(module, f"{word}_command")
    group = typer.Typer(rich_markup_mode=None)  # help texts are printed as written
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name, help=COMMANDS[name][1], no_args_is_help=True)
    else:
        group.command(name, cls=getattr(command, "command_class", None))(command)
    loaded = typer.main.get_group(group).commands[name]
    for path, member in walk_commands(name, loaded):
        for parameter in member.params:
            parameter.process_value = _read_typed_numbers(parameter, parameter.process_value)
        # Click would truncate it.
        member.short_help = " ".join(member.help.partition("\n\n")[0].split())
        if lines := EXAMPLES.get(path):
            member.epilog = "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])
    return loaded


_SHARES = {"confidence", "share", "honest", "missing", "rise", "worse_by"}
"""Numeric parameters that are shares of one, so that 5% is 0.05; a reading in % is not one."""
_LOSSES = {"total", "lifetime", "limit", "ceiling"}
"""Numeric parameters that are an ε, besides those with epsilon in their names."""


def _read_typed_numbers(parameter: Any, process: Callable[..., Any]) -> Callable[..., Any]:
    """Make a numeric parameter accept numbers as people type them, such as 100,000, 20k and 5%.

    An integer rejects the ambiguous 20.000, which some versions of typer accept.
    """

    def process_number(context: Any, value: Any) -> Any:
        try:
            number = process(context, value)
        except _UsageMistake:
            from ..server.typed_numbers import map_texts  # imported lazily so that commands start fast

            for read in _readings(parameter.name or ""):
                texts = map_texts(read, value)
                if texts != value:
                    with contextlib.suppress(_UsageMistake):
                        return process_number(context, texts)
            raise
        if type(number) is int and isinstance(value, str) and "." in value:
            text = f"must be a whole number, not {value!r}"
            raise typer.BadParameter(text, ctx=context, param=parameter)
        return number

    return process_number


def _readings(name: str) -> tuple[Callable[[str], str], ...]:
    """Return the ways to read a parameter's typed text as a number, in the order to try them."""
    from ..server.typed_numbers import plain_number, plain_quantile, plain_share, plain_whole_number

    plain = plain_quantile if name.startswith("quantile") else plain_number
    plain = plain_share if name in _SHARES else plain

    def bare(text: str) -> str:
        return plain(_without_words(name, text))

    return plain_whole_number, bare, lambda text: plain_whole_number(bare(text))


def _without_words(name: str, text: str) -> str:
    """Return a number without the words or symbols around it, as in 20,000 devices and ε = 2."""
    text = re.sub(rf"\s*\b{name.removesuffix('s')}s?$", "", text.strip())
    symbol = "δ" if name == "delta" else "ε" if "epsilon" in name or name in _LOSSES else ""
    if not symbol:
        return text
    return re.sub(rf"^{symbol}\s*=?\s*|\s*\bnats$", "", text)


def walk_commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command and all commands below it, each with its path."""
    yield path, command
    for name, member in getattr(command, "commands", {}).items():
        yield from walk_commands(f"{path} {name}", member)


class _Commands(TyperGroup):
    """COMMANDS as help lines; a command is imported only when it is called, because that is slow."""

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

    Recurring settings can be HUSHMOTE_* variables, which docs/commands-fleet.md lists.
    """


def main() -> None:
    """Run the command of sys.argv and exit; an error prints a line or two, never a traceback."""
    FOLDERS[:] = [""]  # the current folder, for the user's own mechanisms
    with use_interface("command"):
        status = _run()
    sys.exit(status)


def _run() -> int:
    try:
        status = app(standalone_mode=False) or 0
        print(end="", flush=True)  # flush now, while a full disk can still be reported
    except _UsageMistake as e:
        if type(e).__name__ == "NoArgsIsHelpError":  # click 8.2 and newer raise a group's help
            print(e.format_message(), flush=True)
            return 0
        if errors := getattr(e.__cause__, "errors", None):  # typer validates some values with pydantic
            e.message = wrong_value(errors()[0])
        path = e.ctx.command_path if e.ctx else "hushmote"
        _print_error(e.format_message(), f"Try {path} --help")
        return e.exit_code
    except (HushmoteError, LDPError) as e:
        _print_error(str(e))
        return getattr(e, "exit_status", 1)
    except (typer.Abort, KeyboardInterrupt):
        _print_error("interrupted")
    except (MemoryError, OverflowError):
        _print_error("a number is too large for this machine; use a smaller one")
    except UnicodeEncodeError as e:
        character = e.object[e.start]
        _print_error(
            f"the output encoding {e.encoding} cannot represent {character}; set PYTHONIOENCODING=utf-8"
        )
    except BrokenPipeError:  # `hushmote status | head -1`: the reader has closed the pipe
        _drop_output()
    except OSError as e:
        _print_error(f"cannot read or write {e.filename or ''}".rstrip() + f": {os_reason(e)}")
        _drop_output()
    else:
        if status == 130:
            _print_error("stopped by Ctrl-C")
        return status
    return 1


def _print_error(text: str, *further_lines: str) -> None:
    print("\n".join([f"hushmote: {one_line(text)}", *further_lines]), file=sys.stderr)


def _drop_output() -> None:
    """Close standard output after a failed write, which Python would retry at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
