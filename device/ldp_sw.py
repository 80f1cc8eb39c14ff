"""sw, a board's mechanism for means: a square wave over integers. This file goes beside ldp_client.py.

Privacy: codes index .. index + 2 reach are equally likely, and so are all others, which number domain - 1
whatever the index. A code's chance among the first is at most e^epsilon times its chance among the others,
because the threshold is rounded down. Three draws, whatever the reading.
Utility: docs/mathematics.md; the mean with a third of the reports that a tree needs, but no histogram.
Cost: domain + 2 reach codes; no multiplication except by 0 or 1.
Citation: Li, Wang, Lopuhaa-Zwakenberg, Skoric, Li, "Estimating Numerical Distributions under Local
Differential Privacy", SIGMOD 2020, section 5.2.
"""

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
else:
    import ldp_client  # pyright: ignore[reportMissingImports]


def _take(exp, fields):
    if exp.type != "number":
        raise ldp_client.ExperimentRefused("sw is for a number")
    if exp.missing is not None:  # the highest bin would be its neighbor
        raise ldp_client.ExperimentRefused("sw cannot have missing")
    domain = exp.domain
    exp.reach = ldp_client.take_int(fields, "reach", 0, 1 << 23)
    exp.code_count = domain + 2 * exp.reach
    inside = 2 * exp.reach + 1
    exp.threshold = ldp_client.truth_threshold(exp.epsilon, domain, inside)
    # Otherwise a code inside is not likelier than one outside: e^epsilon would bound the wrong ratio.
    if exp.threshold * (domain - 1) <= (ldp_client.ONE - exp.threshold) * inside:
        raise ldp_client.ExperimentRefused("epsilon is too small for so many codes")


def _randomize(exp, index, rng):
    inside = 2 * exp.reach + 1
    # All three are always drawn: timing does not tell a code inside from one outside.
    truthful = rng.bernoulli(exp.threshold)
    near = index + rng.below(inside)
    far = rng.below(exp.domain - 1)
    far += (far >= index) * inside
    return (far, near)[truthful]


ldp_client.MECHANISMS["sw"] = (_take, _randomize)
