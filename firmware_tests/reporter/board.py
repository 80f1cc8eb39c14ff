"""A board controlled by commands: MicroPython, the real umqtt.simple or asyncio, and the flashed files.

It reads a JSON object with its settings from standard input, then one command per line, and answers each with
a line of JSON. tests/device/test_reporter.py runs it, with the modules' folders in MICROPYPATH. CPython can
run it too if the settings select asyncio.
"""

import binascii
import gc
import json
import select
import sys

import ldp_client
import reporter_base
from kept_experiments import KeptExperiments
from reporter_base import Brokers, sleep_ms, ticks_add, ticks_diff, ticks_ms

# Time that passes at each watchdog feed while connecting to a broker that is known to be silent.
SILENCE_MS = 60_000

GROWING = ("connects", "lost")  # a turn may increase these by more than one

settings = json.loads(sys.stdin.readline())


class Clock:
    """The reporter's millisecond counter, which can be advanced and wraps as on every board."""

    PERIOD = 1 << 30
    passed_ms = 0

    def ticks_ms(self):
        return (ticks_ms() + self.passed_ms) % self.PERIOD

    def ticks_add(self, ticks, ms):
        return (ticks + ms) % self.PERIOD

    def ticks_diff(self, ticks, since):
        half = self.PERIOD >> 1
        return (ticks - since + half) % self.PERIOD - half


clock = Clock()
for name in ("ticks_ms", "ticks_add", "ticks_diff"):  # before the reporters import them
    setattr(reporter_base, name, getattr(clock, name))

if settings.get("kind") == "asyncio":
    import asyncio

    from async_reporter import AsyncReporter

    MQTTClient = object
else:
    import mqtt_reporter
    from mqtt_reporter import Reporter
    from umqtt.simple import MQTTClient


class Poller:
    """A select poller that records each wait's timeout and the number of feed() calls before it."""

    def __init__(self):
        poller = select.poll()
        self.register, self._poll = poller.register, poller.poll

    def poll(self, ms):
        board.waits_made.append([board.fed, ms])
        return self._poll(ms)


class Select:
    """The part of select that mqtt_reporter uses."""

    POLLIN, POLLOUT, poll = select.POLLIN, select.POLLOUT, Poller


class TimeoutClient(MQTTClient):
    """connect() with a timeout, as in versions of umqtt.simple that are not on PyPI."""

    seen = None

    def connect(self, clean_session=True, timeout=None):
        TimeoutClient.seen = timeout
        return MQTTClient.connect(self, clean_session)


class Ussl:
    """ussl as umqtt.simple 1.3.4 imports it, which newer firmware calls tls; certificates are not checked."""

    @staticmethod
    def context():
        import tls

        context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        context.verify_mode = tls.CERT_NONE
        return context

    @staticmethod
    def wrap_socket(sock):
        return Ussl.context().wrap_socket(sock)


class Slots:
    """Storage in memory that can be full."""

    def __init__(self):
        self.slots = {}
        self.full = False

    def read(self, slot):
        return self.slots.get(slot)

    def write(self, slot, data):
        if self.full:
            raise OSError(28)
        self.slots[slot] = bytes(data)


class Late:
    """A stream that has a PINGRESP after 0.4 s, and takes until 0.55 s to return it without a pause."""

    reads = 0

    async def read(self, _):
        self.reads += 1
        await asyncio.sleep(0.4 if self.reads == 1 else 60)
        sleep_ms(150)
        return b"\xd0\0"


async def nap():
    await asyncio.sleep(0.002)


class Board:
    def __init__(self, settings):
        self.settings = settings
        self.storage = settings.get("folder") or Slots()
        if not settings.get("again"):
            ldp_client.provision(self.storage, consent=None if settings.get("asks") else True)
        key, announce_key = settings.get("key"), settings.get("announce_key")
        policy = settings["policy"]
        for name in ("rules", "experiments"):  # JSON has no tuples
            policy[name] = tuple(policy[name])
        self.client = ldp_client.Client(
            policy,
            self.storage,
            settings["device"],
            key=bytes(key) if key else None,
            announce_key=bytes(announce_key) if announce_key else None,
            fleet=settings["fleet"],
        )
        experiments = None if settings.get("folder") else KeptExperiments(self.client, None)
        self.fed = self.turns = 0
        self.waits_made = []  # per wait for the broker: feed() calls before it, and its maximum in ms
        self.checks_made = []  # per verified signature: its turn, and feed() calls before it
        self.import_sibling = ldp_client._import_sibling  # a board imports ldp_p256 anew for each signature
        ldp_client._import_sibling = self.count_and_import
        self.task = None
        self.brokers = Brokers(settings["host"], settings["port"])
        self.last_port = 0  # the port of the last broker contacted
        self.losses = 0  # number of connections and attempts that ended
        if settings.get("kind") == "asyncio":
            self.loop = asyncio.new_event_loop()
            where = settings["host"], settings["port"]
            context = Ussl.context() if settings.get("tls") else None
            self.reporter = AsyncReporter(
                self.client, *where, ssl=context, kept=experiments, **settings["reporter"]
            )
            self.reporter._next_ms = clock.ticks_ms()  # make the first attempt at once
            self.start()
            if settings.get("busy"):
                self.other = self.loop.create_task(self.work())
        else:
            mqtt_reporter.select = Select
            brokers = settings["host"].count(",") + 1
            self.reporter = Reporter(
                self.client, self.make_mqtt, experiments, self.feed, brokers, **settings["reporter"]
            )
            self.reporter.close()  # likewise
        self.lose = self.reporter._mark_lost
        self.reporter._mark_lost = self.count_loss

    def count_loss(self, why):
        self.losses += 1
        self.lose(why)

    def lost(self):
        return self.losses

    def timeout(self, ms):
        """Set the timeout for the broker's answers; a pending answer keeps its timeout."""
        self.reporter._timeout_ms = ms

    async def work(self):
        """Stand in for the rest of an asyncio application, which feeds the watchdog at every turn."""
        while True:
            self.feed()
            await asyncio.sleep(0)

    def feed(self):
        self.fed += 1
        if self.last_port == self.settings.get("silent"):
            self.pass_ms(SILENCE_MS)

    def feeds(self):
        return self.fed

    def slices(self):
        """Return the waits since the last call."""
        waits, self.waits_made = self.waits_made, []
        return waits

    def count_and_import(self, name):
        if name == "ldp_p256":
            self.checks_made.append([self.turns, self.fed])
        return self.import_sibling(name)

    def checks(self):
        return self.checks_made

    def start(self):
        self.task = self.loop.create_task(self.reporter.run())

    def turn(self):
        """Run the reporter once; return for how many ms it blocked the application."""
        start = ticks_ms()
        self.turns += 1
        if self.task is None:
            self.reporter.poll()
            duration_ms = ticks_diff(ticks_ms(), start)
            sleep_ms(2)
            return duration_ms
        self.loop.run_until_complete(nap())
        return max(ticks_diff(ticks_ms(), start) - 2, 0)

    def make_mqtt(self):
        s = self.settings
        kind = s.get("kind")
        host, port = self.brokers.next()
        self.last_port = port
        if kind == "tls":
            sys.modules["ussl"] = Ussl
            return MQTTClient(s["device"], host, port, ssl=True)
        return (TimeoutClient if kind == "timeout" else MQTTClient)(s["device"], host, port)

    def report(self, name, value):
        payload = self.reporter.report(name, value)
        return payload and binascii.hexlify(payload).decode()

    def poll(self, ms):
        """Poll for `ms`; return the longest single turn, in ms."""
        longest = 0
        end = ticks_add(ticks_ms(), ms)
        while ticks_diff(end, ticks_ms()) > 0:
            longest = max(longest, self.turn())
        return longest

    def until(self, what, value, ms):
        """Poll until self.<what>() reaches value; return [ms taken, longest turn]."""
        longest = 0
        end = ticks_add(ticks_ms(), ms)
        while not (getattr(self, what)() >= value if what in GROWING else getattr(self, what)() == value):
            if ticks_diff(end, ticks_ms()) < 0:
                return [False, longest]
            longest = max(longest, self.turn())
        return [True, longest]

    def pass_ms(self, ms):
        """Advance the clock without polling."""
        clock.passed_ms += ms

    def live_until(self, what, value, ms):
        """Pass time quickly, a second in 20 ms, until self.<what>() is value; return the ms passed."""
        passed = 0
        while getattr(self, what)() != value and passed < ms:
            self.poll(20)
            self.pass_ms(1000)
            passed += 1000
        return passed

    def connected(self):
        return self.reporter.connected

    def error(self):
        return self.reporter.error

    def failed(self):
        return self.reporter.error is not None

    def sent(self):
        return self.reporter.sent

    def connects(self):
        return self.reporter.connects

    def pending(self):
        return len(self.client.outbox())

    def state(self, name="room_temp"):
        return self.client.status()["experiments"][name]["state"]

    def states(self):
        return [line["state"] for name, line in sorted(self.client.status()["experiments"].items())]

    def all_states(self):
        lines = self.client.status()["experiments"]
        return [lines[name]["state"] for name in self.settings["policy"]["experiments"]]

    def check_count(self):
        return len(self.checks_made)

    def refused(self):
        return self.reporter.refused

    def left_out(self):
        """Return what the broker made the reporter leave out."""
        return [name for i, name in enumerate(("status", "will")) if self.reporter.failures[i] >= 2]

    def failures(self):
        return self.reporter.failures

    def asking(self):
        return sorted(self.reporter._kept.asking)

    def outbox(self):
        return [binascii.hexlify(r).decode() for r in self.client.outbox()]

    def status(self):
        return self.reporter.status()

    def spent(self):
        return self.client.status()["sum"]

    def flush(self, ms, readings):
        start = ticks_ms()
        empty = self.reporter.flush(ms, readings)
        return [empty, ticks_diff(ticks_ms(), start)]

    def close(self):
        """Disconnect; the next turn connects again."""
        if self.task is None:
            self.reporter.close()
            return
        self.reporter.stop()
        self.loop.run_until_complete(self.task)
        self.start()

    def overwrite(self):
        """Write this ledger from another client."""
        self.storage.slots[0] = self.storage.slots[1] = b"other"

    def consent(self, value):
        self.client.consent = value

    def full(self, full):
        self.storage.full = full

    def slow_read(self):
        """Return the packet types from _receive() in two waits, with a packet arriving as the first ends."""
        self.turn()  # so that its task has begun and is notified of the stop
        self.reporter.stop()
        self.loop.run_until_complete(self.task)
        self.reporter._reader = Late()
        kinds = []
        for _ in range(2):
            packet = self.loop.run_until_complete(self.reporter._receive(500))
            kinds.append(packet and packet[0])
        return kinds

    def seen_timeout(self):
        return TimeoutClient.seen

    def heap(self):
        gc.collect()
        return gc.mem_alloc()


board = Board(settings)
print(json.dumps("ready"))
while True:
    line = sys.stdin.readline()
    if not line:
        break
    command = json.loads(line)
    try:
        answer = getattr(board, command[0])(*command[1:])
    except Exception as e:
        if hasattr(sys, "print_exception"):
            sys.print_exception(e)
        answer = {"raised": type(e).__name__, "text": str(e)}
    print(json.dumps(answer))
