"""Read a fleet's published result on a board: MicroPython with umqtt.simple.

mpremote cp read_result.py :         then on the board, once it is in its network:
>>> import read_result
>>> read_result.show("broker.example", "home", "room_temp")
"""

import json

from umqtt.simple import MQTTClient


def read(client, fleet, name, wait_s=5):
    """Return a result as a dict, or None if the broker has none; the client must be connected.

    It needs 8 KB of heap.
    """
    topic = f"hushmote/v1/{fleet}/result/{name}".encode()
    found = []
    client.set_callback(lambda _topic, payload: found.append(payload))
    client.subscribe(topic, qos=1)
    client.sock.settimeout(wait_s)
    try:
        while not found:
            client.wait_msg()  # what is retained comes at once
    except OSError:
        return None
    return json.loads(found[0]) if found[0] else None


def show(host, fleet, name, **options):
    """Print the statistics of an experiment.

    Args:
        host: The broker's.
        fleet: The fleet's name.
        name: The experiment's name.
        **options: Of MQTTClient, such as port, ssl, user.
    """
    client = MQTTClient("result-reader", host, **options)
    client.connect()
    result = read(client, fleet, name)
    client.disconnect()
    if result is None:
        print("nothing was published yet")
        return
    for one in result["statistics"]:
        unit = result["unit"] if one["quantity"] == "reading" else "of the fleet"
        print(f"{one['name']}: {one['value']} {unit} ({one['low']} to {one['high']})")
    print(f"{result['reports']} reports; {result['epsilon']['holds']}")
