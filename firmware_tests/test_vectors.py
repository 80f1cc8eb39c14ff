"""Test every vector in tests/vectors.json and its companions bit for bit."""

import check_vectors
import on_device

NEEDS = ("urandom",)


def test_reproduces_every_vector_bit_for_bit():
    counts, failures = {}, []
    for name in ("", "_further", "_groups", "_text", "_scale"):
        with open(f"vectors{name}.json") as lines:
            counts[name], more = check_vectors.run(lines)
        failures += more
    for line in failures[:20]:
        print(line)
    if failures:
        raise AssertionError(f"{len(failures)} cases")
    for section in check_vectors.CHECKS:
        if not [name for name in counts if counts[name].get(section)]:
            raise AssertionError("no case of " + section)
    if not counts["_further"]["codes"]:
        raise AssertionError("no codes of further mechanisms")
    print(sum([sum(x.values()) for x in counts.values()]), "vectors")


on_device.run(globals())
