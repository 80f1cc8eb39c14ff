"""Draws codes with the board's own files, on CPython or MicroPython, and prints one a line; stands alone.

    micropython contract_board.py ldp_sw,ldp_text 300      payloads in jobs.json

Each payload gets a generator of its own, seeded with its number; the inputs are its indices and no reading in
turn.
"""

import json
import sys

sys.path.insert(0, "")  # CPython is run with -I, so that it finds these files and no others of their names

import ldp_client  # pyright: ignore[reportMissingImports]


def main(modules, draws):
    for name in modules.split(","):
        if name:
            __import__(name)
    with open("jobs.json") as f:
        payloads = json.load(f)
    for number, payload in enumerate(payloads):
        exp = ldp_client.Experiment.parse(payload.encode())
        rng = ldp_client.DRBG(number.to_bytes(32, "big"))
        for draw in range(draws):
            index = draw % (exp.domain + 1)
            print(exp.randomize(None if index == exp.domain else index, rng))


main(sys.argv[1], int(sys.argv[2]))
