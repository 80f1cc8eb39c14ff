"""Time from received reports to frequencies, against pure-ldp and multi-freq-ldpy; growth with N and D.

    python benchmarks/estimation.py [--quick]

Compared is the server's work, on one core: the reports are in memory, decoded, in each library's own form
(an array of codes here, a list of (cell, seed) pairs there); the clock stops when all D frequencies are
there, here with their standard errors. The peers hash each report against each value, so that their time is
linear in reports; it is measured on fewer and extrapolated. That all of them find the most common value is
checked before anything is timed.

Prints tables and writes benchmarks/results/estimation.json.
"""

import argparse
import multiprocessing
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from accuracy import codes, experiment, skewed
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client  # pyright: ignore[reportMissingImports]
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer  # pyright: ignore[reportMissingImports]
from results_file import machine, write
from rich.console import Console
from rich.table import Table

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.mechanisms.channel import level_channel


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Median wall-clock time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def ours(exp: Experiment, received: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    e = estimate(exp, np.bincount(received, minlength=exp.code_count))
    return e.frequencies, e.stderr


def pure_ldp_reports(values: np.ndarray, epsilon: float, domain: int) -> list:
    client = LHClient(epsilon, domain, use_olh=True, index_mapper=lambda x: x)
    return [client.privatise(int(v)) for v in values]


def pure_ldp(reports: list, epsilon: float, domain: int) -> np.ndarray:
    server = LHServer(epsilon, domain, use_olh=True, index_mapper=lambda x: x)
    server.aggregate_all(reports)
    return server.estimate_all(range(domain), suppress_warnings=True) / len(reports)


def peers(quick: bool, rng: np.random.Generator, console: Console) -> dict:
    reports, domain, epsilon = 1_000_000, 1024, 1.0
    some = 2_000 if quick else 20_000
    f = skewed(domain)
    sizes = rng.multinomial(reports, f)
    exp = experiment("olh", domain, round(epsilon * 1e6))
    received = codes(exp, sizes, rng)
    rng.shuffle(received)
    values = rng.choice(domain, size=some, p=f)
    theirs = pure_ldp_reports(values, epsilon, domain)
    others = [LH_Client(int(v), domain, epsilon) for v in values]

    # Whoever computes something else is not a peer: the most common value is far above anybody's error.
    first_estimates = {
        "hushmote": ours(exp, received)[0][0],
        "pure-ldp": pure_ldp(theirs[:2000], epsilon, domain)[0],
        "multi-freq-ldpy": LH_Aggregator_MI(others[:2000], domain, epsilon)[0],
    }
    error = np.sqrt(level_channel(exp.levels[0]).variance / 2000)
    for name, value in first_estimates.items():
        # multi-freq-ldpy clips and normalises over the whole domain, which shrinks what it finds.
        assert value > 0 if name == "multi-freq-ldpy" else abs(value - f[0]) < 7 * error, (name, value, f[0])

    own = seconds(lambda: ours(exp, received))
    after = np.bincount(received, minlength=exp.code_count)
    counted = seconds(lambda: (lambda e: (e.frequencies, e.stderr))(estimate(exp, after)))
    first = seconds(lambda: pure_ldp(theirs, epsilon, domain), 1) * reports / some
    second = seconds(lambda: LH_Aggregator_MI(others, domain, epsilon), 1) * reports / some
    title = f"N = {reports:,} reports, D = {domain:,}, ε = {epsilon:g}, OLH: decoded reports to frequencies"
    table = Table("", "seconds", "times ours", title=title)
    table.add_row("hushmote, counting included, with errors", f"{own:.4f}", "1")
    table.add_row("hushmote, after counting, with errors", f"{counted:.4f}", "")
    for name, value in (("pure-ldp 1.2.0", first), ("multi-freq-ldpy 0.2.5", second)):
        table.add_row(f"{name}, extrapolated from {some:,}", f"{value:.0f}", f"{value / own:,.0f}")
    console.print(table)
    return {
        "reports": reports,
        "domain": domain,
        "epsilon": epsilon,
        "peers_measured_on": some,
        "hushmote_s": own,
        "hushmote_after_counting_s": counted,
        "pure_ldp_s": first,
        "multi_freq_ldpy_s": second,
        "times_pure_ldp": first / own,
        "times_multi_freq_ldpy": second / own,
    }


def growth_with_reports(quick: bool, rng: np.random.Generator, console: Console) -> list[dict]:
    table = Table("N", "counting s", "frequencies and errors s", title="Growth with N: OLH, D = 1,024, ε = 1")
    exp = experiment("olh", 1024, 1_000_000)
    rows = []
    for reports in (10_000, 100_000, 1_000_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000):
        received = codes(exp, rng.multinomial(reports, skewed(1024)), rng)
        rng.shuffle(received)
        counts = np.bincount(received, minlength=exp.code_count)
        counting = seconds(lambda r=received: np.bincount(r, minlength=exp.code_count))
        rest = seconds(lambda c=counts: (lambda e: (e.frequencies, e.stderr))(estimate(exp, c)))
        rows.append({"reports": reports, "counting_s": counting, "estimation_s": rest})
        table.add_row(f"{reports:,}", f"{counting:.5f}", f"{rest:.5f}")
    console.print(table)
    return rows


def steps(exp: Experiment, counts: np.ndarray) -> list[float]:
    """Times of the frequencies, then of their errors, a range and a quantile of the same estimate."""
    e = estimate(exp, counts)
    return [
        seconds(lambda: estimate(exp, counts).frequencies, 1),
        seconds(lambda: (e.frequencies, e.stderr), 1),
        seconds(lambda: e.range(exp.domain // 8, exp.domain // 2), 1),
        seconds(lambda: e.quantile(0.5), 1),
    ]


def growth_with_domain(quick: bool, rng: np.random.Generator, console: Console) -> list[dict]:
    columns = (
        "mechanism",
        "ε",
        "D",
        "codes",
        "frequencies s",
        "all errors s",
        "range s",
        "quantile s",
        "errors",
    )
    table = Table(*columns, title="Growth with D: N = 1,000,000, after counting; one after the other")
    rows = []
    for mechanism in ("olh", "hh"):
        for epsilon in (1_000_000, 4_000_000):
            for domain in (64, 1024, 65_536) if quick else (64, 256, 1024, 4096, 16_384, 65_536):
                exp = experiment(mechanism, domain, epsilon)
                received = codes(exp, rng.multinomial(1_000_000, skewed(domain)), rng)
                counts = np.bincount(received, minlength=exp.code_count)
                repeats = 1 if domain > 2048 else 3
                times = np.median([steps(exp, counts) for _ in range(repeats)], axis=0)
                how = estimate(exp, counts).stderr_method
                row = {"mechanism": mechanism, "epsilon": epsilon / 1e6, "domain": domain}
                row |= {"codes": exp.code_count, "errors": how}
                names = ("frequencies_s", "all_errors_s", "range_s", "quantile_s")
                row |= dict(zip(names, times, strict=True))
                rows.append(row)
                head = (mechanism, f"{epsilon / 1e6:g}", f"{domain:,}", f"{exp.code_count:,}")
                table.add_row(*head, *(f"{t:.4f}" for t in times), how)
    console.print(table)
    return rows


# About a million codes or values each: the widest of every mechanism that such an alphabet holds.
MILLION = (
    ("grr", 1_000_000, 16_000_000, {}),
    ("olh", 524_288, 500_000, {"g": 2}),
    ("olh", 177_147, 1_000_000, {"g": 3}),
    ("olh", 9_409, 4_000_000, {"g": 97}),
    ("hh", 100_000, 1_000_000, {}),
    ("hh", 16_384, 2_000_000, {}),
)


def _peak_mib() -> float:
    """Most memory that this process had resident; ru_maxrss would also count its parent's."""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _million(case: tuple[str, int, int, dict]) -> dict:
    """Times and memory of everything that is asked of one estimate, in a process of its own."""
    mechanism, domain, epsilon, fields = case
    exp = experiment(mechanism, domain, epsilon, **fields)
    rng = np.random.default_rng(8)
    counts = rng.poisson(1_000_000 / exp.code_count, exp.code_count)
    before = _peak_mib()
    start = time.perf_counter()
    e = estimate(exp, counts)
    e.frequency_intervals()
    frequencies = time.perf_counter() - start
    e.cdf_intervals()
    e.quantile(0.5)
    e.range(domain // 8, domain // 2)
    return {
        "mechanism": mechanism,
        "epsilon": epsilon / 1e6,
        "domain": domain,
        "codes": exp.code_count,
        "frequencies_and_errors_s": frequencies,
        "all_s": time.perf_counter() - start,
        "peak_mib": _peak_mib(),
        "peak_before_mib": before,
    }


def million_codes(console: Console) -> list[dict]:
    columns = (
        "mechanism",
        "ε",
        "D",
        "codes",
        "frequencies, errors s",
        "+ cdf, quantile, range s",
        "peak MiB",
    )
    table = Table(*columns, title="About a million codes, 1,000,000 reports, after counting; all errors")
    rows = []
    for case in MILLION:
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            row = fresh.apply(_million, (case,))
        rows.append(row)
        times = (f"{row['frequencies_and_errors_s']:.3f}", f"{row['all_s']:.3f}", f"{row['peak_mib']:.0f}")
        table.add_row(
            row["mechanism"], f"{row['epsilon']:g}", f"{row['domain']:,}", f"{row['codes']:,}", *times
        )
    console.print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Time from received reports to frequencies, against peers.")
    parser.add_argument("--quick", action="store_true", help="fewer reports and domains; writes no file")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", RuntimeWarning)  # pure-ldp's, about small samples
    rng = np.random.default_rng(7)
    console = Console(width=120)
    result: dict = {"machine": machine(), "peers": peers(quick, rng, console)}
    result["growth_with_reports"] = growth_with_reports(quick, rng, console)
    result["growth_with_domain"] = growth_with_domain(quick, rng, console)
    result["million_codes"] = million_codes(console)
    if not quick:
        write("estimation.json", result)


if __name__ == "__main__":
    main()
