"""Experiments in flash: they are verified once, withdrawn ones stay away, damaged files are ignored."""

import os
from pathlib import Path
from typing import Any

import pytest
from enumeration import memory
from experiments import experiment_json

from hushmote.device import ldp_client
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, ExperimentRefused
from hushmote.server.wire import keys, topics

FLEET = "home"
SIGNING = bytes(31) + b"\x07"
OTHER = bytes(31) + b"\x09"
POLICY = {
    "sum": 2**47,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ("sum", "count"),
    "experiments": ("room_temp", "door_open"),
}


def signed(serial: int, name: str = "room_temp", key: bytes = SIGNING, **fields: Any) -> bytes:
    body = experiment_json(name=name, **fields)
    return keys.sign_experiment(key, topics.experiment_topic(FLEET, name), body, serial)


def withdrawn(serial: int, **changes: Any) -> bytes:
    return keys.sign_experiment(
        changes.get("key", SIGNING), topics.experiment_topic(FLEET, "room_temp"), b"", serial
    )


def start(
    folder: Path | None, key: bytes | None = SIGNING, fleet: str = FLEET, **policy: Any
) -> KeptExperiments:
    """Start a board."""
    storage = memory()
    ldp_client.provision(storage, consent=True)
    announce = None if key is None else keys.public_key_bytes(key)
    client = Client(POLICY | policy, storage, "board-1", announce_key=announce, fleet=fleet)
    return KeptExperiments(client, None if folder is None else str(folder))


def states(kept: KeptExperiments) -> list[str]:
    return [line["state"] for line in kept._client.status()["experiments"].values()]


class TestFile:
    def test_ignores_truncated_or_changed_file(self, folder: Path):
        start(folder).take("room_temp", signed(5))
        path = folder / "room_temp"
        content = path.read_bytes()
        for size in range(len(content)):
            path.write_bytes(content[:size])
            assert start(folder).digests == {}
        for at in range(0, len(content), 7):
            path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
            experiments = start(folder)
            assert (experiments.digests, experiments._client.serials) == ({}, {})
        path.write_bytes(content)
        assert start(folder).digests

    def test_ignores_another_fleets_or_experiments_file(self, folder: Path):
        start(folder).take("room_temp", signed(5))
        assert start(folder, fleet="other").digests == {}
        assert start(folder, key=OTHER).digests == {}
        assert start(folder, key=None).digests == {}
        os.rename(folder / "room_temp", folder / "door_open")
        assert start(folder).digests == {}

    def test_full_flash_is_shown_and_experiment_runs_until_restart(self, folder: Path):
        folder.write_text("a file where the folder should be")
        experiments = start(folder)
        experiments.take("room_temp", signed(5))
        assert states(experiments) == ["reporting", "absent"]
        assert experiments.fault is not None
        assert experiments.fault.startswith("cannot store experiments: errno")
        assert start(folder).digests == {}
        folder.unlink()
        experiments.take("room_temp", signed(5))  # delivered again when there is room
        assert experiments.fault is None
        assert states(start(folder)) == ["reporting", "absent"]

    def test_stores_nothing_without_folder(self):
        experiments = start(None)
        experiments.take("room_temp", signed(5))
        experiments.take("room_temp", withdrawn(6))
        assert experiments.fault is None
        assert states(experiments) == ["absent", "absent"]


class TestExperiment:
    def test_survives_restart_and_is_verified_once(self, folder: Path, verified: list[bytes]):
        experiments = start(folder)
        experiments.take("room_temp", signed(5))
        experiments.take("room_temp", signed(5))
        assert len(verified) == 1
        restarted = start(folder)
        assert states(restarted) == ["reporting", "absent"]
        assert restarted._client.serials == {"room_temp": 5}
        assert restarted._client.report("room_temp", True) is not None
        restarted.take("room_temp", signed(5))  # the broker repeats it
        assert len(verified) == 1
        restarted.take("room_temp", signed(6))
        assert len(verified) == 2
        assert start(folder)._client.serials == {"room_temp": 6}

    def test_is_neither_parsed_nor_written_again_if_repeated(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ):
        parsed: list[bytes] = []
        parse = ldp_client.Experiment.parse
        monkeypatch.setattr(ldp_client.Experiment, "parse", lambda body: parsed.append(body) or parse(body))
        start(folder).take("room_temp", signed(5))
        assert len(parsed) == 1
        experiments = start(folder)
        parsed.clear()
        (folder / "room_temp").unlink()
        experiments.take("room_temp", signed(5))
        assert parsed == []
        assert not (folder / "room_temp").exists()

    def test_older_version_is_refused_after_restart(self, folder: Path):
        start(folder).take("room_temp", signed(6, epsilon=2_000_000))
        experiments = start(folder)
        with pytest.raises(ExperimentRefused, match="newer"):
            experiments.take("room_temp", signed(5))
        experiments.take("room_temp", signed(6, epsilon=2_000_000))  # the newer version, repeated
        line = experiments._client.status()["experiments"]["room_temp"]
        assert (line["epsilon"], line["reason"]) == (2_000_000, None)

    def test_clearing_keyed_topic_changes_nothing(self, folder: Path, verified: list[bytes]):
        experiments = start(folder)
        experiments.take("room_temp", signed(5))
        content = (folder / "room_temp").read_bytes()
        (folder / "room_temp").unlink()
        for _ in range(3):
            with pytest.raises(ExperimentRefused):
                experiments.take("room_temp", b"")
            experiments.absent("room_temp")  # after a reconnect, the broker repeats nothing
            experiments.take("room_temp", signed(5))
        assert states(experiments) == ["reporting", "absent"]
        assert len(verified) == 1
        assert not (folder / "room_temp").exists()
        (folder / "room_temp").write_bytes(content)
        for message in (withdrawn(6, key=OTHER), b"\x00", withdrawn(6)[:-1]):
            with pytest.raises(ExperimentRefused, match="signature"):
                experiments.take("room_temp", message)
        assert states(start(folder)) == states(experiments) == ["reporting", "absent"]

    def test_forgery_changes_nothing(self, folder: Path):
        experiments = start(folder)
        experiments.take("room_temp", signed(5))
        before = (folder / "room_temp").read_bytes()
        for payload in (
            signed(9, key=OTHER),
            signed(9)[:-1],
            experiment_json(name="room_temp"),
            b"\x00",
            b"[" * 1100,
        ):
            with pytest.raises(ExperimentRefused):
                experiments.take("room_temp", payload)
        with pytest.raises(ExperimentRefused, match="its name is door_open"):
            experiments.take("room_temp", signed(9, "door_open"))
        assert (folder / "room_temp").read_bytes() == before
        assert states(experiments) == ["reporting", "absent"]

    def test_ends_when_policy_no_longer_allows_it(self, folder: Path):
        experiments = start(folder)
        experiments.take("room_temp", signed(5))
        experiments.take("door_open", signed(6, "door_open"))
        strict = start(folder, epsilon=500_000)
        assert states(strict) == ["refused", "refused"]
        assert strict.digests == {}
        start(folder, experiments=("door_open",))
        assert states(start(folder)) == ["absent", "reporting"]

    def test_open_fleet_erases_withdrawn_experiment(self, folder: Path):
        start(folder, None).take("room_temp", experiment_json(name="room_temp"))
        experiments = start(folder, None)
        assert states(experiments) == ["reporting", "absent"]
        experiments.take("room_temp", b"")
        assert os.listdir(folder) == []
        experiments.take("room_temp", experiment_json(name="room_temp"))
        experiments.absent("room_temp")
        assert os.listdir(folder) == []
        assert states(experiments) == states(start(folder, None)) == ["absent", "absent"]

    def test_shows_that_flash_keeps_withdrawn_experiment(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        def remove(_path: str) -> None:
            raise OSError(5, "the flash is worn out")

        experiments = start(folder, None)
        experiments.take("room_temp", b"")
        assert experiments.fault is None
        experiments.take("room_temp", experiment_json(name="room_temp"))
        monkeypatch.setattr(os, "remove", remove)
        experiments.take("room_temp", b"")
        assert states(experiments) == ["absent", "absent"]
        assert experiments.fault == "cannot remove experiments: errno 5"

    def test_absence_keeps_application_enrolments(self, folder: Path):
        experiments = start(folder, None)
        experiments._client.enroll(experiment_json(name="room_temp"))
        experiments.absent("room_temp")
        assert states(experiments) == ["reporting", "absent"]

    def test_rejects_deeply_nested_name_without_formatting_it(self, folder: Path):
        deep: Any = "a"
        for _ in range(400):
            deep = [deep]
        with pytest.raises(ExperimentRefused, match=r"^name must be"):
            start(folder).take("room_temp", experiment_json(name=deep))


class TestWithdrawal:
    @pytest.mark.parametrize("key", [SIGNING, None], ids=["keyed", "open"])
    def test_by_application_holds_until_it_enrolls_or_restarts(self, folder: Path, key: bytes | None):
        old, new = signed(5), signed(6, epsilon=2_000_000)  # an open fleet ignores the signature
        experiments = start(folder, key)
        experiments.take("room_temp", old)
        experiments._client.withdraw("room_temp")
        for payload in (old, new, old):
            experiments.put_aside("room_temp", payload)
            assert experiments.consider() == ("room_temp", None)
            assert states(experiments) == ["absent", "absent"]
        experiments._client.enroll(new)
        experiments.take("room_temp", new)
        assert states(experiments) == ["reporting", "absent"]
        experiments._client.withdraw("room_temp")
        assert states(start(folder, key)) == ["reporting", "absent"]

    def test_outlasts_replayed_experiment(self, folder: Path):
        start(folder).take("room_temp", signed(5))
        start(folder).take("room_temp", withdrawn(6))  # the board was offline in the meantime
        experiments = start(folder)
        assert states(experiments) == ["absent", "absent"]
        assert experiments.digests == {}
        with pytest.raises(ExperimentRefused, match="newer"):
            experiments.take("room_temp", signed(5))
        experiments.take("room_temp", signed(7))
        assert states(experiments) == ["reporting", "absent"]
        with pytest.raises(ExperimentRefused, match="newer"):
            experiments.take("room_temp", withdrawn(6))
        assert states(start(folder)) == ["reporting", "absent"]

    def test_is_neither_verified_nor_written_again_if_repeated(self, folder: Path, verified: list[bytes]):
        start(folder).take("room_temp", withdrawn(6))
        assert len(verified) == 1
        experiments = start(folder)
        (folder / "room_temp").unlink()
        experiments.take("room_temp", withdrawn(6))
        assert len(verified) == 1
        assert not (folder / "room_temp").exists()

    def test_earlier_firmwares_file_keeps_its_serial(self, folder: Path):
        experiments = start(folder)
        experiments.take("room_temp", signed(5))
        data = b"\x00\x00\x00\x06"
        (folder / "room_temp").write_bytes(data + experiments._seal("room_temp", data).to_bytes(4, "big"))
        experiments = start(folder)
        assert states(experiments) == ["absent", "absent"]
        with pytest.raises(ExperimentRefused, match="newer"):
            experiments.take("room_temp", signed(5))

    def test_accepts_last_serial_number(self, folder: Path):
        experiments = start(folder)
        experiments.take("room_temp", signed(0xFFFFFFFE))
        experiments.take("room_temp", withdrawn(0xFFFFFFFF))
        assert states(start(folder)) == ["absent", "absent"]


WITHOUT: Any = {"experiments": ("door_open",)}


class TestNameThatLeavesThePolicy:
    """A firmware whose policy lacks a name keeps its serial, as the next firmware may have the name again."""

    def test_serial_survives_firmware_without_the_name(self, folder: Path):
        experiments = start(folder)
        experiments.take("room_temp", signed(5))
        experiments.take("room_temp", withdrawn(7))
        start(folder, **WITHOUT).take("door_open", signed(6, "door_open"))
        experiments = start(folder)
        with pytest.raises(ExperimentRefused, match="a newer version was published"):
            experiments.take("room_temp", signed(5))
        assert states(experiments) == ["refused", "reporting"]
        experiments.take("room_temp", signed(8))

    def test_power_cut_while_it_is_forgotten_keeps_serial(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ):
        start(folder).take("room_temp", signed(7))

        def cut(*_: object) -> None:
            raise KeyboardInterrupt

        for name in ("open", "fsync", "replace"):
            with monkeypatch.context() as power:
                power.setattr(os, name, cut)
                with pytest.raises(KeyboardInterrupt):
                    start(folder, **WITHOUT)
            with pytest.raises(ExperimentRefused, match="newer"):
                start(folder).take("room_temp", signed(5))
        start(folder, **WITHOUT)
        with pytest.raises(ExperimentRefused, match="newer"):
            start(folder).take("room_temp", signed(5))

    def test_only_its_serial_stays_in_flash(self, folder: Path):
        start(folder).take("room_temp", signed(5))
        start(folder, **WITHOUT)
        assert (folder / "room_temp").stat().st_size == 9
        written = (folder / "room_temp").stat().st_mtime_ns
        start(folder, **WITHOUT)
        assert (folder / "room_temp").stat().st_mtime_ns == written

    def test_open_fleet_keeps_nothing_of_it(self, folder: Path):
        start(folder, None).take("room_temp", experiment_json(name="room_temp"))
        start(folder, None, **WITHOUT)
        assert os.listdir(folder) == []

    def test_firmware_of_another_fleet_keeps_its_serial(self, folder: Path):
        start(folder).take("room_temp", signed(5))
        start(folder, OTHER, **WITHOUT)
        assert start(folder)._client.serials == {"room_temp": 5}

    def test_no_serial_is_forgotten_for_another_name(self, folder: Path):
        names = [f"n{i}" for i in range(64)]
        for name in names:
            start(folder, experiments=(name,)).take(name, signed(5, name))
        experiments = start(folder, experiments=("room_temp", "n0"))
        with pytest.raises(ExperimentRefused, match="the serials of 64 other names are stored"):
            experiments.take("room_temp", signed(5))
        experiments.take("room_temp", withdrawn(6))
        experiments.take("n0", signed(6, "n0"))
        assert states(experiments) == ["absent", "reporting"]
        assert set(os.listdir(folder)) == set(names)
        for name in names[1:]:
            with pytest.raises(ExperimentRefused, match="newer"):
                start(folder, experiments=(name,)).take(name, signed(4, name))
