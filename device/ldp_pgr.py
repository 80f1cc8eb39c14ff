"""pgr: local hashing with the fewest codes, by projective geometry.

A value is a point of the projective space over the integers mod q, q prime, and so is a code: a vector of t
digits whose highest nonzero digit is 1, so that no point is a multiple of another. A code is likelier, by
e^epsilon, for the values whose dot product with it is 0: they are *inside*.

Privacy: a code's chance inside is at most e^epsilon times that outside; threshold / ONE is the chance of all
inside, rounded down. tests/device/test_pgr.py enumerates it. Utility: any two values are inside together for
the same number of codes, so that estimates are unbiased; their errors are those of olh. Cost:
(q**t - 1) / (q - 1) codes, q - 1 times fewer than an olh that distinguishes as many values; 3 draws, and
steps whose number depends on q and t alone. Citation: Feldman, Nelson, Nguyen, Talwar, "Private Frequency
Estimation via Projective Geometry", ICML 2022.
"""

# pyright: reportMissingImports=false

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
else:
    import ldp_client


class Points:
    """A domain and its randomized response over the points: all of pgr, or one level of several.

    Attributes:
        domain: Number of nodes, which are the first points.
        q: The prime modulus.
        t: Number of a point's digits mod q, as few as possible.
        code_count: Number of codes.
        offset: Index of the first code among the experiment's.
        inside: Number of codes inside for a node; the others are outside.
        seeds: The same as inside, by the name that other levels have for it.
        threshold: The code is inside with probability threshold / ONE.
        weight: How often the level is drawn, out of the experiment's weight_sum.
    """

    def __init__(self, epsilon, domain, q, offset, weight):
        if not ldp_client.is_prime(q):
            raise ldp_client.ExperimentRefused("q must be a prime")
        self.domain = domain  # type: int
        self.q = q  # type: int
        self.offset = offset  # type: int
        self.weight = weight  # type: int
        t = inside = 1
        while inside * q + 1 < domain:
            inside = inside * q + 1
            t += 1
        self.t = t + 1  # type: int
        self.inside = self.seeds = inside
        self.outside = q**t  # type: int
        self.code_count = inside + self.outside  # type: int
        if offset + self.code_count > 1 << 24:
            raise ldp_client.ExperimentRefused("more than 16777216 codes")
        self.threshold = ldp_client.truth_threshold(epsilon, self.outside + 1, inside)  # type: int

    def respond(self, node, rng):
        """Return a code for a node in range(domain)."""
        q = self.q
        # Everything is always drawn: timing does not tell whether the code is inside.
        out = 1 - rng.bernoulli(self.threshold)
        rest = 1 + rng.below(self.outside - 1)  # digits but the one solved for; inside, not all are 0
        rest += out * (rng.below(self.outside) - rest)
        digits = []
        at = dot = 0
        for _ in range(self.t):
            digit = rest % q
            rest //= q
            # The node's digits, lowest first: its number with digits 1 to q, less 1 each; a 1 on top; zeros.
            dot += digit * ((node - 1) % q * (node > 0) + (node == 0))
            digits.append(digit)
            at += node > 0
            node = (node - 1) // q
        # The digit where the node has its 1 goes on top, where rest had none; in its place is what makes the
        # product 0 inside and 1 outside.
        digit = digits[at]
        digits[-1] = digit
        digits[at] = (digit + out - dot) % q
        # Divide by the highest nonzero digit, by Fermat's little theorem.
        top = 0
        for digit in digits:
            top += (digit - top) * (digit > 0)
        inverse = 1
        power = q - 2
        while power:
            if power & 1:
                inverse = inverse * top % q
            top = top * top % q
            power >>= 1
        code = started = 0
        for i in range(self.t - 1, -1, -1):
            digit = digits[i]
            code = code * q + (1 + digit * inverse % q) * started
            started |= digit > 0
        return self.offset + code


def _take(exp, fields):
    # Then products of two digits, and sums of t of them, are small integers on every board, and threshold is
    # so large that rounding it down leaves a code inside likelier than one outside at every epsilon.
    exp.points = Points(exp.epsilon, exp.domain, ldp_client.take_int(fields, "q", 2, 4096), 0, 1)
    exp.code_count = exp.points.code_count


def _randomize(exp, index, rng):
    return exp.points.respond(index, rng)


ldp_client.MECHANISMS["pgr"] = (_take, _randomize)
