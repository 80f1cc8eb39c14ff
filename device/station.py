"""Keys, Wi-Fi, clock and TLS for main.py. Imported only while it is needed.

why = connect(wlan, network, settings, ap, feed)     None, or a line that says what is missing
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import binascii
import sys
import time

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from .ldp_client import SettingsError, const
    from .reporter_base import sleep_ms, ticks_diff, ticks_ms
else:
    from ldp_client import SettingsError, const
    from reporter_base import sleep_ms, ticks_diff, ticks_ms


def load_further(modules):
    """Import modules with further mechanisms; return a text for each one that fails.

    Experiments that need a missing mechanism are then refused by name, and the others continue.
    """
    faults = []
    for name in modules or ():
        try:
            __import__(name)
        except Exception as e:  # an imported file may raise anything
            faults.append("%s.py: %s: %s: flash it again" % (name, type(e).__name__, e))
    return faults


def key_bytes(settings, name, size):
    """Return a key of size bytes from its hex digits, or None in an open fleet."""
    text = settings.get(name)
    if text is None:
        return None
    try:
        key = binascii.unhexlify(text)
    except (ValueError, TypeError):
        key = b""
    if len(key) != size:
        text = "%s must be %d hex digits: flash the settings that `hushmote provision` wrote"
        raise SettingsError(text % (name, 2 * size))
    return key


def listen(wlan, last):
    """Store the network's signal strength."""
    try:
        last["rssi"] = wlan.status("rssi")
    except (TypeError, ValueError, OSError):  # this port's radio does not report it
        pass


_WAIT_MS = const(20_000)
_DIRECT_MS = const(6_000)  # the part of that time in which only the last access point is tried
_RETRY_MS = const(3_000)  # after a wrong password
_CLOCK_S = const(86_400)  # a board's clock may gain or lose minutes in this time


def _join(wlan, settings, ap):
    """Start connecting to one access point, or to any if ap is empty."""
    where = {"channel": ap[0], "bssid": ap[1]} if ap else {}
    wlan.connect(settings["wifi_ssid"], settings.get("wifi_password") or None, **where)


def _find(wlan, settings, ap):
    """Put the channel and BSSID of a network's strongest access point into ap."""
    heard = [network for network in wlan.scan() if network[0] == settings["wifi_ssid"].encode()]
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
    retry_ms = _RETRY_MS
    try:
        wlan.active(True)
        if settings.get("wifi_address"):
            wlan.ifconfig(tuple(settings["wifi_address"].split(",")))
        if not wlan.isconnected():
            _join(wlan, settings, ap)
        since = ticks_ms()
        while not wlan.isconnected():
            waited_ms = ticks_diff(ticks_ms(), since)
            if waited_ms > _WAIT_MS:
                break
            rejected = waited_ms > retry_ms and wlan.status() == wrong_password
            if (rejected and sys.platform == "rp2") or (ap and waited_ms > _DIRECT_MS):
                # A weak signal looks like a wrong password. An ESP32 tries again by itself.
                retry_ms = waited_ms + _RETRY_MS
                ap.clear()
                wlan.disconnect()
                _join(wlan, settings, ap)
            feed()
            sleep_ms(100)
        else:
            if not ap and sys.platform == "rp2":
                _find(wlan, settings, ap)
            return None
    except OSError as e:
        return "Wi-Fi %s: the radio failed, errno %s" % (ssid, e.args[0] if e.args else "unknown")
    status = wlan.status()
    if status == wrong_password:
        return "Wi-Fi %s: wrong password or weak signal: check wifi_password" % ssid
    if status == getattr(network, "STAT_NO_AP_FOUND", None):
        return "Wi-Fi %s: not found (boards support only 2.4 GHz): check wifi_ssid" % ssid
    return "Wi-Fi %s: no connection in %d s" % (ssid, _WAIT_MS // 1000)


def set_clock(look_up, settings, last, now=False):
    """Set the clock, which is needed only for certificates; return None, or a line that says what is missing.

    It is set after a start, once a day, and after a certificate was rejected because of its dates.

    Args:
        look_up: A replacement for getaddrinfo that feeds the watchdog while name servers do not answer.
        settings: The board's settings; time_server is the host to ask, if not pool.ntp.org.
        last: A dict that is kept between calls, in which "clock was set" is when it was.
        now: Whether to set it in any case: a certificate was rejected, so the clock may be wrong.
    """
    is_wrong = now or time.gmtime()[0] < 2025
    if not is_wrong and 0 <= time.time() - last.get("clock was set", -_CLOCK_S) < _CLOCK_S:
        return None
    host = settings.get("time_server") or "pool.ntp.org"
    try:
        import socket

        import ntptime

        ntptime.host = look_up(socket.getaddrinfo, host, 123)[0][-1][0]
        ntptime.settime()
        last["clock was set"] = time.time()
    except (ImportError, OSError, ValueError):  # ValueError: the answer is too short, or not a time
        if is_wrong:
            text = "the clock says %d and %s did not answer: allow NTP, or set time_server"
            return text % (time.gmtime()[0], host)


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
        # One at a time: of several certificates in DER, mbedTLS reads only the first.
        for ca in settings["mqtt_ca"].split():
            context.load_verify_locations(binascii.a2b_base64(ca))
    except ValueError:
        raise SettingsError("mqtt_ca is not a certificate: give it to `hushmote provision` as a PEM file")
    certificate, key = settings.get("mqtt_cert"), settings.get("mqtt_key")
    if certificate or key:
        try:
            context.load_cert_chain(binascii.a2b_base64(certificate), binascii.a2b_base64(key))
        except (ValueError, TypeError):  # TypeError: only one of the two is set
            raise SettingsError("mqtt_cert and mqtt_key do not match: flash what `hushmote provision` wrote")
    return context
