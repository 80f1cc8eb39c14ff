"""The aggregator's process: stopping at SIGTERM or Ctrl-C, notifying systemd, and logging.

The log has plain lines or one JSON object per line, and never contains a device id, payload or client.
"""

import contextlib
import datetime
import json
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Thread

from ...device.ldp_client import LDPError
from ..aggregator import Aggregator, Counters
from ..errors import HushmoteError
from ..ingest.pipeline import CONFLICTING_NUMBER
from ..ingest.recent_reports import CONFLICT_MEANING
from ..ingest.status import TURN_S
from ..plain_text import one_line

log = logging.getLogger(__name__)

READY = "ready"  # printed to standard output once the aggregator is subscribed and experiments are published

STOP_S = 20.0  # longer than a store waits for a lock, shorter than a service manager waits
_TICK_S = 0.2
_WATCHDOG_S = 10.0
_MINUTE_S = 60.0


class Fault(HushmoteError):
    """Raised for a bug in Hushmote, which no report, broker or store should be able to cause."""


class TextLines(logging.Formatter):
    """Formats records as one line each, without control characters or line breaks."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return one_line(super().formatMessage(record))


class JsonLines(logging.Formatter):
    """Formats records as one object per line with time (UTC), level, event and `extra={"fields": ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": one_line(record.getMessage()),
        }
        return json.dumps(line | getattr(record, "fields", {}))


def set_up_log(*, as_json: bool) -> None:
    """Log to standard error at level info, as text or as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def announce_ready() -> None:
    """Tell the parent process that reports are being counted."""
    print(READY, flush=True)
    notify(READY=1)


def notify(**fields: str | int) -> None:
    """Send fields such as READY=1, STATUS=..., WATCHDOG=1 or STOPPING=1 to systemd, without ever raising.

    It uses the socket described in sd_notify(3), and does nothing if there is no socket.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    text = "\n".join(f"{name}={value}" for name, value in fields.items())
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.settimeout(1.0)
        s.sendto(text.encode(), address.replace("@", "\0", 1))


@contextlib.contextmanager
def catch_signals(callback: Callable[[], object] = lambda: None) -> Iterator[list[int]]:
    """Yield the list of received SIGTERMs and SIGINTs, and call the callback for each."""
    received: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        received.append(number)
        callback()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(aggregator: Aggregator) -> None:
    """Run an aggregator until SIGTERM or SIGINT arrives or it ends.

    After a signal it commits and acknowledges everything that has arrived. If the store hangs, it gives up
    after STOP_S seconds or a second signal, and the process ends with status 0, because uncommitted messages
    were not acknowledged and stay at the broker.

    Raises:
        HushmoteError: If Aggregator.run() raises it.
        Fault: If a bug ended the aggregator.
    """
    errors: list[BaseException] = []

    def work() -> None:
        try:
            aggregator.run()
        except BaseException as e:  # raised again in the main thread
            errors.append(e)

    # Use a separate thread because the main thread cannot handle signals while inside a database driver.
    thread = Thread(target=work, name="aggregator", daemon=True)
    with catch_signals(aggregator.stop) as received:
        thread.start()
        _watch(aggregator, thread, received)
        counters = aggregator.counters
        if thread.is_alive():  # inside `with`, so that another signal does not set the exit status
            waiting = aggregator.condition.uncommitted
            _log_counters(f"stopped without the store: {waiting} messages wait at the broker; ", counters)
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)  # a thread that hangs in a driver could keep the interpreter from exiting
    for error in errors:
        if isinstance(error, (HushmoteError, LDPError)):
            raise error
        # Anything else is a bug. Its text may contain device data, so log only the locations, innermost last.
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        places = " > ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames)
        where = f"{type(error).__name__} at {places}"
        raise Fault(f"stopped by a fault in Hushmote, {where}: please report it") from None
    _log_counters("stopped: ", counters)


def _watch(aggregator: Aggregator, thread: Thread, received: Sequence[int]) -> None:
    """Return when the aggregator has ended, or must be abandoned."""
    stop_by: float | None = None
    watchdog_at, status = 0.0, ""
    minute, last = time.monotonic(), Counters()
    while thread.is_alive():
        thread.join(_TICK_S)
        now = time.monotonic()
        if len(received) > 1 or (stop_by is not None and now > stop_by):
            return
        if received and stop_by is None:
            stop_by = now + STOP_S
            notify(STOPPING=1)
        condition = aggregator.condition
        if condition.since_turn_s < TURN_S and now - watchdog_at > _WATCHDOG_S:
            notify(WATCHDOG=1)
            watchdog_at = now
        if condition.state != status:
            status = condition.state
            notify(STATUS=status)
        if now - minute >= _MINUTE_S:
            _log_rejects(last, aggregator.counters, now - minute)
            if condition.state and not condition.connected:
                # Repeated every minute, for anyone who reads the log later.
                log.warning("%s", condition.state)
            minute, last = now, aggregator.counters


def _words(rejected: Counter[str]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(rejected.items()))


def _log_rejects(last: Counters, now: Counters, seconds: float) -> None:
    """Log how many reports were rejected since the last time, by reason."""
    rejected = Counter(now.rejected) - Counter(last.rejected)
    if rejected:
        fields = {"rejected": dict(rejected), "accepted": now.accepted - last.accepted}
        log.info("rejected in %.0f s: %s", seconds, _words(rejected), extra={"fields": fields})
    if rejected[CONFLICTING_NUMBER]:
        log.warning("different reports have the same number: %s", CONFLICT_MEANING)


def _log_counters(start: str, counters: Counters) -> None:
    rejected = Counter(counters.rejected)
    log.info(
        "%s%d %s accepted; rejected: %s",
        start,
        counters.accepted,
        "report" if counters.accepted == 1 else "reports",
        _words(rejected) or "none",
        extra={"fields": {"accepted": counters.accepted, "rejected": dict(rejected)}},
    )
