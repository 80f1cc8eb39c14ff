"""Texts that an experiment is asked about: a table of their shares, how they changed, how they went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..errors import UsageError
from ..estimate.candidates import CandidateShares, place, shares_of, statistic_of
from ..estimate.estimate import Estimates
from ..estimate.statistic import Statistic
from ..experiments.asking import require
from . import change
from .answer import Answer
from .rows import CONFIDENCE, CandidateRow, ChangeRow

OTHERS = "all others"
LESS_SURE = (
    "The interval of a row with texts holds {:g} times in 100. That of all others, and of all listed texts "
    "together, holds less often: it cannot know of a common text that hides in a listed one's slot."
)
MOST_SHOWN = 20
"""Rows of a table, where nobody says how many."""
MOST_CANDIDATES = 1 << 20
LONGEST = 255
"""Bytes of a text that a board looks at."""
MOST_TRENDS = 20
_NAMED = 3  # texts of one row that its name has


def row_name(texts: Sequence[str]) -> str:
    """What a row is called: its text, or all that share its slot."""
    if len(texts) <= _NAMED:
        return " or ".join(texts) if texts else OTHERS
    return " or ".join([*texts[: _NAMED - 1], f"{len(texts) - _NAMED + 1} more"])


def _shares(texts: Iterable[str], of: Sequence[Estimates]) -> list[CandidateShares]:
    """Of each estimate, in rows that are the same in all."""
    named = list(texts)
    if len(named) > MOST_CANDIDATES:
        raise UsageError(
            f"{len(named):,} candidates are too many: ask for at most {MOST_CANDIDATES:,} at once"
        )
    for text in named:
        size = len(text.encode(errors="surrogatepass"))
        if size > LONGEST:
            raise UsageError(
                f"a text has at most {LONGEST} bytes, as boards look at no more; {text[:20]}... has {size:,}"
            )
    versions = [experiment for one in of for experiment in one.versions]
    require(versions, "candidates")
    candidates = place(named, versions)
    return [shares_of(one, candidates) for one in of]


def candidate_shares(
    estimates: Estimates,
    texts: Iterable[str],
    confidence: float = CONFIDENCE,
    truth: Mapping[str, float] | None = None,
    most: int = MOST_SHOWN,
) -> Answer:
    """Shares of texts, the largest first, and last that of all others; candidates of one slot are one row.

    truth: the share of every text there is, where it is known. most: rows that are shown. Raises NotAnswered
    for another experiment, UsageError for too many texts, EstimateError where one is there twice, or where
    they fill the slots.
    """
    (shares,) = _shares(texts, [estimates])
    members, listed = shares.candidates.members, shares.listed
    low, high = listed.interval(confidence)
    p_values = shares.p_values.tolist()
    adjusted = change.holm(p_values)
    numbers = zip(
        listed.value.tolist(), low.tolist(), high.tolist(), p_values, adjusted, members, strict=True
    )
    rows = [
        CandidateRow(row_name(own), value, start, end, _true(truth, own), texts=own, p=p, p_adjusted=together)
        for value, start, end, p, together, own in numbers
    ]
    rows.sort(key=lambda row: -row.value)
    others = None if truth is None else 1 - sum(row.truth or 0.0 for row in rows)
    last = CandidateRow(OTHERS, shares.others.value, *shares.others.interval(confidence), others)
    experiment = estimates.experiment
    common = (experiment.name, "share", "", estimates.reports, confidence, (*rows, last))
    return Answer("candidates", *common, _note(shares, rows, confidence, most), most=most)


def _true(truth: Mapping[str, float] | None, texts: Sequence[str]) -> float | None:
    return None if truth is None else sum(truth.get(text, 0.0) for text in texts)


def _note(shares: CandidateShares, rows: Sequence[CandidateRow], confidence: float, most: int) -> str:
    """What has to be known of the rows: those that are not shown, noise, collisions, texts not listed."""
    count, hidden = len(rows), _hidden(len(rows), most)
    notes = [hidden] if hidden else []
    level = f"{1 - confidence:.2g}"
    above = sum(row.p_adjusted is not None and row.p_adjusted < 1 - confidence for row in rows)
    if count > 1:
        taken = f"p takes into account that {count:,} rows are looked at (Holm)"
        notes.append(f"{above:,} of {count:,} rows are above what noise shows (p < {level}); {taken}.")
    together = sum(len(row.texts) > 1 for row in rows)
    if together:
        are = "1 row has" if together == 1 else f"{together:,} rows have"
        notes.append(f"{are} several candidates, which share a slot: their sum is known, not each.")
    return "\n".join([*notes, _missed(shares), LESS_SURE.format(confidence * 100)])


def _hidden(count: int, most: int) -> str:
    return f"{count - most:,} more rows are in a CSV or JSON file: --output FILE." if count > most > 0 else ""


def _missed(shares: CandidateShares) -> str:
    """What becomes of texts that nobody listed."""
    chance = f"{100 * (1 - shares.free):.2g} %"
    return f"A text that is not listed is counted in a row with a chance of {chance}: list the common ones."


def share_together(
    estimates: Estimates,
    texts: Iterable[str],
    confidence: float = CONFIDENCE,
    truth: Mapping[str, float] | None = None,
) -> Answer:
    """The share that any of the texts has: one row. Errors as candidate_shares()."""
    (shares,) = _shares(texts, [estimates])
    own, others = shares.candidates.texts, shares.others
    low, high = others.interval(confidence)
    row = CandidateRow(row_name(own), 1 - others.value, 1 - high, 1 - low, _true(truth, own), texts=own)
    common = (estimates.experiment.name, "share", "", estimates.reports, confidence, (row,))
    return Answer("candidates", *common, f"{_missed(shares)}\n{LESS_SURE.format(confidence * 100)}")


def changed_candidates(
    before: Estimates, after: Estimates, texts: Iterable[str], confidence: float = CONFIDENCE
) -> Answer:
    """Changes of the shares of texts, the surest first, and of all others. Errors as candidate_shares()."""
    old, new = _shares(texts, [before, after])
    rows: list[ChangeRow] = []
    for row, members in enumerate([*new.candidates.members, ()]):
        sides = statistic_of(old, row), statistic_of(new, row)
        rows.append(change.change_row(row_name(members), *sides, confidence))
    answer = change.together(before, after, rows, quantity="share", unit="", confidence=confidence)
    *listed, others = answer.rows
    listed.sort(key=lambda row: row.p if isinstance(row, ChangeRow) else 1.0)
    return replace(answer, rows=(*listed, others), note=_hidden(len(listed), MOST_SHOWN), most=MOST_SHOWN)


def candidates_over_time(
    windows: Mapping[str, Estimates], texts: Iterable[str], confidence: float = CONFIDENCE
) -> Answer:
    """Shares of texts in each window.

    Errors as candidate_shares(), for fewer than two windows, and for more than MOST_TRENDS texts.
    """
    texts = list(texts)
    if len(texts) > MOST_TRENDS:
        text = f"a trend shows {MOST_TRENDS} texts at most, not {len(texts):,}"
        raise UsageError(f"{text}: name those that you want to follow, each with --range")
    each = _shares(texts, list(windows.values()))
    of = dict(zip(map(id, windows.values()), each, strict=True))

    def share(estimates: Estimates, row: int) -> Statistic:
        return statistic_of(of[id(estimates)], row)

    statistics = {
        row_name(members): partial(share, row=row) for row, members in enumerate(each[0].candidates.members)
    }
    return change.trend(windows, statistics, "share", "", confidence)
