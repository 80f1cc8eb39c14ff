"""Mechanisms of your own, named `package.module:Class` in experiments.

The module holds a subclass of Mechanism, and imports its board file, which registers the same name in
ldp_client.MECHANISMS. docs/own-mechanism.md builds one from scratch.
"""

import contextlib
import math
from collections.abc import Generator, Mapping
from pathlib import Path

from ...device import ldp_client
from ..epsilon import MICRO
from ..errors import HushmoteError
from ..wire import board_files
from ..wire.experiments import OwnCodeError, describe_error, is_own, load_name, need_pair
from .mechanism import Mechanism

_MOST_ODDS = 4_000_000  # largest law whose odds are computed, in less than a second
_ROUNDING = 1e-12  # allowance for the rounding of floats


class MechanismError(HushmoteError):
    """Raised if a name does not refer to a mechanism; the message says what is missing."""


@contextlib.contextmanager
def own_code(word: str, what: str) -> Generator[None]:
    """Convert exceptions of a mechanism of your own to MechanismError; let those of shipped ones pass."""
    try:
        yield
    except MechanismError:
        raise
    except (Exception, SystemExit) as e:  # code of others may raise anything
        if not is_own(word):
            raise
        raise MechanismError(f"{word}: its {what} raises {describe_error(e)}") from None


def mechanism_class(word: str) -> type[Mechanism]:
    """Return the class of a `package.module:Class`.

    Raises:
        MechanismError: If there is no such module or class, importing it raises, it is not a Mechanism or
            lacks a required method, or its board file has not registered the name.
    """
    try:
        loaded = load_name(word)
        need_pair(word)
    except OwnCodeError as e:
        raise MechanismError(f"mechanism {word}: {e}") from None
    if not (isinstance(loaded, type) and issubclass(loaded, Mechanism)):
        raise MechanismError(
            f"{word} is not a mechanism: make it a subclass of hushmote.server.mechanisms.Mechanism"
        )
    missing = sorted(loaded.__abstractmethods__)
    if missing:
        raise MechanismError(f"{word} is not a complete mechanism: it lacks {', '.join(missing)}")
    registered: Mapping[str, object] = vars(ldp_client)["MECHANISMS"]
    if word not in registered:
        raise MechanismError(
            f'{word}: its board file enters no such word: ldp_client.MECHANISMS["{word}"] = (take, randomize)'
        )
    return loaded


def need_private(mechanism: Mechanism) -> None:
    """Raise MechanismError if the law of a mechanism of your own exceeds e^ε, or cannot be computed.

    It is checked only if domain times classes is at most 4 million; shipped mechanisms are not checked.
    """
    experiment = mechanism.experiment
    word, most = experiment.mechanism, experiment.epsilon / MICRO
    if not is_own(word) or 2 * mechanism.domain > _MOST_ODDS:
        return
    with own_code(word, "law"):
        if mechanism.domain * mechanism.class_count > _MOST_ODDS:
            return
        odds = mechanism.odds
        private = odds <= math.exp(most) * (1 + _ROUNDING)
        # Only the law is checked here; check-mechanism proves that boards follow it.
        real = f"{math.log(odds):.9g}" if odds > 0 else str(odds)
    if not private:
        raise MechanismError(
            f"{word}: by its law a report has an ε of {real}, which is above {most:g}: see what hushmote "
            f"check-mechanism {word} says"
        )


def files_of(word: str) -> tuple[Path, ...]:
    """Return the files that boards need beside ldp_client.py for a mechanism: all shipped ones, and its own.

    Raises:
        MechanismError: If a class of your own does not name a board file.
    """
    shipped = tuple(board_files.shipped_files().values())
    return (*shipped, board_file(word)) if is_own(word) else shipped


def board_file(word: str) -> Path:
    """Return the board file of a `package.module:Class`.

    Raises:
        MechanismError: If it is missing.
    """
    board = mechanism_class(word).board
    if board is None:
        raise MechanismError(f"{word} names no board file: board = Path(my_channel.__file__)")
    if not Path(board).is_file():
        raise MechanismError(f"{word}: its board file {board} is not there")
    return Path(board)
