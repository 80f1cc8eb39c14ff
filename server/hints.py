"""How a hint names what can be asked for: an option, an argument in Python, a word on the page."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
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
_of_file: ContextVar[bool] = ContextVar("of_file", default=False)


@contextlib.contextmanager
def speaking(interface: Interface) -> Iterator[None]:
    """Have the hints of this process name what this interface has; the innermost one holds."""
    _interfaces.append(interface)
    try:
        yield
    finally:
        _interfaces.pop()


@contextlib.contextmanager
def writing_a_file() -> Iterator[None]:
    """Have the hints of this thread or task name the command's options: a file is read anywhere."""
    token = _of_file.set(True)
    try:
        yield
    finally:
        _of_file.reset(token)


def _interface() -> Interface:
    return "command" if _of_file.get() else _interfaces[-1]


def option(name: str, value: str = "") -> str:
    """Return how the interface in use names what `hushmote estimate --name value` asks for."""
    match _interface():
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
    return text if _interface() == "command" else option(name, value)
