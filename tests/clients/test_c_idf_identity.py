"""A board's identity from ESP-IDF's NVS, in the bytes of Espressif's nvs_partition_gen, on a model of NVS."""

from __future__ import annotations

import base64
import ctypes
import importlib.util
import subprocess
import sys
import zlib
from ctypes import POINTER, c_bool, c_char_p, c_size_t, c_uint16, c_uint32
from pathlib import Path
from typing import Any

import nvs_image
import pytest
from c_client import NAMES
from c_core import CORE, Config, compile_c, needs_gcc
from c_identity import Identity, keyed
from power_cuts import RIGS

from hushmote.fleet.provisioning.firmware import Firmware, identity_record, nvs_csv, write
from hushmote.fleet.provisioning.settings import DeviceSettings

pytestmark = needs_gcc
ITEM = ("hushmote", "identity")
KEYS = bytes(range(32)).hex(), bytes(range(64)).hex()
LARGE = DeviceSettings("home", "d-1", *KEYS, mqtt_host="broker", mqtt_ca="MIIB" * 944, mqtt_password="p" * 9)
# What nvs_partition_gen 0.3.0 makes of nvs_csv(LARGE) with a size of 0x3000: a blob in two pages.
IMAGE = zlib.decompress(
    base64.b64decode(
        "eNrt18srRGEcxvHfOzNnhmEc9/tl3K/jfhl3hsM5hGKUstOcGjRGDLFQbht71haykZSVKEspNvwBFhZINlaUJq9LlAgLbPR8"
        "6mzOOX173+Xj5ZzTo3v+0bxlZ3vta3fEGN+r3ixyjo06XW6PSi/YS4PZpkg7uRHX71CHPP2eydfv0yLnlwLty91dcluHXSIm"
        "HjgCVhOul1pntcu1p9u3C1cXXvno8HxmzrtujdCfuXoYCU63SyUN6RyWAtKSmZhGqxP0Bh9fo5+/KUAMDAoOCQ0Lj4iMio6J"
        "jYtP0FHdd7+YE5OSU1LT0jMys7JzLLl5+QWFRcUlpWXW8orKquqaWoEMfSPuQXWE9KQx9PqScfgVGcVCyxOb1Ky0mxukTrvS"
        "pDTU26Xnt8Y2RbH95EEAAQQQQAABBBBAAAEEEEAAgd8KPO1+9sn+X5GXrWt3/EvMJrCT4wHT+30/Tpwvtqgbf3TD54EttTd+"
        "HN1kIkZvziczbtranXh/vhuRSEMcAAAAAAAAAAAAAAAAAADgX3gAiTziIw=="
    )
)
STAND_INS = """
#include "esp_random.h"
#include "../flash_model.h"

long flash_operations, flash_cut = -1;
jmp_buf flash_power;

void esp_fill_random(void *buf, size_t len) { (void)buf, (void)len; }
"""


class Broker(ctypes.Structure):
    """struct hushmote_idf_broker, the first member of struct hushmote_idf."""

    _fields_ = (
        *((name, c_char_p) for name in ("hosts", "user", "password", "ca", "certificate")),
        *((name, c_char_p) for name in ("certificate_key", "prefix")),
        ("port", c_uint16),
        ("omit_status", c_bool),
        ("omit_will", c_bool),
        ("rest", ctypes.c_char * 1024),
    )


def port(folder: Path, *flags: str) -> ctypes.CDLL:
    """Return the port's loader on the model of NVS, with erased flash."""
    (folder / "stand_ins.c").write_text(STAND_INS)
    model = RIGS / "idf_model"
    sources = [folder / "stand_ins.c", model / "nvs.c", CORE / "idf" / "idf_identity.c", CORE / "identity.c"]
    headers = (f"-I{model}", f"-I{RIGS}", f"-I{CORE / 'idf'}")
    options = ("-shared", "-fPIC", "-std=gnu17", "-Wno-pedantic", *headers, *flags)
    library = ctypes.CDLL(str(compile_c(folder / "idf.so", [*sources, "settings", "sha256"], *options)))
    library.storage_new()
    library.storage_start()
    library.nvs_set_blob.argtypes = [c_uint32, c_char_p, c_char_p, c_size_t]
    return library


def store(library: ctypes.CDLL, record: bytes) -> None:
    handle = c_uint32()
    library.nvs_open_from_partition.argtypes = [c_char_p, c_char_p, ctypes.c_int, POINTER(c_uint32)]
    assert library.nvs_open_from_partition(b"identity", ITEM[0].encode(), 1, ctypes.byref(handle)) == 0
    assert library.nvs_set_blob(handle, ITEM[1].encode(), record, len(record)) == 0
    library.storage_start()


def load(library: ctypes.CDLL) -> tuple[str, dict[str, Any]]:
    idf, config, identity = Broker(), Config(), Identity()
    call = library.hushmote_idf_load_identity
    code = call(ctypes.byref(idf), ctypes.byref(config), ctypes.byref(identity))
    if code:
        assert not any(bytes(idf) + bytes(config) + bytes(identity))
        return NAMES[code], {}
    loaded = {row[0]: getattr(idf, row[0]) for row in Broker._fields_[:-1]}
    same = {name: getattr(identity, name) for name in loaded}
    assert loaded == same
    return "OK", loaded | {"device_id": config.device_id, "fleet": config.fleet}


def assert_loads(library: ctypes.CDLL, settings: DeviceSettings, record: bytes) -> None:
    store(library, record)
    code, loaded = load(library)
    assert code == "OK"
    assert loaded["device_id"].decode() == settings.device_id
    assert loaded["hosts"].decode() == settings.mqtt_host
    assert loaded["password"].decode() == settings.mqtt_password


class TestGeneratedImage:
    def test_has_the_identity(self, tmp_path: Path):
        blobs = nvs_image.blobs(IMAGE)
        assert blobs == {ITEM: identity_record(LARGE)}
        assert_loads(port(tmp_path), LARGE, blobs[ITEM])

    @pytest.mark.parametrize("settings", [LARGE, keyed()], ids=["large", "every field"])
    def test_is_what_the_generator_makes_today(self, tmp_path: Path, settings: DeviceSettings):
        if importlib.util.find_spec("esp_idf_nvs_partition_gen") is None:
            pytest.skip("no generator: pip install esp-idf-nvs-partition-gen")
        path = write(settings, tmp_path, Firmware.NVS)
        generate = [sys.executable, "-m", "esp_idf_nvs_partition_gen", "generate", path, "d.bin", "0x3000"]
        subprocess.run(generate, cwd=tmp_path, check=True, capture_output=True)
        image = (tmp_path / "d.bin").read_bytes()
        assert settings is not LARGE or image == IMAGE
        assert_loads(port(tmp_path), settings, nvs_image.blobs(image)[ITEM])


class TestLoader:
    def test_csv_has_names_that_nvs_allows(self):
        for line in nvs_csv(keyed()).splitlines():
            assert len(line.split(",")) == 4
            assert len(line.split(",")[0]) <= 15

    def test_missing_identity_has_a_code(self, tmp_path: Path):
        library = port(tmp_path)
        assert load(library) == ("NO_IDENTITY", {})
        store(library, b"")
        assert load(library) == ("IDENTITY_DAMAGED", {})

    def test_missing_partition_has_a_code(self, tmp_path: Path):
        assert load(port(tmp_path, "-DNVS_HAS_IDENTITY=0")) == ("NO_IDENTITY", {})

    @pytest.mark.parametrize("at", [0, 9, 11, 12, 60, -1])
    def test_damage_is_refused(self, tmp_path: Path, at: int):
        record = bytearray(identity_record(keyed()))
        record[at] ^= 1
        library = port(tmp_path)
        store(library, bytes(record))
        assert load(library)[0] in ("IDENTITY_OTHER", "IDENTITY_NEWER", "IDENTITY_DAMAGED")
        store(library, bytes(record[:at]))
        assert load(library)[0] != "OK"
        store(library, identity_record(keyed()).ljust(4097, b"\xff"))
        assert load(library)[0] == "IDENTITY_DAMAGED"
