"""sw, a mechanism for means: a square wave over integers. Copy this file next to ldp_client.py.

Privacy: the codes index to index + 2 reach are equally likely, and so are all others, of which there are
domain - 1 whatever the index. The probability of a code near the index is at most e^epsilon times that of a
code elsewhere, because the threshold is rounded down. Three draws, whatever the reading.
Utility: docs/mathematics.md; it needs a third of the reports that a tree needs for the mean, but gives no
histogram.
Cost: domain + 2 reach codes; no multiplication except by 0 or 1.
Citation: Li, Wang, Lopuhaa-Zwakenberg, Skoric, Li, "Estimating Numerical Distributions under Local
Differential Privacy", SIGMOD 2020, section 5.2.
"""

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client  # pyright: ignore[reportMissingImports]


def _take(exp, fields):
    if exp.type != "number":
        raise ldp_client.ExperimentRefused("sw supports only numbers")
    if exp.missing is not None:  # "no reading" would become a neighbor of the highest bin
        raise ldp_client.ExperimentRefused("sw does not support missing readings")
    domain = exp.domain
    exp.reach = ldp_client.take_int(fields, "reach", 0, 1 << 23)
    exp.code_count = domain + 2 * exp.reach
    inside = 2 * exp.reach + 1
    exp.threshold = ldp_client.truth_threshold(exp.epsilon, domain, inside)
    # Refuse if a code inside the interval would be no likelier than one outside it.
    if exp.threshold * (domain - 1) <= (ldp_client.ONE - exp.threshold) * inside:
        raise ldp_client.ExperimentRefused("epsilon is too small for so many codes")


def _randomize(exp, index, rng):
    inside = 2 * exp.reach + 1
    # All three are always drawn, so timing does not reveal whether the code is inside.
    truthful = rng.bernoulli(exp.threshold)
    near = index + rng.below(inside)
    far = rng.below(exp.domain - 1)
    far += (far >= index) * inside
    return (far, near)[truthful]


ldp_client.MECHANISMS["sw"] = (_take, _randomize)
