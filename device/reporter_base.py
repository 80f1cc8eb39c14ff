"""Everything that Hushmote's two reporters share except the sockets.

mqtt_reporter.Reporter (umqtt.simple, blocking) and async_reporter.AsyncReporter (asyncio) move bytes; this
file decides which bytes, in which order, when to retry, and what to publish as status. Time is the
millisecond counter's: without a wall clock, a wrong one changes nothing here.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import errno
import os
import time

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
    from .kept_experiments import beside_ledger
else:
    import ldp_client
    from kept_experiments import beside_ledger

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
        """Return milliseconds since some moment, as MicroPython does."""
        return int(time.monotonic() * 1000)

    def ticks_add(ticks, ms):
        """Return the moment ms later."""
        return ticks + ms

    def ticks_diff(ticks, since):
        """Return the milliseconds between two moments."""
        return ticks - since

    def sleep_ms(ms):
        """Sleep for ms milliseconds."""
        time.sleep(ms / 1000)


def left_ms(until_ms, most_ms):
    """Return the milliseconds to a moment that was at most most_ms ahead when it was set, 0 once it has come.

    A board's counter wraps: 6.2 to 12.4 days after a moment, ticks_diff says that it is far ahead.
    """
    ms = ticks_diff(until_ms, ticks_ms())
    return ms if 0 < ms <= most_ms else 0


NOT_MQTT = "the broker sent what is not MQTT"
FORBIDDEN = "the broker forbids the subscription"
_MAX_WAIT_S = const(16_000)  # in milliseconds it must fit DRBG.below()
_STEADY_MS = const(30_000)  # after a connection that lasted this long, the backoff starts again
_STORAGE_RETRY_MS = const(60_000)
_MAX_HEALTH_WORDS = const(8)

_CONNACK = (
    "the broker does not speak MQTT 3.1.1",
    "the broker refuses the client id",
    "the broker is not available",
    "the broker refuses the user name or password",
    "the broker does not authorize this client",
)


class ConnectionRefused(Exception):
    """The broker's CONNACK refuses the connection; its code, 1 to 5, is the argument."""


def reason(e):
    """Return one line of text on an error of a connection."""
    code = e.args[0] if e.args else None
    if isinstance(e, OSError):
        if code == errno.ETIMEDOUT:
            return "the broker did not answer in time"
        if code == errno.ECONNREFUSED:
            return "nothing listens at the broker's address and port"
        # -1 is umqtt.simple's own, 32 is EPIPE; mbedTLS passes a socket's errors on with the sign changed.
        if code in (errno.ECONNRESET, -errno.ECONNRESET, 32, -32, -1):
            return "the broker closed the connection"
        if code in (errno.EHOSTUNREACH, errno.ECONNABORTED, errno.ENOTCONN, 101):  # 101: ENETUNREACH
            return "the broker cannot be reached: is the network up?"
        if type(code) is int and code <= -0x1080:  # mbedTLS numbers its errors from here to -0x7fff
            if code == -0x7780:
                return "the broker refuses this board's certificate, or wants one"
            return "TLS failed, mbedTLS error -0x%x" % -code
        if type(code) is int and code < 0:  # getaddrinfo() of every port has its own negative numbers
            return "the broker's name was not found: is the network up?"
        return "network error, errno %s" % code
    if type(e).__name__ in ("MQTTException", "ConnectionRefused") and type(code) is int and 1 <= code <= 5:
        return _CONNACK[code - 1]
    if isinstance(e, MemoryError):
        return "out of memory"
    if isinstance(e, ValueError) and type(code) is str and "ertificate" in code:  # mbedTLS, in lines
        return "the broker is refused: " + " ".join(code.split())
    if isinstance(e, (AssertionError, IndexError, ValueError)):  # how umqtt.simple checks what it reads
        return NOT_MQTT
    return "%s: %s" % (type(e).__name__, code)


def _wait_ms(attempt, first_s, most_s, below):
    """Return a wait with full jitter: uniform over 0 up to first_s doubled at every attempt, at most most_s.

    The first attempt is number 0.
    """
    return below(min(first_s << min(attempt, 14), most_s) * 1000)


def _seconds(name, value, low, high):
    if type(value) is not int or not low <= value <= high:
        raise ldp_client.SettingsError("%s must be an integer from %d to %d seconds" % (name, low, high))
    return value


class Brokers:
    """A cluster's brokers; each attempt to connect takes the next.

    Boards begin anywhere and go round in either direction, so that the others share the boards of a broker
    that is down.

    Args:
        text: "host" or "host:port", several separated by commas.
        port: For those without one.

    Raises:
        ldp_client.SettingsError: If the text is malformed.
    """

    def __init__(self, text, port):
        self._all = []
        for broker in text.split(","):
            host, colon, own = broker.rpartition(":")
            if not colon or ":" in host:  # more colons than one: an IPv6 address, and no port
                host, own = broker, port
            elif own.isdigit():
                own = int(own)
            if not host or type(own) is not int:
                raise ldp_client.SettingsError(
                    "brokers are written host or host:port, as in a,b:1884: not " + text
                )
            self._all.append((host, own))
        entropy = os.urandom(2)
        self._at = entropy[0] % len(self._all)
        self._step = entropy[1] % 2 or -1

    def next(self):
        """Return the next (host, port)."""
        self._at = (self._at + self._step) % len(self._all)
        return self._all[self._at]


class BaseReporter:
    """One board's experiments and reports, and the state of its connection.

    Nothing that a broker, a network or a reading does raises an error after the start.

    Args:
        client: An ldp_client.Client with fleet.
        kept: A KeptExperiments of the same client; None for the folder "experiments" of the client's storage.
            If that is not a folder, pass KeptExperiments(client, None) to keep nothing: after each start any
            version ever signed is then accepted again, and status() says so.
        keepalive_s: 2 to 40,000; call poll() at least three times in it.
        timeout_s: 1 to 300: how long the broker may be silent if an answer is due. The look-up of its name
            has the firmware's own limit, which nothing here can shorten.
        delay_s: 0 to 16,000: each report waits for a time drawn from this range before it is sent, so that
            its arrival does not tell when it was made.
        backoff_s: The wait before an attempt to connect is drawn from 0 up to this, doubled at each failure.
        backoff_max_s: The longest such wait, 1 to 16,000.
        spread_s: 1 to 16,000: the first attempt after a start, and after a connection that had lasted, waits
            for a time drawn from this range instead, since the same outage may have hit a whole region; None
            for backoff_s.
        settle_s: 1 to 16,000: an experiment that the broker has not repeated this long after a reconnect was
            withdrawn meanwhile.

    Attributes:
        connected: Whether the session is up.
        error: The network's last problem, None or a line of text.
        fault: The flash's or the random source's, None or a line of text.
        connects: Number of connections so far.
        sent: Number of reports sent so far.
        refused: name -> reason, of experiments.
        mistyped: name -> reason, of readings of the wrong type.
        on_report: None, or a function that is called with each report in words; may be set.

    Raises:
        ldp_client.SettingsError: If a setting is out of range.
    """

    def __init__(
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
    ):
        if client.fleet is None:
            raise ldp_client.SettingsError("the client has no fleet, so its topics are unknown: give it one")
        self._keepalive_s = _seconds("keepalive_s", keepalive_s, 2, 40_000)
        self._timeout_ms = _seconds("timeout_s", timeout_s, 1, 300) * 1000
        self._delay_ms = _seconds("delay_s", delay_s, 0, _MAX_WAIT_S) * 1000
        self._backoff_s = _seconds("backoff_s", backoff_s, 1, _MAX_WAIT_S)
        self._backoff_max_s = _seconds("backoff_max_s", backoff_max_s, backoff_s, _MAX_WAIT_S)
        self._settle_ms = _seconds("settle_s", settle_s, 1, _MAX_WAIT_S) * 1000
        spread_s = backoff_s if spread_s is None else spread_s
        self._spread_ms = _seconds("spread_s", spread_s, 1, _MAX_WAIT_S) * 1000
        self._most_wait_ms = max(spread_s, backoff_max_s) * 1000
        self._client = client
        # Not the client's generator: these waits are visible, so no report may share a draw with them.
        self._below = ldp_client.DRBG(os.urandom(32) + client.device_id.encode()).below
        self._kept = kept or beside_ledger(client)
        prefix = "hushmote/v1/%s/" % client.fleet
        self._experiment_prefix = (prefix + "experiment/").encode()
        self._report_topic = (prefix + "report/" + client.device_id).encode()
        self._status_topic = (prefix + "status/" + client.device_id).encode()
        self._names = sorted(client.status()["experiments"])  # the policy's: nothing else is subscribed to
        self._heard = set()  # names for which this connection has brought a message
        self._attempt = 0
        self._steady_ms = self._settled_ms = self._due_ms = self._storage_ms = None
        self._ping_ms = self._next_ms = self._acknowledged = None
        self._last_status = b""  # the status topic's content
        self._unsure = False  # whether it should be another one by now
        self.connected = self._pinged = False
        self.error = self.fault = None
        self.connects = self.sent = 0
        self.refused, self.mistyped = {}, {}
        self.on_report = None  # called with each report in words, as it is made

    # The application's side

    def report(self, name, value, drawn=None):
        """Make a report of a reading, as Client.report() does, and send it some time later.

        A value of the wrong type counts as no reading, and its name is in mistyped: silence must not depend
        on what a sensor returned. If the random source or the flash fails, nothing is spent, and status()
        says so.

        Returns:
            The report, or None.
        """
        self._unsure = True  # a budget may be exhausted now
        self.mistyped.pop(name, None)
        try:
            try:
                report = self._client.report(name, value, drawn)
            except TypeError as e:
                self.mistyped[name] = str(e)
                report = self._client.report(name, None, drawn)
        except ldp_client.LDPError as e:
            self.fault = str(e)
            return None
        if self._storage_ms is None:
            self.fault = None
        if report is not None and self.on_report is not None:
            preview = ldp_client._beside("preview")
            self.fault = preview.show(self.on_report, self._client, report) or self.fault
        return report

    def status(self):
        """Return one line: whether connected, what waits, and the last problems, the most urgent first."""
        client = self._client.status()
        waiting = "; %d sent, %d waiting" % (self.sent, client["pending"])
        if self.connected:
            line = "connected" + waiting
        elif not client["consent"]:
            line = "silent: " + ("nobody said yes yet" if client["consent"] is None else "someone said no")
        else:
            line = "not connected, next attempt in %d s" % ((self._wait_ms() + 999) // 1000) + waiting
        for problem in (client["locked"], client["error"], self.fault, self._kept.fault, self.error):
            if problem and problem not in line:
                line += "; " + problem
        if self._kept._folder is None:
            line += "; nothing is kept"
        for name in sorted(self.mistyped):
            line += "; " + self.mistyped[name]
        for name in sorted(self.refused):
            line += "; %s refused: %s" % (name, self.refused[name])
        return line

    # The broker's side

    def _health(self, state):
        """Return the status topic's content: "online" or "offline", then what a person should attend to.

        locked; fault: the flash or the random source failed; spent:NAME; refused:NAME; more if there would be
        over 8 words. None of these depends on a reading: random draws alone spend a budget.
        """
        status = self._client.status()
        words = [state]
        if status["locked"]:
            words.append("locked")
        if status["error"] or self.fault or self._kept.fault:
            words.append("fault")
        for name in self._names:
            kind = status["experiments"][name]["state"]
            if kind == "refused" or name in self.refused:
                words.append("refused:" + name)
            elif kind == "spent" and not status["locked"]:
                words.append("spent:" + name)
        if len(words) > _MAX_HEALTH_WORDS:
            words[_MAX_HEALTH_WORDS - 1 :] = ["more"]
        return " ".join(words).encode()

    def _news(self):
        """Return what the status topic should hold by now, or None if it holds that already."""
        if not self._unsure:
            return None
        self._unsure = False
        health = self._health("online")
        if health == self._last_status:
            return None
        self._last_status = health
        return health

    def _take(self, topic, payload):
        """Put a message aside; quick, since the client object calls it even while it waits for an answer."""
        for name in self._names:
            if topic == self._experiment_prefix + name.encode():
                self._heard.add(name)
                self._kept.put_aside(name, payload)

    def _consider(self):
        """Take one experiment that came. Feed a watchdog before, and never take two in one step."""
        name, why = self._kept.consider()
        self._unsure = True
        self.refused.pop(name, None)
        if why:
            self.refused[name] = why

    def _is_connected(self):
        """Start the session, once the connection has every subscription."""
        now = ticks_ms()
        self.connected = True
        self.error = None
        self.connects += 1
        self._storage_ms = None
        self._steady_ms = ticks_add(now, _STEADY_MS)
        self._settled_ms = ticks_add(now, self._settle_ms)
        self._ping_ms = now
        self._pinged = False

    def _must_ping(self):
        """Return whether a ping is due, and count it as sent; raise OSError if its answer is overdue."""
        wait_ms = self._timeout_ms if self._pinged else self._keepalive_s * 500
        if left_ms(ticks_add(self._ping_ms, wait_ms), wait_ms):
            return False
        if self._pinged:  # a half-open connection: the other end is gone without notice
            raise OSError(errno.ETIMEDOUT)
        self._ping_ms = ticks_ms()
        self._pinged = True
        return True

    def _settle(self, now=False):
        """Withdraw what was withdrawn while the board was offline: the broker no longer repeats it."""
        if self._steady_ms is not None and not left_ms(self._steady_ms, _STEADY_MS):
            self._steady_ms = None
            self._attempt = 0
        if self._settled_ms is None or (not now and left_ms(self._settled_ms, self._settle_ms)):
            return
        self._settled_ms = None
        for name in self._names:
            if name not in self._heard and self._kept.absent(name):
                self._unsure = True
                if self.refused.get(name) != FORBIDDEN:
                    self.refused.pop(name, None)

    def _due(self, now):
        """Return the report to send next, if one is due. With `now`, the random delay is left out."""
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

    def _delivered(self, report):
        """Handle the broker's acknowledgement; return whether the report is out of the flash as well."""
        self.sent += 1
        self._due_ms = None
        self._acknowledged = report
        return self._confirm()

    def _confirm(self):
        """Remove the acknowledged report from the flash; if that fails, try again much later."""
        if self._storage_ms is not None and left_ms(self._storage_ms, _STORAGE_RETRY_MS):
            return False
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
            # The first attempt waits as well: after a power cut the boards of a whole street start at once.
            self._next_ms = ticks_add(ticks_ms(), self._below(self._spread_ms))
        return left_ms(self._next_ms, self._most_wait_ms)

    def _is_lost(self, why):
        """End the connection, or the attempt to connect; the next attempt waits."""
        if self.connected and not self._attempt:  # it had lasted
            wait_ms = self._below(self._spread_ms)
        else:
            wait_ms = _wait_ms(self._attempt, self._backoff_s, self._backoff_max_s, self._below)
        self._next_ms = ticks_add(ticks_ms(), wait_ms)
        self._attempt += 1
        self.error = why
        self.connected = False
