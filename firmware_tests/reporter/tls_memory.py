"""Measure the memory of a TLS connection to the broker, on Debian's 32-bit MicroPython.

Run `micropython tls_memory.py SETTINGS`, with the modules' folders in MICROPYPATH. mbedTLS takes its memory
from the C library there, whose own count is printed on standard error after each step; on a board it comes
from the heap. One line on standard output: the steps, with the bytes in use of the garbage-collected heap.
"""

import binascii
import gc
import json
import sys
import time

import ffi
import ldp_client
import main
from kept_experiments import KeptExperiments
from mqtt_reporter import Reporter

libc = ffi.open("libc.so.6")
mallopt = libc.func("i", "mallopt", "ii")
malloc_stats = libc.func("v", "malloc_stats", "")
mallopt(-2, 0)  # M_TOP_PAD: grow page by page,
mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD: never shrink: the size is the peak,
mallopt(-4, 0)  # M_MMAP_MAX: and hold everything
libc.func("p", "malloc", "i")(133_000)  # its initial size


class Slots(dict):
    def read(self, slot):
        return self.get(slot)

    def write(self, slot, data):
        self[slot] = bytes(data)


heap = []


def step(name):
    gc.collect()
    heap.append((name, gc.mem_alloc()))
    malloc_stats()


with open(sys.argv[1]) as f:
    settings = json.load(f)
slots = Slots()
ldp_client.provision(slots, consent=True)
keys = [binascii.unhexlify(settings[name]) for name in ("key", "announce_key")]
client = ldp_client.Client(main.POLICY, slots, settings["device_id"], *keys, fleet=settings["fleet"])
step("before")
reporter = Reporter(client, main.make_mqtt_maker(settings), KeptExperiments(client, None), delay_s=0)
reporter.close()  # make the first attempt at once
step("certificates")
until = time.ticks_add(time.ticks_ms(), 20_000)
while not reporter.poll() and time.ticks_diff(until, time.ticks_ms()) > 0:
    time.sleep_ms(5)
step("connected")
reporter.report("room_temp", 21.0)
while not reporter.sent and time.ticks_diff(until, time.ticks_ms()) > 0:
    reporter.poll()
step("reported")
reporter.close()
step("closed")
print(json.dumps({"sent": reporter.sent, "error": reporter.error, "heap": heap}))
