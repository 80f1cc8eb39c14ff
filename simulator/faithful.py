"""A fleet of real clients: `ldp_client.Client` on every device, its ledger in memory, faults by chance.

    fleet = SimulatedFleet("demo", [payload], size=1000, rng=rng)
    for delivery in fleet.round({"room_temp": readings}):      one call to report() on every device
        ...                                                    publish delivery.payload for delivery.device
        fleet.acknowledge(delivery)                            the broker has it
    for delivery in fleet.flush(): ...                         the remaining reports in outboxes

`gateway.Gateways` delivers through a real broker. `fleet.reports` and `fleet.acknowledged` record what
happened, so that an aggregator can be compared exactly.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import numpy as np

from ..device import ldp_client
from ..device.ldp_client import Client, Experiment
from ..server.arrays import Counts
from ..server.wire import report
from .population import PopulationError, Reading

# The bounds of a board in the field; Client documents them.
BOUNDS = {"sum": 8_000_000, "squares": 1_819_000_000_000, "epsilon": 4_000_000}
RULES = ("sum", "squares", "count")

_ID_CHARS = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789"))
_ID_LENGTH = 10
_POOL = 4096
_PROGRESS_STEP = 256  # devices between two calls of advance


class Delivery(NamedTuple):
    """A report on its way: the device's id, the payload to publish, the device's position in the fleet."""

    device: str
    payload: bytes
    position: int


class ReportId(NamedTuple):
    """The identity of a report, however often it arrives."""

    device: str
    experiment: str
    number: int


@dataclass(frozen=True)
class Faults:
    """Probabilities, 0 by default except `online`, which is 0.5.

    A round is one call to report() for each experiment.

    Attributes:
        offline: Per round: a device loses its connection, and its reports wait in its outbox.
        online: Per round: a device without a connection gets it back.
        duplicate: Per report: its acknowledgement is lost, and it is sent again with a new packet id.
        late: Per device: it sends nothing until the last round is over.
        reboot: Per round: a device restarts, either before its readings, or after the broker has its report
            and before the device has recorded that, so that it sends the report again; both are equally
            likely.
    """

    offline: float = 0.0
    online: float = 0.5
    duplicate: float = 0.0
    late: float = 0.0
    reboot: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            chance = getattr(self, field.name)
            if not 0 <= chance <= 1:
                raise ValueError(f"{field.name} must be a probability from 0 to 1, not {chance}")


def parse_faults(texts: Iterable[str]) -> Faults:
    """Return the faults of texts such as "offline=0.1"; raise PopulationError for others."""
    chances: dict[str, float] = {}
    names = [field.name for field in fields(Faults)]
    for text in texts:
        name, _, chance = text.partition("=")
        if name not in names:
            raise PopulationError(f"a fault is {', '.join(names)}, such as offline=0.1, not {text}")
        try:
            chances[name] = float(chance)
        except ValueError:
            raise PopulationError(
                f"a fault has a probability from 0 to 1, such as offline=0.1, not {text}"
            ) from None
    try:
        return Faults(**chances)
    except ValueError as e:
        raise PopulationError(str(e)) from None


class MemoryStorage:
    """A device's flash in memory, used by `ldp_client.Client` in place of a folder; it outlives the client.

    It has two slots: read(slot) -> bytes or None, write(slot, data).
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: list[bytes | None] = [None] * 2

    def read(self, slot: int) -> bytes | None:
        """Return the slot's bytes, or None if it was never written."""
        return self._slots[slot]

    def write(self, slot: int, data: bytes) -> None:
        """Replace the slot's bytes."""
        self._slots[slot] = bytes(data)


class NumpyRng:
    """The two primitives of `Experiment.randomize` from a numpy Generator, for simulations only.

    Distributed exactly as the client's own DRBG, and repeatable. Its draws are predictable, so it must never
    randomize a real reading.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._bits: list[int] = []

    def _draw(self) -> int:
        if not self._bits:
            self._bits = self._generator.integers(0, ldp_client.ONE, _POOL).tolist()
        return self._bits.pop()

    def bernoulli(self, threshold: int) -> bool:
        """Return True with probability threshold / ONE."""
        return self._draw() < threshold

    def below(self, n: int) -> int:
        """Return a uniform integer of range(n), 1 <= n <= 2**24, by rejection."""
        if not 1 <= n <= 1 << 24:
            raise ValueError("below() takes 1 to 16777216")
        mask = (1 << (n - 1).bit_length()) - 1
        while True:
            x = self._draw() & mask
            if x < n:
                return x


_parsed_once = functools.lru_cache(maxsize=64)(Experiment.parse)


def _enroll(client: Client, payload: bytes, verified: set[bytes]) -> None:
    """Enroll a client; parse the payload and verify the signature only once for all devices.

    Parsing is half of the processor time of a device that reports once; a signature takes ten times as long
    as everything else. Payloads with a valid signature are added to `verified`.
    """
    parsed = _parsed_once(payload.partition(b"\x00")[0])
    client.enroll(payload, verified=payload in verified, parsed=parsed)
    verified.add(payload)


@dataclass(slots=True)
class _Device:
    id: str
    storage: Any  # the client's type is a folder name, but it accepts any object with read and write
    client: Client
    online: bool
    late: bool
    loses_note: bool = False  # restarts between the broker's acknowledgement and recording it


class SimulatedFleet:
    """Devices 0 to size - 1, each provisioned, enrolled, and with its own id.

    A device is provisioned when it is first used, which takes about 0.2 ms and 3 KiB.

    Args:
        name: The fleet's name.
        payloads: Experiments as they are published, signed or not.
        size: Number of devices.
        rng: Draws ids and faults, and with repeatable=True the reports as well; otherwise every device has
            its own DRBG, seeded from os.urandom.
        device_key: Returns a device's 32-byte key by its id; None in an open fleet.
        announce_key: Of a fleet with signed experiments.
        policy: Of every client; default: BOUNDS, RULES, and these experiments.

    Attributes:
        reports: Every report that was made: ReportId to the index of its reading, None for no reading.
        acknowledged: Every report that the broker acknowledged, once: ReportId to payload.

    Raises:
        ExperimentRefused: If no device would accept an experiment.
        ValueError: If the size is below 1.
    """

    def __init__(
        self,
        name: str,
        payloads: Sequence[bytes],
        *,
        size: int,
        rng: np.random.Generator,
        faults: Faults | None = None,
        device_key: Callable[[str], bytes] | None = None,
        announce_key: bytes | None = None,
        policy: Mapping[str, Any] | None = None,
        repeatable: bool = False,
    ) -> None:
        if size < 1:
            raise ValueError(f"a fleet has 1 device or more, not {size}")
        self.name = name
        self.reports: dict[ReportId, int | None] = {}
        self.acknowledged: dict[ReportId, bytes] = {}
        self.faults = faults or Faults()
        self._rng = rng
        self._primitives = NumpyRng(rng) if repeatable else None
        self._device_key = device_key
        self._announce_key = announce_key
        self._verified: set[bytes] = set()
        self._payloads = tuple(payloads)
        experiments = [_parsed_once(payload.partition(b"\x00")[0]) for payload in payloads]
        self._experiments = {experiment.name: experiment for experiment in experiments}
        self._of_digest = {experiment.digest: experiment for experiment in experiments}
        self._policy = policy or {**BOUNDS, "rules": RULES, "experiments": tuple(self._experiments)}
        self.ids = random_ids(size, rng)
        self._devices: list[_Device | None] = [None] * size
        self._device(0)  # so that a mismatch shows before a run

    def __len__(self) -> int:
        return len(self.ids)

    def _make(self, position: int) -> _Device:
        storage = MemoryStorage()
        ldp_client.provision(storage, consent=True)
        id = self.ids[position]
        late = self.faults.late > 0 and self._rng.random() < self.faults.late
        return _Device(id, storage, self._start(id, storage), True, late)

    def _start(self, id: str, storage: Any) -> Client:
        """Start a device's program from power-up: it has only its storage and the retained messages."""
        key = self._device_key(id) if self._device_key else None
        client = Client(self._policy, storage, id, key, self._announce_key, self.name)
        if self._primitives is not None:
            client.rng = cast("Any", self._primitives)
        for payload in self._payloads:
            _enroll(client, payload, self._verified)
        return client

    def _device(self, position: int) -> _Device:
        device = self._devices[position]
        if device is None:
            device = self._devices[position] = self._make(position)
        return device

    def client(self, position: int) -> Client:
        """Return a device's present client; a reboot replaces it."""
        return self._device(position).client

    def round(
        self,
        readings: Mapping[str, Sequence[Reading]],
        advance: Callable[[int], object] = lambda devices: None,
    ) -> Iterator[Delivery]:
        """Let every device call report() once for each experiment; yield the reports that reach the broker.

        An offline device reports too; it sends its outbox, oldest first, when it is back.

        Args:
            readings: Experiment name -> one reading for each device.
            advance: Called now and then with the number of further devices that are done.

        Raises:
            ValueError: If the readings do not fit.
        """
        for name, values in readings.items():
            if len(values) != len(self):
                raise ValueError(f"{name}: {len(values)} readings for {len(self)} devices")
            if name not in self._experiments:
                raise ValueError(f"no experiment is called {name}; there are {', '.join(self._experiments)}")
        offline, online, reboot = (
            self._draws(p) for p in (self.faults.offline, self.faults.online, self.faults.reboot)
        )
        early = self._draws(0.5 if self.faults.reboot else 0.0)
        for position in range(len(self)):
            if position and position % _PROGRESS_STEP == 0:
                advance(_PROGRESS_STEP)
            device = self._device(position)
            device.online = not offline[position] if device.online else online[position]
            if reboot[position] and early[position]:
                self._reboot(device)
            for name, values in readings.items():
                self._report(device, name, values[position])
            device.loses_note = reboot[position] and not early[position]
            if device.online and not device.late:
                yield from self._deliveries(device, position)
        advance(len(self) - (len(self) - 1) // _PROGRESS_STEP * _PROGRESS_STEP)

    def _draws(self, chance: float) -> list[bool]:
        if not chance:
            return [False] * len(self)
        return (self._rng.random(len(self)) < chance).tolist()

    def _report(self, device: _Device, name: str, reading: Reading) -> None:
        payload = device.client.report(name, reading)
        if payload is not None:
            self.reports[self._report_id(device.id, payload)] = self._experiments[name].bucket(reading)

    def _report_id(self, device: str, payload: bytes) -> ReportId:
        decoded = report.decode(payload)
        return ReportId(device, self._of_digest[decoded.digest].name, decoded.number)

    def _reboot(self, device: _Device) -> None:
        device.loses_note = False
        device.client = self._start(device.id, device.storage)

    def _deliveries(self, device: _Device, position: int) -> Iterator[Delivery]:
        for payload in device.client.outbox():
            yield Delivery(device.id, payload, position)
            if self.faults.duplicate and self._rng.random() < self.faults.duplicate:
                yield Delivery(device.id, payload, position)

    def flush(self) -> Iterator[Delivery]:
        """Bring every device online and yield all reports that remain in outboxes, late ones included."""
        for position, device in enumerate(self._devices):
            if device is not None:
                device.online = True
                device.late = device.loses_note = False
                yield from self._deliveries(device, position)

    def acknowledge(self, delivery: Delivery) -> None:
        """Record that the broker has acknowledged a delivery, and let the device drop the report."""
        device = self._device(delivery.position)
        self.acknowledged[self._report_id(delivery.device, delivery.payload)] = delivery.payload
        if device.loses_note:
            self._reboot(device)
        else:
            device.client.sent(delivery.payload)

    def index_counts(self, name: str, of: Sequence[int] | None = None) -> tuple[np.ndarray, int]:
        """Return how many acknowledged reports had each index, shape (domain,), and how many had no reading.

        `of` lists the indices to count if the domain is too large for an array; the counts have its order.
        """
        place = None if of is None else {int(index): i for i, index in enumerate(of)}
        counts = np.zeros(self._experiments[name].domain if of is None else len(of), np.int64)
        missing = 0
        for report_id in self.acknowledged:
            if report_id.experiment == name:
                index = self.reports[report_id]
                if index is None:
                    missing += 1
                else:
                    counts[index if place is None else place[index]] += 1
        return counts, missing

    def histogram(self, experiment: Experiment) -> np.ndarray:
        """Return the histogram of the codes of a version's acknowledged reports, shape (code_count,)."""
        codes = codes_of(experiment, self.acknowledged.values())
        return np.bincount(codes, minlength=experiment.code_count)


def codes_of(experiment: Experiment, payloads: Iterable[bytes]) -> Counts:
    """Return the codes of a version's payloads, in their order; payloads of other versions are skipped."""
    decoded = (p for p in map(report.decode, payloads) if p.digest == experiment.digest)
    return np.array([int.from_bytes(p.code, "big") for p in decoded], np.int64)


def random_ids(n: int, rng: np.random.Generator) -> list[str]:
    """Return n different device ids."""
    ids: dict[str, None] = {}
    while len(ids) < n:
        letters = _ID_CHARS[rng.integers(0, len(_ID_CHARS), (n - len(ids), _ID_LENGTH))]
        ids.update(dict.fromkeys(map("".join, letters.tolist())))
    return list(ids)
