"""An aggregator's health, requested over HTTP from /metrics and /healthz."""

import datetime
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from ..errors import UsageError
from ..extras import require
from ..plain_text import one_line, shorten
from ..words.answers import capitalize
from .rejects import Rejected, rejected_reports

TIMEOUT_S = 2.0  # for both responses together
_MAX_BYTES = 1 << 20
_MAX_LETTERS = 200
_MAX_WARNINGS = 10


@dataclass(frozen=True)
class AggregatorHealth:
    """An aggregator's health at a point in time; if it did not answer, numbers are 0 and conditions False.

    Attributes:
        is_reachable: Whether the aggregator answered.
        problem: A sentence saying why it is unhealthy or did not answer, or "" if it is healthy.
        connected: Whether the aggregator is connected to the broker and subscribed.
        failing: Whether the last attempt to write to the store failed.
        uncommitted: The number of messages that have been received but not committed.
        lag_s: The age of the oldest of these, in seconds.
        accepted: The number of reports counted since the aggregator started.
        rejects: The reports rejected since the aggregator started.
        unsigned: The number of experiments waiting for a signature.
        unknown: The number of experiments that boards find at the broker, but the store does not have.
        warnings: How the broker can lose, or may have lost, reports or experiments.
        expiries: For each option, the time, UTC, at which its first certificate expires.
    """

    is_reachable: bool
    problem: str
    connected: bool = False
    failing: bool = False
    uncommitted: int = 0
    lag_s: float = 0.0
    accepted: int = 0
    rejects: tuple[Rejected, ...] = ()
    unsigned: int = 0
    unknown: int = 0
    warnings: tuple[str, ...] = ()
    expiries: Mapping[str, datetime.datetime] = field(default_factory=dict)

    @property
    def certificates(self) -> str:
        """A sentence listing when the certificates expire, soonest first, or "" without TLS."""
        dates = sorted((end, option) for option, end in self.expiries.items())
        listed = ", ".join(f"{option} on {end:%Y-%m-%d}" for end, option in dates)
        return listed and f"The aggregator's certificates expire: {listed}."

    @property
    def words(self) -> str:
        """The health in a few sentences."""
        if not self.is_reachable:
            return self.problem
        sentences = [self.problem or self._state]
        if self.unknown:
            plural = "s" * (self.unknown > 1)
            sentences.append(
                f"The broker retains {self.unknown:,} experiment{plural} that this store does not have, and "
                "boards spend budget on reports that are not counted: the aggregator's log says which, and "
                "how to clear them."
            )
        return " ".join((*sentences, *(f"{capitalize(text)}." for text in self.warnings)))

    @property
    def _state(self) -> str:
        if self.unsigned:
            return (
                f"{self.unsigned:,} experiment{'s wait' if self.unsigned > 1 else ' waits'} for a signature: "
                "the aggregator's log says which, and how to sign them."
            )
        if not self.uncommitted:
            return "The aggregator is connected to the broker, and has counted all reports."
        n = self.uncommitted
        return (
            f"The aggregator is connected to the broker; {n:,} report{' waits' if n == 1 else 's wait'} "
            f"to be counted, for {self.lag_s:.1f} s at most."
        )

    @property
    def needs_attention(self) -> bool:
        """Whether the sentences ask for something although the aggregator works."""
        return bool(self.unsigned or self.unknown or self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        expiries = {option: end.isoformat() for option, end in self.expiries.items()}
        values = asdict(self) | {"words": self.words, "expiries": expiries}
        return {"answered": values.pop("is_reachable"), "trouble": values.pop("problem")} | values


def check_url(url: str) -> str:
    """Return an aggregator's base address.

    Raises:
        UsageError: If the text is not a valid address.
    """
    try:
        parts = urlsplit(url)
        is_base_url = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/")
        if is_base_url and not (parts.query or parts.fragment or "@" in parts.netloc) and parts.port != 0:
            require("prometheus_client", "an aggregator's health")
            return f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        pass
    raise UsageError(
        f"{one_line(url)} is not an aggregator's address; use http://HOST:PORT, as in its --http"
    )


def ask(url: str, timeout_s: float = TIMEOUT_S) -> AggregatorHealth:
    """Ask an aggregator for its health within a timeout; this never raises.

    Args:
        url: An address from check_url().
        timeout_s: The timeout, in seconds.
    """
    until = time.monotonic() + timeout_s
    try:
        status, body = _get(f"{url}/healthz", until)
        problem = "" if status == 200 else _reason(body)
        warnings = _warnings(body)
        status, body = _get(f"{url}/metrics", until)
        if status != 200:
            raise ValueError(f"/metrics answers {status}")
        return replace(_parse_health(body.decode(), problem), warnings=warnings)
    except (OSError, http.client.HTTPException) as e:
        why = getattr(e, "reason", e)
        why = getattr(why, "strerror", None) or str(why) or type(e).__name__
        return AggregatorHealth(False, f"The aggregator at {url} does not answer: {_shorten(why)}.")
    except (KeyError, OverflowError, RecursionError, ValueError) as e:
        return AggregatorHealth(False, f"The server at {url} is not an aggregator: {_shorten(str(e))}.")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Ignores redirects, because an aggregator never sends any."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


# An aggregator is not behind the proxy that the environment configures for the internet.
_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def _get(url: str, until: float) -> tuple[int, bytes]:
    """Return the status and body; raise TimeoutError if they do not arrive in time."""
    remaining_s = until - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError("timed out")
    try:
        answer = _OPENER.open(url, timeout=remaining_s)
    except urllib.error.HTTPError as e:
        answer = e
    with answer:
        body = b""
        while part := answer.read1(65_536):
            body += part
            if len(body) > _MAX_BYTES:
                raise ValueError("its answer is longer than 1 MiB")
            if time.monotonic() > until:  # otherwise a server that sends a byte a second would never time out
                raise TimeoutError("timed out")
        return answer.status or 0, body


def _reason(body: bytes) -> str:
    document = json.loads(body)
    reason = document.get("reason") if isinstance(document, dict) else None
    if not isinstance(reason, str):
        raise ValueError("/healthz gives no reason")
    return f"The aggregator reports a problem: {_shorten(reason)}."


def _warnings(body: bytes) -> tuple[str, ...]:
    """Return the warnings in /healthz; an earlier version's answer has none."""
    try:
        document = json.loads(body)
    except ValueError:
        return ()
    warnings: Any = document.get("warnings", ()) if isinstance(document, dict) else ()
    texts = [text for text in warnings if isinstance(text, str)] if isinstance(warnings, list) else []
    return tuple(_shorten(text) for text in texts[:_MAX_WARNINGS])


def _parse_health(text: str, problem: str) -> AggregatorHealth:
    from prometheus_client.parser import text_string_to_metric_families  # imported only if needed

    metrics: dict[str, float] = {}
    reasons: dict[str, int] = {}
    expiries: dict[str, datetime.datetime] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "hushmote_certificate_expires_timestamp_seconds":
                end = datetime.datetime.fromtimestamp(sample.value, datetime.UTC)
                expiries[_shorten(sample.labels["option"])] = end
            elif sample.name == "hushmote_reports_rejected_total":
                reasons[_shorten(sample.labels["reason"])] = int(sample.value)
            elif not sample.labels:
                metrics[sample.name] = sample.value

    def number(name: str) -> float:
        if name not in metrics:
            raise ValueError(f"it has no {name}")
        return metrics[name]

    return AggregatorHealth(
        is_reachable=True,
        problem=problem,
        connected=bool(number("hushmote_connected") and number("hushmote_subscribed")),
        failing=bool(number("hushmote_store_failing")),
        uncommitted=int(number("hushmote_uncommitted_messages")),
        lag_s=number("hushmote_oldest_uncommitted_seconds"),
        accepted=int(number("hushmote_reports_accepted_total")),
        rejects=rejected_reports(reasons),
        unsigned=int(metrics.get("hushmote_experiments_unsigned", 0)),
        unknown=int(metrics.get("hushmote_experiments_unknown", 0)),
        expiries=expiries,
    )


def _shorten(text: str) -> str:
    return shorten(one_line(text), _MAX_LETTERS)
