"""Uplinks in the JSON format that LoRaWAN servers post, based on the examples in their documentation."""

import base64
import json
from typing import Any


def things_stack(payload: bytes | None, device: str = "d1") -> dict[str, Any]:
    """Return an uplink as The Things Stack posts it, without unused parts."""
    uplink: dict[str, Any] = {
        "session_key_id": "AXA50tHUJ/lFBLWzQSSvJg==",
        "f_port": 1,
        "f_cnt": 2,
        "rx_metadata": [{"gateway_ids": {"gateway_id": "gtw1"}, "rssi": -35, "snr": 5}],
        "settings": {"data_rate": {"lora": {"bandwidth": 125000, "spreading_factor": 7}}},
        "received_at": "2026-11-22T09:00:00.1Z",
    }
    if payload is not None:
        uplink["frm_payload"] = base64.b64encode(payload).decode()
    return {
        "end_device_ids": {"device_id": device, "application_ids": {"application_id": "app1"}},
        "correlation_ids": ["as:up:01"],
        "received_at": "2026-11-22T09:00:00.2Z",
        "uplink_message": uplink,
    }


def chirpstack(payload: bytes, device: str = "d1") -> dict[str, Any]:
    """Return an uplink event as ChirpStack 4 posts it in JSON."""
    return {
        "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
        "time": "2026-11-22T09:00:00+00:00",
        "deviceInfo": {
            "tenantName": "ChirpStack",
            "applicationName": "Rooms",
            "deviceProfileName": "EU868",
            "deviceName": device,
            "devEui": "0101010101010101",
            "tags": {},
        },
        "devAddr": "00189440",
        "fCnt": 4,
        "fPort": 1,
        "data": base64.b64encode(payload).decode(),
        "rxInfo": [{"gatewayId": "0016c001f153a14c", "rssi": -36}],
    }


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()
