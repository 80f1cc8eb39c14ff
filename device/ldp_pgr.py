"""pgr: local hashing with as few codes as possible, using projective geometry.

Both values and codes are points in the projective space over the integers mod q, q prime: vectors of t
digits whose highest nonzero digit is 1, so that no point is a multiple of another. A code is e^epsilon times
as likely for the values whose dot product with it is 0; the code is *inside* for these values.

Privacy: the probability of a code that is inside is at most e^epsilon times that of a code outside;
threshold / ONE is the total probability of all codes inside, rounded down. tests/device/test_pgr.py verifies
this by enumeration. Utility: any two values share the same number of codes inside, so estimates are unbiased;
their errors match those of olh. Cost: (q**t - 1) / (q - 1) codes, q - 1 times fewer than an olh that
distinguishes as many values; 3 draws, and a number of steps that depends only on q and t. Citation: Feldman,
Nelson, Nguyen, Talwar, "Private Frequency Estimation via Projective Geometry", ICML 2022.
"""

# pyright: reportMissingImports=false

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client


class Points:
    """A domain and its randomized response over the points: all of pgr, or one of several levels.

    Attributes:
        domain: Number of nodes, which are the first points.
        q: The prime modulus.
        t: Number of digits mod q in a point, as few as possible.
        code_count: Number of codes.
        offset: Index of the level's first code among the experiment's codes.
        inside: Number of codes that are inside for a node; the others are outside.
        seeds: Same as inside, under the name that other levels use.
        threshold: The code is inside with probability threshold / ONE.
        weight: How many times the level is drawn, on average, out of weight_sum.
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
        # Everything is always drawn, so timing does not reveal whether the code is inside.
        out = 1 - rng.bernoulli(self.threshold)
        # All digits except the one to solve for; inside, not all of them are 0.
        quotient = 1 + rng.below(self.outside - 1)
        quotient += out * (rng.below(self.outside) - quotient)
        digits = []
        at = dot = 0
        for _ in range(self.t):
            digit = quotient % q
            quotient //= q
            # The node's digits, lowest first: the node written with digits 1 to q, minus 1 each; a 1; zeros.
            dot += digit * ((node - 1) % q * (node > 0) + (node == 0))
            digits.append(digit)
            at += node > 0
            node = (node - 1) // q
        # Move the digit at the position of the node's leading 1 to the top, which has no digit yet, and put
        # in its place the digit that makes the product 0 inside and 1 outside.
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
    # With q up to 4096, products of two digits and sums of t such products are small integers on every board,
    # and threshold is so large that even rounded down, a code inside is likelier than one outside at every
    # epsilon.
    exp.points = Points(exp.epsilon, exp.domain, ldp_client.take_int(fields, "q", 2, 4096), 0, 1)
    exp.code_count = exp.points.code_count


def _randomize(exp, index, rng):
    return exp.points.respond(index, rng)


ldp_client.MECHANISMS["pgr"] = (_take, _randomize)
