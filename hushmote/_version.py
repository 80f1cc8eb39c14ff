"""The single source of the version for `hushmote --version`, `hushmote.__version__` and the wheel."""

VERSION = "0.2.0"
