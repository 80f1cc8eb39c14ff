"""Tables of texts: those that a question names, their changes and trends, and those that nobody listed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...device.ldp_client import Experiment
from ..errors import UsageError
from ..estimate.candidates import CandidateShares, place, shares_of, statistic_of
from ..estimate.discovery import MISTAKEN, Discovery, FoundText, discover
from ..estimate.estimate import Estimate, Estimates
from ..estimate.statistic import EstimateError
from ..experiments.answerable import require
from ..experiments.reading import LONGEST_TEXT
from ..hints import option
from . import change
from .answer import Answer, Frame
from .rows import CandidateRow, ChangeRow, FoundRow

OTHERS = "all others"
LESS_SURE = (
    "The interval of a row with texts holds {:g} times in 100. That of all others, and of all listed texts "
    "together, holds less often: a common text that is not listed may be counted in a listed one's row."
)
LESS_SURE_CHANGE = (
    "The interval of a row with texts holds at least {:g} times in 100. That of all others holds less often, "
    "and its p-value is too small more often: a common text that is not listed may be counted in a listed "
    "one's row."
)
MOST_SHOWN = 20
"""The default number of rows of a table."""
MOST_CANDIDATES = 1 << 20
LONGEST = LONGEST_TEXT
"""The number of bytes of a text that a board reads."""
MOST_TRENDS = 20
MORE = "…"
"""Added to a text that fills the last prefix, so that it may go on."""
_NAMED = 3  # texts that a row's name lists

Truth = Mapping[str, float] | None
"""The true share of every text, if a simulation knows it."""


def row_name(texts: Sequence[str]) -> str:
    """Return a row's name: its text, or all texts that share its slot."""
    if len(texts) <= _NAMED:
        return " or ".join(texts) if texts else OTHERS
    return " or ".join([*texts[: _NAMED - 1], f"{len(texts) - _NAMED + 1} more"])


def check_candidates(texts: Sequence[str]) -> None:
    """Raise UsageError for too many texts, or for one longer than the bytes that boards read."""
    if len(texts) > MOST_CANDIDATES:
        text = f"{len(texts):,} candidates are too many: ask for at most {MOST_CANDIDATES:,} at once"
        raise UsageError(text)
    for text in texts:
        size = len(text.encode(errors="surrogatepass"))
        if size > LONGEST:
            raise UsageError(
                f"a text has at most {LONGEST} bytes, as boards look at no more; {text[:20]}... has {size:,}"
            )


def _shares(texts: Iterable[str], of: Sequence[Estimates]) -> list[CandidateShares]:
    """Return the candidates' shares in each estimate, with the same rows in all."""
    named = list(texts)
    check_candidates(named)
    versions = [experiment for one in of for experiment in one.versions]
    require(versions, "candidates")
    candidates = place(named, versions)
    return [shares_of(one, candidates) for one in of]


def candidate_shares(
    estimates: Estimates, texts: Iterable[str], frame: Frame, truth: Truth = None, most: int = MOST_SHOWN
) -> Answer:
    """Return the shares of texts, the largest first, and last that of all others.

    Candidates that share a slot are one row.

    Args:
        estimates: The estimates.
        texts: The candidates.
        frame: The fields shared by the tables of one question.
        truth: The true shares of texts, if a simulation knows them.
        most: The number of rows to show.

    Raises:
        NotAnswered: If the experiment is not about texts.
        UsageError: As check_candidates().
        EstimateError: If a candidate is listed twice, or the candidates fill all slots.
    """
    (shares,) = _shares(texts, [estimates])
    p_values = shares.p_values.tolist()
    each = zip(shares.candidates.members, p_values, change.holm(p_values), strict=True)
    rows: list[CandidateRow] = []
    for i, (own, p, p_adjusted) in enumerate(each):
        numbers = (shares.listed[i].value, *shares.listed[i].interval(frame.confidence), _true(truth, own))
        tested = {"p": p, "p_adjusted": p_adjusted}
        rows.append(CandidateRow(row_name(own), *numbers, statistic=shares.listed[i], texts=own, **tested))
    rows.sort(key=lambda row: -row.value)
    others = None if truth is None else 1 - sum(row.truth or 0.0 for row in rows)
    last = CandidateRow(OTHERS, shares.others.value, *shares.others.interval(frame.confidence), others)
    note = _note(shares, rows, frame.confidence, most)
    return frame.answer("candidates", estimates, [*rows, last], note=note, most=most, less_sure=True)


def _true(truth: Truth, texts: Sequence[str]) -> float | None:
    return None if truth is None else sum(truth.get(text, 0.0) for text in texts)


def _note(shares: CandidateShares, rows: Sequence[CandidateRow], confidence: float, most: int) -> str:
    """Return notes on hidden rows, noise, collisions and texts that are not listed."""
    count, hidden = len(rows), _not_shown(len(rows), most)
    notes = [hidden] if hidden else []
    above = sum(row.p_adjusted is not None and row.p_adjusted < 1 - confidence for row in rows)
    if count > 1:
        noise = f"{above:,} of {count:,} rows are above what noise shows (p-value below {1 - confidence:.2g})"
        notes.append(f"{noise}. The p-values allow for {count:,} rows being compared.")
    together = sum(len(row.texts) > 1 for row in rows)
    if together:
        rows_name = "1 row names" if together == 1 else f"{together:,} rows name"
        notes.append(f"{rows_name} several texts that reports cannot tell apart: only their sum is known.")
    return "\n".join([*notes, _missed(shares), LESS_SURE.format(confidence * 100)])


def _not_shown(count: int, most: int) -> str:
    return f"{count - most:,} more rows are in the table's CSV or JSON file." if count > most > 0 else ""


def _missed(shares: CandidateShares) -> str:
    """Return a note on texts that nobody listed."""
    chance = f"{100 * (1 - shares.free):.2g}%"
    return (
        f"A text that is not listed is counted in some row with a chance of {chance}: list the common ones."
    )


def share_together(estimates: Estimates, texts: Iterable[str], frame: Frame, truth: Truth = None) -> Answer:
    """Return the share of devices with any of the texts, as one row.

    Raises:
        HushmoteError: As candidate_shares().
    """
    (shares,) = _shares(texts, [estimates])
    own, others = shares.candidates.texts, shares.others
    low, high = others.interval(frame.confidence)
    row = CandidateRow(row_name(own), 1 - others.value, 1 - high, 1 - low, _true(truth, own), texts=own)
    note = f"{_missed(shares)}\n{LESS_SURE.format(frame.confidence * 100)}"
    return frame.answer("candidates", estimates, [row], note=note, less_sure=True)


def changed_candidates(before: Estimates, after: Estimates, texts: Iterable[str], frame: Frame) -> Answer:
    """Return changes of the shares of texts, the most certain first, and of all others.

    Raises:
        HushmoteError: As candidate_shares().
    """
    old, new = _shares(texts, [before, after])
    rows: list[ChangeRow] = []
    for row, members in enumerate([*new.candidates.members, ()]):
        sides = statistic_of(old, row), statistic_of(new, row)
        rows.append(change.change_row(row_name(members), *sides, frame.confidence))
    answer = change.together(before, after, rows, frame)
    *listed, others = answer.rows
    listed.sort(key=lambda row: row.p if isinstance(row, ChangeRow) else 1.0)
    hidden = _not_shown(len(listed), MOST_SHOWN)
    note = "\n".join([*([hidden] if hidden else []), LESS_SURE_CHANGE.format(frame.confidence * 100)])
    return replace(answer, rows=(*listed, others), note=note, most=MOST_SHOWN, less_sure=True)


def candidates_over_time(windows: Mapping[str, Estimates], texts: Iterable[str], frame: Frame) -> Answer:
    """Return the shares of texts in each window.

    Raises:
        UsageError: As candidate_shares(), or if there are more than MOST_TRENDS texts.
        EstimateError: As candidate_shares(), or if there are fewer than two windows.
    """
    texts = list(texts)
    if len(texts) > MOST_TRENDS:
        text = f"a trend shows {MOST_TRENDS} texts at most, not {len(texts):,}"
        raise UsageError(f"{text}: name those that you want to follow, each with {option('range')}")
    each = _shares(texts, list(windows.values()))
    members = enumerate(each[0].candidates.members)
    by_name = {row_name(own): [statistic_of(shares, row) for shares in each] for row, own in members}
    return change.trend(windows, by_name, frame)


def discovered(estimates: Estimates, alphabet: str | None, frame: Frame, truth: Truth = None) -> Answer:
    """Return texts that nobody listed, the largest share first, with a note on those that were missed.

    Args:
        estimates: The estimates.
        alphabet: The characters of the texts, as for estimate.alphabet.characters(); printable ASCII if None.
        frame: The fields shared by the tables of one question.
        truth: The true shares of texts, if a simulation knows them.

    Raises:
        NotAnswered: If the experiment has another mechanism.
        EstimateError: If there are several versions, or the alphabet or the reports do not suffice.
    """
    require(estimates.versions, "discovery")
    if not isinstance(estimates, Estimate):
        text = (
            f"has reports of several versions, which are searched one by one: name one by {option('version')}"
        )
        raise EstimateError(f"{estimates.experiment.name} {text}")
    decoded = estimates.decoded
    discovery = discover(estimates.experiment, decoded.mechanism.expand(decoded.counts), alphabet)
    rows: list[FoundRow] = []
    for one, ends in zip(discovery.texts, discovery.intervals(frame.confidence), strict=True):
        name = (one.text or "(an empty text)") + ("" if one.whole else MORE)
        numbers = (one.share.value, *ends, _true_of(one, truth, estimates.experiment))
        rows.append(FoundRow(name, *numbers, text=one.text, whole=one.whole))
    return frame.answer("discovery", estimates, rows, note=_found_note(discovery))


def _true_of(found_text: FoundText, truth: Truth, experiment: Experiment) -> float | None:
    if truth is None:
        return None
    if experiment.type != "text":  # a custom type decides itself which texts are equal
        index = experiment.bucket(found_text.text)
        return sum(share for text, share in truth.items() if experiment.bucket(text) == index)
    if found_text.whole:
        return truth.get(found_text.text, 0)
    return sum(share for text, share in truth.items() if text.startswith(found_text.text))


def _found_note(discovery: Discovery) -> str:
    """Return a note on the limits of the list, and on the probability that nobody sent a text in it."""
    from_share = f"found about 9 times in 10 from a share of {100 * discovery.least:.2g}% on."
    hidden = ""
    if discovery.hidden:
        share = f"{100 * discovery.hidden_share:.2g}%"
        hidden = f"\nTexts that could not be spelled out hold {share}: do they have other letters?"
    if discovery.left_out:
        one = "1 text is" if discovery.left_out == 1 else f"{discovery.left_out} texts are"
        hidden += f"\n{one} left out: reports cannot tell them apart from others."
    if not discovery.texts:
        return f"No text stands out; one is {from_share}{hidden}"
    came = f"{discovery.candidate_count} texts were considered, whether anyone sent them or not"
    sure = f"Chance lists a text that nobody sent in {100 * MISTAKEN:g} of 100 such tables at most."
    goes_on = "" if all(one.whole for one in discovery.texts) else f" What ends with {MORE} may go on."
    listed = f"{came}: {len(discovery.texts)} of them are listed. A text is {from_share}"
    return f"{listed}{hidden}\n{sure}{goes_on}"
