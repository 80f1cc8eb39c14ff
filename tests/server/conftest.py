"""A store for several tests of the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from served import add_fleet

from hushmote.server.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Create a new SQLite store with an open fleet, "open", and its experiment "temp"."""
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        add_fleet(store)
        yield store
