"""Memory of a board's TLS connection, measured on Debian's 32-bit MicroPython against a real mosquitto.

Prints bytes above those before; about 3 seconds. Skips where mosquitto or that runtime is missing.
"""

import getpass
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from published import payload
from results_file import options, show

from hushmote.server.ingest.tls import client_context
from hushmote.server.provisioning import fleet_folder, master_key
from hushmote.server.provisioning import settings as provision
from hushmote.server.wire import keys, topics
from hushmote.simulator.broker import find_mosquitto, free_port

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = ROOT / ".rig" / "mp32" / "micropython"
UMQTT = ROOT / ".rig" / "lib"
SCRIPT = ROOT / "firmware_tests" / "reporter" / "tls_memory.py"
_IN_USE = re.compile(r"Arena 0:\nsystem bytes += +(\d+)\nin use bytes += +(\d+)")


def publish(folder: fleet_folder.FleetFolder, signing_key: bytes) -> None:
    """Put the experiment there as the aggregator would, once mosquitto listens."""
    own = folder.path / "aggregator/aggregator_1.pem"
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.tls_set_context(client_context(folder.path / "aggregator/ca.pem", own, own))
    for _ in range(100):
        try:
            client.connect("localhost", folder.fleet.port)
            break
        except OSError:
            time.sleep(0.1)
    client.loop_start()
    more = {"high": 40_000, "budget": {"rule": "sum", "cap": 3_000_000}}
    asked = payload("grr", 8, 1_000_000, name="room_temp", **more)
    topic = topics.experiment_topic("home", "room_temp")
    signed = keys.sign_experiment(signing_key, topic, asked, serial=1)
    client.publish(topic, signed, qos=1, retain=True).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


def measure(path: Path) -> dict[str, dict[str, int]]:
    """Step -> mbedTLS's bytes, the most they ever were, and the heap's, all above those before."""
    fleet = fleet_folder.FleetSpec("home", ("localhost",), free_port(), broker_user=getpass.getuser())
    folder = fleet_folder.make(path / "fleet", fleet, write_master=True)
    fleet_keys = master_key.load_keys(folder.master_file())
    assert fleet_keys is not None
    settings = path / "settings.json"
    provision.provision_device(
        fleet_keys,
        "home",
        "k3f9",
        provision.Network(
            mqtt_host="localhost",
            mqtt_port=fleet.port,
            mqtt_ca=folder.path / "broker/ca.pem",
            certificate=folder.issue_device("k3f9", fleet_folder.now_utc()),
        ),
        path=settings,
    )
    broker = subprocess.Popen(
        [str(find_mosquitto()), "-c", str(folder.path / "broker/mosquitto.conf")], stderr=subprocess.DEVNULL
    )
    try:
        publish(folder, fleet_keys.signing)
        done = subprocess.run(
            [str(RUNTIME), str(SCRIPT), str(settings)],
            env={**os.environ, "MICROPYPATH": f"{UMQTT}:{ROOT / 'device'}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        broker.terminate()
        broker.wait(10)
    said = json.loads(done.stdout)
    if said["sent"] != 1:
        sys.exit(f"the board sent {said['sent']} reports: {said['error']}")
    sizes = [(int(system), int(used)) for system, used in _IN_USE.findall(done.stderr)]
    heap = dict(said["heap"])
    return {
        name: {
            "mbedtls": used - sizes[0][1],
            "most": system - sizes[0][1],
            "heap": heap[name] - heap["before"],
        }
        for name, (system, used) in zip(heap, sizes, strict=True)
        if name != "before"
    }


if __name__ == "__main__":
    options(__doc__)
    if find_mosquitto() is None or not RUNTIME.exists() or not (UMQTT / "umqtt/simple.py").exists():
        print("skipped: it needs mosquitto and `python firmware_tests/runtimes.py --install`")
    else:
        with tempfile.TemporaryDirectory() as folder:
            show("bytes above those before", measure(Path(folder)))
