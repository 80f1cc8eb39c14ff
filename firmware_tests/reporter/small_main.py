"""The application, compiled, on a board's 64 KiB: a first wake-up that fetches and verifies, and later ones.

Arguments: a folder for the flash, host, port, announce key in hex, wake-ups. An RP2040 goes on after its
sleep; an ESP32 starts anew, so its next wake-up is another run with the same flash. Run with -X heapsize=64k
and the .mpy files in MICROPYPATH; prints one line of JSON.
"""

import gc
import json
import sys

import network_double

gc.collect()
before = gc.mem_alloc()
import main  # noqa: E402

gc.collect()
imported = gc.mem_alloc() - before
folder, host, port, announce_key, wake_ups = sys.argv[1:6]
settings = {"fleet": "house", "device_id": "k3f9x1", "wifi_ssid": "home", "mqtt_host": host}
settings.update({"mqtt_port": int(port), "key": "00" * 32, "announce_key": announce_key})
main.SETTINGS = folder + "/settings.json"
main.LEDGER = folder + "/ldp"
main.EXPERIMENTS = folder + "/experiments"
main.network = network_double
main.READINGS = {"room_temp": lambda: 21.4}
with open(main.SETTINGS, "w") as f:
    json.dump(settings, f)
try:
    main.ldp_client.provision(main.LEDGER, consent=True)
except main.ldp_client.LedgerExists as e:
    print(e)
application = main.Application()
first = 0
for n in range(int(wake_ups)):
    application.wake_up()
    application.sleep_s()
    gc.collect()
    if n <= 8:  # the last 8 reports are kept for last()
        first = gc.mem_alloc()
grown = gc.mem_alloc() - first
status = application.client.status()["experiments"]["room_temp"]
sent = application.reporter.sent
print(
    "HEAP " + json.dumps({"imported": imported, "grown": grown, "sent": sent, "reports": status["reports"]})
)
