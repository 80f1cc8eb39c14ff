"""Properties of a channel, proven from the exact distributions of codes that the board's program draws."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ...server.epsilon import MICRO
from ...server.mechanisms import Mechanism
from .cases import Case
from .exact import EnumerationError, exp_below, log, worst

_SAME = 1e-12  # tolerance for sums of floats
_RELATIVE = 1e-9


class PropertyBroken(Exception):
    """Raised if a property does not hold; the message contains the numbers."""


class NotApplicable(Exception):
    """Raised if a property does not apply or cannot be checked here; the message says why."""


def private(case: Case) -> str:
    """Check that no code is more than e^ε times likelier for one index, or for no reading, than another."""
    max_epsilon = case.experiment.epsilon
    try:
        pair = worst(case.exact)
    except EnumerationError as e:
        raise PropertyBroken(str(e)) from None
    inputs = f"for {_input(pair.likeliest)} and for {_input(pair.least_likely)}"
    if pair.ratio is None:
        raise PropertyBroken(f"code {pair.output} is possible {inputs.replace(' and ', ' and impossible ')}")
    if pair.ratio > exp_below(max_epsilon):
        excess = float(log(pair.ratio) * MICRO - max_epsilon) / MICRO
        raise PropertyBroken(
            f"code {pair.output} is e^(ε + {excess:.2g}) times likelier {inputs.replace(' and ', ' than ')}"
        )
    spare = float(max_epsilon - log(pair.ratio) * MICRO) / MICRO
    return f"at most e^(ε - {spare:.1g})"


def _input(index: int | None) -> str:
    return "no reading" if index is None else f"index {index}"


def codes(case: Case) -> str:
    """Check that every code is an integer in range(code_count), and is drawn if it has a chance."""
    count = case.experiment.code_count
    possible = {code for chances in case.exact.values() for code in chances}
    for code in possible:
        if type(code) is not int or not 0 <= code < count:
            raise PropertyBroken(f"{code!r:.40} is not an integer in range({count})")
    possible_codes = [range(s.first, s.first + s.codes) for s in case.mechanism.strata if s.chance]
    missing = sum(map(len, possible_codes)) - sum(
        code in codes for codes in possible_codes for code in possible
    )
    if missing:
        first = next(code for codes in possible_codes for code in codes if code not in possible)
        raise PropertyBroken(f"{missing:,} of {count:,} codes are never drawn, for example code {first}")
    return f"{count} codes"


def draws(case: Case) -> str:
    """Check that the draws and their order do not depend on the index."""
    first = case.draws[0]
    for index in case.indices:
        if case.draws[index] != first:
            lengths = _lengths(case.draws[index]), _lengths(first)
            if lengths[0] != lengths[1]:
                raise PropertyBroken(f"index {index} takes {lengths[0]} draws, index 0 takes {lengths[1]}")
            raise PropertyBroken(f"index {index} draws different numbers from index 0, or in another order")
    return f"{_lengths(first)} draws"


def _lengths(sequences: dict[Any, Fraction]) -> str:
    lengths = sorted({len(sequence) for sequence in sequences})
    return str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"


def law(case: Case) -> str:
    """Check that the mechanism's law is the exact distribution, for each index and for no reading."""
    mechanism, domain = case.mechanism, case.experiment.domain
    off = 0.0
    for index in range(domain + 1):
        alone = np.full(domain, 1 / domain) if index == domain else np.eye(1, domain, index)[0]
        claim = mechanism.code_law(alone)
        need_shape(claim, (case.experiment.code_count,), "code_law")
        difference = np.abs(claim - case.channel[:, index])
        code = int(difference.argmax())
        if not difference[code] <= _SAME:
            reading = "no reading" if index == domain else f"index {index}"
            real = case.channel[code, index]
            raise PropertyBroken(
                f"code {code} has probability {real:.9g} for {reading}, law says {claim[code]:.9g}"
            )
        off = max(off, float(difference[code]))
    return f"differs by at most {off:.0e}"


def odds(case: Case) -> str:
    """Check that the odds are the exact worst-case ratio of two readings, and at most e^ε."""
    ratio = worst({index: case.exact[index] for index in case.indices}).ratio
    if ratio is None:
        raise PropertyBroken("odds cannot be finite: a code is impossible for some index")
    real, claim = float(ratio), case.mechanism.odds
    if not math.isclose(claim, real, rel_tol=_RELATIVE):
        raise PropertyBroken(f"the worst ratio is {real:.12g}, odds says {claim:.12g}")
    if math.log(claim) > case.experiment.epsilon / MICRO:
        raise PropertyBroken(f"odds says {claim:.12g}, which is above e^ε")
    return f"{real:.6g}"


def blanket(case: Case) -> str:
    """Check that the blanket claims no more for shuffled reports than the exact probabilities share.

    Lemma 5.3 of Balle et al. sums a number for each report that is drawn from the blanket. The claimed number
    must be above the exact one in the increasing convex order, for each two readings; it then is for any
    number of reports.
    """
    claim = case.mechanism.blanket()
    if claim is None:
        return "derived from its odds alone"
    odds, pair, whole = claim
    laws = case.channel[:, :-1]
    common = laws.min(axis=1)
    is_possible = common > 0
    if odds < case.mechanism.odds * (1 - _SAME) or laws[~is_possible].any():
        raise PropertyBroken(f"blanket claims odds of {odds:.9g}, but they are {case.mechanism.odds:.9g}")
    common, ratios = common[is_possible], laws[is_possible] / common[is_possible, None]
    for multiple in np.geomspace(1, odds, 9):
        bounds = np.array([odds - multiple, 1 - multiple * odds, 1 - multiple, 0.0])
        for index in case.indices:
            real = ratios[:, [index]] - multiple * ratios
            # The difference is largest at one of the claim's kinks, or below all kinks, where it equals the
            # difference of the means.
            for least in (*bounds, min(bounds.min(), real.min())):
                bound = np.maximum(bounds - least, 0) @ (pair, pair, whole - 2 * pair, 1 - whole)
                above = common @ np.maximum(real - least, 0) + max(-least, 0) * (1 - common.sum())
                other = int(above.argmax())
                if not above[other] <= bound + _RELATIVE * max(1.0, abs(bound)):
                    raise PropertyBroken(
                        f"indices {index} and {other} have less in common than blanket claims: {claim}"
                    )
    return f"odds {odds:.6g}, {pair:.3g} of {whole:.3g}"


def classes(case: Case) -> str:
    """Check that strata and runs do not depend on the reading, and codes of a class are equally likely."""
    mechanism, count = case.mechanism, case.experiment.code_count
    total = sum(mechanism.stratum_chances)
    if abs(total - 1) > _SAME:
        raise PropertyBroken(f"the strata's probabilities sum to {total:.12g}")
    covered = [code for s in mechanism.strata for code in range(s.first, s.first + s.codes)]
    if covered != list(range(count)):
        raise PropertyBroken(f"the strata cover {len(covered)} codes, not range({count}) in order")
    for number, stratum in enumerate(mechanism.strata):
        part = case.channel[stratum.first : stratum.first + stratum.codes]
        runs = part.reshape(stratum.runs, -1, part.shape[1]).sum(axis=1)
        if np.abs(runs - stratum.chance / stratum.runs).max() > _SAME:
            raise PropertyBroken(
                f"stratum {number}, or one of its runs, does not have the stated probability for some reading"
            )
    _check_collapse(case, mechanism)
    return f"{len(mechanism.strata)} strata, {mechanism.class_count} classes"


def _check_collapse(case: Case, mechanism: Mechanism) -> None:
    sizes = mechanism.class_sizes
    names = np.arange(sum(map(len, sizes)), dtype=float)
    class_of = mechanism.expand(np.split(names, np.cumsum([len(size) for size in sizes])[:-1]))
    need_shape(class_of, (case.experiment.code_count,), "expand")
    if len(np.unique(class_of)) != mechanism.class_count:
        raise PropertyBroken(
            f"class_count is {mechanism.class_count}, but expand has {len(np.unique(class_of))} classes"
        )
    for name in names:
        if np.ptp(case.channel[class_of == name], axis=0).max(initial=0) > _SAME:
            raise PropertyBroken(f"codes of class {name:g} are not equally likely")
    counts = np.random.default_rng(1).integers(0, 9, case.experiment.code_count)
    sums = np.bincount(class_of.astype(int), counts, len(names))
    collapsed = mechanism.collapse(counts)
    if [len(part) for part in collapsed] != [len(size) for size in sizes] or (
        np.concatenate(collapsed) != sums
    ).any():
        raise PropertyBroken("collapse and expand disagree on which codes form a class")


def lift(case: Case) -> str:
    """Check that the shortcuts for the rise of a belief and for the odds agree with law."""
    prior = case.shares
    short, general = case.mechanism.lift(prior), Mechanism.lift(case.mechanism, prior)
    need_close(short, general, "lift", _RELATIVE)
    general_odds = Mechanism.odds.fget
    assert general_odds is not None
    need_close(np.array(case.mechanism.odds), np.array(general_odds(case.mechanism)), "odds", _RELATIVE)
    return f"beliefs rise by a factor of at most {short.max():.4g}"


def fields(case: Case) -> str:
    """Check that the fields recreate the same experiment, with a description."""
    from ...server.experiments.payload import at_epsilon

    mechanism, experiment = case.mechanism, case.experiment
    parsed = at_epsilon(experiment, experiment.epsilon)
    other_fields = type(mechanism)(parsed).fields()
    if other_fields != mechanism.fields() or parsed.code_count != experiment.code_count:
        raise PropertyBroken(
            f"an experiment recreated from its fields has {parsed.code_count} codes and fields {other_fields}"
        )
    if not mechanism.words():
        raise PropertyBroken("words() is empty")
    return mechanism.words()


def need_shape(array: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    """Raise PropertyBroken unless the array has this shape."""
    if np.shape(array) != shape:
        raise PropertyBroken(f"{name} has shape {np.shape(array)}, not {shape}")


def need_close(
    short: np.ndarray, general: np.ndarray, name: str, relative: float, absolute: float = 0.0
) -> None:
    """Raise PropertyBroken if a shortcut differs from the result of law and weights."""
    need_shape(short, np.shape(general), name)
    off = np.abs(short - general) > absolute + relative * np.abs(general)
    if off.any() or not np.isfinite(short).all():
        at = tuple(int(i) for i in np.argwhere(off | ~np.isfinite(short))[0])
        raise PropertyBroken(f"{name} is {short[at]:.12g} where law and weights say {general[at]:.12g}")
