"""Load custom mechanisms, named `package.module:Class` in experiments.

The module contains a Mechanism subclass and imports its board file, which registers the same name in
ldp_client.MECHANISMS. docs/own-mechanism.md builds a custom mechanism from scratch.
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

_MAX_ODDS = 4_000_000  # computing the odds of a law of this size takes less than a second
_ROUNDING = 1e-12  # allowance for floating-point rounding


class MechanismError(HushmoteError):
    """Raised if a mechanism name cannot be resolved; the message says what is missing."""


@contextlib.contextmanager
def own_code(word: str, what: str) -> Generator[None]:
    """Convert a custom mechanism's exceptions to MechanismError; let shipped ones' propagate."""
    try:
        yield
    except MechanismError:
        raise
    except (Exception, SystemExit) as e:  # custom code may raise anything
        if not is_own(word):
            raise
        raise MechanismError(f"{word}: its {what} raises {describe_error(e)}") from None


def mechanism_class(word: str) -> type[Mechanism]:
    """Return the class named by a `package.module:Class`.

    Raises:
        MechanismError: If the module or class does not exist, importing it raises, the class is not a
            Mechanism or does not define a required method, or its board file has not registered the name.
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
            f'{word}: its board file must register it: ldp_client.MECHANISMS["{word}"] = (take, randomize)'
        )
    return loaded


def need_private(mechanism: Mechanism) -> None:
    """Raise MechanismError if a custom mechanism's law exceeds e^ε or cannot be computed.

    The law is checked only if domain times classes is at most 4 million. Shipped mechanisms are not checked.
    """
    experiment = mechanism.experiment
    word, epsilon = experiment.mechanism, experiment.epsilon / MICRO
    if not is_own(word) or 2 * mechanism.domain > _MAX_ODDS:
        return
    with own_code(word, "law"):
        if mechanism.domain * mechanism.class_count > _MAX_ODDS:
            return
        odds = mechanism.odds
        is_private = odds <= math.exp(epsilon) * (1 + _ROUNDING)
        # Only the law is checked here; check-mechanism proves that boards follow it.
        actual_epsilon = f"{math.log(odds):.9g}" if odds > 0 else str(odds)
    if not is_private:
        raise MechanismError(
            f"{word}: by its law a report has an ε of {actual_epsilon}, which is above {epsilon:g}; run "
            f"hushmote check-mechanism {word}"
        )


def files_of(word: str) -> tuple[Path, ...]:
    """Return the files that boards need in addition to ldp_client.py: all shipped ones and any custom one.

    Raises:
        MechanismError: If a custom class does not name its board file.
    """
    shipped = tuple(board_files.shipped_files().values())
    return (*shipped, board_file(word)) if is_own(word) else shipped


def board_file(word: str) -> Path:
    """Return the board file for a `package.module:Class`.

    Raises:
        MechanismError: If it is missing.
    """
    board = mechanism_class(word).board
    if board is None:
        raise MechanismError(
            f"{word} must name its board file, for example: board = Path(my_channel.__file__)"
        )
    if not Path(board).is_file():
        raise MechanismError(f"{word}: its board file {board} does not exist")
    return Path(board)
