"""The server's side of sfp: Apple's sequence-fragment puzzle. The board's side is sketch_board.py."""

from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np
import sketch_board
from hcms import Sketch

from hushmote.server.mechanisms import Mechanism, Stratum


class FragmentPuzzle(Mechanism):
    """Sketches of the pieces of words."""

    board = Path(sketch_board.__file__)
    answers = frozenset()
    parameters = ("alphabet", "length", "hashes", "width", "weights")
    examples = (
        {"type": "letters", "alphabet": "abc", "length": 2, "hashes": 2, "width": 4},
        {"type": "letters", "alphabet": "ab", "length": 4, "hashes": 1, "width": 4, "weights": [2, 1, 3]},
    )

    def __init__(self, experiment):
        super().__init__(experiment)
        self.sketch = Sketch(experiment.hashes, experiment.width, experiment.threshold)

    def fields(self):
        """Those of the reading too, whose type is not one of the shipped."""
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
        """Items of the pieces of words, shape (n, pieces)."""
        return np.array([sketch_board.pieces_of(self.experiment, int(i)) for i in indices])

    def law(self, shares):
        columns = shares.reshape(self.domain, -1)
        tables = (self.sketch.law(items, columns) for items in self.pieces(range(self.domain)).T)
        return [table.reshape(-1, *shares.shape[1:]) for table in tables]

    def weights(self, statistic, reports):
        """By the sketch of whole words alone."""
        items = self.pieces(range(self.domain))[:, -1]
        none = [None] * (len(self.experiment.weights) - 1)
        return [*none, self.sketch.weights(items, statistic)], self.sketch.constant(statistic)

    def draw(self, indices, rng):
        return self.draw_pieces(self.pieces(indices), rng)

    def draw_pieces(self, items, rng):
        """A code for each row of pieces."""
        weights = np.array(self.experiment.weights)
        piece = rng.choice(len(weights), len(items), p=weights / weights.sum())
        told = self.sketch.draw(items[np.arange(len(items)), piece], rng)
        return (piece * self.sketch.codes + told).astype(np.uint32)

    def solve(self, counts, common=80, most=100_000, mistaken=0.04):
        """Pairs of a word and its share: words are put together of each place's `common` pieces, by hashes.

        A word is listed where its own sketch has more than chance explains, over all words that were tried.
        """
        experiment, sketch = self.experiment, self.sketch
        pairs = (len(experiment.alphabet) + 1) ** 2
        *places, whole = (counts[s.first : s.first + s.codes] for s in self.strata)
        items = np.arange(sketch_board.PUZZLE * pairs)
        parts = []
        for place in places:
            shares = sketch.shares(place, items)
            parts.append(np.argpartition(-shares, common)[:common])
        tried = []
        for number in range(sketch_board.PUZZLE):
            pieces = [part[part // pairs == number] % pairs for part in parts]
            if np.prod([len(p) for p in pieces]) > most:
                continue
            words = (sum(int(p) * pairs**i for i, p in enumerate(choice)) for choice in product(*pieces))
            tried += [word for word in words if self.pieces([word])[0, 0] // pairs == number]
        if not tried:
            return []
        shares = sketch.shares(whole, self.pieces(tried)[:, -1])
        least = NormalDist().inv_cdf(1 - mistaken / len(tried)) * sketch.stderr(whole.sum())
        found = sorted(zip(shares, tried, strict=True), reverse=True)
        return [(self.word(word), float(share)) for share, word in found if share > least]

    def word(self, index):
        """The letters of an index."""
        letters, base = "", len(self.experiment.alphabet) + 1
        for _ in range(self.experiment.length):
            index, digit = divmod(index, base)
            letters += self.experiment.alphabet[digit - 1] if digit else ""
        return letters
