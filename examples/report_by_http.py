"""A board that reports by HTTP: the client that boards run, on a computer, and the door in place of MQTT.

    python examples/report_by_http.py URL FLEET DEVICE NAME VALUE

URL: of the door, http://127.0.0.1:9418. NAME: of an experiment of an open fleet. VALUE: true or false, or a
number; it stays here. The ledger is in the folder ledger-DEVICE: keep it, since it bounds the privacy loss.
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

# What this board allows, whatever a server asks: a sum of ε of 8 in its lifetime, 4 in one report.
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

board.report(name, reading)  # None if the draw of `every` skips it, or the budget is spent
for report in board.outbox():  # what could not be sent before is among them
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{url}/v1/{fleet}/report/{device}", report, headers)
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as e:
        sys.exit(f"{e.code}: {e.read().decode().strip()}")  # it stays in the outbox: call this again later
    board.sent(report)
print(board.status())
