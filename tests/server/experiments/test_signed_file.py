"""Files of signed experiments: their round trip, and contents that a valid signature does not excuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import fails

from hushmote.server.experiments.definition import load
from hushmote.server.experiments.reading import DefinitionError
from hushmote.server.experiments.signed_file import load_signed, sign, to_text
from hushmote.server.wire import keys
from hushmote.server.wire.topics import signed_file_topic

SIGNING_KEY = bytes([7]) * 32
HIGHEST = 2**32 - 2  # the withdrawal has the next serial
ROOM = load(Path("examples/room_temp.toml"))


@pytest.mark.parametrize("serial", [1, HIGHEST])
def test_round_trip(tmp_path: Path, serial: int):
    signed = sign(ROOM, "home", SIGNING_KEY, serial)
    path = tmp_path / "room.signed.json"
    path.write_text(to_text(signed, SIGNING_KEY))
    assert load_signed(path) == signed


@pytest.mark.parametrize(
    "fields", [{"serial": HIGHEST + 1}, {"serial": 0}, {"format": "hushmote signed experiment 2"}], ids=str
)
def test_rejects_a_signed_document_with_other_contents(tmp_path: Path, fields: dict[str, Any]):
    document = json.loads(to_text(sign(ROOM, "home", SIGNING_KEY, 1), SIGNING_KEY))["experiment"] | fields
    signature = keys.sign_document(SIGNING_KEY, signed_file_topic("home"), document)
    path = tmp_path / "room.signed.json"
    path.write_text(json.dumps({"experiment": document, "signature": signature.hex()}))
    with fails("is damaged or not a signed experiment: create it with", DefinitionError):
        load_signed(path)
