"""Hushmote's example application for an ESP32 or a Pico W: wake, read the chip's temperature, report, sleep.

Copy it and make it yours: POLICY, INTERVAL_S and READINGS are all that most boards need to change. What
differs from board to board (fleet, keys, Wi-Fi, broker) is in /settings.json, written by `hushmote provision`
and `hushmote flash`; the privacy budget is in /ldp and is never copied.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import binascii
import json
import os
import sys
import time

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
    from .mqtt_reporter import Reporter
else:
    import ldp_client
    from mqtt_reporter import Reporter

try:
    import machine
except ImportError:
    machine = None

try:
    import network
except ImportError:
    network = None

# What this firmware allows, whatever a server asks: micro-nats, for the board's whole life. Reports go on
# while the sum of epsilon <= sum or the sum of epsilon**2 <= squares; both together give (8, 1e-6)-LDP.
POLICY = {
    "sum": 8_000_000,
    "squares": 1_819_000_000_000,
    "epsilon": 4_000_000,
    "rules": ("sum", "squares", "count"),
    "experiments": ("room_temp",),
}
INTERVAL_S = 3600  # from one reading to the next: by the clock, never because something changed
START_DELAY_S = 10  # after power-up, so that ctrl-C and `hushmote flash` can take hold of the board

SETTINGS = "/settings.json"
LEDGER = "/ldp"  # `hushmote flash` makes it, once


def chip_temperature():
    """The chip's own temperature in °C; None where this reading failed."""
    try:
        import esp32
    except ImportError:
        esp32 = None
    if hasattr(esp32, "mcu_temperature"):  # ESP32-C3, -S2, -S3 and later
        return esp32.mcu_temperature()
    if hasattr(esp32, "raw_temperature"):  # ESP32, in °F
        return (esp32.raw_temperature() - 32) / 1.8
    if hasattr(getattr(machine, "ADC", None), "CORE_TEMP"):  # RP2040 datasheet, section 4.9.5
        volt = machine.ADC(machine.ADC.CORE_TEMP).read_u16() * 3.3 / 65535
        return 27 - (volt - 0.706) / 0.001721
    raise NeedsPerson("no temperature sensor in this chip: write a function that reads yours into main.py")


READINGS = {"room_temp": chip_temperature}


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


def key_bytes(settings, name):
    """A 32-byte key from its 64 hex digits; None in an open fleet."""
    text = settings.get(name)
    if text is None:
        return None
    try:
        key = binascii.unhexlify(text)
    except (ValueError, TypeError):
        key = b""
    if len(key) != 32:
        raise NeedsPerson("%s must be 64 hex digits: flash the settings of `hushmote provision`" % name)
    return key


def make_client(settings):
    """The client with this board's ledger, which must be there already."""
    key = key_bytes(settings, "key")
    announce_key = key_bytes(settings, "announce_key")
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


def connect_wifi(settings, timeout_s=20):
    """Bring the network up; returns the interface."""
    if network is None:
        raise NeedsPerson("this firmware has no Wi-Fi: install the one for your board (Pico W, not Pico)")
    if settings.get("wifi_country") and hasattr(network, "country"):
        network.country(settings["wifi_country"])
    wlan = network.WLAN(network.STA_IF)
    ssid = settings["wifi_ssid"]
    wrong_password = getattr(network, "STAT_WRONG_PASSWORD", None)
    try:
        wlan.active(True)
        if not wlan.isconnected():
            wlan.connect(ssid, settings.get("wifi_password") or None)
        for _ in range(timeout_s * 10):
            if wlan.isconnected():
                return wlan
            if wlan.status() == wrong_password:
                break
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

    set_clock()
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
        raise NeedsPerson("no umqtt.simple: `mpremote mip install umqtt.simple`")
    context = make_tls(settings)

    def make_mqtt():
        mqtt = MQTTClient(
            settings["device_id"],
            settings["mqtt_host"],
            settings.get("mqtt_port") or 0,
            settings.get("mqtt_user"),
            settings.get("mqtt_password"),
            ssl=context,
        )
        if context is not None and hasattr(mqtt, "ssl_params"):
            # umqtt.simple before 1.4 looks for the module ussl instead, which checks nobody's certificate.
            sys.modules["ussl"] = context
            mqtt.ssl_params = {"server_hostname": settings["mqtt_host"]}
        return mqtt

    return make_mqtt


def tell(client, reporter, all_sent):
    """Print what this wake-up did, one line per experiment and problem."""
    status = client.status()
    for name, line in status["experiments"].items():
        if line["state"] == "reporting":
            text = "%d reports made, %d left" % (line["reports"], line["left"])
        elif line["state"] == "spent":
            text = "silent: its budget is spent, after %d reports" % line["reports"]
        elif line["state"] == "refused":
            text = "refused: " + line["reason"]
            if "signature" in text:
                text += ": is announce_key this fleet's?"
        else:
            text = "no such experiment at the broker yet: `hushmote experiment add`"
        if line["state"] != "absent" or reporter.error is None:
            print("hushmote: %s: %s" % (name, text))
    if not status["enabled"]:
        print("hushmote: this board has opted out; client.enabled = True ends that")
    for problem in (reporter.error, reporter.fault, status["error"]):
        if problem:
            print("hushmote: " + problem)
    print("hushmote: %d sent, %d waiting" % (reporter.sent, status["pending"]))


def wake_up():
    """One reading, one chance of a report, and whatever waits to be sent."""
    settings = load_settings()
    client = make_client(settings)
    # Read before the network is up: whether and when that happens must not depend on the reading.
    readings = {}
    for name in POLICY["experiments"]:
        readings[name] = READINGS[name]()
    wlan = connect_wifi(settings)
    try:
        reporter = Reporter(client, make_mqtt_maker(settings))
        tell(client, reporter, reporter.flush(30_000, readings))
    finally:
        wlan.disconnect()
        wlan.active(False)


def main():
    """Wake up, then sleep until the next reading; back to the REPL where a person is needed."""
    started_s = time.time()
    woke = (getattr(machine, "DEEPSLEEP_RESET", None), getattr(machine, "WDT_RESET", None))
    if START_DELAY_S and machine is not None and machine.reset_cause() not in woke:
        print("hushmote: starts in %d s; ctrl-C stops it" % START_DELAY_S)
        time.sleep(START_DELAY_S)
    try:
        wake_up()
    except NeedsPerson as e:
        print("hushmote: " + str(e))
        return
    except Outage as e:
        print("hushmote: %s; next try in %d s" % (e, INTERVAL_S))
    except Exception as e:  # a board in the field has nobody to restart it
        print("hushmote: %s: %s; next try in %d s" % (type(e).__name__, e, INTERVAL_S))
    # time.time() jumps when the clock is set, so the difference is not trusted beyond a minute.
    awake_s = min(max(time.time() - started_s, 0), 60)
    machine.deepsleep(max(INTERVAL_S - awake_s, 1) * 1000)


if __name__ == "__main__":
    main()
