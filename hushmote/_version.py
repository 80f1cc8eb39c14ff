"""The version, in one place; `hushmote --version`, `hushmote.__version__` and the wheel have it from here."""

VERSION = "0.1.0"
