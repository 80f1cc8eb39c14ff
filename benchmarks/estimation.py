"""Time and memory of an estimate's statistics over about a million codes or values.

    python benchmarks/estimation.py [--quick]

The 1,000,000 reports are already counted. Each mechanism's largest alphabets run in their own processes:
first all frequencies and their errors, then the distribution function, a quantile and a range. peers.py
compares the server's time with the peers'. Writes its part of benchmarks/results/estimation.json.
"""

import multiprocessing
import time

import numpy as np
from published import experiment
from results_file import Options, memory_mib, run

from hushmote.server.estimate import estimate

MILLION = (
    ("grr", 1_000_000, 16_000_000, {}),
    ("olh", 524_288, 500_000, {"g": 2}),
    ("olh", 177_147, 1_000_000, {"g": 3}),
    ("olh", 9_409, 4_000_000, {"g": 97}),
    ("hh", 100_000, 1_000_000, {}),
    ("hh", 16_384, 2_000_000, {}),
)


def measured(case: tuple[str, int, int, dict]) -> dict:
    """Measure one alphabet."""
    mechanism, domain, epsilon, fields = case
    exp = experiment(mechanism, domain, epsilon, **fields)
    counts = np.random.default_rng(8).poisson(1_000_000 / exp.code_count, exp.code_count)
    row = {"mechanism": mechanism, "epsilon": epsilon / 1e6, "domain": domain, "codes": exp.code_count}
    before, start = memory_mib(field="VmHWM"), time.perf_counter()
    e = estimate(exp, counts)
    e.frequency_intervals()
    row["frequencies_and_errors_s"] = time.perf_counter() - start
    e.cdf_intervals()
    e.quantile(0.5)
    e.range(domain // 8, domain // 2)
    return row | {
        "all_s": time.perf_counter() - start,
        "peak_mib": memory_mib(field="VmHWM"),
        "peak_before_mib": before,
    }


def million_codes(options: Options) -> list[dict]:
    rows = []
    for case in MILLION[3 if options.quick else 0 :]:
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            rows.append(fresh.apply(measured, (case,)))
    return rows


if __name__ == "__main__":
    run(__doc__, "estimation.json", {"million_codes": million_codes})
