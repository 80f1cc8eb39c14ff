"""Test every vector in tests/vectors.json and its companions bit for bit."""

import check_vectors
import on_device

NEEDS = ("urandom",)


def test_reproduces_every_vector_bit_for_bit():
    with open("vectors.json") as lines:
        counts, failures = check_vectors.run(lines)
    with open("vectors_further.json") as lines:
        further, more = check_vectors.run(lines)
    with open("vectors_groups.json") as lines:
        groups, failures_in_groups = check_vectors.run(lines)
    with open("vectors_scale.json") as lines:
        scales, failures_in_scales = check_vectors.run(lines)
    failures += more + failures_in_groups + failures_in_scales
    for line in failures[:20]:
        print(line)
    if failures:
        raise AssertionError(f"{len(failures)} cases")
    for section in check_vectors.CHECKS:
        if not (counts.get(section) or further.get(section) or groups.get(section) or scales.get(section)):
            raise AssertionError("no case of " + section)
    if not further["codes"]:
        raise AssertionError("no codes of further mechanisms")
    print(sum([sum(x.values()) for x in (counts, further, groups, scales)]), "vectors")


on_device.run(globals())
