"""Everything that Hushmote's two reporters share except the sockets.

mqtt_reporter.Reporter (umqtt.simple, blocking) and async_reporter.AsyncReporter (asyncio) move bytes; this
file decides which bytes to send in which order, when to retry, and what to publish as status. All times come
from the millisecond counter, so a missing or wrong wall clock makes no difference here.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import errno
import os
import time

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client

try:
    from micropython import const
except ImportError:  # CPython
    const = int

try:
    ticks_ms = time.ticks_ms  # type: ignore
    ticks_add = time.ticks_add  # type: ignore
    ticks_diff = time.ticks_diff  # type: ignore
    sleep_ms = time.sleep_ms  # type: ignore
except AttributeError:  # CPython

    def ticks_ms():
        """Return the milliseconds since an arbitrary moment, as in MicroPython."""
        return int(time.monotonic() * 1000)

    def ticks_add(now, ms):
        """Return the moment that is ms milliseconds later."""
        return now + ms

    def ticks_diff(now, last):
        """Return the milliseconds between two moments."""
        return now - last

    def sleep_ms(ms):
        """Sleep for ms milliseconds."""
        time.sleep(ms / 1000)


def left_ms(until_ms, timeout_ms):
    """Return the milliseconds until a moment that was set at most timeout_ms ahead, or 0 if it has passed.

    A board's counter wraps: 6.2 to 12.4 days after the moment, ticks_diff reports that it is far ahead.
    """
    ms = ticks_diff(until_ms, ticks_ms())
    return ms if 0 < ms <= timeout_ms else 0


NOT_MQTT = "the broker sent something that is not MQTT"
FORBIDDEN = "the broker forbids the subscription"
# Indices of `failures`, and the numbers that count. Each module has its own constants, which the compiler
# replaces, because a name that modules share takes memory on a board for good.
_STATUS = const(0)
_WILL = const(1)
_SHORT = const(2)
_LEFT_OUT = const(2)  # connections in a row that must end because of the status topic or the will
_SUSPECT = const(3)  # connections in a row that must end early before another board is suspected
_MAX_WAIT_S = const(16_000)  # must fit DRBG.below() in milliseconds
_SPREAD_S = const(60)
_STEADY_MS = const(30_000)  # a connection that lasts this long resets the backoff
_STORAGE_RETRY_MS = const(60_000)
_MAX_HEALTH_WORDS = const(8)


class ConnectionRefused(Exception):
    """The broker's CONNACK refused the connection; the argument is its code."""


def _wait_ms(attempt, backoff_s, backoff_max_s, below):
    """Return a wait with full jitter: uniform from 0 to backoff_s << attempt, or to backoff_max_s if less.

    The first attempt has index 0.
    """
    return below(min(backoff_s << min(attempt, 14), backoff_max_s) * 1000)


def _seconds(name, value, low, high):
    if type(value) is not int or not low <= value <= high:
        raise ldp_client.SettingsError("%s must be an integer from %d to %d seconds" % (name, low, high))
    return value


class Brokers:
    """A cluster's brokers; each connection attempt uses the next one.

    Boards start anywhere and cycle in either direction, so that if a broker is down, the others share its
    boards.

    Args:
        text: "host" or "host:port", several separated by commas; IPv6 addresses in brackets.
        port: The port of those without one.

    Raises:
        ldp_client.SettingsError: If the text is malformed.
    """

    def __init__(self, text, port):
        self._all = []
        for broker in text.split(","):
            host, colon, broker_port = broker.rpartition(":")
            if not colon or (":" in host and host[-1] != "]"):
                host, broker_port = broker, port  # an IPv6 address without a port has colons, too
            elif broker_port.isdigit():
                broker_port = int(broker_port)
            if host[:1] == "[" and host[-1] == "]":
                host = host[1:-1]
            if not host or "[" in host or type(broker_port) is not int:
                raise ldp_client.SettingsError(
                    "write brokers as host or host:port, as in a,b:1884,[fd00::5]:1884; not " + text
                )
            self._all.append((host, broker_port))
        entropy = os.urandom(2)
        self._at = entropy[0] % len(self._all)
        self._step = entropy[1] % 2 or -1

    def next(self):
        """Return the next (host, port)."""
        self._at = (self._at + self._step) % len(self._all)
        return self._all[self._at]


class BaseReporter:
    """A board's experiments and reports, and the state of its connection.

    Once it is running, nothing that a broker, a network or a reading does raises an error.

    Args:
        client: An ldp_client.Client with a fleet.
        kept: A KeptExperiments of the same client; None for the subfolder "experiments" of the client's
            storage folder. If the storage is not a folder, pass KeptExperiments(client, None) to store
            nothing: any version ever signed is then accepted again after each start, and status() says so.
        keepalive_s: 2 to 40,000; call poll() at least three times in this period.
        timeout_s: 1 to 300: how long the broker may take to answer. The name look-up has the firmware's own
            limit, which cannot be shortened here.
        delay_s: 0 to 16,000: the upper limit of each report's random delay before it is sent, which hides
            when the report was made.
        backoff_s: The wait before a connection attempt is drawn from 0 to this, doubled after each failure.
        backoff_max_s: The longest such wait, 1 to 16,000.
        spread_s: 1 to 16,000: the upper limit of the random wait before the first attempt after a start or
            after a lasting connection, since the same outage may have hit a whole region; None for 60, or the
            interval between calls of report() if it is shorter.
        settle_s: 1 to 16,000: an experiment that the broker has not repeated this long after a reconnect
            counts as withdrawn.
        status: Whether to publish the status topic, if the broker permits it.
        will: Whether to set "offline" as the last will, if the broker permits it.
        topic_prefix: Topic levels before hushmote/v1, such as "tenants/acme"; the aggregator needs the same.

    Attributes:
        connected: Whether the session is up.
        error: The last network problem, None or a line of text.
        fault: The last problem with the flash or the random source, None or a line of text.
        connects: Number of connections so far.
        sent: Number of reports sent so far.
        refused: name -> reason, for experiments; NAME/proof if the broker forbids the topic of its proof.
        mistyped: name -> reason, for readings of the wrong type.
        failures: Three numbers of connections in a row: those that ended because of the status topic, and
            because of the last will, each left out from 2 on until a lasting connection ends, or -1 if turned
            off; and those that the broker closed within 30 s for no known reason, from 3 on a sign that
            another device is using this id.
        on_report: None, or a function that is called with each report's description; may be set.

    Raises:
        ldp_client.SettingsError: If a setting is out of range.
    """

    def __init__(  # noqa: PLR0913 - one for each setting
        self,
        client,
        kept=None,
        keepalive_s=60,
        timeout_s=10,
        delay_s=30,
        backoff_s=2,
        backoff_max_s=300,
        settle_s=10,
        spread_s=None,
        status=True,
        will=True,
        topic_prefix="",
    ):
        if client.fleet is None:
            raise ldp_client.SettingsError("the client has no fleet, which its topics need: pass fleet")
        self._keepalive_s = _seconds("keepalive_s", keepalive_s, 2, 40_000)
        self._timeout_ms = _seconds("timeout_s", timeout_s, 1, 300) * 1000
        self._delay_ms = _seconds("delay_s", delay_s, 0, _MAX_WAIT_S) * 1000
        self._backoff_s = _seconds("backoff_s", backoff_s, 1, _MAX_WAIT_S)
        self._backoff_max_s = _seconds("backoff_max_s", backoff_max_s, backoff_s, _MAX_WAIT_S)
        self._settle_ms = _seconds("settle_s", settle_s, 1, _MAX_WAIT_S) * 1000
        # The first name reported, and when it last was: the interval limits the default spread.
        self._last = [None, 0] if spread_s is None else None
        spread_s = _SPREAD_S if spread_s is None else spread_s
        self._spread_ms = _seconds("spread_s", spread_s, 1, _MAX_WAIT_S) * 1000
        self._client = client
        # Do not use the client's generator: these waits are visible, so no report may share a draw with them.
        self._below = ldp_client.DRBG(os.urandom(32) + client.device_id.encode()).below
        self._kept = kept or ldp_client._import_sibling("reporter_status").kept_in_ledger_folder(client)
        where = client.fleet, client.device_id
        root = (topic_prefix + "/" if topic_prefix else "") + "hushmote/v1/"
        # The topics of the policy's experiments; we subscribe to nothing else.
        self._names = {}
        for name in sorted(client._policy["experiments"]):
            self._names[name] = (root + client.fleet + "/experiment/" + name).encode()
        if client.log:
            client.log.subscribe(self)
        self._report_topic = (root + "%s/report/%s" % where).encode()
        self._status_topic = (root + "%s/status/%s" % where).encode()
        self._seen_names = set()  # names for which a message arrived on this connection
        self._attempt = 0
        self._steady_ms = self._settled_ms = self._due_ms = self._storage_ms = None
        self._ping_ms = self._next_ms = self._acknowledged = None
        self._last_status = b""  # the status topic's content
        self._health_is_stale = False  # whether that content may be out of date
        self.topic = None  # of the packet that awaits its answer; True for CONNECT
        self.failures = [0 if status else -1, 0 if will else -1, 0]
        self.connected = self._pinged = False
        self.error = self.fault = None
        self.connects = self.sent = 0
        self.refused, self.mistyped = {}, {}
        self.on_report = None  # called with each report's description, as it is made

    # The application's side

    def report(self, name, value, drawn=None, group=None):
        """Make a report from a reading, as Client.report() does, and send it some time later.

        A value of the wrong type counts as no reading, and its name is added to mistyped: silence must not
        depend on what a sensor returned. If the random source or the flash fails, nothing is spent, and
        status() says so.

        Returns:
            The report, or None.
        """
        self._health_is_stale = True  # a budget may be exhausted now
        last = self._last
        if last is not None and last[0] in (None, name):
            now = ticks_ms()
            if last[0] is not None:
                interval_ms = ticks_diff(now, last[1])  # negative after 6.2 days, as the counter wraps
                self._spread_ms = interval_ms if 0 < interval_ms < _SPREAD_S * 1000 else _SPREAD_S * 1000
            last[:] = name, now
        self.mistyped.pop(name, None)
        try:
            try:
                report = self._client.report(name, value, drawn, group)
            except TypeError as e:
                self.mistyped[name] = str(e)
                report = self._client.report(name, None, drawn, group)
        except ldp_client.LDPError as e:
            self.fault = str(e)
            return None
        if self._storage_ms is None:
            self.fault = None
        if report is not None and self.on_report is not None:
            preview = ldp_client._import_sibling("preview")
            self.fault = preview.show(self.on_report, self._client, report) or self.fault
        return report

    def status(self):
        """Return one line: the connection, the number of waiting reports, and problems, most urgent first."""
        return ldp_client._import_sibling("reporter_status").status(self)

    # The broker's side

    def _health(self, state):
        """Return the status topic's content: "online" or "offline", then what a person should attend to.

        locked; fault: the flash or the random source failed; duplicate-id: another device may be using this
        id; spent:NAME; refused:NAME; more if there would be over 8 words. None of these depends on a reading:
        random draws alone spend a budget.
        """
        status = self._client.status()
        words = [state]
        if status["locked"]:
            words.append("locked")
        if status["error"] or self.fault or self._kept.fault:
            words.append("fault")
        if self.failures[_SHORT] >= _SUSPECT:
            words.append("duplicate-id")
        for name in sorted(status["experiments"]):
            kind = status["experiments"][name]["state"]
            if kind == "refused" or name in self.refused:
                words.append("refused:" + name)
            elif kind == "spent" and not status["locked"]:
                words.append("spent:" + name)
        if len(words) > _MAX_HEALTH_WORDS:
            words[_MAX_HEALTH_WORDS - 1 :] = ["more"]
        return " ".join(words).encode()

    def _changed_health(self):
        """Return what the status topic should now hold, or None if it already holds that or is left out."""
        is_stale, self._health_is_stale = self._health_is_stale, False
        if not is_stale or not 0 <= self.failures[_STATUS] < _LEFT_OUT:
            return None
        health = self._health("online")
        if health == self._last_status:
            return None
        self._last_status = health
        return health

    def _take(self, topic, payload):
        """Store a message for later; fast: the client object calls this even while it awaits an answer."""
        for name in self._names:
            if topic == self._names[name]:
                self._seen_names.add(name)
                self._kept.put_aside(name, payload)

    def _process_message(self):
        """Process one waiting experiment. Feed a watchdog first, and never process two in one step."""
        name, why = self._kept.consider()
        self._health_is_stale = True
        self.refused.pop(name, None)
        if why:
            self.refused[name] = why

    def _start_session(self):
        """Start the session, once all subscriptions are in place; the status follows after due reports."""
        now = ticks_ms()
        if self.failures[_WILL] == 1:
            self.failures[_WILL] = 0
        self.topic = None
        self._last_status = b""
        self._health_is_stale = True
        self.connected = True
        self.error = None
        self.connects += 1
        self._storage_ms = None
        self._steady_ms = ticks_add(now, _STEADY_MS)
        self._settled_ms = ticks_add(now, self._settle_ms)
        self._ping_ms = now
        self._pinged = False

    def _must_ping(self):
        """Return whether to send a ping, and mark it as sent; raise OSError if its answer is overdue."""
        wait_ms = self._timeout_ms if self._pinged else self._keepalive_s * 500
        if left_ms(ticks_add(self._ping_ms, wait_ms), wait_ms):
            return False
        if self._pinged:  # a half-open connection: the other end disappeared without notice
            raise OSError(errno.ETIMEDOUT)
        self._ping_ms = ticks_ms()
        self._pinged = True
        return True

    def _settle(self, now=False):
        """Withdraw experiments that were withdrawn while the board was offline: the broker omits them."""
        if self._steady_ms is not None and not left_ms(self._steady_ms, _STEADY_MS):
            self._steady_ms = None
            self._attempt = 0
            if self.failures[_SHORT]:
                self.failures[_SHORT] = 0
                self._health_is_stale = True
        if self._settled_ms is None or (not now and left_ms(self._settled_ms, self._settle_ms)):
            return
        self._settled_ms = None
        for name in self._names:
            if name not in self._seen_names and self._kept.absent(name):
                self._health_is_stale = True
                if self.refused.get(name) != FORBIDDEN:
                    self.refused.pop(name, None)

    def _due_report(self, now):
        """Return the next report to send, if one is due. With `now`, skip the random delay."""
        if self._acknowledged is not None and not self._confirm():
            return None
        reports = self._client.outbox()
        if not reports:
            self._due_ms = None
            return None
        if not now:
            if self._due_ms is None:
                self._due_ms = ticks_add(ticks_ms(), self._below(self._delay_ms or 1))
            if left_ms(self._due_ms, self._delay_ms):
                return None
        return reports[0]

    def _handle_ack(self, report):
        """Handle the broker's acknowledgement; return whether the report was also removed from flash."""
        self.sent += 1
        self._due_ms = None
        self._acknowledged = report
        return self._confirm()

    def _confirm(self):
        """Remove the acknowledged report from flash; if that fails, try again much later."""
        if self._storage_ms is not None and left_ms(self._storage_ms, _STORAGE_RETRY_MS):
            return False
        self._health_is_stale = True  # the flash may have failed or recovered
        try:
            self._client.sent(self._acknowledged)
        except ldp_client.LDPError as e:
            self.fault = str(e)
            self._storage_ms = ticks_add(ticks_ms(), _STORAGE_RETRY_MS)
            return False
        self._storage_ms = self.fault = self._acknowledged = None
        return True

    def _wait_ms(self):
        """Return the milliseconds until the next attempt to connect."""
        if self._next_ms is None:
            # The first attempt waits as well: after a power cut, a whole street's boards start at once.
            self._next_ms = ticks_add(ticks_ms(), self._below(self._spread_ms))
        return left_ms(self._next_ms, max(self._spread_ms, self._backoff_max_s * 1000))

    def reason(self, e):
        """Return one line about an error that ended the connection, after counting what may be its cause."""
        try:
            return ldp_client._import_sibling("reporter_status").reason(self, e)
        except Exception:  # out of memory, or the flash is failing
            return type(e).__name__

    def _mark_lost(self, reason):
        """End the connection or the attempt to connect, and schedule the next attempt."""
        if self.connected and not self._attempt:  # the connection had lasted
            wait_ms = self._below(self._spread_ms)
            for at in (_STATUS, _WILL):
                if self.failures[at] == _LEFT_OUT:  # try once more: the broker's rules may have changed
                    self.failures[at] = 1
        else:
            wait_ms = _wait_ms(self._attempt, self._backoff_s, self._backoff_max_s, self._below)
        self._next_ms = ticks_add(ticks_ms(), wait_ms)
        self._attempt += 1
        self.error = reason
        self.connected = False
