"""What post-processing gains and distorts, and what forged reports gain; top_k.py has the top k.

    python benchmarks/post_processing.py [--quick] [part ...]

1. Ten populations. distortion: bias on empty bins and on the most common one, squared errors and Wasserstein
   distance of raw, nonnegative and smooth, against the population. ranges: squared error of all ranges of
   hierarchies, of nonnegative and of two ways that are not taken: the projection on the simplex, which knows
   no tree, and least squares in the tree's metric with no share below zero.
2. Part of a fleet forges reports that support one value: what that value gains and what the others lose.
   Cao, Jia, Gong, "Data poisoning attacks to local differential privacy protocols", USENIX Security 2021.
3. The same with the published smoothing step, one 1-2-1 kernel whatever the data.

Writes benchmarks/results/post_processing.json.
"""

import argparse
import itertools
import time

import numpy as np
from draws import counts_by_law as fleet
from draws import estimates, mean_over_ranges
from published import experiment
from results_file import CONSOLE, run, show
from scipy.optimize import nnls

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import Estimate, estimate, postprocess
from hushmote.server.estimate.top_k import top
from hushmote.server.mechanisms.decoded import simplex
from hushmote.server.mechanisms.hashing import butterfly
from hushmote.server.mechanisms.tree.hierarchy import Hierarchy
from hushmote.server.mechanisms.tree.least_squares import Tree

METHODS = {name: postprocess.METHODS[name] for name in ("raw", "nonnegative", "smooth")}
DOMAIN = 64


def populations(domain: int) -> dict[str, np.ndarray]:
    """Shares of the values, by name."""
    i = np.arange(domain)
    u = (i + 0.5) / domain
    concentrated, sparse, spikes, last = np.zeros((4, domain))
    concentrated[[domain // 3, domain // 3 + 2, domain - 3]] = 0.75, 0.2, 0.05
    sparse[domain // 8 * np.arange(8)] = 1 / np.arange(1, 9)
    spikes[[domain // 5, domain * 7 // 10]] = 0.6, 0.4
    last[-1] = 1
    shares = {
        "uniform": np.ones(domain),
        "skewed": 1 / (1.0 + i) ** 1.3,
        "concentrated": concentrated,
        "sparse": sparse,
        "normal": np.exp(-0.5 * ((i - 0.45 * domain) / (domain / 16)) ** 2),
        "zipf 1.5": 1 / (1.0 + i) ** 1.5,
        "sawtooth": 1.0 + i % 8,
        "two spikes": spikes,
        "all in the last": last,
        "beta(5, 2)": u**4 * (1 - u),
    }
    return {name: f / f.sum() for name, f in shares.items()}


def measures(values: np.ndarray, f: np.ndarray) -> list[float]:
    """Bias on empty bins, on the mode, MSE, MSE of ranges, Wasserstein distance as a part of the range."""
    error = values - f
    empty = f < 1e-4 / len(f)
    return [
        float(error[empty].mean()) if empty.any() else np.nan,
        float(error[np.argmax(f)]),
        float((error**2).mean()),
        mean_over_ranges(error),
        float(np.abs(np.cumsum(error)).mean()),
    ]


FIELDS = ("bias_empty", "bias_mode", "mse", "range_mse", "wasserstein")


EPSILONS = (0.5, 1.0, 2.0, 4.0)
REPORTS = (1_000, 10_000, 100_000, 1_000_000)


def distortion(options: argparse.Namespace) -> list[dict]:
    rng, rows, quick = np.random.default_rng(11), [], options.quick
    for mechanism, domain, fleets in (("olh", 64, 4), ("hh", 64, 4), ("hh", 256, 2)):
        for epsilon, reports in cells(quick):
            exp = experiment(mechanism, domain, round(epsilon * 1e6))
            for name, f in populations(domain).items():
                by_method = {method: [] for method in METHODS}
                for e in estimates(exp, f, reports, 1 if quick else fleets, rng, fleet):
                    for method, process in METHODS.items():
                        by_method[method].append(measures(process(e).frequencies, f))
                for method, values in by_method.items():
                    means = dict(zip(FIELDS, np.mean(values, axis=0).tolist(), strict=True))
                    head = {"mechanism": mechanism, "domain": domain, "epsilon": epsilon}
                    head |= {"reports": reports, "population": name, "method": method}
                    rows.append(head | means)
    against_raw(rows)
    return rows


def cells(quick: bool) -> list[tuple[float, int]]:
    """ε and N."""
    return [(1.0, 10_000)] if quick else [(e, n) for e in EPSILONS for n in REPORTS]


FEW = ("concentrated", "sparse", "two spikes", "all in the last")


def against_raw(rows: list[dict]) -> None:
    """Errors over those of raw: means over populations and N, worst cells, how many are worse than raw."""
    raw = {_cell(row): row for row in rows if row["method"] == "raw"}
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["method"] != "raw":
            sized, epsilon = f"{row['mechanism']} {row['domain']}", row["epsilon"]
            few = f"{row['mechanism']}, {'few values' if row['population'] in FEW else 'spread'}"
            for key in ((sized, f"{epsilon:g}"), (sized, "all"), (few, "4" if epsilon == 4 else "0.5 to 2")):
                groups.setdefault((*key, row["method"]), []).append(row)
    shown = []
    for key, group in sorted(groups.items()):
        cells: dict[str, str] = dict(zip(("of", "ε", "method"), key, strict=True))
        for field in ("mse", "range_mse", "wasserstein"):
            ratio = np.array([row[field] / raw[_cell(row)][field] for row in group])
            worse = (ratio > 1 + 1e-9).sum()
            cells[field] = f"{np.exp(np.log(ratio).mean()):.2f} {ratio.max():.2f} {worse}/{len(ratio)}"
        shown.append(cells)
    show("over raw: geometric mean, worst, cells above 1", shown)


def _cell(row: dict) -> tuple:
    return tuple(row[key] for key in ("mechanism", "domain", "epsilon", "reports", "population"))


def in_the_metric(tree: Tree, leaves: np.ndarray) -> np.ndarray:
    """Least squares with the tree's level weights, no leaf below zero, sum 1."""
    rows, width = [np.full((1, tree.domain), 1e4)], 1  # the sum counts for all the rest
    most = max(float(own[0] / v[0]) for own, v in zip(tree.own, tree.variance, strict=True))
    for nodes, own, v in zip(tree.nodes[::-1], tree.own[::-1], tree.variance[::-1], strict=True):
        member = np.arange(nodes)[:, None] == np.arange(tree.domain) // width
        rows.append(member * np.sqrt(own[0] / v[0] / most))
        width *= tree.fanout
    design = np.vstack(rows)
    return nnls(design, design @ leaves)[0]


WAYS = {
    "nonnegative": lambda e: METHODS["nonnegative"](e).frequencies,
    "simplex": lambda e: simplex(e.frequencies),
    "metric": lambda e: in_the_metric(Hierarchy(e.experiment).tree(e.decoded.reports), e.frequencies),
}


def ranges(options: argparse.Namespace) -> list[dict]:
    """Ratios to raw of hierarchies, 40 fleets a cell; where nonnegative exceeds 1.05, 200 fleets again."""
    rng, rows, quick = np.random.default_rng(11), [], options.quick
    for domain in (64,) if quick else (64, 100, 256):
        for epsilon, reports in cells(quick):
            exp = experiment("hh", domain, round(epsilon * 1e6))
            for name, f in populations(domain).items():
                head = {"domain": domain, "epsilon": epsilon, "reports": reports, "population": name}
                row = head | _ratios(exp, f, reports, 3 if quick else 40, rng)
                if row["nonnegative_ranges"] > 1.05 and not quick:
                    row["again"] = _ratios(exp, f, reports, 200, rng)["nonnegative_ranges"]
                rows.append(row)
    show_ranges(rows)
    return rows


def show_ranges(rows: list[dict]) -> None:
    """By population and over all: ranges, mean and worst cell with its standard error, and mean of bins."""
    shown = []
    for name in (*dict.fromkeys(row["population"] for row in rows), "all"):
        group = [row for row in rows if name in (row["population"], "all")]
        cells = {"population": name}
        for way in WAYS:
            worst = max(group, key=lambda row: row[f"{way}_ranges"])
            mean, bins = (
                np.exp(np.mean([np.log(r[f"{way}_{k}"]) for r in group])) for k in ("ranges", "bins")
            )
            cells[way] = f"{mean:.2f}, {worst[f'{way}_ranges']:.2f} ± {worst[f'{way}_se']:.2f}"
            cells[f"{way}: bins"] = f"{bins:.2f}"
        shown.append(cells)
    show("over raw: ranges, worst cell", shown)
    for way in WAYS:
        empty, mode = (np.array([row[f"{way}_{key}"] for row in rows]) for key in ("empty", "mode"))
        above = sum(row[f"{way}_ranges"] > 1.05 for row in rows)
        text = f"empty bins {np.nanmean(empty):.3f}, at most {np.nanmax(empty):.3f}"
        text += f"; mode {mode.mean():.3f}, at least {mode.min():.3f}"
        CONSOLE.print(f"{way}: {above} of {len(rows)} cells above 1.05; in units of raw's error {text}")


_KEYS = ("ranges", "se", "bins", "empty", "mode")


def _ratios(exp: Experiment, f: np.ndarray, reports: int, fleets: int, rng: np.random.Generator) -> dict:
    """Of each way: squared errors over raw's, the standard error of ranges', biases over raw's RMSE."""
    found: dict[str, list[list[float]]] = {way: [] for way in ("raw", *WAYS)}
    for e in estimates(exp, f, reports, fleets, rng, fleet):
        found["raw"].append(measures(e.frequencies, f))
        for way, process in WAYS.items():
            found[way].append(measures(process(e), f))
    raw = np.array(found.pop("raw"))
    row = {"raw_range_mse": raw[:, 3].mean()}
    for way, values in found.items():
        x = np.array(values)
        ratio = x[:, 3].mean() / raw[:, 3].mean()
        error = (x[:, 3] - ratio * raw[:, 3]).std(ddof=1) / np.sqrt(fleets) / raw[:, 3].mean()
        empty, mode = x[:, :2].mean(axis=0) / np.sqrt(raw[:, 2].mean())
        numbers = (ratio, error, x[:, 2].mean() / raw[:, 2].mean(), empty, mode)
        row |= {f"{way}_{key}": float(value) for key, value in zip(_KEYS, numbers, strict=True)}
    return row


def fixed_kernel(options: argparse.Namespace) -> list[dict]:
    rng, rows = np.random.default_rng(11), []
    for mechanism in ("olh", "hh"):
        exp = experiment(mechanism, DOMAIN, 1_000_000)
        for name in ("concentrated", "normal"):
            f = populations(DOMAIN)[name]
            (e,) = estimates(exp, f, 10_000 if options.quick else 1_000_000, 1, rng, fleet)
            start = np.full(DOMAIN, 1 / DOMAIN)
            ways = {"fixed": postprocess._fixed_point(tuple(postprocess._histograms(e)), start, 1.0)}
            ways |= {"smooth": postprocess.smooth(e).frequencies, "raw": e.frequencies}
            mode = int(np.argmax(f))
            row = {"mechanism": mechanism, "population": name, "mode": f[mode]}
            row |= {f"{way}_mode": ways[way][mode] for way in ("fixed", "smooth")}
            rows.append(row | {f"{way}_mse": float(((x - f) ** 2).mean()) for way, x in ways.items()})
    return rows


def forged(exp: Experiment, target: int, reports: int, rng: np.random.Generator) -> np.ndarray:
    """Codes that support target and are otherwise drawn evenly; of a hierarchy, levels as the boards draw."""
    counts = np.zeros(exp.code_count, dtype=np.int64)
    shares = np.array([level.weight for level in exp.levels]) / exp.weight_sum
    for level, part in zip(exp.levels, rng.multinomial(reports, shares), strict=True):
        one = np.zeros(level.domain)
        one[target // level.width] = 1
        supporting = level.offset + np.flatnonzero(
            butterfly.expand(level, butterfly.class_weights(level, one)) > 0.5
        )
        np.add.at(counts, rng.choice(supporting, part), 1)
    return counts


def poisoning(options: argparse.Namespace) -> list[dict]:
    """Forgers are a share of all reports; changes are against the same fleet with honest ones instead."""
    rng, rows, target, honest = np.random.default_rng(11), [], DOMAIN * 3 // 4 + 1, 100_000
    for mechanism, epsilon in (("grr", 1.0), ("olh", 1.0), ("hh", 1.0), ("olh", 4.0)):
        exp = experiment(mechanism, DOMAIN, round(epsilon * 1e6))
        for name, f in itertools.islice(populations(DOMAIN).items(), 5):
            for share in (0.01, 0.05):
                by_method: dict[str, list[list[float]]] = {method: [] for method in METHODS}
                bad = round(honest * share)
                for _ in range(1 if options.quick else 5):
                    common = fleet(exp, f, honest - bad, rng)
                    clean = estimate(exp, common + fleet(exp, f, bad, rng))
                    dirty = estimate(exp, common + forged(exp, target, bad, rng))
                    for method, process in METHODS.items():
                        change = process(dirty).frequencies - process(clean).frequencies
                        others = np.delete(change, target)
                        by_method[method].append([change[target], np.abs(others).sum(), others.sum()])
                for method, values in by_method.items():
                    row = {"mechanism": mechanism, "epsilon": epsilon, "population": name, "forged": share}
                    found = zip(("gain", "others", "net_of_others"), np.mean(values, axis=0), strict=True)
                    rows.append(row | {"method": method} | dict(found))
    return rows


def times(options: argparse.Namespace) -> list[dict]:
    """Processor seconds with 1,000,000 reports at ε = 1, of the top 20."""
    rng, rows = np.random.default_rng(11), []
    sizes = (("olh", 1024), ("hh", 1024), ("olh", 4096), ("olh", 65_536), ("hh", 65_536))
    for mechanism, domain in sizes[: 1 if options.quick else None]:
        exp = experiment(mechanism, domain, 1_000_000)
        f = 1 / (1.0 + np.arange(domain)) ** 1.1
        e: Estimate = estimate(exp, fleet(exp, f / f.sum(), 1_000_000, rng))
        assert e.spread is not None  # the estimate's own errors are computed once, and not timed here
        row: dict = {"mechanism": mechanism, "domain": domain, "codes": exp.code_count}
        for name in ("nonnegative", "smooth", "top"):
            start = time.process_time()
            METHODS[name](e) if name in METHODS else top(e, 20)
            row[name] = time.process_time() - start
        rows.append(row)
    return rows


if __name__ == "__main__":
    parts = (times, poisoning, distortion, ranges, fixed_kernel)
    run(__doc__, "post_processing.json", {p.__name__: p for p in parts}, own_machine=True)
