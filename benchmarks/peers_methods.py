"""The mechanisms of pure-ldp and multi-freq-ldpy as peers.py measures them, and formulas of their errors."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from accuracy import codes, experiment
from multi_freq_ldpy.estimators.Histogram_estimator import MI  # pyright: ignore[reportMissingImports]
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client  # pyright: ignore[reportMissingImports]
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client  # pyright: ignore[reportMissingImports]
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client  # pyright: ignore[reportMissingImports]
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

FLH_HASHES = 500  # fast local hashing's fixed pool of hash functions

Reports = list
Floats = np.ndarray


@dataclass(frozen=True)
class Method:
    """A library's mechanism: reports from values, and frequencies from reports.

    server      makes the function that turns reports into frequencies; what it sets up is not timed
    draw        frequencies from what the mechanism's distribution gives for sizes[v] people, or None
    theory      mean squared error for sizes[v] people, in random order over the values; None: no formula
    unbiased    its error scales with 1/N
    quadratic   its time is reports times values
    """

    name: str
    client: Callable[[np.ndarray], Reports]
    server: Callable[[], Callable[[Reports], Floats]]
    draw: Callable[[np.ndarray, np.random.Generator], Floats] | None = None
    theory: Callable[[np.ndarray], float] | None = None
    unbiased: bool = True
    quadratic: bool = False


def pure_mse(p: float, q: float, domain: int) -> float:
    """Squared error against the sample, times reports; a report supports its value with p, others with q."""
    return q * (1 - q) / (p - q) ** 2 + (1 - p - q) / ((p - q) * domain)


def pool_mse(matrix: np.ndarray, cells: int, kept: float, shares: np.ndarray) -> float:
    """What a fixed pool of hash functions errs by, squared, however many report.

    matrix: cell of each value, shape (functions, domain). shares: in random order over the values.
    """
    domain = matrix.shape[1]
    together = np.zeros((domain, domain))
    for cell in range(cells):
        inside = (matrix == cell).astype(np.float64)
        together += inside.T @ inside
    off = together / len(matrix) - 1 / cells
    np.fill_diagonal(off, 0)
    off *= (kept - (1 - kept) / (cells - 1)) / (kept - 1 / cells)
    square = float((shares**2).sum())
    alone = (off**2).sum()
    crossed = (off.sum(axis=0) ** 2).sum() - alone
    return float(square * alone + (1 - square) / (domain - 1) * crossed) / domain**2


def _same(x: int) -> int:
    return x


def pure_ldp(domain: int, epsilon: float) -> list[Method]:
    e = math.exp(epsilon)
    cells = round(e) + 1
    kept = e / (e + cells - 1)
    hashing = {"g": cells, "use_olh": True, "index_mapper": _same}
    hadamard = HadamardResponseServer(epsilon, domain, index_mapper=_same)
    matrix = FastLHServer(epsilon, domain, FLH_HASHES, **hashing).hash_matrix.astype(np.int64)

    def flh_server() -> FastLHServer:
        return FastLHServer(epsilon, domain, FLH_HASHES, hash_matrix=matrix, **hashing)

    def draw_flh(sizes: np.ndarray, rng: np.random.Generator) -> Floats:
        values = np.repeat(np.arange(domain), sizes)
        seeds = rng.integers(0, FLH_HASHES, len(values))
        lies = rng.random(len(values)) >= kept
        said = (matrix[seeds, values] + lies * rng.integers(1, cells, len(values))) % cells
        server = flh_server()
        np.add.at(server.hash_counts, (seeds, said), 1)
        server.n = len(values)
        return server.estimate_all(range(domain), suppress_warnings=True) / len(values)

    def hr_server() -> HadamardResponseServer:
        hadamard.reset()
        return hadamard

    def method(name: str, client: Callable, server: Callable, p: float, q: float, **more) -> Method:
        def theory(sizes: np.ndarray) -> float:
            n = int(sizes.sum())
            own = pool_mse(matrix, cells, kept, sizes / n) if name == "FLH" else 0.0
            return pure_mse(p, q, domain) / n + own

        known = None if math.isnan(p) else theory
        return Method(f"pure-ldp {name}", client, lambda: _server(server()), theory=known, **more)

    direct = e / (e + domain - 1)
    return [
        method(
            "GRR",
            _asked(DEClient(epsilon, domain, _same)),
            lambda: DEServer(epsilon, domain, _same),
            direct,
            direct / e,
        ),
        method(
            "OLH",
            _asked(LHClient(epsilon, domain, **hashing)),
            lambda: LHServer(epsilon, domain, **hashing),
            kept,
            1 / cells,
            quadratic=True,
        ),
        method(
            "FLH",
            _asked(FastLHClient(epsilon, domain, FLH_HASHES, **hashing)),
            flh_server,
            kept,
            1 / cells,
            draw=draw_flh,
            unbiased=False,
        ),
        # One bit of a Hadamard code up to ε = 1; above, blocks of a code, whose error is not as simple.
        method(
            "HR",
            _asked(HadamardResponseClient(epsilon, domain, hadamard.get_hash_funcs(), index_mapper=_same)),
            hr_server,
            e / (e + 1) if epsilon <= 1 else math.nan,
            0.5,
        ),
        method(
            "OUE",
            _asked(UEClient(epsilon, domain, use_oue=True, index_mapper=_same)),
            lambda: UEServer(epsilon, domain, use_oue=True, index_mapper=_same),
            0.5,
            1 / (e + 1),
        ),
    ]


def _asked(client) -> Callable[[np.ndarray], Reports]:
    return lambda values: [client.privatise(int(v)) for v in values]


def _server(server) -> Callable[[Reports], Floats]:
    def frequencies(reports: Reports) -> Floats:
        server.aggregate_all(reports)
        return server.estimate_all(range(server.d), suppress_warnings=True) / len(reports)

    return frequencies


def multi_freq(domain: int, epsilon: float) -> list[Method]:
    """multi-freq-ldpy: its estimators always clip at zero and normalise, for which there is no formula."""
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

        return Method(
            f"multi-freq {name}", make, lambda: aggregate, draw, unbiased=False, quadratic=quadratic
        )

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
