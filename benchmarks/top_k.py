"""Reliability of top k: how well the probabilities that top() states match the true top k.

    python benchmarks/top_k.py [--quick]

Each fleet has a random mechanism (grr, olh, hh), D (16, 64, 256), ε (0.5, 1, 2, 3, 4) and N (10^3 to 10^6),
with populations that were not used to develop server/estimate/top_k.py. The listed values' probabilities are
put into bins, and each bin's mean is compared with the share of its values that are in the population's true
top k. Because a fleet's answers are correlated, the standard error is that of a ratio of sums over fleets.

Writes benchmarks/results/top_k.json.
"""

import csv
import time
from collections.abc import Callable
from importlib import resources

import numpy as np
from published import experiment
from results_file import Options, run

from hushmote.server.estimate import estimate
from hushmote.server.estimate.top_k import top
from hushmote.simulator import vectorised

KS = (1, 3, 5, 10)
FLEETS_PER_POPULATION = 75
MECHANISMS = ("grr", "olh", "hh")
DOMAINS = {16: 0.4, 64: 0.4, 256: 0.2}  # numbers of values, with their sampling probabilities
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)
BINS = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0])
TOLERANCE = 0.04  # allowed error of a bin, in addition to three standard errors

Shares = np.ndarray
Population = Callable[[np.ndarray, np.random.Generator], Shares]


def bells(i: np.ndarray, *parts: tuple[float, float, float]) -> Shares:
    """Return a mixture of bells, given by weight, centre and standard deviation, relative to the domain."""
    return np.sum([w * np.exp(-0.5 * ((i / len(i) - m) / s) ** 2) for w, m, s in parts], axis=0)


def spikes(i: np.ndarray, *parts: tuple[float, float]) -> Shares:
    """Return an even population with spikes, given by place, relative to the domain, and share."""
    places, shares = np.array(parts).T
    spiked = np.bincount((places * len(i)).astype(int), shares, len(i))
    return spiked + (1 - shares.sum()) / len(i)


def real_flights(i: np.ndarray, _: np.random.Generator) -> Shares:
    """Return the number of flights on each day of a year, with adjacent days merged."""
    text = resources.files("hushmote.studies").joinpath("flights_2013.csv").read_text()
    days = np.array([int(row["count"]) for row in csv.DictReader(text.splitlines())], float)
    return np.add.reduceat(days, np.arange(len(i)) * len(days) // len(i))


POPULATIONS: dict[str, Population] = {
    "Zipf 0.7": lambda i, _: (1.0 + i) ** -0.7,
    "Zipf 1": lambda i, _: 1 / (1.0 + i),
    "Zipf 1.7": lambda i, _: (1.0 + i) ** -1.7,
    "geometric 0.7": lambda i, _: 0.7**i,
    "geometric 0.95": lambda i, _: 0.95**i,
    "narrow normal": lambda i, _: bells(i, (1, 0.6, 1 / 40)),
    "three normals": lambda i, _: bells(i, (1, 0.2, 0.05), (1.2, 0.5, 0.1), (0.5, 0.85, 0.04)),
    "tent": lambda i, _: 1 + np.minimum(i, len(i) - 1 - i),
    "even ± 10 %": lambda i, rng: 1 + 0.1 * rng.uniform(-1, 1, len(i)),
    "even ± 50 %": lambda i, rng: 1 + 0.5 * rng.uniform(-1, 1, len(i)),
    "two other spikes": lambda i, _: spikes(i, (0.1, 0.2), (0.9, 0.15)),
    "five spikes": lambda i, _: spikes(i, (0.1, 0.1), (0.3, 0.08), (0.45, 0.06), (0.6, 0.04), (0.8, 0.02)),
    "sawtooth of 5": lambda i, _: 2.0 + i % 5,
    "Dirichlet 0.1": lambda i, rng: rng.dirichlet(np.full(len(i), 0.1)),
    "Dirichlet 2": lambda i, rng: rng.dirichlet(np.full(len(i), 2.0)),
    "gamma 0.7": lambda i, rng: rng.gamma(0.7, size=len(i)),
    "flights": real_flights,
}


def membership(f: Shares, k: int) -> np.ndarray:
    """Return each value's chance of being in the true top k; ties at rank k share the remaining places."""
    last = np.sort(f)[-k]
    more, same = f > last, f == last
    return more + same * ((k - more.sum()) / same.sum())


Key = tuple[str, str]
Cells = dict[Key, np.ndarray]  # per bin: number of values, sum of probabilities, number in the top k


def answers(name: str, population: Population, rng: np.random.Generator) -> Cells:
    """Return top()'s answers about a random fleet."""
    mechanism = str(rng.choice(MECHANISMS))
    domain = int(rng.choice(list(DOMAINS), p=list(DOMAINS.values())))
    exp = experiment(mechanism, domain, round(rng.choice(EPSILONS) * 1e6))
    shares = population(np.arange(domain), rng)
    f = shares / shares.sum()
    reports = round(10 ** rng.uniform(3, 6))
    e = estimate(exp, vectorised.histogram(exp, rng.multinomial(reports, f), rng))
    cells: Cells = {}
    for k in KS:
        if k >= domain:
            continue
        result, truth = top(e, k), membership(f, k)
        for one in (*result.listed, *result.near):
            place = min(int(np.searchsorted(BINS, one.probability, side="right")), len(BINS) - 1) - 1
            keys = [("all", "not listed")]
            if one in result.listed:
                keys = [("all", "all"), ("k", str(k)), ("mechanism", mechanism), ("population", name)]
            for key in keys:
                cell = cells.setdefault(key, np.zeros((len(BINS) - 1, 3)))
                cell[place] += (1, one.probability, truth[one.index])
    return cells


def rows_of(fleets: list[Cells]) -> list[dict]:
    rows = []
    for kind, name in dict.fromkeys(key for cells in fleets for key in cells):
        parts = np.array([cells[kind, name] for cells in fleets if (kind, name) in cells])
        for low, of_bin in zip(BINS[:-1], parts.transpose(1, 0, 2), strict=True):
            count, stated, belonged = of_bin.sum(axis=0)
            if count:
                stated, belonged = stated / count, belonged / count
                off = of_bin[:, 2] - of_bin[:, 1] - (belonged - stated) * of_bin[:, 0]
                error = float(np.sqrt((off**2).sum()) / count)
                row = {"by": kind, "name": name, "from": float(low), "listed": int(count)}
                row |= {"fleets": int((of_bin[:, 0] > 0).sum()), "said": stated, "belonged": belonged}
                rows.append(
                    row | {"error": error, "off": bool(abs(belonged - stated) > TOLERANCE + 3 * error)}
                )
    return rows


def unseen(options: Options) -> dict:
    start, rng, count = (
        time.process_time(),
        np.random.default_rng(31),
        2 if options.quick else FLEETS_PER_POPULATION,
    )
    rows = rows_of([answers(name, f, rng) for _ in range(count) for name, f in POPULATIONS.items()])
    spent = time.process_time() - start
    return {"fleets": count * len(POPULATIONS), "cpu_seconds": spent, "rows": rows}


if __name__ == "__main__":
    run(__doc__, "top_k.json", {"unseen": unseen})
