"""Freeze Hushmote into the firmware: make BOARD=RPI_PICO_W FROZEN_MANIFEST=/path/to/device/manifest.py.

main.py and the settings remain in the file system because they differ from board to board.
"""

import os

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false

# library=False is for MicroPython sources without micropython-lib; it freezes only the modules below.
options.defaults(library=True)
if options.library:
    include("$(PORT_DIR)/boards/manifest.py")
    require("umqtt.simple")
for name in sorted(os.listdir(".")):  # the client and the modules that add further mechanisms
    if name.startswith("ldp_") and name.endswith(".py"):
        module(name, opt=3)
module("consent.py", opt=3)
module("export.py", opt=3)
module("preview.py", opt=3)
module("gap.py", opt=3)
module("health.py", opt=3)
module("kept_experiments.py", opt=3)
module("reporter_base.py", opt=3)
module("mqtt_reporter.py", opt=3)
module("settings.py", opt=3)
module("station.py", opt=3)
module("memory.py", opt=3)
module("reporter_status.py", opt=3)
module("async_reporter.py", opt=3)
