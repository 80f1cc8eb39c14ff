"""Make a littlefs for the Pico's firmware: image.py IMAGE [FILE...], on MicroPython's unix port.

Creates the image if it is missing, and copies files of the current folder into its root.
"""

# pyright: reportMissingImports=false

import sys

sys.path.append(__file__.rsplit("/", 3)[0])

import flash_model

_BLOCKS = 352
_BLOCK_BYTES = 4096


def main(path, names):
    medium = flash_model.pico(_BLOCKS)
    image = None
    try:
        with open(path, "rb") as f:
            blocks = [f.read(_BLOCK_BYTES) for _ in range(_BLOCKS)]
        image = {n: data for n, data in enumerate(blocks) if data != b"\xff" * _BLOCK_BYTES}
    except OSError:
        pass
    chip = medium.chip(image)
    medium.mount(chip)
    for name in names:
        with open(name, "rb") as f:
            data = f.read()
        with open(flash_model.MOUNT + "/" + name, "wb") as f:
            f.write(data)
    medium.umount()
    with open(path, "wb") as f:
        for n in range(_BLOCKS):
            f.write(chip.blocks.get(n, chip.blank))


main(sys.argv[1], sys.argv[2:])
