"""Mechanisms of the field that Hushmote does not have, on the axes of its own, and why it lacks them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ..arrays import Floats
from . import peer_errors as errors

Asked = Literal["frequency", "range", "quantile", "mean", "labels", "pairs"]


@dataclass(frozen=True)
class Peer:
    """A mechanism that is not here.

    name      as papers call it
    asked     the question that it answers
    variance  times reports, of a population's shares, shape (D,), and ε in nats: of the share of value 0; of
              the mean, readings from 0 to 1; of ranges and quantiles the mean over all of them; of pairs,
              two such readings that know nothing of each other, the mean over both and over pairs
    bits      of a report, of D and ε
    board     what a board draws
    server    what the server computes, of n reports over D values
    citation  paper and section
    missing   why it is not here
    """

    name: str
    asked: Asked
    variance: Callable[[Floats, float], float]
    bits: Callable[[int, float], float]
    board: str
    server: str
    citation: str
    missing: str


def _of(bits: float) -> Callable[[int, float], float]:
    return lambda domain, epsilon: bits


def _each_value(bits: int) -> Callable[[int, float], float]:
    return lambda domain, epsilon: float(bits * domain)


_USENIX_2017 = "Wang, Blocki, Li, Jha, USENIX Security 2017, section"
_VLDB_2019 = "Cormode, Kulkarni, Srivastava, VLDB 2019, section 4.6"
_ICDE_2019 = "Wang, Xiao, Yang et al., ICDE 2019, section"
_RAPPOR = "Erlingsson, Pihur, Korolova, CCS 2014"
_APPLE = "Apple, Learning with Privacy at Scale, 2017, section 3"
_CIKM_2021 = "Arcolezi, Couchot, Al Bouna, Xiao, CIKM 2021, section 1, with OUE"
_REAL = 64  # bits of a real number
_SUMS = "n D additions"
_HAAR = (
    "All its levels are drawn alike, and a report says one bit, however large ε is. hh has the fanout, cells "
    "and weights that the question and ε ask for."
)
_SKETCH_BITS = math.log2(errors.SKETCH_ROWS)

PEERS: tuple[Peer, ...] = (
    Peer(
        "SS",
        "frequency",
        errors.subset_selection,
        errors.subset_bits,
        "a subset of k values",
        "n k additions, k = D / (e^ε + 1)",
        "Ye, Barg, IEEE Transactions on Information Theory 2018, section III",
        "It has the least variance of all, but its code is a subset of the values, which rarely fits in 24"
        " bits. Local hashing comes close to it with few bits.",
    ),
    Peer(
        "OUE",
        "frequency",
        errors.oue,
        _each_value(1),
        "D coins",
        _SUMS,
        f"{_USENIX_2017} 4.3",
        "A report has a bit for each value, and a code has 24 bits at most. olh errs as little.",
    ),
    Peer(
        "SUE",
        "frequency",
        errors.sue,
        _each_value(1),
        "D coins",
        _SUMS,
        f"{_RAPPOR}, section 3: basic one-time RAPPOR",
        "A report has a bit for each value, and errs by more than OUE's.",
    ),
    Peer(
        "THE",
        "frequency",
        errors.the,
        _each_value(1),
        "D Laplace numbers",
        _SUMS,
        f"{_USENIX_2017} 4.2",
        "A report has a bit for each value, and errs by more than OUE's.",
    ),
    Peer(
        "SHE",
        "frequency",
        errors.she,
        _each_value(_REAL),
        "D Laplace numbers",
        _SUMS,
        f"{_USENIX_2017} 4.2",
        "A report has a real number for each value, and at least twice OUE's variance.",
    ),
    Peer(
        "HR",
        "frequency",
        errors.hadamard_response,
        errors.hadamard_bits,
        "a coin and a number",
        "n + K log K, with K codes",
        "Acharya, Sun, Zhang, AISTATS 2019, sections 4 and 5",
        "It has few codes and a quick decoder, and errs by more. olh's decoder is a butterfly, too.",
    ),
    Peer(
        "HaarHRR",
        "range",
        errors.haar,
        errors.haar_bits,
        "a coin and two numbers",
        "n + D log D",
        _VLDB_2019,
        _HAAR,
    ),
    Peer(
        "HaarHRR",
        "quantile",
        partial(errors.haar, prefixes=True),
        errors.haar_bits,
        "a coin and two numbers",
        "n + D log D",
        _VLDB_2019,
        _HAAR,
    ),
    Peer(
        "PM",
        "mean",
        errors.piecewise,
        _of(_REAL),
        "a coin and a real number",
        "n additions",
        f"{_ICDE_2019} III-B",
        "A report is a real number, whose last bits can betray a reading (Mironov, CCS 2012). A square wave"
        " on integers errs as little.",
    ),
    Peer(
        "HM",
        "mean",
        errors.hybrid,
        _of(_REAL),
        "two coins and a real number",
        "n additions",
        f"{_ICDE_2019} III-C",
        "It mixes PM with one bit, for the worst reading. A report is a real number.",
    ),
    Peer(
        "one bit",
        "mean",
        errors.one_bit,
        _of(1),
        "a coin",
        "n additions",
        f"Duchi, Jordan, Wainwright, JASA 2018; {_ICDE_2019} III-A",
        "It errs as little as any where ε is small. Where ε is large, a reading that is made one bit is the"
        " error.",
    ),
    Peer(
        "Laplace",
        "mean",
        errors.laplace,
        _of(_REAL),
        "a Laplace number",
        "n additions",
        f"Dwork, McSherry, Nissim, Smith, TCC 2006; {_ICDE_2019} III-A",
        "A report is a real number, and errs by more than PM's.",
    ),
    Peer(
        "RAPPOR",
        "labels",
        errors.rappor,
        _of(errors.BLOOM_BITS),
        f"{errors.BLOOM_HASHES} hashes, {errors.BLOOM_BITS} coins",
        "a regression over the candidates",
        f"{_RAPPOR}, sections 2 to 4: one time",
        "Two hashes halve what each bit may spend. Its memory of answers hides a reading that never changes;"
        " here a ledger counts every report.",
    ),
    Peer(
        "CMS",
        "labels",
        errors.cms,
        _of(errors.SKETCH_WIDTH + _SKETCH_BITS),
        f"a hash, {errors.SKETCH_WIDTH:,} coins",
        f"{errors.SKETCH_WIDTH:,} n additions",
        _APPLE,
        f"A report has a bit for each of {errors.SKETCH_WIDTH:,} cells, and the error of SUE.",
    ),
    Peer(
        "HCMS",
        "labels",
        errors.hcms,
        _of(1 + math.log2(errors.SKETCH_WIDTH) + _SKETCH_BITS),
        "a hash, a coin, two numbers",
        f"n + {errors.SKETCH_ROWS:,} transforms",
        _APPLE,
        "A report says one bit, however large ε is.",
    ),
    Peer(
        "joint OUE",
        "pairs",
        errors.joint,
        lambda domain, epsilon: float(domain**2),
        "a coin for each pair",
        "n D² additions",
        f"Zhang, Wang, Li, He, Chen, CCS 2018 (CALM), of two attributes; {_USENIX_2017} 4.3",
        "A report has a bit for each pair, and the share of one reading adds up the errors of many pairs.",
    ),
    Peer(
        "SPL",
        "pairs",
        errors.split,
        lambda domain, epsilon: 2.0 * domain,
        "two reports at ε / 2",
        "2 n D additions, n D² for pairs",
        _CIKM_2021,
        "Each reading has half of ε, and the errors of both multiply in the share of a pair.",
    ),
    Peer(
        "SMP",
        "pairs",
        errors.one_of_two,
        lambda domain, epsilon: 1.0 + domain,
        "a report of one of the two",
        "n D additions",
        _CIKM_2021,
        "A report tells of one reading, so that the share of a pair cannot be had.",
    ),
)
"""All of them, by question."""
