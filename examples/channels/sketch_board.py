"""hcms and sfp: Apple's Hadamard count mean sketch, and the sequence-fragment puzzle over such sketches.

hcms reports one random bit of the Hadamard transform of a value's cell, under one of many hash functions. sfp
reports such a bit of a pair of letters with the word's hash, or of the word. Its type "letters" accepts words
of at most `length` letters from an `alphabet`; all other characters, and the end, count as one more letter. A
report spends all of epsilon on one piece, whereas the paper less accurately splits it over two pieces.

Privacy: the true bit is sent with probability e^epsilon / (e^epsilon + 1), rounded down; the piece, the hash
function and the bit's position are drawn independently of the value. Utility: one bit's variance, ((e^epsilon
+ 1) / (e^epsilon - 1))^2 per report, which stays above 1; hash functions are fixed, so collisions do not
vanish with more reports. Cost: 2 * hashes * width codes per piece; 3 draws; for sfp 4 draws, or 5 with more
than 2**24 words. Citation: Apple's Differential Privacy Team, "Learning with Privacy at Scale", Apple Machine
Learning Journal 2017 (A_client-HCMS, A_client-SFP).
"""

import hashlib

try:
    from hushmote.device import ldp_client
except ImportError:  # on a board, the files are in one folder
    import ldp_client

PRIME = (1 << 31) - 1
PUZZLE = 256  # number of hashes; only pieces with the same hash are combined


def coefficients(number):
    """Return a hash function's three coefficients mod PRIME; the cells of three values are independent."""
    digest = hashlib.sha256(b"hcms" + number.to_bytes(2, "big")).digest()
    return [int.from_bytes(digest[i : i + 8], "big") % PRIME for i in (0, 8, 16)]


def bit_of(sketch, item, rng):
    """Return a code for an item in range(PRIME), given a sketch's hashes, width and threshold."""
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


def take_hcms(exp, fields):
    """Set up a sketch from the fields hashes and width."""
    if exp.domain > 1 << 24:
        raise ldp_client.ExperimentRefused("hcms supports at most 16777216 values")
    take_sketch(exp, fields)
    exp.code_count = 2 * exp.hashes * exp.width


def randomize_hcms(exp, index, rng):
    """Return a code, with 3 draws for any index."""
    return bit_of(exp, index, rng)


def take_letters(reading, fields):
    """Set the alphabet, 2 to 64 different characters, and the length, even, 2 to 8."""
    alphabet = ldp_client.take(fields, "alphabet")
    if type(alphabet) is not str or not 2 <= len(alphabet) == len(set(alphabet)) <= 64:
        raise ldp_client.ExperimentRefused("alphabet must be 2 to 64 different characters")
    reading.alphabet = alphabet
    reading.length = ldp_client.take_int(fields, "length", 2, 8)
    if reading.length % 2:
        raise ldp_client.ExperimentRefused("length must be even")
    reading.domain = (len(alphabet) + 1) ** reading.length


def bucket_letters(reading, value):
    """Return the word as a number whose lowest digit is the first letter; 0 is the end or unlisted."""
    if not isinstance(value, str):
        return -1
    index = 0
    for i in range(reading.length - 1, -1, -1):
        index = index * (len(reading.alphabet) + 1) + reading.alphabet.find(value[i : i + 1] or "\n") + 1
    return index


def pieces_of(exp, index):
    """Return the sketches' items: each pair of letters with the word's hash, then the word."""
    digest = hashlib.sha256(index.to_bytes(8, "big")).digest()
    pairs = (len(exp.alphabet) + 1) ** 2
    items = []
    for _ in range(exp.length // 2):
        items.append(digest[0] * pairs + index % pairs)
        index //= pairs
    items.append(int.from_bytes(digest[1:9], "big") % PRIME)
    return items


def take_sfp(exp, fields):
    """Set up sketches from hashes, width and weights (the frequency of each piece, the whole word last)."""
    if exp.type != "letters":
        raise ldp_client.ExperimentRefused("sfp supports only the type letters")
    take_sketch(exp, fields)
    count = exp.length // 2 + 1
    exp.weights = ldp_client.take_ints(fields, "weights", count, 1, 65535, [1] * count)
    exp.code_count = 2 * exp.hashes * exp.width * count


def randomize_sfp(exp, index, rng):
    """Return a code, with 4 or 5 draws for any index; None means a missing reading."""
    draw = rng.below(sum(exp.weights))
    piece = 0
    while draw >= exp.weights[piece]:
        draw -= exp.weights[piece]
        piece += 1
    # Always drawn, but used only for a missing reading.
    item = rng.below(1 << 24) if exp.domain > 1 << 24 else 0
    if index is not None:
        item = pieces_of(exp, index)[piece]
    return piece * 2 * exp.hashes * exp.width + bit_of(exp, item, rng)


ldp_client.TYPES["letters"] = (take_letters, bucket_letters)
ldp_client.MECHANISMS["hcms:HadamardSketch"] = (take_hcms, randomize_hcms)
ldp_client.MECHANISMS["sfp:FragmentPuzzle"] = (take_sfp, randomize_sfp)
