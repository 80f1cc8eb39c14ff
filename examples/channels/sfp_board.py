"""sfp: a sequence-fragment puzzle. A report is of a pair of letters with the word's hash, or of the word.

The type "letters" takes words of at most `length` letters of an `alphabet`; what is not of it, and the end,
is one more letter. The pieces are told by hcms_board.py, each with all of epsilon: the paper tells two at
once with a part of it each, which errs more.

Privacy: of hcms; which piece is asked for is drawn without looking at the word. Utility: of one bit, from a
part of the reports. Cost: 2 * hashes * width codes for each piece; 5 draws. Citation: Apple's Differential
Privacy Team, "Learning with Privacy at Scale", Apple Machine Learning Journal 2017 (A_client-SFP).
"""

import hashlib

try:
    from hushmote.device import ldp_client
except ImportError:  # on a board the files lie side by side
    import ldp_client
import hcms_board

WORD = "sfp:FragmentPuzzle"
PUZZLE = 256  # pieces of words of different hashes do not go together


def take_letters(reading, fields):
    """alphabet: 2 to 64 different characters; length: even, 2 to 8."""
    alphabet = ldp_client.take(fields, "alphabet")
    if type(alphabet) is not str or not 2 <= len(alphabet) == len(set(alphabet)) <= 64:
        raise ldp_client.ExperimentRefused("alphabet must be 2 to 64 different characters")
    reading.alphabet = alphabet
    reading.length = ldp_client.take_int(fields, "length", 2, 8)
    if reading.length % 2:
        raise ldp_client.ExperimentRefused("length must be even")
    reading.domain = (len(alphabet) + 1) ** reading.length


def bucket_letters(reading, value):
    """The word as a number, its first letter the lowest digit; 0 stands for the end and for other letters."""
    if not isinstance(value, str):
        return -1
    index = 0
    for i in range(reading.length - 1, -1, -1):
        index = index * (len(reading.alphabet) + 1) + reading.alphabet.find(value[i : i + 1] or "\n") + 1
    return index


def pieces_of(exp, index):
    """Items of the sketches: of each pair of letters with the word's hash, and last of the word."""
    digest = hashlib.sha256(index.to_bytes(8, "big")).digest()
    pairs = (len(exp.alphabet) + 1) ** 2
    items = []
    for _ in range(exp.length // 2):
        items.append(digest[0] * pairs + index % pairs)
        index //= pairs
    items.append(int.from_bytes(digest[1:9], "big") % hcms_board.PRIME)
    return items


def take(exp, fields):
    """hashes and width: of each sketch; weights: how often each piece is asked for, the whole word last."""
    if exp.type != "letters":
        raise ldp_client.ExperimentRefused("sfp is for letters")
    hcms_board.take_sketch(exp, fields)
    count = exp.length // 2 + 1
    exp.weights = ldp_client.take_ints(fields, "weights", count, 1, 65535, [1] * count)
    exp.code_count = 2 * exp.hashes * exp.width * count


def randomize(exp, index, rng):
    """5 draws, whatever the index; of no reading any item is told."""
    draw = rng.below(sum(exp.weights))
    piece = 0
    while draw >= exp.weights[piece]:
        draw -= exp.weights[piece]
        piece += 1
    nothing = rng.below(1 << 24)
    item = nothing if index is None else pieces_of(exp, index)[piece]
    return piece * 2 * exp.hashes * exp.width + hcms_board.bit_of(exp, item, rng)


ldp_client.TYPES["letters"] = (take_letters, bucket_letters)
ldp_client.MECHANISMS[WORD] = (take, randomize)
