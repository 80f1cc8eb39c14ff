"""How much an attacker learns by asking a curator any number of questions.

There are two targets: a column of yes-or-no records, which the attacker wants to reconstruct; and daily
counts, which the attacker wants to know. There are three defences, all with the same nominal ε:

* a curator who draws new noise for each question and counts ε per question;
* a curator who draws noise once for every node of a tree and keeps it, so that all questions cost ε in total;
* boards, which report once and never again.

The attacker averages answers to the same question, or solves many different questions by least squares
(Dinur and Nissim, "Revealing information while preserving privacy", PODS 2003; Kasiviswanathan, Rudelson,
Smith, Ullman, "The price of privately releasing contingency tables", STOC 2010).
"""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field
from scipy import special

from ..server.arrays import Counts, Floats
from ..server.epsilon import MICRO, check_epsilon, micro_nats
from ..server.experiments.payload import experiment_over, mechanism_fields
from ..server.mechanisms.channel import level_channel
from ..server.mechanisms.tree.least_squares import transpose
from ..server.words.text_table import TextTable
from ..simulator import vectorised
from .daily import flights
from .frame import Row, RunContext, StudyError, StudyParameters, StudyResult, table
from .noise import NeighbourRelation, NoiseSource, noise_variance, safe_source, source_of
from .structures import CentralHierarchy, LocalHierarchy

Target = Literal["records", "days"]
Attack = Literal["repeat", "ranges", "subsets", "kept", "boards"]

RECORDS = 256
DAYS = 128
RUNS = 10
REPEATS = tuple(4**i for i in range(6))  # number of times that each question is asked: 1 to 1,024
SOLVED = tuple(2**i for i in range(6, 15))  # total number of different questions: 64 to 16,384
_WORDS: dict[Attack, str] = {
    "repeat": "noise anew: the same questions again",
    "ranges": "noise anew: random ranges",
    "subsets": "noise anew: random sets of records",
    "kept": "noise drawn once and kept",
    "boards": "reports of boards",
}
_ONCE: tuple[Attack, ...] = ("kept", "boards")  # repeated questions do not get new answers


def attack_label(attack: Attack) -> str:
    """Return the label of an attack."""
    return _WORDS[attack]


def column(records: int = RECORDS) -> Counts:
    """Return real records, 1 or 0: whether each day of 2013 had more flights than the median day."""
    counts = flights().cut(records).counts
    return (counts > np.median(counts)).astype(np.int64)


def study(epsilon: float, context: RunContext, runs: int = RUNS) -> list[Row]:
    """Run all attacks on the context's workers.

    A row has an attacker's knowledge after `questions` questions in total. target is "records", for the share
    of records guessed right, or "days", for the root mean square error of a day's count. spent is the total ε
    of all answers by basic composition, in nats. measured is the mean over the runs, uncertainty its standard
    error, and predicted the theoretical value for these very records.

    Args:
        epsilon: ε in nats.
        context: The workers and the seed; without a seed, noise is from OpenDP.
        runs: The number of runs.

    Raises:
        StudyError: If ε is out of range.
        NoiseError: If OpenDP is not installed.
    """
    check_epsilon(epsilon * MICRO, StudyError, original=epsilon)
    if context.seed is None:
        safe_source()  # fail early if OpenDP is missing
    pairs_of: dict[tuple[Target, Attack, int], list[tuple[float, float]]] = {}
    seeds = np.random.SeedSequence(context.seed).spawn(runs)
    inputs = (column(), flights().cut(DAYS).counts, epsilon, context.seed is None)
    for outcomes in context.workers.map(_run, seeds, *inputs, advance=lambda _: context.advance(1 / runs)):
        for target, attack, questions, measured, predicted in outcomes:
            pairs_of.setdefault((target, attack, questions), []).append((measured, predicted))
    return [_outcome(*key, np.array(pairs), epsilon) for key, pairs in pairs_of.items()]


def _outcome(target: Target, attack: Attack, questions: int, pairs: Floats, epsilon: float) -> Row:
    of_days = target == "days"  # averaged as squares, then the root is taken
    measured, predicted = (pairs**2 if of_days else pairs).T
    value, theory = float(measured.mean()), float(predicted.mean())
    uncertainty = float(np.std(measured, ddof=1)) / math.sqrt(len(pairs))
    if of_days:
        value, theory = math.sqrt(value), math.sqrt(theory)
        uncertainty /= 2 * value
    row: Row = {"target": target, "attack": attack, "questions": questions}
    row["spent"] = epsilon if attack in _ONCE else questions * epsilon
    return row | {"measured": value, "uncertainty": uncertainty, "predicted": theory}


_Outcome = tuple[Target, Attack, int, float, float]  # target, attack, questions, measured, predicted


def _run(
    seed: np.random.SeedSequence, bits: Counts, days: Counts, epsilon: float, safe: bool
) -> list[_Outcome]:
    return list(_attacks(bits, days, epsilon, source_of(seed, safe)))


def _attacks(bits: Counts, days: Counts, epsilon: float, source: NoiseSource) -> Iterator[_Outcome]:
    yield from _repeated("records", bits, epsilon, source)
    yield from _solved("records", "ranges", bits, epsilon, source)
    yield from _solved("records", "subsets", bits, epsilon, source)
    yield "records", "kept", len(bits), *_kept_records(bits, epsilon, source)
    yield "records", "boards", len(bits), *_board_records(bits, epsilon, source)
    yield from _repeated("days", days, epsilon, source)
    yield from _solved("days", "ranges", days, epsilon, source)
    guards: dict[Attack, CentralHierarchy | LocalHierarchy] = {
        "kept": CentralHierarchy(0, NeighbourRelation.added),
        "boards": LocalHierarchy(),
    }
    for attack, structure in guards.items():
        at = np.arange(len(days))
        off = structure.fit(days, epsilon, source).answer(at, at + 1) - days
        theory = structure.law(days, epsilon, at, at + 1)
        yield "days", attack, len(days), _root_mean_square(off), theory.rmse


def _root_mean_square(off: Floats) -> float:
    return math.sqrt(float(np.mean(off**2)))


def _right(estimates: Floats, bits: Counts) -> float:
    """Return the share of records guessed right; an estimate of 1/2 counts as half a right guess."""
    return float(np.mean(np.where(estimates == 0.5, 0.5, (estimates > 0.5) == (bits == 1))))


def _repeated(target: Target, truth: Counts, epsilon: float, source: NoiseSource) -> Iterator[_Outcome]:
    """Ask for each record or day repeatedly, and average the answers."""
    total, times_asked = np.zeros(len(truth)), 0
    for times in REPEATS:
        noise = source.noise.draw((times - times_asked) * len(truth), 1, epsilon)
        total += noise.reshape(-1, len(truth)).sum(axis=0)
        times_asked = times
        if target == "records":
            result = _right(truth + total / times, truth), averaged_right(epsilon, times)
        else:
            result = _root_mean_square(total / times), math.sqrt(noise_variance(1, epsilon) / times)
        yield target, "repeat", times * len(truth), *result


def averaged_right(epsilon: float, times: int) -> float:
    """Return the probability that the mean of `times` answers about a record is on the right side of 1/2.

    Each answer has this ε. The result is exact, by the law of the sum of discrete Laplace numbers; about
    Φ(√times / 2σ).
    """
    reach = 1 << max(10, math.ceil(math.log2(24 * math.sqrt(times * noise_variance(1, epsilon)) + times)))
    law = np.fft.irfft(
        _characteristic(2 * np.pi * np.arange(reach // 2 + 1) / reach, epsilon) ** times, reach
    )
    sums = np.fft.fftfreq(reach, 1 / reach)
    return float(law[sums < times / 2].sum() + law[sums == times / 2].sum() / 2)


def _characteristic(t: Floats, epsilon: float) -> Floats:
    """Return the characteristic function of discrete Laplace noise with scale 1 / ε."""
    a = math.exp(-epsilon)
    return (1 - a) ** 2 / (1 - 2 * a * np.cos(t) + a * a)


def _solved(
    target: Target, attack: Attack, truth: Counts, epsilon: float, source: NoiseSource
) -> Iterator[_Outcome]:
    """Ask different questions and solve them all by least squares; records are known to be 0 or 1.

    In theory, for many random sets, a share Φ(√(questions - records) / 4σ) of the records is guessed right.
    """
    n = len(truth)
    variance = noise_variance(1, epsilon)
    # Beforehand, a record is 1/2 ± 1/2, and nothing is known about a count.
    middle, precision = (0.5, 4.0) if target == "records" else (0.0, 0.0)
    gram, answers, question_count = np.zeros((n, n)), np.zeros(n), 0
    for questions in SOLVED:
        asks = _questions(attack, questions - question_count, n, source.rng)
        noise = source.noise.draw(questions - question_count, 1, epsilon)
        answers += asks.T @ (asks @ (truth - middle) + noise) / variance
        gram += asks.T @ asks / variance
        question_count = questions
        if not precision and np.linalg.matrix_rank(gram) < n:
            continue
        covariance = np.linalg.inv(gram + precision * np.eye(n))
        estimates = middle + covariance @ answers
        if target == "days":
            yield (
                target,
                attack,
                questions,
                _root_mean_square(estimates - truth),
                _root_mean_square(np.sqrt(np.diag(covariance))),
            )
            continue
        side = covariance @ gram @ (truth - middle) * np.sign(truth - middle)
        spread = np.sqrt(np.sum(covariance @ gram * covariance, axis=1))
        # A record that no question covers has a ratio of 0, so its value is guessed.
        ratio = np.divide(side, spread, out=np.zeros(n), where=spread > 0)
        predicted = float(special.ndtr(ratio).mean())
        yield target, attack, questions, _right(estimates, truth), predicted


def _questions(attack: Attack, count: int, n: int, rng: np.random.Generator) -> Floats:
    """Draw the records that each question counts, shape (count, n), 0 or 1."""
    if attack == "subsets":
        return rng.integers(0, 2, (count, n)).astype(np.float64)
    ends = np.sort(np.stack([rng.integers(0, n, count), rng.integers(1, n + 1, count)]), axis=0)
    at = np.arange(n)
    return ((at >= ends[0][:, None]) & (at < np.maximum(ends[1], ends[0] + 1)[:, None])).astype(np.float64)


def _kept_records(bits: Counts, epsilon: float, source: NoiseSource) -> tuple[float, float]:
    """Measure and predict the share of records guessed right from a tree of noisy counts drawn once."""
    structure = CentralHierarchy(0, NeighbourRelation.added)
    n = len(bits)
    at = np.arange(n)
    estimates = structure.fit(bits, epsilon, source).answer(at, at + 1)
    return _right(estimates, bits), kept_right(structure, n, epsilon)


@cache
def kept_right(structure: CentralHierarchy, records: int, epsilon: float) -> float:
    """Return the probability that a record's estimate is on the right side of 1/2, averaged over records.

    It is computed by inversion of the error's characteristic function (Gil-Pelaez 1951), because the errors
    are sums of few numbers and far from normal.
    """
    tree = structure.tree(records)
    weights = np.concatenate(transpose(tree, np.eye(records))[0])
    t = (np.arange(512) + 0.5) * (math.pi / 512)
    share = epsilon / structure.sensitivity(tree)
    product = np.ones((len(t), records))
    for w in weights:
        product *= _characteristic(t[:, None] * w, share)
    below = 0.5 + (np.sin(t / 2) / t @ product) / 512
    return float(below.mean())


def _board_records(bits: Counts, epsilon: float, source: NoiseSource) -> tuple[float, float]:
    """Measure and predict the share of records guessed right from randomized response reports."""
    experiment = experiment_over(2, round(epsilon * MICRO), mechanism_fields("grr"))
    reports = vectorised.codes(experiment, bits, source.rng)
    return float(np.mean(reports == bits)), level_channel(experiment.levels[0]).p


# --- Parameters and output ------------------------------------------------------------------------


class ReconstructionParameters(StudyParameters):
    """The ε of a question."""

    epsilon: float = Field(0.2, description="ε of a question, and of what is drawn once, in nats.")


def run(parameters: ReconstructionParameters, context: RunContext) -> StudyResult:
    """Run all attacks."""
    check_epsilon(micro_nats(parameters.epsilon, StudyError), StudyError, original=parameters.epsilon)
    epsilon, outcomes = parameters.epsilon, study(parameters.epsilon, context, RUNS)
    # The largest share that someone without prior knowledge can get right: e^ε / (1 + e^ε).
    allowed, per_day = float(special.expit(epsilon)), float(flights().cut(DAYS).counts.mean())
    json = {"epsilon": epsilon, "records": RECORDS, "days": DAYS, "runs": RUNS, "allowed_share": allowed}
    output: list[TextTable | str] = []
    for target, title, scale, digits in (
        ("records", f"{RECORDS} records, yes or no: share that is guessed right, %", 100, ".1f"),
        ("days", f"{DAYS} days, {per_day:,.0f} records on average: RMS error of a count", 1, ",.2f"),
    ):
        rows = [
            o
            | {"words": attack_label(o["attack"])}
            | {name: scale * o[name] for name in ("measured", "predicted")}
            for o in outcomes
            if o["target"] == target
        ]
        cells = (
            f"{{words}} | {{questions:,}} | {{spent:,.1f}} | {{measured:{digits}}} | {{predicted:{digits}}}"
        )
        output += [table(title, "noise and questions | questions | Σε | measured | theory", cells, rows), ""]
    bound = f"ε = {epsilon:g} in total limits correct guesses without prior knowledge to"
    figure_data = (epsilon, allowed, per_day, outcomes)
    return StudyResult(
        json | {"outcomes": outcomes}, (*output, f"{bound} {100 * allowed:.1f}%."), figure_data
    )


def draw(path: Path, figure_data: tuple[float, float, float, list[Row]]) -> None:
    """Write records given away, and the error of a day, against the number of questions."""
    from .drawing import COLOURS, add_legend_below, figure, panel, thousands

    epsilon, right_share, per_day, outcomes = figure_data
    looks = list(zip(_WORDS, [COLOURS[i] for i in (1, 5, 3, 0, 2)], "os^Dv", strict=True))
    with figure(path, columns=2) as (drawing, (left_axes, right_axes)):
        for axes, target, scale in ((left_axes, "records", 100.0), (right_axes, "days", 1.0)):
            rows = [o for o in outcomes if o["target"] == target]
            for attack, colour, mark in looks:
                line = [o for o in rows if o["attack"] == attack]
                if not line:
                    continue
                questions = [o["questions"] for o in line]
                predicted, measured = (
                    scale * np.array([o[x] for o in line]) for x in ("predicted", "measured")
                )
                once = attack in _ONCE
                if once:
                    questions.append(max(o["questions"] for o in rows))
                    predicted, measured = np.repeat((predicted, measured), 2, axis=1)
                name = f"{attack_label(attack)}, ε = {epsilon:g} {'in total' if once else 'each'}"
                axes.plot(questions, predicted, color=colour, linewidth=1.6)
                axes.plot(questions, measured, mark, color=colour, markersize=5.5, label=name)
        n, allowed = RECORDS, 100 * right_share
        question_counts = np.geomspace(1.5 * n, max(o["questions"] for o in outcomes), 60)
        closed = special.ndtr(np.sqrt((question_counts - n) / noise_variance(1, epsilon)) / 4)
        label = "Φ(√(questions - records) / 4σ)"
        left_axes.plot(question_counts, 100 * closed, ":", color="#333333", linewidth=2, label=label)
        left_axes.axhline(allowed, color="#777777", linewidth=1.2, linestyle="--")
        left_axes.annotate(
            f"limit on correct guesses at ε = {epsilon:g} in total: {allowed:.1f}%",
            (0.99, allowed),
            (-30, -5),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=9,
            color="#555555",
        )
        left_axes.set_ylim(48, 101.5)
        note = f"{n} records; dots measured, lines theory; half are right by guessing"
        panel(
            left_axes,
            ("Records reconstructed", note, "questions", "records guessed right, %"),
            "x",
            "{:,.0f}",
        )
        note = f"{DAYS} days of {per_day:,.0f} on average; dots measured, lines theory"
        panel(
            right_axes,
            ("Error of a day's count", note, "questions", "RMS error, records"),
            "xy",
            "{:,.0f}",
            thousands,
        )
        add_legend_below(drawing, left_axes, 3, 9.5)
