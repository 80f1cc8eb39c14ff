"""Compare the errors that `hushmote plan` predicts with those of tens of thousands of fleets per plan.

    python benchmarks/plans.py [--quick]

The grid covers questions about a value, a range (any, of a given width, or a list) and a quantile, at stated
and at worst-case shares; 2 to 1,024 values, powers and others; ε 0.5 to 7; rr, grr, olh and trees, including
questions for which the design was not chosen; and the number of devices that the plan states for ±0.5 to ±3%.
For each fleet, one of the places that the question covers is drawn, with the population assumed there. Then
the number of reports per level is drawn, and the histogram of code classes from the channel's exact law. The
estimate uses the estimator's weights for these numbers; tests/contracts checks that estimate() uses the same
ones. The squared error is divided by the variance predicted for that place. Writes
benchmarks/results/plans.json; --quick uses a tenth of the plans and a fifth of the fleets.
"""

import math
import time

import numpy as np
from results_file import CONSOLE, Options, run
from rich.progress import track

from hushmote.planning import expected_error
from hushmote.planning.devices import Plan, best_design, devices_for
from hushmote.planning.expected_error import Question
from hushmote.server.epsilon import MICRO

DOMAINS = (3, 5, 10, 16, 27, 37, 64, 100, 128, 200, 256, 300, 513, 1000, 1024)
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0)
ERRORS = (0.01, 0.005, 0.02, 0.03)
PLANS_PER_QUESTION = 6
GROUPS = 50  # groups of fleets with the same numbers of reports per level
PLACES = 5  # places per group
FLEETS = 160  # fleets per group and place


def questions(domain: int) -> list[tuple[str, Question, Question]]:
    """Return each question's words, the question that a design is chosen for, and the question asked."""
    third, width = domain // 3, max(1, domain // 7)
    pieces = ((third, domain - third // 2), (0, max(1, third)))
    plain = {
        "a value, worst share": Question("frequency"),
        "a value of 2 %": Question("frequency", 0.02),
        "a value of 60 %": Question("frequency", 0.6),
        "any range, worst share": Question(),
        "any range of 20 %": Question(share=0.2),
        f"{width} neighbours, worst share": Question(width=width),
        f"{width} neighbours of 10 %": Question(share=0.1, width=width),
        "a list, worst share": Question(ranges=pieces),
        "a list of 10 %": Question(share=0.1, ranges=pieces),
        "median": Question("quantile", 0.5),
        "0.95 quantile": Question("quantile", 0.95),
    }
    result = [(words, question, question) for words, question in plain.items()]
    result.append(("any range, of a plan for values", Question("frequency"), Question(share=0.2)))
    result.append(("a value of 5 %, of a plan for ranges", Question(), Question("frequency", 0.05)))
    return result


def grid() -> list[tuple[str, Plan]]:
    """Return the plans: yes or no at every ε, and each question at six combinations of domain and ε."""
    plans: list[tuple[str, Plan]] = []
    for epsilon, share in zip(EPSILONS, (None, 0.05, 0.3, 0.5, 0.01, None, 0.2), strict=True):
        question = Question("frequency", share)
        plans.append(("yes or no", _plan(2, epsilon, question, question, 0.01)))
    for number in range(len(questions(10))):
        for turn in range(PLANS_PER_QUESTION):
            domain = DOMAINS[(2 * number + 4 * turn) % len(DOMAINS)]
            epsilon = EPSILONS[(number + 3 * turn) % len(EPSILONS)]
            words, chosen_for, stated = questions(domain)[number]
            plans.append((words, _plan(domain, epsilon, chosen_for, stated, ERRORS[turn % len(ERRORS)])))
    return plans


def _plan(domain: int, epsilon: float, chosen_for: Question, question: Question, error: float) -> Plan:
    design = best_design(domain, round(epsilon * MICRO), chosen_for)
    devices = max(1000, devices_for(design, question, error))
    return Plan(question, devices, design, "devices", error)


def measure(words: str, plan: Plan, groups: int, rng: np.random.Generator) -> dict:
    """Draw a plan's fleets and return a row; half-widths are shares of devices.

    In the row, `fewest` is the expected number of reports of the level with the fewest reports, and
    `uncertainty` is the standard error of `measured`.
    """
    design, mechanism = plan.design, plan.design.mechanism
    places = expected_error.question_places(design, plan.question)
    squares, variances = np.empty((groups, PLACES, FLEETS)), np.empty((groups, PLACES))
    for group in range(groups):
        reports = rng.multinomial(plan.devices, mechanism.stratum_chances)
        chosen = rng.integers(0, len(places.variance), PLACES).tolist()
        statistic = np.stack([places.statistic(design.domain, place) for place in chosen], axis=1)
        shares = np.stack([places.population(design.domain, place) for place in chosen], axis=1)
        weights, constant = mechanism.weights(statistic, reports.tolist())
        laws = mechanism.law(shares)
        values = np.repeat(constant[:, None], FLEETS, axis=1)
        for w, law, n in zip(weights, laws, reports.tolist(), strict=True):
            if w is not None:
                values += np.stack([_means(law[:, i], w[:, i], n, rng) for i in range(PLACES)])
        squares[group] = (values - (shares * statistic).sum(axis=0)[:, None]) ** 2
        variances[group] = places.variance[chosen]
    ratios = squares.mean(axis=2) * plan.devices / variances
    ratio, uncertainty = ratios.mean(), ratios.mean(axis=1).std(ddof=1) / math.sqrt(groups)
    choice, root = design.choice, math.sqrt(ratio)
    row = {"asked": words, "domain": design.domain, "epsilon": plan.epsilon}
    row["mechanism"] = " ".join([choice.mechanism, *(str(value) for _, value in choice.parameters[:1])])
    fewest = plan.devices * min(chance for chance in mechanism.stratum_chances if chance)
    row |= {"devices": plan.devices, "fewest": fewest, "fleets": squares.size, "predicted": plan.error}
    return row | {"measured": plan.error * root, "uncertainty": plan.error * uncertainty / (2 * root)}


def _means(law: np.ndarray, weights: np.ndarray, reports: int, rng: np.random.Generator) -> np.ndarray:
    """Return a weight's mean over each fleet's reports, for FLEETS fleets.

    Classes with the same law and weight are merged.
    """
    scale = np.abs(weights).max() or 1.0
    alike = np.round(law / law.max(), 12) + 1j * np.round(weights / scale, 12)
    _, first, number = np.unique(alike, return_index=True, return_inverse=True)
    chances = np.bincount(number, law)
    return rng.multinomial(reports, chances / chances.sum(), FLEETS) @ weights[first] / reports


def planned(options: Options) -> dict:
    start, rng, plans = time.monotonic(), np.random.default_rng(13), grid()
    groups = GROUPS // 5 if options.quick else GROUPS
    plans = plans[:: 10 if options.quick else 1]
    rows = [measure(words, plan, groups, rng) for words, plan in track(plans, "plans", console=CONSOLE)]
    columns = {key: np.array([row[key] for row in rows]) for key in ("measured", "predicted", "uncertainty")}
    off = columns["measured"] / columns["predicted"] - 1
    summary = {"plans": len(rows), "fewest_fleets": min(row["fleets"] for row in rows)}
    summary |= {"worst_off": float(np.abs(off).max()), "mean_off": float(off.mean())}
    summary |= {"root_mean_square_off": float(np.sqrt((off**2).mean()))}
    summary |= {"largest_standard_error": float((columns["uncertainty"] / columns["predicted"]).max())}
    summary |= {"fewest_reports_of_a_level": min(row["fewest"] for row in rows)}
    return {"summary": summary | {"seconds": time.monotonic() - start}, "rows": rows}


if __name__ == "__main__":
    run(__doc__, "plans.json", {"": planned})
