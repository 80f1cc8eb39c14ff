"""Collinear triples of a domain's values, which codes support together more often than other triples."""

import math


def digits(domain: int, g: int) -> int:
    """Return the number of base-g digits that distinguish range(domain), at least 1."""
    count = 1
    while g**count < domain:
        count += 1
    return count


def affine(domain: int, g: int) -> int:
    """Return the number of ordered collinear triples of distinct values in digit space.

    The values are range(domain). A line whose direction has its top nonzero digit at position j stays in one
    block of g**(j+1) values and meets each of the block's g parts of g**j values once. At most one block is
    incomplete, with `full` parts and r more values.
    """
    triples = 0
    for j in range(digits(domain, g)):
        part = g**j
        blocks, remainder = divmod(domain, part * g)
        full, r = divmod(remainder, part)
        triples += blocks * part**2 * math.perm(g, 3)
        triples += part * r * math.perm(full + 1, 3) + part * (part - r) * math.perm(full, 3)
    return triples


def projective(domain: int, q: int) -> int:
    """Return the same number for the first points of a projective space mod q (projective.py).

    The points are a complete space at infinity and finite values; any line through finite values meets that
    space once.
    """
    infinity = 1
    while infinity * q + 1 <= domain:
        infinity = infinity * q + 1
    finite = domain - infinity
    at_infinity = infinity * (infinity - 1) * (q - 1)
    return at_infinity + 3 * finite * (finite - 1) + affine(finite, q)
