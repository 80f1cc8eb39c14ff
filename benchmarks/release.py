"""Verdicts on a new version with a look each day: false ones, power, silence, and what a rollout can show.

    python benchmarks/release.py [--quick] [verdicts] [silence] [planning]

1,000 reports of the new version and 19,000 of the others arrive over 14 days, yes or no at ε = 2, with a
share of 5% among the others. Rises are in points. The part `verdicts` draws every report's code; the new
version's reports come evenly, or ramp up while the share of all versions rises as well. `silence` simulates
boards of which some are offline throughout. `planning` computes what hushmote.server.release.power says.
Writes benchmarks/results/release.json; --quick draws a fiftieth of the releases.
"""

import math
from dataclasses import dataclass

import numpy as np
from results_file import Options, run
from scipy import special

from hushmote.server.release import power
from hushmote.server.release.difference import SideDays, looks
from hushmote.server.release.plan import ALPHA, SILENCE_WEIGHT, QuestionPlan, ReleasePlan, SilencePlan
from hushmote.server.release.silence import Presence, silence_looks
from hushmote.server.release.spending import crossing_probability
from hushmote.server.release.verdict import ReleaseVerdict, Verdict, release_verdict

RELEASES, SCHEDULES = 10_000, 50
EPSILON, SHARE, DAYS = 2.0, 0.05, 14
NEW, OTHER, DEVICES = 1_000, 19_000, 20_000
VARIANCE = power.yes_no_variance(EPSILON)
TRUTH = math.exp(EPSILON) / (1 + math.exp(EPSILON))  # the probability that a code is true
RAMP = np.linspace(0.2, 1.8, DAYS)
Rng = np.random.Generator
Floats = np.ndarray


@dataclass(frozen=True)
class Case:
    """Releases with the same rises, one for each question, and the verdict whose rate is bounded."""

    rises: tuple[float, ...]
    margin: float | None = None
    new: int = NEW
    days: int = DAYS
    ramp: bool = False


CASES = (
    # No question is worse: "stop" is false.
    *(Case(rises) for rises in ((0.0,), (0.0,) * 3)),
    Case((0.0,), ramp=True),
    Case((0.0,), days=4 * DAYS),
    # One question is worse: "stop" is right.
    *(Case((rise,)) for rise in (0.041, 0.043, 0.046)),
    Case((0.046,), ramp=True),
    *(Case((0.0, 0.0, rise)) for rise in (0.051, 0.053)),
    Case((0.053,) * 3),
    # A question is worse by exactly the margin: "proceed" is false.
    Case((0.02,), 0.02, 4_950),
    Case((0.02, -0.03, -0.03), 0.02, 4_950),
    Case((0.05,), 0.05),
    # Nothing is worse: "proceed" is right.
    Case((0.0,), 0.02, 4_950),
    Case((0.0,) * 3, 0.02, 4_950),
)


# --- Verdicts -------------------------------------------------------------------------------------


def side(n: Floats, shares: Floats, rng: Rng) -> SideDays:
    """Return a side's daily estimates from randomized codes; the statistics are those of estimate()."""
    scale = 1 / (2 * TRUTH - 1)
    codes = np.divide(
        rng.binomial(n, 1 - TRUTH + shares / scale), n, out=np.full(len(n), np.nan), where=n > 0
    )
    each = np.divide(1.0, n, out=np.full(len(n), np.nan), where=n > 0)
    estimate, variance = (codes - 1 + TRUTH) * scale, codes * (1 - codes) * scale**2 * each
    return SideDays(n.astype(float), estimate, variance, (1 - 2 * codes) * scale * each)


def schedules(case: Case, rng: Rng) -> list[tuple[Floats, Floats]]:
    """Return daily numbers of reports of both sides; those after day 14 are more of the same."""
    part = RAMP / RAMP.sum() if case.ramp else np.full(DAYS, 1 / DAYS)
    part = np.resize(part, case.days)
    return [(rng.poisson(case.new * part), rng.poisson(OTHER / DAYS, case.days)) for _ in range(SCHEDULES)]


def plan(case: Case) -> ReleasePlan:
    """Return a plan for the reports expected in 14 days."""
    variance = VARIANCE(SHARE)
    information = power.Rollout(case.new / DAYS, OTHER / DAYS, DAYS).information(variance)
    questions = (
        QuestionPlan(str(k), "more", case.margin, information, variance) for k in range(len(case.rises))
    )
    return ReleasePlan("firmware", "2.4.0", ("2.3.1",), tuple(questions))


def verdict(case: Case, days: list[tuple[Floats, Floats]], release: ReleasePlan, rng: Rng) -> ReleaseVerdict:
    common = SHARE * np.linspace(0.5, 2.0, case.days) if case.ramp else np.full(case.days, SHARE)
    evidence = {}
    for k, rise in enumerate(case.rises):
        new, other = days[rng.integers(len(days))]
        evidence[str(k)] = looks(side(new, common + rise, rng), side(other, common, rng))
    return release_verdict(release, evidence)


def verdicts(options: Options) -> list[dict]:
    releases, rows = RELEASES // 50 if options.quick else RELEASES, []
    for number, case in enumerate(CASES):
        rng = np.random.default_rng((20_261_129, number))
        count, release, days = releases // len(case.rises), plan(case), schedules(case, rng)
        results = [verdict(case, days, release, rng) for _ in range(count)]
        decided = [
            [question.decision_day for question in result.questions if question.decision_day is not None]
            for result in results
        ]
        first = [min(since) + 1 for since in decided if since]
        rows.append(
            {
                "rises": [round(100 * rise, 1) for rise in case.rises],
                "margin": case.margin and 100 * case.margin,
                "new": case.new,
                "days": case.days,
                "ramp": case.ramp,
                "releases": count,
                "stop": _rate(results, Verdict.STOP),
                "proceed": _rate(results, Verdict.PROCEED),
                "last_stops": float(np.mean([r.questions[-1].verdict is Verdict.STOP for r in results])),
                "median_day": float(np.median(first)) if first else None,
            }
        )
    return rows


def _rate(results: list[ReleaseVerdict], kind: Verdict) -> float:
    return float(np.mean([result.verdict is kind for result in results]))


# --- Silence --------------------------------------------------------------------------------------

# The part of new boards that never report, the part of all boards that is offline, 1 / every of both sides.
SILENT = (
    *((0.0, offline, 1.0, 1 / 130) for offline in (0.0, 0.1, 0.2)),
    *((bricked, 0.1, 1.0, 1 / 130) for bricked in (0.1, 0.2, 0.3, 0.5, 1.0)),
    *((bricked, 0.1, 1 / 30, 1 / 130) for bricked in (0.0, 0.5, 1.0)),
)


def presence(devices: int, reports: Floats, rate: float) -> Presence:
    return Presence(np.full(DAYS, float(devices)), reports.astype(float), rate)


def silence(options: Options) -> list[dict]:
    releases, rows = RELEASES // 50 if options.quick else RELEASES, []
    new_devices = DEVICES // 20
    level = SILENCE_WEIGHT * ALPHA
    silent = SilencePlan(power.silence_information(0.3, 0.1, level))
    release = ReleasePlan("firmware", "2.4.0", ("2.3.1",), plan(CASES[0]).questions, silent)
    for number, (bricked, offline, rate, other_rate) in enumerate(SILENT):
        rng, days = np.random.default_rng((20_261_130, number)), []
        for _ in range(releases):
            working = rng.binomial(new_devices, (1 - offline) * (1 - bricked))
            others = rng.binomial(DEVICES - new_devices, 1 - offline)
            arrives = np.where(rng.random(DAYS) < 0.1, 0.3, 1.0)  # some days, the broker is down for hours
            new = rng.binomial(working, rate * arrives)
            other = rng.binomial(others, other_rate * arrives)
            evidence = silence_looks(
                presence(new_devices, new, rate), presence(DEVICES - new_devices, other, other_rate), silent
            )
            result = release_verdict(release, {"0": ()}, evidence).silence
            assert result is not None
            days.append(result.decision_day)
        stops = [day + 1 for day in days if day is not None]
        case = {"bricked": bricked, "offline": offline, "every": round(1 / rate), "releases": releases}
        median = float(np.median(stops)) if stops else None
        rows.append(case | {"stop": len(stops) / releases, "median_day": median})
    return rows


# --- Planning ------------------------------------------------------------------------------------


def mixture_power(drift: float, level: float) -> float:
    """Return the power of a one-sided normal mixture that is used from the first day on.

    It is tuned to the planned end. Source: Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics 2021.
    """
    t = np.arange(1, DAYS + 1) / DAYS
    tuned = 2 * math.log(1 / (2 * level))
    rho = 1 / (tuned + math.log(1 + tuned))
    limits = np.sqrt(2 * (t + rho) * np.log(np.sqrt((t + rho) / rho) / (2 * level) + 1) / t)
    return float(crossing_probability(list(t), list(limits), drift)[-1])


def fixed_power(drift: float, level: float) -> float:
    """Return the power of a single test at the end."""
    return float(special.ndtr(drift + special.ndtri(level)))


def planning(options: Options) -> dict:
    rollout = power.Rollout(NEW / DAYS, OTHER / DAYS, DAYS)
    rises = []
    for questions in (1, 2, 3):
        level = ALPHA / questions
        spending = power.detectable_rise(rollout, SHARE, VARIANCE, level)
        others = [_rise(rollout, level, method) for method in (fixed_power, mixture_power)]
        points = [None if rise is None else 100 * rise for rise in (others[0], spending, others[1])]
        rises.append(
            dict(zip(("fixed", "spending", "mixture"), points, strict=True)) | {"questions": questions}
        )
    proceed = [
        {
            "margin": 100 * margin,
            "questions": questions,
            "reports_beside_19000": power.reports_to_proceed(
                DAYS, SHARE, margin, VARIANCE, other=OTHER, questions=questions
            ),
            "reports_at_5%": power.reports_to_proceed(
                DAYS, SHARE, margin, VARIANCE, ratio=19, questions=questions
            ),
        }
        for questions in (1, 3)
        for margin in (0.01, 0.02, 0.03, 0.05)
    ]
    stages = []
    for part in (0.05, 0.25, 0.5):
        stage = power.stage(part, DEVICES / DAYS, DAYS, SHARE, VARIANCE, questions=1, margin=0.02)
        assert stage is not None
        assert stage.proceed_chance is not None
        stages.append({"part": part, "rise": 100 * stage.rise, "proceed_2_points": stage.proceed_chance})
    return {"rises": rises, "proceed": proceed, "stages": stages}


def _rise(rollout: power.Rollout, level: float, method) -> float:
    """Return the rise that a method finds with a probability of 80%."""
    low, high = 0.0, 0.5
    while high - low > 1e-6:
        rise = (low + high) / 2
        error = math.sqrt(rollout.variance(VARIANCE(SHARE + rise), VARIANCE(SHARE)))
        low, high = (low, rise) if method(rise / error, level) >= 0.8 else (rise, high)
    return high


if __name__ == "__main__":
    run(__doc__, "release.json", {"verdicts": verdicts, "silence": silence, "planning": planning})
