"""Parse an experiment's JSON, whose mechanism may be custom code, `package.module:Class`, loaded on demand.

The board's code supports the mechanisms that optional files have added to ldp_client.MECHANISMS. The shipped
files do so when hushmote.device is imported; a custom file does so when its module is imported. Apart from
this, the module does not depend on mechanisms, because the board's code parses the JSON.
"""

import importlib
import json
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Literal, cast

from ...device import ldp_client
from ...device.ldp_client import Experiment, ExperimentRefused
from ..errors import HushmoteError

_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*):([A-Za-z_][A-Za-z0-9_]*)")

FOLDERS: list[str] = []
"""Folders to search for modules after all others; the command line adds the current folder.

They are added to sys.path when the first custom name is loaded, so users without custom code are unaffected.
"""


_TABLES: tuple[dict[str, Any], ...] = (vars(ldp_client)["MECHANISMS"], vars(ldp_client)["TYPES"])
_SHIPPED_TABLES: tuple[Mapping[str, Any], ...] = tuple(MappingProxyType(dict(table)) for table in _TABLES)
"""The entries for the names that Hushmote ships, which custom code cannot change."""

_REPLACEMENT_ERRORS: dict[str, str] = {}
"""Errors for modules that replaced a shipped name; the modules stay imported, so they do not run again."""


class OwnCodeError(HushmoteError):
    """Raised when a `package.module:name` cannot be loaded; the message says why and how to fix it."""


class CustomCodeRefused(ExperimentRefused):
    """Raised for an experiment whose custom mechanism fails or cannot be loaded here."""


def value_count(reading: Any) -> int:
    """Return the number of values in an experiment or one of its parts, excluding "no reading".

    A pair's values are all cells in its joint table, including those in which a part has no reading.

    Args:
        reading: An Experiment or one of its parts.
    """
    return reading.domain if reading.missing is None or reading.type == "pair" else reading.missing


def log_edges(reading: Any) -> tuple[int, ...]:
    """Return the edges of a number's logarithmic or merged bins in milli-units; () if they are equally wide.

    Args:
        reading: An Experiment or one of its parts.
    """
    return tuple(getattr(reading, "edges", ()))  # set by device/ldp_scale.py, and by a view of a version


def scale_of(reading: Any) -> Literal["log"] | None:
    """Return the scale of a number's bins, None if they are equally wide, or are such bins merged.

    Args:
        reading: An Experiment or one of its parts.
    """
    return "log" if log_edges(reading) and getattr(reading, "is_log", True) else None


OTHER = "other"
"""The open group's value for boards whose value the experiment does not list."""


def group_values(experiment: Experiment) -> tuple[str, ...]:
    """Return the values of the experiment's open group by index, "other" last; () without one."""
    return (*experiment.groups, OTHER) if experiment.group else ()


def every_by_index(experiment: Experiment) -> list[int]:
    """Return n for each value of the open group, where 1 in n calls makes a report; one n without a group."""
    return [experiment.every_of(index) for index in range(len(experiment.groups) + 1)]


def every_by_value(experiment: Experiment) -> dict[str, int]:
    """Return every_by_index() by the group's value, {} without a group."""
    return dict(zip(group_values(experiment), every_by_index(experiment), strict=False))


def reports_in_budget(experiment: Experiment) -> int | None:
    """Return how many reports the experiment's budget allows a device to send, or None without a limit."""
    return None if experiment.rule == "unlimited" else experiment.cap // experiment.cost()


def report_size(experiment: Experiment, *, authenticated: bool) -> int:
    """Return a report's size in bytes, with its tag if it is authenticated."""
    return 9 + bool(experiment.group) + experiment.code_bytes + 8 * authenticated


def is_own(word: str) -> bool:
    """Return whether a name has the form package.module:name; other names are never imported."""
    return _WORD.fullmatch(word) is not None


def is_own_type(word: object) -> bool:
    """Return whether a reading type was added by a custom board file."""
    return word in _TABLES[1] and word not in _SHIPPED_TABLES[1]


def load_module(word: str) -> ModuleType:
    """Import the module in a `package.module:name`.

    Raises:
        OwnCodeError: If the module cannot be imported or replaces a name that Hushmote ships.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        raise OwnCodeError(f"{word!r:.100} is not of the form package.module:name")
    name = match[1]
    for folder in FOLDERS:
        if folder not in sys.path:
            sys.path.append(folder)
    if name in _REPLACEMENT_ERRORS:
        raise OwnCodeError(_REPLACEMENT_ERRORS[name])
    try:
        return _import(name)
    finally:
        words = _restore()
        if words:
            text = f"{name} replaces {words}, which Hushmote ships; register a different name"
            _REPLACEMENT_ERRORS[name] = text
            raise OwnCodeError(_REPLACEMENT_ERRORS[name]) from None


def _restore() -> str:
    """Restore the shipped entries, and return the names of those that had changed for a message."""
    words: dict[str, None] = {}
    for table, shipped_table in zip(_TABLES, _SHIPPED_TABLES, strict=True):
        for word, entry in shipped_table.items():
            if table.get(word) is not entry:
                table[word] = entry
                words[word] = None
    return ", ".join(words)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is not None and (name == e.name or name.startswith(e.name + ".")):
            text = f"cannot find module {e.name}; run hushmote in the folder that contains it, or install it"
            raise OwnCodeError(text) from None
        raise OwnCodeError(f"{name} cannot be imported: {_one_line(e)}") from None
    except (Exception, SystemExit) as e:  # custom code may raise anything
        raise OwnCodeError(f"{name} cannot be imported: {describe_error(e)}") from None


def load_name(word: str) -> object:
    """Return the object that a `package.module:name` refers to.

    Raises:
        OwnCodeError: If the module cannot be imported or does not define the name.
    """
    module = load_module(word)
    attribute = word.partition(":")[2]
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise OwnCodeError(f"{module.__name__} has no {attribute}") from None


def parse_experiment(payload: bytes | bytearray | memoryview) -> Experiment:
    """Parse an experiment's JSON bytes, after loading its mechanism if that is custom code.

    Use this only for bytes from the analyst or the store. For bytes from a network, use Experiment.parse,
    which never imports code.

    Raises:
        ExperimentRefused: If the bytes are not a valid experiment; the message is one line.
        CustomCodeRefused: If the mechanism's custom code is missing or fails.
    """
    word = _own_word(bytes(payload))
    if word is None:
        return Experiment.parse(payload)
    try:
        load_module(word)
        need_pair(word)
        return _parse_own(payload)
    except OwnCodeError as e:
        raise CustomCodeRefused(f"mechanism {word}: {e}") from None


def need_pair(word: str) -> None:
    """Check that a board file has registered two functions under a name.

    Raises:
        OwnCodeError: If the board file has registered something else.
    """
    pair = _TABLES[0].get(word)
    is_valid = isinstance(pair, tuple) and [*map(callable, cast(tuple[object, ...], pair))] == [True, True]
    if pair is not None and not is_valid:
        raise OwnCodeError(
            f'its board file must register two functions: MECHANISMS["{word}"] = (take, randomize)'
        )


def _parse_own(payload: bytes | bytearray | memoryview) -> Experiment:
    try:
        experiment = Experiment.parse(payload)
    except ExperimentRefused:
        raise
    except (Exception, SystemExit) as e:  # custom code may raise anything
        raise OwnCodeError(f"its take raises {describe_error(e)}") from None
    if type(experiment.code_count) is not int:
        raise OwnCodeError(
            f"its take sets code_count to {experiment.code_count!r:.40}, which is not an integer"
        )
    fields: dict[str, Any] = json.loads(bytes(payload))
    fields = {"every": 1, "group": "", "groups": [], "cap": 0} | fields | fields["budget"]
    parsed = vars(experiment) | {"group": experiment.group, "groups": list(experiment.groups)}
    if isinstance(fields["every"], list):
        parsed["every"] = every_by_index(experiment)
    for name in (
        *("name", "type", "epsilon", "mechanism", "every", "group", "groups", "rule", "cap", "window"),
    ):
        if parsed[name] != fields[name]:
            raise OwnCodeError(f"its take changes {name} from {fields[name]} to {parsed[name]!r:.40}")
    return experiment


def _own_word(payload: bytes) -> str | None:
    if len(payload) > 1024 or b":" not in payload:
        return None
    try:
        fields: Any = json.loads(payload)
        word = fields["mechanism"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return word if isinstance(word, str) and is_own(word) else None


def describe_error(error: BaseException) -> str:
    """Return the type and text of an exception from custom code in one line."""
    return f"{type(error).__name__}: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or "no reason given")[:200]
