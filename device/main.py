"""Hushmote's example application for an ESP32 or a Pico W: wake, read, report, draw in advance, sleep.

It sleeps until a report is due, or a draw that succeeds about once a day: then it switches its radio on,
fetches experiments and publishes its status.

Copy and adapt it: for most boards you only need to change POLICY, INTERVAL_S and READINGS. The settings that
differ from board to board (fleet, keys, Wi-Fi, broker) are in /settings.json, written by `hushmote provision`
and `hushmote flash`; the privacy budget is in /ldp and is never copied.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# pyright: reportOptionalCall=false

import sys
import time

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
    from .kept_experiments import KeptExperiments, tidy
    from .mqtt_reporter import Reporter
    from .reporter_base import Brokers, sleep_ms, ticks_diff, ticks_ms
else:
    import ldp_client
    from kept_experiments import KeptExperiments, tidy
    from mqtt_reporter import Reporter
    from reporter_base import Brokers, sleep_ms, ticks_diff, ticks_ms


def _import_if_present(name):
    try:
        return __import__(name)
    except ImportError:
        return None


machine, esp32, network = (
    _import_if_present("machine"),
    _import_if_present("esp32"),
    _import_if_present("network"),
)

# What this firmware allows, whatever a server asks: micro-nats, for the board's lifetime. Reports continue
# while the sum of epsilon <= sum or the sum of epsilon**2 <= squares; both together give (8, 1e-6)-LDP.
POLICY = {
    "sum": 8_000_000,
    "squares": 1_819_000_000_000,
    "epsilon": 4_000_000,
    "rules": ("sum", "squares", "count"),
    "experiments": ("room_temp",),
}
# Sent unprotected by experiments with the group "firmware", if POLICY has "groups": ("firmware",).
VERSION = "1.0.0"
# Readings of the time since the last one: they are reported under the version that ran in that time.
PERIOD_READINGS = ("board_crash",)
BUTTON = None  # pin of a button to ground: hold it for 3 s to opt in, and again to opt out
LED = None  # pin of a light: two flashes ask for consent; a long one confirms it, three short ones an opt-out
# ID_AT = "on the sticker underneath"  # where people find the board's id; used by the label, not by the board
INTERVAL_S = 3600  # time between readings: go by the clock, never read because something changed
REFRESH_S = 86_400  # mean time between connections when there is nothing to send
START_DELAY_S = 10  # wait after power-up, so that Ctrl-C and `hushmote flash` can interrupt the board
MAX_SLEEP_S = 500_000  # the chips' millisecond counters wrap after 6 days
START_SPREAD_S = 60  # a board without experiments starts at a random moment within this many seconds

SETTINGS = "/settings.json"
LEDGER = "/ldp"  # created once by `hushmote flash`
EXPERIMENTS = "/experiments"


def chip_thermometer():
    """Return the function that reads the chip's own temperature in °C, or None if the chip has no sensor."""
    if hasattr(esp32, "mcu_temperature"):  # ESP32-C3, -S2, -S3 and later
        return esp32.mcu_temperature
    if hasattr(esp32, "raw_temperature"):  # ESP32, in °F
        return lambda: (esp32.raw_temperature() - 32) / 1.8
    if hasattr(getattr(machine, "ADC", None), "CORE_TEMP"):  # RP2040 datasheet, section 4.9.5
        sensor = machine.ADC(machine.ADC.CORE_TEMP)
        return lambda: 27 - (sensor.read_u16() * 3.3 / 65535 - 0.706) / 0.001721
    return None


# Kept between readings, even during deep sleep: a broker's name -> its last address; "rssi" -> the last
# connection's dBm; "cause" -> machine.reset_cause() of the last start that was not the end of a sleep;
# "up" -> seconds slept since then; "released" -> True if the button was seen released since its last press;
# "clock was set" -> when a time server last did so; "broker failures" -> Reporter.failures.
_last = {}


def board_health():
    """Return the reading for examples/board_health.toml: reset cause, last dBm, free heap in KiB."""
    return import_sibling("memory").health(machine, _last)


# [version, crashes] of the time since the last reading; after an update more than one, the oldest first.
_periods = [[VERSION, 0]]  # in flash, beside the ledger
_period = [VERSION, 0]  # the period that this wake-up's readings describe


# An experiment's name -> the function that reads its sensor. An error counts as no reading.
READINGS = {
    "room_temp": chip_thermometer(),
    "board_crash": lambda: _period[1] > 0,  # whether the watchdog has restarted the board
}


def import_sibling(name):
    """Import a module that is needed only briefly, after collecting garbage to make room for it."""
    tidy()
    return ldp_client._import_sibling(name)


NeedsPerson = ldp_client.SettingsError  # only a person can fix this: the board prints what to do and stops


class Outage(Exception):
    """A problem that may be gone by the next wake-up; the message says what is missing."""


def load_settings():
    """Return the settings that `hushmote flash` wrote."""
    return import_sibling("settings").load_settings(SETTINGS)


def make_client(settings):
    """Return the client with this board's ledger, which must exist already."""
    station = import_sibling("station")
    key = station.key_bytes(settings, "key", 32)
    announce_key = station.key_bytes(settings, "announce_key", 64)
    station = None  # free its memory
    try:
        client = ldp_client.Client(
            POLICY, LEDGER, settings["device_id"], key, announce_key, fleet=settings["fleet"]
        )
    except ldp_client.LDPError as e:
        raise NeedsPerson(str(e))
    client.groups = {"firmware": VERSION}
    locked = client.status()["locked"]
    if locked:
        raise NeedsPerson(locked + " (`hushmote flash`)")
    return client


def yes():
    """Opt in, for someone at the prompt; this board then takes part."""
    import_sibling("consent").answer(make_client(load_settings()), True)


def no():
    """Opt out, for someone at the prompt; unsent reports are deleted, and the board is silent."""
    import_sibling("consent").answer(make_client(load_settings()), False)


def agree(name):
    """Consent to the question waiting under a name, for someone at the prompt, with "ask": "each"."""
    import_sibling("consent").accept(KeptExperiments(make_client(load_settings()), EXPERIMENTS), name)


_reports = []  # the last 8 reports: time and description


def show_report(words):
    """Print a report's description as it is made, and keep the line for last()."""
    print("hushmote: %s" % words)
    _reports[:] = _reports[-7:] + [(time.time(), words)]


def last():
    """Print the last 8 reports since power-up or the last deep sleep, for someone at the prompt."""
    timed = import_sibling("preview").timed
    for at, words in _reports:
        print(timed(words, at))


def button():
    """Return the button's pin, which is low while the button is pressed."""
    return machine.Pin(BUTTON, machine.Pin.IN, machine.Pin.PULL_UP)


def is_pressed():
    """Return whether the button is down and was seen released before; None while it is up.

    A button that was never seen released is stuck or wired the other way round.
    """
    if BUTTON is None:
        return False
    if button().value():
        _last["released"] = True
        return None
    return "released" in _last


def make_mqtt_maker(settings):
    """Return the function that Reporter calls for a new MQTT client object."""
    try:
        from umqtt.simple import MQTTClient
    except ImportError:
        raise NeedsPerson("no umqtt.simple: run `hushmote flash` again")
    context = import_sibling("station").make_tls(settings)
    brokers = Brokers(settings["mqtt_host"], settings.get("mqtt_port") or 0)

    def make_mqtt():
        host, port = brokers.next()
        mqtt = MQTTClient(
            settings["device_id"],
            host,
            port,
            settings.get("mqtt_user"),
            settings.get("mqtt_password"),
            ssl=context,
        )
        if context is not None and hasattr(mqtt, "ssl_params"):
            # umqtt.simple before 1.4 passes these parameters on, but not the server's name.
            mqtt.ssl_params = {"server_hostname": host}
        return mqtt

    return make_mqtt


def look_up(getaddrinfo, host, *more):
    """Return getaddrinfo(host, *more), or its last answer if no name server responds."""
    timer = None
    if sys.platform == "rp2":
        # lwIP queries two servers for 7 s each, and the watchdog waits for 8 s. So a timer feeds it
        # meanwhile, but not forever, so that the watchdog can still end a look-up that hangs.
        seconds = [30]

        def tick(_):
            seconds[0] -= 1
            if seconds[0] > 0:
                feed()

        timer = machine.Timer(-1, period=1_000, callback=tick)
    try:
        addresses = getaddrinfo(host, *more)
        _last[host] = addresses[0][-1][0]
        return addresses
    except OSError:
        if host not in _last:
            raise
        return getaddrinfo(_last[host], *more)
    finally:
        if timer:
            timer.deinit()


def read(name):
    """Return a sensor's reading, or None if it failed; the report is then made for no reading."""
    try:
        return READINGS[name]()
    except Exception as e:  # drivers may raise anything, and reporting must not depend on a reading
        text = e.args[0] if e.args and type(e.args[0]) in (int, str) else ""
        print("hushmote: %s: the sensor failed: %s %s" % (name, type(e).__name__, text))
        return None


class Application:
    """The board's application: its client, experiments and reporter.

    Raises:
        NeedsPerson: If any of them cannot be created.
    """

    def __init__(self):
        tidy()  # after the imports
        self.settings = load_settings()
        for fault in import_sibling("station").load_further(self.settings.get("with")):
            print("hushmote: %s" % fault)
        if network is None:
            raise NeedsPerson("this firmware has no Wi-Fi: install the one for your board (Pico W, not Pico)")
        for name in POLICY["experiments"]:
            if READINGS.get(name) is None:
                raise NeedsPerson("no sensor for %s: add a function that reads it to READINGS" % name)
        self.client = make_client(self.settings)
        self.kept = KeptExperiments(self.client, EXPERIMENTS)
        self.make_mqtt = None
        brokers = self.settings["mqtt_host"].count(",") + 1
        self.reporter = Reporter(
            self.client,
            lambda: self.make_mqtt(),
            self.kept,
            feed,
            brokers,
            status=self.settings.get("mqtt_status", True),
            will=self.settings.get("mqtt_last_will", True),
            topic_prefix=self.settings.get("mqtt_prefix", ""),
        )
        failures = self.reporter.failures
        for i in (0, 1):  # what a setting turns off remains -1
            failures[i] = failures[i] or max(_last.get("broker failures", failures)[i], 0)
        _last["broker failures"] = failures
        self.reporter.on_report = show_report
        self.reporter.look_up = look_up
        self.due = None  # plan()'s result, until that reading has been made
        self.access_point = []

    def attend(self):
        """Handle a held button, and the case that nobody has opted in."""
        if not self.client.consent or is_pressed():  # otherwise the module is not needed
            was_up = _last.pop("released", False)  # once for each press
            text = import_sibling("consent").attend(self.client, BUTTON, LED, feed, was_up)
            if text:
                raise NeedsPerson(text)

    def ask(self):
        """Ask someone at the board about a question that is waiting for its own consent."""
        if self.client.consent and self.kept.asking and BUTTON is not None and LED is not None:
            import_sibling("consent").offer(self.kept, BUTTON, LED, feed)
            _last.pop("released", None)  # the button may still be down
            is_pressed()

    def first_wait_s(self):
        """Return the seconds that an unplanned start waits before its first reading."""
        # Read at a random moment of an interval: however often the power fails, there is on average at most
        # one reading per interval, and a fleet does not restart in step.
        if not self.kept.digests:
            return self.client.rng.below(START_SPREAD_S)
        if machine.reset_cause() == getattr(machine, "WDT_RESET", None):
            return INTERVAL_S  # otherwise each watchdog reset would make a reading
        return self.client.rng.below(INTERVAL_S)

    def plan(self, most=1):
        """Draw for the next readings, `most` at most; return which of them is the first that is needed."""
        # Only draws decide whether the radio goes on, never a reading or a failed sensor.
        refresh, calls = False, 0
        while calls < most and not refresh:
            calls += 1
            refresh = INTERVAL_S >= REFRESH_S or self.client.rng.bernoulli(
                INTERVAL_S * ldp_client.ONE // REFRESH_S
            )
        groups = dict.fromkeys(PERIOD_READINGS, _periods[0][0])
        first, digests = import_sibling("gap").draw(self.client, calls, groups)
        self.due = digests, refresh and first == calls
        return first

    def wake_up(self):
        """Read the sensors that are due and make their reports; use the radio only if it is needed."""
        client = self.client
        if not client.consent:
            return
        if self.due is None:
            self.plan()
        digests, refresh = self.due or ({}, False)
        self.due = None
        if len(_periods) > 1 or _periods[0][1]:
            _period[:] = _periods.pop(0)
            _periods[:] = _periods or [[VERSION, 0]]
            # This comes before the reports: losing a period in a power cut is better than reporting it twice.
            import_sibling("memory").write_periods(LEDGER + "/periods.json", _periods)
        else:
            _period[:] = _periods[0]
        groups = dict.fromkeys(PERIOD_READINGS, _period[0])
        for name in digests:
            self.reporter.report(name, read(name), digests[name], groups.get(name))
        if refresh or not self.kept.digests or client.outbox():
            # The broker may have the experiments that this board does not know yet.
            self.connect(
                {name: read(name) for name in POLICY["experiments"] if name not in self.kept.digests},
                groups,
            )
        import_sibling("memory").print_results(client, self.reporter, self.kept)
        self.ask()

    def sleep_s(self):
        """Return the seconds to the next reading that is needed, as drawn; without a draw, INTERVAL_S."""
        if (
            not import_sibling("memory").remembers(machine)
            or not self.client.consent
            or not self.kept.digests
            or self.client.outbox()
        ):
            return INTERVAL_S
        feed()
        if len(_periods) > 1:  # after an update the next readings describe another period
            return INTERVAL_S * self.plan()
        return INTERVAL_S * self.plan(max(min(MAX_SLEEP_S // INTERVAL_S, 1_000), 1))

    def connect(self, unknown, groups):
        """Fetch experiments, report these readings, and send all waiting reports."""
        if self.make_mqtt is None:
            self.make_mqtt = make_mqtt_maker(self.settings)
        wlan = network.WLAN(network.STA_IF)
        try:
            station = import_sibling("station")
            why = station.connect(wlan, network, self.settings, self.access_point, feed)
            if not why and self.settings.get("mqtt_ca"):
                feed()
                why = station.set_clock(look_up, self.settings, _last)
            if why:
                raise Outage(why)
            station.listen(wlan, _last)
            station = None  # free its memory
            feed()
            tidy()
            self.reporter.flush(30_000, unknown, groups)
            # mbedTLS has two sentences about a certificate's dates, or only its error code.
            error = self.reporter.error or ""
            if "certificate validity" in error or "error -0x2700" in error:
                feed()
                if not import_sibling("station").set_clock(look_up, self.settings, _last, True):
                    self.reporter.flush(30_000, unknown, groups)
        finally:
            try:
                wlan.disconnect()
            except OSError:  # not connected
                pass
            wlan.active(False)


# --- Watchdog and sleep ---------------------------------------------------------------------------

_watchdog = []


def watch(timeout_ms=60_000):
    """Start the watchdog, or change its timeout; an RP2040's allows at most 8.388 s and cannot be stopped."""
    for ms in (timeout_ms, 8_388):
        try:
            _watchdog[:] = [machine.WDT(timeout=ms)]
            return
        except AttributeError:  # no machine module, or no watchdog
            return
        except ValueError:
            pass


def feed():
    """Feed the watchdog; any code that waits calls this at least once a second."""
    for dog in _watchdog:
        dog.feed()


def woke_as_planned():
    """Return whether this start is the end of a sleep that lasted as long as planned."""
    woke = machine.reset_cause() == getattr(machine, "DEEPSLEEP_RESET", None)
    return woke and (not hasattr(machine, "wake_reason") or machine.wake_reason() == machine.TIMER_WAKE)


def sleep(ms, board=None):
    """Sleep. On a board that can restart from deep sleep, this does not return."""
    if "up" in _last:
        _last["up"] += ms // 1000
    if hasattr(machine, "DEEPSLEEP_RESET"):
        # A stuck button would wake it immediately.
        if is_pressed() is None and hasattr(esp32, "wake_on_ext0"):
            esp32.wake_on_ext0(button(), esp32.WAKEUP_ALL_LOW)
        if board is not None:
            import_sibling("memory").keep(machine, board.due, _last)
        machine.deepsleep(ms)
    # An RP2040 cannot tell such a start from others, and sleeps at most 4,294 s, less if its radio wakes it.
    while ms > 0:
        feed()
        if board is not None and is_pressed():
            board.attend()
            board.ask()  # after a press, and after an opt-in
        since = ticks_ms()
        nap_ms = min(ms, 5_000 if BUTTON is None else 1_000)
        machine.lightsleep(nap_ms)
        if ticks_diff(ticks_ms(), since) < min(nap_ms, 10):
            sleep_ms(min(nap_ms, 100))
        ms -= max(ticks_diff(ticks_ms(), since), 1)


def main():
    """Wake up, then sleep until the next reading; return to the REPL if a person is needed."""
    board = None
    first = not woke_as_planned()
    memory = import_sibling("memory")
    due = memory.recall(machine, _last, first)
    if set(PERIOD_READINGS) & set(POLICY["experiments"]):
        _periods[:] = memory.start_periods(machine, first, LEDGER + "/periods.json", VERSION)
    memory = None  # free its memory
    if first and START_DELAY_S and not is_pressed():
        print("hushmote: starts in %d s; Ctrl-C stops it" % START_DELAY_S)
        time.sleep(START_DELAY_S)
    while True:
        since = ticks_ms()
        next_s = INTERVAL_S
        try:
            if board is None:
                board = Application()
                board.due = due
                board.attend()  # before watch(): the watchdog would restart the board while someone types
                watch()
                if first:
                    board.ask()
                wait_s = board.first_wait_s() if first else 0
                if wait_s:
                    print("hushmote: first reading in %d s" % wait_s)
                    sleep(wait_s * 1000, board)
                    since = ticks_ms()
            try:
                board.wake_up()
            finally:
                next_s = board.sleep_s()
        except NeedsPerson as e:
            print("hushmote: %s" % e)
            return
        except KeyboardInterrupt:
            watch(3_600_000)
            print("hushmote: if the watchdog restarts the board, press Ctrl-C within %d s" % START_DELAY_S)
            raise
        except Exception as e:  # keep going, as nobody can restart a board in the field
            why = e if isinstance(e, Outage) else "%s: %s" % (type(e).__name__, e)
            print("hushmote: %s; next try in %d s" % (why, next_s))
        sleep(max(next_s * 1000 - ticks_diff(ticks_ms(), since), 1000), board)


if __name__ == "__main__":
    main()
