"""Hushmote's example application for an ESP32 or a Pico W: wake, read, draw the coin, sleep.

The radio is switched on only when there is a report to send, or by a coin that falls about once a day, to
fetch experiments and to show that the board is well.

Copy it and make it yours: POLICY, INTERVAL_S and READINGS are all that most boards need to change. What
differs from board to board (fleet, keys, Wi-Fi, broker) is in /settings.json, written by `hushmote provision`
and `hushmote flash`; the privacy budget is in /ldp and is never copied.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# pyright: reportOptionalCall=false

import binascii
import json
import os
import time

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
    from .kept_experiments import KeptExperiments, load_further, tidy
    from .mqtt_reporter import Reporter
    from .reporter_base import Brokers, sleep_ms, ticks_diff, ticks_ms
else:
    import ldp_client
    from kept_experiments import KeptExperiments, load_further, tidy
    from mqtt_reporter import Reporter
    from reporter_base import Brokers, sleep_ms, ticks_diff, ticks_ms


def _where_there(name):
    try:
        return __import__(name)
    except ImportError:
        return None


machine, esp32, network = _where_there("machine"), _where_there("esp32"), _where_there("network")

# What this firmware allows, whatever a server asks: micro-nats, for the board's whole life. Reports go on
# while the sum of epsilon <= sum or the sum of epsilon**2 <= squares; both together give (8, 1e-6)-LDP.
POLICY = {
    "sum": 8_000_000,
    "squares": 1_819_000_000_000,
    "epsilon": 4_000_000,
    "rules": ("sum", "squares", "count"),
    "experiments": ("room_temp",),
}
BUTTON = None  # pin of a button to ground: held for 3 s it says yes, and held again no
LED = None  # pin of a light that asks: two flashes; a long one for yes, three short ones for no
INTERVAL_S = 3600  # from one reading to the next: by the clock, never because something changed
REFRESH_S = 86_400  # from one connection that has nothing to send to the next, on average
START_DELAY_S = 10  # after power-up, so that ctrl-C and `hushmote flash` can take hold of the board
START_SPREAD_S = 60  # a board without experiments starts at a random moment within these seconds

SETTINGS = "/settings.json"
LEDGER = "/ldp"  # `hushmote flash` makes it, once
EXPERIMENTS = "/experiments"


def chip_thermometer():
    """The function that reads the chip's own temperature in °C; None where the chip cannot tell."""
    if hasattr(esp32, "mcu_temperature"):  # ESP32-C3, -S2, -S3 and later
        return esp32.mcu_temperature
    if hasattr(esp32, "raw_temperature"):  # ESP32, in °F
        return lambda: (esp32.raw_temperature() - 32) / 1.8
    if hasattr(getattr(machine, "ADC", None), "CORE_TEMP"):  # RP2040 datasheet, section 4.9.5
        sensor = machine.ADC(machine.ADC.CORE_TEMP)
        return lambda: 27 - (sensor.read_u16() * 3.3 / 65535 - 0.706) / 0.001721
    return None


# Experiment's name -> the function that reads its sensor. What it raises counts as no reading.
READINGS = {"room_temp": chip_thermometer()}


class NeedsPerson(Exception):
    """Something only a person can put right; the board stops and the text says what to do."""


class Outage(Exception):
    """Something that may be better at the next wake-up; the text says what is missing."""


def load_settings():
    """The settings that `hushmote flash` has put here."""
    try:
        blocks = os.statvfs("/")[2]
    except OSError:
        blocks = 0
    if not blocks:  # a root folder without a file system has none
        raise NeedsPerson("no file system: erase the flash, install MicroPython again, then `hushmote flash`")
    try:
        with open(SETTINGS) as f:
            settings = json.load(f)
    except OSError:
        raise NeedsPerson("no %s: run `hushmote provision`, then `hushmote flash`" % SETTINGS)
    except ValueError:
        raise NeedsPerson("%s is damaged: run `hushmote flash` again" % SETTINGS)
    for name in ("fleet", "device_id", "wifi_ssid", "mqtt_host"):
        if not settings.get(name):
            raise NeedsPerson("%s is empty: fill it in and run `hushmote flash` again" % name)
    return settings


def key_bytes(settings, name, size):
    """A key of size bytes from its hex digits; None in an open fleet."""
    text = settings.get(name)
    if text is None:
        return None
    try:
        key = binascii.unhexlify(text)
    except (ValueError, TypeError):
        key = b""
    if len(key) != size:
        text = "%s must be %d hex digits: flash the settings of `hushmote provision`"
        raise NeedsPerson(text % (name, 2 * size))
    return key


def make_client(settings):
    """The client with this board's ledger, which must be there already."""
    key = key_bytes(settings, "key", 32)
    announce_key = key_bytes(settings, "announce_key", 64)
    try:
        client = ldp_client.Client(
            POLICY, LEDGER, settings["device_id"], key, announce_key, fleet=settings["fleet"]
        )
    except ldp_client.LDPError as e:
        raise NeedsPerson(str(e))
    locked = client.status()["locked"]
    if locked:
        raise NeedsPerson(locked + " (`hushmote flash`)")
    return client


def yes():
    """Somebody at the prompt says yes: this board takes part."""
    answer(True)


def no():
    """Somebody at the prompt says no: what was not sent is dropped, and the board is silent."""
    answer(False)


def answer(value):
    make_client(load_settings()).consent = value
    print("hushmote: " + ("yes: ctrl-D starts the board" if value else "no: this board is silent"))


_reports = []  # the last 8 reports: the time, and the words on it


def told(words):
    """Print a report that was made, and keep the words for last()."""
    print("hushmote: " + words)
    _reports[:] = _reports[-7:] + [(time.time(), words)]


def last():
    """Print for somebody at the prompt the last 8 reports since the power came, or since a deep sleep."""
    timed = ldp_client._beside("preview").timed
    for at, words in _reports:
        print(timed(words, at))


def button():
    return machine.Pin(BUTTON, machine.Pin.IN, machine.Pin.PULL_UP)


def pressed():
    """Whether the button is down."""
    return BUTTON is not None and not button().value()


def connect_wifi(wlan, settings, timeout_s=20):
    """Bring the network up."""
    if settings.get("wifi_country") and hasattr(network, "country"):
        network.country(settings["wifi_country"])
    ssid = settings["wifi_ssid"]
    wrong_password = getattr(network, "STAT_WRONG_PASSWORD", None)
    try:
        wlan.active(True)
        if not wlan.isconnected():
            wlan.connect(ssid, settings.get("wifi_password") or None)
        for _ in range(timeout_s * 10):
            if wlan.isconnected():
                return
            if wlan.status() == wrong_password:
                break
            feed()
            time.sleep(0.1)
    except OSError as e:
        raise Outage("Wi-Fi %s: the radio failed, errno %s" % (ssid, e.args[0] if e.args else "unknown"))
    status = wlan.status()
    if status == wrong_password:
        raise Outage("Wi-Fi %s: wrong password, or a weak signal: see wifi_password" % ssid)
    if status == getattr(network, "STAT_NO_AP_FOUND", None):
        raise Outage("Wi-Fi %s: not found (boards hear 2.4 GHz only): see wifi_ssid" % ssid)
    raise Outage("Wi-Fi %s: no connection in %d s" % (ssid, timeout_s))


def set_clock():
    """Only certificates need the time: neither reports nor the budget do."""
    if time.gmtime()[0] >= 2025:
        return
    try:
        import ntptime

        ntptime.settime()
    except (ImportError, OSError):
        raise Outage("the clock is at %d and no time server answered: allow NTP" % time.gmtime()[0])


def make_tls(settings):
    """How the broker is checked, and what is shown to it; None for a connection without TLS."""
    if not settings.get("mqtt_ca"):
        if settings.get("mqtt_cert"):
            raise NeedsPerson("mqtt_cert without mqtt_ca: flash what `hushmote provision` wrote")
        return None
    import tls

    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    context.verify_mode = tls.CERT_REQUIRED
    try:
        context.load_verify_locations(binascii.a2b_base64(settings["mqtt_ca"]))
    except ValueError:
        raise NeedsPerson("mqtt_ca is not a certificate: `hushmote provision` takes it as a PEM file")
    certificate, key = settings.get("mqtt_cert"), settings.get("mqtt_key")
    if certificate or key:
        try:
            context.load_cert_chain(binascii.a2b_base64(certificate), binascii.a2b_base64(key))
        except (ValueError, TypeError):  # TypeError: only one of the two
            raise NeedsPerson("mqtt_cert and mqtt_key are no pair: flash what `hushmote provision` wrote")
    return context


def make_mqtt_maker(settings):
    """The function that Reporter calls for a new MQTT client object."""
    try:
        from umqtt.simple import MQTTClient
    except ImportError:
        raise NeedsPerson("no umqtt.simple: run `hushmote flash` again")
    context = make_tls(settings)
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
            # umqtt.simple before 1.4 passes these on, and not the server's name.
            mqtt.ssl_params = {"server_hostname": host}
        return mqtt

    return make_mqtt


def read(name):
    """A sensor's reading; None where it failed: the report is then made of no reading."""
    try:
        return READINGS[name]()
    except Exception as e:  # drivers raise what they like; silence must not depend on a reading
        text = e.args[0] if e.args and type(e.args[0]) in (int, str) else ""
        print("hushmote: %s: the sensor failed: %s %s" % (name, type(e).__name__, text))
        return None


class Application:
    """What runs here: its client, experiments and reporter; NeedsPerson where one of them cannot be made."""

    def __init__(self):
        tidy()  # after the imports
        self.settings = load_settings()
        for fault in load_further(self.settings.get("with")):
            print("hushmote: " + fault)
        if network is None:
            raise NeedsPerson("this firmware has no Wi-Fi: install the one for your board (Pico W, not Pico)")
        for name in POLICY["experiments"]:
            if READINGS.get(name) is None:
                raise NeedsPerson("no sensor for %s: write a function that reads yours into READINGS" % name)
        self.client = make_client(self.settings)
        self.kept = KeptExperiments(self.client, EXPERIMENTS)
        self.make_mqtt = None
        brokers = self.settings["mqtt_host"].count(",") + 1
        self.reporter = Reporter(self.client, lambda: self.make_mqtt(), self.kept, feed, brokers)
        self.reporter.on_report = told

    def attend(self):
        """Serve somebody at the board: a button that is held, and whether anybody has said yes."""
        if not self.client.consent or pressed():  # or there is no need of the module
            text = ldp_client._beside("consent").attend(self.client, BUTTON, LED, feed)
            if text:
                raise NeedsPerson(text)

    def first_wait_s(self):
        """How long a start that was not planned waits for its first reading."""
        # At a random moment of an interval: however often the power goes, there is at most one reading an
        # interval on average, and a fleet does not come back in step.
        if not self.kept.known:
            return self.client.rng.below(START_SPREAD_S)
        if machine.reset_cause() == getattr(machine, "WDT_RESET", None):
            return INTERVAL_S  # or whatever hangs would make a reading each time
        return self.client.rng.below(INTERVAL_S)

    def wake_up(self):
        """One reading of each sensor, one chance of a report each; the radio only where it is needed."""
        client = self.client
        if not client.consent:
            return
        # Coins alone decide whether the radio goes on: neither a reading nor a failed sensor can.
        refresh = INTERVAL_S >= REFRESH_S or client.rng.bernoulli(INTERVAL_S * ldp_client.ONE // REFRESH_S)
        unknown = {}
        for name in POLICY["experiments"]:
            reading = read(name)
            if name in self.kept.known:
                self.reporter.report(name, reading)
            else:  # the broker may have it
                unknown[name] = reading
        if refresh or not self.kept.known or client.outbox():
            self.connect(unknown)
        self.tell()

    def connect(self, unknown):
        """Fetch experiments, give these readings their chance, send what waits."""
        if self.make_mqtt is None:
            self.make_mqtt = make_mqtt_maker(self.settings)
        wlan = network.WLAN(network.STA_IF)
        try:
            connect_wifi(wlan, self.settings)
            if self.settings.get("mqtt_ca"):
                set_clock()
            feed()
            tidy()
            self.reporter.flush(30_000, unknown)
        finally:
            try:
                wlan.disconnect()
            except OSError:  # it was not connected
                pass
            wlan.active(False)

    def tell(self):
        """Print what this wake-up did, one line per experiment and problem."""
        status = self.client.status()
        reporter = self.reporter
        for name, line in status["experiments"].items():
            if line["state"] == "reporting":
                text = "%d reports made, %d left" % (line["reports"], line["left"])
            elif line["state"] == "spent":
                text = "silent: its budget is spent, after %d reports" % line["reports"]
            elif line["reason"] or name in reporter.refused:
                text = "refused: " + (line["reason"] or reporter.refused[name])
                if "signature" in text:
                    text += ": is announce_key this fleet's?"
            else:
                text = "no such experiment at the broker yet: `hushmote experiment add`"
            if line["state"] != "absent" or reporter.error is None:
                print("hushmote: %s: %s" % (name, text))
        problems = [reporter.error, reporter.fault, self.kept.fault, status["error"]]
        for problem in problems + list(reporter.mistyped.values()):
            if problem:
                print("hushmote: " + problem)
        print("hushmote: %d sent, %d waiting" % (reporter.sent, status["pending"]))


# --- Watchdog and sleep ---------------------------------------------------------------------------

_watchdog = []


def watch(timeout_ms=60_000):
    """Start the watchdog, or change its time; an RP2040's takes 8.388 s at most and never stops again."""
    for ms in (timeout_ms, 8_388):
        try:
            _watchdog[:] = [machine.WDT(timeout=ms)]
            return
        except AttributeError:  # no machine, or one without a watchdog
            return
        except ValueError:
            pass


def feed():
    """Everything that waits calls this, at least once a second."""
    for dog in _watchdog:
        dog.feed()


def planned():
    """Whether this start is the end of a sleep that had its time."""
    woke = machine.reset_cause() == getattr(machine, "DEEPSLEEP_RESET", None)
    return woke and (not hasattr(machine, "wake_reason") or machine.wake_reason() == machine.TIMER_WAKE)


def sleep(ms, board=None):
    """Sleep; a board that can start again from deep sleep does not return."""
    if hasattr(machine, "DEEPSLEEP_RESET"):
        if BUTTON is not None and hasattr(esp32, "wake_on_ext0"):
            esp32.wake_on_ext0(button(), esp32.WAKEUP_ALL_LOW)
        machine.deepsleep(ms)
    # An RP2040 cannot tell such a start from others, sleeps 4,294 s at most, less where its radio stirs.
    while ms > 0:
        feed()
        if board is not None and pressed():
            board.attend()
        since = ticks_ms()
        nap_ms = min(ms, 5_000 if BUTTON is None else 1_000)
        machine.lightsleep(nap_ms)
        if ticks_diff(ticks_ms(), since) < min(nap_ms, 10):
            sleep_ms(min(nap_ms, 100))
        ms -= max(ticks_diff(ticks_ms(), since), 1)


def main():
    """Wake up, then sleep until the next reading; back to the REPL where a person is needed."""
    board = None
    first = not planned()
    if first and START_DELAY_S and not pressed():
        print("hushmote: starts in %d s; ctrl-C stops it" % START_DELAY_S)
        time.sleep(START_DELAY_S)
    while True:
        since = ticks_ms()
        try:
            if board is None:
                board = Application()
                board.attend()  # before the watchdog: it would restart a board at whose prompt somebody types
                watch()
                wait_s = board.first_wait_s() if first else 0
                if wait_s:
                    print("hushmote: first reading in %d s" % wait_s)
                    sleep(wait_s * 1000, board)
                    since = ticks_ms()
            board.wake_up()
        except (NeedsPerson, ldp_client.SettingsError) as e:
            print("hushmote: " + str(e))
            return
        except KeyboardInterrupt:
            watch(3_600_000)
            print("hushmote: if the watchdog restarts the board, press ctrl-C within %d s" % START_DELAY_S)
            raise
        except Outage as e:
            print("hushmote: %s; next try in %d s" % (e, INTERVAL_S))
        except Exception as e:  # a board in the field has nobody to restart it
            print("hushmote: %s: %s; next try in %d s" % (type(e).__name__, e, INTERVAL_S))
        sleep(max(INTERVAL_S * 1000 - ticks_diff(ticks_ms(), since), 1000), board)


if __name__ == "__main__":
    main()
