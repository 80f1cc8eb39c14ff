"""One wake-up of device/main.py, whose time server counts the queries but does not set the clock.

micropython dated_board.py SETTINGS FOLDER, with the modules' folders in MICROPYPATH; the last line is JSON.
"""

import json
import sys

import main
import network_double


class TimeServer:
    """ntptime."""

    host = "pool.ntp.org"
    queries = 0

    @staticmethod
    def settime():
        TimeServer.queries += 1


sys.modules["ntptime"] = TimeServer
main.SETTINGS, folder = sys.argv[1:3]
main.LEDGER, main.EXPERIMENTS = folder + "/ldp", folder + "/experiments"
main.network = network_double
main.READINGS = {"room_temp": lambda: 21.4}
main.ldp_client.provision(main.LEDGER, consent=True)
application = main.Application()
application.wake_up()
reporter = application.reporter
print(json.dumps({"queries": TimeServer.queries, "error": reporter.error, "failures": reporter.failures}))
