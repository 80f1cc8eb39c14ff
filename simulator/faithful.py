"""A fleet of real clients: every device runs `ldp_client.Client` with its ledger in memory and random faults.

    fleet = SimulatedFleet("demo", [payload], size=1000, rng=rng)
    for delivery in fleet.make_reports({"room_temp": readings}):      one call to report() on every device
        ...                                                    publish delivery.payload for delivery.device
        fleet.acknowledge(delivery)                            the broker has it
    for delivery in fleet.flush(): ...                         the remaining reports in outboxes

`gateway.Gateways` delivers through a real broker. `fleet.reports` and `fleet.acknowledged` record what
happened, so an aggregator's counts can be checked exactly.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import numpy as np

from ..device import ldp_client
from ..device.ldp_client import Client, Experiment
from ..server.arrays import Counts
from ..server.typed_numbers import typed_share
from ..server.wire import report
from .population import PopulationError, Reading
from .rollout import default_shares, draw_values

# The bounds for boards in production; see Client.
BOUNDS = {"sum": 8_000_000, "squares": 1_819_000_000_000, "epsilon": 4_000_000}
RULES = ("sum", "squares", "count")

_ID_CHARS = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789"))
_ID_LENGTH = 10
_POOL = 4096
_PROGRESS_STEP = 256  # number of devices between two calls of advance


class Delivery(NamedTuple):
    """A report on its way: the device's id, the payload to publish, the device's position in the fleet."""

    device: str
    payload: bytes
    position: int


class ReportId(NamedTuple):
    """A report's identity, which stays the same however many times it arrives."""

    device: str
    experiment: str
    number: int


@dataclass(frozen=True)
class Faults:
    """Probabilities, 0 by default except `online`, which is 0.5.

    A round is one call to report() for each experiment.

    Attributes:
        offline: Per round, that a device loses its connection, so its reports wait in its outbox.
        online: Per round, that a device without a connection reconnects.
        duplicate: Per report, that its acknowledgement is lost and it is sent again with a new packet id.
        late: Per device, that it sends nothing until the last round is over.
        reboot: Per round, that a device restarts, either before its readings, or after the broker has
            received its report but before the device has recorded that, so that it sends the report again;
            both are equally likely.
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
            raise PopulationError(
                f"a fault must be one of {', '.join(names)}, such as offline=0.1, not {text}"
            )
        try:
            chances[name] = typed_share(chance)
        except ValueError:
            raise PopulationError(
                f"a fault's probability must be from 0 to 1, such as offline=0.1, not {text}"
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
    """The two random primitives for `Experiment.randomize`, from a numpy Generator; for simulations only.

    Its draws have the same distribution as the client's DRBG, and are repeatable. They are
    predictable, so this class must never randomize a real reading.
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
        """Return a uniform integer in range(n), 1 <= n <= 2**24, by rejection."""
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

    For a device that reports once, parsing takes half of the processor time, and verifying a signature ten
    times as long as everything else. Payloads with a valid signature are added to `verified`.
    """
    parsed = _parsed_once(payload.partition(b"\x00")[0])
    client.enroll(payload, verified=payload in verified, exp=parsed)
    verified.add(payload)


@dataclass(slots=True)
class _Device:
    id: str
    storage: Any  # the client declares a folder name, but it accepts any object with read and write
    client: Client
    online: bool
    late: bool
    loses_acknowledgement: bool = False  # restarts after the broker's acknowledgement, before recording it


class SimulatedFleet:
    """Devices 0 to size - 1, each provisioned and enrolled under a separate id.

    A device is provisioned when it is first used, which takes about 0.2 ms and 3 KiB.

    Args:
        name: The fleet's name.
        payloads: Experiments as they are published, signed or not.
        size: Number of devices.
        rng: Draws ids and faults, and with repeatable=True the reports as well; otherwise every device has
            a separate DRBG, seeded from os.urandom.
        device_key: Returns a device's 32-byte key by its id; None in an open fleet.
        announce_key: Public key of a fleet with signed experiments.
        policy: Every client's policy; default: BOUNDS, RULES, and these experiments and their open groups.

    Attributes:
        groups: An open group's name -> each device's value. They are drawn, see rollout.default_shares(), and
            may be changed before any call of make_reports().
        reports: Every report that was made: ReportId to its reading's index, None for no reading.
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
            raise ValueError(f"a fleet must have at least 1 device, not {size}")
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
        with_group = {e.group: e for e in experiments if e.group}
        self._policy = policy or {
            **BOUNDS,
            "rules": RULES,
            "experiments": tuple(self._experiments),
            "groups": tuple(with_group),
        }
        self.ids = random_ids(size, rng)
        self.groups: dict[str, Sequence[str]] = {
            name: draw_values(experiment, default_shares(experiment, 1)[0], size, rng)
            for name, experiment in with_group.items()
        }
        self._devices: list[_Device | None] = [None] * size
        self._device(0)  # detect a mismatch before a run

    def __len__(self) -> int:
        return len(self.ids)

    def _make(self, position: int) -> _Device:
        storage = MemoryStorage()
        ldp_client.provision(storage, consent=True)
        id = self.ids[position]
        late = self.faults.late > 0 and self._rng.random() < self.faults.late
        return _Device(id, storage, self._start(id, storage), True, late)

    def _start(self, id: str, storage: Any) -> Client:
        """Start a device's program from power-up: it has only its storage and the retained experiments."""
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
        """Return a device's current client; a reboot replaces it."""
        return self._device(position).client

    def make_reports(
        self,
        readings: Mapping[str, Sequence[Reading]],
        advance: Callable[[int], object] = lambda devices: None,
    ) -> Iterator[Delivery]:
        """Have every device call report() once for each experiment; yield the reports to deliver.

        An offline device makes reports too; it sends its outbox, oldest first, when it is back online.

        Args:
            readings: Experiment name -> one reading for each device.
            advance: Called occasionally with the number of devices done since the last call.

        Raises:
            ValueError: If there is not one reading per device, or an experiment is unknown.
        """
        for name, values in readings.items():
            if len(values) != len(self):
                raise ValueError(f"{name}: {len(values)} readings for {len(self)} devices")
            if name not in self._experiments:
                raise ValueError(f"unknown experiment {name}; choose from {', '.join(self._experiments)}")
        offline, online, reboot = (
            self._draw_events(p) for p in (self.faults.offline, self.faults.online, self.faults.reboot)
        )
        early = self._draw_events(0.5 if self.faults.reboot else 0.0)
        for position in range(len(self)):
            if position and position % _PROGRESS_STEP == 0:
                advance(_PROGRESS_STEP)
            device = self._device(position)
            device.online = not offline[position] if device.online else online[position]
            if reboot[position] and early[position]:
                self._reboot(device)
            for name, values in readings.items():
                self._report(device, position, name, values[position])
            device.loses_acknowledgement = reboot[position] and not early[position]
            if device.online and not device.late:
                yield from self._deliveries(device, position)
        advance(len(self) - (len(self) - 1) // _PROGRESS_STEP * _PROGRESS_STEP)

    def _draw_events(self, chance: float) -> list[bool]:
        if not chance:
            return [False] * len(self)
        return (self._rng.random(len(self)) < chance).tolist()

    def _report(self, device: _Device, position: int, name: str, reading: Reading) -> None:
        experiment = self._experiments[name]
        group = self.groups[experiment.group][position] if experiment.group else None
        payload = device.client.report(name, reading, group=group)
        if payload is not None:
            self.reports[self._report_id(device.id, payload)] = experiment.bucket(reading)

    def _report_id(self, device: str, payload: bytes) -> ReportId:
        decoded = report.decode(payload)
        return ReportId(device, self._of_digest[decoded.digest].name, decoded.number)

    def _reboot(self, device: _Device) -> None:
        device.loses_acknowledgement = False
        device.client = self._start(device.id, device.storage)

    def _deliveries(self, device: _Device, position: int) -> Iterator[Delivery]:
        for payload in device.client.outbox():
            yield Delivery(device.id, payload, position)
            if self.faults.duplicate and self._rng.random() < self.faults.duplicate:
                yield Delivery(device.id, payload, position)

    def flush(self) -> Iterator[Delivery]:
        """Bring every device online and yield all reports that remain in outboxes, including late ones."""
        for position, device in enumerate(self._devices):
            if device is not None:
                device.online = True
                device.late = device.loses_acknowledgement = False
                yield from self._deliveries(device, position)

    def acknowledge(self, delivery: Delivery) -> None:
        """Record that the broker has acknowledged a delivery, and let the device drop the report."""
        device = self._device(delivery.position)
        self.acknowledged[self._report_id(delivery.device, delivery.payload)] = delivery.payload
        if device.loses_acknowledgement:
            self._reboot(device)
        else:
            device.client.sent(delivery.payload)

    def index_counts(
        self, name: str, of: Sequence[int] | None = None, group: int | None = None
    ) -> tuple[np.ndarray, int]:
        """Return the acknowledged reports with each index, shape (domain,), and the number without a reading.

        Args:
            name: The experiment's name.
            of: The indices to count if the domain is too large for an array; counts are in its order.
            group: Index of the open group's value to count; default: all.
        """
        place = None if of is None else {int(index): i for i, index in enumerate(of)}
        counts = np.zeros(self._experiments[name].domain if of is None else len(of), np.int64)
        missing = 0
        for report_id, payload in self.acknowledged.items():
            if report_id.experiment == name and group in (None, report.decode(payload).group):
                index = self.reports[report_id]
                if index is None:
                    missing += 1
                else:
                    counts[index if place is None else place[index]] += 1
        return counts, missing

    def histogram(self, experiment: Experiment, group: int | None = None) -> np.ndarray:
        """Return the code histogram of a version's acknowledged reports, shape (code_count,).

        `group` is the index of the open group's value to count; default: all.
        """
        codes = codes_of(experiment, self.acknowledged.values())
        if group is not None:
            codes = codes[groups_of(experiment, self.acknowledged.values()) == group]
        return np.bincount(codes, minlength=experiment.code_count)


def codes_of(experiment: Experiment, payloads: Iterable[bytes]) -> Counts:
    """Return the codes in a version's payloads, in order; payloads of other versions are skipped."""
    decoded = (p for p in map(report.decode, payloads) if p.digest == experiment.digest)
    return np.array([int.from_bytes(p.code, "big") for p in decoded], np.int64)


def groups_of(experiment: Experiment, payloads: Iterable[bytes]) -> Counts:
    """Return the indices of the open group's value in a version's payloads, likewise; 0 without a group."""
    decoded = (p for p in map(report.decode, payloads) if p.digest == experiment.digest)
    return np.array([p.group or 0 for p in decoded], np.int64)


def random_ids(n: int, rng: np.random.Generator) -> list[str]:
    """Return n different device ids."""
    ids: dict[str, None] = {}
    while len(ids) < n:
        letters = _ID_CHARS[rng.integers(0, len(_ID_CHARS), (n - len(ids), _ID_LENGTH))]
        ids.update(dict.fromkeys(map("".join, letters.tolist())))
    return list(ids)
