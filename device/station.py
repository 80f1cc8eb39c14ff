"""Memory during sleep and across updates, Wi-Fi, clock and TLS for main.py. Imported only while it is needed.

why = connect(wlan, network, settings, ap, feed)     None, or a line that says what is missing
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import binascii
import gc
import json
import sys
import time

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from .ldp_client import SettingsError
    from .reporter_base import sleep_ms, ticks_diff, ticks_ms
else:
    from ldp_client import SettingsError
    from reporter_base import sleep_ms, ticks_diff, ticks_ms


# An ESP32's RTC memory survives a deep sleep; on a board without it, main.py draws nothing in advance.
def _rtc(machine):
    clock = getattr(machine, "RTC", object)()
    return clock if hasattr(clock, "memory") else None


def remembers(machine):
    """Return whether the board can remember across a sleep why it was to wake up."""
    return not hasattr(machine, "DEEPSLEEP_RESET") or _rtc(machine) is not None


def keep(machine, due, last):
    """Store a plan's result (or None) and `last`, a JSON dict, where they survive a deep sleep."""
    clock = _rtc(machine)
    if clock is not None:
        digests, refresh = due or ({}, None)
        digests = {name: binascii.hexlify(digests[name]).decode() for name in digests}
        clock.memory(json.dumps([digests, refresh, last]).encode())


def recall(machine, last, unplanned):
    """Restore `last` on startup; return the stored plan's result, only once, or None.

    Args:
        machine: The module.
        last: The dict to restore into.
        unplanned: Whether this start did not follow a sleep of the planned length; then the stored draws,
            which were made for another moment, are dropped.
    """
    clock, due = _rtc(machine), None
    if clock is not None:
        try:
            digests, refresh, values = json.loads(clock.memory())
            last.update(values)
            if refresh is not None and not unplanned:
                due = {name: binascii.unhexlify(digests[name]) for name in digests}, refresh
        except (ValueError, TypeError, AttributeError):  # empty, or written by another program
            pass
        clock.memory(b"")
    if unplanned:
        last["cause"], last["up"] = machine.reset_cause(), 0
    return due


_MAX_PERIODS = 4


def start_periods(path, version, has_crashed):
    """Return the periods that no reading has described yet, the oldest first, and keep them in flash.

    A period is [version, crashes]: the time since the last reading in which one version ran. A crash that
    caused this start counts for the version that ran until then, even if another one has started now.

    Args:
        path: The file.
        version: The version that has started.
        has_crashed: Whether a crash caused this start.
    """
    old = None
    try:
        with open(path) as f:
            old = [[str(name), int(crashes)] for name, crashes in json.load(f)]
    except (OSError, ValueError, TypeError):  # the first start, or a damaged file
        pass
    periods = [list(period) for period in old or ([version, 0],)]
    if has_crashed:
        periods[-1][1] += 1
    if periods[-1][0] != version:
        periods = periods[1 - _MAX_PERIODS :] + [[version, 0]]
    if periods != old:
        _write_periods(path, periods)
    return periods


def end_period(path, periods):
    """Remove and return the oldest period, because a reading describes it now; the last one starts anew."""
    period = list(periods[0])
    if len(periods) > 1:
        del periods[0]
    elif period[1]:
        periods[0][1] = 0
    else:
        return period
    _write_periods(path, periods)
    return period


def _write_periods(path, periods):
    try:
        with open(path, "w") as f:
            f.write(json.dumps(periods))
    except OSError as e:  # full or worn out: right until the next start
        print("hushmote: cannot store %s: errno %s" % (path, e.args[0] if e.args else "unknown"))


def listen(wlan, last):
    """Store the network's signal strength."""
    try:
        last["rssi"] = wlan.status("rssi")
    except (TypeError, ValueError, OSError):  # this port's radio does not report it
        pass


def health(machine, last):
    """Return (reset cause, last connection's dBm or None, free heap in KiB)."""
    gc.collect()
    causes = {getattr(machine, "PWRON_RESET", -1): "power", getattr(machine, "WDT_RESET", -2): "watchdog"}
    return causes.get(last.get("cause"), "other"), last.get("rssi"), gc.mem_free() / 1024


_WAIT_MS = 20_000
_DIRECT_MS = 6_000  # the part of that time in which only the last access point is tried


def _join(wlan, settings, ap):
    """Start connecting to one access point, or to any if ap is empty."""
    where = {"channel": ap[0], "bssid": ap[1]} if ap else {}
    wlan.connect(settings["wifi_ssid"], settings.get("wifi_password") or None, **where)


def _find(wlan, ssid, ap):
    """Put the channel and BSSID of a network's strongest access point into ap."""
    heard = [network for network in wlan.scan() if network[0] == ssid.encode()]
    if heard:
        best = max(heard, key=lambda network: network[3])
        ap[:] = best[2], best[1]


def connect(wlan, network, settings, ap, feed):
    """Connect to the network; return None, or a line that says what is missing.

    Args:
        wlan: The interface.
        network: The module.
        settings: The board's settings.
        ap: A list that is initially empty and kept between calls. It lets a Pico W connect without a scan as
            long as that access point answers. An ESP32 does not accept a channel; its scan ends at the first
            answer.
        feed: Called while waiting, to feed a watchdog.
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
        return "Wi-Fi %s: wrong password or weak signal: check wifi_password" % ssid
    if status == getattr(network, "STAT_NO_AP_FOUND", None):
        return "Wi-Fi %s: not found (boards support only 2.4 GHz): check wifi_ssid" % ssid
    return "Wi-Fi %s: no connection in %d s" % (ssid, _WAIT_MS // 1000)


def set_clock(look_up):
    """Set the clock, which is needed only for certificates; return None, or a line that says what is missing.

    Args:
        look_up: A replacement for getaddrinfo that feeds the watchdog while name servers do not answer.
    """
    if time.gmtime()[0] >= 2025:
        return None
    try:
        import socket

        import ntptime

        ntptime.host = look_up(socket.getaddrinfo, ntptime.host, 123)[0][-1][0]
        ntptime.settime()
    except (ImportError, OSError):
        return "the clock says %d and no time server answered: allow NTP" % time.gmtime()[0]


def make_tls(settings):
    """Return an SSLContext that checks the broker and has the board's certificate; None without TLS."""
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
        raise SettingsError("mqtt_ca is not a certificate: give it to `hushmote provision` as a PEM file")
    certificate, key = settings.get("mqtt_cert"), settings.get("mqtt_key")
    if certificate or key:
        try:
            context.load_cert_chain(binascii.a2b_base64(certificate), binascii.a2b_base64(key))
        except (ValueError, TypeError):  # TypeError: only one of the two is set
            raise SettingsError("mqtt_cert and mqtt_key do not match: flash what `hushmote provision` wrote")
    return context
