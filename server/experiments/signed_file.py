"""Files of signed experiments, which an aggregator without the signing key can publish and withdraw."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import refusing
from ..store.versions import Description
from ..wire import keys
from ..wire.topics import NameRefused, check_fleet, experiment_topic, signed_file_topic
from .definition import Definition
from .reading import DefinitionError

FORMAT = "hushmote signed experiment 1"
SUFFIX = ".signed.json"


@dataclass(frozen=True)
class SignedExperiment:
    """A version of an experiment for one fleet, with its signatures and the public key.

    Attributes:
        fleet: The fleet's name.
        name: The experiment's name.
        payload: The JSON published to boards.
        expires: The last day, UTC.
        description: The texts that devices never see.
        announce_key: The public key for checking the signatures.
        signatures: The signatures of the announcement and the withdrawal.
    """

    fleet: str
    name: str
    payload: bytes
    expires: datetime.date
    description: Description
    announce_key: bytes
    signatures: keys.Signatures


def sign(definition: Definition, fleet: str, signing_key: bytes, serial: int) -> SignedExperiment:
    """Sign a definition for a fleet with a serial.

    Raises:
        MasterKeyError: If the signing key is invalid.
        NameRefused: If the fleet's name is invalid.
    """
    payload, topic = definition.payload(), experiment_topic(check_fleet(fleet), definition.name)
    return SignedExperiment(
        fleet,
        definition.name,
        payload,
        definition.expires,
        definition.description(),
        keys.public_key_bytes(signing_key),
        keys.sign_version(signing_key, topic, payload, serial),
    )


def to_text(signed: SignedExperiment, signing_key: bytes) -> str:
    """Return the text of a signed experiment's file, all of which is covered by the signature.

    Raises:
        MasterKeyError: If the signing key is invalid.
    """
    document = {
        "format": FORMAT,
        "fleet": signed.fleet,
        "name": signed.name,
        "payload": signed.payload.decode(),
        "expires": signed.expires.isoformat(),
        "description": asdict(signed.description),
        "announce_key": signed.announce_key.hex(),
        "serial": signed.signatures.serial,
        "announcement": signed.signatures.announcement.hex(),
        "withdrawal": signed.signatures.withdrawal.hex(),
    }
    signature = keys.sign_document(signing_key, signed_file_topic(signed.fleet), document)
    return json.dumps({"experiment": document, "signature": signature.hex()}, indent=2) + "\n"


def load_signed(path: Path) -> SignedExperiment:
    """Load the signed experiment in a file.

    Raises:
        DefinitionError: If the file is damaged or altered, or the experiment has expired.
    """
    with refusing(DefinitionError, f"read {path}"):
        content = path.read_bytes()
    try:
        fields = json.loads(content)
        document, signature = fields["experiment"], bytes.fromhex(fields["signature"])
        signed = _parse(document)
        is_unaltered = keys.is_document_signed(
            signed.announce_key, signed_file_topic(signed.fleet), document, signature
        )
    except (NameRefused, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise DefinitionError(
            f"{path} is damaged or not a signed experiment: create it with `hushmote experiment sign`"
        ) from None
    topic = experiment_topic(signed.fleet, signed.name)
    if not is_unaltered or not keys.signed_messages(
        signed.announce_key, topic, signed.payload, signed.signatures
    ):
        raise DefinitionError(f"{path} was altered after it was signed: sign the experiment again")
    if signed.expires < datetime.datetime.now(datetime.UTC).date():
        raise DefinitionError(f"{signed.name} expired on {signed.expires}; sign it with a later day")
    return signed


def _parse(document: dict[str, Any]) -> SignedExperiment:
    if document["format"] != FORMAT or not 0 < document["serial"] < 2**32 - 1:
        raise ValueError
    return SignedExperiment(
        check_fleet(document["fleet"]),
        check_fleet(document["name"]),
        document["payload"].encode(),
        datetime.date.fromisoformat(document["expires"]),
        Description(**document["description"]),
        bytes.fromhex(document["announce_key"]),
        keys.Signatures(
            int(document["serial"]),
            bytes.fromhex(document["announcement"]),
            bytes.fromhex(document["withdrawal"]),
        ),
    )
