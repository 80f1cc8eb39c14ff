"""Texts that nobody listed beforehand: a table of those found, and what could not be found."""

from __future__ import annotations

from collections.abc import Mapping

from ..estimate.discovery import MISTAKEN, Discovery, FoundText, discover
from ..estimate.estimate import Estimate, Estimates
from ..estimate.statistic import EstimateError
from ..experiments.asking import require
from .answer import Answer
from .rows import CONFIDENCE, FoundRow

MORE = "…"
"""Behind a text that fills the last prefix, so that it may go on."""


def discovered(
    estimates: Estimates,
    alphabet: str | None = None,
    confidence: float = CONFIDENCE,
    truth: Mapping[str, float] | None = None,
) -> Answer:
    """The texts found, the largest share first.

    alphabet: what texts are made of, see estimate.alphabet.characters(); printable ASCII if None. truth: the
    share of every text there is, where it is known. Raises NotAnswered for an experiment of another
    mechanism, EstimateError for several versions at once and for an alphabet or reports that do not do.
    """
    require(estimates.versions, "discovery")
    experiment = estimates.experiment
    if not isinstance(estimates, Estimate):
        raise EstimateError(
            f"{experiment.name} has reports of several versions, which are searched one by one: name one "
            "by --version"
        )
    decoded = estimates.decoded
    found = discover(experiment, decoded.mechanism.expand(decoded.counts), alphabet)
    ends = found.intervals(confidence)
    rows = tuple(
        FoundRow(_name(one), one.share.value, low, high, _true(one, truth), text=one.text, whole=one.whole)
        for one, (low, high) in zip(found.found, ends, strict=True)
    )
    common = (experiment.name, "share", "", estimates.reports, confidence, rows)
    return Answer("discovery", *common, _note(found))


def _name(found: FoundText) -> str:
    return (found.text or "(an empty text)") + ("" if found.whole else MORE)


def _true(found: FoundText, truth: Mapping[str, float] | None) -> float | None:
    if truth is None:
        return None
    return sum(share for text, share in truth.items() if text == found.text or _goes_on(found, text))


def _goes_on(found: FoundText, text: str) -> bool:
    return not found.whole and text.startswith(found.text)


def _note(found: Discovery) -> str:
    """What has to be known of the list: what is not in it, and how sure it is that what is in it was sent."""
    from_share = f"found about 9 times in 10 from a share of {100 * found.least:.2g} % on."
    if not found.found:
        return f"No text stands out; one is {from_share}{_hidden(found)}"
    came = f"{found.stated} texts came to the last level, whether anybody sent them or not"
    sure = f"Chance lists a text that nobody sent in {100 * MISTAKEN:g} of 100 such tables at most."
    goes_on = "" if all(one.whole for one in found.found) else f" What ends with {MORE} may go on."
    listed = f"{came}: {len(found.found)} of them are listed. A text is {from_share}"
    return f"{listed}{_hidden(found)}\n{sure}{goes_on}"


def _hidden(found: Discovery) -> str:
    """What was sent and has no name."""
    if not found.hidden:
        return ""
    slots = "1 slot holds" if found.hidden == 1 else f"{found.hidden} slots hold"
    return f"\n{slots} {100 * found.hidden_share:.2g} % that no candidate explains: other letters?"
