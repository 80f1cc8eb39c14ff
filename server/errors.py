"""The errors whose text is for the user: one line that says what was wrong and what would be right.

    HushmoteError
    ├── UsageError                 options, files and names that do not fit
    │   └── SimulatedFleetError
    ├── NameRefused, OwnCodeError, MasterKeyError            wire: an invalid name, word or key
    ├── StoreError                 store: it cannot be used now
    │   ├── StoreAbsent, StoreLocked, OtherSchema
    │   ├── VersionRefused, BackupRefused
    │   └── NumbersFault
    ├── MergeRefused, StoreMoved, StoreRemoved
    ├── AccountingError            accounting: an impossible budget or theorem
    │   └── BudgetExceeded
    ├── MechanismError, WorkloadError, EstimateError         mechanisms, estimate
    ├── DefinitionError, UnitsError, NoMechanism, NotAnswered                experiments
    ├── PlanError                  planning
    │   └── FileRefused
    ├── PolicyError, StatusRefused
    ├── BrokerUrlError, CertificateError, BrokerRefused, ConsumerRefused     ingest: a broker that refuses
    ├── BrokerUnreachable
    ├── CountingGivenUp            ingest: batches have failed for so long that a restart may help
    ├── EndpointError, AuditLogError, Fault     service: an address or log that fails; a bug in Hushmote
    ├── AuditError, DisclosureError                          fleet/audit, planning/privacy
    ├── ProvisionError             fleet/provisioning: a folder, certificate or board
    │   └── AuthorityError, FolderError, JournalError
    └── FlashError, and others of one module in simulator/, studies/ and cli/

Messages that arrive at the aggregator or the door raise none of these. Decoding them raises ValueErrors that
are caught in the same package: `MalformedReport` says what is wrong in its text, `TopicRefused` in its
`part`; for bodies at the door there are `BodyRefused` and `NoPayload`. The board has its own errors, LDPError
and its subclasses.
"""

import contextlib
import difflib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

TOO_MANY_FILES = "too many open files: raise the limit, by `ulimit -n` or systemd's LimitNOFILE"
NO_STORE = "there is no store at {}: publish an experiment first, or correct the {}"


class HushmoteError(Exception):
    """The base class of all errors except the board's own, LDPError.

    Attributes:
        exit_status: The status with which the command line ends after printing the text as one line.
    """

    exit_status = 1


class UsageError(HushmoteError):
    """Raised for options or arguments that do not go together, or a file that cannot be written."""


class ProvisionError(HushmoteError):
    """Raised when settings, a folder or a certificate cannot be made or used; the text says what is right."""


@contextlib.contextmanager
def refusing(error: type[HushmoteError], action: str, exists: str | None = None) -> Iterator[None]:
    """Turn an OSError in the block into `error` with the text "cannot <action>: <reason>".

    Args:
        error: The class to raise.
        action: A verb phrase, such as "write report.csv".
        exists: The text if the file exists already; None for the system's reason.
    """
    try:
        yield
    except OSError as e:
        message = exists if isinstance(e, FileExistsError) else None
        raise error(message or f"cannot {action}: {os_reason(e)}") from None


def os_reason(error: OSError) -> str:
    """Return why the system call failed, with advice if there is any."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TOO_MANY_FILES
    text = error.strerror or str(error) or type(error).__name__
    similar = _similar_file(error.filename) if isinstance(error, FileNotFoundError) else None
    return f"{text}; did you mean {similar}?" if similar else text


def _similar_file(name: object) -> Path | None:
    """Return the file beside a missing one whose stem is most similar, or None."""
    if not isinstance(name, str | os.PathLike):
        return None
    path, files = Path(name), {}
    with contextlib.suppress(OSError):
        files = {p.stem: p for p in path.parent.iterdir()}
    similar = difflib.get_close_matches(path.stem, files, 1, 0.75)
    return files[similar[0]] if similar else None


def choose_name(kind: str, name: str | None, names: Sequence[str], where: str) -> str:
    """Return the name if it exists, or the only existing one if it is None.

    Args:
        kind: A noun for the message, such as "fleet".
        name: The name to look for; None for the only one.
        names: The existing names.
        where: A phrase for the message, such as "in this store".

    Raises:
        UsageError: If there is no such name, or no name was given and there is not exactly one; the message
            lists the names.
    """
    if name is None:
        if len(names) == 1:
            return names[0]
        raise UsageError(f"name one {kind} {where}; {_list_names(kind, names)}")
    if name not in names:
        raise UsageError(no_such_name(kind, name, names, where))
    return name


def no_such_name(kind: str, name: str, names: Sequence[str], where: str) -> str:
    """Return the message that a name does not exist, and which ones do; arguments as in choose_name()."""
    return f"no {kind} {name} {where}; {_list_names(kind, names)}"


def _list_names(kind: str, names: Sequence[str]) -> str:
    return f"its {kind}s: {', '.join(names)}" if names else f"it has no {kind} yet"
