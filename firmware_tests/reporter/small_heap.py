"""Client and reporter, compiled, with three experiments: ten rounds of reports in a small heap.

Arguments: host, port. Run with -X heapsize=64k and the .mpy files in MICROPYPATH; prints one line of JSON.
"""

import gc
import json
import sys
import time

import ldp_client
import mqtt_reporter
from kept_experiments import KeptExperiments
from umqtt.simple import MQTTClient

NAMES = ("room_temp", "door_open", "light")
POLICY = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 2_000_000,
    "rules": ("sum",),
    "experiments": NAMES,
}


class Slots:
    """Storage in memory."""

    def __init__(self):
        self.slots = {}

    def read(self, slot):
        return self.slots.get(slot)

    def write(self, slot, data):
        self.slots[slot] = bytes(data)


storage = Slots()
ldp_client.provision(storage, consent=True)
client = ldp_client.Client(POLICY, storage, "k3f9x1", key=bytes(32), fleet="house")
reporter = mqtt_reporter.Reporter(
    client,
    lambda: MQTTClient("k3f9x1", sys.argv[1], int(sys.argv[2])),
    KeptExperiments(client, None),
    delay_s=0,
    spread_s=1,
    backoff_s=1,
)


def poll_until(done):
    end = time.ticks_add(time.ticks_ms(), 20_000)
    while not done():
        if time.ticks_diff(end, time.ticks_ms()) < 0:
            raise SystemExit(reporter.status())
        reporter.poll()
        time.sleep_ms(1)


def all_reporting():
    return all(line["state"] == "reporting" for line in client.status()["experiments"].values())


poll_until(all_reporting)
first = None
for i in range(10):
    for name in NAMES:
        if reporter.report(name, 21.4) is None:
            raise SystemExit("no report: " + reporter.status())
    if i == 5:  # a reconnect in the middle
        reporter.close()
    poll_until(lambda: not client.outbox())
    gc.collect()
    first = first or gc.mem_alloc()
grown = gc.mem_alloc() - first
print(json.dumps({"sent": reporter.sent, "heap": gc.mem_alloc(), "free": gc.mem_free(), "grown": grown}))
