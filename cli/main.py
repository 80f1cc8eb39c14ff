"""The command line: its commands, loaded when they are called, and what becomes of mistakes.

Every command that prints a result takes --json. A mistake is one line on standard error and exit status 1. A
mistake in the command line itself has status 2, and a second line that says where the options are.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ..device.ldp_client import LDPError
from ..server.errors import HushmoteError
from ..server.plain_text import one_line
from ..server.wire.experiments import FOLDERS

# Every version of typer has this class, some have its base from click and some bring it along.
_UsageMistake = cast(type[typer.BadParameter], typer.BadParameter.__base__)


COMPLETING = "_HUSHMOTE_COMPLETE"  # set where a shell asks how a line may go on


# name -> module:attribute, a function or a Typer of this package; its line in `hushmote --help`
COMMANDS = {
    "keygen": (
        "keygen:keygen_command",
        "Make the master key of a server's fleets and the key that signs their experiments.",
    ),
    "status": ("status:status_command", "Show what was counted and what was rejected, and why."),
    "serve": (
        "serve:serve_command",
        "Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge.",
    ),
    "door": (
        "door:door_command",
        "Take reports by HTTP and publish them: for LoRaWAN servers, scripts and browsers.",
    ),
    "watch": (
        "watch:watch_command",
        "Watch fleets in a terminal: what came, what is learned, what is wrong.",
    ),
    "page": ("page:page_command", "Look at a store in a browser: live, and only read."),
    "estimate": (
        "estimate:estimate_command",
        "Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.",
    ),
    "simulate": (
        "simulate.command:simulate",
        "Simulate a fleet before it is built: what would be estimated, beside the truth.",
    ),
    "demo": (
        "demo:demo_command",
        "Watch thousands of devices report real readings through a real broker, and what is learned of them.",
    ),
    "plan": (
        "plan.command:plan_command",
        "Plan an experiment: five questions in words, or three of devices, ε, values and error.",
    ),
    "mechanisms": (
        "mechanisms.command:mechanisms_command",
        "List the mechanisms there are: for which question, with what error, at what cost.",
    ),
    "ledger": (
        "ledger.command:ledger_command",
        "What boards' budgets still hold, and when they run dry at the present rate.",
    ),
    "audit": (
        "audit:audit_command",
        "Run the shipped randomizer on two inputs many times; print lower bounds of ε. Exit 1 above nominal.",
    ),
    "check-mechanism": (
        "check_mechanism:check_mechanism_command",
        "Prove a mechanism's ε by its every branch, and check all else it must keep. Exit 1 if it fails.",
    ),
    "merge": (
        "store:merge_command",
        "Merge stores of sites without a network; refuses if a report was counted twice.",
    ),
    "flash": (
        "flash:flash_command",
        "Put Hushmote on a board over USB; a ledger that is there is never overwritten.",
    ),
    "board": ("board:board_command", "Run a board in software, to try everything without hardware."),
    "experiment": ("experiment:experiment_app", "What is asked of a fleet: check, add, list and withdraw."),
    "study": (
        "study:study_command",
        "Run a study: what reproduces a source or a claim, beside its theory.",
    ),
    "budget": (
        "budget.command:budget_app",
        "Privacy budgets: what each composition theorem allows, and what it guarantees.",
    ),
    "epsilon": (
        "epsilon.command:epsilon_command",
        "Choose ε from a disclosure risk: what an attacker may come to believe.",
    ),
    "store": ("store:store_app", "The store itself: upgrade, back up, check, seal."),
    "provision": (
        "provision.command:provision_app",
        "Who is who: a fleet's authority, broker and keys, and its boards.",
    ),
}


# The panels of `hushmote --help`, in the order in which somebody meets them.
PANELS = {
    "Start": ("demo", "simulate"),
    "Plan": ("plan", "mechanisms", "epsilon", "budget"),
    "Run a fleet": ("provision", "keygen", "experiment", "serve", "door", "status"),
    "Boards": ("flash", "board", "audit", "check-mechanism", "ledger"),
    "Read results": ("page", "watch", "estimate"),
    "Look after": ("store", "merge"),
    "Study": ("study",),
}


def load(name: str) -> Any:
    """Import a command of COMMANDS; it and what is below it show their help as help_page does."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(import_module(f".{module}", __package__), attribute)
    holder = typer.Typer()
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=name)
    else:
        holder.command(name, cls=getattr(command, "command_class", None))(command)
    loaded = typer.main.get_group(holder).commands[name]
    _show_our_help(loaded)
    if COMPLETING in os.environ:
        _plain_in_shells(loaded)
    return loaded


def _show_our_help(command: Any) -> None:
    """Have a command of typer's making, and all below it, print a page of help_page."""
    setattr(command, "format_help", partial(_print_help, command))  # noqa: B010 (no type checker likes it)
    for member in getattr(command, "commands", {}).values():
        _show_our_help(member)


def _plain_in_shells(command: Any) -> None:
    """Have texts stand beside completions as they are: typer reads markup and emoji in them, and wraps."""
    os.environ["COLUMNS"] = "1000"
    for thing in (command, *command.params):
        if thing.help:
            text = " ".join(thing.help.split()).replace("[", "(").replace("]", ")")
            thing.help = text.replace(":", ":[b][/b]")
    for member in getattr(command, "commands", {}).values():
        _plain_in_shells(member)


def _print_help(command: Any, ctx: typer.Context, formatter: object) -> None:
    """Print the page at once, as typer does: what is written to the formatter comes as an error elsewhere."""
    del formatter
    from . import help_page  # only here: a command that is run needs none of it

    help_page.show(help_page.page_of(command, ctx))


class _Commands(TyperGroup):
    """COMMANDS, each no more than its line of help until it is called: what it needs takes long to load."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for panel, names in PANELS.items():
            for name in names:
                self.add_command(TyperCommand(name, help=COMMANDS[name][1], rich_help_panel=panel))

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:
        name, line, rest = super().resolve_command(ctx, args)
        return name, line and name and load(name), rest

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:
        _print_help(self, ctx, formatter)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
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

    Settings that are the same each time can be HUSHMOTE_* variables: docs/environment.md lists them all.
    """


def main() -> None:
    """Entry point: run the command of sys.argv and exit; a mistake is a line or two, never a traceback."""
    FOLDERS[:] = [""]  # the folder it is run in, for mechanisms of one's own
    sys.exit(_run())


def _run() -> int:
    try:
        status = app(standalone_mode=False) or 0
        print(end="", flush=True)  # now, while a full disk can still be told
    except _UsageMistake as e:
        if e.format_message().strip():  # a command without arguments has printed its help instead
            path = e.ctx.command_path if e.ctx else "hushmote"
            _complain(e.format_message(), f"Try {path} --help")
        return e.exit_code
    except (HushmoteError, LDPError) as e:
        _complain(str(e))
    except (typer.Abort, KeyboardInterrupt):
        _complain("stopped before its end")
    except (MemoryError, OverflowError):
        _complain("a number is too large for this machine: take a smaller one")
    except UnicodeEncodeError as e:
        letter = e.object[e.start]
        _complain(f"the output's encoding, {e.encoding}, has no {letter}: set PYTHONIOENCODING=utf-8")
    except BrokenPipeError:  # `hushmote status | head -1`: who reads has what he wanted
        _drop_output()
    except OSError as e:
        _complain(f"cannot read or write {e.filename or ''}".rstrip() + f": {e.strerror or e}")
        _drop_output()
    else:
        if status == 130:
            _complain("stopped by Ctrl-C")
        return status
    return 1


def _complain(text: str, *more: str) -> None:
    print("\n".join([f"hushmote: {one_line(text)}", *more]), file=sys.stderr)


def _drop_output() -> None:
    """Close standard output with what it cannot write, which Python would try again at its end."""
    try:
        print(end="", flush=True)
    except OSError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
