"""A door that waits for its broker as long as a test does; one that is about its patience sets its own."""

import pytest
from running import WAIT_S

from hushmote.fleet.door import publisher


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch):
    for name in ("PUBACK_S", "_HUNG_S"):
        monkeypatch.setattr(publisher, name, WAIT_S)
