"""Power cuts at every operation of the flash: littlefs with a Pico's geometry."""

import flash_model
import littlefs_cuts
import on_device
from ldp_client import Client

# Hundreds of lifetimes, so run only code compiled for boards, on the runtime that is most like a board.
NEEDS = ("urandom", "fast", "littlefs", "memory", "compiled", "float32")
HEAP = "512k"

on_device.run(littlefs_cuts.cut_tests(flash_model.pico(8), Client, 30))
