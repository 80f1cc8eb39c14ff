"""A fleet folder's boards in a thread, running the shipped client and reporter on CPython over TLS."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path

from boards import MemoryStorage
from cryptography.hazmat.primitives import serialization
from running_aggregator import WAIT_S

from hushmote.device import ldp_client
from hushmote.device.async_reporter import AsyncReporter
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.fleet.provisioning.settings import DeviceSettings, load_settings

_POLICY = {"sum": 1 << 40, "squares": 0, "epsilon": 4_000_000, "rules": ("count",)}


class LivingBoards:
    """Boards that keep reporting the same true value, as a context manager; each has one address.

    name: the experiment's, with a yes-or-no reading. gap_s: seconds between attempts to report; a full
    outbox makes an attempt fail.
    """

    def __init__(self, settings: Sequence[Path], name: str, gap_s: float) -> None:
        self._name = name
        self._gap_s = gap_s
        loaded = [load_settings(path) for path in settings]
        self.clients = [_client(s, name) for s in loaded]
        self.reporters = [
            AsyncReporter(
                client,
                s.mqtt_host,
                s.mqtt_port,
                ssl=_tls(s, path.parent),
                kept=KeptExperiments(client, None),
                delay_s=0,
                spread_s=1,
                backoff_s=1,
                backoff_max_s=1,
                settle_s=600,
            )
            for client, s, path in zip(self.clients, loaded, settings, strict=True)
        ]
        self._made = 0
        self._finishing = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)

    def __enter__(self) -> LivingBoards:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._finishing.set()
        self._ended.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def confirmed_reports(self) -> int:
        """Return the number of reports confirmed to the boards."""
        return sum(reporter.sent for reporter in self.reporters)

    def status(self) -> list[str]:
        """Return each board's status."""
        return [reporter.status() for reporter in self.reporters]

    def finish(self) -> int:
        """Stop making reports, wait until all are confirmed, and return their number."""
        self._finishing.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), self.status()
        return self._made

    async def _live(self) -> None:
        connections = [asyncio.create_task(reporter.run()) for reporter in self.reporters]
        while not self._finishing.is_set():
            self._made += sum(r.report(self._name, True) is not None for r in self.reporters)
            await asyncio.sleep(self._gap_s)
        while any(client.status()["pending"] for client in self.clients) and not self._ended.is_set():
            await asyncio.sleep(0.05)
        for reporter in self.reporters:
            reporter.stop()
        await asyncio.gather(*connections)


def _client(settings: DeviceSettings, name: str) -> ldp_client.Client:
    storage = MemoryStorage()
    ldp_client.provision(storage, consent=True)
    assert settings.key is not None
    assert settings.announce_key is not None
    return ldp_client.Client(
        {**_POLICY, "experiments": (name,)},
        storage,
        settings.device_id,
        bytes.fromhex(settings.key),
        bytes.fromhex(settings.announce_key),
        fleet=settings.fleet,
    )


def _tls(settings: DeviceSettings, folder: Path) -> ssl.SSLContext:
    assert settings.mqtt_ca is not None
    assert settings.mqtt_cert is not None
    assert settings.mqtt_key is not None
    tls = ssl.create_default_context(cadata=ssl.DER_cert_to_PEM_cert(base64.b64decode(settings.mqtt_ca)))
    key = serialization.load_der_private_key(base64.b64decode(settings.mqtt_key), None)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = folder / f"{settings.device_id}.pem"
    pem.write_bytes(text + ssl.DER_cert_to_PEM_cert(base64.b64decode(settings.mqtt_cert)).encode())
    tls.load_cert_chain(pem)
    return tls
