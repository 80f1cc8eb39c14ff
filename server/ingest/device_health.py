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

from paho.mqtt.client import error_string

from ..errors import HushmoteError
from ..wire.topics import check_fleet
from .broker_url import BrokerAddress
from .link import SUCCESS, MqttLink

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
            reader = _Reader(address, tls, filters)
            try:
                reader.run(where, quiet_s, began + most_s)
            except _Lost as e:
                failures.append(e)
            else:
                if reader.devices:
                    return reader.devices
        if len(failures) < len(address.servers):
            return {}
        pausing = address.others and any(isinstance(failure, _Paused) for failure in failures)
        if not pausing or time.monotonic() - began > _PAUSE_S:
            raise failures[-1]
        time.sleep(_AGAIN_S)


class _Reader(MqttLink):
    """A connection that reads status topics; came: when something came last, the SUBACK at first."""

    def __init__(self, address: BrokerAddress, tls: ssl.SSLContext | None, filters: list[Any]) -> None:
        super().__init__("3.1.1", "", (address.username, address.password), tls, {})
        self.devices: dict[tuple[str, str], DeviceHealth | None] = {}
        self.came: float | None = None
        self._filters = filters

    def _on_connect(self, client: Any, _d: Any, flags: Any, reason: Any, said: Any) -> None:
        super()._on_connect(client, _d, flags, reason, said)
        if not reason.is_failure:
            client.subscribe(self._filters)

    def _on_subscribe(self, *_: Any) -> None:
        self.came = time.monotonic()

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        self.came = time.monotonic()
        if names := _TOPIC.fullmatch(message.topic):
            self.devices[names[1], names[2]] = parse(message.payload)

    def run(self, where: tuple[str, int], quiet_s: float, end: float) -> None:
        """Read from one server, until monotonic second end at most; raises _Lost where another may do."""
        host, port = where
        try:
            self.connect(host, port)
        except (OSError, ValueError) as e:
            raise _Lost(f"no broker at {host}:{port}: {e}") from None
        ended = f"the broker at {host}:{port} ended the connection"
        answer_by = min(end, time.monotonic() + _ANSWER_S)
        try:
            while time.monotonic() < (answer_by if self.came is None else min(end, self.came + quiet_s)):
                code = self.read(0.1)
                if self.answer is not None and self.answer.is_failure:
                    raise BrokerUnreachable(f"{ended}: {self.answer}")
                if code != SUCCESS:
                    raise _Paused(f"{ended}: {error_string(code)}")
        except OSError as e:
            raise _Lost(f"{ended}: {e}") from None
        finally:
            self.client.disconnect()
        if self.came is None:
            raise _Paused(f"the broker at {host}:{port} did not answer")
