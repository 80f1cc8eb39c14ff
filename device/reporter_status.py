"""A reporter's status line, its errors, and its default folder. Imported only while it is needed."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# pyright: reportOptionalOperand=false

import errno

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
    from .kept_experiments import KeptExperiments
    from .reporter_base import NOT_MQTT, const
else:
    import ldp_client
    from kept_experiments import KeptExperiments
    from reporter_base import NOT_MQTT, const

_STATUS = const(0)  # indices of BaseReporter.failures, and the numbers that count
_WILL = const(1)
_SHORT = const(2)
_LEFT_OUT = const(2)
_SUSPECT = const(3)
_CAUSES = (
    "the broker closed the connection",
    "the broker did not answer in time",
    "the broker does not authorize this client",
)
_CLOSED = const(0)
_NO_ANSWER = const(1)
_NOT_AUTHORIZED = const(2)


def kept_in_ledger_folder(client):
    """Return a client's KeptExperiments in the subfolder "experiments" of its storage folder."""
    storage = client._ledger._storage
    folder = storage if isinstance(storage, str) else getattr(storage, "_folder", None)
    ldp_client.check(
        folder, "the storage is not a folder: pass kept, a KeptExperiments", ldp_client.SettingsError
    )
    return KeptExperiments(client, folder + "/experiments")


def text(e):
    """Return one line of text that describes a connection error."""
    code = e.args[0] if e.args else None
    if isinstance(e, OSError):
        if code == errno.ETIMEDOUT:
            return _CAUSES[_NO_ANSWER]
        if code == errno.ECONNREFUSED:
            return "nothing listens at the broker's address and port"
        # -1 comes from umqtt.simple, 32 is EPIPE; mbedTLS passes socket errors on with the sign flipped.
        if code in (errno.ECONNRESET, -errno.ECONNRESET, 32, -32, -1):
            return _CAUSES[_CLOSED]
        if code in (errno.EHOSTUNREACH, errno.ECONNABORTED, errno.ENOTCONN, 101):  # 101: ENETUNREACH
            return "the broker cannot be reached: is the network up?"
        if type(code) is int and code <= -0x1080:  # mbedTLS error codes run from here to -0x7fff
            if code == -0x7780:
                return "the broker rejects this board's certificate, or requires one"
            return "TLS failed, mbedTLS error -0x%x" % -code
        if type(code) is int and code < 0:  # each port's getaddrinfo() has its own negative error codes
            return "the broker's name was not found: is the network up?"
        return "network error, errno %s" % code
    if type(e).__name__ in ("MQTTException", "ConnectionRefused") and type(code) is int:
        if not 1 <= code <= 5:
            return "the broker refuses the connection, code %d" % code
        return (
            "the broker does not speak MQTT 3.1.1",
            "the broker refuses the client id",
            "the broker is not available",
            "the broker refuses the user name or password",
            _CAUSES[_NOT_AUTHORIZED],
        )[code - 1]
    if isinstance(e, MemoryError):
        return "out of memory"
    if isinstance(e, ValueError) and type(code) is str and "ertificate " in code:  # mbedTLS, on several lines
        return "the broker's certificate was rejected: " + " ".join(code.split())
    if isinstance(e, (AssertionError, IndexError, ValueError)):  # raised by umqtt.simple's input checks
        return NOT_MQTT
    return "%s: %s" % (type(e).__name__, code)


def reason(reporter, e):
    """Return one line about an error that ended a connection, after counting what may be its cause.

    If the broker closed the connection instead of answering, the line names the topic.
    """
    why, failures = text(e), reporter.failures
    closed = why == _CAUSES[_CLOSED]
    topic, reporter.topic = reporter.topic, None
    if topic is True:  # it did not answer CONNECT
        if closed or why == _CAUSES[_NOT_AUTHORIZED]:
            if 0 <= failures[_WILL] < _LEFT_OUT:
                failures[_WILL] += 1
            elif failures[_WILL] == _LEFT_OUT:
                failures[_WILL] = 0  # without the will it fails as well
    elif topic == reporter._status_topic:
        if closed or why == _CAUSES[_NO_ANSWER]:
            failures[_STATUS] += 1
    elif closed and topic:
        why += ": may this device use %s?" % topic.decode()
    elif closed and reporter.connected and reporter._steady_ms is not None:
        failures[_SHORT] += 1
    return why


def status(reporter):
    """Return a reporter's connection, its waiting reports and its problems in one line."""
    client = reporter._client.status()
    waiting = "; %d sent, %d waiting" % (reporter.sent, client["pending"])
    if reporter.connected:
        line = "connected" + waiting
    elif not client["consent"]:
        line = "silent: nobody said yes yet" if client["consent"] is None else "silent: someone said no"
    else:
        line = "not connected, next attempt in %d s" % ((reporter._wait_ms() + 999) // 1000) + waiting
    for problem in (client["locked"], client["error"], reporter.fault, reporter._kept.fault, reporter.error):
        if problem and problem not in line:
            line += "; " + problem
    topic, failures = reporter._status_topic.decode(), reporter.failures
    if failures[_STATUS] == _LEFT_OUT:
        line += "; status left out: the broker does not permit it on " + topic
    if failures[_WILL] == _LEFT_OUT:
        line += "; last will left out: the broker does not permit it on " + topic
    if failures[_SHORT] >= _SUSPECT:
        text = "; another device may be using this id: the last %d connections were closed within 30 s"
        line += text % failures[_SHORT]
    if reporter._kept._folder is None:
        line += "; nothing is stored"
    experiments = client["experiments"]
    for name in sorted(experiments):
        leaf = experiments[name].get("leaf")
        if leaf is not None:
            line += "; %s is entry %d of the log" % (name, leaf)
    for name in sorted(reporter.mistyped):
        line += "; " + reporter.mistyped[name]
    for name in sorted(reporter.refused):
        line += "; %s refused: %s" % (name, reporter.refused[name])
    return line
