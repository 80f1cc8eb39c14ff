"""Hushmote's reporter: carry a client's experiments and reports over MQTT, through every outage.

It connects an ldp_client.Client to a client object with umqtt.simple's interface. Experiments arrive as
retained messages; reports are sent at QoS 1, oldest first, and removed from flash only once the broker has
acknowledged them. The reporter only passes readings on to Client.report(), never creates report bytes itself,
and never touches Wi-Fi: the application brings the network up and keeps it up.

    def make_mqtt():
        return MQTTClient(DEVICE_ID, "broker.example.org")

    reporter = Reporter(client, make_mqtt)
    while True:                                always on: call poll() at least every 20 s
        reporter.poll()
        reporter.report("room_temp", read())   on a fixed rhythm, never because a reading changed

    reporter.flush(20_000, {"room_temp": read()})        deep sleep: one call between two sleeps

Topics: hushmote/v1/<fleet>/experiment/<name>, .../report/<device>, .../status/<device>, and .../proof/<name>
if the policy has "log". The status topic holds "online" or "offline" and the board's problems, retained;
"offline" is also the last will.

Asyncio applications use async_reporter instead.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# pyright: reportArgumentType=false

import errno
import select
import sys

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from .reporter_base import (
        FORBIDDEN,
        NOT_MQTT,
        BaseReporter,
        const,
        sleep_ms,
        ticks_add,
        ticks_diff,
        ticks_ms,
    )
else:
    from reporter_base import (
        FORBIDDEN,
        NOT_MQTT,
        BaseReporter,
        const,
        sleep_ms,
        ticks_add,
        ticks_diff,
        ticks_ms,
    )

# An experiment has at most 1024 bytes, plus a zero byte, a serial and a signature; a proof has at most 1600.
_MAX_MESSAGE_BYTES = const(1600)
_QUIET_MS = const(500)  # flush() expects no more messages after this long without one
_MESSAGES_PER_POLL = const(8)  # a flood of messages must not starve the application
_SLICE_MS = const(1000)  # waits are interrupted this often, to feed a watchdog
# umqtt.simple numbers its QoS 1 packets with a counter that only grows, but MQTT packet ids have 16 bits:
# after 65,535 packets from one client object, the id on the wire wraps to 0, which MQTT forbids, and the id
# in the reply never equals the counter again, so publish() waits forever. Only one packet is in flight at a
# time, so an id may be reused as soon as publish() or subscribe() has returned.
_LAST_PACKET_ID = 65_000
_STATUS = const(0)  # indices of BaseReporter.failures, and the numbers that count
_WILL = const(1)
_SHORT = const(2)
_LEFT_OUT = const(2)


class _Link:
    """A socket for umqtt.simple that times out where umqtt.simple would wait forever.

    The underlying socket never blocks. Instead, the link waits in slices until the deadline(), a value of the
    millisecond counter, that was read at the last begin(). The TLS handshake happens on the first write, also
    in slices.

    The link also buffers umqtt.simple's five writes per packet, and sends them when an answer is read: one
    TCP segment and one TLS record per packet. Sent separately, each publication took 44 ms on one machine:
    Nagle's algorithm at one end waits for the acknowledgement that the other end delays.
    """

    def __init__(self, sock, feed, deadline):
        sock.setblocking(False)
        self._sock = sock
        self._feed = feed
        self._deadline = deadline
        self._until_ms = deadline()
        self._blocking = True
        self._out = bytearray()
        self.has_received = False  # whether anything arrived since this was last set to False

    def replace_socket(self, sock):
        """Replace the socket; call this before connect()."""
        self._sock.close()
        sock.setblocking(False)
        self._sock = sock

    def begin(self):
        """Read the deadline; call this before every exchange."""
        self._until_ms = self._deadline()

    def settimeout(self, timeout):
        """Do nothing: the deadline replaces umqtt.simple's timeout."""

    def connect(self, address):
        try:
            self._sock.connect(address)
        except OSError as e:
            if e.args[0] != errno.EINPROGRESS:
                raise
        self._wait(select.POLLOUT)

    def secure(self, tls, more):
        """Switch to TLS."""
        self.begin()
        raw = self._sock
        try:
            self._sock = tls.wrap_socket(raw, do_handshake_on_connect=False, **more)
        except TypeError:  # not an SSLContext: it performs the handshake immediately
            raw.settimeout(max(ticks_diff(self._until_ms, ticks_ms()), 1) / 1000)
            self._sock = tls.wrap_socket(raw, **more)
            raw.setblocking(False)
        return self

    def _wait(self, event):
        """Wait until the socket is ready for the event, or raise OSError at the deadline."""
        poller = select.poll()
        poller.register(self._sock, event)
        while True:
            self._feed()
            left_ms = ticks_diff(self._until_ms, ticks_ms())
            if left_ms <= 0:
                raise OSError(errno.ETIMEDOUT)
            if poller.poll(min(left_ms, _SLICE_MS)):
                return

    def setblocking(self, flag):
        self._blocking = flag
        if not flag:
            self._send()

    def _send(self):
        out = self._out
        self._out = bytearray()
        while out:
            sent = self._sock.write(out)
            if sent is None:
                self._wait(select.POLLOUT)
            else:
                out = out[sent:]

    def read(self, n):
        self._send()
        # Later reads in one exchange: the broker keeps sending, but not the expected answer.
        if ticks_diff(self._until_ms, ticks_ms()) < 0:
            raise OSError(errno.ETIMEDOUT)
        if n < 0:  # a contradictory length; read(-1) would wait until the stream ends
            raise ValueError(NOT_MQTT)
        if n > _MAX_MESSAGE_BYTES:
            # None of our messages is this long. Its start is enough to refuse it; the rest is not stored.
            data = self.read(_MAX_MESSAGE_BYTES)
            n -= _MAX_MESSAGE_BYTES
            while n:
                part = min(n, 64)
                self.read(part)
                n -= part
            return data
        data = b""
        while len(data) < n:
            part = self._sock.read(n - len(data))
            if part is None:
                if not self._blocking:
                    return None
                self._wait(select.POLLIN)
            elif part:
                data += part
            else:
                raise OSError(errno.ECONNRESET)
        self.has_received = True
        return data

    def write(self, data, n=-1):
        self._out += data if n < 0 else data[:n]

    def close(self):
        sock = self._sock
        if sock is not None:  # close only once: a second close could hit another socket
            try:
                if self._out[-2:] == b"\xe0\0":  # DISCONNECT; anything else is an incomplete packet
                    self._send()
            finally:
                self._sock = None
                sock.close()


class _Sockets:
    """A replacement for umqtt.simple's socket module during connect(); its sockets are links."""

    def __init__(self, module, look_up, *link_args):
        self._module = module
        self.look_up = look_up
        self._link_args = link_args
        self._link = None

    def __getattr__(self, name):
        return getattr(self._module, name)

    def socket(self, *args):
        self._link = _Link(self._module.socket(*args), *self._link_args)
        return self._link

    def getaddrinfo(self, *args):
        real = self._module.getaddrinfo
        addresses = self.look_up(real, *args) if self.look_up else real(*args)
        family = addresses[0][0]
        if self._link is not None and family != self._module.AF_INET:
            # umqtt.simple creates an IPv4 socket before it looks up the address.
            self._link.replace_socket(self._module.socket(family))
        return addresses


class _Tls:
    """A replacement for umqtt.simple's TLS, an SSLContext or a module, during connect()."""

    def __init__(self, tls):
        self._module = tls

    def wrap_socket(self, sock, **more):
        return sock.secure(self._module, more)


def _no_watchdog():
    pass


class Reporter(BaseReporter):
    """A board's connection to the broker, over umqtt.simple.

    Args:
        client: See BaseReporter.
        make_mqtt: A function without arguments that returns a new, unconnected client object with
            umqtt.simple's interface; called once per attempt. umqtt.robust does not work here: it retries
            forever inside one call.
        feed: A function without arguments, called at least once a second during waits, except during the name
            look-up, and before each signature is verified.
        kept: See BaseReporter.
        brokers: Number of brokers that make_mqtt cycles through, for example using reporter_base.Brokers: if
            one does not answer, flush() tries the next.
        **settings: As for BaseReporter.
    """

    def __init__(self, client, make_mqtt, kept=None, feed=_no_watchdog, brokers=1, **settings):
        super().__init__(client, kept, **settings)
        self._make_mqtt = make_mqtt
        self._feed = feed
        self._brokers = brokers
        self._mqtt = None
        self._link = None
        self._packets = 0
        self._end_ms = None  # of flush()
        self.look_up = None  # called instead of getaddrinfo, with getaddrinfo and its arguments

    # The application's side

    def poll(self):
        """Do whatever is due: connect, receive, keep alive, send one report; return whether connected.

        Call it in the main loop. With nothing to do it takes well under a millisecond; a publication waits
        for one round trip, and a broker that stops answering may block it for timeout_s, once per outage.
        Without consent it only publishes "offline", if connected.
        """
        if not self._client.consent:
            if self.connected:
                self.close()
            return False
        if not self.connected and self._wait_ms() > 0:
            return False
        # On unexpected input umqtt.simple raises AssertionError, IndexError or TypeError as well as OSError
        # and its MQTTException. Whatever happened, this connection is over, and no data is lost.
        try:
            if not self.connected:
                self._connect()
            self._receive()
            self._keep_alive()
            self._settle()
            self._process_waiting()
            if not self._send(False) and self.connected:
                self._publish_health()
        except Exception as e:
            self._end_connection(e)
        return self.connected

    def flush(self, timeout_ms=20_000, readings=None, groups=None):
        """Connect, fetch the experiments, report the readings, send everything and disconnect.

        Call it between two sleeps. There is no random delay here, so a report's arrival reveals when the
        board woke up: wake it by the clock, never in response to what it measures. Without consent it does
        nothing. Unsent reports remain in flash.

        Args:
            timeout_ms: The limit for everything except the name look-up and the connection itself, which
                takes at most timeout_s.
            readings: An experiment's name -> value.
            groups: An experiment's name -> its group's value, as report() has it.

        Returns:
            Whether all reports were sent.
        """
        if not self._client.consent:
            self.close()
            return True
        self._end_ms = ticks_add(ticks_ms(), timeout_ms)
        try:
            if not self.connected:
                self._connect_any()
            quiet_ms = ticks_add(ticks_ms(), _QUIET_MS)
            while (
                self.connected
                and len(self._seen_names) < len(self._names)
                and ticks_diff(quiet_ms, ticks_ms()) > 0
            ):
                if self._receive():
                    quiet_ms = ticks_add(ticks_ms(), _QUIET_MS)
                else:
                    self._feed()
                    sleep_ms(5)
            while self.connected and ticks_diff(self._end_ms, ticks_ms()) > 0 and self._process_waiting():
                pass
            if self.connected:
                self._settle(True)
        except Exception as e:  # as in poll()
            self._end_connection(e)
        # Report even without a connection: a board still knows its experiments after a light sleep.
        readings, groups = readings or {}, groups or {}
        for name in readings:
            self.report(name, readings[name], None, groups.get(name))
        try:
            while self.connected and self._send(True):
                pass
        except Exception as e:  # as in poll()
            self._end_connection(e)
        self.close()
        self._end_ms = None
        return not self._client.outbox()

    def close(self):
        """Publish "offline" and disconnect; poll() connects again."""
        if self.connected:
            try:
                if 0 <= self.failures[_STATUS] < _LEFT_OUT:
                    self._publish(self._status_topic, self._health("offline"), True)
                self._mqtt.disconnect()
            except Exception as e:  # as in poll(); the last will takes its place
                self.error = self.reason(e)
            else:
                self._mqtt = None  # already closed
                self.failures[_SHORT] = 0
        self._drop()
        self._next_ms = ticks_ms()

    # The broker's side

    def _connect_any(self):
        """Connect to the next broker that answers, as long as flush() has time left.

        If one refuses the last will, connect without it now: a board in deep sleep keeps no count.
        """
        attempts_left = self._brokers
        while not self.connected:
            failures = self.failures[_WILL]
            try:
                self._connect()
            except Exception as e:  # as in poll()
                self._end_connection(e)
                attempts_left -= 1
                if self.failures[_WILL] <= failures and attempts_left < 1:
                    return
                if ticks_diff(self._end_ms, ticks_ms()) <= 0:
                    return

    def _connect(self):
        mqtt = self._make_mqtt()
        # umqtt.simple takes the length of a str, which is in characters, for the number of bytes.
        for name in ("client_id", "user", "pswd"):
            value = getattr(mqtt, name, None)
            if isinstance(value, str):
                setattr(mqtt, name, value.encode())
        if getattr(mqtt, "user", None) and getattr(mqtt, "pswd", b"") is None:
            mqtt.pswd = b""  # umqtt.simple always sends a password with a user
        mqtt.set_callback(self._take)
        mqtt.keepalive = self._keepalive_s
        if 0 <= self.failures[_WILL] < _LEFT_OUT:
            mqtt.set_last_will(self._status_topic, self._health("offline"), True, 1)
        self._mqtt = mqtt
        self._link = None
        self._packets = 0
        self.topic = True
        self._open()
        # The broker keeps no session: everything that matters is retained there or stored in flash here.
        self._seen_names.clear()
        self._kept.waiting.clear()
        for name in self._names:
            self._subscribe(name)
        self._start_session()

    def _open(self):
        mqtt = self._mqtt
        module = sys.modules.get("umqtt.simple")
        sockets = getattr(module, "socket", None)
        tls = getattr(mqtt, "ssl", None)
        stand_ins = {}
        if sockets is not None:
            module.socket = _Sockets(sockets, self.look_up, self._feed, self._deadline)
            if hasattr(tls, "wrap_socket"):
                # An SSLContext; umqtt.simple before 1.4 uses ussl instead, which does not check certificates.
                mqtt.ssl = stand_ins["ussl"] = _Tls(tls)
            elif tls:
                for name in ("ussl", "ssl"):
                    try:
                        stand_ins[name] = _Tls(__import__(name))
                    except ImportError:  # only one of the two exists
                        pass
        real = {name: sys.modules.get(name) for name in stand_ins}
        try:
            for name in stand_ins:
                sys.modules[name] = stand_ins[name]
            try:
                mqtt.connect(True, timeout=self._timeout_ms // 1000)
            except TypeError:  # umqtt.simple 1.3.4 has no timeout
                if getattr(mqtt, "sock", None) is not None:
                    raise  # the TypeError has another cause
                mqtt.connect(True)
        finally:
            if sockets is not None:
                module.socket = sockets
            for name in real:
                if real[name] is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = real[name]
        sock = getattr(mqtt, "sock", None)
        if not isinstance(sock, _Link) and hasattr(sock, "setblocking") and hasattr(sock, "read"):
            sock = mqtt.sock = _Link(sock, self._feed, self._deadline)
        self._link = sock if isinstance(sock, _Link) else None

    def _deadline(self):
        until_ms = ticks_add(ticks_ms(), self._timeout_ms)
        if self._end_ms is not None and self.connected and ticks_diff(self._end_ms, until_ms) < 0:
            return self._end_ms
        return until_ms

    def _begin(self):
        """Prepare for a packet with an id."""
        self._packets += 1
        mqtt = self._mqtt
        if type(getattr(mqtt, "pid", None)) is int and mqtt.pid >= _LAST_PACKET_ID:
            mqtt.pid = 0
        if self._link is not None:
            self._link.begin()

    def _publish(self, topic, payload, retain):
        self._begin()
        self.topic = topic
        self._mqtt.publish(topic, payload, retain, 1)
        self.topic = None
        if retain:
            self.failures[_STATUS] = 0
        self._pinged = False  # the ping's answer may have been read along with this one

    def _subscribe(self, name):
        self._begin()
        self.topic = self._names[name]
        if self.refused.get(name) == FORBIDDEN:
            del self.refused[name]  # the broker will say whether it still is
        try:
            # QoS 0 loses nothing: experiments are retained, and each connection subscribes again. At QoS 1 a
            # cluster of NATS servers would keep a queue for each board.
            self._mqtt.subscribe(self.topic, 0)
        except Exception as e:
            # The broker answered 0x80, and the answer was read completely: only this name is forbidden.
            if isinstance(e, OSError) or not e.args or e.args[0] != 0x80:
                raise
            self.refused[name] = FORBIDDEN
        self.topic = None

    def _receive(self):
        """Handle the messages that have arrived; return whether there were any."""
        link = self._link
        if link is None:
            self._mqtt.check_msg()  # does not say whether there was a message, so call it once per poll
            return False
        link.begin()
        for i in range(_MESSAGES_PER_POLL):
            link.has_received = False
            kind = self._mqtt.check_msg()
            if type(kind) is int and kind & 0xF0 != 0x30:
                raise ValueError(NOT_MQTT)  # no other packet is expected, and the rest of it was not read
            if not link.has_received:
                return i > 0
            self._pinged = False
        return True

    def _keep_alive(self):
        if self._must_ping():
            self._mqtt.ping()
            self._pinged = self._link is not None  # without the link, the answer would go unnoticed

    def _process_waiting(self):
        """Process one waiting experiment only; verifying further signatures is left to the next poll()."""
        if not self._kept.waiting:
            return False
        self._feed()
        self._process_message()
        return True

    def _publish_health(self):
        health = self._changed_health()
        if health is not None:
            self._publish(self._status_topic, health, True)

    def _send(self, now):
        """Send the oldest report if it is due; return whether another may follow."""
        report = self._due_report(now)
        if report is None:
            return False
        if self._packets >= _LAST_PACKET_ID and type(getattr(self._mqtt, "pid", None)) is not int:
            self.close()  # the client object hides its counter, so start over with a new one
            return False
        self._publish(self._report_topic, report, False)
        return self._handle_ack(report)

    def _end_connection(self, e):
        self._mark_lost(self.reason(e))
        self._drop()

    def _drop(self):
        """Drop the connection. A socket that is not closed remains in use until the board restarts."""
        mqtt = self._mqtt
        self._mqtt = self._link = None
        self.connected = False
        sock = getattr(mqtt, "sock", None)
        try:
            if sock is not None:
                sock.close()
            elif mqtt is not None:
                mqtt.disconnect()
        except Exception:  # it may already be closed, or may never have been open
            pass
