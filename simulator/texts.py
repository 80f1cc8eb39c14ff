"""Populations of texts, such as firmware versions, invented or from a file, with their shares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..device.ldp_client import Experiment
from ..planning.readings_file import ColumnType, Reading, read_readings
from ..planning.tables import CsvTable
from ..server.arrays import Floats
from ..server.wire.experiments import is_own_type
from .population import ByGroup, Population, PopulationError, Recorded

MAX_DOMAIN = 1 << 24
"""Largest number of indices for which an array is used; texts with prefixes have more."""
_INVENTED_TEXTS = 1000
_FORMS = "zipf:exponent, zipf:exponent:FILE (one text a line) or file:FILE (CSV with columns text and share)"


@dataclass(frozen=True)
class Texts(Population):
    """Different texts, each with its share of the devices: shape (texts,), summing to 1."""

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

    def move_to_first(self, by: float) -> Texts:
        """Return the texts after a share `by`, 0 to 1, of the devices has moved to the first."""
        shares = (1 - by) * self.shares
        shares[0] += by
        return replace(self, shares=shares)


def is_text_type(type: str) -> bool:
    """Return whether readings of this type are texts, which includes custom types."""
    return type == "text" or is_own_type(type)


def _require_text(experiment: Experiment) -> None:
    if not is_text_type(experiment.type):
        raise PopulationError(
            f"a population of texts does not fit {experiment.name}, which is a {experiment.type}"
        )


def weighted(texts: Sequence[str], weights: Sequence[float]) -> Texts:
    """Return texts with weights; raise PopulationError for negative or all-zero weights, or duplicates."""
    values = np.array(weights, float)
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise PopulationError("shares of texts must be numbers of 0 or more, not all 0")
    text, times = Counter(texts).most_common(1)[0]
    if times > 1:
        raise PopulationError(f"the text {text!r} occurs {times} times; list each text once")
    return Texts(tuple(texts), values / values.sum())


def parse(spec: str, type: str = "text") -> Texts:
    """Return the population of "zipf:1.1", "zipf:1.1:FILE" or "file:FILE".

    With zipf, the i-th text has a weight of i^-exponent; the texts come from the file, one per line, or,
    for the type "text", are 1,000 invented ones. With file, FILE is a CSV file with the columns text and
    share.

    Raises:
        PopulationError: If the spec is invalid or its file cannot be read; the message is one line.
    """
    name, _, details = spec.partition(":")
    if name == "file" and details:
        return _read_shares(details)
    number, _, file = details.partition(":")
    try:
        exponent = float(number) if name == "zipf" else math.nan
    except ValueError:
        exponent = math.nan
    if not 0 <= exponent < math.inf:
        raise PopulationError(f"{spec!r} is not a population of texts; write {_FORMS}")
    if not file and type != "text":
        raise PopulationError(
            f"list the texts of type {type} in a file: {spec}:FILE, one per line, or file:FILE, CSV with the "
            "columns text and share"
        )
    texts = _read_texts(file) if file else [f"text-{i}" for i in range(1, _INVENTED_TEXTS + 1)]
    return weighted(texts, (np.arange(1.0, len(texts) + 1) ** -exponent).tolist())


def _read_texts(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
        raise PopulationError(f"cannot read {path}: {reason}") from None
    texts = [line for line in text.split("\n") if line]
    if not texts:
        raise PopulationError(f"{path} has no texts; write one per line")
    return texts


def _read_shares(path: str) -> Texts:
    table = CsvTable(path, ("text", "share"), PopulationError)
    texts = [text for (text,) in table.rows([table.index("text")])]
    shares = read_readings(table, [ColumnType("share", "number", is_exact=True)]).columns[0]
    weights: list[float] = []
    for row, share in enumerate(shares):
        if not isinstance(share, float):
            raise PopulationError(f"{table.position(row)}: share is blank, not a number")
        weights.append(share)
    return weighted(texts, weights)


def text_shares(people: Population) -> dict[str, float] | None:
    """Return the share of each text in a population, without missing readings; None for other readings."""
    if isinstance(people, ByGroup):
        return text_shares(people.everyone)
    if isinstance(people, Texts):
        return dict(zip(people.texts, people.shares.tolist(), strict=True))
    if isinstance(people, Recorded):
        counts = Counter(text for text in people.readings if isinstance(text, str))
        return {text: count / len(people.readings) for text, count in counts.items()}
    return None
