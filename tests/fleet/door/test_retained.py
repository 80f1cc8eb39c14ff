"""The retained messages that the door keeps."""

import pytest

from hushmote.fleet.door import retained as module
from hushmote.fleet.door.retained import Retained, filters
from hushmote.server.wire.topics import NameRefused


def test_keeps_experiments_and_results_until_cleared():
    retained = Retained(None)
    retained.take("hushmote/v1/home/experiment/temp", b"{}")
    retained.take("hushmote/v1/home/experiment/door", b"{}\0")
    retained.take("hushmote/v1/lab/result/temp", b"[]")
    assert retained.experiments("home") == ["door", "temp"]
    assert retained.get("experiment", "home", "door") == b"{}\0"
    assert retained.get("result", "lab", "temp") == b"[]"
    assert retained.get("result", "home", "temp") is None
    assert "home" in retained.fleets
    assert "lab" not in retained.fleets  # a result alone makes no fleet
    for name in ("temp", "door"):
        retained.take(f"hushmote/v1/home/experiment/{name}", b"")
    assert retained.experiments("home") == []
    assert "home" not in retained.fleets


def test_serves_signed_withdrawal_without_listing_it():
    retained = Retained(None)
    retained.take("hushmote/v1/home/experiment/temp", b"\0" + bytes(68))
    assert retained.experiments("home") == []
    assert retained.get("experiment", "home", "temp") == b"\0" + bytes(68)
    assert "home" in retained.fleets


def test_knows_named_fleet_without_experiment():
    assert "home" in Retained(["home"]).fleets
    assert "lab" not in Retained(["home"]).fleets


def test_ignores_foreign_long_and_excess_topics():
    retained = Retained(None)
    for topic in (
        "hushmote/v1/Home/experiment/a",
        "hushmote/v1/h/experiment/a/b",
        "x",
        "hushmote/v1/h/report/a",
    ):
        retained.take(topic, b"{}")
    assert "h" not in retained.fleets
    retained.take("hushmote/v1/h/experiment/a", b"{}")
    retained.take("hushmote/v1/h/experiment/a", bytes(2049))  # the broker replaced it as well
    assert retained.get("experiment", "h", "a") is None
    for i in range(module._MAX_NAMES + 10):
        retained.take(f"hushmote/v1/h/experiment/e{i}", b"{}")
    assert len(retained.experiments("h")) == module._MAX_NAMES
    retained.take("hushmote/v1/h/experiment/e0", b"[]")  # an existing one can change
    assert retained.get("experiment", "h", "e0") == b"[]"


def test_subscribes_to_all_or_named_fleets():
    assert filters(None) == ["hushmote/v1/+/experiment/+", "hushmote/v1/+/result/+"]
    assert filters(["a", "b"])[2:] == ["hushmote/v1/b/experiment/+", "hushmote/v1/b/result/+"]
    assert filters(["a"], ["x"]) == ["hushmote/v1/a/experiment/x", "hushmote/v1/a/result/x"]
    for fleets, experiments in ((["#"], ["+"]), (["a"], ["#"]), (["a"], ["x/y"])):
        with pytest.raises(NameRefused):
            filters(fleets, experiments)


def test_reads_proofs_only_if_asked_to():
    assert filters(["home"], ["a"]) == [f"hushmote/v1/home/{kind}/a" for kind in ("experiment", "result")]
    kinds = ("experiment", "proof", "result")
    assert filters(["home"], ["a"], proofs=True) == [f"hushmote/v1/home/{kind}/a" for kind in kinds]
    retained = Retained(["home"])
    retained.take("hushmote/v1/home/proof/a", bytes(1_553))
    assert retained.get("proof", "home", "a") == bytes(1_553)
    assert retained.experiments("home") == []
