"""Real boards for server tests: the shipped client with an in-memory ledger."""

from enumeration import POLICY
from experiments import experiment_json

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client, Experiment
from hushmote.server.wire.keys import FleetKeys

KEY = bytes(range(32))
MASTER = bytes(range(100, 132))
SIGNING = bytes(range(200, 232))
FLEET_KEYS = FleetKeys((MASTER,), SIGNING)

_payloads = {}


def experiment_payload(**changes):
    """Return the JSON of temp, with 64 bins, ε = 1 and a budget of 4 reports, and with fields changed."""
    fields = {"name": "temp", "type": "number", "low": 0, "high": 64_000, "bins": 64, "mechanism": "grr"}
    return experiment_json(**fields | changes)


def experiment(**changes):
    payload = experiment_payload(**changes)
    exp = Experiment.parse(payload)
    _payloads[exp.sha256] = payload
    return exp


def payload_of(exp):
    return _payloads[exp.sha256]


def ask_fleet(store, fleet, asked, *more, keyed=False, **options):
    """Add a fleet with an experiment or payload, and return the experiment."""
    store.add_fleet(fleet, keyed=keyed)
    payload = asked if isinstance(asked, bytes) else payload_of(asked)
    return store.add_experiment(fleet, payload, *more, **options)


class MemoryStorage(dict):
    def read(self, slot):
        return self.get(slot)

    def write(self, slot, data):
        self[slot] = data


def client(device, exp, *, key=None, storage=None, groups=None):
    """Return a provisioned board that takes part in the experiment regardless of its rule.

    groups: its open groups and their values, which its policy allows.
    """
    storage = MemoryStorage() if storage is None else storage
    if not storage:
        ldp_client.provision(storage, consent=True)
    policy = POLICY | {"experiments": (exp.name,)} | ({"groups": tuple(groups)} if groups else {})
    board = Client(policy, storage, device_id=device, key=key)
    board.groups = groups or {}
    board.enroll(payload_of(exp))
    return board


def reports(device, exp, count, *, key=None, value=20.0, groups=None):
    """Return a new board's first `count` reports, each sent immediately."""
    board = client(device, exp, key=key, groups=groups)
    payloads = []
    for _ in range(count):
        payload = board.report(exp.name, value)
        assert payload is not None
        board.sent(payload)
        payloads.append(payload)
    return payloads
