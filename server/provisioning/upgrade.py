"""A fleet of before there was a signing key gets one: in its keys' file and in its boards' settings.

A fleet that has one only needs its boards flashed: firmware of before withdrawals were signed refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import private_file
from ..errors import refusing
from ..wire.keys import FleetKeys, MasterKeyError, public_key_bytes
from . import settings as provision
from .master_key import load_keys, load_unsigned, new_signing_key, to_text
from .rotation import SERVE_AGAIN, Rotated


def upgrade(key_file: Path | None, settings: Sequence[Path]) -> Rotated:
    """Give the keys' file a signing key, and the boards' settings its public half.

    key_file: None where the keys are in HUSHMOTE_MASTER_KEY, which must have a signing key already. What is
    upgraded already stays as it is, so it may be run again, also after it was killed. Raises MasterKeyError
    and ProvisionError.
    """
    masters = None if key_file is None else load_unsigned(key_file)
    fleet_keys = load_keys(key_file) if masters is None else FleetKeys(masters, new_signing_key())
    if fleet_keys is None:
        raise MasterKeyError("there are no keys to upgrade: give --folder, or --master-key FILE")
    announce_key = public_key_bytes(fleet_keys.signing).hex()
    # Everything is read before anything is written.
    boards = [(path, provision.with_announce_key(path, announce_key)) for path in settings]
    changed = [(path, made) for path, made in boards if made is not None]
    done = [f"settings with a new announce key: {len(changed)} of {len(settings)}"]
    if key_file is not None and masters is not None:
        with refusing(MasterKeyError, f"write {key_file}"):
            private_file.replace(key_file, to_text(fleet_keys).encode())
        done.insert(0, f"{key_file}: a signing key after the master key")
    for path, made in changed:
        provision.replace_settings(path, made)
    return Rotated(
        tuple(done),
        (
            SERVE_AGAIN,
            "`hushmote flash` every board: it keeps its ledger. Until then a board without this announce key "
            "refuses every experiment and reports nothing, and one whose firmware is of before withdrawals "
            "were signed goes on with what is withdrawn",
        ),
    )
