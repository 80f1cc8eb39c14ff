"""Coverage of approximate mechanisms' intervals, including collisions of fixed hash functions.

    python benchmarks/approximate_coverage.py [--quick] [shares] [words]

shares: the Hadamard count mean sketch of examples/channels, with 1 to 170 hash functions of 64 to 1,024
cells, over 64 to 65,536 values, at ε 1, 4 and 8, with 3,000, 100,000 and 10,000,000 reports. The hash
functions are fixed. Each fleet's population (uniform, Zipf 1.1 and 1.5, concentrated or sparse) is permuted,
so that different values share cells. Each coverage is reported alongside that of intervals for the noise
alone.

words: the sequence-fragment puzzle; the coverage of the listed words' intervals, and the number of tables
that list a word nobody sent.

Writes benchmarks/results/approximate_coverage.json; --quick uses a tenth of the fleets.
"""

import json
import math
import sys
from collections.abc import Iterator
from itertools import product

import numpy as np
from draws import POPULATIONS, Tally, counts_by_law, shares, some_ranges
from published import payload
from results_file import ROOT, Options, run

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.estimate.discovery import discover
from hushmote.server.estimate.statistic import intervals
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.wire.experiments import parse_experiment

sys.path.append(str(ROOT / "examples" / "channels"))

SKETCHES = ((4, 64, 64, 80), (1, 1024, 1024, 6), (16, 256, 1024, 6), (170, 1024, 2600, 4))
SKETCHES += ((64, 1024, 65_536, 1),)
"""Each configuration's numbers of hash functions, cells, values and fleets."""
EPSILONS, SIZES = (1.0, 4.0, 8.0), (3_000, 100_000, 10_000_000)
POPULATIONS["zipf 1.1"] = lambda n: (1.0 + np.arange(n)) ** -1.1
NAMES = ("uniform", "zipf 1.1", "zipf 1.5", "concentrated", "sparse")
MIN_COVERAGE = 0.94
PUZZLES, LISTS = 40, (5, 20, 60)
"""Fleets per list length, and the list lengths; word shares follow Zipf's law."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def tally_fleets(exp: Experiment, name: str, reports: int, fleets: int, rng: np.random.Generator) -> Tally:
    """Tally the intervals of several fleets, with the values permuted for each."""
    tally, sketch = Tally(), vars(mechanism_of(exp))["sketch"]
    low, high = np.array([r for some in some_ranges(exp.domain) for r in some]).T
    for _ in range(fleets):
        f = rng.permutation(shares(name, exp.domain))
        result = estimate(exp, counts_by_law(exp, f, reports, rng))
        tally.count("share", result.frequency_intervals(), f)
        tally.count(
            "range",
            result.ranges(low, high).interval(),
            [f[a:b].sum() for a, b in zip(low, high, strict=True)],
        )
        noise = np.full(exp.domain, sketch.scale * sketch.width / (sketch.width - 1) / math.sqrt(reports))
        tally.count("noise alone", intervals(result.frequencies, noise, np.zeros(exp.domain)), f)
    return tally


def measure_shares(options: Options) -> dict:
    pooled: dict[str, Tally] = {}
    rows = []
    rng = np.random.default_rng(20_263)
    for (hashes, width, domain, fleets), epsilon in product(SKETCHES, EPSILONS):
        fields = {"hashes": hashes, "width": width}
        sketch = payload("hcms:HadamardSketch", domain, round(epsilon * 1e6), **fields)
        exp = parse_experiment(sketch)
        for reports, name in product(SIZES, NAMES):
            tally = tally_fleets(exp, name, reports, max(1, fleets // (10 if options.quick else 1)), rng)
            design = f"{hashes} x {width:,} cells, {domain:,} values"
            for group in ("all", name, f"N = {reports:,}", f"ε = {epsilon:g}", design):
                pooled.setdefault(group, Tally()).add(tally)
            about = {"hashes": hashes, "width": width, "values": domain, "epsilon": epsilon}
            about |= {"reports": reports, "population": name}
            rows.append(about | {kind: tally.of(kind) for kind in tally})
    lowest = sorted(rows, key=lambda row: row["share"])[:12]
    table = {group: {kind: tally.of(kind) for kind in tally} for group, tally in pooled.items()}
    below = sum(row["share"] < MIN_COVERAGE for row in rows)
    counted = {kind: int(pooled["all"][kind][1]) for kind in pooled["all"]}
    about = {"confidence": 0.95, "configurations": len(rows), "below_94_percent": below, "intervals": counted}
    return about | {"coverage": table, "lowest": lowest}


def random_words(number: int, rng: np.random.Generator) -> list[str]:
    """Return distinct words of 3 to 6 letters."""
    words: dict[str, None] = {}
    while len(words) < number:
        words["".join(rng.choice([*_LETTERS], rng.integers(3, 7)))] = None
    return [*words]


def measure_words(options: Options) -> list[dict]:
    return [*_words(PUZZLES // (10 if options.quick else 1), np.random.default_rng(20_264))]


def _words(fleets: int, rng: np.random.Generator) -> Iterator[dict]:
    letters = {"type": "letters", "alphabet": _LETTERS, "length": 6, "hashes": 16, "width": 4096}
    exp = parse_experiment(_without_number_fields(payload("sfp:FragmentPuzzle", 2, 4_000_000, **letters)))
    mechanism = mechanism_of(exp)
    for number, reports in product(LISTS, (100_000, 1_000_000)):
        tally, listed, wrong = Tally(), 0, 0
        for _ in range(fleets):
            words, f = random_words(number, rng), shares("zipf 1.1", number)
            pieces = mechanism.drawable([index for word in words if (index := exp.bucket(word)) is not None])
            codes = mechanism.draw(pieces[rng.choice(number, reports, p=f)], rng)
            discovery = discover(exp, np.bincount(codes, minlength=exp.code_count))
            truth = dict(zip(words, f, strict=True))
            wrong += any(text.text not in truth for text in discovery.texts)
            listed += len(discovery.texts)
            for text, ends in zip(discovery.texts, discovery.intervals(), strict=True):
                tally.count("share", ends, truth.get(text.text, 0.0))
        about = {"words": number, "reports": reports, "fleets": fleets, "listed_of_each": listed / fleets}
        yield about | {"share": tally.of("share"), "tables_with_a_word_that_nobody_sent": wrong}


def _without_number_fields(text: bytes) -> bytes:
    """Return an experiment's JSON without the fields that only number readings have."""
    fields = {name: value for name, value in json.loads(text).items() if name not in ("low", "high", "bins")}
    return json.dumps(fields).encode()


def main() -> None:
    run(__doc__, "approximate_coverage.json", {"shares": measure_shares, "words": measure_words})


if __name__ == "__main__":
    main()
