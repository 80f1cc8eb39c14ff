"""How a hint names what can be asked for: an option, an argument in Python, a word on the page."""

import contextlib
from collections.abc import Iterator
from typing import Literal

Interface = Literal["python", "command", "page"]

_METHODS = {
    "range": "share(...)",
    "candidates": "candidates(...)",
    "joint": "joint()",
    "trend": "trend()",
    "top": "top(...)",
}
_interfaces: list[Interface] = ["python"]


@contextlib.contextmanager
def speaking(interface: Interface) -> Iterator[None]:
    """Have the hints of this process name what this interface has; the innermost one holds."""
    _interfaces.append(interface)
    try:
        yield
    finally:
        _interfaces.pop()


def option(name: str, value: str = "") -> str:
    """Return how the interface in use names what `hushmote estimate --name value` asks for."""
    match _interfaces[-1]:
        case "command":
            return f"--{name} {value}".rstrip()
        case "page":
            return f"{name} {value}".rstrip()
        case _ if value and name not in _METHODS:
            return f"{name}={value}"
        case _:
            return _METHODS.get(name, name)


def command(text: str, name: str = "", value: str = "") -> str:
    """Return a command in full where a person types commands, elsewhere how its option is named."""
    return text if _interfaces[-1] == "command" else option(name, value)
