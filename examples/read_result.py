"""Read a fleet's published result on a board: MicroPython with umqtt.simple.

mpremote cp read_result.py :         then, on a board that has joined its network:
>>> import read_result
>>> read_result.show("broker.example", "home", "room_temp")
"""

import json

from umqtt.simple import MQTTClient


def read(client, fleet, name, wait_s=5):
    """Return a result as a dict, or None if the broker does not have one; the client must be connected.

    This needs 8 KB of heap.
    """
    topic = f"hushmote/v1/{fleet}/result/{name}".encode()
    payloads = []
    client.set_callback(lambda _topic, payload: payloads.append(payload))
    client.subscribe(topic, qos=1)
    client.sock.settimeout(wait_s)
    try:
        while not payloads:
            client.wait_msg()  # a retained message arrives immediately
    except OSError:
        return None
    return json.loads(payloads[0]) if payloads[0] else None


def show(host, fleet, name, **options):
    """Print an experiment's statistics.

    Args:
        host: The broker's host name or address.
        fleet: The fleet's name.
        name: The experiment's name.
        **options: Passed to MQTTClient, such as port, ssl or user.
    """
    client = MQTTClient("result-reader", host, **options)
    client.connect()
    result = read(client, fleet, name)
    client.disconnect()
    if result is None:
        print("nothing was published yet")
        return
    for statistic in result["statistics"]:
        unit = result["unit"] if statistic["quantity"] == "reading" else "of the fleet"
        print(f"{statistic['name']}: {statistic['value']} {unit} ({statistic['low']} to {statistic['high']})")
    print(f"{result['reports']} reports; {result['epsilon']['holds']}")
