"""What the C client takes as settings, field by field: everything else is one code at the start."""

import ctypes
from pathlib import Path
from typing import Any

import c_core
from c_client import Policy
from c_core import Config, Entropy, Sha256

pytestmark = c_core.needs_gcc
NAMES = (ctypes.c_char_p * 64)(*(b"e%d" % i for i in range(64)))
BAD = -1  # HUSHMOTE_BAD_SETTINGS
NOWHERE = 1  # an address that nobody follows


@Entropy
def source(_context, _target, _count):
    return 0


def said(library: ctypes.CDLL, changes: dict[str, Any]) -> int:
    """Return the code for valid settings with changes; names that begin with policy_ are the policy's."""
    policy = Policy(sum=1, squares=0, epsilon=1000, rules=2, name_count=1, names=NAMES)
    config = Config(read=NOWHERE, write=NOWHERE, entropy=source, device_id=b"d", experiments=NOWHERE)
    config.records, config.record_bytes, config.unsent_max = NOWHERE, 40 + 22 + 21, 1
    config.policy = ctypes.addressof(policy)
    for name, value in changes.items():
        field = name.removeprefix("policy_")
        setattr(config if field == name else policy, field, value)
    return library.hm_settings(ctypes.byref(config))


def named(*names: bytes | None) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(names))(*names)


FITS: tuple[dict[str, Any], ...] = (
    {},
    {"policy_epsilon": 16_000_000, "policy_rules": 15},
    {"policy_name_count": 64, "record_bytes": 40 + 22 * 64 + 21},
    {"policy_name_count": 2, "policy_names": named(b"az09_-", b"z" * 32), "record_bytes": 105},
    {"unsent_max": 16, "record_bytes": 40 + 22 + 21 * 16},
    {"lock": NOWHERE, "unlock": NOWHERE},
    {"unique_id": b"id", "unique_id_bytes": 2},
    {"fleet": b"home_1", "announce_key": bytes(64), "key": bytes(32)},
    {"device_id": b"a-0" + b"z" * 29},
)
DOES_NOT: tuple[dict[str, Any], ...] = (
    *({name: None} for name in ("policy", "read", "write", "device_id", "experiments", "records")),
    {"entropy": Entropy()},
    *({"policy_epsilon": epsilon} for epsilon in (0, 999, 16_000_001, 2**32 - 1)),
    *({"policy_rules": rules} for rules in (0, 16, 255)),
    {"policy_names": ctypes.POINTER(ctypes.c_char_p)()},
    {"policy_name_count": 0},
    {"policy_name_count": 65, "record_bytes": 10_000},
    *({"policy_names": named(name)} for name in (b"", b"E", b"e" * 33, b"e/f", b"e f", b"e~", b"\xe4", None)),
    {"policy_name_count": 2, "policy_names": named(b"e", b"F"), "record_bytes": 105},
    *({"device_id": name} for name in (b"", b"D", b"d_1", b"d" * 33, b"d/1")),
    {"record_bytes": 82},
    {"unsent_max": 0},
    {"unsent_max": 2},
    {"unsent_max": 17, "record_bytes": 10_000},
    {"lock": NOWHERE},
    {"unlock": NOWHERE},
    {"unique_id_bytes": 1},
    {"announce_key": bytes(64)},
    *({"fleet": name} for name in (b"", b"Home", b"h" * 33, b"a+b")),
)


def test_rejects_exactly_the_invalid_settings(tmp_path: Path):
    library = c_core.library(tmp_path, ("settings",))
    assert library.hm_settings(None) == BAD
    for changes in FITS:
        assert said(library, changes) == 0, changes
    for changes in DOES_NOT:
        assert said(library, changes) == BAD, changes


def test_without_arithmetic_of_its_own_it_needs_an_engine_s(tmp_path: Path):
    library = c_core.library(tmp_path, ("settings",), "-DHUSHMOTE_WITH_SHA256=0", "-DHUSHMOTE_WITH_P256=0")
    keyed = {"fleet": b"f", "announce_key": bytes(64), "sha256": Sha256(NOWHERE)}
    assert said(library, {}) == BAD
    assert said(library, {"sha256": Sha256(NOWHERE)}) == 0
    for changes in (keyed, keyed | {"verify": NOWHERE, "device_id": None}):
        assert said(library, changes) == BAD
    assert said(library, keyed | {"verify": NOWHERE}) == 0
