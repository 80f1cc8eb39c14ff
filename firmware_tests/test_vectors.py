"""Every vector of tests/vectors.json, bit for bit."""

import check_vectors
import on_device

NEEDS = ("urandom",)


def test_every_vector_is_reproduced_bit_for_bit():
    with open("vectors.json") as lines:
        counts, failures = check_vectors.run(lines)
    for line in failures[:20]:
        print(line)
    if failures:
        raise AssertionError(f"{len(failures)} cases")
    for section in check_vectors.CHECKS:
        if not counts.get(section):
            raise AssertionError("no case of " + section)
    print(sum(counts.values()), "vectors")


on_device.run(globals())
