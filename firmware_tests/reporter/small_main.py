"""The application, compiled, on a board's 64 KiB: a first wake-up that fetches and verifies, and later ones.

Arguments: a folder for the flash, in which settings.json and the ledger are, the number of wake-ups, and
"log" if the policy's log is in log.json. An RP2040 goes on after its sleep; an ESP32 starts anew, so its next
wake-up is another run with the same flash.
Run with -X heapsize=64k -m small_main and all .mpy files, also this one's, in MICROPYPATH; prints one line of
JSON.
"""

import gc
import json
import sys

import network_double


def run():
    """Wake up as often as the last argument says. Its local names take none of the heap."""
    gc.collect()
    before = gc.mem_alloc()
    import main

    gc.collect()
    imported = gc.mem_alloc() - before
    flash, wake_ups = sys.argv[1:3]
    if sys.argv[3:]:
        with open(flash + "/log.json") as f:
            main.POLICY["log"] = json.load(f)
    main.SETTINGS = flash + "/settings.json"
    main.LEDGER = flash + "/ldp"
    main.EXPERIMENTS = flash + "/experiments"
    main.network = network_double
    main.READINGS = {"room_temp": lambda: 21.4}
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
    print(json.dumps({"imported": imported, "grown": grown, "sent": sent, "reports": status["reports"]}))


run()
