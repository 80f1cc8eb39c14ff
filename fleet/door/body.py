"""Reads the body of a POST: a report's bytes, or a LoRaWAN server's JSON that contains them.

It accepts the JSON of The Things Stack (docs "Data Formats") and ChirpStack 4 (docs "Event types").
"""

import base64
import json
from typing import Any, NoReturn

from ...server.wire import report
from ...server.wire.report import MAX_PAYLOAD_BYTES, MalformedReport
from ...server.wire.topics import is_device

RAW = "application/octet-stream"
JSON = "application/json"
MAX_BYTES = {RAW: MAX_PAYLOAD_BYTES, JSON: 64 * 1024}  # dozens of gateways may receive one uplink


class BodyRefused(ValueError):
    """Raised if the body contains no report; the message says what was expected."""


class NoPayload(ValueError):
    """A LoRaWAN server's document contains no data from the device, for example for a join."""


def check(payload: bytes) -> bytes:
    """Return the payload if it has the format of a report; raise BodyRefused otherwise.

    The door has no experiments or keys, so only the aggregator can validate the report.
    """
    try:
        number = report.decode(payload).number
    except MalformedReport as e:
        raise BodyRefused(f"not a report ({e}): the body must be its 10 to 20 bytes, as on MQTT") from None
    if number == 0:
        raise BodyRefused("not a report (its number is 0): a device's first report has number 1")
    return payload


def uplink(body: bytes) -> tuple[str | None, bytes]:
    """Return the device id and the payload in a LoRaWAN server's document.

    The id is None if the document does not contain one.

    Raises:
        BodyRefused: If the body is not such a document.
        NoPayload: If the document has no payload.
    """
    try:
        document = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise BodyRefused("the body is not JSON: send a LoRaWAN server's JSON, or raw bytes") from None
    if "end_device_ids" in (fields := _fields(document)):
        device, encoded = fields["end_device_ids"], _fields(fields.get("uplink_message")).get("frm_payload")
        name = _fields(device).get("device_id")
    elif "deviceInfo" in fields:
        name, encoded = _chirpstack_id(_fields(fields["deviceInfo"])), fields.get("data")
    else:
        raise BodyRefused(
            "the JSON is not a LoRaWAN server's: it must have end_device_ids and uplink_message (The Things "
            "Stack), or deviceInfo and data (ChirpStack)"
        )
    if not encoded:
        raise NoPayload("the document has no payload from the device")
    try:
        payload = base64.b64decode(encoded, validate=True)
    except (ValueError, TypeError):
        raise BodyRefused("the payload in the JSON is not base64") from None
    return name if isinstance(name, str) else None, payload


def _chirpstack_id(info: dict[str, Any]) -> Any:
    """Return the device's name, which may be any text, if it is a device id; otherwise its EUI."""
    name, eui = info.get("deviceName"), info.get("devEui")
    if isinstance(name, str) and is_device(name):
        return name
    return eui.lower() if isinstance(eui, str) and is_device(eui.lower()) else name


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)  # Python accepts NaN and Infinity, which are not JSON


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
