"""A witness's page: one screen of text for someone whose device is asked."""

from __future__ import annotations

import datetime
import textwrap

from ...server.log.note import COSIGNATURE, ECDSA, SecretKey
from ...server.plain_text import one_line, shorten
from .rule import Record, Rule
from .state import Refusal, State

WIDTH = 79
_MOST_QUESTIONS = 8
_MOST_REFUSALS = 2
_MEANING = (
    "A board that requires this witness accepts only questions that are listed in the log, each as one "
    "version for everyone. The witness reads the log, never a report, and knows no device."
)


def describe(key: SecretKey, rule: Rule, state: State) -> str:
    """Return the page: what the witness has seen, when each question changed, and what it refused."""
    if state.checkpoint:
        signed = f"It last signed the log on {_moment(state.time)}, with {_entries(state.size)}."
    else:
        signed = "It has not signed the log yet."
    begun = f" The first {_entries(state.begun)} were accepted without a check." if state.begun else ""
    begun = begun.replace("The first 1 entry were", "The first entry was")
    parts = [
        f"Witness {key.name} of the log {rule.origin}",
        "",
        _filled(f"{signed}{begun}"),
        _filled(f"The witness signs {rule}."),
        "",
        *_questions(state),
        "",
        *_refusals(state),
        "",
        _filled(_MEANING),
        f"Key for logs    {key.public(COSIGNATURE)}",
        f"Key for boards  {key.public(ECDSA).value.hex()[:64]}",
        f"                {key.public(ECDSA).value.hex()[64:]}",
    ]
    return "\n".join(parts) + "\n"


def describe_refusal(refusal: Refusal) -> str:
    """Return a refusal as text: when, which size, and why."""
    return f"{_moment(refusal.time)}, size {refusal.size}: {one_line(refusal.reason)}."


def _questions(state: State) -> list[str]:
    if not state.records:
        return ["It has not seen any questions yet."]
    # The newest changes first.
    order = sorted(state.records.items(), key=lambda item: (-_last_change(item[1]), item[0]))
    lines = [f"{'Fleet / question':34} {'versions':>8}  newest version signed"]
    for (fleet, name), record in order[:_MOST_QUESTIONS]:
        day = _moment(_last_change(record)) if _last_change(record) else ""
        note = " (withdrawn)" if record.is_withdrawn else ""
        lines.append(f"{shorten(f'{fleet} / {name}', 34):34} {record.versions:8}  {day}{note}")
    more = len(order) - _MOST_QUESTIONS
    if more > 0:
        fleets = len({fleet for fleet, _ in state.records})
        lines.append(f"and {more} more, in {fleets} fleet{'s' * (fleets > 1)}")
    return lines


def _refusals(state: State) -> list[str]:
    if not state.refusals:
        return ["It has not refused anything."]
    newest = state.refusals[: -_MOST_REFUSALS - 1 : -1]
    title = "Refused, newest first"
    if state.refusals[-1].size <= state.size:
        title += " (it has signed since)"
    texts = (shorten(describe_refusal(refusal), 3 * WIDTH - 20) for refusal in newest)
    return [f"{title}:", *(_filled(text, "  ") for text in texts)]


def _last_change(record: Record) -> int:
    return max(*record.changes, *record.additions, 0, 0)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def _moment(time_s: int) -> str:
    moment = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=2 * indent,
        break_long_words=True,
        break_on_hyphens=False,
    )
