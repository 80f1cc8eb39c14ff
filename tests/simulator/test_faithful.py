"""Fleets of real clients: reports, enrolment, faults, a real broker and an aggregator."""

import json
import re
import shutil
import socket
import subprocess
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json
from running_aggregator import HANGS_S, running, until
from scipy.stats import chi2

from hushmote.device.ldp_client import ONE, Client, Experiment, ExperimentRefused, provision
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.simulator import faithful, faithful_parts, population, vectorised
from hushmote.simulator.broker import MosquittoBroker, free_port
from hushmote.simulator.faithful import Faults, MemoryStorage, NumpyRng, SimulatedFleet
from hushmote.simulator.faithful_parts import RealClients
from hushmote.simulator.gateway import GatewayError, Gateways
from hushmote.simulator.worker_pool import THIS_PROCESS

MASTER = bytes(range(32))
FLEET_KEYS = keys.FleetKeys((MASTER,), MASTER)


def payload(name: str = "temp", cap: int = 4_000_000, **fields: Any) -> bytes:
    defaults = {"type": "number", "low": -20_000, "high": 50_000, "bins": 9, "mechanism": "olh", "g": 3}
    budget = {"rule": "sum", "cap": cap}
    return experiment_json(**{"name": name, **defaults, "budget": budget, **fields})


TEMP = payload()
DOOR = payload("door", type="bool", low=None, high=None, bins=None, g=None, mechanism="rr", epsilon=500_000)


def fleet_of(size: int, *payloads: bytes, seed: int = 1, **arguments: Any) -> SimulatedFleet:
    return SimulatedFleet(
        "demo", payloads or (TEMP,), size=size, rng=np.random.default_rng(seed), **arguments
    )


def deliver(fleet, deliveries):
    """Deliver in-process, acknowledging each message before requesting the next."""
    out = []
    for delivery in deliveries:
        fleet.acknowledge(delivery)
        out.append(delivery)
    return out


def readings_for(fleet, seed=2):
    return population.parse("normal:21:12").sample(
        Experiment.parse(TEMP), len(fleet), np.random.default_rng(seed)
    )


class TestEnrolment:
    def test_does_not_affect_parsing_in_other_threads(self, monkeypatch: pytest.MonkeyPatch):
        """A device waits in enroll() on another thread until this thread has checked."""
        parse, enroll = Experiment.parse, Client.enroll
        entered, seen = threading.Event(), threading.Event()

        def paused(client: Client, *arguments: Any, **options: Any) -> Experiment:
            entered.set()
            assert seen.wait(HANGS_S)
            return enroll(client, *arguments, **options)

        monkeypatch.setattr(Client, "enroll", paused)
        thread = threading.Thread(target=fleet_of, args=(1,))
        thread.start()
        assert entered.wait(HANGS_S)
        now = Experiment.parse
        seen.set()
        thread.join()
        assert now == parse

    def test_shared_parse_equals_enroll(self):
        fleet = fleet_of(2, TEMP, DOOR)
        storage: Any = MemoryStorage()
        provision(storage, consent=True)
        policy = {**faithful.BOUNDS, "rules": faithful.RULES, "experiments": ("temp", "door")}
        client = Client(policy, storage, device_id="plain")
        client.enroll(TEMP)
        client.enroll(DOOR)
        assert fleet.client(0).status() == fleet.client(1).status() == client.status()

    def test_parse_of_another_experiment_is_not_used(self):
        storage: Any = MemoryStorage()
        provision(storage, consent=True)
        policy = {**faithful.BOUNDS, "rules": faithful.RULES, "experiments": ("temp", "door")}
        client = Client(policy, storage, device_id="plain")
        assert client.enroll(TEMP, exp=Experiment.parse(DOOR)).name == "temp"

    def test_checks_signatures_on_every_device(self):
        key = FLEET_KEYS.announce_key
        topic = topics.experiment_topic("demo", "temp")
        signed = keys.sign_experiment(MASTER, topic, TEMP, serial=1)
        fleet = fleet_of(5, signed, announce_key=key)
        assert len(deliver(fleet, fleet.make_reports({"temp": [1.0] * 5}))) == 5
        with pytest.raises(ExperimentRefused, match="signature is missing or wrong"):
            fleet_of(5, TEMP, announce_key=key)

    def test_rejects_an_experiment_beyond_the_policy(self):
        with pytest.raises(ExperimentRefused, match="epsilon is above the policy's 4000000"):
            fleet_of(5, payload(epsilon=5_000_000))
        with pytest.raises(ExperimentRefused, match="the policy forbids budget rule unlimited"):
            fleet_of(5, payload(budget={"rule": "unlimited"}))


class TestFaults:
    def test_offline_devices_send_later_in_order(self):
        fleet = fleet_of(200, faults=Faults(offline=0.5, online=0.5))
        rounds = [deliver(fleet, fleet.make_reports({"temp": [20.0] * 200})) for _ in range(4)]
        assert len(fleet.reports) == 800
        assert 0 < len(rounds[0]) < 200
        waiting = 800 - sum(map(len, rounds))
        rest = deliver(fleet, fleet.flush())
        assert len(rest) == waiting > 0
        assert set(fleet.acknowledged) == set(fleet.reports)
        everything = [d for deliveries in [*rounds, rest] for d in deliveries]
        for id in fleet.ids:
            assert [report.decode(d.payload).number for d in everything if d.device == id] == [1, 2, 3, 4]

    def test_late_devices_send_only_after_the_last_round(self):
        fleet = fleet_of(100, faults=Faults(late=0.3))
        early = [d for _ in range(3) for d in deliver(fleet, fleet.make_reports({"temp": [20.0] * 100}))]
        late = deliver(fleet, fleet.flush())
        assert {d.device for d in early}.isdisjoint(d.device for d in late)
        assert len(early) + len(late) == 300
        assert 0 < len(late) < 300
        assert deliver(fleet, fleet.flush()) == []

    def test_duplicates_are_identical_and_acknowledged_once(self):
        fleet = fleet_of(200, faults=Faults(duplicate=0.4))
        sent = deliver(fleet, fleet.make_reports({"temp": [20.0] * 200}))
        assert 200 < len(sent) < 400
        assert len({d.payload for d in sent if d.device == fleet.ids[5]}) == 1
        assert len(set(sent)) == len(fleet.acknowledged) == 200
        assert fleet.histogram(Experiment.parse(TEMP)).sum() == 200

    def test_reboots_repeat_reports_without_new_number_or_cost(self):
        fleet = fleet_of(200, faults=Faults(reboot=0.5))
        first = fleet.client(0)
        sent = []
        for _ in range(6):
            sent += deliver(fleet, fleet.make_reports({"temp": [20.0] * 200}))
        sent += deliver(fleet, fleet.flush())
        assert fleet.client(0) is not first
        assert len(sent) > len(set(sent)) == 800  # four each, as the budget allows, and some sent twice
        per_device = Counter(r.device for r in fleet.reports)
        assert set(per_device.values()) == {4}
        assert {r.number for r in fleet.reports} == {1, 2, 3, 4}
        assert set(fleet.acknowledged) == set(fleet.reports)


class TestReports:
    def test_are_known_with_their_acknowledgements(self):
        fleet = fleet_of(200, TEMP, DOOR)
        temps = [*readings_for(fleet)[:-3], None, float("inf"), -1e9]
        doors = np.random.default_rng(3).integers(0, 2, 200).astype(bool).tolist()
        sent = deliver(fleet, fleet.make_reports({"temp": temps, "door": doors}))
        assert len(sent) == 400
        assert {delivery.device for delivery in sent} == set(fleet.ids)
        assert all(re.fullmatch("[a-z0-9]{10}", id) for id in fleet.ids)
        assert {report.decode(delivery.payload).number for delivery in sent} == {1}
        assert set(fleet.reports) == set(fleet.acknowledged)
        experiment = Experiment.parse(TEMP)
        counts, missing = fleet.index_counts("temp")
        buckets = Counter(experiment.bucket(x) for x in temps)
        assert missing == buckets[None] == 1
        assert counts.tolist() == [buckets[i] for i in range(9)]
        assert fleet.index_counts("door")[0].tolist() == [200 - sum(doors), sum(doors)]
        assert fleet.histogram(experiment).sum() == fleet.histogram(Experiment.parse(DOOR)).sum() == 200
        codes = Counter(
            int.from_bytes(report.decode(d.payload).code, "big")
            for d in sent
            if d.payload[1:5] == experiment.digest
        )
        assert fleet.histogram(experiment).tolist() == [codes[c] for c in range(experiment.code_count)]

    def test_stop_when_budgets_are_spent(self):
        fleet = fleet_of(40)
        rounds = [len(deliver(fleet, fleet.make_reports({"temp": [20.0] * 40}))) for _ in range(6)]
        assert rounds == [40, 40, 40, 40, 0, 0]
        assert fleet.client(7).status()["experiments"]["temp"]["state"] == "spent"

    def test_repeat_only_in_a_repeatable_fleet(self):
        def run(repeatable):
            fleet = fleet_of(30, seed=9, repeatable=repeatable)
            return deliver(fleet, fleet.make_reports({"temp": [20.0] * 30}))

        assert run(True) == run(True)
        # 30 reports with 24 equally likely seeds are equal by chance with probability below 1e-40.
        assert [d.payload for d in run(False)] != [d.payload for d in run(False)]

    def test_invalid_readings_are_rejected(self):
        fleet = fleet_of(3)
        with pytest.raises(ValueError, match="temp: 2 readings for 3 devices"):
            next(fleet.make_reports({"temp": [1.0, 2.0]}))
        with pytest.raises(ValueError, match="unknown experiment heat; choose from temp"):
            next(fleet.make_reports({"heat": [1.0, 2.0, 3.0]}))
        with pytest.raises(ValueError, match="at least 1 device, not 0"):
            fleet_of(0)
        with pytest.raises(ValueError, match=r"offline must be a probability from 0 to 1, not 1\.5"):
            Faults(offline=1.5)


class TestParts:
    def test_count_late_reports_and_progress_once(self):
        clients = RealClients(TEMP, population.parse("normal:21:12"), Faults(late=0.5), 4, repeatable=True)
        shares: list[float] = []
        reporting, reports = faithful_parts.run(clients, 40, 1, True, THIS_PROCESS, shares.append, 15)
        assert shares == [15 / 40, 15 / 40, 10 / 40]
        assert (reporting.reports, reporting.spent, len(reports.codes)) == (160, 40, 160)
        assert reports.readings.sum() == 160


# --- The same distribution -----------------------------------------------------------------------------


def two_sample(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return two histograms' chi-square statistic and its 1e-12 quantile; each cell expects over 50."""
    both = first + second
    assert both.min() * min(first.sum(), second.sum()) / both.sum() > 50
    a, b = first.sum(), second.sum()
    statistic = ((first * np.sqrt(b / a) - second * np.sqrt(a / b)) ** 2 / both).sum()
    return float(statistic), float(chi2.isf(1e-12, len(first) - 1))


class TestDistribution:
    @pytest.mark.slow
    def test_matches_vectorised_draws(self):
        """Compare 10,000 reports of real clients with 1,000,000 simulated ones; false alarm 1e-12."""
        tree = {"bins": 7, "g": None, "mechanism": "hh", "fanout": 3, "cells": [3, 3], "weights": [2, 1]}
        experiment_payload = payload(cap=2**40, **tree)
        experiment = Experiment.parse(experiment_payload)
        policy = {
            "sum": 2**46,
            "squares": 0,
            "epsilon": 4_000_000,
            "rules": ("sum",),
            "experiments": ("temp",),
        }
        fleet = fleet_of(200, experiment_payload, policy=policy)
        rng = np.random.default_rng(4)
        for _ in range(50):
            indices = np.minimum(rng.geometric(0.4, 200) - 1, experiment.domain - 1)
            readings = [population.reading_in(experiment, i) for i in indices.tolist()]
            deliver(fleet, fleet.make_reports({"temp": readings}))
        counts, missing = fleet.index_counts("temp")
        assert counts.sum() == 10_000
        assert missing == 0
        histogram = vectorised.histogram(experiment, counts * 100, rng)
        statistic, limit = two_sample(fleet.histogram(experiment), histogram)
        assert statistic < limit
        statistic, limit = two_sample(
            fleet.histogram(experiment), vectorised.histogram(experiment, counts[::-1] * 100, rng)
        )
        assert statistic > limit  # a different population is detected

    def test_numpy_rng_has_exactly_the_two_primitives(self):
        rng = NumpyRng(np.random.default_rng(5))
        assert {name for name in dir(rng) if not name.startswith("_")} == {"bernoulli", "below"}
        counts = np.bincount([rng.below(7) for _ in range(70_000)], minlength=7)
        assert len(counts) == 7
        assert ((counts - 10_000) ** 2 / 10_000).sum() < chi2.isf(1e-12, 6)
        lies = sum(rng.bernoulli(ONE // 5) for _ in range(50_000))
        assert abs(lies - 10_000) < 7.2 * 8_000**0.5  # 6e-13
        assert rng.below(1) == 0
        assert not any(rng.bernoulli(0) for _ in range(100))
        assert all(rng.bernoulli(ONE) for _ in range(100))
        for n in (0, (1 << 24) + 1):
            with pytest.raises(ValueError, match="1 to 16777216"):
                rng.below(n)


# --- A real broker -------------------------------------------------------------------------------------


class TestBroker:
    def test_aggregator_counts_a_faulty_fleet_exactly(self, tmp_path):
        names = {p: topics.experiment_topic("demo", json.loads(p)["name"]) for p in (TEMP, DOOR)}
        payloads = [keys.sign_experiment(MASTER, topic, p, serial=1) for p, topic in names.items()]
        fleet = fleet_of(
            150,
            *payloads,
            device_key=lambda id: keys.device_key(MASTER, "demo", id),
            announce_key=FLEET_KEYS.announce_key,
            faults=Faults(offline=0.3, online=0.4, duplicate=0.2, late=0.1, reboot=0.2),
        )
        seen: list[int] = []
        with MosquittoBroker() as broker, Store(f"sqlite:///{tmp_path / 'counts.sqlite'}") as store:
            store.add_fleet("demo", keyed=True)
            for p in (TEMP, DOOR):
                store.add_experiment("demo", p)
            with (
                running(store, broker, fleet_keys=FLEET_KEYS, batch_s=0.1) as aggregator,
                Gateways(broker.host, broker.port) as gateways,
            ):
                delivered = 0
                for _ in range(10):
                    readings = {"temp": readings_for(fleet), "door": [True] * 150}
                    delivered += gateways.deliver(fleet, fleet.make_reports(readings), seen.append)
                delivered += gateways.deliver(fleet, fleet.flush(), seen.append)

                def seen_by_it() -> int:
                    return aggregator.counters.accepted + sum(aggregator.counters.rejected.values())

                until(lambda: seen_by_it() >= delivered, lambda: f"{seen_by_it()} of {delivered}")
            assert set(fleet.acknowledged) == set(fleet.reports)
            assert sum(seen) == delivered > len(fleet.reports)
            for p in (TEMP, DOOR):
                experiment = Experiment.parse(p)
                stored = store.histogram("demo", experiment.digest)
                assert stored.tolist() == fleet.histogram(experiment).tolist()
            assert aggregator.counters.accepted == len(fleet.reports)
            assert aggregator.counters.rejected == {"duplicate": delivered - len(fleet.reports)}

    def test_outage_loses_nothing(self):
        fleet = fleet_of(1_500)
        broker = MosquittoBroker(free_port())
        broker.start()
        try:
            with Gateways(broker.host, broker.port) as gateways:
                outages: list[int] = []

                def interrupt(_: int) -> None:
                    if len(fleet.acknowledged) >= 300 and not outages:
                        outages.append(len(fleet.acknowledged))
                        broker.stop()
                        threading.Timer(0.3, broker.start).start()

                delivered = gateways.deliver(fleet, fleet.make_reports({"temp": [20.0] * 1_500}), interrupt)
        finally:
            broker.stop()
        assert 300 <= outages[0] < 1_000
        assert delivered == len(fleet.acknowledged) == 1_500

    def test_gateways_disconnect_at_the_end(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            connections: list[socket.socket] = []

            def accept() -> None:
                connections.append(server.accept()[0])
                connections[0].recv(1 << 10)
                connections[0].sendall(b"\x20\x02\x00\x00")  # CONNACK

            thread = threading.Thread(target=accept)
            thread.start()
            with Gateways(*server.getsockname()):
                pass
            thread.join()
            with connections[0] as connection:
                connection.settimeout(5)  # it has arrived already
                assert connection.recv(1 << 10) == b"\xe0\x00"  # DISCONNECT

    def test_missing_or_silent_broker_is_one_line(self):
        port = free_port()
        with pytest.raises(
            GatewayError, match=f"no MQTT broker at 127.0.0.1:{port} \\(Connection refused\\)"
        ):
            Gateways("127.0.0.1", port).__enter__()
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(GatewayError, match=f"no answer in 0.2 s: 127.0.0.1:{port} is not a broker"),
            Gateways("127.0.0.1", port, timeout_s=0.2),
        ):
            pass

    def test_outage_is_one_line_and_keeps_acknowledgements(self):
        fleet = fleet_of(400)
        with MosquittoBroker() as broker, Gateways(broker.host, broker.port) as gateways:

            def stop(_: int) -> None:
                if len(fleet.acknowledged) >= 100:
                    broker.stop()
                    gateways._connections[0]._timeout_s = 0.5

            with pytest.raises(GatewayError, match=r"reports have not been acknowledged for 0\.5 s"):
                gateways.deliver(fleet, fleet.make_reports({"temp": [20.0] * 400}), stop)
        assert 100 <= len(fleet.acknowledged) < len(fleet.reports) <= 400
        # Unacknowledged reports are still in the outboxes.
        assert len(fleet.acknowledged) + len(list(fleet.flush())) == len(fleet.reports)

    @pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
    def test_rejected_login_is_one_line(self, tmp_path):
        passwords = tmp_path / "passwords"
        subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "gateway", "right"], check=True)
        with MosquittoBroker(password_file=passwords) as broker:
            with (
                pytest.raises(
                    GatewayError,
                    match=f"broker at 127.0.0.1:{broker.port} refuses the connection: Not authorized",
                ),
                Gateways(broker.host, broker.port, username="gateway", password="wrong"),
            ):
                pass
            fleet = fleet_of(3)
            with Gateways(broker.host, broker.port, username="gateway", password="right") as gateways:
                assert gateways.deliver(fleet, fleet.make_reports({"temp": [20.0] * 3})) == 3
