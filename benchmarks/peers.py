"""Frequencies side by side with pure-ldp and multi-freq-ldpy: squared error and time, one run, one page.

    python benchmarks/peers.py [--quick]

N in 10^4, 10^5, 10^6; D in 16, 128, 1024; ε in 0.5, 1, 2, 4. Every method sees the same sample: a Zipf
population (exponent 1.3), the same counts of every value in every run, so that an error is the mechanism's
alone. Each library's own clients make the reports and its own server reads them, one core, in memory.

Squared error is the mean over all D values against the sample's frequencies, over as many runs as a Monte
Carlo error of 5 % takes or a time limit allows. What is not measured in full is marked:

    *  an unbiased estimator's error at N = 10^4, scaled by 1/N (exact for such an estimator)
    ~  support counts or reports drawn from the mechanism's own distribution, read by the peer's own estimator
    >  a time at a smaller N, scaled linearly: each report is hashed against each value

Prints tables and writes benchmarks/results/peers.json, peers.md and plots.
"""

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import numpy as np
from accuracy import codes, experiment
from multi_freq_ldpy.estimators.Histogram_estimator import MI  # pyright: ignore[reportMissingImports]
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client  # pyright: ignore[reportMissingImports]
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client  # pyright: ignore[reportMissingImports]
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client  # pyright: ignore[reportMissingImports]
from peers_page import write_page
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer  # pyright: ignore[reportMissingImports]
from pure_ldp.frequency_oracles.hadamard_response import (  # pyright: ignore[reportMissingImports]
    HadamardResponseClient,
    HadamardResponseServer,
)
from pure_ldp.frequency_oracles.local_hashing import (  # pyright: ignore[reportMissingImports]
    FastLHClient,
    FastLHServer,
    LHClient,
    LHServer,
)
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer  # pyright: ignore[reportMissingImports]
from results_file import RESULTS, machine, write
from rich.console import Console
from scipy import stats

from hushmote.device.ldp_client import DRBG, Experiment
from hushmote.server.estimate import estimate
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.channel import level_channel
from hushmote.server.mechanisms.workload import FREQUENCIES

SIZES = (10_000, 100_000, 1_000_000)
DOMAINS = (16, 128, 1024)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
BASE = SIZES[0]
FLH_HASHES = 500  # fast local hashing's fixed pool of hash functions
WANTED_ERROR = 0.05  # relative Monte Carlo error at which runs stop
CLIPPED = "hushmote clipped"  # as multi-freq-ldpy does, for a comparison of like with like
LONGEST_S = 3.0  # a longer call is extrapolated
MOST_PAIRS = 2_000_000  # reports times values that hashing every pair is measured on

Reports = list
Floats = np.ndarray


@dataclass(frozen=True)
class Method:
    """A library's mechanism: reports from values, and frequencies from reports.

    server      makes the function that turns reports into frequencies; what it sets up is not timed
    draw        frequencies from what the mechanism's distribution gives for sizes[v] people, or None
    unbiased    its error scales with 1/N
    quadratic   its time is reports times values
    """

    name: str
    client: Callable[[np.ndarray], Reports]
    server: Callable[[], Callable[[Reports], Floats]]
    draw: Callable[[np.ndarray, np.random.Generator], Floats] | None = None
    unbiased: bool = True
    quadratic: bool = False


def same(x: int) -> int:
    return x


def pure(name: str, client, server: Callable, **more) -> Method:
    """A method of pure-ldp, whose clients and servers share one form."""

    def fresh() -> Callable[[Reports], Floats]:
        one = server()

        def frequencies(reports: Reports) -> Floats:
            one.aggregate_all(reports)
            return one.estimate_all(range(one.d), suppress_warnings=True) / len(reports)

        return frequencies

    return Method(f"pure-ldp {name}", lambda v: [client.privatise(int(x)) for x in v], fresh, **more)


def pure_ldp(domain: int, epsilon: float) -> list[Method]:
    hr = HadamardResponseServer(epsilon, domain, index_mapper=same)
    hr_client = HadamardResponseClient(epsilon, domain, hr.get_hash_funcs(), index_mapper=same)
    cells = round(math.exp(epsilon)) + 1
    hashing = {"g": cells, "use_olh": True, "index_mapper": same}
    pool = FastLHServer(epsilon, domain, FLH_HASHES, **hashing)

    def flh() -> FastLHServer:
        return FastLHServer(epsilon, domain, FLH_HASHES, hash_matrix=pool.hash_matrix, **hashing)

    def draw_flh(sizes: np.ndarray, rng: np.random.Generator) -> Floats:
        values = np.repeat(np.arange(domain), sizes)
        seeds = rng.integers(0, FLH_HASHES, len(values))
        hashed = pool.hash_matrix[seeds, values].astype(np.int64)
        lies = rng.random(len(values)) >= math.exp(epsilon) / (math.exp(epsilon) + cells - 1)
        said = (hashed + lies * rng.integers(1, cells, len(values))) % cells
        server = flh()
        np.add.at(server.hash_counts, (seeds, said), 1)
        server.n = len(values)
        return server.estimate_all(range(domain), suppress_warnings=True) / len(values)

    def hr_server() -> HadamardResponseServer:
        hr.reset()
        return hr

    return [
        pure("GRR", DEClient(epsilon, domain, same), lambda: DEServer(epsilon, domain, same)),
        pure(
            "OLH",
            LHClient(epsilon, domain, **hashing),
            lambda: LHServer(epsilon, domain, **hashing),
            quadratic=True,
        ),
        pure("FLH", FastLHClient(epsilon, domain, FLH_HASHES, **hashing), flh, draw=draw_flh, unbiased=False),
        pure("HR", hr_client, hr_server),
        pure(
            "OUE",
            UEClient(epsilon, domain, use_oue=True, index_mapper=same),
            lambda: UEServer(epsilon, domain, use_oue=True, index_mapper=same),
        ),
    ]


def multi_freq(domain: int, epsilon: float) -> list[Method]:
    """multi-freq-ldpy: its estimators always clip at zero and normalise."""
    e = math.exp(epsilon)
    cells = round(e) + 1

    def supports(p: float, q: float) -> Callable[[np.ndarray, np.random.Generator], Floats]:
        def draw(sizes: np.ndarray, rng: np.random.Generator) -> Floats:
            n = int(sizes.sum())
            return MI(rng.binomial(sizes, p) + rng.binomial(n - sizes, q), n, p, q)

        return draw

    def direct(sizes: np.ndarray, rng: np.random.Generator) -> Floats:
        exp = experiment("grr", domain, round(epsilon * 1e6))
        n = int(sizes.sum())
        p = e / (e + domain - 1)
        counts = np.bincount(codes(exp, sizes, rng), minlength=domain)
        return MI(counts, n, p, (1 - p) / (domain - 1))

    def method(name: str, client: Callable, aggregate: Callable, draw: Callable, quadratic=False) -> Method:
        def make(values: np.ndarray) -> Reports:
            return [client(int(v), domain, epsilon) for v in values]

        return Method(f"multi-freq {name}", make, lambda: aggregate, draw, False, quadratic)

    return [
        method("GRR", GRR_Client, lambda r: GRR_Aggregator_MI(r, domain, epsilon), direct),
        method(
            "OLH",
            LH_Client,
            lambda r: LH_Aggregator_MI(r, domain, epsilon),
            supports(e / (e + cells - 1), 1 / cells),
            True,
        ),
        method("OUE", UE_Client, lambda r: UE_Aggregator_MI(r, epsilon), supports(0.5, 1 / (e + 1))),
    ]


def zipf_sample(domain: int, people: int) -> np.ndarray:
    """How many of n people hold each value: Zipf shares (exponent 1.3), rounded to their sum."""
    shares = 1 / (1 + np.arange(domain)) ** 1.3
    shares *= people / shares.sum()
    sizes = np.floor(shares).astype(np.int64)
    sizes[np.argsort(sizes - shares)[: people - sizes.sum()]] += 1
    return sizes


def chosen(domain: int, epsilon: float) -> Experiment:
    """The experiment that Hushmote itself picks for frequencies."""
    choice = oracle.choose(domain, round(epsilon * 1e6), FREQUENCIES)
    fields = {"g": choice.g} if choice.g else {}
    return experiment(choice.mechanism, domain, round(epsilon * 1e6), **fields)


def monte_carlo(error: Callable[[], float], limit_s: float, least: int) -> tuple[float, float, int]:
    """Mean of squared errors, its standard error, and the runs that took."""
    start = time.process_time()
    errors: list[float] = []
    while True:
        errors.append(error())
        mean = float(np.mean(errors))
        spread = float(np.std(errors, ddof=1) / math.sqrt(len(errors))) if len(errors) > 1 else math.inf
        late = time.process_time() - start > limit_s
        if len(errors) >= least and (spread < WANTED_ERROR * mean or late):
            return mean, spread, len(errors)


def squared(estimates: Floats, sizes: np.ndarray) -> float:
    return float(np.mean((estimates - sizes / sizes.sum()) ** 2))


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Least of a few CPU times: what the work takes, also while others use the machine."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def row(method: str, people: int, domain: int, epsilon: float, **more) -> dict:
    return {"method": method, "reports": people, "domain": domain, "epsilon": epsilon} | more


def clipped(frequencies: Floats) -> Floats:
    """What multi-freq-ldpy does to every estimate."""
    kept = frequencies.clip(0)
    return kept / kept.sum()


def measure_ours(
    name: str, exp: Experiment, people: int, epsilon: float, limit_s: float, rng: np.random.Generator
) -> dict:
    sizes = zipf_sample(exp.domain, people)
    after = clipped if name == CLIPPED else np.asarray

    def once() -> float:
        counts = np.bincount(codes(exp, sizes, rng), minlength=exp.code_count)
        return squared(after(estimate(exp, counts).frequencies), sizes)

    mse, spread, runs = monte_carlo(once, limit_s, 5)
    received = codes(exp, sizes, rng)
    rng.shuffle(received)

    def read() -> tuple[Floats, Floats]:
        answer = estimate(exp, np.bincount(received, minlength=exp.code_count))
        return answer.frequencies, answer.stderr

    drbg = DRBG(rng.bytes(384))
    some = [int(v) for v in rng.choice(exp.domain, 2_000)]
    client = seconds(lambda: [exp.randomize(v, drbg) for v in some], 3) / len(some)
    return row(
        name,
        people,
        exp.domain,
        epsilon,
        mse=mse,
        mse_error=spread,
        runs=runs,
        mse_mark="",
        server_s=seconds(read, 5),
        time_mark="",
        client_s=client,
        mechanism=f"{exp.mechanism} {exp.levels[0].g}",
        theory=level_channel(exp.levels[0]).mse / people,
    )


def measure_peer(
    method: Method,
    domain: int,
    epsilon: float,
    sizes_of: tuple[int, ...],
    limit_s: float,
    rng: np.random.Generator,
) -> list[dict]:
    # So many people are asked for real; more reports are those again, and more error is scaled or drawn.
    asked = BASE if not method.quadratic or BASE * domain <= MOST_PAIRS else MOST_PAIRS // domain
    sizes = zipf_sample(domain, asked)
    values = np.repeat(np.arange(domain), sizes)

    def once() -> float:
        return squared(method.server()(method.client(values)), sizes)

    base = monte_carlo(once, limit_s, 2)
    some = rng.permutation(values)[:2_000]
    client = seconds(lambda: method.client(some), 3) / len(some)
    reports = method.client(rng.permutation(values))
    rows = []
    timed, timed_on = 0.0, 0
    for people in sizes_of:
        factor = people / asked
        (mse, spread, runs), mark = base, ""
        if factor > 1 and method.draw is None:
            mse, spread, mark = mse / factor, spread / factor, "*"
        elif factor > 1 and method.draw is not None:
            here, draw = zipf_sample(domain, people), method.draw
            mse, spread, runs = monte_carlo(lambda h=here, d=draw: squared(d(h, rng), h), limit_s, 5)
            mark = "~"
        # Only hashing every pair is linear in N throughout: the others have fixed parts and are measured.
        if timed_on == 0 or not method.quadratic or timed * people / timed_on < LONGEST_S:
            timed_on = min(people, asked) if timed_on == 0 else people
            # The server's work does not depend on what the reports say: more of them are the same again.
            many = reports * (timed_on // asked)
            timed = seconds(lambda m=many: method.server()(m))
            if timed < 0.2:
                timed = min(timed, seconds(lambda m=many: method.server()(m), 3))
        time_mark = "" if timed_on == people else ">"
        rows.append(
            row(
                method.name,
                people,
                domain,
                epsilon,
                mse=mse,
                mse_error=spread,
                runs=runs,
                mse_mark=mark,
                server_s=timed * people / timed_on,
                time_mark=time_mark,
                client_s=client,
            )
        )
    return rows


def check(rows: list[dict]) -> None:
    """Whoever computes something else is no peer: OLH is OLH on both sides, our error the formula's."""
    base = {(r["method"], r["domain"], r["epsilon"]): r for r in rows if r["reports"] == BASE}
    for (name, domain, epsilon), r in base.items():
        if name == "hushmote":
            # Student's t: the error is itself estimated from as few as five runs.
            limit = stats.t.isf(1e-7, r["runs"] - 1) * r["mse_error"]
            assert abs(r["mse"] - r["theory"]) < limit, r
        if name == "pure-ldp OLH":
            assert 0.5 < r["mse"] / base["hushmote OLH", domain, epsilon]["mse"] < 2, r


def run(quick: bool, console: Console, rows: list[dict], save: Callable[[dict], None]) -> dict:
    """All rows, those of earlier cells first; save is given what there is after each cell."""
    rng = np.random.default_rng(7)
    sizes = SIZES[:2] if quick else SIZES
    domains = DOMAINS[:2] if quick else DOMAINS
    epsilons = (1.0,) if quick else EPSILONS
    limit_s = 0.3 if quick else 2.0
    done = {(r["domain"], r["epsilon"]) for r in rows}
    start = time.process_time()
    load = os.getloadavg()[0]
    result: dict = {}
    for domain in domains:
        for epsilon in epsilons:
            if (domain, epsilon) in done:
                continue
            micro = round(epsilon * 1e6)
            ours = {"hushmote": chosen(domain, epsilon), "hushmote GRR": experiment("grr", domain, micro)}
            ours[CLIPPED] = ours["hushmote"]
            ours["hushmote OLH"] = experiment("olh", domain, micro)
            rows += [
                measure_ours(name, exp, people, epsilon, limit_s / 2, rng)
                for name, exp in ours.items()
                for people in sizes
            ]
            for method in [*pure_ldp(domain, epsilon), *multi_freq(domain, epsilon)]:
                rows += measure_peer(method, domain, epsilon, sizes, limit_s, rng)
            console.print(f"D = {domain}, ε = {epsilon:g} after {time.process_time() - start:.0f} s")
            about = machine() | {"load_average_before": load, "cpu_seconds": time.process_time() - start}
            about |= {"peers": {name: metadata.version(name) for name in ("pure-ldp", "multi-freq-ldpy")}}
            result = {"machine": about | {"flh_hashes": FLH_HASHES}, "rows": rows}
            save(result)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Squared error and time against pure-ldp, multi-freq-ldpy.")
    parser.add_argument("--quick", action="store_true", help="one ε, smaller N and D; writes no file")
    parser.add_argument("--page", action="store_true", help="write page and plots of the last run again")
    parser.add_argument("--resume", action="store_true", help="go on with what an interrupted run has left")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # pure-ldp's, about small samples and high privacy
    if arguments.page:
        write_page(json.loads((RESULTS / "peers.json").read_text()), RESULTS)
        return
    console = Console(width=120)
    if arguments.quick:
        result = run(True, console, [], lambda _: None)
        check(result["rows"])
        for r in result["rows"]:
            marks = f"{r['mse_mark']}{r['mse']:.3g}", f"{r['time_mark']}{r['server_s']:.3g}"
            console.print(f"{r['method']:16} N {r['reports']:>9,} D {r['domain']:5} ", *marks)
        return
    path = RESULTS / "peers.json"
    rows = json.loads(path.read_text())["rows"] if arguments.resume else []

    def save(so_far: dict) -> None:
        write("peers.json", so_far)

    result = run(False, console, rows, save)
    check(result["rows"])
    write_page(result, RESULTS)


if __name__ == "__main__":
    main()
