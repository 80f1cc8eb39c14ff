"""SciPy's special functions, by name: loaded when the first is called.

They take longer to load than NumPy and SQLAlchemy together with half of Hushmote; few commands call one.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    from scipy import special

    return getattr(special, name)
