"""Run by test_core_alone.py in a folder whose hushmote/ contains only device/ and server/.

Arguments: the broker's host and port. It imports every module of the core, counts 50 reports from 50 boards
through the broker, and prints the store's answer.
"""

import datetime
import importlib
import pkgutil
import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

REPORTS = 50
HIDDEN = ("planning", "fleet", "simulator", "studies", "web", "cli")
EXPERIMENT = (
    b'{"v":1,"name":"door","type":"bool","mechanism":"rr","epsilon":2000000,'
    b'"budget":{"rule":"sum","cap":8000000},"window":"day"}'
)
POLICY = {"sum": 8_000_000, "squares": 0, "epsilon": 2_000_000, "rules": ("sum",), "experiments": ("door",)}


class Hide:
    """Hides the packages above the core, which an editable install would find in the repository."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith(tuple(f"hushmote.{package}" for package in HIDDEN)):
            raise ModuleNotFoundError(f"{name} is above the core", name=name)


def main(host: str, port: int) -> None:
    sys.meta_path.insert(0, Hide())
    import hushmote.server

    for module in pkgutil.walk_packages(hushmote.server.__path__, "hushmote.server."):
        importlib.import_module(module.name)

    from hushmote.device import ldp_client
    from hushmote.server.aggregator import Aggregator, Counting
    from hushmote.server.answers.store_reader import StoreReader
    from hushmote.server.ingest.broker_url import BrokerAddress
    from hushmote.server.store import Store
    from hushmote.server.wire import topics

    class Memory(dict):
        read = dict.get
        write = dict.__setitem__

    url = "sqlite:///store.sqlite"
    with Store(url) as store:
        store.add_fleet("home", keyed=False)
        store.add_experiment("home", EXPERIMENT)
        committed = threading.Event()
        counted = 0

        def on_commit(messages: int, seconds: float) -> None:
            nonlocal counted
            counted += messages
            if counted == REPORTS:
                committed.set()

        counting = Counting(client_id="core", batch_s=0.1)
        aggregator = Aggregator(store, BrokerAddress(host, port), counting, on_commit=on_commit)
        thread = threading.Thread(target=aggregator.run)
        thread.start()
        assert aggregator.ready.wait(60)
        publisher = mqtt.Client(CallbackAPIVersion.VERSION2)
        publisher.connect(host, port)
        publisher.loop_start()
        for number in range(REPORTS):
            storage = Memory()
            ldp_client.provision(storage, consent=True)
            board = ldp_client.Client(POLICY, storage, device_id=f"d{number}")
            board.enroll(EXPERIMENT)
            publisher.publish(topics.report_topic("home", f"d{number}"), board.report("door", True), 1)
        assert committed.wait(60), aggregator.counters
        publisher.loop_stop()
        aggregator.stop()
        thread.join()
        counters = aggregator.counters
    today = datetime.datetime.now(datetime.UTC).date()
    answer = StoreReader(url).fleet("home").experiment("door").estimate()
    print(f"{counters.accepted} of {REPORTS} counted on {today}; {answer.reports} answer")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
