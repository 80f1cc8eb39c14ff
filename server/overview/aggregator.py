"""The health of an aggregator, requested over HTTP from its /metrics and /healthz."""

import datetime
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..errors import UsageError
from ..extras import require
from ..plain_text import one_line, shorten
from .rejects import Rejected, rejected_reports

TIMEOUT_S = 2.0  # for both answers together
_MOST_BYTES = 1 << 20
_MOST_LETTERS = 200


@dataclass(frozen=True)
class AggregatorHealth:
    """The health of an aggregator at a moment; if it did not answer, numbers are 0 and conditions False.

    Attributes:
        is_reachable: Whether it answered.
        problem: Why it is unhealthy or did not answer, in one sentence, or "" if it is healthy.
        connected: Whether it is connected to the broker, with its subscription.
        failing: Whether the store failed at the last attempt.
        uncommitted: The number of messages received and not committed.
        lag_s: The age of the oldest of these, in seconds.
        accepted: The number of reports counted since its start.
        rejects: The reports rejected since its start.
        unsigned: The number of experiments that wait for a signature.
        expiries: For each option, the time, UTC, at which the first of its certificates expires.
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
    expiries: Mapping[str, datetime.datetime] = field(default_factory=dict)

    @property
    def certificates(self) -> str:
        """A sentence with the days on which the certificates expire, the soonest first, or "" without TLS."""
        dates = sorted((end, option) for option, end in self.expiries.items())
        listed = ", ".join(f"{option} on {end:%Y-%m-%d}" for end, option in dates)
        return listed and f"The aggregator's certificates expire: {listed}."

    @property
    def words(self) -> str:
        """Its health as one sentence."""
        if not self.is_reachable or self.problem:
            return self.problem
        if self.unsigned:
            return (
                f"{self.unsigned:,} experiment{'s wait' if self.unsigned > 1 else ' waits'} for a signature: "
                "the aggregator's log says which, and how to sign."
            )
        if not self.uncommitted:
            return "The aggregator is connected to the broker, and has counted all reports."
        n = self.uncommitted
        return (
            f"The aggregator is connected to the broker; {n:,} report{' waits' if n == 1 else 's wait'} "
            f"to be counted, for {self.lag_s:.1f} s at most."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        expiries = {option: end.isoformat() for option, end in self.expiries.items()}
        values = asdict(self) | {"words": self.words, "expiries": expiries}
        return {"answered": values.pop("is_reachable"), "trouble": values.pop("problem")} | values


def check_url(url: str) -> str:
    """Return an aggregator's address without a path.

    Raises:
        UsageError: If the text is not such an address.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/")
        if fits and not (parts.query or parts.fragment or "@" in parts.netloc) and parts.port != 0:
            require("prometheus_client", "an aggregator's health")
            return f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        pass
    raise UsageError(f"{one_line(url)} is not an aggregator's address: write http://HOST:PORT, of its --http")


def ask(url: str, timeout_s: float = TIMEOUT_S) -> AggregatorHealth:
    """Ask an aggregator for its health, within a timeout; this never raises.

    Args:
        url: An address from check_url().
        timeout_s: The timeout, in seconds.
    """
    until = time.monotonic() + timeout_s
    try:
        status, body = _get(f"{url}/healthz", until)
        problem = "" if status == 200 else _reason(body)
        status, body = _get(f"{url}/metrics", until)
        if status != 200:
            raise ValueError(f"/metrics answers {status}")
        return _read(body.decode(), problem)
    except (OSError, http.client.HTTPException) as e:
        why = getattr(e, "reason", e)
        why = getattr(why, "strerror", None) or str(why) or type(e).__name__
        return AggregatorHealth(False, f"The aggregator at {url} does not answer: {_fit(why)}.")
    except (KeyError, OverflowError, RecursionError, ValueError) as e:
        return AggregatorHealth(False, f"The server at {url} is not an aggregator: {_fit(str(e))}.")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Do not follow redirects: an aggregator does not send any."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


# An aggregator is not behind the proxy that the environment configures for the internet.
_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def _get(url: str, until: float) -> tuple[int, bytes]:
    """Return status and body; raise OSError if it takes longer."""
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
            if len(body) > _MOST_BYTES:
                raise ValueError("its answer is longer than 1 MiB")
            if time.monotonic() > until:  # otherwise a server that sends a byte a second would never time out
                raise TimeoutError("timed out")
        return answer.status or 0, body


def _reason(body: bytes) -> str:
    document = json.loads(body)
    reason = document.get("reason") if isinstance(document, dict) else None
    if not isinstance(reason, str):
        raise ValueError("/healthz gives no reason")
    return f"The aggregator reports a problem: {_fit(reason)}."


def _read(text: str, problem: str) -> AggregatorHealth:
    from prometheus_client.parser import text_string_to_metric_families  # imported only if needed

    metrics: dict[str, float] = {}
    reasons: dict[str, int] = {}
    expiries: dict[str, datetime.datetime] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "hushmote_certificate_expires_timestamp_seconds":
                end = datetime.datetime.fromtimestamp(sample.value, datetime.UTC)
                expiries[_fit(sample.labels["option"])] = end
            elif sample.name == "hushmote_reports_rejected_total":
                reasons[_fit(sample.labels["reason"])] = int(sample.value)
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
        expiries=expiries,
    )


def _fit(text: str) -> str:
    return shorten(one_line(text), _MOST_LETTERS)
