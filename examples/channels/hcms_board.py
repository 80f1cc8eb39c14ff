"""hcms: one random bit of the Hadamard transform of a value's cell, under a hash function out of many.

Privacy: the bit is told with probability e^epsilon / (e^epsilon + 1), rounded down; the hash function and the
bit's place are drawn without looking at the value. Utility: that of one bit, ((e^epsilon + 1) / (e^epsilon -
1))^2 for a report, which stays above 1; hash functions are fixed, so that collisions do not vanish with more
reports. Cost: 2 * hashes * width codes; 3 draws. Citation: Apple's Differential Privacy Team, "Learning with
Privacy at Scale", Apple Machine Learning Journal 2017 (A_client-HCMS).
"""

import hashlib

try:
    from hushmote.device import ldp_client
except ImportError:  # on a board the files lie side by side
    import ldp_client

WORD = "hcms:HadamardSketch"
PRIME = (1 << 31) - 1


def coefficients(number):
    """Of a hash function: three numbers mod PRIME, which make cells of any three values independent."""
    digest = hashlib.sha256(b"hcms" + number.to_bytes(2, "big")).digest()
    return [int.from_bytes(digest[i : i + 8], "big") % PRIME for i in (0, 8, 16)]


def bit_of(sketch, item, rng):
    """A code for an item in range(PRIME), under a sketch of hashes, width and threshold."""
    number = rng.below(sketch.hashes)
    place = rng.below(sketch.width)
    a, b, c = coefficients(number)
    bits = ((a * item + b) * item + c) % PRIME & place  # place is below width, a power of 2
    for shift in (16, 8, 4, 2, 1):
        bits ^= bits >> shift
    lie = 1 - rng.bernoulli(sketch.threshold)
    return (number * sketch.width + place) * 2 + ((bits ^ lie) & 1)


def take_sketch(exp, fields):
    """Set hashes, width and threshold."""
    exp.hashes = ldp_client.take_int(fields, "hashes", 1, 65536)
    exp.width = ldp_client.take_int(fields, "width", 2, 1 << 20)
    if exp.width & (exp.width - 1):
        raise ldp_client.ExperimentRefused("width must be a power of 2")
    exp.threshold = ldp_client.truth_threshold(exp.epsilon, 2)


def take(exp, fields):
    """hashes and width: of the sketch."""
    if exp.domain > 1 << 24:
        raise ldp_client.ExperimentRefused("hcms is for at most 16777216 values")
    take_sketch(exp, fields)
    exp.code_count = 2 * exp.hashes * exp.width


def randomize(exp, index, rng):
    """3 draws, whatever the index."""
    return bit_of(exp, index, rng)


ldp_client.MECHANISMS[WORD] = (take, randomize)
