"""Name options in hints: as a command's option, a Python argument, or a label on the page."""

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
_uses_command: ContextVar[bool] = ContextVar("uses_command", default=False)


@contextlib.contextmanager
def use_interface(interface: Interface) -> Iterator[None]:
    """Use this interface's names in all hints of this process; the innermost call takes precedence."""
    _interfaces.append(interface)
    try:
        yield
    finally:
        _interfaces.pop()


@contextlib.contextmanager
def use_command_hints() -> Iterator[None]:
    """Use the command's options in hints of this thread or task, for files that users edit elsewhere."""
    token = _uses_command.set(True)
    try:
        yield
    finally:
        _uses_command.reset(token)


def _interface() -> Interface:
    return "command" if _uses_command.get() else _interfaces[-1]


def option(name: str, value: str = "") -> str:
    """Return the current interface's name for `hushmote estimate --name value`."""
    match _interface():
        case "command":
            return f"--{name} {value}".rstrip()
        case "page":
            return f"{name} {value}".rstrip()
        case _ if value and name not in _METHODS:
            return f"{name}={value}"
        case _:
            return _METHODS.get(name, name)


def command(text: str, name: str = "", value: str = "", *, page: str = "") -> str:
    """Return the full command on the command line, and elsewhere the name of its option.

    Args:
        text: The command.
        name: The option.
        value: The option's value.
        page: The words for it on the page, or "" for the option's name.
    """
    if page and _interface() == "page":
        return page
    return text if _interface() == "command" else option(name, value)
