"""Say which versions of an experiment an answer leaves out, and how they differ from those that answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...device.ldp_client import Experiment
from ..epsilon import nats
from ..hints import option
from ..mechanisms.common_values import same_values
from ..plain_text import visible
from ..wire.experiments import scale_of, value_count
from .answers import capitalize, reading
from .numbers import ENGLISH, Numbers, counted
from .scope import ALL_VERSIONS

_MIN_DIGITS = 4
_MAX_NAMED = 3  # versions, and labels


def short_digest(experiment: Experiment, others: Sequence[Experiment]) -> str:
    """Return the first digits of a version's digest, as many as tell it apart from the others'."""
    digest, digests = experiment.digest.hex(), {e.digest.hex() for e in others} - {experiment.digest.hex()}
    lengths = range(_MIN_DIGITS, len(digest))
    return next((digest[:n] for n in lengths if not any(d.startswith(digest[:n]) for d in digests)), digest)


def difference(version: Experiment, other: Experiment, unit: str = "", write: Numbers = ENGLISH) -> str:
    """Return how a version differs from the one that answers, such as "without 'dry'" or "from 0 to 9 °C"."""
    if version.type != other.type:
        return f"of type {version.type}"
    if same_values(version, other):
        is_same = version.mechanism == other.mechanism and version.epsilon != other.epsilon
        return f"with ε = {nats(version.epsilon)}" if is_same else f"with mechanism {version.mechanism}"
    if version.type == "choice":
        without = [name for name in other.labels if name not in version.labels]
        extra = [name for name in version.labels if name not in other.labels]
        if without and extra:
            return f"with {_list_labels(extra)} instead of {_list_labels(without)}"
        return f"without {_list_labels(without)}" if without else f"with {_list_labels(extra)}"
    if version.type != "number":
        return "with other parts"
    if (version.low, version.high) != (other.low, other.high):
        low, high = version.low / 1000, version.high / 1000
        return f"from {reading(low, '', write)} to {reading(high, unit, write)}"
    if scale_of(version) != scale_of(other):
        return "with a logarithmic scale" if scale_of(version) else "with equal bins"
    return f"with {value_count(version):,} bins"


@dataclass(frozen=True)
class LeftOut:
    """A version that an answer leaves out.

    Attributes:
        version: The version.
        reports: Its number of reports.
        unit: Its unit if it is left out because of the unit, otherwise "".
    """

    version: Experiment
    reports: int
    unit: str = ""


def left_out(
    parts: Sequence[LeftOut],
    newest: Experiment,
    versions: Sequence[Experiment],
    *,
    is_newest: bool,
    can_pool: bool,
    unit: str = "",
    write: Numbers = ENGLISH,
) -> str:
    """Return a sentence on the reports that an answer leaves out, or "" if there are none.

    Args:
        parts: The versions that are left out, newest first.
        newest: The newest version that answers.
        versions: All versions.
        is_newest: Whether the experiment has no newer version.
        can_pool: Whether all versions have values in common.
        unit: The unit of the readings, or "".
        write: The number format.
    """
    texts = list[str]()
    if not is_newest:
        short = short_digest(newest, versions)
        texts.append(f"the newest version has too few reports, so this is version {short}")
    for part in parts[:_MAX_NAMED]:
        hint = option("version", short_digest(part.version, versions))
        how = f"in {part.unit}" if part.unit else difference(part.version, newest, unit, write)
        which = f"another version {how}"
        texts.append(f"{counted(part.reports, 'report', write)} of {which} left out ({hint})")
    if others := parts[_MAX_NAMED:]:
        rest = sum(part.reports for part in others)
        hints = [option("version", short_digest(part.version, versions)) for part in others[:_MAX_NAMED]]
        named = ", ".join([*hints, *["..."] * (len(others) > _MAX_NAMED)])
        subject = counted(len(others), "other version", write)
        texts.append(f"{counted(rest, 'report', write)} of {subject} left out ({named})")
    if not texts:
        return ""
    advice = f"; {option('version', ALL_VERSIONS)} pools the values in common" if parts and can_pool else ""
    text = "; ".join(texts) + advice
    return f"{capitalize(text)}."


def changed(
    window: str, before: Experiment, after: Experiment, versions: Sequence[Experiment], unit: str = ""
) -> str:
    """Return a sentence that marks where another version answers in a trend; arguments as in left_out()."""
    hint = option("version", short_digest(before, versions))
    return f"Before {window}: another version {difference(before, after, unit)} ({hint})."


def _list_labels(labels: Sequence[str]) -> str:
    named = [f"'{visible(name)}'" for name in labels[:_MAX_NAMED]]
    named += [f"{more} more"] if (more := len(labels) - len(named)) else []
    return " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
