"""A mechanism of one's own, by the word that its experiments have for it: `package.module:Class`.

The module holds a subclass of Mechanism, and imports its board file, which enters the same word in
ldp_client.MECHANISMS. docs/own-mechanism.md builds one from nothing.
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

_MOST_ODDS = 4_000_000  # numbers in a law that odds are taken from: under a second
_ROUNDING = 1e-12  # of floats


class MechanismError(HushmoteError):
    """A word that names no mechanism; the text says what is missing."""


@contextlib.contextmanager
def own_code(word: str, what: str) -> Generator[None]:
    """Turn what a mechanism of one's own raises within into MechanismError; a shipped one's goes through."""
    try:
        yield
    except MechanismError:
        raise
    except (Exception, SystemExit) as e:  # somebody's code: it raises what it likes
        if not is_own(word):
            raise
        raise MechanismError(f"{word}: its {what} raises {describe_error(e)}") from None


def mechanism_class(word: str) -> type[Mechanism]:
    """The class of a `package.module:Class`.

    Raises MechanismError where there is no such module or class, it raises on import, it is no Mechanism or
    lacks what one must have, or its board file has not entered the word.
    """
    try:
        loaded = load_name(word)
        need_pair(word)
    except OwnCodeError as e:
        raise MechanismError(f"mechanism {word}: {e}") from None
    if not (isinstance(loaded, type) and issubclass(loaded, Mechanism)):
        raise MechanismError(
            f"{word} is no mechanism: make it a subclass of hushmote.server.mechanisms.Mechanism"
        )
    missing = sorted(loaded.__abstractmethods__)
    if missing:
        raise MechanismError(f"{word} is no mechanism yet: it lacks {', '.join(missing)}")
    known: Mapping[str, object] = vars(ldp_client)["MECHANISMS"]
    if word not in known:
        raise MechanismError(
            f'{word}: its board file enters no such word: ldp_client.MECHANISMS["{word}"] = (take, randomize)'
        )
    return loaded


def need_private(mechanism: Mechanism) -> None:
    """Raise MechanismError where the law of a mechanism of one's own is above e^ε, or cannot be computed.

    Looked at where domain times classes is at most 4 million; of a shipped one nothing is.
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
        # The law alone is compared; that boards do as it says, check-mechanism proves.
        real = f"{math.log(odds):.9g}" if odds > 0 else str(odds)
    if not private:
        raise MechanismError(
            f"{word}: by its law a report has an ε of {real}, which is above {most:g}: see what hushmote "
            f"check-mechanism {word} says"
        )


def files_of(word: str) -> tuple[Path, ...]:
    """What lies beside ldp_client.py on boards with a mechanism: all shipped files, and its own.

    Raises MechanismError where a class of one's own names no board file.
    """
    shipped = tuple(board_files.shipped_files().values())
    return (*shipped, board_file(word)) if is_own(word) else shipped


def board_file(word: str) -> Path:
    """The board file of a `package.module:Class`; raises MechanismError where it names none that is there."""
    board = mechanism_class(word).board
    if board is None:
        raise MechanismError(f"{word} names no board file: board = Path(my_channel.__file__)")
    if not Path(board).is_file():
        raise MechanismError(f"{word}: its board file {board} is not there")
    return Path(board)
