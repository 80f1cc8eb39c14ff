"""Populations of texts, such as firmware versions: made up, or from a file, each with its share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..device.ldp_client import Experiment
from ..planning.readings_file import Reading, csv_rows
from ..server.arrays import Floats
from ..server.wire.experiments import is_own_type
from .population import Population, PopulationError, Recorded

MAX_DOMAIN = 1 << 24
"""Indices beyond which there is no array of all of them: those of texts with prefixes."""
_MADE_UP = 1000
_FORMS = "zipf:exponent, zipf:exponent:FILE (one text a line) or file:FILE (CSV with columns text and share)"


@dataclass(frozen=True)
class Texts(Population):
    """Texts, all different, each with the share of devices that hold it: shape (texts,), of sum 1."""

    texts: tuple[str, ...]
    shares: Floats

    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        _require_text(experiment)
        return [self.texts[i] for i in rng.choice(len(self.texts), n, p=self.shares).tolist()]

    def probabilities(self, experiment: Experiment) -> np.ndarray:
        _require_text(experiment)
        if self.indices(experiment) is not None:
            return np.append(self.shares, 0.0)
        slots = np.fromiter(map(experiment.bucket, self.texts), np.int64, len(self.texts))
        return np.append(np.bincount(slots, self.shares, experiment.domain), 0.0)

    def indices(self, experiment: Experiment) -> Sequence[int] | None:
        if experiment.domain <= MAX_DOMAIN:
            return None
        return [index for index in map(experiment.bucket, self.texts) if index is not None]

    def turned(self, by: float) -> Texts:
        """The same where a share, 0 to 1, of the devices has turned to the first text."""
        shares = (1 - by) * self.shares
        shares[0] += by
        return replace(self, shares=shares)


def of_texts(type: str) -> bool:
    """Return whether readings of this type are texts; those of a type of your own are taken as such."""
    return type == "text" or is_own_type(type)


def _require_text(experiment: Experiment) -> None:
    if not of_texts(experiment.type):
        raise PopulationError(f"a population of texts is not for {experiment.name}, a {experiment.type}")


def weighted(texts: Sequence[str], weights: Sequence[float]) -> Texts:
    """Texts with weights of 0 or more, not all 0. Raises PopulationError for others, or a text twice."""
    given = np.array(weights, float)
    if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        raise PopulationError("shares of texts must be numbers of 0 or more, not all 0")
    text, times = Counter(texts).most_common(1)[0]
    if times > 1:
        raise PopulationError(f"the text {text!r} is there {times} times: give each once")
    return Texts(tuple(texts), given / given.sum())


def parse(spec: str, type: str = "text") -> Texts:
    """Return the population of "zipf:1.1", "zipf:1.1:FILE" or "file:FILE".

    zipf: the i-th text has a weight of i^-exponent, of those in the file, one a line, or of 1,000 made up,
    which there are for the type "text" alone. file: a CSV file with the columns text and share. Raises
    PopulationError with one line.
    """
    name, _, rest = spec.partition(":")
    if name == "file" and rest:
        return _read_shares(rest)
    number, _, file = rest.partition(":")
    try:
        exponent = float(number) if name == "zipf" else math.nan
    except ValueError:
        exponent = math.nan
    if not 0 <= exponent < math.inf:
        raise PopulationError(f"{spec!r} is no population of texts: write {_FORMS}")
    if not file and type != "text":
        raise PopulationError(
            f"which {type} there are, a file has to say: {spec}:FILE, one a line, or file:FILE, CSV with the "
            "columns text and share"
        )
    texts = _read_texts(file) if file else [f"text-{i}" for i in range(1, _MADE_UP + 1)]
    return weighted(texts, (np.arange(1.0, len(texts) + 1) ** -exponent).tolist())


def _read_texts(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
        raise PopulationError(f"cannot read {path}: {reason}") from None
    texts = [line for line in text.split("\n") if line]
    if not texts:
        raise PopulationError(f"{path} has no text: write one a line")
    return texts


def _read_shares(path: str) -> Texts:
    texts: list[str] = []
    weights: list[float] = []
    for where, (text, share) in csv_rows(path, ("text", "share"), PopulationError, numbers=("share",)):
        try:
            weights.append(float(share or ""))
        except ValueError:
            raise PopulationError(f"{where}: share is {share!r}, not a number") from None
        texts.append(text or "")
    return weighted(texts, weights)


def text_shares(people: Population) -> dict[str, float] | None:
    """Share of each text in a population; None for one of other readings. Missing readings have no share."""
    if isinstance(people, Texts):
        return dict(zip(people.texts, people.shares.tolist(), strict=True))
    if isinstance(people, Recorded):
        counts = Counter(text for text in people.readings if isinstance(text, str))
        return {text: count / len(people.readings) for text, count in counts.items()}
    return None
