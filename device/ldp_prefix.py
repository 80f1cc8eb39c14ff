"""prefix: each report covers one prefix of a text, so that a server can discover unlisted texts.

Copy this file next to ldp_client.py, ldp_text.py and ldp_pgr.py. The index has a slot for each of the text's
`prefixes`; a level is drawn according to `weights`, and its slot is reported using pgr.

Privacy: the same as pgr over one level's slots; the level is drawn independently of the reading, so a report
covers only one prefix. tests/device/test_prefix.py verifies this by enumeration. Utility: a server that knows
a prefix tries each possible next character, and so discovers common texts without a list. Cost: the codes of
all levels; 2 more draws than pgr. Citation: Wang, Li, Jha, "Locally Differentially Private Heavy Hitter
Identification", IEEE TDSC 2021; Bassily, Nissim, Stemmer, Thakurta, "Practical Locally Private Heavy
Hitters", NIPS 2017.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client, ldp_pgr
else:
    import ldp_client
    import ldp_pgr


def _take(exp, fields):
    prefixes = getattr(exp, "prefixes", ())
    if not prefixes:
        raise ldp_client.ExperimentRefused("prefix requires a text with prefixes")
    q = ldp_client.take_int(fields, "q", 2, 4096)
    count = len(prefixes)
    weights = ldp_client.take_ints(fields, "weights", count, 1, 65535, [1] * count)
    levels = []
    offset = shift = bits = 0
    while 1 << bits < exp.slots:
        bits += 1
    for weight in weights:
        level = ldp_pgr.Points(exp.epsilon, exp.slots, q, offset, weight)
        level.shift = shift  # number of index bits below the level's slot
        levels.append(level)
        offset += level.code_count
        shift += bits
    exp.levels = tuple(levels)
    exp.weight_sum = sum(weights)
    exp.code_count = offset


def _randomize(exp, index, rng):
    level = ldp_client.pick(exp, rng)
    slot = rng.below(exp.slots)  # for no reading; always drawn
    if index is not None:
        slot = index >> level.shift & (exp.slots - 1)
    return level.respond(slot, rng)


ldp_client.MECHANISMS["prefix"] = (_take, _randomize)
