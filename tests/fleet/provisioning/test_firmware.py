"""A device's settings in files for C and ESPHome; tests/cli/test_provision.py compiles the header."""

from pathlib import Path

import pytest

from hushmote.fleet.provisioning.firmware import Firmware, write
from hushmote.fleet.provisioning.settings import DeviceSettings

SETTINGS = DeviceSettings(
    "home", "d1", mqtt_host="broker", mqtt_port=8884, mqtt_user="d1", mqtt_password='a"\\é',
    mqtt_ca="AAAA BBBB", mqtt_prefix="tenants/acme", mqtt_last_will=False, consent_given=True,
)  # fmt: skip
ESPHOME = r"""fleet: "home"
device_id: "d1"
broker: "broker"
port: 8884
topic_prefix: "tenants/acme"
username: "d1"
password: "a\U00000022\U0000005c\U000000e9"
ca: |
  -----BEGIN CERTIFICATE-----
  AAAA
  -----END CERTIFICATE-----
  -----BEGIN CERTIFICATE-----
  BBBB
  -----END CERTIFICATE-----
omit_will: true
consent_given: true
"""
PEM = r"-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
HEADER = r"""#define HUSHMOTE_FLEET "home"
#define HUSHMOTE_DEVICE_ID "d1"
#define HUSHMOTE_CONSENT_GIVEN 1
#define HUSHMOTE_BROKER "broker"
#define HUSHMOTE_BROKER_PORT 8884
#define HUSHMOTE_TOPIC_PREFIX "tenants/acme"
#define HUSHMOTE_BROKER_USER "d1"
#define HUSHMOTE_BROKER_PASSWORD "a\042\134\303\251"
"""
HEADER += f'#define HUSHMOTE_BROKER_CA "{PEM.format("AAAA")}{PEM.format("BBBB")}"\n'
HEADER += "#define HUSHMOTE_OMIT_STATUS 0\n#define HUSHMOTE_OMIT_WILL 1\n"


@pytest.mark.parametrize(
    ("target", "name", "text", "end"),
    [
        (Firmware.ESPHOME, "d1.esphome.yaml", ESPHOME, ""),
        (Firmware.C, "d1.h", HEADER, "\n#endif\n"),
    ],
    ids=["ESPHome", "C"],
)
def test_file_has_exactly_the_devices_settings(
    target: Firmware, name: str, text: str, end: str, tmp_path: Path
):
    path = write(SETTINGS, tmp_path, target)
    assert path == tmp_path / name
    comment, settings, rest = path.read_text().partition(text)
    assert "SECRET: contains this device's keys." in comment
    assert (settings, rest) == (text, end)
