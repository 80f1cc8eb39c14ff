"""What a product refuses: an error of one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hushmote.server.store import StoreError


@contextmanager
def fails(match: str, error: type[Exception] = StoreError) -> Iterator[None]:
    """The block must raise this error, in one line that matches."""
    with pytest.raises(error, match=match) as caught:
        yield
    assert str(caught.value)
    assert "\n" not in str(caught.value)
