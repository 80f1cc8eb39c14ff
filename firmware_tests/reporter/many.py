"""Publish more QoS 1 messages through a umqtt.simple object than there are packet ids.

Arguments: host, port, the number of messages, and "reporter" or, as a control, "bare" (umqtt.simple alone) or
"hidden" (a client object with a hidden counter). Prints a line of JSON with the acknowledged publications,
the connections made, milliseconds, the error (or null), and the heap bytes retained. With "hidden", a client
object is replaced after 300 packets instead of 65,000. With "pinged", the reporter pings together with every
second publication, by a clock that advances only between two polls, so that a stall of the machine does not
make an answer overdue.
"""

import gc
import json
import sys
import time

import mqtt_reporter
import reporter_base
from kept_experiments import KeptExperiments
from umqtt.simple import MQTTClient

host, port, count, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


class Outbox:
    """The part of a client that a reporter uses, without flash: report i contains i, until all are sent."""

    device_id = "many"
    consent = True
    _policy = dict(experiments=())  # noqa: C408, RUF012 (one object, never changed)
    log = None
    fleet = "many"
    next = 1

    def status(self):
        return {"experiments": {}, "pending": 0, "locked": None, "error": None}

    def outbox(self):
        return [self.next.to_bytes(4, "big")] if self.next <= count else []

    def sent(self, report):
        self.next += 1


class Hidden:
    """umqtt.simple with its counter hidden."""

    def __init__(self, mqtt):
        self._mqtt = mqtt
        self.set_callback = mqtt.set_callback
        self.set_last_will = mqtt.set_last_will
        self.connect = mqtt.connect
        self.publish = mqtt.publish
        self.subscribe = mqtt.subscribe
        self.check_msg = mqtt.check_msg
        self.ping = mqtt.ping
        self.disconnect = mqtt.disconnect

    @property
    def sock(self):
        return self._mqtt.sock

    @sock.setter
    def sock(self, sock):
        self._mqtt.sock = sock


def make_mqtt():
    mqtt = MQTTClient("many", host, port)
    return Hidden(mqtt) if kind == "hidden" else mqtt


passed_ms = 0
if kind == "pinged":
    mqtt_reporter.ticks_ms = reporter_base.ticks_ms = lambda: passed_ms
if kind == "hidden":
    mqtt_reporter._LAST_PACKET_ID = 300  # otherwise a whole cycle would have to pass first
start = time.ticks_ms()
error = None
kept_bytes = 0
if kind == "bare":
    done = 0
    mqtt = make_mqtt()
    mqtt.connect()
    mqtt.pid = 65_000  # where the reporter would start again
    link = mqtt_reporter._Link(mqtt.sock, lambda: None, lambda: time.ticks_add(time.ticks_ms(), 20_000))
    mqtt.sock = link  # otherwise this would never end
    connects = 1
    try:
        while done < count:
            link.begin()
            mqtt.publish(b"hushmote/v1/many/report/many", (done + 1).to_bytes(4, "big"), False, 1)
            done += 1
    except OSError as e:
        error = str(e)
else:
    outbox = Outbox()
    pace = {"keepalive_s": 2, "timeout_s": 1} if kind == "pinged" else {}
    pace.update({"delay_s": 0, "spread_s": 1, "backoff_s": 1, "backoff_max_s": 1})
    reporter = mqtt_reporter.Reporter(outbox, make_mqtt, KeptExperiments(outbox, None), **pace)
    moved, last_count = start, 0  # time of the last publication
    while outbox.next <= count and time.ticks_diff(time.ticks_ms(), moved) < 60_000:
        reporter.poll()
        if outbox.next > last_count:
            moved, last_count = time.ticks_ms(), outbox.next
        passed_ms += 500
        if outbox.next == 100:
            gc.collect()
            kept_bytes = gc.mem_alloc()
    gc.collect()
    kept_bytes = gc.mem_alloc() - kept_bytes
    done = outbox.next - 1
    connects = reporter.connects
    error = reporter.error
    reporter.close()
ms = time.ticks_diff(time.ticks_ms(), start)
print(json.dumps({"done": done, "connects": connects, "ms": ms, "error": error, "kept": kept_bytes}))
