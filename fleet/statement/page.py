"""A statement as one HTML file that loads nothing; the label is its first page, also in print."""

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from ...server.plain_text import visible
from ...server.words.label import LANGUAGES, Phrase, Words, words_in

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: fleet {fleet}</title>
<style>
{css}</style>
<main>
<article class="label"{language}>
<h1>{title}</h1>
{label}
</article>
{download}{chapters}
</main>
</html>
"""
_BEGINNINGS = {"[For a lawyer: ", *(mark for name in LANGUAGES for mark in words_in(name).marks())}
_MARKED = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(_BEGINNINGS)))})[^\]]*\]")

_REGISTRY, _FILES = "Registry of deployments", "Files on a device"  # titles of chapters
_CODE = re.compile(r"`([^`<]+)`")


def html(whole: Mapping[str, Any], news: str = "", download: str = "", log: str = "") -> str:
    """Return the page of a statement, signed or unsigned, as document.sign() returns it.

    Args:
        whole: The statement.
        news: What has changed since, for a web site.
        download: The URL of the statement itself, for a web site.
        log: The URL of the log of questions, likewise; "" if there is none.
    """
    statement = whole["statement"]
    words = words_of(statement)
    title, day = words.texts["title"], datetime.date.fromisoformat(statement["made_at"][:10])
    issued_by = words.write(
        Phrase.of("made", fleet=statement["fleet"], day=day, version=statement["hushmote"])
    )
    label = [f'<p class="of">{_text(issued_by)}</p>', f"<p><mark>{_text(news)}</mark></p>" if news else ""]
    for question, answers in statement["label"].items():
        paragraphs = "\n".join(f"<p>{_text(answer)}</p>" for answer in answers)
        label.append(f"<section>\n<h2>{_text(question)}</h2>\n{paragraphs}\n</section>")
    chapters = [
        _chapter(c["title"], c["about"], map(_table, c["tables"])) for c in statement.get("chapters", ())
    ]
    files, signature = _files(statement), _signature(whole)
    if chapters:
        chapters = [_overview(statement, words, files), *chapters, _registry(statement["registry"])]
    # A printed statement must show everything; on the web, the key to compare is enough.
    chapters += [_key(whole), _details(files, signature)] if download else [files, signature]
    language = "" if words.language == "en" else f' lang="{words.language}"'
    links = [f'<a href="{escape(download)}" download>{words.texts["download"]}</a>']
    links += [f'<a href="{escape(log)}">{words.texts["log"]}</a>'] if log else []
    link = f'<p class="of"{language}>{" · ".join(links)}</p>\n'
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return _PAGE.format(
        title=title,
        language=language,
        fleet=_text(statement["fleet"]),
        css=css,
        label="\n".join(label),
        download=link if download else "",
        chapters="\n".join(chapters),
    )


def words_of(statement: Mapping[str, Any]) -> Words:
    """Return the words in a statement's language; raise KeyError for an unknown one."""
    return {name: words_in(name) for name in LANGUAGES}[statement.get("language", "en")]


def _text(text: str) -> str:
    """Return a text as HTML, with commands as code and the parts that someone has to fill in marked."""
    marked = _MARKED.sub(lambda match: f"<mark>{match[0]}</mark>", escape(visible(text)))
    return _CODE.sub(r"<code>\1</code>", marked)


def _chapter(title: str, about: str, parts: Iterable[str]) -> str:
    inside = f"<h2>{_text(title)}</h2>\n<p>{_text(about)}</p>\n" + "\n".join(parts)
    return f'<section class="chapter" id="{_anchor(title)}">\n{inside}\n</section>'


def _anchor(title: str) -> str:
    """Return the id of a chapter, from its title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _overview(statement: Mapping[str, Any], words: Words, files: str) -> str:
    """Return a list of the chapters, with the number of passages that someone has to fill in."""
    about = (
        "Highlighted passages are missing: each says who can write it, and what belongs there. Everything "
        "else comes from the store, the firmware and this package."
    )
    english = words_in("en").marks()
    parts = [(words.texts["title"], statement["label"], words.marks())]
    parts += [(chapter["title"], chapter, english) for chapter in statement["chapters"]]
    registry = json.dumps(statement["registry"], ensure_ascii=False)
    parts += [
        (_REGISTRY, registry, english),
        (_FILES, files, english),
        ("Signature", "", english),
    ]
    rows = [[title, _missing(part, ("[For a lawyer: ", *marks))] for title, part, marks in parts]
    table = {
        "title": "Chapters and missing passages",
        "headings": ("chapter", "left to write"),
        "rows": rows,
        "note": "",
    }
    linked = (_link_titles(_table(table), [title for title, _, _ in parts[1:]]),)
    return _chapter("Contents, and what is left to write", about, linked)


def _link_titles(table: str, titles: Iterable[str]) -> str:
    """Return a table with a link from each title in its first column to the chapter."""
    for title in map(_text, titles):
        table = table.replace(
            f"<tr><td>{title}</td>", f'<tr><td><a href="#{_anchor(title)}">{title}</a></td>', 1
        )
    return table


def _missing(part: Any, marks: Iterable[str]) -> str:
    """Return how many passages of a part are missing, for each of those who can write them."""
    writers = zip(("a lawyer", "the maker", "the question's owner"), marks, strict=True)
    return ", ".join(f"{n} by {writer}" for writer, mark in writers if (n := _count(part, mark))) or "nothing"


def _count(value: Any, mark: str) -> int:
    """Return how often a mark occurs in the texts of a value."""
    if isinstance(value, str):
        return value.count(mark)
    return sum(_count(inner, mark) for inner in (value.values() if isinstance(value, Mapping) else value))


def _cell(text: str) -> str:
    """Return a cell of a table; the id of a test may be broken after its separators."""
    if not text.startswith("tests/"):
        return f"<td>{_text(text)}</td>"
    parts = re.sub(r"(/|::|_)", r"\1<wbr>", _text(text))
    return f'<td class="test">{parts}</td>'


def _table(table: Mapping[str, Any]) -> str:
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table["rows"])
    head = "".join(f"<th>{_text(heading)}</th>" for heading in table["headings"])
    note = f'<p class="note">{_text(table["note"])}</p>' if table["note"] else ""
    return f"<h3>{_text(table['title'])}</h3>\n<table>\n<tr>{head}</tr>\n{rows}\n</table>\n{note}"


def _registry(entries: Iterable[Mapping[str, Any]]) -> str:
    about = (
        "An entry for the Differential Privacy Deployments Registry for each question, in its schema. JSON "
        "is valid YAML: fill in the marked parts, and propose the entry as deployments/NAME.yaml."
    )
    texts = (json.dumps(entry, indent=2, ensure_ascii=False) for entry in entries)
    return _chapter(_REGISTRY, about, (f"<pre>{_text(text)}</pre>" for text in texts))


def _files(statement: Mapping[str, Any]) -> str:
    """Return the chapter on the files; only a whole statement marks what is missing there."""
    files, is_whole = statement["board_files"], "chapters" in statement
    rows = [[f["path"], f"{f['bytes']:,}", f["sha256"]] for f in files]
    if is_whole and not any(f["path"] == "/main" for f in files):
        rows.append(["/main", "", "[For the maker: the application; name its main.py with --policy]"])
    version = statement.get("micropython", "")
    if version or is_whole:
        rows.append(["MicroPython", "", version or "[For the maker: its version, with --micropython]"])
    table = {
        "title": "Files",
        "headings": ("on the device", "bytes", "SHA-256 of the source, or version"),
        "rows": rows,
        "note": "",
    }
    about = (
        "The sources of a device's software, which it stores compiled, or as source with `flash --source`."
    )
    return _chapter(_FILES, about, (_table(table),))


def _key(whole: Mapping[str, Any]) -> str:
    """Return the key to compare with that of a device, or "" if the statement is unsigned."""
    if "unsigned" in whole:
        return ""
    about = (
        "Compare this key with the announce key on one of the fleet's devices. If they are the same, the "
        "devices trust whoever signed this statement."
    )
    key = f"<p><code>{_text(whole['announce_key'])}</code></p>"
    return _chapter("The fleet's announce key", about, (key,))


def _details(*chapters: str) -> str:
    parts = "\n".join(chapters)
    return f'<details class="chapter">\n<summary>Signature and files</summary>\n{parts}\n</details>'


def _signature(whole: Mapping[str, Any]) -> str:
    if "unsigned" in whole:
        return _chapter("Signature", f"This statement is unsigned: {whole['unsigned']}.", ())
    about = (
        "This statement's JSON is signed; `hushmote statement verify --announce-key` checks the "
        "signature and the files. Take the key from one of the fleet's devices, not from here."
    )
    key, signature = whole["announce_key"], whole["signature"]
    rows = [["the fleet's announce key", key], ["ECDSA P-256, r and s", signature]]
    table = {"title": "Signature", "headings": ("field", "value"), "rows": rows, "note": ""}
    return _chapter("Signature", about, (_table(table),))
