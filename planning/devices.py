"""Solves for one of devices, epsilon, domain and error, given the other three, and chooses a mechanism.

Every device reports once. The error is the half-width of the 95% interval: 1.96 standard errors, from
`expected_error.variance`. No formula is inverted: the number of devices follows from the variance, and
bisection finds the others among the possible values, so the result itself meets the target error. If the
choice of cells causes a jump, the answer errs on the safe side.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ..device.ldp_client import EPSILON_MAX
from ..server.epsilon import MICRO, check_epsilon
from ..server.errors import HushmoteError
from ..server.estimate.statistic import normal_quantile
from ..server.mechanisms.choose import choose
from ..server.mechanisms.workload import ALL_RANGES, FREQUENCIES, MEAN, PREFIXES, Workload, WorkloadError
from ..server.words.numbers import MAX_HALF_WIDTH
from .expected_error import Design, Question, missing_variance, variance, well_sampled

EPSILON_STEP = 1_000  # micro-nats, because planned epsilons have three decimals
MAX_DEVICES = 1 << 40
_USUAL = {
    "devices": "devices",
    "epsilon": "epsilon (2 is a common choice)",
    "domain": "values",
    "error": "error (0.01 is ±1 point)",
}
MAX_MISSING = 0.99
MIN_ERROR = 1e-9  # even MAX_DEVICES cannot reach an error within a factor of thousands of this
_MAX_EXACT_COUNT = 1 << 53  # above this, floats cannot represent every count
MAX_VALUES = 1 << 16  # a plan considers larger domains only on request
MAX_RANGE_VALUES = 1 << 12  # the same for ranges and quantiles
_MAX_PLACES = 64  # ranges of one width over which a mechanism is optimized

CONFIDENCE = 0.95
Z = normal_quantile(CONFIDENCE)


class PlanError(HushmoteError):
    """Raised if a plan is impossible; the message says what is possible.

    Attributes:
        field: The field of the request to change, or "".
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True)
class Plan:
    """The accuracy of n devices with one report each.

    Attributes:
        question: The question.
        devices: The number of devices.
        design: The mechanism.
        solved: The quantity that was solved for: devices, epsilon, domain or error.
        target_error: The requested half-width, or None if the error was solved.
    """

    question: Question
    devices: int
    design: Design
    solved: str
    target_error: float | None

    @property
    def epsilon(self) -> float:
        """ε of a report, in nats."""
        return self.design.epsilon / MICRO

    @property
    def stderr(self) -> float:
        """The standard error, in the unit of `error`."""
        return math.sqrt(variance(self.design, self.question) / self.devices)

    @property
    def error(self) -> float:
        """The half-width of the 95% interval: a share of devices or, for a mean, a fraction of the range."""
        return Z * self.stderr


def workload_of(question: Question, domain: int) -> Workload:
    """Return the workload of a question, for the choice of a mechanism."""
    if question.kind == "frequency":
        return FREQUENCIES
    if question.kind == "quantile":
        return PREFIXES
    if question.kind == "mean":
        return MEAN
    if question.ranges:
        return Workload.of(question.ranges)
    if question.width:
        places = domain - question.width + 1
        step = -(-places // _MAX_PLACES) | 1  # odd, so that it does not align with a tree's nodes
        return Workload.of((low, low + question.width) for low in range(0, places, step))
    return ALL_RANGES


@lru_cache(maxsize=4096)
def best_design(domain: int, epsilon: int, question: Question) -> Design:
    """Return the design with the least error for a question.

    The design that `choose` finds is best for a population without common values. If a value is common, or
    half of the devices are in a range, other cells or asking for the value itself may be better, so this
    tries both.

    Args:
        domain: The number of values.
        epsilon: ε of a report, in micro-nats.
        question: The question.

    Raises:
        PlanError: If no mechanism fits.
    """
    try:
        choice = choose(
            _indices(domain, question), epsilon, workload_of(question, domain), *_missing(question)
        )
        design = Design(domain, epsilon, choice, question.missing)
    except (ValueError, WorkloadError) as e:
        raise PlanError(str(e)) from None
    if design.indices == 2:
        return design
    exact = [d for d in _flat_designs(domain, epsilon, question) if well_sampled(d, question)]
    # In a tie, prefer the design that asks for the value itself, as a one-level tree also does.
    return min([*exact, design], key=lambda d: float(f"{variance(d, question):.9g}"))


def _flat_designs(domain: int, epsilon: int, question: Question) -> list[Design]:
    """Return the best designs that ask for the value itself, at the question's share or at sample shares."""
    shares = (question.share,) if question.kind == "frequency" else (0.0, 0.5)
    choices = []
    for share in shares:
        with contextlib.suppress(ValueError):
            workload = Workload("frequencies", share=share)
            choices.append(choose(_indices(domain, question), epsilon, workload, *_missing(question)))
    return [Design(domain, epsilon, choice, question.missing) for choice in dict.fromkeys(choices)]


def _indices(domain: int, question: Question) -> int:
    return domain + (question.missing is not None)


def _missing(question: Question) -> tuple[bool, ...]:
    return (True,) if question.missing is not None else ()


def half_width(n: float, design: Design, question: Question) -> float:
    """Return the half-width of the 95% interval with n reports, as in Plan.error; infinite for n = 0."""
    return Z * math.sqrt(variance(design, question) / n) if n > 0 else math.inf


def missing_half_width(design: Design, n: float) -> float:
    """Return the half-width of the 95% interval of the share without a reading, with n reports."""
    return Z * math.sqrt(missing_variance(design) / n) if n > 0 else math.inf


def devices_for(design: Design, question: Question, error: float, reports_each: float = 1.0) -> int:
    """Return the smallest number of devices (at least 2) with `reports_each` reports that reach `error`."""
    n = max(2, math.ceil(variance(design, question) * (Z / error) ** 2 / reports_each))
    if n > _MAX_EXACT_COUNT:
        return n
    while n > 2 and half_width((n - 1) * reports_each, design, question) <= error:
        n -= 1
    while half_width(n * reports_each, design, question) > error:
        n += 1
    return n


def solve(
    question: Question,
    *,
    devices: int | None = None,
    epsilon: int | None = None,
    domain: int | None = None,
    error: float | None = None,
    before_each: Callable[[], object] = object,
) -> Plan:
    """Return the plan for three of devices, epsilon, domain and error.

    Args:
        question: The question.
        devices: The number of devices.
        epsilon: ε of a report, in micro-nats.
        domain: The number of values.
        error: The half-width, as in Plan.error.
        before_each: Called before each design of a search; an exception from it ends the search.

    Raises:
        PlanError: If not exactly three are given, one is out of range, or the fourth has no solution.
    """
    values = {"devices": devices, "epsilon": epsilon, "domain": domain, "error": error}
    missing = [name for name, value in values.items() if value is None]
    if len(missing) != 1:
        text = "give three of devices, epsilon, values and error to get the fourth"
        quantifier = {3: "two of ", 4: "three of "}.get(len(missing), "")
        advice = f"add {quantifier}{' or '.join(_USUAL[name] for name in missing)}"
        raise PlanError(f"{text}: {advice if missing else 'omit one of them'}")
    check_sizes(question, devices, domain)
    if epsilon is not None:
        check_epsilon(epsilon, PlanError)
    check_error(question, error)
    if devices is None:
        assert epsilon is not None
        assert domain is not None
        assert error is not None
        design = best_design(domain, epsilon, question)
        count = devices_for(design, question, error)
        if count > MAX_DEVICES:
            raise PlanError(
                f"±{error:g} takes {count:.2g} devices at epsilon {epsilon / MICRO:g}; allow a larger error"
            )
        return Plan(question, count, design, "devices", error)
    if error is None:
        assert epsilon is not None
        assert domain is not None
        return Plan(question, devices, best_design(domain, epsilon, question), "error", None)
    if epsilon is None:
        assert domain is not None
        return _solve_epsilon(question, devices, domain, error, before_each)
    return _solve_domain(question, devices, epsilon, error, before_each)


def check_sizes(question: Question, devices: int | None, domain: int | None) -> None:
    """Raise PlanError for an unsupported fleet, domain or question; None is not checked."""
    if devices is not None and not 2 <= devices <= MAX_DEVICES:
        raise PlanError(f"devices must be from 2 to {MAX_DEVICES}, not {devices}", "devices")
    if question.kind == "quantile" and question.share is not None and not 0 < question.share < 1:
        raise PlanError(f"a quantile must be between 0 and 1, not {question.share:g}")
    if question.share is not None and not 0 <= question.share <= 1:
        raise PlanError(f"share must be from 0 to 1, not {question.share:g}")
    if question.spread is not None and not 0 <= question.spread <= 0.5:
        raise PlanError(
            f"a standard deviation must be from 0 to half of the range, not {question.spread:g} of it"
        )
    if question.missing is not None and not 0 <= question.missing <= MAX_MISSING:
        raise PlanError(
            f"the share without a reading must be from 0 to {MAX_MISSING:g}, not {question.missing:g}",
            "missing",
        )
    if domain is None:
        if question.ranges:
            raise PlanError("a list of ranges requires --values; omit another of the four, or give a width")
        return
    if not 2 <= domain <= 1 << 24:
        raise PlanError(f"a domain must have from 2 to 16777216 values, not {domain}", "domain")
    check_ranges(question, domain)


def check_error(question: Question, error: float | None) -> None:
    """Raise PlanError for an error that is out of range; None is not checked."""
    if error is not None and not MIN_ERROR <= error <= MAX_HALF_WIDTH:
        meaning = "a part of the range" if question.kind == "mean" else "a share of devices"
        minimum = f", at least {MIN_ERROR:g}" if 0 < error < MIN_ERROR else ""
        raise PlanError(
            f"error must be {meaning} between 0 and {MAX_HALF_WIDTH:g}{minimum} (0.01 is ±1 point), not "
            f"{error:g}",
            "error",
        )


def check_ranges(question: Question, domain: int) -> None:
    """Raise PlanError unless the question's ranges lie within range(domain) and do not cover all of it."""
    if question.kind != "frequency" and domain > MAX_VALUES:
        text = f"{question.kind}s can be planned over at most {MAX_VALUES} values, not {domain}"
        raise PlanError(text, "domain")
    if question.width is not None and not 1 <= question.width < domain:
        raise PlanError(
            f"a width must be from 1 to {domain - 1} of the {domain} values, not {question.width}"
        )
    for low, high in question.ranges:
        if not 0 <= low < high <= domain or high - low == domain:
            raise PlanError(
                f"a range must lie within 0:{domain} and not cover all of it, unlike {low}:{high}"
            )


def _solve_epsilon(
    question: Question, devices: int, domain: int, error: float, before_each: Callable[[], object]
) -> Plan:
    def error_at(steps: int) -> float:
        before_each()
        return half_width(devices, best_design(domain, steps * EPSILON_STEP, question), question)

    max_steps = EPSILON_MAX // EPSILON_STEP
    steps = MICRO // EPSILON_STEP
    # Grow gradually to avoid slow searches in large domains.
    while steps < max_steps and error_at(steps) > error:
        steps = min(2 * steps, max_steps)
    if error_at(steps) > error:
        best = best_design(domain, EPSILON_MAX, question)
        raise PlanError(
            f"no epsilon up to 16 gives ±{error:g} with {devices:,} devices; 16 gives"
            f" ±{half_width(devices, best, question):.2g};"
            f" {devices_for(best, question, error):,} devices would do"
        )
    lower_steps = steps // 2
    while lower_steps and error_at(lower_steps) <= error:
        steps, lower_steps = lower_steps, lower_steps // 4
    steps = _search(error_at, error, steps, lower_steps)
    return Plan(question, devices, best_design(domain, steps * EPSILON_STEP, question), "epsilon", error)


def _solve_domain(
    question: Question, devices: int, epsilon: int, error: float, before_each: Callable[[], object]
) -> Plan:
    def error_at(domain: int) -> float:
        before_each()
        return half_width(devices, best_design(domain, epsilon, question), question)

    min_domain = 2 if question.width is None else question.width + 1
    max_domain = MAX_VALUES if question.kind == "frequency" else MAX_RANGE_VALUES
    if error_at(min_domain) > error:
        design = best_design(min_domain, epsilon, question)
        raise PlanError(
            f"not even {min_domain} values can be known to ±{error:g} with {devices:,} devices at epsilon"
            f" {epsilon / MICRO:g}: that gives ±{half_width(devices, design, question):.2g};"
            f" {devices_for(design, question, error):,} devices would do"
        )
    good = min_domain
    while good < max_domain and error_at(min(2 * good, max_domain)) <= error:
        good = min(2 * good, max_domain)
    if good < max_domain:
        good = _search(error_at, error, good, min(2 * good, max_domain))
    return Plan(question, devices, best_design(good, epsilon, question), "domain", error)


def _search(error_at: Callable[[int], float], target: float, good: int, bad: int) -> int:
    """Return a number that meets the target error but whose neighbour towards `bad` (0: no error) does not.

    It interpolates between the logarithms and falls back to bisection if that does not narrow the range.
    """
    error_good, error_bad = error_at(good), error_at(bad) if bad else math.inf
    bisect = math.isinf(error_bad)
    while abs(good - bad) > 1:
        gap = abs(good - bad)
        middle = (good + bad) // 2
        if not bisect and error_bad > error_good:
            fraction = math.log(target / error_good) / math.log(error_bad / error_good)
            middle = round(good * (bad / good) ** min(max(fraction, 0.0), 1.0))
            middle = min(max(middle, min(good, bad) + 1), max(good, bad) - 1)
        error = error_at(middle)
        if error <= target:
            good, error_good = middle, error
        else:
            bad, error_bad = middle, error
        bisect = abs(good - bad) > gap // 2 and not bisect
    return good
