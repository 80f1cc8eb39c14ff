"""`hushmote witness`: sign a log of questions only while the witness's own rule holds."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..server.errors import HushmoteError, UsageError, refusing
from .options import AsJson, print_json

if TYPE_CHECKING:
    from ..fleet.witness.rule import Rule
    from ..fleet.witness.witness import Witness


def witness_command(  # noqa: PLR0913 - one for each option
    log: Annotated[
        str | None,
        typer.Option(
            help="The log's address, or a folder with its files.",
            envvar="HUSHMOTE_WITNESS_LOG",
            metavar="URL|FOLDER",
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="File with the witness's own key.", metavar="FILE")] = None,
    rule: Annotated[
        Path | None,
        typer.Option(help="TOML file that says which log, and what the witness signs.", metavar="FILE"),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="File in which the witness remembers what it has signed.", metavar="FILE"),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            help="Answer logs that ask for signatures, and serve a page for people. Without it, the command "
            "reads the log at the interval --every, and prints what it signs.",
            metavar="HOST:PORT",
        ),
    ] = None,
    every: Annotated[
        str, typer.Option(help="How often to read the log without --http: 10min, hour.", metavar="DURATION")
    ] = "10min",
    accept: Annotated[
        int | None,
        typer.Option(
            help="Accept the entries up to this size, which you have read, and exit. The rule applies to "
            "later entries.",
            metavar="SIZE",
        ),
    ] = None,
    new_state: Annotated[
        bool,
        typer.Option(
            "--new-state",
            help="Create the state, and exit. The rule then applies to all entries of the log. After a loss "
            "of the state, the log could have a second history that this witness cannot notice.",
        ),
    ] = False,
    create_key: Annotated[
        str | None,
        typer.Option(
            help="Create the file of --key for a witness of this name, print its public keys, and exit.",
            metavar="NAME",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch a log of questions for others, and sign it only while your rule holds.

    Boards that require this witness accept a question only if it has signed the log that contains the
    question. It refuses a second version of a question on one day, so nobody can ask one home something that
    the others are not asked.
    """
    if create_key is not None:
        if key is None or any(option is not None for option in (log, rule, state, http, accept)) or new_state:
            raise UsageError("--create-key goes with --key FILE alone")
        _create_key(key, create_key, as_json)
        return
    options = {"--log": log, "--key": key, "--rule": rule, "--state": state}
    if missing := [name for name, value in options.items() if value is None]:
        raise UsageError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if sum((http is not None, accept is not None, new_state)) > 1:
        raise UsageError("--http, --accept and --new-state exclude each other: give one of them")
    assert log is not None
    assert key is not None
    assert rule is not None
    assert state is not None

    # Imported lazily because they are slow to load.
    from ..fleet.witness.rule import Rule
    from ..fleet.witness.state import StateFile
    from ..fleet.witness.witness import Witness
    from ..planning.lifetime import parse_duration
    from ..server.log.key_file import load_key
    from ..server.log.tiles import reader

    every_s = parse_duration(every)
    secret, read_rule = load_key(key), _read_rule(Rule, rule)
    with StateFile(state) as file:
        if new_state:
            Witness.begin(secret, read_rule, file)
            _print_begun(state, as_json)
            return
        witness = Witness(secret, read_rule, reader(log), file)
        if accept is not None:
            before_s = witness.state.time
            changed = witness.accept(accept)
            _print_accepted(witness, changed, before_s, as_json)
        elif http is not None:
            _serve(witness, http)
        else:
            _watch(witness, every_s, as_json)


def _create_key(path: Path, name: str, as_json: bool) -> None:
    from ..server.log.key_file import create_key
    from ..server.log.note import COSIGNATURE, ECDSA

    secret = create_key(path, name)
    cosignature, p256 = secret.public(COSIGNATURE), secret.public(ECDSA)
    values = {"file": str(path), "for_logs": [str(cosignature), str(p256)], "for_boards": p256.value.hex()}
    if as_json:
        print_json(values)
        return
    typer.echo(f"{path} is written: keep it secret, and never use it with a second state.\n")
    typer.echo("For the maker's file of witnesses, after this witness's address:")
    typer.echo(f"{cosignature} {p256}\n\nFor boards, as in POLICY:\n{values['for_boards']}")


def _read_rule(rule: type[Rule], path: Path) -> Rule:
    with refusing(UsageError, f"read the rule {path}"):
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return rule.parse(text)
    except HushmoteError as e:
        raise UsageError(f"{path}: {e}") from None


def _print_begun(state: Path, as_json: bool) -> None:
    if as_json:
        print_json({"state": str(state), "size": 0})
    else:
        typer.echo(f"{state} is written. The rule applies to all entries of the log.")


def _print_accepted(witness: Witness, changed: Mapping[str, int], before_s: int, as_json: bool) -> None:
    state = witness.state
    set_back = datetime.datetime.fromtimestamp(before_s, datetime.UTC) if before_s > state.time else None
    versions = {"/".join(key): record.versions for key, record in state.records.items()}
    if as_json:
        questions = {name: {"versions": versions[name], "new": new} for name, new in changed.items()}
        ahead = set_back and f"{set_back:%Y-%m-%dT%H:%M:%SZ}"
        print_json({"size": state.size, "questions": questions, "time_was_ahead": ahead})
        return
    if set_back:
        moment = f"{set_back:%Y-%m-%d %H:%M} UTC"
        typer.echo(f"the last signature was at {moment}, ahead of this clock: the rule counts from now on")
    for name, new in changed.items():
        count = "1 version" if versions[name] == 1 else f"{versions[name]} versions"
        typer.echo(f"{name}: {count}, {new} of them accepted now")
    typer.echo(f"accepted the log up to size {state.size}; the rule applies to every later entry")


def _serve(witness: Witness, http: str) -> None:
    from ..server.extras import require

    require("uvicorn", "the witness's address")
    from ..fleet.witness.app import run
    from ..server.service.bounded_http import parse_endpoint
    from ..server.service.process import set_up_log

    host, port = parse_endpoint(http)
    set_up_log(as_json=False)
    run(witness, host, port)


def _watch(witness: Witness, every_s: float, as_json: bool) -> None:
    """Read the log again and again until SIGTERM or Ctrl-C, and print each result."""
    from ..server.service.process import catch_signals

    stop = threading.Event()
    with catch_signals(stop.set):
        while not stop.is_set():
            _print_result(_check(witness), as_json)
            stop.wait(every_s)


def _check(witness: Witness) -> dict[str, Any]:
    at = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    try:
        checkpoint, lines = witness.check()
    except HushmoteError as e:
        return {"time": at, "size": witness.state.size, "refused": str(e), "signatures": []}
    signatures = [str(line).rstrip() for line in lines or ()]
    return {"time": at, "size": checkpoint.size, "refused": None, "signatures": signatures}


def _print_result(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    from ..server.plain_text import one_line

    what = "signed" if result["signatures"] else "nothing new"
    if result["refused"]:
        what = f"NOT SIGNED: {one_line(result['refused'])}"
    typer.echo(f"{result['time']}  size {result['size']}: {what}")
    for line in result["signatures"]:
        typer.echo(line)
