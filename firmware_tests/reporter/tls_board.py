"""One wake-up of a board whose ledger is in memory: settings as provisioned, TLS as device/main.py makes it.

micropython tls_board.py SETTINGS [make a report], with the modules' folders in MICROPYPATH; prints one line
of JSON.
"""

import binascii
import json
import sys

import ldp_client
import main
from kept_experiments import KeptExperiments
from mqtt_reporter import Reporter


class Slots(dict):
    def read(self, slot):
        return self.get(slot)

    def write(self, slot, data):
        self[slot] = bytes(data)


with open(sys.argv[1]) as f:
    settings = json.load(f)
slots = Slots()
ldp_client.provision(slots, consent=True)
client = ldp_client.Client(
    main.POLICY,
    slots,
    settings["device_id"],
    binascii.unhexlify(settings["key"]),
    binascii.unhexlify(settings["announce_key"]),
    fleet=settings["fleet"],
)
try:
    reporter = Reporter(client, main.make_mqtt_maker(settings), KeptExperiments(client, None))
    reporter.flush(10_000, {"room_temp": 21.0} if sys.argv[2] else {})
    status = client.status()
    result = {"error": reporter.error, "sent": reporter.sent, "waiting": status["pending"]}
    result["state"] = status["experiments"]["room_temp"]["state"]
except main.NeedsPerson as e:
    result = {"person": str(e)}
print(json.dumps(result))
