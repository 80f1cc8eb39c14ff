"""Compare frequency estimates with pure-ldp and multi-freq-ldpy: squared error and time.

    python benchmarks/peers.py [--quick] [errors | times]

N in 10^4, 10^5, 10^6; D in 16, 128, 1024; ε in 0.5, 1, 2, 4. Every method sees the same sample: the counts of
a Zipf population (exponent 1.3), with the values in a new random order in each run, so that an error is due
to the mechanism rather than to a particular value. Each library's clients make the reports and its server
reads them, on one core, in memory.

errors: the squared error against the sample's frequencies, averaged over all D values. The number of runs is
fixed beforehand: enough for a relative Monte Carlo error of 4% if a run's D errors are normal and independent
(2 / (D 0.04²)), and at least 20. The standard error is computed from the runs. The formula's value is listed
alongside. Results that are not fully measured are marked:

    *  an unbiased estimator's error on fewer reports, scaled by 1/N (exact for such an estimator)
    ~  support counts or reports drawn from the mechanism's distribution, read by the peer's real estimator

times: the median over several rounds, in which all methods take turns, so that a busy machine slows all of
them.

    >  a time on fewer reports, scaled linearly, because each report is hashed against each value

Writes benchmarks/results/peers.json; results/peers.md describes its numbers.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from draws import mean_and_error
from multi_freq_ldpy.estimators.Histogram_estimator import MI  # pyright: ignore[reportMissingImports]
from multi_freq_ldpy.pure_frequency_oracles import GRR, LH, UE  # pyright: ignore[reportMissingImports]
from published import experiment
from pure_ldp import frequency_oracles as pure  # pyright: ignore[reportMissingImports]
from results_file import Options, machine, run
from scipy import stats

from hushmote.device.ldp_client import DRBG, Experiment
from hushmote.server.estimate import estimate
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.workload import FREQUENCIES
from hushmote.simulator import vectorised

FLH_HASHES = 500  # fast local hashing's fixed pool of hash functions
SIZES = (10_000, 100_000, 1_000_000)
DOMAINS = (16, 128, 1024)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
TIMED_EPSILON = 1.0
WANTED_ERROR = 0.04  # relative Monte Carlo error for which the number of runs is chosen
MIN_RUNS = 20
ROUNDS = 5  # timing rounds
MAX_PAIRS = 26_000_000  # maximum reports times values times runs for which every pair is hashed
MAX_TIMED_PAIRS = 2_000_000  # maximum reports times values for which hashing is timed
CLIENTS_TIMED = 2_000  # reports per client timing

Reports = list
Floats = np.ndarray
Work = Callable[[], object]


@dataclass(frozen=True)
class Method:
    """A library's mechanism, which makes reports from values and estimates frequencies from reports.

    Attributes:
        server: Returns a function that turns reports into frequencies; the set-up is not timed.
        draw: Returns frequencies drawn from the mechanism's distribution for sizes[v] people with value v;
            None if every report is simulated.
        theory: Returns the mean squared error for sizes in random order over the values; None without a
            formula.
        unbiased: Whether the error scales with 1/N.
        quadratic: Whether the time grows with reports times values.
    """

    name: str
    client: Callable[[np.ndarray], Reports]
    server: Callable[[], Callable[[Reports], Floats]]
    draw: Callable[[np.ndarray, np.random.Generator], Floats] | None = None
    theory: Callable[[np.ndarray], float] | None = None
    unbiased: bool = True
    quadratic: bool = False


def pure_mse(p: float, q: float, domain: int) -> float:
    """Return the squared error against the sample, times the number of reports.

    Args:
        p: Chance that a report supports its true value.
        q: Chance that a report supports another value.
        domain: Number of values.
    """
    return q * (1 - q) / (p - q) ** 2 + (1 - p - q) / ((p - q) * domain)


def pool_mse(matrix: np.ndarray, cells: int, truth_probability: float, shares: np.ndarray) -> float:
    """Return the squared error from a fixed pool of hash functions, which more reports do not reduce.

    Args:
        matrix: Each value's cell, shape (functions, domain).
        cells: Number of cells.
        truth_probability: Chance that a report has the true cell.
        shares: The population's shares, in random order over the values.
    """
    domain = matrix.shape[1]
    joint_counts = np.zeros((domain, domain))
    for cell in range(cells):
        inside = (matrix == cell).astype(np.float64)
        joint_counts += inside.T @ inside
    off = joint_counts / len(matrix) - 1 / cells
    np.fill_diagonal(off, 0)
    off *= (truth_probability - (1 - truth_probability) / (cells - 1)) / (truth_probability - 1 / cells)
    square = float((shares**2).sum())
    alone = (off**2).sum()
    crossed = (off.sum(axis=0) ** 2).sum() - alone
    return float(square * alone + (1 - square) / (domain - 1) * crossed) / domain**2


def pure_ldp(domain: int, epsilon: float) -> list[Method]:
    e = math.exp(epsilon)
    cells = round(e) + 1
    truth_probability = e / (e + cells - 1)
    same = {"index_mapper": int}
    hashing = {"g": cells, "use_olh": True} | same
    hadamard = pure.HadamardResponseServer(epsilon, domain, **same)
    matrix = pure.FastLHServer(epsilon, domain, FLH_HASHES, **hashing).hash_matrix.astype(np.int64)
    pool = (epsilon, domain, FLH_HASHES)

    def draw_flh(sizes: np.ndarray, rng: np.random.Generator) -> Floats:
        values = np.repeat(np.arange(domain), sizes)
        seeds = rng.integers(0, FLH_HASHES, len(values))
        lies = rng.random(len(values)) >= truth_probability
        codes = (matrix[seeds, values] + lies * rng.integers(1, cells, len(values))) % cells
        server = pure.FastLHServer(*pool, hash_matrix=matrix, **hashing)
        np.add.at(server.hash_counts, (seeds, codes), 1)
        server.n = len(values)
        return server.estimate_all(range(domain), suppress_warnings=True) / len(values)

    def hr_server() -> Any:
        hadamard.reset()
        return hadamard

    def method(name: str, client: Any, server: Callable[[], Any], p: float, q: float, **more: Any) -> Method:
        def theory(sizes: np.ndarray) -> float:
            n = int(sizes.sum())
            pool_error = pool_mse(matrix, cells, truth_probability, sizes / n) if name == "FLH" else 0.0
            return pure_mse(p, q, domain) / n + pool_error

        def privatise(values: np.ndarray) -> Reports:
            return [client.privatise(int(v)) for v in values]

        formula = None if math.isnan(p) else theory
        return Method(f"pure-ldp {name}", privatise, lambda: _server(server()), theory=formula, **more)

    two = (epsilon, domain)
    direct = e / (e + domain - 1)
    # Up to ε = 1, a report is a single bit of a Hadamard code; above, it is a block, whose error has no
    # simple formula.
    one_bit = e / (e + 1) if epsilon <= 1 else math.nan
    client = {
        "GRR": pure.DEClient(*two, **same),
        "OLH": pure.LHClient(*two, **hashing),
        "FLH": pure.FastLHClient(*pool, **hashing),
        "HR": pure.HadamardResponseClient(*two, hadamard.get_hash_funcs(), **same),
        "OUE": pure.UEClient(*two, use_oue=True, **same),
    }
    server: dict[str, Callable[[], Any]] = {
        "GRR": lambda: pure.DEServer(*two, **same),
        "OLH": lambda: pure.LHServer(*two, **hashing),
        "FLH": lambda: pure.FastLHServer(*pool, hash_matrix=matrix, **hashing),
        "HR": hr_server,
        "OUE": lambda: pure.UEServer(*two, use_oue=True, **same),
    }
    chances = {
        "GRR": (direct, direct / e),
        "OLH": (truth_probability, 1 / cells),
        "FLH": (truth_probability, 1 / cells),
    }
    chances |= {"HR": (one_bit, 0.5), "OUE": (0.5, 1 / (e + 1))}
    more = {"OLH": {"quadratic": True}, "FLH": {"draw": draw_flh, "unbiased": False}}
    return [method(name, client[name], server[name], *chances[name], **more.get(name, {})) for name in client]


def _server(server: Any) -> Callable[[Reports], Floats]:
    def frequencies(reports: Reports) -> Floats:
        server.aggregate_all(reports)
        return server.estimate_all(range(server.d), suppress_warnings=True) / len(reports)

    return frequencies


def multi_freq(domain: int, epsilon: float) -> list[Method]:
    """Return multi-freq-ldpy's methods, which always clip at zero and normalise and thus have no formula."""
    e = math.exp(epsilon)
    cells = round(e) + 1

    def method(name: str, client: Callable, aggregate: Callable, p: float, q: float) -> Method:
        def make(values: np.ndarray) -> Reports:
            return [client(int(v), domain, epsilon) for v in values]

        def draw(sizes: np.ndarray, rng: np.random.Generator) -> Floats:
            n = int(sizes.sum())
            if name == "GRR":
                counts = vectorised.histogram(experiment("grr", domain, round(epsilon * 1e6)), sizes, rng)
            else:
                counts = rng.binomial(sizes, p) + rng.binomial(n - sizes, q)
            return MI(counts, n, p, q)

        about: dict[str, Any] = {"unbiased": False, "quadratic": name == "OLH"}
        return Method(f"multi-freq {name}", make, lambda: aggregate, draw, **about)

    direct, truth_probability = e / (e + domain - 1), e / (e + cells - 1)
    hashed = lambda reports: LH.LH_Aggregator_MI(reports, domain, epsilon)  # noqa: E731
    return [
        method(
            "GRR", GRR.GRR_Client, lambda r: GRR.GRR_Aggregator_MI(r, domain, epsilon), direct, direct / e
        ),
        method("OLH", LH.LH_Client, hashed, truth_probability, 1 / cells),
        method("OUE", UE.UE_Client, lambda r: UE.UE_Aggregator_MI(r, epsilon), 0.5, 1 / (e + 1)),
    ]


# --- Errors ---------------------------------------------------------------------------------------


def zipf_sample(domain: int, people: int) -> np.ndarray:
    """Return the number of people with each value: Zipf shares (exponent 1.3), rounded to add up."""
    shares = 1 / (1 + np.arange(domain)) ** 1.3
    shares *= people / shares.sum()
    sizes = np.floor(shares).astype(np.int64)
    sizes[np.argsort(sizes - shares)[: people - sizes.sum()]] += 1
    return sizes


def chosen(domain: int, epsilon: float) -> Experiment:
    """Return the experiment that Hushmote chooses for frequencies."""
    choice = oracle.choose(domain, round(epsilon * 1e6), FREQUENCIES)
    return experiment(choice.mechanism, domain, round(epsilon * 1e6), **dict(choice.parameters))


def our_experiments(domain: int, epsilon: float) -> dict[str, Experiment]:
    micro = round(epsilon * 1e6)
    by_name = {"hushmote": chosen(domain, epsilon)}
    by_name |= {f"hushmote {m.upper()}": experiment(m, domain, micro) for m in ("olh", "grr")}
    return by_name


def exact_mse(exp: Experiment) -> float:
    """Return the squared error against the sample, times the number of reports, for randomly ordered values.

    It enumerates every class of codes and subtracts the owner's own contribution to the sample from the
    weights' second moment under an even population.
    """
    mechanism = mechanism_of(exp)
    law = mechanism.law(np.full(exp.domain, 1 / exp.domain))[0]
    second = 0.0
    for _, alone in mechanism.columns():
        weights, constant = mechanism.weights(alone, [1.0])
        (level_weights,) = weights
        assert level_weights is not None
        second += float((law @ (level_weights + constant) ** 2).sum())
    return (second - 1) / exp.domain


def runs_for(domain: int) -> int:
    return max(MIN_RUNS, math.ceil(2 / (domain * WANTED_ERROR**2)))


def squared(estimates: Floats, sizes: np.ndarray) -> float:
    return float(np.mean((estimates - sizes / sizes.sum()) ** 2))


def clipped(frequencies: Floats) -> Floats:
    """Clip and normalise an estimate as multi-freq-ldpy does."""
    nonnegative = frequencies.clip(0)
    return nonnegative / nonnegative.sum()


def row(method: str, people: int, domain: int, epsilon: float, errors: list[float], **more) -> dict:
    about = {"method": method, "reports": people, "domain": domain, "epsilon": epsilon}
    mse, spread = mean_and_error(errors)
    return about | {"mse": mse, "mse_error": spread, "runs": len(errors), "mark": "", "theory": None} | more


def our_errors(domain: int, epsilon: float, people: int, runs: int, rng: np.random.Generator) -> list[dict]:
    rows = []
    sample = zipf_sample(domain, people)
    for name, exp in our_experiments(domain, epsilon).items():
        errors: dict[str, list[float]] = {name: []}
        for _ in range(runs):
            sizes = rng.permutation(sample)
            frequencies = estimate(exp, vectorised.histogram(exp, sizes, rng)).frequencies
            errors[name].append(squared(frequencies, sizes))
            if name == "hushmote":  # for a fair comparison
                errors.setdefault("hushmote clipped", []).append(squared(clipped(frequencies), sizes))
        picked = f"{exp.mechanism} {exp.levels[0].g}"
        for key, values in errors.items():
            theory = exact_mse(exp) / people if key == name else None
            rows.append(row(key, people, domain, epsilon, values, theory=theory, mechanism=picked))
    return rows


def peer_errors(
    method: Method,
    domain: int,
    epsilon: float,
    sizes_of: tuple[int, ...],
    runs: int,
    rng: np.random.Generator,
) -> list[dict]:
    # Simulate this many people; for more, scale or draw the error.
    simulated = min(sizes_of[0], MAX_PAIRS // (domain * runs)) if method.quadratic else sizes_of[0]
    scaled, rows = [], []
    for people in sizes_of:
        sample = zipf_sample(domain, people)
        theory = method.theory(sample) if method.theory else None
        if people == simulated or (method.unbiased and not scaled):
            smaller = zipf_sample(domain, simulated)
            measured = []
            for _ in range(runs):
                sizes = rng.permutation(smaller)
                reports = method.client(rng.permutation(np.repeat(np.arange(domain), sizes)))
                measured.append(squared(method.server()(reports), sizes))
            scaled = [x * simulated for x in measured] if method.unbiased else []
        if people == simulated:
            errors, mark = measured, ""
        elif scaled:
            errors, mark = [x / people for x in scaled], "*"
        else:
            assert method.draw is not None
            orders = (rng.permutation(sample) for _ in range(runs))
            errors, mark = [squared(method.draw(sizes, rng), sizes) for sizes in orders], "~"
        rows.append(
            row(method.name, people, domain, epsilon, errors, theory=theory, mark=mark, asked=simulated)
        )
    return rows


def errors(options: Options) -> dict:
    rng, quick = np.random.default_rng(7), options.quick
    sizes = SIZES[:2] if quick else SIZES
    start = time.process_time()
    rows = []
    for domain in DOMAINS[:2] if quick else DOMAINS:
        for epsilon in (1.0,) if quick else EPSILONS:
            runs = MIN_RUNS if quick else runs_for(domain)
            for people in sizes:
                rows += our_errors(domain, epsilon, people, runs, rng)
            for method in [*pure_ldp(domain, epsilon), *multi_freq(domain, epsilon)]:
                rows += peer_errors(method, domain, epsilon, sizes, runs, rng)
    check(rows)
    return {"machine": about(start), "rows": rows}


def check(rows: list[dict]) -> None:
    """Assert that the peers' errors follow their formulas, with a false-alarm chance of at most 10^-5."""
    with_theory = [r for r in rows if r["theory"] is not None]
    for r in with_theory:
        # Student's t, two-sided, with a factor of four as a margin for the skew of a mean square of few
        # values.
        limit = stats.t.isf(1e-5 / len(with_theory) / 8, r["runs"] - 1) * r["mse_error"]
        assert abs(r["mse"] - r["theory"]) < limit, r


def about(start: float) -> dict:
    libraries = {name: metadata.version(name) for name in ("pure-ldp", "multi-freq-ldpy")}
    spent = time.process_time() - start
    return machine() | {"cpu_seconds": spent, "peers": libraries, "flh_hashes": FLH_HASHES}


def our_work(exp: Experiment, people: int, rng: np.random.Generator) -> dict[str, Work]:
    """Return our work on a list of reports, which is what a peer's server gets, and on a stored histogram."""
    values = np.repeat(np.arange(exp.domain), zipf_sample(exp.domain, people))
    received = vectorised.codes(exp, rng.permutation(values), rng)
    listed = received.tolist()
    histogram = np.bincount(received, minlength=exp.code_count)

    def read(counts: np.ndarray) -> tuple[Floats, Floats]:
        answer = estimate(exp, counts)
        return answer.frequencies, answer.stderr

    return {
        "": lambda: read(np.bincount(np.array(listed), minlength=exp.code_count)),
        ", from its histogram": lambda: read(histogram),
    }


def server_times(domain: int, sizes: tuple[int, ...], rounds: int, rng: np.random.Generator) -> list[dict]:
    peers = [*pure_ldp(domain, TIMED_EPSILON), *multi_freq(domain, TIMED_EPSILON)]
    base = sizes[0]
    values = np.repeat(np.arange(domain), zipf_sample(domain, base))
    reports = {m.name: m.client(rng.permutation(values)) for m in peers}
    rows = []
    for people in sizes:
        work: dict[str, Work] = {}
        scale: dict[str, float] = {}
        for name, exp in our_experiments(domain, TIMED_EPSILON).items():
            kinds = our_work(exp, people, rng).items()
            work |= {name + kind: one for kind, one in kinds if not kind or name == "hushmote"}
        for m in peers:
            timed = min(people, MAX_TIMED_PAIRS // domain) if m.quadratic else people
            scale[m.name] = people / timed
            # Repeat the reports, since the server's work does not depend on their content.
            many = (reports[m.name] * math.ceil(timed / base))[:timed]
            work[m.name] = lambda m=m, many=many: m.server()(many)
        rows += in_turn(work, scale, rounds, {"reports": people, "domain": domain})
    return rows


def client_times(domain: int, rounds: int, rng: np.random.Generator) -> list[dict]:
    values = rng.permutation(np.repeat(np.arange(domain), zipf_sample(domain, CLIENTS_TIMED)))
    drbg = DRBG(rng.bytes(384))
    work: dict[str, Work] = {
        name: lambda exp=exp: [exp.randomize(int(v), drbg) for v in values]
        for name, exp in our_experiments(domain, TIMED_EPSILON).items()
    }
    for m in [*pure_ldp(domain, TIMED_EPSILON), *multi_freq(domain, TIMED_EPSILON)]:
        work[m.name] = lambda m=m: m.client(values)
    one = dict.fromkeys(work, 1 / CLIENTS_TIMED)
    return in_turn(work, one, rounds, {"domain": domain})


def in_turn(work: dict[str, Work], scale: dict[str, float], rounds: int, more: dict) -> list[dict]:
    """Return each method's median CPU time over rounds in which all take turns, and its ratio to ours."""
    for call in work.values():
        call()  # exclude one-time work, such as numba's compilation
    times = {name: np.empty(rounds) for name in work}
    for number in range(rounds):
        for name, call in work.items():
            start = time.process_time()
            call()
            times[name][number] = (time.process_time() - start) * scale.get(name, 1.0)
    rows = []
    for name, seconds in times.items():
        row, ratios = (
            more | {"method": name, "seconds": float(np.median(seconds))},
            seconds / times["hushmote"],
        )
        ends = {"least_ratio": float(ratios.min()), "most_ratio": float(ratios.max())}
        row |= {"ratio": float(np.median(ratios))} | ends
        rows.append(row | {"mark": ">" if scale.get(name, 1.0) > 1 else ""})
    return rows


def times(options: Options) -> dict:
    rng, quick = np.random.default_rng(8), options.quick
    rounds = 3 if quick else ROUNDS
    start = time.process_time()
    server, client = [], []
    for domain in DOMAINS[:2] if quick else DOMAINS:
        server += server_times(domain, SIZES[:2] if quick else SIZES, rounds, rng)
        client += client_times(domain, rounds, rng)
    return {"machine": about(start), "rounds": rounds, "server": server, "client": client}


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)  # pure-ldp's, about small samples and high privacy
    run(__doc__, "peers.json", {"errors": errors, "times": times}, own_machine=True)
