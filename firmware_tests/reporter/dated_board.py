"""One wake-up of device/main.py, whose time server counts the queries but does not set the clock.

micropython dated_board.py SETTINGS FOLDER, with the modules' folders in MICROPYPATH; the last line is JSON.
"""

import json
import sys

import main


class Station:
    """Wi-Fi that is always available."""

    STA_IF = 0

    def WLAN(self, interface):
        return self

    def active(self, on):
        pass

    def isconnected(self):
        return True

    def status(self, what=None):
        return -67

    def disconnect(self):
        pass


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
main.network = Station()
main.READINGS = {"room_temp": lambda: 21.4}
main.ldp_client.provision(main.LEDGER, consent=True)
application = main.Application()
application.wake_up()
reporter = application.reporter
print(json.dumps({"queries": TimeServer.queries, "error": reporter.error, "failures": reporter.failures}))
