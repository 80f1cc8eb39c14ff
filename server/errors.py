"""The errors whose text is for the user: one line that says what was wrong and what would be right.

    HushmoteError
    ├── UsageError                 options, files and names that do not fit
    │   └── SimulatedFleetError
    ├── NameRefused, OwnCodeError, MasterKeyError            wire: what a name, a word or a key must be
    ├── StoreError                 store: it cannot be used now
    │   ├── StoreAbsent, StoreLocked, OtherSchema
    │   ├── VersionRefused, BackupRefused
    │   └── NumbersFault
    ├── MergeRefused, StoreMoved, StoreRemoved
    ├── AccountingError            accounting: a budget or theorem that cannot be
    │   └── BudgetExceeded
    ├── MechanismError, WorkloadError, EstimateError         mechanisms, estimate
    ├── DefinitionError, UnitsError, NoMechanism, NotAnswered                experiments
    ├── PlanError                  planning
    │   └── FileRefused
    ├── PolicyError, StatusRefused
    ├── BrokerUrlError, CertificateError, BrokerRefused, ConsumerRefused     ingest: a broker that says no
    ├── BrokerUnreachable
    ├── CountingGivenUp            ingest: batches have failed for so long that a restart may help
    ├── EndpointError, AuditLogError, Fault     service: an address or log that fails; a bug in Hushmote
    ├── AuditError, DisclosureError                          privacy
    ├── ProvisionError             provisioning: a folder, certificate or board
    │   └── AuthorityError, FolderError, JournalError
    └── FlashError, and others of one module in simulator/, studies/ and cli/

What arrives at the aggregator or the door raises none of these. Its decoding raises ValueErrors, which never
leave the room and say what is wrong: `MalformedReport` in its text, `TopicRefused` by its `part`, and of the
door's bodies `BodyRefused` and `NoPayload`. The board's own are LDPError and what derives from it.
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
    """The base of all errors but the board's own, LDPError.

    exit_status: with which the command line ends, after it printed the text as one line.
    """

    exit_status = 1


class UsageError(HushmoteError):
    """Options or arguments that do not go together, or a file that cannot be written."""


class ProvisionError(HushmoteError):
    """Settings, a folder or a certificate that cannot be made or used; the text says what is right."""


@contextlib.contextmanager
def refusing(error: type[HushmoteError], action: str, exists: str | None = None) -> Iterator[None]:
    """Raise `error` with "cannot <action>: <reason>" for an OSError in the block.

    exists: the text where a file is there already, None for that of the system.
    """
    try:
        yield
    except OSError as e:
        there = exists if isinstance(e, FileExistsError) else None
        raise error(there or f"cannot {action}: {os_reason(e)}") from None


def os_reason(error: OSError) -> str:
    """Return why the system refused something, with what would be right where that is known."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TOO_MANY_FILES
    text = error.strerror or str(error) or type(error).__name__
    similar = _similar_file(error.filename) if isinstance(error, FileNotFoundError) else None
    return f"{text}; did you mean {similar}?" if similar else text


def _similar_file(name: object) -> Path | None:
    """Return the file beside a missing one whose name without its ending is most like its own."""
    if not isinstance(name, str | os.PathLike):
        return None
    path, there = Path(name), {}
    with contextlib.suppress(OSError):
        there = {p.stem: p for p in path.parent.iterdir()}
    similar = difflib.get_close_matches(path.stem, there, 1, 0.75)
    return there[similar[0]] if similar else None


def the_name(what: str, name: str | None, there: Sequence[str], where: str) -> str:
    """The name, or where it is None the only one there is; UsageError that lists them otherwise."""
    if name is None:
        if len(there) == 1:
            return there[0]
        raise UsageError(f"name one {what} {where}; {_listed(what, there)}")
    if name not in there:
        raise UsageError(absent(what, name, there, where))
    return name


def absent(what: str, name: str, there: Sequence[str], where: str) -> str:
    """Return that there is nothing of this name, and the names that there are."""
    return f"no {what} {name} {where}; {_listed(what, there)}"


def _listed(what: str, there: Sequence[str]) -> str:
    return f"its {what}s: {', '.join(there)}" if there else f"it has no {what} yet"
