"""The server side of sfp: Apple's sequence-fragment puzzle. The board side is sketch_board.py."""

from itertools import product
from pathlib import Path

import numpy as np
import sketch_board
from hcms import Sketch

from hushmote.server.mechanisms import Mechanism, Stratum, TextSearch

_COMMON = 80  # number of common pieces per position from which words are assembled
_MAX_WORDS = 100_000  # maximum number of assembled words with the same hash
_CONFIDENT = 1.9  # standard deviations; a piece this far above is a common one with 97% probability
_CHANCE = 50  # random items to draw per candidate word
_INSIDE = "·"  # stands for a letter that is not in the alphabet


class FragmentPuzzle(Mechanism):
    """Sketches of word pieces."""

    board = Path(sketch_board.__file__)
    answers = frozenset({"discovery"})
    approximate = True
    parameters = ("alphabet", "length", "hashes", "width", "weights")
    examples = (
        {"type": "letters", "alphabet": "abc", "length": 2, "hashes": 2, "width": 4},
        {"type": "letters", "alphabet": "ab", "length": 4, "hashes": 1, "width": 4, "weights": [2, 1, 3]},
    )

    def __init__(self, experiment):
        super().__init__(experiment)
        self.sketch = Sketch(experiment.hashes, experiment.width, experiment.threshold)

    def fields(self):
        """Return the fields, including the reading's, because its type is not built in."""
        e = self.experiment
        word_fields = {"alphabet": e.alphabet, "length": e.length, "weights": e.weights}
        return super().fields() | word_fields | {"hashes": self.sketch.hashes, "width": self.sketch.width}

    def words(self):
        hashes, width = self.sketch.hashes, self.sketch.width
        return f"sfp, words of {self.experiment.length} letters, {hashes} hash functions of {width} cells"

    @property
    def strata(self):
        weights, codes = self.experiment.weights, self.sketch.codes
        return tuple(Stratum(w / sum(weights), i * codes, codes) for i, w in enumerate(weights))

    def pieces(self, indices):
        """Return the sketch items of each word's pieces, shape (n, pieces)."""
        return np.array([sketch_board.pieces_of(self.experiment, int(i)) for i in indices])

    def law(self, shares):
        columns = shares.reshape(self.domain, -1)
        tables = (self.sketch.law(items, columns) for items in self.pieces(range(self.domain)).T)
        return [table.reshape(-1, *shares.shape[1:]) for table in tables]

    def weights(self, statistic, reports):
        """Return the weights; only the whole-word sketch has any, so the others are None."""
        items = self.pieces(range(self.domain))[:, -1]
        none = [None] * (len(self.experiment.weights) - 1)
        return [*none, self.sketch.weights(items, statistic)], self.sketch.constant(statistic)

    def lacks(self, reports):
        return "" if min(reports) > 1 else "each piece needs at least 2 reports; wait for more"

    def drawable(self, indices):
        return self.pieces(indices)

    def draw(self, indices, rng):
        """Return one code per row; the indices have shape (n,), or are pieces of shape (n, pieces)."""
        items = self.pieces(indices) if indices.ndim == 1 else indices
        weights = np.array(self.experiment.weights)
        piece = rng.choice(len(weights), len(items), p=weights / weights.sum())
        codes = self.sketch.draw(items[np.arange(len(items)), piece], rng)
        return (piece * self.sketch.codes + codes).astype(np.uint32)

    def search(self, counts):
        """Assemble words from common pieces with the same hash at each position; estimate the words' shares.

        The sketch treats a word that nobody sent as a random item, so random items show the effect of chance.
        """
        *pair_counts, word_counts = (counts[s.first : s.first + s.codes] for s in self.strata)
        pairs = (len(self.experiment.alphabet) + 1) ** 2
        items, common_items, threshold = np.arange(sketch_board.PUZZLE * pairs), [], 0.0
        common = min(_COMMON, len(items))
        for piece_counts in pair_counts:
            shares = self.sketch.shares(piece_counts, items)
            common_items.append(np.argpartition(-shares, common - 1)[:common])
            lowest = float(shares[common_items[-1]].min() + _CONFIDENT * shares.std())
            threshold = max(threshold, lowest)
        candidates = self._assemble(common_items, pairs)
        words = self.pieces(candidates)[:, -1] if candidates else np.zeros(0, int)
        chance = np.random.default_rng(0).integers(
            0, sketch_board.PRIME, _CHANCE * max(len(candidates), 1_000)
        )
        texts, complete = (
            [self.word(word) for word in candidates],
            [self.is_complete(word) for word in candidates],
        )
        shares = self.sketch.shares(word_counts, np.concatenate([words, chance]))
        return TextSearch(texts, complete, shares[: len(candidates)], shares[len(candidates) :], threshold)

    def _assemble(self, common_items, pairs):
        """Return the indices of words whose pieces all contain the word's hash."""
        candidates = []
        for number in range(sketch_board.PUZZLE):
            pieces = [part[part // pairs == number] % pairs for part in common_items]
            if np.prod([len(p) for p in pieces]) > _MAX_WORDS:
                continue
            words = (sum(int(p) * pairs**i for i, p in enumerate(choice)) for choice in product(*pieces))
            candidates += [word for word in words if self.pieces([word])[0, 0] // pairs == number]
        return candidates

    def word(self, index):
        """Return an index's word."""
        letters, base = "", len(self.experiment.alphabet) + 1
        for _ in range(self.experiment.length):
            index, digit = divmod(index, base)
            letters += self.experiment.alphabet[digit - 1] if digit else _INSIDE
        return letters.rstrip(_INSIDE)

    def is_complete(self, index):
        """Return whether a word ends before the last reported letter."""
        return index < (len(self.experiment.alphabet) + 1) ** (self.experiment.length - 1)
