"""Sensors in a running Home Assistant, with its real schema, template engine and MQTT client."""

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from experiments import experiment_json
from filled_store import fill
from home_assistant import HomeAssistant
from traffic import publish

from hushmote.fleet.results import home_assistant
from hushmote.fleet.results.publication import DISCOVERY_PREFIX, Publication
from hushmote.fleet.results.result import Result, result_of
from hushmote.fleet.results.snapshot import retained_messages, take_snapshot
from hushmote.server.store import Store
from hushmote.server.wire.topics import result_topic
from hushmote.simulator.broker import MosquittoBroker

PUBLICATION = Publication(home_assistant=DISCOVERY_PREFIX)
NOW = datetime.datetime.now(datetime.UTC)
DAYS = {str(NOW.date() - datetime.timedelta(days)): 900 for days in (2, 3, 4)}
HOSTILE = ["{{ 7 * 7 }}", "{% raw %}", "' }}{{ 7 * 7 }}", "{# no #}x", "<script>", "~", "${x}"]


TEMP = experiment_json(name="temp", type="number", low=0, high=32_000, bins=64, mechanism="grr")


def mode_of(*labels: str) -> bytes:
    free = {"rule": "unlimited"}
    return experiment_json(name="mode", type="choice", labels=[*labels], mechanism="grr", budget=free)


@pytest.fixture(scope="module")
def broker() -> Iterator[MosquittoBroker]:
    with MosquittoBroker() as running:
        yield running


@pytest.fixture(scope="module")
def hass(broker: MosquittoBroker) -> Iterator[HomeAssistant]:
    with HomeAssistant(broker) as running:
        yield running


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        yield opened


def send(broker: MosquittoBroker, messages: Mapping[str, bytes]) -> None:
    publish(broker, messages.items(), retain=True)


def results(store: Store, fleet: str, *names: str) -> list[Result]:
    return [result_of(store, fleet, name, datetime.datetime.now(datetime.UTC)) for name in names]


def named(result: Result, statistic: str) -> str:
    return f"hushmote/{result.fleet}/{result.experiment}/{statistic}"


def test_each_statistic_is_a_sensor(store: Store, broker: MosquittoBroker, hass: HomeAssistant):
    fill(store, "one", TEMP, DAYS, unit="°C")
    fill(store, "one", mode_of("eco", "boost"), DAYS)
    fill(store, "one", experiment_json(name="door"), DAYS)
    now = datetime.datetime.now(datetime.UTC)
    send(broker, retained_messages(take_snapshot(store, PUBLICATION, now), PUBLICATION, now))
    seen = 0
    for result in results(store, "one", "temp", "mode", "door"):
        for id, one in result.statistics.items():
            factor, digits = (100, 3) if result.quantity == "share" else (1, 9)
            sensor = hass.until(named(result, id), str(round(one.value * factor, digits)))
            attributes = sensor["attributes"]
            assert attributes["friendly_name"] == f"Hushmote one {result.experiment} {one.name}"
            assert attributes["unit_of_measurement"] == ("%" if factor == 100 else "°C")
            assert (attributes["state_class"], sensor["device"]) == ("measurement", "Hushmote one")
            ends = (attributes["low"], attributes["high"])
            assert ends == (round(one.low * factor, digits), round(one.high * factor, digits))
            assert (attributes["reports"], attributes["windows"]) == (2_700, sorted(DAYS))
            assert attributes["epsilon_of_a_report"] == result.epsilon.report
            assert attributes["epsilon_of_the_histogram"] == result.epsilon.histogram
            assert attributes["epsilon_holds"] == result.epsilon.holds
            seen += 1
    assert seen == 2 + 3 + 1
    # A withdrawal removes its sensors and keeps the others.
    store.withdraw_experiment("one", "temp")
    send(broker, retained_messages(take_snapshot(store, PUBLICATION, now), PUBLICATION, now))
    for statistic in ("mean", "median"):
        hass.until(f"hushmote/one/temp/{statistic}", None)
    assert "hushmote/one/door/share_1" in hass.sensors()
    assert "mqtt" not in hass.log()
    assert "template" not in hass.log()


def test_hostile_text_stays_text(store: Store, broker: MosquittoBroker, hass: HomeAssistant):
    """An experiment's or store's author cannot inject text into Home Assistant's templates."""
    fill(store, "two", mode_of(*HOSTILE), DAYS)
    fill(store, "two", TEMP, DAYS, unit="{{ 7 * 7 }}\n'\"}}{% x %}")
    now = datetime.datetime.now(datetime.UTC)
    send(broker, retained_messages(take_snapshot(store, PUBLICATION, now), PUBLICATION, now))
    mode, temp = results(store, "two", "mode", "temp")
    for id, statistic in mode.statistics.items():
        sensor = hass.until(named(mode, id), str(round(statistic.value * 100, 3)))
        assert sensor["attributes"]["friendly_name"] == f"Hushmote two mode {statistic.name}"
        assert sensor["attributes"]["low"] == round(statistic.low * 100, 3)
    assert [statistic.name for statistic in mode.statistics.values()] == [*HOSTILE, "other"]
    mean = hass.until(named(temp, "mean"), str(temp.statistics["mean"].value))
    assert mean["attributes"]["unit_of_measurement"] == temp.unit
    assert "mqtt" not in hass.log()
    assert "template" not in hass.log()


def test_missing_or_stale_result_makes_sensors_unavailable(
    store: Store, broker: MosquittoBroker, hass: HomeAssistant
):
    fill(store, "three", experiment_json(name="door"), DAYS)
    (door,) = results(store, "three", "door")
    ((id, yes),) = door.statistics.items()
    config = home_assistant.config_topic(DISCOVERY_PREFIX, "three", "door", id)
    topic, state = result_topic("three", "door"), str(round(yes.value * 100, 3))
    send(broker, {config: home_assistant.sensor(door, id, 5), topic: door.to_json()})
    hass.until(named(door, id), state)
    hass.until(named(door, id), "unavailable")  # after 5 s
    send(broker, {topic: replace(door, at=datetime.datetime.now(datetime.UTC)).to_json()})
    hass.until(named(door, id), state)
    # Messages retained since before an aggregator's end state their age.
    send(broker, {config: home_assistant.sensor(door, id, 1800)})
    send(broker, {topic: replace(door, at=NOW - datetime.timedelta(hours=1)).to_json()})
    hass.until(named(door, id), "unavailable")
    send(broker, {topic: replace(door, at=datetime.datetime.now(datetime.UTC)).to_json()})
    hass.until(named(door, id), state)


def test_templates_contain_no_user_text(store: Store):
    fill(store, "two", mode_of(*HOSTILE), DAYS, unit="{{ x }}")
    messages = retained_messages(take_snapshot(store, PUBLICATION, NOW), PUBLICATION, NOW)
    configs = [json.loads(payload) for topic, payload in messages.items() if topic.endswith("/config")]
    assert len(configs) == len(HOSTILE) + 1
    templates = {
        text.replace(config["unique_id"].rpartition("/")[2], "ID")
        for config in configs
        for key, text in config.items()
        if key.endswith("_template")
    }
    assert len(templates) == 3  # the same for all labels except for an alphanumeric id
    assert len({config["unique_id"] for config in configs}) == len(configs)
    assert {config["unit_of_measurement"] for config in configs} == {"%"}
