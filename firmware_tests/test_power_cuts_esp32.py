"""Power cuts at every operation of the flash: littlefs with an ESP32's geometry."""

import flash_model
import littlefs_cuts
import on_device
from ldp_client import Client

# Hundreds of lifetimes, so run only code compiled for boards.
NEEDS = ("urandom", "fast", "littlefs", "memory", "compiled")
HEAP = "512k"

on_device.run(littlefs_cuts.cut_tests(flash_model.esp32(8), Client, 51))
