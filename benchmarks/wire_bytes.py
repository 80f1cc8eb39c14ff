"""A report's size, open and authenticated, compared with equivalent JSON, and inside MQTT.

    python benchmarks/wire_bytes.py [--quick]

Every payload is made by a real client. The JSON has the same fields with the shortest usual names, without
spaces, and with digest and tag in hexadecimal; its length varies with code and number, so the mean over
reports is given. The MQTT size is that of a QoS 1 PUBLISH with a 10-character device id and a fleet called
"home", and of the PUBACK that answers it (OASIS MQTT 3.1.1, sections 3.3 and 3.4), without TCP, TLS and
keep-alives. --quick uses fewer reports for the means and writes nothing; otherwise the results go to
benchmarks/results/wire_bytes.json.
"""

import json

import numpy as np
from published import payload
from results_file import Options, run

from hushmote.device.ldp_client import Experiment
from hushmote.server.wire import report, topics
from hushmote.simulator.faithful import SimulatedFleet

EXPERIMENTS: dict[str, tuple[str, int, int]] = {
    "rr, 2 values, ε = 1": ("rr", 2, 1_000_000),
    "grr, 8 values, ε = 1": ("grr", 8, 1_000_000),
    "grr, 256 values, ε = 4": ("grr", 256, 4_000_000),
    "olh, 64 values, ε = 1": ("olh", 64, 1_000_000),
    "olh, 1,024 values, ε = 1": ("olh", 1024, 1_000_000),
    "olh, 1,024 values, ε = 3": ("olh", 1024, 3_000_000),
    "olh, 65,536 values, ε = 1": ("olh", 65_536, 1_000_000),
    "hh, 256 values, ε = 1": ("hh", 256, 1_000_000),
    "hh, 1,024 values, ε = 1": ("hh", 1024, 1_000_000),
}
PUBACK_BYTES = 4


def reports(published: bytes, count: int, key: bytes | None) -> list[bytes]:
    """Return reports from a real client with readings spread over the whole range."""
    policy = {"sum": 2**47, "squares": 0, "epsilon": 4_000_000, "rules": ("count",), "experiments": ("e",)}
    rng = np.random.default_rng(1)
    device_key = None if key is None else lambda _device: key
    fleet = SimulatedFleet("home", [published], size=1, rng=rng, policy=policy, device_key=device_key)
    for reading in rng.uniform(0, 1000, count).tolist():
        for delivery in fleet.make_reports({"e": [reading]}):
            fleet.acknowledge(delivery)
    return list(fleet.acknowledged.values())


def as_json(sent: bytes) -> bytes:
    """Return the same content as JSON."""
    decoded = report.decode(sent)
    fields: dict[str, object] = {"v": 1, "digest": decoded.digest.hex(), "number": decoded.number}
    fields["code"] = int.from_bytes(decoded.code, "big")
    if decoded.tag is not None:
        fields["tag"] = decoded.tag.hex()
    return json.dumps(fields, separators=(",", ":")).encode()


def publish_bytes(payload_bytes: float) -> float:
    """Return the size of the QoS 1 PUBLISH packet: header, topic with its length, packet id, payload."""
    topic = topics.report_topic("home", "k3f9x1b7q2")
    remaining = 2 + len(topic) + 2 + payload_bytes
    return 1 + (1 if remaining < 128 else 2) + remaining


def measure(name: str, count: int) -> dict:
    published = payload(*EXPERIMENTS[name], name="e", budget={"rule": "count", "cap": 1_000_000})
    row: dict = {"experiment": name, "code_bytes": Experiment.parse(published).code_bytes}
    for kind, key in (("open", None), ("authenticated", bytes(32))):
        sent = reports(published, count, key)
        assert len(sent) == count
        sizes = {len(r) for r in sent}
        assert len(sizes) == 1, "a report's length must not depend on its content"
        size = sizes.pop()
        in_json = float(np.mean([len(as_json(r)) for r in sent]))
        row[kind] = {"payload": size, "json": in_json}
        row[kind] |= {"publish": publish_bytes(size), "publish_json": publish_bytes(in_json)}
    return row


def rows(options: Options) -> dict:
    measurements = [measure(name, 50 if options.quick else 1_000) for name in EXPERIMENTS]
    return {"puback_bytes": PUBACK_BYTES, "rows": measurements}


if __name__ == "__main__":
    run(__doc__, "wire_bytes.json", {"": rows})
