"""Measure the memory of a board's TLS connection on Debian's 32-bit MicroPython with a real mosquitto.

Prints the bytes above the baseline; takes about 3 seconds. Skips if mosquitto or that runtime is missing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from published import payload
from results_file import ROOT, options, show

from hushmote.fleet.provisioning import fleet_folder, master_key
from hushmote.fleet.provisioning import settings as provision
from hushmote.server.wire import keys, topics
from hushmote.simulator.broker import find_mosquitto

# isort: split
from fleet_broker import FLEET, Visitor, context, make_fleet, running  # pyright: ignore[reportMissingImports]

RUNTIME = ROOT / ".rig" / "mp32" / "micropython"
UMQTT = ROOT / ".rig" / "lib"
SCRIPT = ROOT / "firmware_tests" / "reporter" / "tls_memory.py"
_IN_USE = re.compile(r"Arena 0:\nsystem bytes += +(\d+)\nin use bytes += +(\d+)")


def publish(folder: fleet_folder.FleetFolder, signing_key: bytes) -> None:
    """Publish the experiment as the aggregator would."""
    aggregator = Visitor(folder.fleet.port, context(folder, folder.path / "aggregator/aggregator_1.pem"))
    more = {"high": 40_000, "budget": {"rule": "sum", "cap": 3_000_000}}
    experiment = payload("grr", 8, 1_000_000, name="room_temp", **more)
    topic = topics.experiment_topic(FLEET, "room_temp")
    aggregator.publish(topic, keys.sign_experiment(signing_key, topic, experiment, serial=1), retain=True)
    aggregator.close()


def measure(path: Path) -> dict[str, dict[str, int]]:
    """Return each step's mbedTLS bytes, their peak, and the heap's bytes, all above the baseline."""
    folder = make_fleet(path / "fleet")
    fleet_keys = master_key.load_keys(folder.master_file())
    assert fleet_keys is not None
    settings, authority = path / "settings.json", folder.path / "broker/ca.pem"
    certificate = folder.issue_device("k3f9", fleet_folder.now_utc())
    where = {"mqtt_host": "localhost", "mqtt_port": folder.fleet.port, "mqtt_ca": authority}
    network = provision.Network(**where, certificate=certificate)
    provision.provision_device(fleet_keys, FLEET, "k3f9", network, path=settings)
    with running(folder):
        publish(folder, master_key.load_signing_key(folder.signing_file()))
        environment = os.environ | {"MICROPYPATH": f"{UMQTT}:{ROOT / 'device'}"}
        command = [str(RUNTIME), str(SCRIPT), str(settings)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
    steps = json.loads(done.stdout)
    if steps["sent"] != 1:
        sys.exit(f"the board sent {steps['sent']} reports: {steps['error']}")
    sizes = [(int(system), int(used)) for system, used in _IN_USE.findall(done.stderr)]
    (_, used_before), (_, heap_before) = sizes[0], steps["heap"][0]
    return {
        name: {"mbedtls": used - used_before, "most": system - used_before, "heap": heap - heap_before}
        for (name, heap), (system, used) in zip(steps["heap"], sizes, strict=True)
        if name != "before"
    }


if __name__ == "__main__":
    options(__doc__)
    if find_mosquitto() is None or not RUNTIME.exists() or not (UMQTT / "umqtt/simple.py").exists():
        print("skipped: this needs mosquitto and `python firmware_tests/runtimes.py --install`")
    else:
        with tempfile.TemporaryDirectory() as folder:
            show("bytes above those before", measure(Path(folder)))
