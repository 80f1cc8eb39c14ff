"""Fixtures for boards that keep experiments."""

from pathlib import Path

import pytest

from hushmote.device import ldp_p256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "experiments"


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect every signature that a client verifies."""
    seen: list[bytes] = []
    verify = ldp_p256.verify

    def count(public_key: bytes, digest: bytes, signature: bytes) -> bool:
        seen.append(signature)
        return verify(public_key, digest, signature)

    monkeypatch.setattr(ldp_p256, "verify", count)
    return seen
