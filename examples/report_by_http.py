"""Report over HTTP: the boards' client on a computer, using the door in place of MQTT.

    python examples/report_by_http.py URL FLEET DEVICE NAME VALUE

URL: the door's address, such as http://127.0.0.1:9418. NAME: an experiment in an open fleet. VALUE: true or
false, or a number; the value never leaves this computer. The ledger is in the folder ledger-DEVICE: keep it,
because it bounds the privacy loss.
"""

import os
import sys
import urllib.error
import urllib.request

from hushmote.device import ldp_client

url, fleet, device, name, value = sys.argv[1:]
reading = {"true": True, "false": False}[value] if value in ("true", "false") else float(value)

folder = f"ledger-{device}"
if not os.path.isdir(folder):
    os.mkdir(folder)
    ldp_client.provision(folder, consent=True)

# The board's limits, regardless of the server: ε of at most 4 in one report, and 8 over its lifetime.
policy = {
    "sum": 8_000_000,
    "squares": 0,
    "epsilon": 4_000_000,
    "rules": ("sum", "count"),
    "experiments": (name,),
}
board = ldp_client.Client(policy, folder, device)
with urllib.request.urlopen(f"{url}/v1/{fleet}/experiment/{name}", timeout=10) as answer:
    board.enroll(answer.read())

board.report(name, reading)  # None if the draw for `every` skips it, or the budget is spent
for report in board.outbox():  # including earlier reports that could not be sent
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{url}/v1/{fleet}/report/{device}", report, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            acknowledged = answer.status == 204 and "Hushmote-Door" in answer.headers
    except urllib.error.HTTPError as e:
        # The report stays in the outbox; run this again later.
        sys.exit(f"{e.code}: {e.read().decode().strip()}")
    if not acknowledged:  # a captive portal answers as well, and would otherwise swallow the report
        sys.exit(f"{answer.status}: not from a door, or from one that needs an update: check URL")
    board.sent(report)
print(board.status())
