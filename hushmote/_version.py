"""The one place of the version: `hushmote --version`, `hushmote.__version__` and packages have it from here."""

VERSION = "0.1.0"
