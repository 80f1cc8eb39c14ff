"""The settings that the C client accepts, field by field. All others give one error code at startup."""

import ctypes
from pathlib import Path
from typing import Any

import c_core
from c_client import Group, Policy
from c_core import Config, Entropy, Sha256

pytestmark = c_core.needs_gcc
NAMES = (ctypes.c_char_p * 64)(*(b"e%d" % i for i in range(64)))
BAD = -1  # HUSHMOTE_BAD_SETTINGS
ADDRESS = 1  # a pointer that is never dereferenced


@Entropy
def source(_context, _target, _count):
    return 0


def settings_code(library: ctypes.CDLL, changes: dict[str, Any]) -> int:
    """Return the code for valid settings with changes; names that start with policy_ change the policy."""
    policy = Policy(sum=1, squares=0, epsilon=1000, rules=2, name_count=1, names=NAMES)
    config = Config(read=ADDRESS, write=ADDRESS, entropy=source, device_id=b"d", experiments=ADDRESS)
    config.records, config.record_bytes, config.unsent_max = ADDRESS, 40 + 22 + 22, 1
    config.policy = ctypes.addressof(policy)
    for name, value in changes.items():
        field = name.removeprefix("policy_")
        setattr(config if field == name else policy, field, value)
    return library.hm_settings(ctypes.byref(config))


def name_array(*names: bytes | None) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(names))(*names)


def group_array(*names: bytes | None) -> ctypes.Array[Group]:
    return (Group * len(names))(*((name, None) for name in names))


VALID: tuple[dict[str, Any], ...] = (
    {},
    {"policy_epsilon": 16_000_000, "policy_rules": 15},
    {"policy_name_count": 64, "record_bytes": 40 + 22 * 64 + 22},
    {"policy_name_count": 2, "policy_names": name_array(b"az09_-", b"z" * 32), "record_bytes": 106},
    {"policy_group_count": 1, "policy_groups": group_array(b"az09_-")},
    {"unsent_max": 16, "record_bytes": 40 + 22 + 22 * 16},
    {"lock": ADDRESS, "unlock": ADDRESS},
    {"unique_id": b"id", "unique_id_bytes": 2},
    {"fleet": b"home_1", "announce_key": bytes(64), "key": bytes(32)},
    {"device_id": b"a-0" + b"z" * 29},
)
INVALID: tuple[dict[str, Any], ...] = (
    *({name: None} for name in ("policy", "read", "write", "device_id", "experiments", "records")),
    {"entropy": Entropy()},
    *({"policy_epsilon": epsilon} for epsilon in (0, 999, 16_000_001, 2**32 - 1)),
    *({"policy_rules": rules} for rules in (0, 16, 255)),
    {"policy_names": ctypes.POINTER(ctypes.c_char_p)()},
    {"policy_name_count": 0},
    {"policy_name_count": 65, "record_bytes": 10_000},
    *(
        {"policy_names": name_array(name)}
        for name in (b"", b"E", b"e" * 33, b"e/f", b"e f", b"e~", b"\xe4", None)
    ),
    {"policy_name_count": 2, "policy_names": name_array(b"e", b"F"), "record_bytes": 106},
    {"policy_group_count": 1},
    *(
        {"policy_group_count": 2, "policy_groups": group_array(b"e", name)}
        for name in (b"", b"E", b"e ", None)
    ),
    *({"device_id": name} for name in (b"", b"D", b"d_1", b"d" * 33, b"d/1")),
    {"record_bytes": 83},
    {"unsent_max": 0},
    {"unsent_max": 2},
    {"unsent_max": 17, "record_bytes": 10_000},
    {"lock": ADDRESS},
    {"unlock": ADDRESS},
    {"unique_id_bytes": 1},
    {"announce_key": bytes(64)},
    *({"fleet": name} for name in (b"", b"Home", b"h" * 33, b"a+b")),
)


def test_rejects_exactly_the_invalid_settings(tmp_path: Path):
    library = c_core.library(tmp_path, ("settings",))
    assert library.hm_settings(None) == BAD
    for changes in VALID:
        assert settings_code(library, changes) == 0, changes
    for changes in INVALID:
        assert settings_code(library, changes) == BAD, changes


def test_requires_callbacks_without_builtin_arithmetic(tmp_path: Path):
    library = c_core.library(tmp_path, ("settings",), "-DHUSHMOTE_WITH_SHA256=0", "-DHUSHMOTE_WITH_P256=0")
    keyed = {"fleet": b"f", "announce_key": bytes(64), "sha256": Sha256(ADDRESS)}
    assert settings_code(library, {}) == BAD
    assert settings_code(library, {"sha256": Sha256(ADDRESS)}) == 0
    for changes in (keyed, keyed | {"verify": ADDRESS, "device_id": None}):
        assert settings_code(library, changes) == BAD
    assert settings_code(library, keyed | {"verify": ADDRESS}) == 0
