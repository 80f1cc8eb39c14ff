"""What a reader has chosen to look at, as the page's address keeps it: a link shows the same again."""

import datetime
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from ...device.ldp_client import Experiment
from ...server.answers.ask import EstimateQuestion
from ...server.answers.fleet_estimate import MEAN
from ...server.answers.query import Selected
from ...server.answers.rows import CONFIDENCE
from ...server.answers.texts import check_candidates
from ...server.errors import UsageError
from ...server.estimate.postprocess import METHODS
from ...server.experiments.units import UnitsError, bin_edges, parse_range
from ...server.plain_text import shorten, visible
from ..period import EXPLICIT, USUAL, parse, windows_before, windows_of

QUANTILES = (0.05, 0.5, 0.95)
CONFIDENCES = (0.9, 0.95, 0.99)
BEFORE = "before"
"""Of a comparison: the windows of the time just before the chosen ones, and as long."""

SHARE = "share"
"""Of a trend: the shares of the chosen range or labels."""

NEWEST = 60
"""Windows that a trend shows; those chosen may be others."""

MOST_TEXTS = 100
"""Texts that a reader may type; a file may have more."""

_MOST_SAID = 60  # characters of a choice that is not there
_MOST_QUANTILES = 9
_MOST = 1000  # values of one name in an address; more is not from a reader


@dataclass(frozen=True)
class Choices:
    """What is looked at.

    windows         added up; none for all
    version         one version, as its digest begins; empty for all
    ranges          one low:high of a number, labels of another type, or texts; none if a reader has none
    rows            of a number's histogram at most; None for as fine as its reports can tell
    over            what is shown over time: mean, share, or a quantile such as 0.5
    since, earlier  windows and version that are compared with; none for no comparison
    period          the period that the windows are of, as period.parse() returns it, or EXPLICIT
    against         BEFORE where the windows to compare with follow from the period, otherwise empty
    """

    windows: tuple[str, ...] = ()
    version: str = ""
    ranges: tuple[str, ...] = ()
    quantiles: tuple[float, ...] = QUANTILES
    confidence: float = CONFIDENCE
    rows: int | None = None
    post: str = "raw"
    over: str = MEAN
    since: tuple[str, ...] = ()
    earlier: str = ""
    period: str = USUAL
    against: str = ""

    @property
    def compares(self) -> bool:
        """Whether a comparison is asked for."""
        return bool(self.since or self.earlier)

    def question(self, of: Selected) -> EstimateQuestion:
        """What is asked of an experiment, as the command `estimate` asks it."""
        number = "quantiles" in of.can
        return EstimateQuestion(
            replace(of.selection, windows=self.windows, version=self.version),
            ranges=self.ranges,
            together=len(self.ranges) > 1 and "ranges" in of.can,
            quantiles=self.quantiles if number else (),
            rows=self.rows if number else None,
            post=self.post,
            confidence=self.confidence,
        )

    def over_time(self, of: Selected) -> EstimateQuestion:
        """The trend that is shown, as the command asks for it: over the newest windows."""
        quantile = _part(self.over)
        wants_share = MEAN not in of.can or self.over == SHARE
        return EstimateQuestion(
            replace(of.selection, windows=_newest(of), version=self.version),
            ranges=self.ranges if wants_share else (),
            quantiles=() if quantile is None or "quantiles" not in of.can else (quantile,),
            trend=True,
            confidence=self.confidence,
        )

    def change(self, of: Selected) -> EstimateQuestion:
        """The comparison that is shown, of those chosen windows that are not compared with."""
        asked = replace(self.question(of), together=False, post="raw", rows=None)
        looked_at, version = self.windows, self.version
        if self.since and not self.earlier:
            apart = tuple(w for w in looked_at or of.there if w not in self.since)
            looked_at = apart or looked_at
        if self.earlier and not version:
            others = [digest for digest in of.digests if not digest.startswith(self.earlier)]
            version = others[-1] if others else ""
        before, earlier = self.since or self.windows, self.earlier or self.version
        if self.earlier:
            looked_at, before = (
                _with_reports(of, *side) for side in ((looked_at, version), (before, earlier))
            )
        return replace(
            asked,
            selection=replace(of.selection, windows=looked_at, version=version),
            against=replace(of.selection, windows=before, version=earlier),
        )

    def query(self) -> str:
        """The part of an address after ?; empty where nothing was chosen."""
        usual, pairs = Choices(), []
        follows = {"windows" if self.period != EXPLICIT else "period"} | (
            {"since"} if self.against else set()
        )
        for name, value in vars(self).items():
            if value == getattr(usual, name) or name in follows:
                continue
            values = value if isinstance(value, tuple) else (value,)
            pairs += [(name, f"{v:.10g}" if isinstance(v, float) else f"{v}") for v in values or ("",)]
        return urlencode(pairs)


def _newest(of: Selected) -> tuple[str, ...]:
    windows = tuple(of.there)
    return windows[-NEWEST:] if len(windows) > NEWEST else ()


def windows_of_version(of: Selected, version: str) -> tuple[str, ...]:
    """Return the windows in which a version has reports, oldest first; "" for any version."""
    ids = {v.id for v in of.versions if v.experiment.digest.hex().startswith(version)}
    return tuple(window for window, counts in of.there.items() if ids & counts.keys())


def _with_reports(of: Selected, windows: tuple[str, ...], version: str) -> tuple[str, ...]:
    """Return those windows in which a version has reports; all windows of the version if there are none."""
    there = windows_of_version(of, version)
    return (tuple(w for w in windows if w in there) or there) if windows else ()


def from_query(query: str) -> Choices:
    """The choices in an address; anything else there is left out."""
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=_MOST)
    except ValueError:
        return Choices()
    chosen: dict[str, Any] = {}
    for name, usual in vars(Choices()).items():
        values = [
            value for value in map(_READ.get(name, str), given.get(name, ())) if value not in (None, "")
        ]
        chosen[name] = (tuple(values) if isinstance(usual, tuple) else values[-1]) if values else usual
    if chosen["windows"] and not any(given.get("period", ())):
        chosen["period"] = EXPLICIT
    return Choices(**chosen)


def left_out(query: str, fitted: Choices) -> tuple[str, ...]:
    """What an address asks for that is not in the choices that were made of it, such as "confidence 7"."""
    try:
        given = parse_qsl(query, max_num_fields=_MOST)
    except ValueError:
        return (f"more than {_MOST} choices",)
    left = []
    for name, text in given:
        value = vars(fitted).get(name)
        kept = value if isinstance(value, tuple) else (value,)
        if name == "period" and parse(text) == value:
            continue
        if not any(text == f"{one}" or (isinstance(one, float) and _float(text) == one) for one in kept):
            left.append(shorten(visible(f"{name} {text}"), _MOST_SAID))
    return tuple(dict.fromkeys(left))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _part(text: str) -> float | None:
    """A number in an address above 0 and below 1; None for another text."""
    return value if 0 < (value := _float(text)) < 1 else None


def _rows(text: str) -> int | None:
    return int(value) if 1 <= (value := _float(text)) <= 1 << 20 else None


_READ: Mapping[str, Callable[[str], object]] = {
    "quantiles": _part,
    "confidence": _part,
    "rows": _rows,
    "post": lambda text: text if text in METHODS else None,
    "period": parse,
    "against": lambda text: text if text == BEFORE else None,
    "over": lambda text: text if text in (MEAN, SHARE) or _part(text) else None,
}
"""What a choice's text in an address stands for, None for nothing; those that are not named are texts."""


def range_between(experiment: Experiment, low: float, high: float) -> str:
    """The range of a number's whole bins nearest to low and high, in its unit, as parse_range reads it.

    Beyond the first and the last edge it is open, since the end bins hold what lies beyond them. Raises
    UnitsError where no whole bin lies between.
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
    """The range that was typed, as range_between has it; raises UnitsError with what is to be typed."""
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
        raise UnitsError(f"between From and To lies no whole row of {edges[1] - edges[0]:g}") from None


def typed_quantiles(text: str) -> tuple[float, ...]:
    """5, 50, 95 as shares. Raises UnitsError for another text."""
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
    """The outer edges of a number's range, in its unit. Raises UnitsError for another text."""
    indices, edges = parse_range(experiment, text), bin_edges(experiment)
    return float(edges[indices.low]), float(edges[indices.high])


def fitting(
    choices: Choices,
    experiment: Experiment,
    can: Set[str],
    windows: Sequence[str],
    versions: Sequence[str],
    at: datetime.datetime,
) -> Choices:
    """Return the choices without those that an experiment does not have, or no longer has.

    Args:
        choices: What an address or a reader asks for.
        experiment: The newest version.
        can: What it answers, in the words of server/experiments/asking.py.
        windows: The windows that have reports, oldest first.
        versions: The digests of its versions.
        at: The time now, UTC.
    """
    period, chosen = choices.period, tuple(w for w in windows if w in choices.windows)
    if period != EXPLICIT:
        chosen = windows_of(period, windows, at)
    if not chosen:
        period, chosen = USUAL, windows_of(USUAL, windows, at)
    since = tuple(w for w in windows if w in choices.since)
    if choices.against:
        since = windows_before(chosen, windows)

    def known(text: str) -> bool:
        try:
            parse_range(experiment, text)
        except UnitsError:
            return False
        return True

    ranges: tuple[str, ...] = ()
    if "ranges" in can:
        one = 1 if "quantiles" in can else None
        ranges = tuple(dict.fromkeys(filter(known, choices.ranges)))[:one]
    elif "candidates" in can:
        ranges = tuple(dict.fromkeys(choices.ranges))[:MOST_TEXTS]
    names = over_names(can, choices.quantiles)
    smooth = choices.post == "smooth" and "quantiles" not in can
    return replace(
        choices,
        windows=() if period == USUAL and len(chosen) == len(windows) else chosen,
        period=period,
        since=since,
        against=choices.against if since else "",
        version=_version(choices.version, versions),
        earlier=_version(choices.earlier, versions),
        ranges=ranges,
        over=choices.over if MEAN not in names or choices.over in names else MEAN,
        post="raw" if smooth or "frequencies" not in can else choices.post,
    )


def _version(version: str, there: Sequence[str]) -> str:
    return version if version and any(digest.startswith(version) for digest in there) else ""


def over_names(can: Set[str], quantiles: Sequence[float]) -> Mapping[str, str]:
    """What can be shown over time, with its name; can: what the experiment answers."""
    if MEAN not in can:
        return {SHARE: "the chosen labels"}
    names = {MEAN: "mean"} | ({SHARE: "the chosen range"} if "ranges" in can else {})
    return names | {
        f"{q:.10g}": "median" if q == 0.5 else f"{q * 100:g}% quantile"
        for q in quantiles
        if "quantiles" in can
    }
