"""Lines through three of a domain's values, which codes support together more often than three others."""

import math


def digits(domain: int, g: int) -> int:
    """Number of base-g digits that tell range(domain) apart; 1 at least."""
    count = 1
    while g**count < domain:
        count += 1
    return count


def affine(domain: int, g: int) -> int:
    """Number of ordered triples of different values of range(domain) on one line in the space of digits.

    A line whose direction has its top digit at place j stays in one block of g**(j+1) values and meets each
    of its g parts of g**j values once. At most one block is not whole: it has `full` parts and r values more.
    """
    triples = 0
    for j in range(digits(domain, g)):
        part = g**j
        blocks, rest = divmod(domain, part * g)
        full, r = divmod(rest, part)
        triples += blocks * part**2 * math.perm(g, 3)
        triples += part * r * math.perm(full + 1, 3) + part * (part - r) * math.perm(full, 3)
    return triples


def projective(domain: int, q: int) -> int:
    """The same of the first points of a projective space mod q (projective.py).

    They are a whole space, at infinity, and values before it. Any line of those meets the space once.
    """
    infinity = 1
    while infinity * q + 1 <= domain:
        infinity = infinity * q + 1
    finite = domain - infinity
    at_infinity = infinity * (infinity - 1) * (q - 1)
    return at_infinity + 3 * finite * (finite - 1) + affine(finite, q)
