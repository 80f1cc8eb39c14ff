"""unary: one bit for each value; the value's own bit is right half the time, and other bits are rarely wrong.

Privacy: two values differ in two bits, which makes a code at most (1 - q) / q times likelier, and at most
e^epsilon because q is rounded up. Utility: the variance of optimal local hashing. Cost: one code bit and one
draw per value of the domain, regardless of the reading. Citation: Wang, Blocki, Li, Jha, "Locally
Differentially Private Protocols for Frequency Estimation", USENIX Security 2017, section 4.3 (OUE).
"""

try:
    from hushmote.device import ldp_client
except ImportError:  # on a board, the files are in one folder
    import ldp_client

WORD = "unary:Unary"


def take(exp, fields):
    """Set code_count and the two thresholds, which follow from the experiment; do not take any fields."""
    if exp.domain > 24:
        raise ldp_client.ExperimentRefused("unary supports at most 24 values")
    exp.code_count = 1 << exp.domain
    wrong = ldp_client.ONE - ldp_client.truth_threshold(exp.epsilon, 2)
    exp.thresholds = (wrong, ldp_client.ONE // 2)


def randomize(exp, index, rng):
    """Return a code, with one draw per value; timing does not reveal the thresholds used."""
    code = 0
    for value in range(exp.domain):
        code = code << 1 | rng.bernoulli(exp.thresholds[value == index])
    return code


ldp_client.MECHANISMS[WORD] = (take, randomize)
