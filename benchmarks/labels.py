"""Texts: shares of listed texts, and discovery without a list, compared with the sketches that others use.

    python benchmarks/labels.py [--quick] [methods | mistaken | lists]

Each fleet draws 2,000 words of 6 letters from an alphabet of 64 (36 bits), with shares by Zipf's law with
exponent 1.2. Two methods get a list of all words; the other two know only the letters:

    text    65,536 slots by a salted hash, with pgr (server/estimate/candidates.py)
    hcms    Apple's Hadamard count mean sketch (examples/channels)
    prefix  levels of prefixes (server/estimate/discovery.py)
    sfp     Apple's sequence-fragment puzzle over Hadamard sketches (examples/channels)

Each lists the words that are above the noise, where the chance of listing any word that nobody sent is at
most 4% (Bonferroni for the sketches, Holm for text). Recall is the listed share of the 20 most common words;
the error is the root mean square over the listed words. The time is from a histogram to the list.

mistaken: in how many of 2,000 fleets per row discovery lists a text that nobody sent. The slots' supports are
drawn as independent binomials, which matches each slot's distribution; words have 6 letters from an alphabet
of 8, in at most 8,192 slots, so that more of them share a slot. The table also has the listed share of the
texts whose share is at min_share the promised one (found_from_least), and the number of texts left out of a
list because they share a slot.

lists: the errors of listed texts' shares compared with theory, and the coverage of their intervals, over
salts. The list has all words, or lacks some of the most common ones, whose slots are then unknown, which is
the worst case of an incomplete list. The error is the root mean square over rows; in theory it consists of
the noise, sqrt(q (1 - q) / N) / (p - q), and the hash error, the root of the sum of f^2 / m over the unlisted
words (hash_of_all: over all words, as for a list with one word). Coverage is that of the 95% intervals for
the population's shares, of all rows and of all unlisted words together.

Writes benchmarks/results/labels.json and, for lists, candidates.json.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from draws import Tally
from results_file import Options, run

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import discovery, estimate
from hushmote.server.estimate.candidates import place_candidates, shares_of
from hushmote.server.experiments.payload import chosen_fields, payload
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.choose import choose
from hushmote.server.mechanisms.points.prefix import Prefix, SlotShares
from hushmote.server.mechanisms.workload import FREQUENCIES, Workload
from hushmote.simulator import vectorised

sys.path.append(str(Path(__file__).parents[1] / "examples" / "channels"))

import hcms  # pyright: ignore[reportMissingImports]
import sfp  # pyright: ignore[reportMissingImports]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._"
FEW_LETTERS = "abcdefgh"
FEW_SLOTS = 1 << 13
WORDS, LENGTH, TOP = 2000, 6, 20
SLOTS = 1 << 16
PREFIXES = [2, 3, 4, 5, 6, 6]
POINTS = ((10**6, 4.0), (10**6, 2.0), (10**5, 4.0), (10**5, 2.0), (26_000, 4.0))
MISTAKEN = discovery.MAX_FALSE_CHANCE

Listing = dict[str, float]


Answered = tuple[Listing, int, float]
"""The listed words with their shares, a code's bytes, and the seconds from the histogram to the list."""


def make_experiment(reading: dict[str, Any], mechanism: dict[str, Any], epsilon: float) -> Experiment:
    return Experiment.parse(payload("words", reading, mechanism, round(epsilon * 1e6)))


def words(letters: str, count: int, rng: np.random.Generator, length: int = LENGTH) -> list[str]:
    unique: dict[str, None] = {}
    while len(unique) < count:
        unique.update(dict.fromkeys(map("".join, rng.choice([*letters], (count, length)))))
    return [*unique][:count]


def zipf(count: int, exponent: float) -> np.ndarray:
    shares = np.arange(1.0, count + 1) ** -exponent
    return shares / shares.sum()


def timed(experiment: Experiment, answer: Callable[[], Listing]) -> Answered:
    start = time.perf_counter()
    listed = answer()
    return listed, experiment.code_bytes, time.perf_counter() - start


def by_text(names: list[str], word_counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> Answered:
    reading = {"type": "text", "salt": "labels", "slots": SLOTS}
    experiment = make_experiment(reading, choose(SLOTS, round(epsilon * 1e6), FREQUENCIES).fields(), epsilon)
    slots = np.bincount([experiment.bucket(name) or 0 for name in names], word_counts, SLOTS).astype(np.int64)
    counts = vectorised.histogram(experiment, slots, rng)

    def answer() -> Listing:
        shares = shares_of(estimate(experiment, counts), place_candidates(names, [experiment]))
        sure = shares.p_values < MISTAKEN / shares.candidates.rows
        rows = zip(shares.candidates.members, shares.listed.value.tolist(), sure, strict=True)
        # For words that share a slot, only the sum of their shares is known.
        return {members[0]: value for members, value, above in rows if above and len(members) == 1}

    return timed(experiment, answer)


def by_hcms(names: list[str], word_counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> Answered:
    reading = {"type": "text", "salt": "labels", "slots": 1 << 20}
    fields = {"mechanism": "hcms:HadamardSketch", "hashes": 128, "width": 1 << 16}
    experiment = make_experiment(reading, fields, epsilon)
    sketch = hcms.HadamardSketch(experiment).sketch
    items = np.array([experiment.bucket(name) for name in names])
    counts = np.bincount(sketch.draw(np.repeat(items, word_counts), rng), minlength=experiment.code_count)

    def answer() -> Listing:
        shares = sketch.shares(counts, items)
        min_share = NormalDist().inv_cdf(1 - MISTAKEN / len(names)) * sketch.stderr(int(word_counts.sum()))
        return {name: share for name, share in zip(names, shares.tolist(), strict=True) if share > min_share}

    return timed(experiment, answer)


def prefix_experiment(epsilon: float, slots: int = SLOTS) -> Experiment:
    reading = {"type": "text", "salt": "labels", "slots": slots, "prefixes": PREFIXES}
    choice = choose(slots ** len(PREFIXES), round(epsilon * 1e6), Workload("texts", levels=len(PREFIXES)))
    return make_experiment(reading, choice.fields(), epsilon)


def by_prefix(
    names: list[str], word_counts: np.ndarray, epsilon: float, rng: np.random.Generator
) -> Answered:
    experiment = prefix_experiment(epsilon)
    counts = vectorised.histogram(
        experiment, word_counts, rng, of=[experiment.bucket(name) or 0 for name in names]
    )

    def answer() -> Listing:
        listed = discovery.discover(experiment, counts, LETTERS).texts
        return {one.text: one.share.value for one in listed}

    return timed(experiment, answer)


def by_sfp(names: list[str], word_counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> Answered:
    reading = {"type": "letters", "alphabet": LETTERS, "length": LENGTH}
    fields = {"mechanism": "sfp:FragmentPuzzle", "hashes": 16, "width": 1 << 17, "weights": [1, 1, 1, 1]}
    experiment = make_experiment(reading, fields, epsilon)
    puzzle = sfp.FragmentPuzzle(experiment)
    pieces = puzzle.pieces([experiment.bucket(name) for name in names])
    counts = np.bincount(
        puzzle.draw_pieces(np.repeat(pieces, word_counts, axis=0), rng), minlength=experiment.code_count
    )
    return timed(experiment, lambda: dict(puzzle.solve(counts, mistaken=MISTAKEN)))


METHODS: dict[str, Callable[[list[str], np.ndarray, float, np.random.Generator], Answered]] = {
    "text": by_text,
    "hcms": by_hcms,
    "prefix": by_prefix,
    "sfp": by_sfp,
}


def methods(options: Options) -> list[dict[str, Any]]:
    rows, runs = [], dict.fromkeys(METHODS, 1 if options.quick else 5)
    runs["prefix"] *= 1 if options.quick else 2
    for reports, epsilon in POINTS:
        answered: dict[str, list[tuple[Answered, Listing, set[str]]]] = {m: [] for m in METHODS}
        for number in range(max(runs.values())):
            rng = np.random.default_rng([16, number, reports, int(epsilon)])
            names, shares = words(LETTERS, WORDS, rng), zipf(WORDS, 1.2)
            word_counts, truth = (
                rng.multinomial(reports, shares),
                dict(zip(names, shares.tolist(), strict=True)),
            )
            for method, ask in METHODS.items():
                if number < runs[method]:
                    answered[method].append((ask(names, word_counts, epsilon, rng), truth, {*names[:TOP]}))
        for method, listing in answered.items():
            listed = [(one, truth, top) for (one, _, _), truth, top in listing]
            errors = [one[w] - truth[w] for one, truth, _ in listed for w in one if w in truth]
            row = {"method": method, "reports": reports, "epsilon": epsilon, "runs": runs[method]}
            row["recall"] = float(np.mean([len(one.keys() & top) / TOP for one, _, top in listed]))
            row["listed"] = float(np.mean([len(one) for one, _, _ in listed]))
            row["error"] = float(np.sqrt(np.mean(np.square(errors)))) if errors else None
            row["false"] = float(np.mean([bool(one.keys() - truth.keys()) for one, truth, _ in listed]))
            row["code_bytes"] = listing[0][0][1]
            rows.append(row | {"seconds": float(np.median([seconds for (_, _, seconds), _, _ in listing]))})
    return rows


Population = Callable[[np.random.Generator], tuple[list[str], np.ndarray]]


def by_zipf(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    return words(FEW_LETTERS, WORDS, rng), zipf(WORDS, 1.2)


def alike(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Return ten prefixes of four letters, each the beginning of fifty texts."""
    names = [a + b for a in words(FEW_LETTERS, 10, rng, 4) for b in words(FEW_LETTERS, 50, rng, 2)]
    return [names[i] for i in rng.permutation(len(names))], zipf(len(names), 0.8)


def dense(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Return equal shares of 110 texts, nearly the maximum that discovery compares."""
    return words(FEW_LETTERS, 110, rng), np.full(110, 1 / 110)


def hidden(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Return twenty texts of 3%, and eight texts of 5% with letters that discovery does not try."""
    names = words(FEW_LETTERS, 20, rng) + words(FEW_LETTERS.upper(), 8, rng)
    return names, np.repeat([0.03, 0.05], [20, 8])


FLEETS: tuple[tuple[str, Population | None, int, float, int], ...] = (
    ("Zipf 1.2", by_zipf, 26_000, 4.0, FEW_SLOTS),
    ("Zipf 1.2", by_zipf, 10**6, 2.0, FEW_SLOTS),
    ("Zipf 1.2", by_zipf, 10**5, 4.0, 1024),
    ("beginnings alike", alike, 10**5, 4.0, FEW_SLOTS),
    ("110 equal texts", dense, 3 * 10**5, 4.0, FEW_SLOTS),
    ("110 equal texts", dense, 10**6, 4.0, FEW_SLOTS),
    ("beside hidden texts", hidden, 3 * 10**5, 4.0, FEW_SLOTS),
    ("all different", None, 26_000, 4.0, FEW_SLOTS),
    ("all different", None, 10**6, 4.0, FEW_SLOTS),
)


def levels(
    mechanism: Prefix, text_counts: np.ndarray, slots: np.ndarray | None, rng: Any
) -> list[SlotShares]:
    """Return the shares of each level's slots; text_counts has one total if all texts differ."""
    chances, remaining = np.array(mechanism.stratum_chances), text_counts.copy()
    result = []
    for number, code in enumerate(mechanism.codes):
        mine = rng.binomial(remaining, min(1.0, chances[number] / chances[number:].sum()))
        remaining = remaining - mine
        where = rng.integers(0, mechanism.slots, mine.sum()) if slots is None else slots[:, number]
        counts = np.bincount(where, None if slots is None else mine, mechanism.slots).astype(np.int64)
        reports, channel = int(mine.sum()), code.channel
        supports = rng.binomial(counts, channel.p) + rng.binomial(reports - counts, channel.q)
        shares = (supports / reports - channel.q) / (channel.p - channel.q)
        result.append(SlotShares(shares, reports, channel))
    return result


def mistaken(options: Options) -> list[dict[str, Any]]:
    rows, fleets = [], 5 if options.quick else 2000
    for name, population, reports, epsilon, slots_of_it in FLEETS:
        mechanism = mechanism_of(prefix_experiment(epsilon, slots_of_it))
        assert isinstance(mechanism, Prefix)
        false, listed, near, near_found, covered = 0, 0, 0, 0, Tally()
        nameable = promised_found = left_out = 0
        for fleet in range(fleets):
            rng = np.random.default_rng([17, fleet, reports])
            truth: Listing = {}
            text_counts, slots = np.array([reports]), None
            if population is not None:
                names, shares = population(rng)
                truth = dict(zip(names, shares.tolist(), strict=True))
                slots = mechanism.drawable([mechanism.experiment.bucket(one) or 0 for one in names])
                text_counts = rng.multinomial(reports, shares)
            answer = discovery.discover_in(mechanism, levels(mechanism, text_counts, slots, rng), FEW_LETTERS)
            texts = {one.text for one in answer.texts}
            false += bool(texts - truth.keys())
            listed += len(texts)
            promised = {t for t, share in truth.items() if share >= answer.min_share and t == t.lower()}
            nameable, promised_found = nameable + len(promised), promised_found + len(promised & texts)
            left_out += answer.left_out
            for one, ends in zip(answer.texts, answer.intervals(), strict=True):
                if one.text in truth:
                    covered.count("", ends, truth[one.text])
            sure = {
                text for text, share in truth.items() if answer.min_share <= share <= 1.3 * answer.min_share
            }
            near, near_found = near + len(sure), near_found + len(sure & texts)
        row = {"population": name, "reports": reports, "epsilon": epsilon, "slots": slots_of_it}
        row |= {"fleets": fleets, "mistaken": false / fleets, "listed": listed / fleets}
        row |= {"covered": covered.of("") if covered else None}
        row |= {
            "found_from_least": promised_found / nameable if nameable else None,
            "left_out": left_out / fleets,
        }
        rows.append(row | {"found_near_least": near_found / near if near else None})
    return rows


# --- Lists ----------------------------------------------------------------------------------------

# Words, Zipf exponent, number of the most common words that are not listed, slots, reports and ε.
CASES = (
    (10_000, 1.0, 0, 65_536, 100_000, 2.0),
    (10_000, 1.2, 0, 65_536, 100_000, 2.0),
    (10_000, 1.1, 1, 65_536, 100_000, 2.0),
    (10_000, 1.1, 10, 65_536, 1_000_000, 4.0),
    (1_000, 1.1, 5, 4_096, 20_000, 1.0),
    (200, 1.1, 5, 256, 20_000, 2.0),
    (200, 1.1, 1, 1_024, 1_000, 2.0),
)


def measured(
    count: int, exponent: float, unlisted: int, slots: int, reports: int, epsilon: float, quick: bool
) -> dict[str, float]:
    """Measure errors and coverage over fleets, each with its own salt."""
    mechanism = chosen_fields(slots, round(epsilon * 1e6), FREQUENCIES)
    names, f = [f"word {i}" for i in range(count)], zipf(count, exponent)
    fleets, rng = max(2, min(400, 600_000 // count) // (10 if quick else 1)), np.random.default_rng(20)
    squares, seconds, covered, rare = [], [], Tally(), 0.0
    for fleet in range(fleets):
        e = make_experiment({"type": "text", "salt": f"salt {fleet}", "slots": slots}, mechanism, epsilon)
        places = np.fromiter(map(e.bucket, names), np.int64, count)
        slot_counts = np.bincount(places, rng.multinomial(reports, f), slots).astype(np.int64)
        histogram = vectorised.histogram(e, slot_counts, rng)
        start = time.perf_counter()
        shares = shares_of(estimate(e, histogram), place_candidates(names[unlisted:], [e]))
        seconds.append(time.perf_counter() - start)
        truth = np.bincount(shares.candidates.row, f[unlisted:], shares.candidates.rows)
        low, high = shares.listed.interval()
        squares.append(np.mean((shares.listed.value - truth) ** 2))
        covered.count("coverage", (low, high), truth)
        covered.count("others", shares.others.interval(), f[:unlisted].sum())
        rare = mechanism_of(e).decode(np.ones(e.code_count, np.int64)).rare_variance() * e.code_count
    return {
        "fleets": fleets,
        "error": float(np.sqrt(np.mean(squares))),
        "noise": float(np.sqrt(rare / reports)),
        "hash": float(np.sqrt((f[:unlisted] ** 2).sum() / slots)),
        "hash_of_all": float(np.sqrt((f**2).sum() / slots)),
        **{kind: covered.of(kind) for kind in ("coverage", "others")},
        "seconds": float(np.median(seconds)),
    }


def lists(options: Options) -> list[dict]:
    names = ("words", "exponent", "unlisted", "slots", "reports", "epsilon")
    return [dict(zip(names, case, strict=True)) | measured(*case, options.quick) for case in CASES]


def conditions(_: Options) -> dict[str, int]:
    return {"words": WORDS, "letters": len(LETTERS), "length": LENGTH}


if __name__ == "__main__":
    parts = {"conditions": conditions, "methods": methods, "mistaken": mistaken, "lists": lists}
    run(__doc__, "labels.json", parts, files={"lists": "candidates.json"}, keys={"lists": "cases"})
