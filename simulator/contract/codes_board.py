"""Draw codes and print them, with ldp_client.py in the same folder, on CPython and on MicroPython.

It does not import anything else, and runtimes.py appends a line that calls codes(). It prints `CODE code` for
each code, then END.
"""

import ldp_client  # pyright: ignore[reportMissingImports]


def codes(payloads, draws):
    """Draw for each index and no reading in turn, with a generator seeded by the payload's index."""
    for number, payload in enumerate(payloads):
        exp = ldp_client.Experiment.parse(payload)
        rng = ldp_client.DRBG(number.to_bytes(32, "big"))
        for draw in range(draws):
            index = draw % (exp.domain + 1)
            print("CODE", exp.randomize(None if index == exp.domain else index, rng))
    print("END")
