"""Errors with user-facing messages: one line that says what was wrong and what was expected.

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
    ├── MechanismError, WorkloadError                        mechanisms
    ├── EstimateError              estimate: counts that do not allow an estimate
    │   └── TooFewReports, DoesNotFit     more reports would help, or would not
    ├── DefinitionError, UnitsError, NoMechanism, UnanswerableError                experiments
    ├── ReleaseError               release: versions that cannot be compared, or a plan that does not fit
    │   └── PlanChanged
    ├── PlanError                  planning
    │   └── FileRefused
    ├── PolicyError, StatusRefused
    ├── BrokerUrlError, CertificateError, BrokerRefused, ConsumerRefused     ingest: a broker that refuses
    ├── BrokerUnreachable
    ├── CountingGivenUp            ingest: batches have failed for so long that a restart may help
    ├── EndpointError, AuditLogError, Fault     service: a failing address or log; a bug in Hushmote
    ├── AuditError, DisclosureError                          fleet/audit, planning/privacy
    ├── ProvisionError             fleet/provisioning: a folder, certificate or board
    │   └── AuthorityError, FolderError, JournalError
    ├── RuleError, StateError      fleet/witness
    ├── NotSigned                  fleet/witness: it does not sign, and why
    │   └── OtherSize
    └── FlashError, and others of one module in simulator/, studies/ and cli/

Messages that arrive at the aggregator or the door raise none of these. Decoding them raises ValueErrors that
are caught in the same package: `MalformedReport` describes the problem in its text and `TopicRefused` in its
`part`; `BodyRefused` and `NoPayload` are for request bodies at the door. The board has its own errors,
LDPError and its subclasses.
"""

import contextlib
import difflib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

TOO_MANY_FILES = "too many open files; raise the limit with `ulimit -n` or systemd's LimitNOFILE"
NO_STORE = "there is no store at {}: publish an experiment first, or correct the {}"


class HushmoteError(Exception):
    """The base class of all errors except the board's own, LDPError.

    Attributes:
        exit_status: The exit status of the command line after it prints the message as one line.
    """

    exit_status = 1


class UsageError(HushmoteError):
    """Raised if options or arguments conflict, or a file cannot be written."""


class ProvisionError(HushmoteError):
    """Raised when settings, a folder or a certificate cannot be created or used."""


@contextlib.contextmanager
def refusing(error: type[HushmoteError], action: str, exists: str | None = None) -> Iterator[None]:
    """Convert an OSError in the block to `error` with the message "cannot <action>: <reason>".

    Args:
        error: The class to raise.
        action: A verb phrase, such as "write report.csv".
        exists: The message if the file already exists; None for the system's reason.
    """
    try:
        yield
    except OSError as e:
        message = exists if isinstance(e, FileExistsError) else None
        raise error(message or f"cannot {action}: {os_reason(e)}") from None


def os_reason(error: OSError) -> str:
    """Return why the system call failed, with advice if available."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TOO_MANY_FILES
    text = error.strerror or str(error) or type(error).__name__
    similar = _similar_file(error.filename) if isinstance(error, FileNotFoundError) else None
    return f"{text}; did you mean {similar}?" if similar else text


def request_reason(error: Exception) -> str:
    """Return why an HTTP request failed; urllib wraps the system's error."""
    why = getattr(error, "reason", error)
    return os_reason(why) if isinstance(why, OSError) else str(why)


def _similar_file(name: object) -> Path | None:
    """Return the file in the same folder whose stem is most similar to the missing file's, or None."""
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
        UsageError: If there is no such name, or no name was given and there are several or none; the message
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
    """Return the message that a name does not exist, listing those that do; arguments as in choose_name()."""
    return f"no {kind} {name} {where}; {_list_names(kind, names)}"


def _list_names(kind: str, names: Sequence[str]) -> str:
    return f"its {kind}s: {', '.join(names)}" if names else f"it has no {kind} yet"
