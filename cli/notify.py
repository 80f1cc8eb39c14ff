"""`hushmote notify`: check the receivers of alerts, and send each a message."""

from pathlib import Path
from typing import Annotated

import typer

from ..server.words.numbers import counted
from .options import AsJson, print_json


def notify_command(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File with one address per line, in Apprise's format; default: the addresses in "
            "HUSHMOTE_NOTIFY.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Send a message to each receiver, and say which arrived.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the addresses that `hushmote serve --notify` sends alerts to.

    Receivers are named by line and service, because their addresses contain passwords. The exit status is 1
    if a message did not arrive.
    """
    # Imported lazily because they are slow to load.
    from ..fleet.alerts.receivers import ENVIRONMENT_VARIABLE, load_receivers, send
    from ..server.errors import HushmoteError, UsageError

    receivers = load_receivers(file)
    if not receivers:
        raise UsageError(f"name a file with one address per line, or set {ENVIRONMENT_VARIABLE} to addresses")
    title, text = "Test", "Alerts of Hushmote will arrive here."
    failed = 0
    rows = list[dict[str, object]]()
    for receiver in receivers:
        reason = send(receiver, title, text) if test else None
        failed += bool(reason)
        rows.append({"line": receiver.line, "service": receiver.service})
        if test:
            rows[-1] |= {"arrived": not reason, "reason": reason or None}
        if not as_json:
            result = "" if reason is None else f": {f'did not arrive: {reason}' if reason else 'sent'}"
            typer.echo(f"line {receiver.line}: {receiver.service}{result}")
    if as_json:
        print_json(rows)
    if failed:
        messages = counted(len(receivers), "message")
        raise HushmoteError(f"{failed} of {messages} did not arrive: correct these lines")
