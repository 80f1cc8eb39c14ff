"""A board's identity from a page in flash, as `hushmote provision devices` writes it."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import subprocess
from ctypes import c_void_p
from pathlib import Path
from typing import Any

import fleet_broker
import numpy as np
import pytest
from boards import experiment, payload_of
from c_client import NAMES, library
from c_core import SANITIZED, STRICT, Config, Piece, Sha256, compile_c, needs_gcc, post_program
from c_identity import Identity, keyed
from command_line import hushmote
from refusals import fails
from run_page import LIBRARY
from running_aggregator import WAIT_S, until
from serve_process import served

from hushmote.fleet.provisioning import firmware
from hushmote.fleet.provisioning.firmware import PAGE_BYTES, Firmware, identity_record
from hushmote.fleet.provisioning.settings import DeviceSettings
from hushmote.server.errors import ProvisionError
from hushmote.server.store import Store

pytestmark = needs_gcc
HEADER_BYTES = 44
POLICY = 'HUSHMOTE_POLICY(policy, 40000000, 0, 4000000, HUSHMOTE_SUM, false, "temp");'
OPEN = DeviceSettings("home", "d-1", mqtt_host="broker")


def load(page: bytes) -> tuple[str, dict[str, Any]]:
    """Return the code's name and, if it is OK, everything that the loader sets."""
    config, identity = Config(), Identity()
    before = bytes(config), bytes(identity)
    buffer = (ctypes.c_char * max(len(page), 1)).from_buffer_copy(
        page or b"\0"
    )  # without a zero byte after it
    code = library().hushmote_config_from_page(
        ctypes.byref(config), ctypes.byref(identity), buffer, ctypes.c_size_t(len(page))
    )
    if code:
        assert (bytes(config), bytes(identity)) == before
        return NAMES[code], {}
    values = {row[0]: getattr(identity, row[0]) for row in Identity._fields_}
    for name, size in (("key", 32), ("announce_key", 64)):
        address = c_void_p.from_buffer(config, getattr(Config, name).offset).value
        values[name] = address and ctypes.string_at(address, size)
    return "OK", values | {"fleet": config.fleet, "device_id": config.device_id}


def expected(settings: DeviceSettings) -> dict[str, Any]:
    def pem(label: str, ders: str | None) -> str:
        return firmware._pem(label, ders) or ""

    texts = {
        "hosts": settings.mqtt_host,
        "prefix": settings.mqtt_prefix,
        "user": settings.mqtt_user or "",
        "password": settings.mqtt_password or "",
        "ca": pem("CERTIFICATE", settings.mqtt_ca),
        "certificate": pem("CERTIFICATE", settings.mqtt_cert),
        "certificate_key": pem("EC PRIVATE KEY", settings.mqtt_key),
        "wifi_ssid": settings.wifi_ssid,
        "wifi_password": settings.wifi_password,
        "fleet": settings.fleet,
        "device_id": settings.device_id,
    }
    return {name: text.encode() for name, text in texts.items()} | {
        "key": settings.key and bytes.fromhex(settings.key),
        "announce_key": settings.announce_key and bytes.fromhex(settings.announce_key),
        "port": settings.mqtt_port,
        "omit_status": not settings.mqtt_status,
        "omit_will": not settings.mqtt_last_will,
        "consent_given": settings.consent_given,
    }


def sealed(fields: bytes, magic: bytes = firmware.MAGIC, version: int = firmware.VERSION) -> bytes:
    """Return a page with these fields and the right digest."""
    start = magic + version.to_bytes(2, "big") + len(fields).to_bytes(2, "big")
    page = start + hashlib.sha256(start + fields).digest() + fields
    return page.ljust(PAGE_BYTES, b"\xff")


def field(tag: int, value: bytes) -> bytes:
    return bytes([tag]) + len(value).to_bytes(2, "big") + value


FLEET, DEVICE, PORT, FLAGS = field(1, b"home\0"), field(2, b"d\0"), field(6, b"\7\x5b"), field(13, b"\0")
FIELDS = FLEET + DEVICE + PORT + FLAGS
KEY, ANNOUNCE_KEY = field(3, bytes(32)), field(4, bytes(64))

# Load every page that differs in one bit, and every shorter one, from a buffer of exactly its size.
DAMAGES = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hushmote_identity.h"

static int load(const uint8_t *page, size_t bytes) {
    static struct hushmote_config config;
    struct hushmote_identity identity;
    uint8_t *copy = malloc(bytes);
    int code;
    memcpy(copy, page, bytes);
    code = hushmote_config_from_page(&config, &identity, copy, bytes);
    free(copy);
    return code;
}

int main(void) {
    static uint8_t page[HUSHMOTE_PAGE_BYTES];
    size_t bytes = fread(page, 1, sizeof page, stdin);
    unsigned flipped = 0, refused = 0, shorter = 0;
    for (size_t i = 0; i < 8 * bytes; i++, flipped++) {
        page[i / 8] ^= (uint8_t)(1 << i % 8);
        refused += load(page, bytes) < 0;
        page[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t i = 0; i < bytes; i++)
        shorter += load(page, i) < 0;
    printf("[%d, %u, %u, %u]", load(page, bytes), flipped, refused, shorter);
    return 0;
}
"""


class TestPage:
    @pytest.mark.parametrize("settings", [OPEN, keyed()], ids=["open", "every field"])
    def test_has_all_settings(self, settings: DeviceSettings):
        page = firmware.file_content(settings, Firmware.PAGE)
        assert len(page) == PAGE_BYTES
        assert load(page) == ("OK", expected(settings))
        assert load(identity_record(settings)) == ("OK", expected(settings))

    def test_fits_or_is_refused_with_a_hint(self):
        almost = dataclasses.replace(OPEN, mqtt_ca="MIIB" * 920, mqtt_password="p")
        longest = "p" * (1 + PAGE_BYTES - len(identity_record(almost)))
        fits = dataclasses.replace(almost, mqtt_password=longest)
        assert load(identity_record(fits))[1]["password"].decode() == longest
        for more in ({"mqtt_password": longest + "p"}, {"mqtt_ca": "MIIB" * 100_000}):
            with fails(
                "these settings need .* bytes, but a page has 4,096: give a --ca file with fewer",
                ProvisionError,
            ):
                identity_record(dataclasses.replace(fits, **more))

    @pytest.mark.slow
    def test_every_bit_flip_and_truncation_is_refused(self, tmp_path: Path):
        (tmp_path / "damages.c").write_text(DAMAGES)
        sources = (tmp_path / "damages.c", "identity", "settings", "sha256")
        program = compile_c(tmp_path / "damages", sources, *SANITIZED)
        record = identity_record(OPEN)  # the padding of a shorter page is shorter, too
        for page in (record, record.ljust(600, b"\xff"), identity_record(keyed())):
            done = subprocess.run([program], input=page, capture_output=True, check=True, timeout=300)
            # Where only padding is missing, the rest is a valid record.
            padding = len(page) - len(record) if page.startswith(record) else 0
            assert json.loads(done.stdout) == [0, 8 * len(page), 8 * len(page), len(page) - padding]

    def test_random_damage_is_refused(self):
        rng = np.random.default_rng(5)
        page = firmware.file_content(keyed(), Firmware.PAGE)
        for _ in range(2000):
            damaged = bytearray(page)
            for at in rng.choice(PAGE_BYTES, rng.choice((1, 2, 8, 64)), replace=False):
                damaged[at] ^= int(rng.integers(1, 256))
            assert load(bytes(damaged))[0] in ("IDENTITY_DAMAGED", "IDENTITY_OTHER", "IDENTITY_NEWER")

    @pytest.mark.parametrize(
        ("page", "code"),
        [
            (b"\xff" * PAGE_BYTES, "NO_IDENTITY"),
            (b"", "NO_IDENTITY"),
            (bytes(PAGE_BYTES), "IDENTITY_OTHER"),
            (np.random.default_rng(7).bytes(PAGE_BYTES), "IDENTITY_OTHER"),
            (sealed(FIELDS, magic=b"HUSHMOTF"), "IDENTITY_OTHER"),
            (sealed(FIELDS, version=2), "IDENTITY_NEWER"),
            (sealed(FIELDS) + b"\xff", "IDENTITY_DAMAGED"),
            (sealed(FIELDS)[: HEADER_BYTES - 1], "IDENTITY_DAMAGED"),
        ],
        ids=["erased", "empty", "zeros", "random", "magic", "version", "too long", "half a header"],
    )
    def test_code_says_what_is_wrong(self, page: bytes, code: str):
        assert load(page)[0] == code

    @pytest.mark.parametrize(
        "fields",
        [
            b"",
            *(FIELDS.replace(f, b"") for f in (FLEET, DEVICE, PORT, FLAGS)),
            FIELDS + DEVICE,
            *(FIELDS + key for key in (KEY, ANNOUNCE_KEY, field(3, bytes(31)) + ANNOUNCE_KEY)),
            FIELDS + KEY + field(4, bytes(65)),
            *(
                FIELDS.replace(DEVICE, field(2, d))
                for d in (b"", b"\0", b"d", b"D\0", b"d_\0", b"d" * 33 + b"\0")
            ),
            FIELDS.replace(DEVICE, field(2, b"d\0d\0")),
            *(FIELDS + field(5, text) for text in (b"", b"a", b"a\0b\0")),
            FIELDS + b"\5\0",
            FIELDS + b"\5\0\2a",
            FIELDS.replace(PORT, field(6, b"\1")),
            FIELDS.replace(FLAGS, field(13, b"\0\0")),
        ],
    )
    def test_malformed_fields_are_refused(self, fields: bytes):
        assert load(sealed(FIELDS))[0] == "OK"
        assert load(sealed(fields))[0] == "IDENTITY_DAMAGED"

    def test_fields_of_later_versions_are_ignored(self):
        assert load(sealed(FIELDS + field(16, b"any") + field(255, b"")))[0] == "OK"

    def test_needs_a_sha256(self, tmp_path: Path):
        flags = ("-shared", "-fPIC", "-DHUSHMOTE_WITH_SHA256=0")
        sources = ("identity", "settings", "sha256")
        lean = ctypes.CDLL(str(compile_c(tmp_path / "lean.so", sources, *flags)))
        page = sealed(FIELDS)

        @Sha256
        def sha256(_context: Any, pieces: int, count: int, digest: Any) -> None:
            parts = (Piece * count).from_address(pieces)
            data = b"".join(ctypes.string_at(part.data, part.bytes) for part in parts)
            ctypes.memmove(digest, hashlib.sha256(data).digest(), 32)

        def code(config: Config) -> int:
            arguments = (ctypes.byref(config), ctypes.byref(Identity()), page, ctypes.c_size_t(len(page)))
            return lean.hushmote_config_from_page(*arguments)

        assert NAMES[code(Config())] == "BAD_SETTINGS"
        assert code(Config(sha256=sha256)) == 0

    def test_no_page_is_no_identity(self):
        config, identity = ctypes.byref(Config()), ctypes.byref(Identity())
        code = library().hushmote_config_from_page(config, identity, None, ctypes.c_size_t(PAGE_BYTES))
        assert NAMES[code] == "NO_IDENTITY"


READINGS = 3


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.skipif(not LIBRARY.exists(), reason="no libmosquitto: apt-get install libmosquitto-dev")
def test_one_program_reports_as_two_devices_of_a_batch(tmp_path: Path):
    """A batch's pages, one program, mosquitto with TLS and the fleet's access list, an aggregator."""
    folder, url = fleet_broker.make_fleet(tmp_path / "fleet"), f"sqlite:///{tmp_path}/store.sqlite"
    batch = ("provision", "devices", "--count", "20", "--for", "page", "--folder", "fleet", "--out", "line1")
    printed = hushmote(*batch, cwd=tmp_path)
    assert printed.startswith(
        "line1: 20 devices of fleet home, 20 of them new; only you can read the files\n"
    )
    rows = [line.split(",") for line in (tmp_path / "line1/roster.csv").read_text().splitlines()[1:]]
    program = post_program(tmp_path, POLICY, f"CFLAGS={' '.join((*STRICT, *SANITIZED))}")

    def post(board: Path, *arguments: str, text: str = "", status: int = 0) -> str:
        command = [program, board, *arguments]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    question = experiment(bins=4, epsilon=2_000_000, budget={"rule": "sum", "cap": 40_000_000})
    with fleet_broker.running(folder), Store(url) as store:
        store.add_fleet("home", keyed=True)
        store.add_experiment("home", payload_of(question))
        where = ("--store", url, "--broker", folder.path / "aggregator/aggregator_1.toml")
        keys = ("--master-key", folder.master_file(), "--signing-key", folder.signing_file())
        with served(*where, *keys) as process:
            process.ready()
            for device, name, digest in rows[3:5]:
                board = tmp_path / device
                board.mkdir()
                page = (tmp_path / "line1" / name).read_bytes()
                assert hashlib.sha256(page).hexdigest() == digest
                (board / "identity.bin").write_bytes(page)
                post(board, "provision")
                post(board, "yes")
                post(board, "run", "0", text="temp 1\n" * READINGS)
                (board / "identity.bin").write_bytes(page[:700] + b"\0" + page[701:])
                assert "the identity is damaged: flash it again" in post(board, "status", status=1)
            until(lambda: store.histogram("home", question.digest).sum() == 2 * READINGS, process.log)
            assert process.end() == 0
        seen = {device for device, _, numbers in store.accepted_numbers("home") if READINGS in numbers}
        assert seen == {row[0] for row in rows[3:5]}
        assert store.rejects() == {}
