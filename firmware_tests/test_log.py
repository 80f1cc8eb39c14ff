"""Test ldp_log against every case in tests/vectors_log.json."""

import check_proofs
import on_device

NEEDS = ("fast",)  # a chip takes more than three seconds for each


def test_verdicts_match_every_vector():
    with open("vectors_log.json") as lines:
        valid, refused, failures = check_proofs.run(lines)
    for line in failures[:20]:
        print(line)
    if failures or valid < 15 or refused < 15:
        raise AssertionError(f"{valid} valid, {refused} refused, {len(failures)} failed")


on_device.run(globals())
