"""Test the number of erases per report, including sending, on littlefs with the boards' geometries."""

import flash_model
import ldp_client
import on_device
from on_device import EXPERIMENTS, KEY, POLICY, READINGS

NEEDS = ("urandom", "fast", "littlefs", "memory")
HEAP = "2m"

_POLICY = dict(POLICY)
_POLICY["sum"] = 1 << 40
_REPORTS = 1500 if on_device.LONG else 300


def wear(medium, limit):
    """Report and send with three experiments in turn; print and check the erases per report."""
    chip = medium.chip()
    folder = medium.mount(chip)
    ldp_client.provision(folder, consent=True)
    client = ldp_client.Client(_POLICY, folder, "board-1", KEY)
    names = []
    for name, text in EXPERIMENTS.items():
        start = text.index('"cap":')
        text = text[:start] + '"cap":10000000000000000' + text[text.index("}", start) :]
        client.enroll(text.encode())
        names.append(name)
    chip.erases = {}
    chip.programmed_bytes = 0
    longest = 0
    for i in range(_REPORTS):
        name = names[i % 3]
        report = client.report(name, READINGS[name])
        longest = max(longest, len(client._ledger._storage.read(0)), len(client._ledger._storage.read(1)))
        client.sent(report)
    medium.umount()
    erases = sum(chip.erases.values())
    worst = max(chip.erases.values())
    print("WEAR", medium.name, _REPORTS, erases, worst, chip.programmed_bytes // _REPORTS, longest, sep="|")
    assert longest <= 128, longest
    assert 0 < erases <= limit * _REPORTS, erases / _REPORTS


def test_esp32_erases_at_most_once_in_ten_reports():
    wear(flash_model.esp32(512), 0.1)


def test_pico_erases_at_most_once_in_five_reports():
    wear(flash_model.pico(212), 0.2)


on_device.run(globals())
