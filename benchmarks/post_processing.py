"""What post-processing gains and distorts, and what forged reports gain; top_k.py has the top k.

    python benchmarks/post_processing.py [--quick] [part ...]

1. Bias on empty bins and on the most common one, squared errors and Wasserstein distance of raw, nonnegative
   and smooth, against the population, D = 64.
2. Part of a fleet forges reports that support one value: what that value gains and what the others lose.
   Cao, Jia, Gong, "Data poisoning attacks to local differential privacy protocols", USENIX Security 2021.
3. The same with the published smoothing step, one 1-2-1 kernel whatever the data.

Prints tables and writes benchmarks/results/post_processing.json.
"""

import argparse
import json
import time
from functools import cache

import numpy as np
from accuracy import experiment
from results_file import RESULTS, machine, write
from rich.console import Console
from rich.table import Table

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import Estimate, estimate, postprocess
from hushmote.server.estimate.postprocess import METHODS
from hushmote.server.estimate.top_k import top
from hushmote.server.mechanisms import butterfly
from hushmote.simulator import vectorised

DOMAIN = 64
made = cache(experiment)


def populations(domain: int) -> dict[str, np.ndarray]:
    """Shares of the values, by name."""
    i = np.arange(domain)
    concentrated, sparse = np.zeros(domain), np.zeros(domain)
    concentrated[[domain // 3, domain // 3 + 2, domain - 3]] = 0.75, 0.2, 0.05
    sparse[:: domain // 8] = 1 / np.arange(1, 9)
    shares = {
        "uniform": np.ones(domain),
        "skewed": 1 / (1.0 + i) ** 1.3,
        "concentrated": concentrated,
        "sparse": sparse,
        "normal": np.exp(-0.5 * ((i - 0.45 * domain) / (domain / 16)) ** 2),
    }
    return {name: f / f.sum() for name, f in shares.items()}


def fleet(exp: Experiment, f: np.ndarray, reports: int, rng: np.random.Generator) -> np.ndarray:
    return vectorised.histogram(exp, rng.multinomial(reports, f), rng)


def range_mse(error: np.ndarray) -> float:
    """Mean squared error over all ranges of errors of single values."""
    prefix = np.append(0.0, np.cumsum(error))
    n = len(prefix)
    return float(2 * (n * (prefix**2).sum() - prefix.sum() ** 2) / (n * (n - 1)))


def measures(values: np.ndarray, f: np.ndarray) -> list[float]:
    """Bias on empty bins, on the mode, MSE, MSE of ranges, Wasserstein distance as a part of the range."""
    error = values - f
    empty = f < 1e-4 / len(f)
    return [
        float(error[empty].mean()) if empty.any() else np.nan,
        float(error[np.argmax(f)]),
        float((error**2).mean()),
        range_mse(error),
        float(np.abs(np.cumsum(error)).mean()),
    ]


FIELDS = ("bias_empty", "bias_mode", "mse", "range_mse", "wasserstein")


def distortion(quick: bool, rng: np.random.Generator, console: Console) -> list[dict]:
    rows = []
    fleets = 1 if quick else 5
    for mechanism in ("olh", "hh"):
        for epsilon in (1.0,) if quick else (0.5, 1.0, 2.0, 4.0):
            exp = made(mechanism, DOMAIN, round(epsilon * 1e6))
            for reports in (10_000,) if quick else (1_000, 10_000, 100_000, 1_000_000):
                for name, f in populations(DOMAIN).items():
                    by_method = {method: [] for method in METHODS}
                    for _ in range(fleets):
                        e = estimate(exp, fleet(exp, f, reports, rng))
                        for method, process in METHODS.items():
                            by_method[method].append(measures(process(e).frequencies, f))
                    for method, values in by_method.items():
                        means = dict(zip(FIELDS, np.mean(values, axis=0).tolist(), strict=True))
                        head = {"mechanism": mechanism, "epsilon": epsilon, "reports": reports}
                        rows.append(head | {"population": name, "method": method} | means)
    table = Table("mechanism", "ε", "N", "population", "method", "empty", "mode", "MSE", "ranges", "W")
    for row in rows:
        if row["epsilon"] == 1 and row["reports"] in (10_000, 1_000_000):
            numbers = (f"{row[field]:.2g}" for field in FIELDS)
            table.add_row(
                row["mechanism"], "1", f"{row['reports']:,}", row["population"], row["method"], *numbers
            )
    console.print(table)
    return rows


def fixed_kernel(quick: bool, rng: np.random.Generator, console: Console) -> list[dict]:
    rows = []
    table = Table(
        "mechanism", "population", "mode", "fixed 1-2-1", "smooth", title="One kernel for all, ε = 1"
    )
    for mechanism in ("olh", "hh"):
        exp = made(mechanism, DOMAIN, 1_000_000)
        for name in ("concentrated", "normal"):
            f = populations(DOMAIN)[name]
            e = estimate(exp, fleet(exp, f, 10_000 if quick else 1_000_000, rng))
            start = np.full(DOMAIN, 1 / DOMAIN)
            fixed = postprocess._fixed_point(tuple(postprocess._histograms(e)), start, 1.0)
            chosen = postprocess.smooth(e).frequencies
            mode = int(np.argmax(f))
            row = {"mechanism": mechanism, "population": name, "mode": f[mode]}
            row |= {"fixed_mode": fixed[mode], "smooth_mode": chosen[mode]}
            for key, values in (("fixed", fixed), ("smooth", chosen), ("raw", e.frequencies)):
                row[f"{key}_mse"] = float(((values - f) ** 2).mean())
            rows.append(row)
            table.add_row(
                mechanism, name, *(f"{row[key]:.3f}" for key in ("mode", "fixed_mode", "smooth_mode"))
            )
    console.print(table)
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


def poisoning(quick: bool, rng: np.random.Generator, console: Console) -> list[dict]:
    """Forgers are a share of all reports; changes are against the same fleet with honest ones instead."""
    rows = []
    table = Table(
        "mechanism", "population", "forged", "method", "gain", "gain/forged", "others", title="Forged"
    )
    for mechanism, epsilon in (("grr", 1.0), ("olh", 1.0), ("hh", 1.0), ("olh", 4.0)):
        exp = made(mechanism, DOMAIN, round(epsilon * 1e6))
        for name, f in populations(DOMAIN).items():
            target = DOMAIN * 3 // 4 + 1
            for share in (0.01, 0.05):
                by_method: dict[str, list[list[float]]] = {method: [] for method in METHODS}
                for _ in range(1 if quick else 5):
                    honest = 100_000
                    bad = round(honest * share)
                    common = fleet(exp, f, honest - bad, rng)
                    clean = estimate(exp, common + fleet(exp, f, bad, rng))
                    dirty = estimate(exp, common + forged(exp, target, bad, rng))
                    for method, process in METHODS.items():
                        change = process(dirty).frequencies - process(clean).frequencies
                        others = np.delete(change, target)
                        by_method[method].append([change[target], np.abs(others).sum(), others.sum()])
                for method, values in by_method.items():
                    gain, others, net = np.mean(values, axis=0)
                    rows.append(
                        {"mechanism": mechanism, "epsilon": epsilon, "population": name, "forged": share}
                        | {"method": method, "gain": gain, "others": others, "net_of_others": net}
                    )
                    cells = (f"{gain:.4f}", f"{gain / share:.2f}", f"{others:.3f}")
                    table.add_row(f"{mechanism} {epsilon:g}", name, f"{share:.0%}", method, *cells)
    console.print(table)
    return rows


def times(quick: bool, rng: np.random.Generator, console: Console) -> list[dict]:
    rows = []
    table = Table(
        "mechanism",
        "D",
        "codes",
        "nonnegative s",
        "smooth s",
        "top 20 s",
        title="CPU seconds, N = 1,000,000, ε = 1",
    )
    for mechanism, domain in (
        (("olh", 1024),) if quick else (("olh", 1024), ("hh", 1024), ("olh", 4096), ("olh", 65_536))
    ):
        exp = made(mechanism, domain, 1_000_000)
        f = 1 / (1.0 + np.arange(domain)) ** 1.1
        e: Estimate = estimate(exp, fleet(exp, f / f.sum(), 1_000_000, rng))
        assert e.spread is not None  # the estimate's own errors are computed once, and not timed here
        row: dict = {"mechanism": mechanism, "domain": domain, "codes": exp.code_count}
        for name, work in (
            ("nonnegative", METHODS["nonnegative"]),
            ("smooth", METHODS["smooth"]),
            ("top", lambda x: top(x, 20)),
        ):
            start = time.process_time()
            work(e)
            row[name] = time.process_time() - start
        rows.append(row)
        cells = (f"{row[name]:.3f}" for name in ("nonnegative", "smooth", "top"))
        table.add_row(mechanism, f"{domain:,}", f"{exp.code_count:,}", *cells)
    console.print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What post-processing gains and distorts.")
    parser.add_argument("--quick", action="store_true", help="fewer fleets; writes no file")
    parts = (times, poisoning, distortion, fixed_kernel)
    parser.add_argument("parts", nargs="*", help="only these: " + ", ".join(part.__name__ for part in parts))
    arguments = parser.parse_args()
    console = Console(width=140)
    file = RESULTS / "post_processing.json"
    for part in parts:
        if arguments.parts and part.__name__ not in arguments.parts:
            continue
        rows = part(arguments.quick, np.random.default_rng(11), console)
        if not arguments.quick:
            result = json.loads(file.read_text()) if file.exists() else {}
            result[part.__name__] = {"machine": machine(), "rows": rows}
            write("post_processing.json", result)


if __name__ == "__main__":
    main()
