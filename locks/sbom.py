"""Print what software is installed for this Python, as a CycloneDX 1.6 JSON document.

    python locks/sbom.py LOCK... > hushmote.cdx.json

Each distribution has its version, its licence, what it needs, and the hashes of its files that the locks
allow. One that no lock has, or another version than the locks', is an error: nobody checked what the document
would name. The same installation gives the same bytes.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

PRODUCT = "hushmote"
# Brought by Python itself, in a virtual environment or in the base image, which its digest pins.
_OF_PYTHON = {"pip", "setuptools", "wheel"}
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Installed:
    """A distribution that is there."""

    name: str
    version: str
    license: str | None = None
    needs: tuple[str, ...] = ()


def normal(name: str) -> str:
    """A distribution's name as registries compare it."""
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
            text = str(fields.get("license_expression") or fields.get("license") or "")
            short = text if "\n" not in text and 0 < len(text) < 80 else None
            all_of_it[name] = Installed(name, distribution.version, short, needs)
    return [all_of_it[name] for name in sorted(all_of_it)]


def unlocked(found: Iterable[Installed], allowed: Mapping[tuple[str, str], frozenset[str]]) -> list[str]:
    """Return name and version of what no lock has."""
    return [
        f"{d.name} {d.version}" for d in found if d.name != PRODUCT and (d.name, d.version) not in allowed
    ]


def document(found: Iterable[Installed], allowed: Mapping[tuple[str, str], frozenset[str]]) -> dict[str, Any]:
    """Return the CycloneDX document of what is installed."""
    found = list(found)
    there = {d.name: _reference(d) for d in found}
    components = [_component(d, allowed.get((d.name, d.version), frozenset())) for d in found]
    product = [c for c in components if c["name"] == PRODUCT]
    body = {
        "metadata": {"component": product[0] | {"type": "application"}} if product else {},
        "components": [c for c in components if c["name"] != PRODUCT],
        "dependencies": [
            {"ref": _reference(d), "dependsOn": [there[n] for n in d.needs if n in there]} for d in found
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return head | body


def _reference(distribution: Installed) -> str:
    return f"pkg:pypi/{distribution.name}@{distribution.version}"


def _component(distribution: Installed, hashes: frozenset[str]) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _reference(distribution),
        "name": distribution.name,
        "version": distribution.version,
        "purl": _reference(distribution),
    }
    if distribution.license:
        component["licenses"] = [{"license": {"name": distribution.license}}]
    if hashes:
        component["hashes"] = [{"alg": "SHA-256", "content": content} for content in sorted(hashes)]
    return component


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("name at least one lock: python locks/sbom.py locks/container.txt")
    allowed = {pin: hashes for lock in sys.argv[1:] for pin, hashes in pins(Path(lock).read_text()).items()}
    found = installed(distributions())
    if missing := unlocked(found, allowed):
        sys.exit(f"no lock has {', '.join(missing)}: install from the locks (LOCKED=1 make test)")
    print(json.dumps(document(found, allowed), indent=1))


if __name__ == "__main__":
    main()
