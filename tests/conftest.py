"""Fixtures that tests of several modules take."""

import pytest
from postgres import postgres, postgres_url

__all__ = ["postgres", "postgres_url", "store_url"]


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request, tmp_path):
    """The URL of a store that is not made yet, in SQLite and in PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    return request.getfixturevalue("postgres_url")


pytest_plugins = ["flashing"]  # its fixtures: a board to flash
