"""Hushmote's station, for main.py: memory through a sleep, Wi-Fi, clock, TLS. Needed for a moment at a time.

why = connect(wlan, network, settings, ap, feed)     None, or a line that says what is missing
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import binascii
import gc
import json
import sys
import time

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from .ldp_client import SettingsError
    from .reporter_base import sleep_ms, ticks_diff, ticks_ms
else:
    from ldp_client import SettingsError
    from reporter_base import sleep_ms, ticks_diff, ticks_ms


# The one memory that outlives a deep sleep; an ESP32's, without which main.py tosses no coins ahead there.
def _rtc(machine):
    clock = getattr(machine, "RTC", object)()
    return clock if hasattr(clock, "memory") else None


def remembers(machine):
    """Whether the board knows after a sleep what it was to wake up for."""
    return not hasattr(machine, "DEEPSLEEP_RESET") or _rtc(machine) is not None


def keep(machine, due, last):
    """Before a deep sleep: put what a plan found, or None, and last, of JSON, where they outlive it."""
    clock = _rtc(machine)
    if clock is not None:
        digests, refresh = due or ({}, None)
        digests = {name: int.from_bytes(digests[name], "big") for name in digests}
        clock.memory(json.dumps([digests, refresh, last]).encode())


def recall(machine, last, unplanned):
    """At a start: put back into last what was kept; returns what the plan had found, to be had once, or None.

    unplanned: no sleep ends here that had its time, and coins that were tossed for another say nothing.
    """
    clock, due = _rtc(machine), None
    if clock is not None:
        try:
            digests, refresh, values = json.loads(clock.memory())
            last.update(values)
            if refresh is not None and not unplanned:
                due = {name: digests[name].to_bytes(4, "big") for name in digests}, refresh
        except (ValueError, TypeError, AttributeError):  # empty, or somebody else's
            pass
        clock.memory(b"")
    if unplanned:
        last["cause"], last["up"] = machine.reset_cause(), 0
    return due


def listen(wlan, last):
    """Keep how strong the network is."""
    try:
        last["rssi"] = wlan.status("rssi")
    except (TypeError, ValueError, OSError):  # a port whose radio does not tell
        pass


def health(machine, last):
    """(Why the board started, dBm of its last connection or None, KiB of heap that are free)."""
    gc.collect()
    causes = {getattr(machine, "PWRON_RESET", -1): "power", getattr(machine, "WDT_RESET", -2): "watchdog"}
    return causes.get(last.get("cause"), "other"), last.get("rssi"), gc.mem_free() / 1024


_WAIT_MS = 20_000
_DIRECT_MS = 6_000  # of these for the access point of last time


def _join(wlan, settings, ap):
    """Ask for the connection, by way of an access point, or of any where ap is empty."""
    where = {"channel": ap[0], "bssid": ap[1]} if ap else {}
    wlan.connect(settings["wifi_ssid"], settings.get("wifi_password") or None, **where)


def _find(wlan, ssid, ap):
    """Put channel and BSSID of a network's strongest access point into ap."""
    heard = [network for network in wlan.scan() if network[0] == ssid.encode()]
    if heard:
        best = max(heard, key=lambda found: found[3])
        ap[:] = best[2], best[1]


def connect(wlan, network, settings, ap, feed):
    """Bring the network up; returns None, or a line that says what is missing.

    ap: a list that is kept from one call to the next, first empty: with it a Pico W connects without a scan,
    until that access point does not answer. An ESP32 takes no channel; its scan ends at the first answer.
    """
    if settings.get("wifi_country") and hasattr(network, "country"):
        network.country(settings["wifi_country"])
    ssid = settings["wifi_ssid"]
    wrong_password = getattr(network, "STAT_WRONG_PASSWORD", None)
    try:
        wlan.active(True)
        if settings.get("wifi_address"):
            wlan.ifconfig(tuple(settings["wifi_address"].split(",")))
        if not wlan.isconnected():
            _join(wlan, settings, ap)
        since = ticks_ms()
        while not wlan.isconnected():
            waited_ms = ticks_diff(ticks_ms(), since)
            if waited_ms > _WAIT_MS or wlan.status() == wrong_password:
                break
            if ap and waited_ms > _DIRECT_MS:
                ap.clear()
                wlan.disconnect()
                _join(wlan, settings, ap)
            feed()
            sleep_ms(100)
        else:
            if not ap and sys.platform == "rp2":
                _find(wlan, ssid, ap)
            return None
    except OSError as e:
        return "Wi-Fi %s: the radio failed, errno %s" % (ssid, e.args[0] if e.args else "unknown")
    status = wlan.status()
    if status == wrong_password:
        return "Wi-Fi %s: wrong password, or a weak signal: see wifi_password" % ssid
    if status == getattr(network, "STAT_NO_AP_FOUND", None):
        return "Wi-Fi %s: not found (boards hear 2.4 GHz only): see wifi_ssid" % ssid
    return "Wi-Fi %s: no connection in %d s" % (ssid, _WAIT_MS // 1000)


def set_clock(look_up):
    """Only certificates need the time: neither reports nor the budget do. Returns as connect() does.

    look_up: getaddrinfo in its place, which feeds the watchdog while name servers are silent.
    """
    if time.gmtime()[0] >= 2025:
        return None
    try:
        import socket

        import ntptime

        ntptime.host = look_up(socket.getaddrinfo, ntptime.host, 123)[0][-1][0]
        ntptime.settime()
    except (ImportError, OSError):
        return "the clock is at %d and no time server answered: allow NTP" % time.gmtime()[0]


def make_tls(settings):
    """How the broker is checked, and what is shown to it; None for a connection without TLS."""
    if not settings.get("mqtt_ca"):
        if settings.get("mqtt_cert"):
            raise SettingsError("mqtt_cert without mqtt_ca: flash what `hushmote provision` wrote")
        return None
    import tls

    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    context.verify_mode = tls.CERT_REQUIRED
    try:
        context.load_verify_locations(binascii.a2b_base64(settings["mqtt_ca"]))
    except ValueError:
        raise SettingsError("mqtt_ca is not a certificate: `hushmote provision` takes it as a PEM file")
    certificate, key = settings.get("mqtt_cert"), settings.get("mqtt_key")
    if certificate or key:
        try:
            context.load_cert_chain(binascii.a2b_base64(certificate), binascii.a2b_base64(key))
        except (ValueError, TypeError):  # TypeError: only one of the two
            raise SettingsError("mqtt_cert and mqtt_key are no pair: flash what `hushmote provision` wrote")
    return context
