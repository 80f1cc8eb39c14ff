"""unary: one bit for each value, the value's own bit half the time right, every other one rarely wrong.

Privacy: two values differ in two bits, which together are (1 - q) / q times likelier: at most e^epsilon,
since q is rounded up. Utility: the variance of the best local hashing. Cost: a code of as many bits as there
are values, and as many draws, whatever the value. Citation: Wang, Blocki, Li, Jha, "Locally Differentially
Private Protocols for Frequency Estimation", USENIX Security 2017, section 4.3 (OUE).
"""

try:
    from hushmote.device import ldp_client
except ImportError:  # on a board the files lie side by side
    import ldp_client

WORD = "unary:Unary"


def take(exp, fields):
    """Set code_count and the two thresholds, which follow from the experiment; no fields are added."""
    if exp.domain > 24:
        raise ldp_client.ExperimentRefused("unary is for at most 24 values")
    exp.code_count = 1 << exp.domain
    wrong = ldp_client.ONE - ldp_client.truth_threshold(exp.epsilon, 2)
    exp.thresholds = (wrong, ldp_client.ONE // 2)


def randomize(exp, index, rng):
    """Return a code, by as many draws as there are values; timing does not reveal the thresholds used."""
    code = 0
    for value in range(exp.domain):
        code = code << 1 | rng.bernoulli(exp.thresholds[value == index])
    return code


ldp_client.MECHANISMS[WORD] = (take, randomize)
