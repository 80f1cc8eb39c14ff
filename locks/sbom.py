"""Print a bill of materials as a CycloneDX 1.6 JSON document: of what is installed here, or of a board.

    python locks/sbom.py LOCK... > server.cdx.json
    python locks/sbom.py --shipped LOCK... > server.cdx.json
    python locks/sbom.py --board > board.cdx.json

Of what is installed each distribution has its version, licence and supplier, what it needs, and the hashes
of its files that the locks allow. One that no lock has, or another version than the locks', is an error:
nobody checked what the document would name. With --shipped, distributions that no lock names are left out,
such as the tools of a development environment. Of a board it has each file that can go onto one, umqtt, and
MicroPython: in the version that MICROPYTHON names, else the oldest that `hushmote flash` accepts.

SUPPLIER="Name <mail>" is whose product it is. The same content and SOURCE_DATE_EPOCH give the same bytes.
"""

import datetime
import hashlib
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import parseaddr
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

PRODUCT = "hushmote"
LICENSE = "Apache-2.0"
# Brought by Python itself, in a virtual environment or in the base image, which its digest pins.
_OF_PYTHON = {"pip", "setuptools", "wheel"}
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Installed:
    """A distribution that is there. license: an SPDX expression or the name of one."""

    name: str
    version: str
    license: str | None = None
    needs: tuple[str, ...] = ()
    supplier: str = ""
    expression: bool = False


def normal(name: str) -> str:
    """Return a distribution's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> dict[tuple[str, str], frozenset[str]]:
    """Return (name, version) -> SHA-256 of the files that a lock allows for it."""
    allowed: dict[tuple[str, str], frozenset[str]] = {}
    for entry in re.split(r"\n(?=\S)", lock):
        pin = _PIN.match(entry)
        if pin is not None:
            allowed[normal(pin[1]), pin[2]] = frozenset(_HASH.findall(entry))
    return allowed


def installed(found: Iterable[Distribution]) -> list[Installed]:
    """Return what is installed, but for what Python itself brings."""
    all_of_it = {}
    for distribution in found:
        name = normal(distribution.metadata["Name"])
        if name not in _OF_PYTHON:
            wanted = [re.match(r"[A-Za-z0-9._-]+", text) for text in distribution.requires or ()]
            needs = tuple(sorted({normal(match[0]) for match in wanted if match}))
            fields = distribution.metadata.json
            text = str(fields.get("license_expression") or fields.get("license") or _classified(fields))
            short = text if "\n" not in text and 0 < len(text) < 80 else _classified(fields) or None
            spdx = "license_expression" in fields
            all_of_it[name] = Installed(
                name, distribution.version, short, needs, _supplier(name, fields), spdx
            )
    return [all_of_it[name] for name in sorted(all_of_it)]


def _classified(fields: Mapping[str, Any]) -> str:
    """Return the licence that a distribution's classifiers name, else nothing."""
    named = [c.rpartition(" :: ")[2] for c in fields.get("classifier", ()) if c.startswith("License ::")]
    return named[0] if named else ""


def _supplier(name: str, fields: Mapping[str, Any]) -> str:
    """Return the supplier that a distribution names."""
    if name == PRODUCT:
        return _maker()["name"]
    mails = (parseaddr(str(fields.get(field, "")))[0] for field in ("author_email", "maintainer_email"))
    said = (fields.get("author"), fields.get("maintainer"), *mails)
    return next((text for text in map(str, filter(None, said)) if text.strip()), f"the project {name}")


def unlocked(found: Iterable[Installed], allowed: Mapping[tuple[str, str], frozenset[str]]) -> list[str]:
    """Return name and version of what no lock has."""
    return [
        f"{d.name} {d.version}" for d in found if d.name != PRODUCT and (d.name, d.version) not in allowed
    ]


def document(found: Iterable[Installed], allowed: Mapping[tuple[str, str], frozenset[str]]) -> dict[str, Any]:
    """Return the CycloneDX document of what is installed."""
    found = list(found)
    references = {d.name: _reference(d) for d in found}
    components = [_distribution(d, allowed.get((d.name, d.version), frozenset())) for d in found]
    product = [c for c in components if c["name"] == PRODUCT]
    needs = {_reference(d): [references[n] for n in d.needs if n in references] for d in found}
    dependencies = [c for c in components if c["name"] != PRODUCT]
    return _document(product[0] | {"type": "application"} if product else None, dependencies, needs)


def board_document(micropython: str = "") -> dict[str, Any]:
    """Return the CycloneDX document of all that can go onto a board; micropython: its version there."""
    from hushmote.fleet.provisioning import flash, umqtt
    from hushmote.fleet.provisioning.usb import OLDEST_FIRMWARE
    from hushmote.server.wire import board_files

    ours, device = version(PRODUCT), flash.EXAMPLE.parent
    names = [
        *(f"{m}.py" for m in flash.MODULES),
        *(p.name for p in board_files.shipped_files().values()),
        "main.py",
    ]
    parts = [
        _component(
            "file",
            f"device/{name}",
            ours,
            f"pkg:pypi/{PRODUCT}@{ours}#device/{name}",
            LICENSE,
            _maker()["name"],
            [hashlib.sha256((device / name).read_bytes()).hexdigest()],
        )
        for name in names
    ]
    source = "vcs_url=git%2Bhttps://github.com/micropython/micropython-lib"
    purl = f"pkg:generic/umqtt.simple@{umqtt.VERSION}?{source}"
    parts.append(
        _component("library", "umqtt.simple", umqtt.VERSION, purl, "MIT", "MicroPython", [umqtt.SHA256])
    )
    runs = micropython or ".".join(map(str, OLDEST_FIRMWARE))
    purl = f"pkg:github/micropython/micropython@v{runs}"
    parts.append(_component("firmware", "MicroPython", runs, purl, "MIT", "MicroPython"))
    board = _component(
        "firmware", "hushmote-board", ours, f"pkg:generic/hushmote-board@{ours}", LICENSE, _maker()["name"]
    )
    needs = {part["bom-ref"]: [purl] if part["type"] != "firmware" else [] for part in parts}
    return _document(board, parts, {board["bom-ref"]: [*needs]} | needs)


def _document(
    of: dict[str, Any] | None, components: list[dict[str, Any]], needs: Mapping[str, list[str]]
) -> dict[str, Any]:
    body = {
        "metadata": {
            "authors": _maker().get("contact", [{"name": _maker()["name"]}]),
            "supplier": _maker(),
            **({"component": of} if of else {}),
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": on} for ref, on in needs.items()],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.now(datetime.UTC)
    at = now if epoch is None else datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    body["metadata"] = {"timestamp": at.isoformat(timespec="seconds"), **body["metadata"]}
    head = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return head | body


def _maker() -> dict[str, Any]:
    """Return the product's maker and its address."""
    name, mail = parseaddr(os.environ.get("SUPPLIER", ""))
    if not name and not mail:
        return {"name": "Hushmote", "contact": [{"name": "Hushmote's maintainers, as SECURITY.md says"}]}
    contact = {"name": name or mail} | ({"email": mail} if mail else {})
    return {"name": name or mail, "contact": [contact]}


def _reference(distribution: Installed) -> str:
    return f"pkg:pypi/{distribution.name}@{distribution.version}"


def _distribution(d: Installed, hashes: frozenset[str]) -> dict[str, Any]:
    component = _component("library", d.name, d.version, _reference(d), None, d.supplier, sorted(hashes))
    if d.license:
        license_choice = {"expression": d.license} if d.expression else {"license": {"name": d.license}}
        component["licenses"] = [license_choice]
    return component


def _component(
    kind: str,
    name: str,
    number: str,
    purl: str,
    license_id: str | None,
    supplier: str,
    hashes: Iterable[str] = (),
) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": kind,
        "bom-ref": purl,
        "supplier": {"name": supplier},
        "name": name,
        "version": number,
        "purl": purl,
    }
    if license_id:
        component["licenses"] = [{"license": {"id": license_id}}]
    if known := [{"alg": "SHA-256", "content": content} for content in hashes]:
        component["hashes"] = known
    return component


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("name at least one lock: python locks/sbom.py locks/container.txt; or --board")
    if sys.argv[1:] == ["--board"]:
        print(json.dumps(board_document(os.environ.get("MICROPYTHON", "")), indent=1))
        return
    locks = [name for name in sys.argv[1:] if name != "--shipped"]
    allowed = {pin: hashes for lock in locks for pin, hashes in pins(Path(lock).read_text()).items()}
    found, names = installed(distributions()), {PRODUCT, *(name for name, _ in allowed)}
    if "--shipped" in sys.argv:
        found = [distribution for distribution in found if distribution.name in names]
    if missing := unlocked(found, allowed):
        sys.exit(f"no lock has {', '.join(missing)}: install from the locks (LOCKED=1 make test)")
    print(json.dumps(document(found, allowed), indent=1))


if __name__ == "__main__":
    main()
