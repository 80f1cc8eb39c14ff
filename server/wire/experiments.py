"""An experiment's JSON, whose mechanism may be your own: `package.module:Class` is loaded first.

The board's code knows the mechanisms that files beside it have entered in ldp_client.MECHANISMS. The shipped
ones do so when hushmote.device is imported; your own does when the module of its word is. This module does
not know what a mechanism is: it imports the module that a word names, and the board's code reads the JSON.
"""

import importlib
import json
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, cast

from ...device import ldp_client
from ...device.ldp_client import Experiment, ExperimentRefused
from ..errors import HushmoteError

_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*):([A-Za-z_][A-Za-z0-9_]*)")

FOLDERS: list[str] = []
"""Where modules are looked for after everywhere else: the command line adds the current folder.

They join sys.path with the first word that is loaded, so that nobody without code of their own has such a
folder in it.
"""


_TABLES: tuple[dict[str, Any], ...] = (vars(ldp_client)["MECHANISMS"], vars(ldp_client)["TYPES"])
_SHIPPED: tuple[Mapping[str, Any], ...] = tuple(MappingProxyType(dict(table)) for table in _TABLES)
"""The meaning of the words that Hushmote ships: your own code cannot change it."""

_REPLACES: dict[str, str] = {}
"""Why a module that replaced one of them is refused: it stays imported, and a second try enters nothing."""


class OwnCodeError(HushmoteError):
    """A `package.module:name` cannot be loaded; the text says why and what would be right."""


class OwnCodeRefused(ExperimentRefused):
    """An experiment cannot be read here, because its mechanism's own code fails or cannot be loaded."""


def value_count(reading: Any) -> int:
    """Return the number of values of an experiment's reading or a part's: its domain without no reading.

    A pair's values are all cells of its joint table, which have no reading in some parts.
    """
    return reading.domain if reading.missing is None or reading.type == "pair" else reading.missing


def reports_in_budget(experiment: Experiment) -> int | None:
    """Return the reports that a device's own budget for the experiment holds; None for any number."""
    return None if experiment.rule == "unlimited" else experiment.cap // experiment.cost()


def is_own(word: str) -> bool:
    """Return whether a word has the form package.module:name, the only one that is ever imported."""
    return _WORD.fullmatch(word) is not None


def is_own_type(word: object) -> bool:
    """Return whether a type of readings was entered by your own board file."""
    return word in _TABLES[1] and word not in _SHIPPED[1]


def load_module(word: str) -> ModuleType:
    """Import the module of a `package.module:name`. Raises OwnCodeError."""
    match = _WORD.fullmatch(word)
    if match is None:
        raise OwnCodeError(f"{word!r:.100} is not of the form package.module:name")
    name = match[1]
    for folder in FOLDERS:
        if folder not in sys.path:
            sys.path.append(folder)
    if name in _REPLACES:
        raise OwnCodeError(_REPLACES[name])
    try:
        return _imported(name)
    finally:
        replaced = _restore()
        if replaced:
            _REPLACES[name] = f"{name} replaces {replaced}, which Hushmote ships: enter a word of your own"
            raise OwnCodeError(_REPLACES[name]) from None


def _restore() -> str:
    """Give the shipped words their meaning again; returns those that had lost it, for a message."""
    lost: dict[str, None] = {}
    for table, shipped in zip(_TABLES, _SHIPPED, strict=True):
        for word, entry in shipped.items():
            if table.get(word) is not entry:
                table[word] = entry
                lost[word] = None
    return ", ".join(lost)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is not None and (name == e.name or name.startswith(e.name + ".")):
            text = f"there is no module {e.name}: run hushmote in the folder that holds it, or install it"
            raise OwnCodeError(text) from None
        raise OwnCodeError(f"{name} cannot be imported: {_one_line(e)}") from None
    except (Exception, SystemExit) as e:  # foreign code: it may raise anything
        raise OwnCodeError(f"{name} cannot be imported: {raised(e)}") from None


def load_name(word: str) -> object:
    """Return the object of a `package.module:name`. Raises OwnCodeError."""
    module = load_module(word)
    attribute = word.partition(":")[2]
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise OwnCodeError(f"{module.__name__} has no {attribute}") from None


def parse_experiment(payload: bytes | bytearray | memoryview) -> Experiment:
    """Return the Experiment in the bytes of its JSON, after loading its mechanism if that is your own.

    Only for the analyst's or the store's bytes; Experiment.parse reads those from a network, and
    imports nothing. Raises ExperimentRefused with one line, OwnCodeRefused if the code is missing
    or fails.
    """
    word = _own_word(bytes(payload))
    if word is None:
        return Experiment.parse(payload)
    try:
        load_module(word)
        need_pair(word)
        return _taken(payload)
    except OwnCodeError as e:
        raise OwnCodeRefused(f"mechanism {word}: {e}") from None


def need_pair(word: str) -> None:
    """Raise OwnCodeError if a board file has entered something other than two functions under a word."""
    pair = _TABLES[0].get(word)
    whole = isinstance(pair, tuple) and [*map(callable, cast(tuple[object, ...], pair))] == [True, True]
    if pair is not None and not whole:
        raise OwnCodeError(
            f'its board file must enter two functions: MECHANISMS["{word}"] = (take, randomize)'
        )


def _taken(payload: bytes | bytearray | memoryview) -> Experiment:
    try:
        experiment = Experiment.parse(payload)
    except ExperimentRefused:
        raise
    except (Exception, SystemExit) as e:  # foreign code: it may raise anything
        raise OwnCodeError(f"its take raises {raised(e)}") from None
    if type(experiment.code_count) is not int:
        raise OwnCodeError(f"its take sets code_count to {experiment.code_count!r:.40}, which is no integer")
    asked: dict[str, Any] = json.loads(bytes(payload))
    asked = {"every": 1, "cap": 0} | asked | asked["budget"]
    for name in ("name", "type", "epsilon", "mechanism", "every", "rule", "cap", "window"):
        if vars(experiment)[name] != asked[name]:
            raise OwnCodeError(
                f"its take changes {name} from {asked[name]} to {vars(experiment)[name]!r:.40}"
            )
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


def raised(error: BaseException) -> str:
    """Return what foreign code raised, in a line."""
    return f"{type(error).__name__}: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or "no reason given")[:200]
