"""Compare the errors of Hushmote's mechanisms with those of published mechanisms that it lacks, by formula.

    python benchmarks/peer_errors.py [--quick]

Writes the errors to benchmarks/README.md, with the reason why Hushmote lacks each of the others. All errors
for a question are for the same population, so that they can be compared: for shares of single values, nobody
holds the value in question, and for ranges, quantiles and means, all values are equally common. The choice of
a mechanism uses the same population. peer_formulas.py has the others' formulas.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from peer_formulas import PEERS, Asked, Floats, Peer
from results_file import CONSOLE, ROOT, options

from hushmote.device.ldp_client import Experiment
from hushmote.planning.devices import Z
from hushmote.server.epsilon import MICRO
from hushmote.server.experiments.payload import experiment_over, payload
from hushmote.server.mechanisms.choice import Choice
from hushmote.server.mechanisms.choose import designs
from hushmote.server.mechanisms.workload import ALL_RANGES, FREQUENCIES, MEAN, PREFIXES, Workload
from hushmote.server.wire.experiments import parse_experiment

PAGE = ROOT / "benchmarks" / "README.md"
DOMAIN, SLOTS, DEVICES = 64, 65_536, 100_000
EPSILONS = (0.5, 1.0, 2.0, 4.0)
BITS_AT = 2.0

_PART = re.compile(
    r"(<!-- (errors|missing): made by benchmarks/peer_errors.py -->\n).*?(<!-- end -->)", re.DOTALL
)


@dataclass(frozen=True)
class Question:
    """A question's title, number of values and workload."""

    title: str
    domain: int
    workload: Workload


QUESTIONS: dict[Asked, Question] = {
    "frequency": Question("Share of one value: 64 values", DOMAIN, FREQUENCIES),
    "range": Question("Share of a range of values: 64 values", DOMAIN, ALL_RANGES),
    "quantile": Question("Quantiles: 64 values", DOMAIN, PREFIXES),
    "mean": Question("The mean, as a part of the readings' range: 64 values", DOMAIN, MEAN),
    "labels": Question(
        "Shares of texts that nobody listed, hashed into slots: 65,536 slots", SLOTS, FREQUENCIES
    ),
    "pairs": Question(
        "Shares of two readings, of each by itself and of both together: 64 values each",
        DOMAIN,
        Workload("tables", shape=(DOMAIN, DOMAIN)),
    ),
}


def population(kind: Asked) -> Floats:
    """Return the population for a question: even, but without value 0 for shares of single values."""
    shares = np.ones(QUESTIONS[kind].domain)
    if kind in ("frequency", "labels"):
        shares[0] = 0
    return shares / shares.sum()


def best_designs(kind: Asked, epsilon: float) -> dict[str, Choice]:
    """Return each mechanism's lowest-variance design for the question."""
    question = QUESTIONS[kind]
    values = math.prod(question.workload.shape or (question.domain,))
    best: dict[str, Choice] = {}
    for choice in designs(values, round(epsilon * MICRO), question.workload):
        if choice.variance < best.setdefault(choice.mechanism, choice).variance:
            best[choice.mechanism] = choice
    # Other texts may share a text's slot by chance; the estimate subtracts them.
    more = (SLOTS / (SLOTS - 1)) ** 2 if kind == "labels" else 1.0
    return {word: replace(choice, variance=choice.variance * more) for word, choice in best.items()}


def experiment(kind: Asked, epsilon: float, choice: Choice) -> Experiment:
    """Return the experiment that asks the question with this design."""
    micro = round(epsilon * MICRO)
    if kind != "pairs":
        return experiment_over(QUESTIONS[kind].domain, micro, choice.fields())
    part = {"type": "number", "low": 0, "high": 1000 * DOMAIN, "bins": DOMAIN}
    reading = {"type": "pair", "of": [{"name": name, **part} for name in ("a", "b")]}
    return parse_experiment(payload("pair", reading, choice.fields(), micro))


def half_width(variance: float) -> str:
    """Format the 95% interval's half-width in points, or in percent of the readings' range."""
    error = 100 * Z * math.sqrt(variance / DEVICES)
    return f"{error:.3g}" if math.isfinite(error) else "–"


def our_rows(kind: Asked) -> Iterator[tuple[float, list[str]]]:
    """Yield the variance and table cells of each of our mechanisms."""
    by_epsilon = {epsilon: best_designs(kind, epsilon) for epsilon in EPSILONS}
    for word in dict.fromkeys(word for best in by_epsilon.values() for word in best):
        errors = [half_width(best[word].variance) if word in best else "–" for best in by_epsilon.values()]
        design = by_epsilon[BITS_AT].get(word)
        codes = experiment(kind, BITS_AT, design).code_count if design else 0
        bits = f"{math.ceil(math.log2(codes))}" if codes else "–"
        yield design.variance if design else math.inf, [f"`{word}`", *errors, bits]


def peer_row(peer: Peer) -> tuple[float, list[str]]:
    """Return the variance and table cells of a mechanism that we lack."""
    shares = population(peer.asked)
    errors = [half_width(peer.variance(shares, epsilon)) for epsilon in EPSILONS]
    bits = f"{math.ceil(peer.bits(len(shares), BITS_AT)):,}"
    return peer.variance(shares, BITS_AT), [f"*{peer.name}*", *errors, bits]


def table(*rows: list[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if not number:
            yield f"|{'---|' * len(row)}"


def errors() -> Iterator[str]:
    """Yield the lines of each question's table, sorted by the error at ε = 2."""
    for kind, question in QUESTIONS.items():
        rows = [*our_rows(kind), *(peer_row(peer) for peer in PEERS if peer.asked == kind)]
        rows.sort(key=lambda row: row[0])
        yield f"**{question.title}**\n"
        yield from table(
            ["", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "bits"], *(row for _, row in rows)
        )
        yield ""


def missing() -> Iterator[str]:
    """Yield the lines of the table of reasons why mechanisms are missing."""
    rows: dict[str, list[str]] = {}
    for peer in PEERS:
        row = rows.setdefault(peer.name, [f"*{peer.name}*", peer.asked, peer.missing, peer.citation])
        if peer.asked not in row[1]:
            row[1] += f", {peer.asked}"
    yield from table(["", "for", "why it is missing", "from"], *rows.values())


def with_tables(page: str) -> str:
    """Return the page with its tables regenerated."""
    tables = {"errors": errors, "missing": missing}

    def replacement(part: re.Match[str]) -> str:
        text = "\n".join(tables[part[2]]()).strip()
        return f"{part[1]}\n{text}\n\n{part[3]}"

    return _PART.sub(replacement, page)


if __name__ == "__main__":
    quick = options(__doc__).quick
    CONSOLE.print("\n".join(errors()))
    if not quick:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
