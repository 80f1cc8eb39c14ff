"""What the body of a POST may be: a report's bytes, or a LoRaWAN server's JSON with them; pure.

The JSON is that of The Things Stack (docs "Data Formats") and of ChirpStack 4 (docs "Event types").
"""

import base64
import json
from typing import Any, NoReturn

from ...server.wire import report
from ...server.wire.report import MAX_PAYLOAD_BYTES, MalformedReport

RAW = "application/octet-stream"
JSON = "application/json"
MOST_BYTES = {RAW: MAX_PAYLOAD_BYTES, JSON: 64 * 1024}  # some uplinks are heard by dozens of gateways


class BodyRefused(ValueError):
    """A body has no report in it; the text says what would be right."""


class NoPayload(ValueError):
    """A LoRaWAN server's document carries no data of the device, for example at a join."""


def check(payload: bytes) -> bytes:
    """Return a payload that has a report's form; raises BodyRefused.

    This module knows no experiments or keys: the aggregator judges the report.
    """
    try:
        number = report.decode(payload).number
    except MalformedReport as e:
        raise BodyRefused(f"not a report ({e}): the body must be its 10 to 20 bytes, as on MQTT") from None
    if number == 0:
        raise BodyRefused("not a report (its number is 0): a device's first report has number 1")
    return payload


def uplink(body: bytes) -> tuple[str | None, bytes]:
    """Return (device id, payload) of a LoRaWAN server's document; the id is None if it names none.

    Raises BodyRefused for anything else, and NoPayload for one without a payload.
    """
    try:
        document = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise BodyRefused("the body is not JSON: send what a LoRaWAN server sends, or raw bytes") from None
    if "end_device_ids" in (fields := _fields(document)):
        device, encoded = fields["end_device_ids"], _fields(fields.get("uplink_message")).get("frm_payload")
        name = _fields(device).get("device_id")
    elif "deviceInfo" in fields:
        name, encoded = _fields(fields["deviceInfo"]).get("deviceName"), fields.get("data")
    else:
        raise BodyRefused(
            "the JSON is not a LoRaWAN server's: it must have end_device_ids and uplink_message (The Things "
            "Stack), or deviceInfo and data (ChirpStack)"
        )
    if not encoded:
        raise NoPayload("it carries no payload of the device")
    try:
        payload = base64.b64decode(encoded, validate=True)
    except (ValueError, TypeError):
        raise BodyRefused("the payload in the JSON is not base64") from None
    return name if isinstance(name, str) else None, payload


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)  # Python reads NaN and Infinity, but JSON has neither


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
