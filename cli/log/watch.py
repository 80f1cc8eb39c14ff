"""`hushmote log watch`: what a log has added since the last look, and whether it still begins the same."""

from __future__ import annotations

import base64
import datetime
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import typer

from ...device.ldp_client import ExperimentRefused
from ...server import private_file
from ...server.errors import UsageError, refusing
from ...server.log.copy import LogCopy, read_copy
from ...server.log.entry import Entry
from ...server.log.key_file import public_key
from ...server.log.note import PublicKey
from ...server.log.tiles import reader
from ...server.plain_text import visible
from ...server.words.numbers import counted
from ..experiment.review import Review, print_review, review_announced, sentences
from ..options import print_json
from .run import LogRefused, describe

_FEED_ENTRIES = 100
_ATOM = "http://www.w3.org/2005/Atom"


@dataclass(frozen=True)
class State:
    """The log as the last run saw it.

    Attributes:
        key: The log's public key, as text.
        size: The number of entries.
        root: The tree's root, in base64.
        seen: When each of the newest entries was first seen, unix seconds, oldest first.
    """

    key: str
    size: int = 0
    root: str = ""
    seen: tuple[int, ...] = ()


@dataclass(frozen=True)
class News:
    """A new entry.

    Attributes:
        number: Its number.
        entry: The entry.
        review: Its meaning for devices; None if it is no experiment that can be read here.
    """

    number: int
    entry: Entry
    review: Review | None

    @property
    def text(self) -> str:
        """Its meaning, in a sentence or two, and its content."""
        content = visible(self.entry.question.decode("utf-8", "replace"))
        if self.review is not None:
            return f"{' '.join(sentences(self.review))} {content}"
        if self.entry.experiment is None:
            return visible(self.entry.content.decode("utf-8", "replace"))
        return f"This version of Hushmote cannot read it: {content}" if content else "It is withdrawn."


def run(source: str, file: Path, key: str | None, feed: Path | None, as_json: bool) -> None:
    """Show what is new; raise LogRefused if the log does not continue what was seen before."""
    state = _load(file, None if key is None else str(public_key("--key", key)))
    public = PublicKey.parse(state.key)
    copy = read_copy(reader(source), public)
    _check_continues(source, copy, state)
    now = datetime.datetime.now(datetime.UTC)
    new = [_news(copy.entries, number) for number in range(state.size, copy.checkpoint.size)]
    seen = (*state.seen, *[int(now.timestamp())] * len(new))[-_FEED_ENTRIES:]
    root = base64.b64encode(copy.checkpoint.root).decode()
    after = replace(state, size=copy.checkpoint.size, root=root, seen=seen)
    if feed is not None:
        first = after.size - len(seen)
        newest = [(_news(copy.entries, first + at), time) for at, time in enumerate(seen)]
        _write(feed, _atom(public, newest, int(now.timestamp())))
        with refusing(UsageError, f"write {feed}"):
            feed.chmod(0o644)  # for a web server
    if as_json:
        print_json({"origin": public.name, "size": after.size, "new": [_values(each) for each in new]})
    else:
        _print(public.name, after.size, new)
    _write(file, json.dumps(asdict(after)).encode() + b"\n")


def _load(file: Path, key: str | None) -> State:
    try:
        with refusing(UsageError, f"read {file}"):
            values = json.loads(file.read_text("utf-8")) if file.exists() else None
        state = None if values is None else State(**values | {"seen": tuple(map(int, values["seen"]))})
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"{file} is not a state of `hushmote log watch`: give another file") from None
    if state is None:
        if key is None:
            raise UsageError(
                f"{file} does not exist: for the first run, give the log's public key with --key"
            )
        return State(key)
    if key not in (None, state.key):
        raise UsageError(
            f"{file} belongs to the log with the key {state.key}: omit --key, or give another file"
        )
    return state


def _check_continues(source: str, copy: LogCopy, state: State) -> None:
    size = copy.checkpoint.size
    if size < state.size:
        raise LogRefused(
            f"ALARM: {source} had {counted(state.size, 'entry')} at the last run and has {size:,} now: a "
            "log must never become shorter; ask its owner, and tell others"
        )
    if state.size and base64.b64encode(copy.tree.root(state.size)).decode() != state.root:
        raise LogRefused(
            f"ALARM: entries that {source} had at the last run have changed: its owner shows different "
            "histories; keep both, and tell others"
        )


def _news(entries: Sequence[Entry], number: int) -> News:
    entry = entries[number]
    if entry.experiment is None or not entry.question:
        return News(number, entry, None)
    earlier = (e.question for e in reversed(entries[:number]) if e.key == entry.key and e.question)
    for before in (next(earlier, None), None):  # one that cannot be read must not hide this one
        try:
            return News(number, entry, review_announced(before, entry.question))
        except ExperimentRefused:
            continue
    return News(number, entry, None)


def _print(origin: str, size: int, new: Sequence[News]) -> None:
    if not new:
        typer.echo(f"{origin} has no new entries: {size:,} in all")
    for each in new:
        typer.echo(f"{each.number}: {describe(each.entry)}")
        if each.review is None:
            _print_indented(each.text)
            continue
        print_review(each.review)
        if not each.review.changes:  # it is new, and the table above lists only what it costs
            _print_indented(visible(each.entry.question.decode("utf-8", "replace")))


def _print_indented(text: str) -> None:
    """Print text in lines that begin with spaces, which an entry cannot pass off as the command's."""
    indent = "    "
    for line in text.splitlines():
        filled = textwrap.fill(
            line, 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        typer.echo(filled or indent)


def _values(news: News) -> dict[str, Any]:
    review = None if news.review is None else asdict(news.review)
    return {"entry": news.number, "key": news.entry.key, "text": news.text, "review": review}


def _atom(key: PublicKey, newest: Sequence[tuple[News, int]], now_s: int) -> bytes:
    ElementTree.register_namespace("", _ATOM)
    feed = ElementTree.Element(f"{{{_ATOM}}}feed")

    def add(parent: ElementTree.Element, name: str, text: str) -> ElementTree.Element:
        child = ElementTree.SubElement(parent, f"{{{_ATOM}}}{name}")
        child.text = text
        return child

    add(feed, "id", f"urn:hushmote:log:{key.key_id.hex()}")
    add(feed, "title", f"Questions to devices: {key.name}")
    add(feed, "updated", _time(newest[-1][1] if newest else now_s))
    add(add(feed, "author", ""), "name", key.name)
    for news, time_s in reversed(newest):
        item = add(feed, "entry", "")
        add(item, "id", f"urn:sha256:{news.entry.leaf.hex()}:{news.number}")
        add(item, "title", describe(news.entry))
        add(item, "updated", _time(time_s))
        add(item, "content", _xml_text(news.text)).set("type", "text")
    return ElementTree.tostring(feed, "utf-8", xml_declaration=True) + b"\n"


def _xml_text(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join(
        c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" else "\ufffd" for c in text
    )


def _time(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def _write(file: Path, content: bytes) -> None:
    with refusing(UsageError, f"write {file}"):
        private_file.replace(file, content)
