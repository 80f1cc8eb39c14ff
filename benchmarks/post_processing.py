"""Benefit and distortion of post-processing, and the effect of forged reports; top_k.py covers the top k.

    python benchmarks/post_processing.py [--quick] [part ...]

1. Ten populations. distortion: bias on empty bins and on the most common one, squared errors and Wasserstein
   distance of raw, nonnegative and smooth, against the population. ranges: squared error over all ranges of
   hierarchies, for nonnegative and two rejected methods: projection onto the simplex, which ignores the tree,
   and least squares in the tree's metric without negative shares.
2. Some devices forge reports to support one value: the value's gain and the others' loss. Cao, Jia, Gong,
   "Data poisoning attacks to local differential privacy protocols", USENIX Security 2021.

Writes benchmarks/results/post_processing.json.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, product

import numpy as np
from draws import counts_by_law as fleet
from draws import estimates, mean_over_ranges, spikes
from published import experiment
from results_file import Options, run, show
from scipy.optimize import nnls

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import Estimate, estimate, postprocess
from hushmote.server.mechanisms.decoded_histogram import simplex
from hushmote.server.mechanisms.tree.hierarchy import Hierarchy
from hushmote.server.mechanisms.tree.least_squares import Tree
from hushmote.simulator.attack import Attack, forged_histogram

METHODS = {name: postprocess.METHODS[name] for name in ("raw", "nonnegative", "smooth")}
DOMAIN = 64

Rng = np.random.Generator
Way = Callable[[Estimate], np.ndarray]


def populations(domain: int) -> dict[str, np.ndarray]:
    """Return shares of the values, by name."""
    i = np.arange(domain)
    u, step = (i + 0.5) / domain, domain // 8
    at = {0.75: domain // 3, 0.2: domain // 3 + 2, 0.05: domain - 3}
    shares = {
        "uniform": np.ones(domain),
        "skewed": 1 / (1.0 + i) ** 1.3,
        "concentrated": sum(share * spikes(domain, place) for share, place in at.items()),
        "sparse": spikes(domain, *range(0, 8 * step, step)) / (1 + i // step),
        "normal": np.exp(-0.5 * ((i - 0.45 * domain) / (domain / 16)) ** 2),
        "zipf 1.5": 1 / (1.0 + i) ** 1.5,
        "sawtooth": 1.0 + i % 8,
        "two spikes": 0.6 * spikes(domain, domain // 5) + 0.4 * spikes(domain, domain * 7 // 10),
        "all in the last": spikes(domain, domain - 1),
        "beta(5, 2)": u**4 * (1 - u),
    }
    return {name: f / f.sum() for name, f in shares.items()}


FIELDS = ("bias_empty", "bias_mode", "mse", "range_mse", "wasserstein")


def measures(values: np.ndarray, f: np.ndarray) -> list[float]:
    """Return bias on empty bins and on the mode, MSE, range MSE, and Wasserstein distance over the range."""
    error, empty = values - f, f < 1e-4 / len(f)
    biases = [error[empty].mean() if empty.any() else np.nan, error[np.argmax(f)]]
    return [*biases, (error**2).mean(), mean_over_ranges(error), np.abs(np.cumsum(error)).mean()]


def over_fleets(ways: dict[str, Way], exp: Experiment, f: np.ndarray, reports: int, fleets: int, rng: Rng):
    """Return measures() for each way of processing the same fleets' estimates, shape (fleets, 5)."""
    values_by_way = {way: [] for way in ways}
    for e in estimates(exp, f, reports, fleets, rng, fleet):
        for way, process in ways.items():
            values_by_way[way].append(measures(process(e), f))
    return {way: np.array(values) for way, values in values_by_way.items()}


EPSILONS = (0.5, 1.0, 2.0, 4.0)
REPORTS = (1_000, 10_000, 100_000, 1_000_000)


def cells(options: Options, *designs: tuple[str, int]) -> Iterator[tuple]:
    """Yield each experiment, population and row description for all ε and numbers of reports."""
    sizes = [(1.0, 10_000)] if options.quick else [(e, n) for e in EPSILONS for n in REPORTS]
    for (mechanism, domain), (epsilon, reports) in product(designs, sizes):
        exp = experiment(mechanism, domain, round(epsilon * 1e6))
        for name, f in populations(domain).items():
            row = {"mechanism": mechanism, "domain": domain, "epsilon": epsilon, "reports": reports}
            yield exp, f, row | {"population": name}


def distortion(options: Options) -> list[dict]:
    """Return each method's errors; print their ratios to raw, the worst, and how many are above 1."""
    rng, rows, groups = np.random.default_rng(11), [], defaultdict(list)
    processes = {name: lambda e, process=process: process(e).frequencies for name, process in METHODS.items()}
    for exp, f, row in cells(options, ("olh", 64), ("hh", 64), ("hh", 256)):
        fleets = 1 if options.quick else 4 if exp.domain == 64 else 2
        values_by_way = over_fleets(processes, exp, f, row["reports"], fleets, rng)
        means = {method: x.mean(axis=0) for method, x in values_by_way.items()}
        for method, values in means.items():
            rows.append(row | {"method": method} | dict(zip(FIELDS, values.tolist(), strict=True)))
            if method != "raw":
                few = "few values" if row["population"] in FEW else "spread"
                for group in (f"{exp.mechanism} {exp.domain}", f"{exp.mechanism}, {few}"):
                    groups[group, f"{row['epsilon']:g}", method].append(values[2:] / means["raw"][2:])
    table_rows = []
    for key, ratios in sorted(groups.items()):
        x = np.array(ratios)
        texts = (f"{np.exp(np.log(r).mean()):.2f} {r.max():.2f} {(r > 1 + 1e-9).sum()}/{len(r)}" for r in x.T)
        table_rows.append(dict(zip(("of", "ε", "method", *FIELDS[2:]), (*key, *texts), strict=True)))
    show("over raw: geometric mean, worst, cells above 1", table_rows)
    return rows


FEW = ("concentrated", "sparse", "two spikes", "all in the last")


def in_the_metric(tree: Tree, leaves: np.ndarray) -> np.ndarray:
    """Return the least-squares solution with the tree's level weights, nonnegative leaves, and sum 1."""
    rows, width = [np.full((1, tree.domain), 1e4)], 1  # a dominant weight that forces the sum
    max_weight = max(float(alone[0] / v[0]) for alone, v in zip(tree.own, tree.variance, strict=True))
    for nodes, alone, v in zip(tree.nodes[::-1], tree.own[::-1], tree.variance[::-1], strict=True):
        member = np.arange(nodes)[:, None] == np.arange(tree.domain) // width
        rows.append(member * np.sqrt(alone[0] / v[0] / max_weight))
        width *= tree.fanout
    design = np.vstack(rows)
    return nnls(design, design @ leaves)[0]


WAYS: dict[str, Way] = {
    "raw": lambda e: e.frequencies,
    "nonnegative": lambda e: METHODS["nonnegative"](e).frequencies,
    "simplex": lambda e: simplex(e.frequencies),
    "metric": lambda e: in_the_metric(Hierarchy(e.experiment).tree(e.decoded.reports), e.frequencies),
}
_KEYS = ("ranges", "se", "bins")


def ranges(options: Options) -> list[dict]:
    """Return hierarchies' errors relative to raw, with 40 fleets per cell."""
    rng, rows = np.random.default_rng(11), []
    domains = (64,) if options.quick else (64, 100, 256)
    for exp, f, row in cells(options, *(("hh", domain) for domain in domains)):
        rows.append(row | _ratios(exp, f, row["reports"], 3 if options.quick else 40, rng))
    table_rows = []
    for name, way in product((*dict.fromkeys(row["population"] for row in rows), "all"), [*WAYS][1:]):
        group = [row for row in rows if name in (row["population"], "all")]
        columns = {key: np.array([row[f"{way}_{key}"] for row in group]) for key in _KEYS}
        means = {key: float(np.exp(np.log(columns[key]).mean())) for key in ("ranges", "bins")}
        ratios = columns["ranges"]
        worst = f"{ratios.max():.2f} ± {columns['se'][np.argmax(ratios)]:.2f}"
        above = int((ratios > 1.05).sum())
        table_rows.append({"population": name, "way": way} | means | {"worst": worst, "above 1.05": above})
    show("over raw: geometric means of ranges and bins, worst ranges", table_rows)
    return rows


def _ratios(exp: Experiment, f: np.ndarray, reports: int, fleets: int, rng: Rng) -> dict:
    """Return each way's squared errors relative to raw's, and the standard error for ranges."""
    values_by_way = over_fleets(WAYS, exp, f, reports, fleets, rng)
    raw = values_by_way.pop("raw")
    row = {"raw_range_mse": raw[:, 3].mean()}
    for way, x in values_by_way.items():
        ratio = x[:, 3].mean() / raw[:, 3].mean()
        error = (x[:, 3] - ratio * raw[:, 3]).std(ddof=1) / np.sqrt(fleets) / raw[:, 3].mean()
        numbers = (ratio, error, x[:, 2].mean() / raw[:, 2].mean())
        row |= {f"{way}_{key}": float(value) for key, value in zip(_KEYS, numbers, strict=True)}
    return row


def poisoning(options: Options) -> list[dict]:
    """Return the effect of forged reports, compared with the same fleet with honest reports instead."""
    rng, rows, target, honest = np.random.default_rng(11), [], DOMAIN * 3 // 4 + 1, 100_000
    designs = (("grr", 1.0), ("olh", 1.0), ("hh", 1.0), ("olh", 4.0))
    attack = Attack("promote", target, target + 1, "one value")
    first = islice(populations(DOMAIN).items(), 5)
    for (mechanism, epsilon), (name, f), share in product(designs, first, (0.01, 0.05)):
        exp, bad = experiment(mechanism, DOMAIN, round(epsilon * 1e6)), round(honest * share)
        by_method: dict[str, list[list[float]]] = {method: [] for method in METHODS}
        for _ in range(1 if options.quick else 5):
            common = fleet(exp, f, honest - bad, rng)
            clean = estimate(exp, common + fleet(exp, f, bad, rng))
            dirty = estimate(exp, common + forged_histogram(exp, attack, bad, rng))
            for method, process in METHODS.items():
                change = process(dirty).frequencies - process(clean).frequencies
                others = np.delete(change, target)
                by_method[method].append([change[target], np.abs(others).sum(), others.sum()])
        for method, values in by_method.items():
            row = {"mechanism": mechanism, "epsilon": epsilon, "population": name, "forged": share}
            changes = zip(("gain", "others", "net_of_others"), np.mean(values, axis=0), strict=True)
            rows.append(row | {"method": method} | dict(changes))
    return rows


if __name__ == "__main__":
    parts = (poisoning, distortion, ranges)
    run(__doc__, "post_processing.json", {p.__name__: p for p in parts}, own_machine=True)
