"""Weights by Fisher scoring: do intervals hold what they say, what is gained, and is there a bias.

    nice python benchmarks/fisher.py [--quick] [gain | bias | forged | coverage]

coverage: 95 % intervals of olh and hh over 128 values, ε 0.5 to 7, N 1,000 to 1,000,000, nine populations, 10
fleets of each (4 of olh at ε = 7, which has 2 million codes); drawn and drawn again by interval_coverage.py.
gain: variance over that of the ordinary weights, of single values and over all ranges, exact given the pilots
that a drawn fleet gives. "Bound": the pilot is the population, which no unbiased estimate beats.
bias: squared mean error over what chance makes of it (1 without bias), of cross-fitting, and of a pilot from
the very reports that it weighs; and what the halves' correlation adds to the variance.
forged: the most that one report moves a share, in reports.

Writes benchmarks/results/fisher.json.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from draws import POPULATIONS, Tally, clear_quantiles, count_intervals, counts, shares, variance_over_ranges
from interval_coverage import EPSILONS, Configuration, asked, covered, rates
from published import experiment
from results_file import Options, run

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.estimate.estimate import Estimate, Estimates
from hushmote.server.estimate.fisher import FEWEST_REPORTS, fisher, pilot
from hushmote.server.estimate.pooling import Pool
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.decoded import Decoded
from hushmote.server.mechanisms.scored import Scored

DOMAIN = 128
DESIGNS = ("hh", "olh")
SLOW = ("olh", 7.0)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
FLEETS = 10
KINDS = ("frequency", "range", "cdf", "quantile", "mean", "standard deviation")


class Weighed(Configuration):
    """A design, an ε, a number of reports and a population, whose estimates are weighed."""

    def tallies(self, fleets: int, rng: np.random.Generator) -> Iterator[Tally]:
        exp = experiment(self.mechanism, self.domain, round(self.epsilon * 1e6))
        f = shares(self.population, self.domain)
        for _ in range(fleets):
            tally = Tally()
            count_intervals(tally, fisher(exp, counts(exp, f, self.reports, rng)), f, clear_quantiles(f))
            tally["range"] = tally["range"] + tally.pop("above or below")
            yield tally


def coverage(options: Options) -> dict:
    """Coverage by kind, pooled and by column; last the configurations drawn anew."""
    cases = list(product(DESIGNS, EPSILONS, SIZES, POPULATIONS))[:: 20 if options.quick else 1]
    todo: list[tuple[Configuration, int]] = []
    for design, epsilon, reports, name in cases:
        fleets = 2 if options.quick else 4 if (design, epsilon) == SLOW else FLEETS
        todo.append((Weighed(design, DOMAIN, epsilon, reports, name), fleets))
    pooled, low, again = covered(todo, KINDS, options)
    result = {"fleets": FLEETS, "pooled": rates(pooled, KINDS), "configurations": len(todo) * len(KINDS)}
    return result | {"drawn_anew": sum(map(len, low)), "below": again}


# --- Gain -----------------------------------------------------------------------------------------


def true_variances(e: Estimates, f: np.ndarray) -> tuple[float, float]:
    """Mean variance over single values, and over all ranges, of estimates with these weights; exact."""
    for part in e.estimates if isinstance(e, Pool) else [e]:
        assert isinstance(part, Estimate)
        decoded = part.decoded
        decoded.__dict__["shares"] = decoded.mechanism.law(f)  # what moments are taken over

    def variances(statistics: np.ndarray) -> np.ndarray:
        return np.square(e.linear_many(statistics).stderr)

    return float(np.mean(variances(np.eye(len(f))))), variance_over_ranges(variances, len(f))


def ordinary(exp: Experiment, histogram: np.ndarray) -> Estimate:
    """The ordinary estimate, with moments by the general way."""
    mechanism = mechanism_of(exp)
    return Estimate(exp, Decoded(mechanism, mechanism.collapse(histogram)))


def fields(exp: Experiment, name: str) -> dict:
    about = {"mechanism": exp.mechanism, "domain": exp.domain}
    return about | {"epsilon": exp.epsilon / 1e6, "population": name}


def scored(e: Estimate, assumed: np.ndarray) -> Estimate:
    """The same reports, weighed by these shares."""
    law = mechanism_of(e.experiment).law(np.eye(e.domain))
    return Estimate(e.experiment, Scored(e.decoded, assumed, law))


def gain(exp: Experiment, name: str, draws: int, rng: np.random.Generator) -> dict:
    """Variances over those of the ordinary weights; the bound's pilot is the population."""
    f, row = shares(name, exp.domain), fields(exp, name)
    histogram, base = np.zeros(exp.code_count, int), np.ones(2)
    for reports in (1_000, 10_000, 100_000):
        ratios = []
        for _ in range(draws):
            histogram = counts(exp, f, reports, rng)
            base = np.array(true_variances(ordinary(exp, histogram), f))
            ratios.append(true_variances(fisher(exp, histogram), f) / base)
        row[f"values {reports}"], row[f"ranges {reports}"] = np.mean(ratios, axis=0)
    best = scored(ordinary(exp, histogram), np.maximum(f, 1e-12))
    row["values bound"], row["ranges bound"] = (np.array(true_variances(best, f)) / base).tolist()
    return row


def designs(quick: bool) -> Iterator[Experiment]:
    """Of 128 values; the last is the demo's, and its "real" population the demo's."""
    found = [("hh", DOMAIN, e) for e in EPSILONS] + [("olh", DOMAIN, e) for e in EPSILONS[:4]]
    for mechanism, domain, epsilon in [("hh", 64, 2.0)] if quick else [*found, ("hh", 64, 2.0)]:
        yield experiment(mechanism, domain, round(epsilon * 1e6))


def gains(options: Options) -> list[dict]:
    """Of all designs and populations."""
    rng, draws = np.random.default_rng(20_269), 1 if options.quick else 2
    return [gain(exp, name, draws, rng) for exp in designs(options.quick) for name in POPULATIONS]


# --- Bias and forged reports ----------------------------------------------------------------------


def bias(exp: Experiment, name: str, reports: int, runs: int, rng: np.random.Generator) -> dict:
    """Squared mean error over its expectation without bias, and what the halves' correlation adds."""
    f = shares(name, exp.domain)
    errors: dict[str, list[np.ndarray]] = {"ordinary": [], "cross_fitted": [], "own_pilot": []}
    cross = np.zeros(exp.domain)
    for _ in range(runs):
        histogram = counts(exp, f, reports, rng)
        once, twice = estimate(exp, histogram), fisher(exp, histogram)
        for kind, e in zip(errors, (once, twice, scored(once, pilot(once))), strict=True):
            errors[kind].append(e.frequencies - f)
        assert isinstance(twice, Pool)
        one, other = (w * (e.frequencies - f) for w, e in zip(twice.weights, twice.estimates, strict=True))
        cross += 2 * one * other
    row = fields(exp, name) | {"reports": reports, "runs": runs}
    del row["domain"]
    for kind, values in errors.items():
        off = np.array(values)
        row[kind] = float((off.mean(axis=0) ** 2).sum() * runs / off.var(axis=0, ddof=1).sum())
    variance = np.var(errors["cross_fitted"], axis=0).sum() * runs
    return row | {"correlation_adds": float(cross.sum() / variance)}


def biases(options: Options) -> list[dict]:
    """Of populations where weights differ most, and of even ones; with the fewest reports that it takes."""
    rng, runs = np.random.default_rng(20_270), 20 if options.quick else 500
    chosen = [experiment(m, DOMAIN, e * 1_000_000) for m, e in (("hh", 2), ("hh", 4), ("olh", 2))]
    names = ("uniform", "concentrated")
    return [bias(exp, name, FEWEST_REPORTS, runs, rng) for exp in chosen for name in names]


def moved(e: Estimate, f: np.ndarray) -> tuple[float, float]:
    """The most that one report moves the share of a value, and of all values up to one; in reports."""
    most = np.zeros((2, len(f)))
    for which, statistic in enumerate((np.eye(len(f)), np.triu(np.ones((len(f), len(f)))))):
        weights, _ = e.decoded.weights(statistic)
        laws = e.decoded.mechanism.law(f)
        for w, law, n in zip(weights, laws, e.decoded.reports, strict=True):
            if w is not None:
                most[which] = np.maximum(most[which], np.abs(w - law @ w).max(axis=0) * e.reports / n)
    return float(most[0].max()), float(most[1, :-1].max())


def forged(options: Options) -> list[dict]:
    """How much more one report moves than with the ordinary weights; the pilot is that of many reports."""
    rng, rows = np.random.default_rng(20_271), []
    for exp in designs(options.quick):
        for name in POPULATIONS:
            f = shares(name, exp.domain)
            once = ordinary(exp, counts(exp, f, 100_000, rng))
            both = moved(once, f), moved(scored(once, 0.95 * f + 0.05 / exp.domain), f)
            row = fields(exp, name)
            for kind, before, after in zip(("value", "range"), *both, strict=True):
                row |= {kind: before, f"{kind} weighed": after, f"{kind} ratio": after / before}
            rows.append(row)
    return rows


def main() -> None:
    parts = {"gain": gains, "bias": biases, "forged": forged, "coverage": coverage}
    run(__doc__, "fisher.json", parts, own_machine=True, **asked())


if __name__ == "__main__":
    import fisher as by_name  # by this name workers find its functions

    by_name.main()
