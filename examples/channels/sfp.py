"""The server's side of sfp: Apple's sequence-fragment puzzle. The board's side is sketch_board.py."""

from itertools import product
from pathlib import Path

import numpy as np
import sketch_board
from hcms import Sketch

from hushmote.server.mechanisms import Mechanism, Stratum, TextSearch

_COMMON = 80  # pieces of each place from which words are assembled
_MOST_WORDS = 100_000  # of one hash
_SURE = 1.9  # in standard deviations: a piece is among them about 97 times in 100
_CHANCE = 50  # random items for each word that is tried
_INSIDE = "·"  # a letter inside a word that is not in the alphabet


class FragmentPuzzle(Mechanism):
    """Sketches of the pieces of words."""

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
        """Return the fields, also those of the reading, whose type is not one of the shipped ones."""
        e = self.experiment
        of_words = {"alphabet": e.alphabet, "length": e.length, "weights": e.weights}
        return super().fields() | of_words | {"hashes": self.sketch.hashes, "width": self.sketch.width}

    def words(self):
        hashes, width = self.sketch.hashes, self.sketch.width
        return f"sfp, words of {self.experiment.length} letters, {hashes} hash functions of {width} cells"

    @property
    def strata(self):
        weights, codes = self.experiment.weights, self.sketch.codes
        return tuple(Stratum(w / sum(weights), i * codes, codes) for i, w in enumerate(weights))

    def pieces(self, indices):
        """Return the items of the pieces of words, shape (n, pieces)."""
        return np.array([sketch_board.pieces_of(self.experiment, int(i)) for i in indices])

    def law(self, shares):
        columns = shares.reshape(self.domain, -1)
        tables = (self.sketch.law(items, columns) for items in self.pieces(range(self.domain)).T)
        return [table.reshape(-1, *shares.shape[1:]) for table in tables]

    def weights(self, statistic, reports):
        """Return the weights of the sketch of whole words alone."""
        items = self.pieces(range(self.domain))[:, -1]
        none = [None] * (len(self.experiment.weights) - 1)
        return [*none, self.sketch.weights(items, statistic)], self.sketch.constant(statistic)

    def lacks(self, reports):
        return "" if min(reports) > 1 else "each piece needs at least 2 reports: wait for more"

    def drawable(self, indices):
        return self.pieces(indices)

    def draw(self, indices, rng):
        """Return a code for each of the indices, shape (n,), or for their pieces, shape (n, pieces)."""
        items = self.pieces(indices) if indices.ndim == 1 else indices
        weights = np.array(self.experiment.weights)
        piece = rng.choice(len(weights), len(items), p=weights / weights.sum())
        told = self.sketch.draw(items[np.arange(len(items)), piece], rng)
        return (piece * self.sketch.codes + told).astype(np.uint32)

    def search(self, counts):
        """Assemble words from each place's common pieces, by their hashes, and measure them.

        A word that nobody sent has a random item there, so random items show the effect of chance.
        """
        *places, whole = (counts[s.first : s.first + s.codes] for s in self.strata)
        pairs = (len(self.experiment.alphabet) + 1) ** 2
        items, parts, needs = np.arange(sketch_board.PUZZLE * pairs), [], 0.0
        common = min(_COMMON, len(items))
        for place in places:
            shares = self.sketch.shares(place, items)
            parts.append(np.argpartition(-shares, common - 1)[:common])
            needs = max(needs, float(shares[parts[-1]].min() + _SURE * shares.std()))
        tried = self._assembled(parts, pairs)
        words = self.pieces(tried)[:, -1] if tried else np.zeros(0, int)
        chance = np.random.default_rng(0).integers(0, sketch_board.PRIME, _CHANCE * max(len(tried), 1_000))
        texts, complete = [self.word(word) for word in tried], [self.is_complete(word) for word in tried]
        shares = self.sketch.shares(whole, np.concatenate([words, chance]))
        return TextSearch(texts, complete, shares[: len(tried)], shares[len(tried) :], needs)

    def _assembled(self, parts, pairs):
        """Return indices of the words whose pieces all have the word's own hash."""
        tried = []
        for number in range(sketch_board.PUZZLE):
            pieces = [part[part // pairs == number] % pairs for part in parts]
            if np.prod([len(p) for p in pieces]) > _MOST_WORDS:
                continue
            words = (sum(int(p) * pairs**i for i, p in enumerate(choice)) for choice in product(*pieces))
            tried += [word for word in words if self.pieces([word])[0, 0] // pairs == number]
        return tried

    def word(self, index):
        """Return the letters of an index."""
        letters, base = "", len(self.experiment.alphabet) + 1
        for _ in range(self.experiment.length):
            index, digit = divmod(index, base)
            letters += self.experiment.alphabet[digit - 1] if digit else _INSIDE
        return letters.rstrip(_INSIDE)

    def is_complete(self, index):
        """Return whether a word ends before the last letter that is looked at."""
        return index < (len(self.experiment.alphabet) + 1) ** (self.experiment.length - 1)
