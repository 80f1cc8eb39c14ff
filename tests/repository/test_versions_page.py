"""docs/versions.md states the format versions that the code writes and reads."""

import re
from pathlib import Path

from boards import MemoryStorage

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client
from hushmote.fleet.provisioning import firmware
from hushmote.fleet.provisioning import settings as provision
from hushmote.fleet.statement import document
from hushmote.server.experiments import signed_file
from hushmote.server.store import schema
from hushmote.server.wire import report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text()


def rows(header: str) -> dict[str, list[str]]:
    """Return the cells of the table whose header starts so, by the first cell."""
    table = re.search(rf"^\| {header}.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]
    return {first: rest for first, *rest in cells}


def test_states_current_and_readable_formats():
    formats = {name: (cells[1], cells[2]) for name, cells in rows("format").items()}
    (js_ledger,) = re.findall(r"state\.format === (\d+)", (ROOT / "clients/js/hushmote.js").read_text())
    (c_ledger,) = re.findall(r"#define FORMAT 0x(\w+)", (ROOT / "clients/c/ledger.c").read_text())
    (c_identity,) = re.findall(r"#define VERSION (\d+)", (ROOT / "clients/c/identity.c").read_text())
    first = ldp_client._FORMAT
    signed, statement = (text.rpartition(" ")[2] for text in (signed_file.FORMAT, document.FORMAT))
    assert formats == {
        "report": (str(report.FORMAT),) * 2,
        "topics, HTTP door": ("v1", "v1"),
        "experiment's JSON": ("1", "1"),
        "ledger, MicroPython and C": (f"{first:X}", f"{first - 1:X}, {first:X}"),
        "ledger, JavaScript": (js_ledger, js_ledger),
        "identity in flash (page, NVS item)": (str(firmware.VERSION),) * 2,
        "store": (str(schema.VERSION), f"{schema.BASELINE} to {schema.VERSION}"),
        "signed experiment, file": (signed, signed),
        "statement, file": (statement, "any"),
        "published result": ("1", ""),
    }
    assert (int(c_ledger, 16), int(c_identity)) == (first, firmware.VERSION)
    assert ldp_client._State(bytes(16)).encode()[0] == first


def test_names_every_field_that_may_be_missing():
    files = rows("file")
    assert set(re.findall(r"`(\w+)`", files["a device's settings"][0])) == {
        *provision._MAY_BE_MISSING,
        *("fleet", "device_id", "wifi_ssid", "mqtt_host"),
    }
    optional = set(re.findall(r"`(\w+)`", files["a MicroPython firmware's policy"][0]))
    policy = dict.fromkeys(("sum", "squares", "epsilon"), 1) | {"rules": (), "experiments": ()}
    optional.remove("log")  # which has no value that means none
    Client(policy | dict.fromkeys(optional, ()), MemoryStorage(), device_id="a")
