"""A reader's choices, which the page's URL stores so that a link opens the same view."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from ...device.ldp_client import Experiment
from ...server.answers import periods
from ...server.answers.fleet_estimate import MEAN
from ...server.answers.query import Facts, Selected
from ...server.answers.question import BEFORE, Question, Selection
from ...server.answers.texts import check_candidates
from ...server.errors import HushmoteError, UsageError
from ...server.estimate.postprocess import METHODS
from ...server.experiments.answerable import OF_VALUES
from ...server.experiments.units import UnitsError, bin_edges, parse_range
from ...server.plain_text import shorten, visible
from ...server.typed_numbers import typed_share
from ...server.wire.experiments import log_edges
from ...server.words.scope import ALL_VERSIONS
from ..period import EXPLICIT, USUAL, first_and_last, in_period, parse, period_of, windows_of

QUANTILES = (0.05, 0.5, 0.95)
"""The default quantiles."""

CONFIDENCES = (0.9, 0.95, 0.99)

SHARE = "share"
"""The value of `over` for the shares of the chosen range or labels."""

NEWEST = 60
"""The maximum number of windows in a trend, which are the newest, whatever the reader has chosen."""

MAX_TEXTS = 100
"""The maximum number of texts that a reader may type; a file may list more."""

_VERSION = "version="  # prefix of a version in `against`
_GROUP = "group="  # prefix of a value of the open group in `against`
_MAX_SHOWN = 60  # characters of an invalid choice in a message
_MAX_QUANTILES = 9
_MAX_FIELDS = 1000  # fields in a URL; the page never makes longer ones


@dataclass(frozen=True)
class Choices:
    """A reader's choices.

    Attributes:
        question: The question as chosen; without ranges or quantiles, the view uses its defaults.
        over: The statistic shown over time, which is "mean", "share", or a quantile such as "0.5".
        windows: The period's windows, which are summed; empty for all; set by fitting().
        since: The windows to compare with; empty without a comparison, or to use a version's windows; set by
            fitting().
    """

    question: Question
    over: str = MEAN
    windows: tuple[str, ...] = ()
    since: tuple[str, ...] = ()

    @property
    def period(self) -> str:
        """The period, in the form that period.parse() returns, or EXPLICIT."""
        return period_of(self.question)

    @property
    def ranges(self) -> tuple[str, ...]:
        """The chosen low:high of a number, labels or texts; empty if none are chosen."""
        return self.question.ranges

    @property
    def quantiles(self) -> tuple[float, ...]:
        """The quantiles to show."""
        return self.question.quantiles or QUANTILES

    @property
    def earlier(self) -> str:
        """The version to compare with, or ""."""
        return self._compared(_VERSION)

    @property
    def other_group(self) -> str:
        """The value of the open group to compare with, or ""."""
        return self._compared(_GROUP)

    def _compared(self, prefix: str) -> str:
        names = [text for text in self.question.against if text.startswith(prefix)]
        return names[-1].removeprefix(prefix) if names else ""

    @property
    def follows(self) -> bool:
        """Whether the windows to compare with follow from the period."""
        return BEFORE in self.question.against

    @property
    def compares(self) -> bool:
        """Whether the reader compares with other windows, another version or another value of the group."""
        return bool(self.since or self.earlier or self.other_group)

    def with_fields(self, **fields: Any) -> "Choices":
        """Return the choices with other values for some of the question's fields."""
        return replace(self, question=self.question.replace(**fields))

    def estimate(self, selected: Selected) -> Question:
        """Return the question for an experiment, in the form that the command `estimate` asks it."""
        question, is_number = self.question, "quantiles" in selected.answerable
        return question.replace(
            windows=_as_days(self.windows, selected),
            last="",
            against=(),
            together=len(question.ranges) > 1 and "ranges" in selected.answerable,
            quantiles=self.quantiles if is_number else (),
            rows=question.rows if is_number else None,
        )

    def trend(self, selected: Selected) -> Question:
        """Return the question for the trend over the newest windows, in the form that the command asks it."""
        quantile = _part(self.over)
        wants_share = MEAN not in selected.answerable or self.over == SHARE
        return Question(
            experiment=self.question.experiment,
            fleet=self.question.fleet,
            version=self.question.version,
            group=self.question.group,
            windows=_newest(selected),
            ranges=self.question.ranges if wants_share else (),
            quantiles=() if quantile is None or "quantiles" not in selected.answerable else (quantile,),
            trend=True,
            by="day" if selected.calendar.is_local else None,
            confidence=self.question.confidence,
        )

    def change(self, selected: Selected) -> Question:
        """Return the question for the comparison, without chosen windows that are on the other side."""
        windows, version, earlier = self.windows, self.question.version, self.earlier
        if self.since and not (earlier or self.other_group):
            distinct = tuple(w for w in windows or selected.all_counts if w not in self.since)
            windows = distinct or windows
        if earlier and not version:
            others = [digest for digest in selected.digests if not digest.startswith(earlier)]
            version = others[-1] if others else ""
        before = self.since or self.windows
        if earlier:
            windows, before = (
                _with_reports(selected, *side) for side in ((windows, version), (before, earlier))
            )
        return self.estimate(selected).replace(
            together=False,
            post="raw",
            rows=None,
            windows=windows or windows_of_version(selected, version),
            version=version,
            against=(
                *(before or windows_of_version(selected, earlier or version)),
                *([_VERSION + earlier] if earlier else []),
                *([_GROUP + self.other_group] if self.other_group else []),
            ),
        )

    def query(self) -> str:
        """Return the URL's query; "" if nothing is chosen."""
        over = urlencode({"over": self.over}) if self.over != MEAN else ""
        return "&".join(filter(None, [self.question.query(), over]))


def _newest(selected: Selected) -> tuple[str, ...]:
    groups = list(periods.selectable(tuple(selected.all_counts), selected.calendar).values())
    return tuple(window for group in groups[-NEWEST:] for window in group) if len(groups) > NEWEST else ()


def _as_days(windows: tuple[str, ...], selected: Selected) -> tuple[str, ...]:
    """Return windows as a range of local days, if they are all of its windows."""
    days = [*periods.selectable(windows, selected.calendar)] if selected.calendar.is_local else []
    if not days:
        return windows
    span = (f"{days[0]}..{days[-1]}" if len(days) > 1 else days[0],)
    resolved = periods.resolve_periods(span, selected.windows, selected.calendar, selected.facts.at)
    return span if resolved == windows else windows


def as_span(windows: tuple[str, ...], available: tuple[str, ...]) -> tuple[str, ...]:
    """Return windows or local days as a single span if they are adjacent, and unchanged otherwise."""
    if len(windows) < 2 or windows[0] not in available:
        return windows
    first = available.index(windows[0])
    are_adjacent = available[first : first + len(windows)] == windows
    return (f"{windows[0]}..{windows[-1]}",) if are_adjacent else windows


def names_of(windows: Iterable[str], selectable: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the names of windows; `selectable` is from periods.selectable()."""
    members = {*windows}
    return [name for name, same in selectable.items() if members.intersection(same)]


def windows_of_version(selected: Selected, version: str) -> tuple[str, ...]:
    """Return the windows in which a version has reports, oldest first; "" or "all" for any version."""
    prefix = "" if version == ALL_VERSIONS else version
    ids = {v.id for v in selected.versions if v.experiment.digest.hex().startswith(prefix)}
    return tuple(window for window, counts in selected.all_counts.items() if ids & counts.keys())


def _with_reports(selected: Selected, windows: tuple[str, ...], version: str) -> tuple[str, ...]:
    """Return the windows with reports from a version, or all of its windows if none have any."""
    available = windows_of_version(selected, version)
    return (tuple(w for w in windows if w in available) or available) if windows else ()


def from_query(query: str, question: Question) -> Choices:
    """Return the choices in a URL's query for a question's experiment; ignore everything else."""
    try:
        fields_of_query = parse_qs(query, max_num_fields=_MAX_FIELDS)
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
    """Return the parts of a URL's query that are missing from the fitted choices, such as "confidence 7"."""
    try:
        pairs = parse_qsl(query, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return (f"more than {_MAX_FIELDS} choices",)
    omitted = []
    for name, text in pairs:
        if name == "over":
            value: Any = fitted.over
        else:
            value = getattr(fitted.question, name) if name in _READ else ()
        if name == "last" and parse(text) == fitted.period:
            continue
        values = value if isinstance(value, tuple) else (value,)
        if not any(text == f"{v}" or (isinstance(v, float) and _float(text) == v) for v in values):
            omitted.append(shorten(visible(f"{name} {text}"), _MAX_SHOWN))
    return tuple(dict.fromkeys(omitted))


def _float(text: str) -> float:
    try:
        return typed_share(text)
    except ValueError:
        return math.nan


def _part(text: str) -> float | None:
    """Return a text as a number between 0 and 1, both excluded, or None for any other text."""
    return value if 0 < (value := _float(text)) < 1 else None


def _rows(text: str) -> int | None:
    return int(value) if 1 <= (value := _float(text)) <= 1 << 20 else None


_READ: Mapping[str, Callable[[str], object]] = {
    "windows": lambda text: text or None,
    "last": lambda text: None if first_and_last(text) else parse(text) or None,
    "version": lambda text: text or None,
    "group": lambda text: text or None,
    "ranges": lambda text: text or None,
    "quantiles": _part,
    "confidence": _part,
    "rows": _rows,
    "post": lambda text: text if text in METHODS else None,
    "against": lambda text: text or None,
}
"""Functions that parse a question's fields from a URL, and return None for an invalid text."""


def range_between(experiment: Experiment, low: float, high: float) -> str:
    """Return the range of whole bins nearest to low and high, in the form that parse_range() reads.

    At the first and the last edge, the range is open, because the end bins include everything beyond them.

    Raises:
        UnitsError: If the range contains no whole bin.
    """
    edges = bin_edges(experiment)
    low, high = max(float(low), float(edges[0])), min(float(high), float(edges[-1]))
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UnitsError("a range must go from low to high")
    indices = parse_range(experiment, f"{low!r}:{high!r}")
    first = "" if indices.low == 0 else f"{edges[indices.low]:.10g}"
    last = "" if indices.high == experiment.domain else f"{edges[indices.high]:.10g}"
    return f"{first}:{last}"


def typed_range(experiment: Experiment, low: float | None, high: float | None) -> str:
    """Return a typed range, in the form of range_between(); raise UnitsError if the range is invalid."""
    if low is None or high is None:
        raise UnitsError("From and To must be numbers")
    if not low < high:
        raise UnitsError("From must be below To")
    edges = bin_edges(experiment)
    if low >= edges[-1] or high <= edges[0]:
        raise UnitsError(f"the histogram goes from {edges[0]:g} to {edges[-1]:g}")
    try:
        return range_between(experiment, low, high)
    except UnitsError:
        width = "" if log_edges(experiment) else f" of {edges[1] - edges[0]:g}"
        raise UnitsError(f"no whole row{width} lies between From and To") from None


def typed_quantiles(text: str) -> tuple[float, ...]:
    """Return typed percentages, such as 5, 50, 95, as shares; raise UnitsError for any other text."""
    parts = text.replace(";", ",").replace("%", "").split(",")
    quantiles = tuple(round(percent / 100, 12) for percent in map(_float, parts) if 0 < percent < 100)
    if len(quantiles) < len(parts):
        raise UnitsError("numbers above 0 and below 100, separated by commas")
    if len(set(quantiles)) > _MAX_QUANTILES:
        raise UnitsError(f"at most {_MAX_QUANTILES} numbers")
    return tuple(dict.fromkeys(quantiles))


def typed_texts(text: str, file_texts: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the texts to look for, which a reader typed on separate lines.

    Args:
        text: The typed text; empty lines are ignored.
        file_texts: The texts in the experiment's file, which may exceed the limit on typed texts.

    Returns:
        The distinct texts, or () if they are the same as in the file.

    Raises:
        UsageError: If the reader typed too many texts, or one that is longer than boards read.
    """
    texts = tuple(dict.fromkeys(line for line in text.replace("\r", "").split("\n") if line))
    if texts == tuple(file_texts):
        return ()
    if len(texts) > MAX_TEXTS:
        raise UsageError(
            f"at most {MAX_TEXTS} texts, not {len(texts):,}; for more, use a file with the command below"
        )
    check_candidates(texts)
    return texts


def ends(experiment: Experiment, text: str) -> tuple[float, float]:
    """Return the outer edges of a number's range, in its unit; raise UnitsError for an invalid range."""
    indices, edges = parse_range(experiment, text), bin_edges(experiment)
    return float(edges[indices.low]), float(edges[indices.high])


def fitting(choices: Choices, selected: Selected) -> Choices:
    """Return the choices with their windows, and without choices that the experiment does not support.

    Args:
        choices: The choices from a URL or a reader.
        selected: The experiment with all its versions.
    """
    question, facts, can = choices.question, selected.facts, selected.answerable
    about = Question(
        experiment=question.experiment,
        fleet=question.fleet,
        version=_version(question.version, selected.digests),
    )
    available = windows_of_version(selected, about.version)
    about = about.replace(windows=question.windows, last=question.last)
    chosen = windows_of(about, facts)
    if period_of(about) == EXPLICIT:
        about = about.replace(
            windows=_days_with_reports(about, facts) if selected.calendar.is_local else chosen
        )
    if not chosen:
        about = in_period(about, USUAL)
        chosen = windows_of(about, facts)
    compared = choices if can & OF_VALUES else choices.with_fields(against=())
    since, against = _other_side(compared, about, available, selected)
    earlier = _version(compared.earlier, selected.digests)
    group = question.group if question.group in selected.group_values else ""
    other = compared.other_group if compared.other_group in selected.group_values else ""
    other = other if group and other != group else ""  # all reports include those of each value
    ranges: tuple[str, ...] = ()
    if "ranges" in can:
        max_ranges = 1 if "quantiles" in can else None
        chosen_reports = replace(selected.selection, version=about.version, windows=chosen)
        experiment = answering_experiment(selected, chosen_reports)
        valid = (text for text in question.ranges if _is_range(experiment, text))
        ranges = tuple(dict.fromkeys(valid))[:max_ranges]
    elif "candidates" in can:
        ranges = tuple(dict.fromkeys(question.ranges))[:MAX_TEXTS]
    names = over_names(can, choices.quantiles)
    smooth = question.post == "smooth" and "quantiles" not in can
    return Choices(
        question.replace(
            windows=about.windows,
            last=about.last,
            version=about.version,
            group=group,
            against=(
                *against,
                *([_VERSION + earlier] if earlier else []),
                *([_GROUP + other] if other else []),
            ),
            ranges=ranges,
            post="raw" if smooth or "frequencies" not in can else question.post,
        ),
        over=choices.over if MEAN not in names or choices.over in names else MEAN,
        windows=() if period_of(about) == USUAL and len(chosen) == len(available) else chosen,
        since=since,
    )


def _days_with_reports(question: Question, facts: Facts) -> tuple[str, ...]:
    """Return the question's periods that have reports; the hours of local days are too many for a URL."""
    return tuple(text for text in question.windows if windows_of(question.replace(windows=(text,)), facts))


def _other_side(
    choices: Choices, about: Question, available: Sequence[str], selected: Selected
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the windows to compare with the period in `about`, and the texts in `against` that name them."""
    if choices.follows:
        try:
            other = about.replace(against=(BEFORE,)).resolve(selected.facts).against
        except UsageError:  # no reports arrived before this period
            other = None
        before = tuple(window for window in (other.windows if other else ()) if window in available)
        return before, (BEFORE,) if before else ()
    since, names = list[str](), list[str]()
    for text in choices.question.against:
        try:
            period = periods.resolve_periods([text], available, selected.calendar, selected.facts.at)
        except UsageError:  # a version, a value of the group, or no period
            continue
        windows = [window for window in period if window in available]
        since += windows
        names += [text] if windows else []
    return tuple(window for window in available if window in since), tuple(names)


def answering_experiment(selected: Selected, selection: Selection) -> Experiment:
    """Return the newest version that answers for a selection, with the values that its answer has."""
    try:
        return selected.facts.selected(selection).answering.newest.experiment
    except HushmoteError:  # the picture shows the error
        return selected.newest.experiment


def _is_range(experiment: Experiment, text: str) -> bool:
    try:
        parse_range(experiment, text)
    except UnitsError:
        return False
    return True


def _version(version: str, digests: Sequence[str]) -> str:
    exists = version == ALL_VERSIONS or any(digest.startswith(version) for digest in digests)
    return version if exists else ""


def over_names(can: Set[str], quantiles: Sequence[float]) -> Mapping[str, str]:
    """Return the names of the statistics that can be shown over time, by their value in Choices.over.

    Args:
        can: The kinds of answers that the experiment supports.
        quantiles: The chosen quantiles.
    """
    if MEAN not in can:
        return {SHARE: "the chosen labels"}
    names = {MEAN: "mean"} | ({SHARE: "the chosen range"} if "ranges" in can else {})
    return names | {
        f"{q:.10g}": "median" if q == 0.5 else f"{q * 100:g}% quantile"
        for q in quantiles
        if "quantiles" in can
    }
