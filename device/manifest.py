# Freezes Hushmote into the firmware: make BOARD=RPI_PICO_W FROZEN_MANIFEST=/path/to/device/manifest.py
# main.py and the settings stay in the file system: they differ from board to board.
# ruff: noqa: F821
# pyright: reportUndefinedVariable=false

# library=False: where MicroPython's sources came without micropython-lib, the modules below and no others.
options.defaults(library=True)
if options.library:
    include("$(PORT_DIR)/boards/manifest.py")
    require("umqtt.simple")
module("ldp_client.py", opt=3)
module("mqtt_reporter.py", opt=3)
