"""Tables of texts: shares of listed texts, their changes and trends, and discovered texts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...device.ldp_client import Experiment
from ..errors import UsageError
from ..estimate.candidates import CandidateShares, place_candidates, shares_of, statistic_of
from ..estimate.discovery import MAX_FALSE_CHANCE, Discovery, FoundText, discover
from ..estimate.estimate import Estimate, Estimates
from ..estimate.statistic import DoesNotFit
from ..experiments.answerable import require
from ..experiments.reading import LONGEST_TEXT
from ..hints import option
from . import change
from .answer import Answer, Frame
from .rows import CandidateRow, ChangeRow, FoundRow

OTHERS = "all others"
LESS_SURE_NOTE = (
    "The interval of a row with texts is right {:g} times in 100. The intervals of all others and of all "
    "listed texts together are less reliable, because a common unlisted text may be counted in a listed "
    "one's row."
)
LESS_SURE_CHANGE_NOTE = (
    "The interval of a row with texts is right at least {:g} times in 100. The interval of all others is "
    "less reliable, and its p-value tends to be too small: a common unlisted text may be counted in a listed "
    "one's row."
)
MAX_SHOWN = 20
"""The default number of rows in a table."""
MAX_CANDIDATES = 1 << 20
LONGEST = LONGEST_TEXT
"""The maximum length of a text, in bytes; boards ignore the rest."""
MAX_TRENDS = 20
MORE = "…"
"""Appended to a text that fills the last prefix and may continue."""
_MAX_NAMES = 3  # texts that a row's name lists

Truth = Mapping[str, float] | None
"""The true share of each text, if known from a simulation."""


def row_name(texts: Sequence[str]) -> str:
    """Return a row's name: its text, or all texts that share its slot."""
    if len(texts) <= _MAX_NAMES:
        return " or ".join(texts) if texts else OTHERS
    return " or ".join([*texts[: _MAX_NAMES - 1], f"{len(texts) - _MAX_NAMES + 1} more"])


def check_candidates(texts: Sequence[str]) -> None:
    """Raise UsageError if there are too many texts, or if one exceeds the length that boards read."""
    if len(texts) > MAX_CANDIDATES:
        text = f"{len(texts):,} candidates are too many; list at most {MAX_CANDIDATES:,} at once"
        raise UsageError(text)
    for text in texts:
        size = len(text.encode(errors="surrogatepass"))
        if size > LONGEST:
            raise UsageError(
                f"a text can have at most {LONGEST} bytes because boards ignore the rest; "
                f"{text[:20]}... has {size:,}"
            )


def _shares(texts: Iterable[str], estimates: Sequence[Estimates]) -> list[CandidateShares]:
    """Return the candidates' shares in each estimate, all with the same rows."""
    named = list(texts)
    check_candidates(named)
    versions = [experiment for estimate in estimates for experiment in estimate.versions]
    require(versions, "candidates")
    candidates = place_candidates(named, versions)
    return [shares_of(estimate, candidates) for estimate in estimates]


def candidate_shares(
    estimates: Estimates, texts: Iterable[str], frame: Frame, truth: Truth = None, most: int = MAX_SHOWN
) -> Answer:
    """Return the shares of texts, largest first, followed by the share of all others.

    Candidates that share a slot form a single row.

    Args:
        estimates: The estimates.
        texts: The candidates.
        frame: The fields shared by the tables of one question.
        truth: The true shares of texts, if known from a simulation.
        most: The number of rows to show.

    Raises:
        UnanswerableError: If the experiment is not about texts.
        UsageError: In the same cases as check_candidates().
        EstimateError: If a candidate is listed twice, or the candidates fill all slots.
    """
    (shares,) = _shares(texts, [estimates])
    p_values = shares.p_values.tolist()
    candidates = zip(shares.candidates.members, p_values, change.holm(p_values), strict=True)
    rows: list[CandidateRow] = []
    for i, (members, p, p_adjusted) in enumerate(candidates):
        numbers = (
            shares.listed[i].value,
            *shares.listed[i].interval(frame.confidence),
            _true_share(truth, members),
        )
        tested = {"p": p, "p_adjusted": p_adjusted}
        rows.append(
            CandidateRow(row_name(members), *numbers, statistic=shares.listed[i], texts=members, **tested)
        )
    rows.sort(key=lambda row: -row.value)
    others = None if truth is None else 1 - sum(row.truth or 0.0 for row in rows)
    last = CandidateRow(OTHERS, shares.others.value, *shares.others.interval(frame.confidence), others)
    note = _note(shares, rows, frame.confidence, most)
    return frame.answer("candidates", estimates, [*rows, last], note=note, most=most, less_sure=True)


def _true_share(truth: Truth, texts: Sequence[str]) -> float | None:
    return None if truth is None else sum(truth.get(text, 0.0) for text in texts)


def _note(shares: CandidateShares, rows: Sequence[CandidateRow], confidence: float, most: int) -> str:
    """Return notes on hidden rows, noise, collisions and unlisted texts."""
    count, hidden = len(rows), _hidden_note(len(rows), most)
    notes = [hidden] if hidden else []
    above = sum(row.p_adjusted is not None and row.p_adjusted < 1 - confidence for row in rows)
    if count > 1:
        noise = f"{above:,} of {count:,} rows stand out from the noise (p-value below {1 - confidence:.2g})"
        notes.append(f"{noise}. The p-values account for the comparison of {count:,} rows.")
    merged_rows = sum(len(row.texts) > 1 for row in rows)
    if merged_rows:
        rows_name = "1 row names" if merged_rows == 1 else f"{merged_rows:,} rows name"
        notes.append(
            f"{rows_name} several texts that the reports cannot tell apart; only their total is known."
        )
    return "\n".join([*notes, _missed_note(shares), LESS_SURE_NOTE.format(confidence * 100)])


def _hidden_note(count: int, most: int) -> str:
    return f"{count - most:,} more rows are in the table's CSV or JSON file." if count > most > 0 else ""


def _missed_note(shares: CandidateShares) -> str:
    """Return a note on unlisted texts."""
    chance = f"{100 * (1 - shares.min_free_fraction):.2g}%"
    return f"An unlisted text has a chance of {chance} of being counted in some row, so list the common ones."


def share_together(estimates: Estimates, texts: Iterable[str], frame: Frame, truth: Truth = None) -> Answer:
    """Return the share of devices with any of the texts, as a single row.

    Raises:
        HushmoteError: In the same cases as candidate_shares().
    """
    (shares,) = _shares(texts, [estimates])
    listed, others = shares.candidates.texts, shares.others
    low, high = others.interval(frame.confidence)
    row = CandidateRow(
        row_name(listed), 1 - others.value, 1 - high, 1 - low, _true_share(truth, listed), texts=listed
    )
    note = f"{_missed_note(shares)}\n{LESS_SURE_NOTE.format(frame.confidence * 100)}"
    return frame.answer("candidates", estimates, [row], note=note, less_sure=True)


def changed_candidates(before: Estimates, after: Estimates, texts: Iterable[str], frame: Frame) -> Answer:
    """Return the changes in the shares of texts, the most certain first, and of all others.

    Raises:
        HushmoteError: In the same cases as candidate_shares().
    """
    old, new = _shares(texts, [before, after])
    rows: list[ChangeRow] = []
    for row, members in enumerate([*new.candidates.members, ()]):
        sides = statistic_of(old, row), statistic_of(new, row)
        rows.append(change.change_row(row_name(members), *sides, frame.confidence))
    answer = change.change_table(before, after, rows, frame)
    *listed, others = answer.rows
    listed.sort(key=lambda row: row.p if isinstance(row, ChangeRow) else 1.0)
    hidden = _hidden_note(len(listed), MAX_SHOWN)
    note = "\n".join([*([hidden] if hidden else []), LESS_SURE_CHANGE_NOTE.format(frame.confidence * 100)])
    return replace(answer, rows=(*listed, others), note=note, most=MAX_SHOWN, less_sure=True)


def candidates_over_time(windows: Mapping[str, Estimates], texts: Iterable[str], frame: Frame) -> Answer:
    """Return the shares of texts in each window.

    Raises:
        UsageError: In the same cases as candidate_shares(), or if there are more than MAX_TRENDS texts.
        EstimateError: In the same cases as candidate_shares(), or if there are fewer than two windows.
    """
    texts = list(texts)
    if len(texts) > MAX_TRENDS:
        text = f"a trend can show at most {MAX_TRENDS} texts, not {len(texts):,}"
        raise UsageError(f"{text}; name the ones to follow, each with {option('range')}")
    shares_by_window = _shares(texts, list(windows.values()))
    members = enumerate(shares_by_window[0].candidates.members)
    by_name = {
        row_name(own): [statistic_of(shares, row) for shares in shares_by_window] for row, own in members
    }
    return change.trend(windows, by_name, frame)


def discovery_table(estimates: Estimates, alphabet: str | None, frame: Frame, truth: Truth = None) -> Answer:
    """Return discovered texts, largest share first, with a note on texts that may have been missed.

    Args:
        estimates: The estimates.
        alphabet: The characters of the texts, as for estimate.alphabet.characters(); printable ASCII if None.
        frame: The fields shared by the tables of one question.
        truth: The true shares of texts, if known from a simulation.

    Raises:
        UnanswerableError: If the experiment uses another mechanism.
        DoesNotFit: If there are several versions.
        EstimateError: If the alphabet or the reports are insufficient.
    """
    require(estimates.versions, "discovery")
    if not isinstance(estimates, Estimate):
        text = f"has reports of several versions, which must be searched separately; use {option('version')}"
        raise DoesNotFit(f"{estimates.experiment.name} {text}")
    decoded = estimates.decoded
    discovery = discover(estimates.experiment, decoded.mechanism.expand(decoded.counts), alphabet)
    rows: list[FoundRow] = []
    for one, ends in zip(discovery.texts, discovery.intervals(frame.confidence), strict=True):
        name = (one.text or "(an empty text)") + ("" if one.whole else MORE)
        numbers = (one.share.value, *ends, _true_share_of(one, truth, estimates.experiment))
        rows.append(FoundRow(name, *numbers, text=one.text, whole=one.whole))
    return frame.answer("discovery", estimates, rows, note=_found_note(discovery))


def _true_share_of(found_text: FoundText, truth: Truth, experiment: Experiment) -> float | None:
    if truth is None:
        return None
    if experiment.type != "text":  # a custom type determines which texts are equal
        index = experiment.bucket(found_text.text)
        return sum(share for text, share in truth.items() if experiment.bucket(text) == index)
    if found_text.whole:
        return truth.get(found_text.text, 0)
    return sum(share for text, share in truth.items() if text.startswith(found_text.text))


def _found_note(discovery: Discovery) -> str:
    """Return a note on the limits of the list, and on the chance that it contains a text that nobody sent."""
    from_share = f"found about 9 times in 10 if its share is at least {100 * discovery.min_share:.2g}%."
    hidden = ""
    if discovery.hidden:
        share = f"{100 * discovery.hidden_share:.2g}%"
        hidden = f"\nTexts that could not be decoded account for {share}; they may contain other characters."
    if discovery.left_out:
        subject = "1 text is" if discovery.left_out == 1 else f"{discovery.left_out} texts are"
        hidden += f"\n{subject} omitted because the reports cannot tell them apart from others."
    if not discovery.texts:
        return f"No text stands out. A text is {from_share}{hidden}"
    considered = f"{discovery.candidate_count} texts were considered, whether or not anyone sent them"
    sure = f"At most {100 * MAX_FALSE_CHANCE:g} of 100 such tables list a text that nobody sent."
    continuation = (
        "" if all(text.whole for text in discovery.texts) else f" A text that ends with {MORE} may continue."
    )
    listed = f"{considered}; {len(discovery.texts)} of them are listed. A text is {from_share}"
    return f"{listed}{hidden}\n{sure}{continuation}"
