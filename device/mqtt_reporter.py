"""Hushmote's reporter: carry a client's experiments and reports over MQTT, through every outage.

It joins an ldp_client.Client to a client object with umqtt.simple's interface. Experiments come in as
retained messages, reports go out at QoS 1, oldest first, and leave the flash only once the broker has
acknowledged them. It sees no reading but on its way to Client.report(), makes no bytes of its own,
and never touches Wi-Fi: bring the network up, and keep it up, beside it.

    def make_mqtt():
        return MQTTClient(DEVICE_ID, "broker.example.org")

    reporter = Reporter(client, make_mqtt)
    while True:                                always on: a step now and then, at least every 20 s
        reporter.poll()
        reporter.report("room_temp", read())   on a fixed rhythm, never because a reading changed

    reporter.flush(20_000, {"room_temp": read()})        deep sleep: one call between two sleeps

Topics: hushmote/v1/<fleet>/experiment/<name>, .../report/<device>, .../status/<device>, which holds
"online" or "offline", retained, the latter also as the last will.

Time is the millisecond counter's alone: no wall clock, so a wrong one changes nothing here.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import errno
import sys
import time

if "." in __name__:  # the package on CPython; on a board both files lie side by side
    from . import ldp_client
else:
    import ldp_client

try:
    from micropython import const
except ImportError:  # CPython

    def const(x):
        return x


try:
    _ticks_ms = time.ticks_ms
    _ticks_add = time.ticks_add
    _ticks_diff = time.ticks_diff
    _sleep_ms = time.sleep_ms
except AttributeError:  # CPython

    def _ticks_ms():
        return int(time.monotonic() * 1000)

    def _ticks_add(ticks, ms):
        return ticks + ms

    def _ticks_diff(ticks, since):
        return ticks - since

    def _sleep_ms(ms):
        time.sleep(ms / 1000)


_MAX_WAIT_S = const(16_000)  # in milliseconds it must fit DRBG.below()
_MAX_MESSAGE_BYTES = const(1100)  # an experiment has at most 1024, a zero byte and a 16-byte signature
_MESSAGES_PER_POLL = const(8)  # a flood of messages must not starve the application
_QUIET_MS = const(500)  # flush(): nothing for so long means that there is nothing more
_STEADY_MS = const(30_000)  # a connection that lasted so long was a good one
_STORAGE_RETRY_MS = const(60_000)
# umqtt.simple numbers its QoS 1 packets with a counter that only grows. MQTT's packet ids have 16 bits:
# after 65,535 packets of one client object the id on the wire starts again at 0, which MQTT forbids, and
# the id that comes back never equals the counter again, so publish() waits for ever. One packet is in
# flight at a time, so an id may be used again as soon as publish() or subscribe() is back.
_LAST_PACKET_ID = 65_000
_NOT_MQTT = "the broker sent what is not MQTT"


class _Link:
    """A connected socket as umqtt.simple uses it, which gives up where umqtt.simple would wait for ever.

    umqtt.simple's wait_msg() ends with setblocking(True), which also takes a timeout off the socket. So
    the timeout has to live between the two. raw is the TCP socket below sock (the same without TLS):
    a TLS socket has no settimeout() of its own.

    It also gathers what umqtt.simple writes in five pieces, and sends it when an answer is read: one TCP
    segment and one TLS record per packet. In pieces each publication took 44 ms on one machine: Nagle's
    algorithm at one end waits for the acknowledgement that the other end delays.
    """

    def __init__(self, sock, raw, timeout_s):
        self._sock = sock
        self._raw = raw
        self._timeout_s = timeout_s
        self._blocking = True
        self._until_ms = _ticks_ms()
        self._out = bytearray()
        self.heard = False  # something came in since this was last set to False
        self.setblocking(True)

    def limit(self, until_ms):
        """Let everything up to the next call end by until_ms, a value of the millisecond counter."""
        self._until_ms = until_ms

    def setblocking(self, flag):
        self._blocking = flag
        if flag:
            self._raw.settimeout(self._timeout_s)
        else:
            self._send()  # in blocking mode still
            self._raw.setblocking(False)

    def _send(self):
        if self._out:
            out = self._out
            self._out = bytearray()
            self._sock.write(out)

    def read(self, n):
        self._send()
        # More than one timeout: a broker that keeps talking, but never says what is waited for.
        if _ticks_diff(self._until_ms, _ticks_ms()) < 0:
            raise OSError(errno.ETIMEDOUT)
        if n <= 0:
            if n < 0:  # a length that contradicts itself; read(-1) would wait for the end of the stream
                raise ValueError(_NOT_MQTT)
            return b""
        if n > _MAX_MESSAGE_BYTES:
            # Nothing that is ours. The start is enough to refuse it by; the rest never gets memory.
            data = self.read(_MAX_MESSAGE_BYTES)
            n -= _MAX_MESSAGE_BYTES
            while n:
                part = min(n, 64)
                self.read(part)
                n -= part
            return data
        data = self._sock.read(n)
        if data is None:
            if self._blocking:  # umqtt.simple would take this for "no message" and wait again
                raise OSError(errno.ETIMEDOUT)
            return None
        if len(data) < n:
            raise OSError(errno.ECONNRESET)
        self.heard = True
        return data

    def write(self, data, n=-1):
        self._out += data if n < 0 else data[:n]

    def close(self):
        sock = self._sock
        if sock is not None:  # once: a second close could hit somebody else's socket
            try:
                if self._out[-2:] == b"\xe0\0":  # DISCONNECT; anything else is half a packet
                    self._send()
            finally:
                self._sock = None
                sock.close()


class _Sockets:
    """Stands in for umqtt.simple's socket module during connect(): its sockets have a timeout from the start.

    umqtt.simple 1.3.4 knows no connect(timeout=): a broker that takes the TCP connection and then says
    nothing held the board for ever. It also keeps the TCP socket, which TLS will hide.
    """

    def __init__(self, module, timeout_s):
        self._module = module
        self._timeout_s = timeout_s
        self.raw = None

    def __getattr__(self, name):
        return getattr(self._module, name)

    def socket(self, *args):
        self.raw = self._module.socket(*args)
        self.raw.settimeout(self._timeout_s)
        return self.raw


_CONNACK = (
    "the broker does not speak MQTT 3.1.1",
    "the broker refuses the client id",
    "the broker is not available",
    "the broker refuses the user name or password",
    "the broker does not authorize this client",
)


def _reason(e):
    """One line of text for what a client object raised."""
    code = e.args[0] if e.args else None
    if isinstance(e, OSError):
        if code == errno.ETIMEDOUT:
            return "the broker did not answer in time"
        if code == errno.ECONNREFUSED:
            return "nothing listens at the broker's address and port"
        if code == errno.ECONNRESET or code == -1 or code == 32:  # -1: umqtt.simple's own; 32: EPIPE
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
    if type(e).__name__ == "MQTTException" and type(code) is int and 1 <= code <= 5:
        return _CONNACK[code - 1]
    if isinstance(e, MemoryError):
        return "out of memory"
    if isinstance(e, ValueError) and type(code) is str and "ertificate" in code:  # mbedTLS, in lines
        return "the broker is refused: " + " ".join(code.split())
    if isinstance(e, (AssertionError, IndexError, ValueError)):  # how umqtt.simple checks what it reads
        return _NOT_MQTT
    return "%s: %s" % (type(e).__name__, code)


def _wait_ms(attempt, first_s, most_s, below):
    """Full jitter: uniform over 0 up to first_s doubled at every attempt (0, 1, ...), at most most_s."""
    return below(min(first_s << min(attempt, 14), most_s) * 1000)


def _check_seconds(name, value, low, high):
    if type(value) is not int or not low <= value <= high:
        raise ldp_client.SettingsError("%s must be an integer from %d to %d seconds" % (name, low, high))


class Reporter:
    """One board's connection to the broker.

    client      an ldp_client.Client with fleet
    make_mqtt   a function without arguments that returns a new client object with umqtt.simple's
                interface, not yet connected; called once per attempt. Not umqtt.robust's, which
                tries for ever inside one call
    keepalive_s 2 to 40,000; call poll() at least three times in it
    timeout_s   1 to 300: how long the broker may be silent where an answer is due. Looking up its name
                has the firmware's own limit, which nothing here can shorten
    delay_s     0 to 16,000: each report waits for a time drawn from this range before it is sent, so
                that when it comes does not tell when it was made
    backoff_s, backoff_max_s   attempts to connect: the wait is drawn from 0 up to backoff_s, doubled at
                each failure, at most backoff_max_s (1 to 16,000)
    settle_s    1 to 16,000: an experiment that was known, and that the broker has not repeated so long
                after a reconnect, was withdrawn meanwhile

    connected, error (of the network) and fault (of the flash or the random source; each None or a line
    of text), connects, sent (reports), and refused (name -> reason) may be read.
    Raises ldp_client.SettingsError for settings out of range; later on nothing that a broker or a
    network does raises anything.
    """

    def __init__(
        self,
        client,
        make_mqtt,
        keepalive_s=60,
        timeout_s=10,
        delay_s=30,
        backoff_s=2,
        backoff_max_s=300,
        settle_s=10,
    ):
        if client.fleet is None:
            raise ldp_client.SettingsError("the client has no fleet, so its topics are unknown: give it one")
        _check_seconds("keepalive_s", keepalive_s, 2, 40_000)
        _check_seconds("timeout_s", timeout_s, 1, 300)
        _check_seconds("delay_s", delay_s, 0, _MAX_WAIT_S)
        _check_seconds("backoff_s", backoff_s, 1, _MAX_WAIT_S)
        _check_seconds("backoff_max_s", backoff_max_s, backoff_s, _MAX_WAIT_S)
        _check_seconds("settle_s", settle_s, 1, _MAX_WAIT_S)
        self._client = client
        self._make_mqtt = make_mqtt
        self._keepalive_s = keepalive_s
        self._timeout_s = timeout_s
        self._delay_ms = delay_s * 1000
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._settle_ms = settle_s * 1000
        prefix = "hushmote/v1/%s/" % client.fleet
        self._experiment_prefix = (prefix + "experiment/").encode()
        self._report_topic = (prefix + "report/" + client.device_id).encode()
        self._status_topic = (prefix + "status/" + client.device_id).encode()
        self._names = tuple(client.status()["experiments"])  # the policy's: nothing else is subscribed to
        self._known = set()  # experiments that came from the broker and are in force
        self._heard = set()  # names that this connection has brought something for
        self._mqtt = None
        self._link = None
        self._packets = 0
        self._attempt = 0
        self._end_ms = None  # of flush()
        self._settled_ms = None
        self._ping_ms = None
        self._pinged = False
        self._due_ms = None
        self._acknowledged = None
        self._storage_ms = None
        self.connected = False
        self.error = None
        self.fault = None
        self.connects = 0
        self.sent = 0
        self.refused = {}
        now = _ticks_ms()
        self._since_ms = now
        # The first attempt waits as well: after a power cut a whole street's boards start at once.
        self._next_ms = _ticks_add(now, self._draw_wait_ms())

    # The application's side

    def report(self, name, value):
        """Make a report of a reading, as Client.report() does, and send it some time later.

        Returns it, or None. Raises TypeError for a value of the wrong type; where the random source or
        the flash fails nothing is spent, and status() says so.
        """
        try:
            made = self._client.report(name, value)
        except ldp_client.LDPError as e:
            self.fault = str(e)
            return None
        if self._storage_ms is None:
            self.fault = None
        return made

    def poll(self):
        """Do what is due: connect, receive, keep alive, send one report; returns whether connected.

        Call it in the main loop. Without work it takes well under a millisecond; a publication waits
        one round trip, and a broker that has gone silent may hold it for timeout_s, once per outage.
        """
        if not self.connected and _ticks_diff(self._next_ms, _ticks_ms()) > 0:
            return False
        # umqtt.simple meets what it does not expect with AssertionError, IndexError or TypeError as well
        # as OSError and its MQTTException. Whatever it is: this connection is over, and nothing is lost.
        try:
            if not self.connected:
                self._connect()
            self._receive()
            self._keep_alive()
            self._settle()
            self._send(False)
        except Exception as e:
            self._lost(_reason(e))
        return self.connected

    def flush(self, timeout_ms=20_000, readings=None):
        """Connect, fetch the experiments, report the readings, send all, disconnect: between two sleeps.

        readings: experiment's name -> value. Everything ends within timeout_ms, but for the name look-up
        and what the connection itself takes (TCP, TLS and CONNACK, each at most timeout_s). Returns
        whether nothing is left to send; what is left stays in flash. There is no random delay here: when
        a report comes tells when the board woke, so wake it by the clock, never by what it measures.
        """
        self._end_ms = _ticks_add(_ticks_ms(), timeout_ms)
        try:
            if not self.connected:
                self._connect()
            quiet_ms = _ticks_add(_ticks_ms(), _QUIET_MS)
            while len(self._heard) < len(self._names) and _ticks_diff(quiet_ms, _ticks_ms()) > 0:
                if self._receive():
                    quiet_ms = _ticks_add(_ticks_ms(), _QUIET_MS)
                else:
                    _sleep_ms(5)
            self._settled_ms = _ticks_ms() if self._settled_ms is not None else None
            self._settle()
        except Exception as e:  # as in poll()
            self._lost(_reason(e))
        try:
            # Without a connection as well: a board that only dozed still knows its experiments.
            readings = readings or {}
            for name in readings:
                self.report(name, readings[name])
            self._send_all()
            self.close()
        finally:
            self._end_ms = None
            self._drop()  # a TypeError is the application's, and must not leave a socket behind
        return not self._client.outbox()

    def _send_all(self):
        try:
            while self.connected and self._send(True):
                pass
        except Exception as e:  # as in poll()
            self._lost(_reason(e))

    def close(self):
        """Say "offline" and disconnect; poll() connects again."""
        if self.connected:
            try:
                self._publish(self._status_topic, b"offline", True)
                self._mqtt.disconnect()
            except Exception as e:  # as in poll(); the last will says it instead
                self.error = _reason(e)
            else:
                self._mqtt = None  # it is closed
        self._drop()
        self._next_ms = _ticks_ms()

    def status(self):
        """One line: whether connected, what waits, and what went wrong last, in the order of urgency."""
        client = self._client.status()
        waiting = "; %d sent, %d waiting" % (self.sent, client["pending"])
        if self.connected:
            line = "connected" + waiting
        else:
            wait_ms = max(_ticks_diff(self._next_ms, _ticks_ms()), 0)
            line = "not connected, next attempt in %d s" % ((wait_ms + 999) // 1000) + waiting
        for problem in (client["locked"], client["error"], self.fault, self.error):
            if problem and problem not in line:
                line += "; " + problem
        for name in sorted(self.refused):
            line += "; %s refused: %s" % (name, self.refused[name])
        return line

    # The broker's side

    def _connect(self):
        mqtt = self._make_mqtt()
        mqtt.set_callback(self._take)
        mqtt.keepalive = self._keepalive_s
        mqtt.set_last_will(self._status_topic, b"offline", True, 1)
        self._mqtt = mqtt
        self._link = None
        self._packets = 0
        self._open(mqtt)
        # No session is kept at the broker: all that matters is retained there, or in this flash.
        self._heard.clear()
        for name in self._names:
            self._subscribe(name)
        self._publish(self._status_topic, b"online", True)
        now = _ticks_ms()
        self.connected = True
        self.error = None
        self.connects += 1
        self._storage_ms = None
        self._since_ms = now
        self._settled_ms = _ticks_add(now, self._settle_ms)
        self._ping_ms = now
        self._pinged = False

    def _open(self, mqtt):
        module = sys.modules.get("umqtt.simple")
        real = getattr(module, "socket", None)
        sockets = None
        if real is not None:
            sockets = module.socket = _Sockets(real, self._timeout_s)
        try:
            try:
                mqtt.connect(True, timeout=self._timeout_s)
            except TypeError:  # umqtt.simple 1.3.4 has no timeout
                if getattr(mqtt, "sock", None) is not None:
                    raise  # it was not about the argument
                mqtt.connect(True)
        finally:
            if real is not None:
                module.socket = real
        sock = getattr(mqtt, "sock", None)
        raw = sockets.raw if sockets is not None and sockets.raw is not None else sock
        if hasattr(raw, "settimeout") and hasattr(sock, "read"):
            self._link = mqtt.sock = _Link(sock, raw, self._timeout_s)

    def _begin(self):
        """Before every packet with an id."""
        self._packets += 1
        mqtt = self._mqtt
        if type(getattr(mqtt, "pid", None)) is int and mqtt.pid >= _LAST_PACKET_ID:
            mqtt.pid = 0
        self._limit()

    def _limit(self):
        if self._link is not None:
            until = _ticks_add(_ticks_ms(), self._timeout_s * 1000)
            if self._end_ms is not None and _ticks_diff(self._end_ms, until) < 0:
                until = self._end_ms
            self._link.limit(until)

    def _publish(self, topic, message, retain):
        self._begin()
        self._mqtt.publish(topic, message, retain, 1)

    def _subscribe(self, name):
        self._begin()
        try:
            self._mqtt.subscribe(self._experiment_prefix + name.encode(), 1)
        except Exception as e:
            # 0x80 in the broker's answer, which is read to its end: this name is forbidden, the rest goes on.
            if isinstance(e, OSError) or not e.args or e.args[0] != 0x80:
                raise
            self.refused[name] = "the broker forbids the subscription"

    def _take(self, topic, payload):
        """A retained experiment, or its withdrawal. Called by the client object, so it must not raise."""
        for name in self._names:
            if topic == self._experiment_prefix + name.encode():
                break
        else:
            return
        self._heard.add(name)
        self.refused.pop(name, None)
        if not payload:
            self._known.discard(name)
            self._client.withdraw(name)
            return
        try:
            end = payload.find(b"\x00")
            called = ldp_client.Experiment.parse(payload if end < 0 else payload[:end]).name
            if called != name:  # else it could take the place of another one, and outlive its own topic
                raise ldp_client.ExperimentRefused("it calls itself " + called)
            self._client.enroll(payload)
            self._known.add(name)
        except ldp_client.LDPError as e:
            self.refused[name] = str(e)
        except MemoryError:
            self.refused[name] = "out of memory"

    def _receive(self):
        """Take messages that are there; returns whether there were any."""
        link = self._link
        self._limit()
        if link is None:
            self._mqtt.check_msg()  # it does not tell whether there was one: one per poll
            return False
        for i in range(_MESSAGES_PER_POLL):
            link.heard = False
            kind = self._mqtt.check_msg()
            if type(kind) is int and kind & 0xF0 != 0x30:
                raise ValueError(_NOT_MQTT)  # nothing else is due, and the rest of it was left unread
            if not link.heard:
                return i > 0
            self._pinged = False
        return True

    def _keep_alive(self):
        now = _ticks_ms()
        if self._pinged:
            # A half-open connection: the other end is gone and nothing will ever say so.
            if _ticks_diff(now, self._ping_ms) > self._timeout_s * 1000:
                raise OSError(errno.ETIMEDOUT)
        elif _ticks_diff(now, self._ping_ms) >= self._keepalive_s * 500:
            self._mqtt.ping()
            self._ping_ms = now
            self._pinged = self._link is not None  # without the socket nobody sees the answer

    def _settle(self):
        """Withdraw what was withdrawn while the board was away: the broker no longer repeats it."""
        if self._settled_ms is None or _ticks_diff(self._settled_ms, _ticks_ms()) > 0:
            return
        self._settled_ms = None
        for name in self._names:
            if name in self._known and name not in self._heard:
                self._known.discard(name)
                self._client.withdraw(name)

    def _send(self, now):
        """Send the oldest report where one is due; returns whether another may follow."""
        if self._acknowledged is not None:
            return self._confirm()
        reports = self._client.outbox()
        if not reports:
            self._due_ms = None
            return False
        if not now:
            if self._due_ms is None:
                wait_ms = self._client.rng.below(self._delay_ms) if self._delay_ms else 0
                self._due_ms = _ticks_add(_ticks_ms(), wait_ms)
            if _ticks_diff(self._due_ms, _ticks_ms()) > 0:
                return False
        if self._packets >= _LAST_PACKET_ID and type(getattr(self._mqtt, "pid", None)) is not int:
            self.close()  # a client object that hides its counter: start with a new one
            return False
        self._publish(self._report_topic, reports[0], False)
        self.sent += 1
        self._due_ms = None
        self._acknowledged = reports[0]
        return self._confirm()

    def _confirm(self):
        """Take the acknowledged report out of the flash; where that fails, try again much later."""
        if self._storage_ms is not None and _ticks_diff(self._storage_ms, _ticks_ms()) > 0:
            return False
        try:
            self._client.sent(self._acknowledged)
        except ldp_client.LDPError as e:
            self.fault = str(e)
            self._storage_ms = _ticks_add(_ticks_ms(), _STORAGE_RETRY_MS)
            return False
        self._storage_ms = self.fault = self._acknowledged = None
        return True

    def _draw_wait_ms(self):
        return _wait_ms(self._attempt, self._backoff_s, self._backoff_max_s, self._client.rng.below)

    def _lost(self, reason):
        now = _ticks_ms()
        if self.connected and _ticks_diff(now, self._since_ms) > _STEADY_MS:
            self._attempt = 0
        self._next_ms = _ticks_add(now, self._draw_wait_ms())
        self._attempt += 1
        self.error = reason
        self._drop()

    def _drop(self):
        """Forget the connection. A socket that is not closed stays taken until the board restarts."""
        mqtt = self._mqtt
        self._mqtt = self._link = None
        self.connected = False
        sock = getattr(mqtt, "sock", None)
        try:
            if sock is not None:
                sock.close()
            elif mqtt is not None:
                mqtt.disconnect()
        except Exception:  # it may be closed already, or never have been open: all the same
            pass
