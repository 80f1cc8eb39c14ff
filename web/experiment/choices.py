"""A reader's choices, as the page's address stores them: a link shows the same view again."""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from ...device.ldp_client import Experiment
from ...server.answers import periods
from ...server.answers.fleet_estimate import MEAN
from ...server.answers.query import Selected
from ...server.answers.question import BEFORE, Question
from ...server.answers.texts import check_candidates
from ...server.errors import UsageError
from ...server.estimate.postprocess import METHODS
from ...server.experiments.units import UnitsError, bin_edges, parse_range
from ...server.plain_text import shorten, visible
from ..period import EXPLICIT, USUAL, first_and_last, in_period, parse, period_of, windows_of

QUANTILES = (0.05, 0.5, 0.95)
"""Quantiles that are shown by default."""

CONFIDENCES = (0.9, 0.95, 0.99)

SHARE = "share"
"""Over time: the shares of the chosen range or labels."""

NEWEST = 60
"""Windows in a trend, which may differ from the chosen ones."""

MOST_TEXTS = 100
"""Texts that a reader may type; a file may have more."""

_VERSION = "version="  # in `against`
_MOST_SAID = 60  # characters of an invalid choice in a message
_MOST_QUANTILES = 9
_MOST = 1000  # values of one name in an address; longer ones do not come from a reader


@dataclass(frozen=True)
class Choices:
    """A reader's choices.

    Attributes:
        question: As chosen: without ranges and quantiles, a view has defaults.
        over: The statistic shown over time: mean, share, or a quantile such as 0.5.
        windows: Windows of the period, added up; empty for all; set by fitting().
        since: Windows to compare with; empty for no comparison, or for those of a version; set by fitting().
    """

    question: Question
    over: str = MEAN
    windows: tuple[str, ...] = ()
    since: tuple[str, ...] = ()

    @property
    def period(self) -> str:
        """The period, as period.parse() returns it, or EXPLICIT."""
        return period_of(self.question)

    @property
    def ranges(self) -> tuple[str, ...]:
        """low:high of a number, labels of another type, or texts; empty if none are chosen."""
        return self.question.ranges

    @property
    def quantiles(self) -> tuple[float, ...]:
        """The quantiles that are shown."""
        return self.question.quantiles or QUANTILES

    @property
    def earlier(self) -> str:
        """The version to compare with, or ""."""
        versions = [text for text in self.question.against if text.startswith(_VERSION)]
        return versions[-1].removeprefix(_VERSION) if versions else ""

    @property
    def follows(self) -> bool:
        """Whether the windows to compare with follow from the period."""
        return BEFORE in self.question.against

    @property
    def compares(self) -> bool:
        """Whether there is a comparison."""
        return bool(self.since or self.earlier)

    def asking(self, **fields: Any) -> "Choices":
        """Return the choices with other values of some of the question's fields."""
        return replace(self, question=self.question.replace(**fields))

    def estimate(self, of: Selected) -> Question:
        """Return the question for an experiment, as the command `estimate` asks it."""
        question, is_number = self.question, "quantiles" in of.can
        return question.replace(
            windows=self.windows,
            last="",
            against=(),
            together=len(question.ranges) > 1 and "ranges" in of.can,
            quantiles=self.quantiles if is_number else (),
            rows=question.rows if is_number else None,
        )

    def trend(self, of: Selected) -> Question:
        """Return the question for the trend, as the command asks it: over the newest windows."""
        quantile = _part(self.over)
        wants_share = MEAN not in of.can or self.over == SHARE
        return Question(
            experiment=self.question.experiment,
            fleet=self.question.fleet,
            version=self.question.version,
            windows=_newest(of),
            ranges=self.question.ranges if wants_share else (),
            quantiles=() if quantile is None or "quantiles" not in of.can else (quantile,),
            trend=True,
            confidence=self.question.confidence,
        )

    def change(self, of: Selected) -> Question:
        """Return the question for the comparison, leaving out chosen windows that are on the other side."""
        looked_at, version, earlier = self.windows, self.question.version, self.earlier
        if self.since and not earlier:
            apart = tuple(w for w in looked_at or of.there if w not in self.since)
            looked_at = apart or looked_at
        if earlier and not version:
            others = [digest for digest in of.digests if not digest.startswith(earlier)]
            version = others[-1] if others else ""
        before = self.since or self.windows
        if earlier:
            looked_at, before = (
                _with_reports(of, *side) for side in ((looked_at, version), (before, earlier))
            )
        return self.estimate(of).replace(
            together=False,
            post="raw",
            rows=None,
            windows=looked_at or windows_of_version(of, version),
            version=version,
            against=(
                *(before or windows_of_version(of, earlier or version)),
                *([_VERSION + earlier] if earlier else []),
            ),
        )

    def query(self) -> str:
        """Return the part of an address after ?; "" if nothing is chosen."""
        over = urlencode({"over": self.over}) if self.over != MEAN else ""
        return "&".join(filter(None, [self.question.query(), over]))


def _newest(of: Selected) -> tuple[str, ...]:
    windows = tuple(of.there)
    return windows[-NEWEST:] if len(windows) > NEWEST else ()


def windows_of_version(of: Selected, version: str) -> tuple[str, ...]:
    """Return the windows in which a version has reports, oldest first; "" for any version."""
    ids = {v.id for v in of.versions if v.experiment.digest.hex().startswith(version)}
    return tuple(window for window, counts in of.there.items() if ids & counts.keys())


def _with_reports(of: Selected, windows: tuple[str, ...], version: str) -> tuple[str, ...]:
    """Return those windows that have reports of a version, or all its windows if none do."""
    there = windows_of_version(of, version)
    return (tuple(w for w in windows if w in there) or there) if windows else ()


def from_query(query: str, question: Question) -> Choices:
    """Return the choices in an address for a question's experiment; other parts are ignored."""
    try:
        fields_of_query = parse_qs(query, max_num_fields=_MOST)
    except ValueError:
        return Choices(question)
    fields: dict[str, Any] = {}
    for name, read in _READ.items():
        values = tuple(value for value in map(read, fields_of_query.get(name, ())) if value is not None)
        if values:
            several = isinstance(getattr(question, name), tuple)
            fields[name] = values if several else values[-1]
    over = [text for text in fields_of_query.get("over", ()) if text in (MEAN, SHARE) or _part(text)]
    if fields.get("windows"):
        fields.pop("last", None)
    return Choices(question.replace(**fields), over[-1] if over else MEAN)


def left_out(query: str, fitted: Choices) -> tuple[str, ...]:
    """Return the parts of an address that are not in the choices made from it, such as "confidence 7"."""
    try:
        pairs = parse_qsl(query, max_num_fields=_MOST)
    except ValueError:
        return (f"more than {_MOST} choices",)
    omitted = []
    for name, text in pairs:
        if name == "over":
            value: Any = fitted.over
        else:
            value = getattr(fitted.question, name) if name in _READ else ()
        if name == "last" and parse(text) == fitted.period:
            continue
        values = value if isinstance(value, tuple) else (value,)
        if not any(text == f"{one}" or (isinstance(one, float) and _float(text) == one) for one in values):
            omitted.append(shorten(visible(f"{name} {text}"), _MOST_SAID))
    return tuple(dict.fromkeys(omitted))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _part(text: str) -> float | None:
    """Return a number in an address above 0 and below 1, or None for another text."""
    return value if 0 < (value := _float(text)) < 1 else None


def _rows(text: str) -> int | None:
    return int(value) if 1 <= (value := _float(text)) <= 1 << 20 else None


_READ: Mapping[str, Callable[[str], object]] = {
    "windows": lambda text: text or None,
    "last": lambda text: None if first_and_last(text) else parse(text) or None,
    "version": lambda text: text or None,
    "ranges": lambda text: text or None,
    "quantiles": _part,
    "confidence": _part,
    "rows": _rows,
    "post": lambda text: text if text in METHODS else None,
    "against": lambda text: text or None,
}
"""Functions that read a question's field from its text in an address; None for an invalid text."""


def range_between(experiment: Experiment, low: float, high: float) -> str:
    """Return the range of a number's whole bins nearest to low and high, in its unit, for parse_range.

    Beyond the first and the last edge it is open, since the end bins include everything beyond them.

    Raises:
        UnitsError: If no whole bin is between them.
    """
    edges = bin_edges(experiment)
    low, high = max(float(low), float(edges[0])), min(float(high), float(edges[-1]))
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UnitsError("a range goes from low to high")
    indices = parse_range(experiment, f"{low!r}:{high!r}")
    first = "" if indices.low == 0 else f"{edges[indices.low]:.10g}"
    last = "" if indices.high == experiment.domain else f"{edges[indices.high]:.10g}"
    return f"{first}:{last}"


def typed_range(experiment: Experiment, low: float | None, high: float | None) -> str:
    """Return a typed range, as range_between() does; raise UnitsError with what to type."""
    if low is None or high is None:
        raise UnitsError("From and To are to be numbers")
    if not low < high:
        raise UnitsError("From must be below To")
    edges = bin_edges(experiment)
    if low >= edges[-1] or high <= edges[0]:
        raise UnitsError(f"the histogram goes from {edges[0]:g} to {edges[-1]:g}")
    try:
        return range_between(experiment, low, high)
    except UnitsError:
        raise UnitsError(f"no whole row of {edges[1] - edges[0]:g} lies between From and To") from None


def typed_quantiles(text: str) -> tuple[float, ...]:
    """Return 5, 50, 95 as shares; raise UnitsError for another text."""
    parts = text.replace(";", ",").replace("%", "").split(",")
    quantiles = tuple(round(percent / 100, 12) for percent in map(_float, parts) if 0 < percent < 100)
    if len(quantiles) < len(parts):
        raise UnitsError("numbers above 0 and below 100, with commas between them")
    if len(set(quantiles)) > _MOST_QUANTILES:
        raise UnitsError(f"at most {_MOST_QUANTILES} numbers")
    return tuple(dict.fromkeys(quantiles))


def typed_texts(text: str, file_texts: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the texts to look for that a reader typed, one on each line.

    Args:
        text: What was typed; empty lines are left out.
        file_texts: The texts that the experiment's file lists, of which there may be more.

    Returns:
        The texts, each once; () if they are those of the file.

    Raises:
        UsageError: There are too many texts, or one is longer than boards read.
    """
    texts = tuple(dict.fromkeys(line for line in text.replace("\r", "").split("\n") if line))
    if texts == tuple(file_texts):
        return ()
    if len(texts) > MOST_TEXTS:
        raise UsageError(
            f"at most {MOST_TEXTS} texts, not {len(texts):,}: more can be in a file of the command below"
        )
    check_candidates(texts)
    return texts


def ends(experiment: Experiment, text: str) -> tuple[float, float]:
    """Return the outer edges of a number's range, in its unit; raise UnitsError for another text."""
    indices, edges = parse_range(experiment, text), bin_edges(experiment)
    return float(edges[indices.low]), float(edges[indices.high])


def fitting(choices: Choices, of: Selected) -> Choices:
    """Return the choices with their windows, without those that an experiment does not have.

    Args:
        choices: The choices in an address or of a reader.
        of: The experiment, all versions of it.
    """
    question, facts, can = choices.question, of.facts, of.can
    about = Question(
        experiment=question.experiment, fleet=question.fleet, version=_version(question.version, of.digests)
    )
    there = windows_of_version(of, about.version)
    about = about.replace(windows=question.windows, last=question.last)
    chosen = windows_of(about, facts)
    if period_of(about) == EXPLICIT:
        about = about.replace(windows=chosen)
    if not chosen:
        about = in_period(about, USUAL)
        chosen = windows_of(about, facts)
    since, against = _other_side(choices, chosen, there)
    earlier = _version(choices.earlier, of.digests)
    ranges: tuple[str, ...] = ()
    if "ranges" in can:
        one = 1 if "quantiles" in can else None
        typed = (text for text in question.ranges if _is_range(of.newest.experiment, text))
        ranges = tuple(dict.fromkeys(typed))[:one]
    elif "candidates" in can:
        ranges = tuple(dict.fromkeys(question.ranges))[:MOST_TEXTS]
    names = over_names(can, choices.quantiles)
    smooth = question.post == "smooth" and "quantiles" not in can
    return Choices(
        question.replace(
            windows=about.windows,
            last=about.last,
            version=about.version,
            against=(*against, *([_VERSION + earlier] if earlier else [])),
            ranges=ranges,
            post="raw" if smooth or "frequencies" not in can else question.post,
        ),
        over=choices.over if MEAN not in names or choices.over in names else MEAN,
        windows=() if period_of(about) == USUAL and len(chosen) == len(there) else chosen,
        since=since,
    )


def _other_side(
    choices: Choices, chosen: Sequence[str], there: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the windows to compare with, and the part of `against` that names them."""
    if choices.follows:
        before = periods.preceding(chosen, there)
        return before, (BEFORE,) if before else ()
    since, named = list[str](), list[str]()
    for text in choices.question.against:
        windows = [window for window in periods.resolve_periods([text], there) if window in there]
        since += windows
        named += [text] if windows else []
    return tuple(window for window in there if window in since), tuple(named)


def _is_range(experiment: Experiment, text: str) -> bool:
    try:
        parse_range(experiment, text)
    except UnitsError:
        return False
    return True


def _version(version: str, there: Sequence[str]) -> str:
    return version if version and any(digest.startswith(version) for digest in there) else ""


def over_names(can: Set[str], quantiles: Sequence[float]) -> Mapping[str, str]:
    """Return the statistics that can be shown over time, with names, given the experiment's answers."""
    if MEAN not in can:
        return {SHARE: "the chosen labels"}
    names = {MEAN: "mean"} | ({SHARE: "the chosen range"} if "ranges" in can else {})
    return names | {
        f"{q:.10g}": "median" if q == 0.5 else f"{q * 100:g}% quantile"
        for q in quantiles
        if "quantiles" in can
    }
