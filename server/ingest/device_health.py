"""What boards say of themselves in their retained status topics: online, and what is wrong with them.

Whoever may publish there can say anything, so only words that are known are taken. None of them depends on a
reading.
"""

from __future__ import annotations

import re
import ssl
import time
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from ..errors import HushmoteError
from ..wire.topics import check_fleet
from .broker_url import BrokerAddress

_TOPIC = re.compile(r"hushmote/v1/([a-z0-9_-]{1,32})/status/([a-z0-9-]{1,32})", re.ASCII)
_WORDS = re.compile(
    rb"(online|offline)((?: (?:locked|fault|more|(?:spent|refused):[a-z0-9_-]{1,32})){0,7})", re.ASCII
)
_MOST_BYTES = 400
_QUIET_S = 1.0  # no further message for so long: the broker has sent all that it retains
_MOST_S = 60.0
_ANSWER_S = 15.0  # to CONNECT and SUBSCRIBE
_PAUSE_S = 30.0  # for so long servers are asked in turns: longer than they take to agree on a new leader
_AGAIN_S = 0.5


class BrokerUnreachable(HushmoteError):
    """The broker could not be asked; the text says why."""


class _Lost(BrokerUnreachable):
    """Another server may answer."""


class _Paused(_Lost):
    """This one may as well, in a while: it listens, and a cluster that has no leader takes nobody in."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """What one board's status topic holds.

    online: connected at this moment. locked: its ledger is. fault: its flash or its random source failed.
    spent, refused: names of experiments. more: there was more than the message had room for.
    """

    online: bool
    locked: bool
    fault: bool
    spent: tuple[str, ...]
    refused: tuple[str, ...]
    more: bool


def parse(payload: bytes) -> DeviceHealth | None:
    """Return what a status topic's payload says, None where it is not a board's."""
    found = _WORDS.fullmatch(payload) if len(payload) <= _MOST_BYTES else None
    if found is None:
        return None
    words = found[2].decode("ascii").split()
    return DeviceHealth(
        online=found[1] == b"online",
        locked="locked" in words,
        fault="fault" in words,
        spent=tuple(w.removeprefix("spent:") for w in words if w.startswith("spent:")),
        refused=tuple(w.removeprefix("refused:") for w in words if w.startswith("refused:")),
        more="more" in words,
    )


def read(
    address: BrokerAddress,
    fleets: list[str],
    tls: ssl.SSLContext | None = None,
    *,
    quiet_s: float = _QUIET_S,
    most_s: float = _MOST_S,
) -> dict[tuple[str, str], DeviceHealth | None]:
    """Return (fleet, device) -> what its retained status topic says, None where that cannot be read.

    Ends once nothing has come for quiet_s seconds, after most_s at the latest. Where there are several
    servers, another is asked for one that cannot answer, or that knows of no board, and all again where one
    listens and pauses, as they do for seconds when one has died. Raises BrokerUnreachable.
    """
    filters = [(f"hushmote/v1/{check_fleet(fleet)}/status/+", 0) for fleet in fleets]
    began = time.monotonic()
    while True:
        failures: list[_Lost] = []
        for where in address.servers:
            try:
                devices = _read_of(where, address, filters, tls, quiet_s, began + most_s)
            except _Lost as e:
                failures.append(e)
            else:
                if devices:
                    return devices
        if len(failures) < len(address.servers):
            return {}
        pausing = address.others and any(isinstance(failure, _Paused) for failure in failures)
        if not pausing or time.monotonic() - began > _PAUSE_S:
            raise failures[-1]
        time.sleep(_AGAIN_S)


def _read_of(
    where: tuple[str, int],
    address: BrokerAddress,
    filters: list[tuple[str, int]],
    tls: ssl.SSLContext | None,
    quiet_s: float,
    end: float,
) -> dict[tuple[str, str], DeviceHealth | None]:
    """Read from one server, until monotonic second end at the latest; raises _Lost where another may do."""
    devices: dict[tuple[str, str], DeviceHealth | None] = {}
    came: list[float] = []  # when something came last, the broker's answer to our subscription at first
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    refusals: list[str] = []

    def connected(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            refusals.append(str(reason))
        else:
            client.subscribe(filters)

    def take(_client: Any, _data: Any, message: Any) -> None:
        came.append(time.monotonic())
        names = _TOPIC.fullmatch(message.topic)
        if names is not None:
            devices[names[1], names[2]] = parse(message.payload)

    client.on_connect, client.on_message = connected, take
    client.on_subscribe = lambda *_: came.append(time.monotonic())
    if address.username is not None:
        client.username_pw_set(address.username, address.password)
    if tls is not None:
        client.tls_set_context(tls)
    host, port = where
    try:
        client.connect(host, port)
    except (OSError, ValueError) as e:
        raise _Lost(f"no broker at {host}:{port}: {e}") from None
    ended = f"the broker at {host}:{port} ended the connection"
    answer_by = min(end, time.monotonic() + _ANSWER_S)
    try:
        while time.monotonic() < (min(end, came[-1] + quiet_s) if came else answer_by):
            code = client.loop(0.1)
            if refusals:
                raise BrokerUnreachable(f"{ended}: {refusals[0]}")
            if code != mqtt.MQTT_ERR_SUCCESS:
                raise _Paused(f"{ended}: {mqtt.error_string(code)}")
    except OSError as e:
        raise _Lost(f"{ended}: {e}") from None
    finally:
        client.disconnect()
    if not came:
        raise _Paused(f"the broker at {host}:{port} did not answer")
    return devices
