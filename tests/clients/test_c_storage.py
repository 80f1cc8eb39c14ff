"""The C client's ports to the NVS of ESP-IDF and Zephyr, on models that lose power at each operation.

The models were compared with the real sources; clients/c/packages.md lists the versions.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from c_core import CORE, compile_c, needs_gcc
from folder_writes import assert_survives_power_cuts, assert_syncs_every_change
from power_cuts import RIGS, build, live

pytestmark = needs_gcc
ALL_WELL = {"reports": 40, "locked": 0, "forgotten": 0, "conflicting": 0, "unpaid": 0, "failed": 0}
ERASED_IS_OVERWRITTEN = "-DNVS_OVERWRITES_ERASED=1"
MOVES_ARE_NOT_MARKED = "-DNVS_MARKS_MOVES=0"
LOSES_UNCOMMITTED = "-DNVS_LOSES_UNCOMMITTED=1"
ROLLBACKS = "-DROLLBACKS=1"
ASKS_EACH = ("-DASK_EACH=2", "-DPAGES=4")  # 3 pages are too few for the opt-ins to each experiment


def compile_folder(folder: Path) -> Path:
    """Return the compiled storage in a POSIX folder."""
    source = CORE / "posix" / "folder.c"
    return compile_c(folder / "folder.so", [source], "-shared", "-fPIC", "-std=gnu99")


# Stands for a device's other parts. The linker passes each call of nvs_commit() through this one.
UNRELIABLE = """
#include "esp_random.h"
#include "nvs.h"
#include "../flash_model.h"

long flash_operations, flash_cut = -1;
jmp_buf flash_power;
int failures;

void esp_fill_random(void *buf, size_t len) { (void)buf, (void)len; }
esp_err_t __real_nvs_commit(nvs_handle_t handle);
esp_err_t __wrap_nvs_commit(nvs_handle_t handle);
esp_err_t __wrap_nvs_commit(nvs_handle_t handle) {
    return failures > 0 && failures-- > 0 ? ESP_FAIL : __real_nvs_commit(handle);
}
"""


def unreliable_nvs(folder: Path) -> ctypes.CDLL:
    """Return the NVS port on a model whose next `failures` commits fail and that loses uncommitted writes."""
    source, model = folder / "unreliable.c", RIGS / "idf_model"
    source.write_text(UNRELIABLE)
    flags = (f"-I{model}", f"-I{CORE / 'idf'}", "-std=gnu17", "-Wno-pedantic", LOSES_UNCOMMITTED)
    sources = [source, model / "nvs.c", CORE / "idf" / "idf_nvs.c"]
    library = compile_c(
        folder / "nvs.so", sources, "-shared", "-fPIC", "-Wl,--wrap=nvs_commit", f"-I{CORE}", *flags
    )
    return ctypes.CDLL(str(library))


class TestFailedCommit:
    @pytest.mark.parametrize("change", [b"", b"new"], ids=["erase", "write"])
    def test_repeated_change_is_committed(self, tmp_path: Path, change: bytes):
        port, idf = unreliable_nvs(tmp_path), ctypes.create_string_buffer(4096)
        port.storage_new()
        port.storage_start()
        assert port.hushmote_idf_open(idf) == 0
        for write, read, place in [
            (port.hushmote_idf_write, port.hushmote_idf_read, 1),
            (port.hushmote_idf_write_kept, port.hushmote_idf_read_kept, b"door"),
        ]:
            data = ctypes.create_string_buffer(8)
            assert write(idf, place, b"old", ctypes.c_size_t(3)) == 0
            ctypes.c_int.in_dll(port, "failures").value = 1
            assert write(idf, place, change, ctypes.c_size_t(len(change))) == -1
            assert write(idf, place, change, ctypes.c_size_t(len(change))) == 0
            port.storage_start()
            assert read(idf, place, data, ctypes.c_size_t(8)) == len(change)
            assert data.value == change


ZEPHYR = """
#include <string.h>

#include "hushmote_zephyr.h"
#include <zephyr/fs/nvs.h>
#include "../flash_model.h"

long flash_operations, flash_cut = -1;
jmp_buf flash_power;

int sys_csrand_get(void *dst, size_t len) { (void)dst, (void)len; return 0; }

static const char *names[64];
static struct hushmote_policy policy;
struct hushmote_zephyr zephyr = {NULL, 100, &policy};

/* Set the policy's names, which are separated by commas. */
void use_names(char *text) {
    policy.names = names;
    policy.name_count = 0;
    for (char *name = strtok(text, ","); name != NULL; name = strtok(NULL, ","))
        names[policy.name_count++] = name;
}

/* Store an item as the earlier release did. */
long write_old(unsigned at, const void *data, size_t bytes) {
    return nvs_write(NULL, (uint16_t)(102 + at), data, bytes);
}
"""


class ZephyrStorage:
    """The Zephyr port on a new model of its NVS."""

    def __init__(self, folder: Path, names: str):
        source, model = folder / "zephyr.c", RIGS / "zephyr_model"
        source.write_text(ZEPHYR)
        flags = (f"-I{model}", f"-I{CORE / 'zephyr'}", f"-I{CORE}", "-std=gnu17", "-Wno-pedantic")
        sources = [source, model / "nvs.c", CORE / "zephyr" / "hushmote_zephyr.c"]
        self.port = ctypes.CDLL(str(compile_c(folder / "zephyr.so", sources, "-shared", "-fPIC", *flags)))
        self.port.hushmote_zephyr_read_kept.restype = ctypes.c_long
        self.context = ctypes.addressof(ctypes.c_char.in_dll(self.port, "zephyr"))
        self.port.storage_new()
        self.use(names)

    def use(self, names: str) -> None:
        """Start a firmware whose policy has these names, separated by commas."""
        self.names = ctypes.create_string_buffer(names.encode())
        self.port.use_names(self.names)
        self.port.storage_start()

    def read(self, name: str) -> bytes:
        data = ctypes.create_string_buffer(2000)
        size = self.port.hushmote_zephyr_read_kept(
            ctypes.c_void_p(self.context), name.encode(), data, ctypes.c_size_t(2000)
        )
        return data.raw[:size]

    def write(self, name: str, data: bytes) -> int:
        return self.port.hushmote_zephyr_write_kept(
            ctypes.c_void_p(self.context), name.encode(), data, ctypes.c_size_t(len(data))
        )


class TestZephyrNames:
    def test_other_policies_neither_move_nor_overwrite_items(self, tmp_path: Path):
        storage = ZephyrStorage(tmp_path, "room,door")
        for name in ("room", "door", "door.yes", ".no"):
            assert storage.write(name, name.encode()) == 0
        storage.use("window,door")
        assert (storage.read("window"), storage.read("door")) == (b"", b"door")
        assert storage.write("window", b"new") == 0
        storage.use("door,room")
        assert [storage.read(name) for name in ("room", "door", "door.yes", ".no", "room.yes")] == [
            *(b"room", b"door", b"door.yes", b".no"),
            b"",
        ]

    def test_earlier_releases_items_are_read_until_replaced(self, tmp_path: Path):
        storage = ZephyrStorage(tmp_path, "room,door")
        for at, data in enumerate((b"serial 5", b"serial 6", b"yes", b"yes")):
            assert storage.port.write_old(at, data, ctypes.c_size_t(len(data))) > 0
        assert (storage.read("room"), storage.read("door")) == (b"serial 5", b"serial 6")
        assert storage.read("room.yes") == b""  # asked again
        assert storage.write("room", b"serial 7") == 0
        assert (storage.read("room"), storage.read("door")) == (b"serial 7", b"serial 6")
        storage.use("door")
        storage.use("room,door")
        assert (storage.read("room"), storage.read("door")) == (b"serial 7", b"serial 6")

    def test_removed_experiment_stays_removed(self, tmp_path: Path):
        storage = ZephyrStorage(tmp_path, "room")
        assert storage.port.write_old(0, b"old", ctypes.c_size_t(3)) > 0
        assert storage.write("room", b"new") == 0
        assert storage.write("room", b"") == 0
        assert storage.read("room") == b""

    def test_65th_name_has_no_room(self, tmp_path: Path):
        storage = ZephyrStorage(tmp_path, "room")
        for i in range(64):
            assert storage.write(f"n{i}", b"serial") == 0
        assert storage.write("room", b"serial") > 0
        assert storage.write("n63", b"serial 2") == 0
        assert (storage.read("room"), storage.read("n0"), storage.read("n63")) == (
            b"",
            b"serial",
            b"serial 2",
        )


class TestPowerCuts:
    @pytest.mark.parametrize(
        ("storage", "flags", "operations"),
        [
            ("nvs strings", (), 2260),
            ("nvs strings", (ERASED_IS_OVERWRITTEN,), 3280),
            ("zephyr", (), 356),
            ("zephyr", (MOVES_ARE_NOT_MARKED,), 351),
            ("nvs strings", ASKS_EACH, 1096),
            ("zephyr", ASKS_EACH, 374),
            ("nvs strings", (ROLLBACKS,), 2260),
            ("zephyr", (ROLLBACKS,), 356),
            ("zephyr", (ROLLBACKS, *ASKS_EACH), 374),
        ],
        ids=[
            "nvs",
            "nvs overwrites erased",
            "zephyr",
            "zephyr without marks",
            "nvs asks each",
            "zephyr asks each",
            "nvs rollbacks",
            "zephyr rollbacks",
            "zephyr rollbacks asks each",
        ],
    )
    def test_never_lock_or_overspend(
        self, tmp_path: Path, storage: str, flags: tuple[str, ...], operations: int
    ):
        program = build(tmp_path, storage, *flags)
        assert live(program) == {"operations": operations, "lifetimes": operations} | ALL_WELL

    @pytest.mark.parametrize("storage", ["nvs strings", "zephyr"])
    @pytest.mark.parametrize("again", [1, 2, 5])
    def test_two_cuts_cause_no_loss(self, tmp_path: Path, storage: str, again: int):
        counts = live(build(tmp_path, storage), 7, again)
        assert counts.items() >= ALL_WELL.items()

    def test_lose_no_data_if_nvs_drops_uncommitted_writes(self, tmp_path: Path):
        counts = live(build(tmp_path, "nvs strings", LOSES_UNCOMMITTED), 59)
        assert counts.items() >= ALL_WELL.items()

    @pytest.mark.parametrize("steps", ["LEDGER", "KEPT"])
    def test_leave_old_or_new_files_in_a_folder(self, tmp_path: Path, steps: str):
        folder = tmp_path / "experiments"
        folder.mkdir()
        assert_survives_power_cuts(steps, folder, compile_folder(tmp_path))

    def test_new_folder_and_removals_are_synced(self, tmp_path: Path):
        assert_syncs_every_change(tmp_path / "board" / "experiments", compile_folder(tmp_path))

    @pytest.mark.parametrize("flags", [(), (ERASED_IS_OVERWRITTEN,)], ids=["erased", "overwritten"])
    def test_lock_a_ledger_of_blobs(self, tmp_path: Path, flags: tuple[str, ...]):
        """Check that the model detects the known problem of blobs, which ESPHome's preferences use."""
        counts = live(build(tmp_path, "nvs blobs", *flags))
        assert (counts["locked"], counts["forgotten"]) == (76, 2)
