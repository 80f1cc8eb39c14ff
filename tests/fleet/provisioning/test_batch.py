"""Batches of devices for a production line, also if the command is killed or the disk is full."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from boards import FLEET_KEYS
from kills import kill_at
from refusals import fails

from hushmote.fleet.provisioning import batch, fleet_folder, mosquitto
from hushmote.fleet.provisioning.batch import ROSTER, STATE, Batch, provision_devices
from hushmote.fleet.provisioning.firmware import Firmware, file_content, file_name
from hushmote.fleet.provisioning.fleet_folder import DEVICES, FleetFolder, now_utc
from hushmote.fleet.provisioning.fleet_spec import NATS, FleetSpec
from hushmote.fleet.provisioning.master_key import load_keys
from hushmote.fleet.provisioning.settings import Network, load_settings, provision_device
from hushmote.server import private_file
from hushmote.server.errors import ProvisionError
from hushmote.server.store import Store

NETWORK = Network(mqtt_host="broker")
COUNT = 3


@dataclass(frozen=True)
class Place:
    """A fleet's folder, a store and the folder of the batch, as copies of their state before the batch."""

    folder: FleetFolder | None
    store: Store | None
    out: Path
    login: bool = False

    def batch(self, **changes: Any) -> Batch:
        keys, network = FLEET_KEYS, NETWORK
        if self.folder is not None:
            keys = load_keys(self.folder.master_file())
            network = replace(NETWORK, mqtt_ca=self.folder.path / "broker/ca.pem")
        options = (COUNT, None, self.folder, self.login)
        default = Batch(keys, "home", network, Firmware.PAGE, *options, store=self.store)
        return replace(default, **changes)

    def make(self, **changes: Any) -> batch.BatchResult:
        return provision_devices(self.batch(**changes), self.out, now_utc())


Fresh = Callable[[], Place]
KINDS = ("certificates", "logins", "nats", "store")


@pytest.fixture(params=KINDS)
def fresh(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fresh]:
    """Provide a function that returns equal places."""
    monkeypatch.setattr(batch, "GROUP", 2)
    kind, origin = request.param, tmp_path / "origin"
    origin.mkdir()
    if kind == "store":
        with Store(f"sqlite:///{origin}/store.sqlite") as store:
            store.add_fleet("home", keyed=True)
    else:
        broker, port = NATS if kind == "nats" else "mosquitto", 8884 if kind == "logins" else None
        spec = FleetSpec("home", ("broker",), broker=broker, password_port=port)
        fleet_folder.make(origin / "fleet", spec, write_master=True)
    with contextlib.ExitStack() as stores:
        places = iter(range(10_000))

        def make() -> Place:
            folder = tmp_path / str(next(places))
            shutil.copytree(origin, folder)
            if kind == "store":
                store = stores.enter_context(Store(f"sqlite:///{folder}/store.sqlite", create=False))
                return Place(None, store, folder / "out")
            return Place(fleet_folder.find(folder / "fleet"), None, folder / "out", kind == "logins")

        yield make


def steps_of(count: Callable[[], None]) -> None:
    """Call count() before each change of a file in this process, and between the halves of each write."""

    class Halves(io.FileIO):
        def write(self, data: Any, /) -> int:
            half = len(data) // 2
            super().write(data[:half])
            count()
            return half + super().write(data[half:])

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            count()
            return call(*arguments, **options)

        return run

    for name in ("open", "fsync", "replace", "unlink", "mkdir", "chmod"):
        setattr(os, name, counted(getattr(os, name)))
    os.fdopen = lambda fd, mode: Halves(fd, mode)  # type: ignore[assignment]


def roster(place: Place) -> dict[str, tuple[str, str]]:
    lines = (
        (place.out / ROSTER).read_text().splitlines()
        if (place.out / ROSTER).exists()
        else ["device_id,file,sha256"]
    )
    assert lines[0] == "device_id,file,sha256"
    rows = {device: (name, digest) for device, name, digest in (line.split(",") for line in lines[1:])}
    assert len(rows) == len(lines) - 1
    return rows


def pages(place: Place) -> dict[str, bytes]:
    return {path.name.split(".")[0]: path.read_bytes() for path in place.out.glob("*.page.bin")}


def admitted(place: Place) -> Counter[str]:
    """Return how often the fleet's registers have each device."""
    if place.store is not None:
        return Counter(place.store.roster("home").keys())
    assert place.folder is not None
    credentials = [c for c in place.folder.journal().credentials if c.kind == "device"]
    ids = Counter(c.name for c in credentials)
    if place.login:
        lines = (place.folder.path / "broker/passwords").read_text()
        assert set(mosquitto.parse_passwords(lines)) >= set(ids)
    return ids


def check_consistent(place: Place) -> None:
    """Check that each page is whole, and belongs to a device that the fleet admits with these keys."""
    registered = admitted(place)
    assert set(registered.values()) <= {1}
    for device, page in pages(place).items():
        assert registered[device] == 1
        if place.folder is not None:
            settings = load_settings(place.folder.path / DEVICES / f"{device}.settings.json")
        else:
            settings = provision_device(FLEET_KEYS, "home", device, NETWORK)
        assert page == file_content(settings, Firmware.PAGE)
        assert settings.device_id == device
    for device, (name, digest) in roster(place).items():
        assert hashlib.sha256((place.out / name).read_bytes()).hexdigest() == digest
        assert name == file_name(device, Firmware.PAGE)
    users = [] if place.folder is None else list((place.folder.path / "broker").glob("*/users.conf"))
    assert all(path.read_text().count(f":{device}:") == 1 for path in users for device in pages(place))


def check_finished(place: Place, count: int = COUNT) -> None:
    check_consistent(place)
    assert len(roster(place)) == len(pages(place)) == count
    assert set(admitted(place)) == set(roster(place))
    state = json.loads((place.out / STATE).read_text())
    assert state["pending"] == []
    files = list(place.out.iterdir())
    assert {path.name for path in files} == {STATE, ROSTER, *(name for name, _ in roster(place).values())}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(place.out.stat().st_mode) == 0o700
    text = (place.out / ROSTER).read_text() + (place.out / STATE).read_text()
    for page in pages(place).values():
        assert page[page.index(b"\x03\x00\x20") + 3 :][:32].hex() not in text  # the key


class TestBatch:
    def test_makes_different_devices(self, fresh: Fresh):
        place = fresh()
        assert place.make() == batch.BatchResult(COUNT, COUNT)
        check_finished(place)
        assert len(set(pages(place).values())) == COUNT
        before = {path.name: path.read_bytes() for path in place.out.iterdir()}
        assert place.make() == batch.BatchResult(COUNT, 0)
        assert {path.name: path.read_bytes() for path in place.out.iterdir()} == before

    def test_larger_count_continues_the_batch(self, fresh: Fresh):
        place = fresh()
        place.make(first="a-09")
        assert set(roster(place)) == {"a-09", "a-10", "a-11"}
        assert place.make(first="a-09", count=5) == batch.BatchResult(5, 2)
        assert set(roster(place)) == {"a-09", "a-10", "a-11", "a-12", "a-13"}
        check_finished(place, 5)
        with fails("has 5 devices already: give that --count or more, or another --out", ProvisionError):
            place.make(first="a-09", count=4)

    @pytest.mark.parametrize("delimiter", [",", ";"])
    def test_keeps_what_people_add_to_the_roster(self, delimiter: str, tmp_path: Path):
        """As a spreadsheet in Windows stores it, with a column and a note in another encoding."""
        place = Place(None, None, tmp_path / "out")
        place.make(first="7", count=3)
        path = place.out / ROSTER
        lines = path.read_text().replace(",", delimiter).splitlines()
        notes = [b"board", b"B1", b'"K\xfcche, oben"', b""]
        rows = [line.encode() + delimiter.encode() + note for line, note in zip(lines, notes, strict=True)]
        edited = b"\xef\xbb\xbf" + b"\r\n".join(rows)
        path.write_bytes(edited)
        assert place.make(first="7", count=4) == batch.BatchResult(4, 1)
        assert path.read_bytes().startswith(edited + f"\n10{delimiter}10.page.bin{delimiter}".encode())
        assert place.make(first="7", count=4) == batch.BatchResult(4, 0)

    def test_refuses_ids_that_a_spreadsheet_changed(self, tmp_path: Path):
        place = Place(None, None, tmp_path / "out")
        place.make(first="007", count=2)
        path = place.out / ROSTER
        path.write_text(path.read_text().replace("\n007,", "\n7,"))
        with fails("roster.csv is damaged: restore it", ProvisionError):
            place.make(first="007", count=3)

    def test_never_uses_an_id_twice(self, fresh: Fresh):
        place = fresh()
        place.make(first="a-1")
        for first in ("a-1", "a-0", "a-3"):
            other = replace(place, out=place.out.with_name("other"))
            with fails("device a-[13] of fleet home already exists: give another --first", ProvisionError):
                other.make(first=first)
            assert not other.out.exists()

    def test_never_uses_the_id_of_a_batch_beside_it(self, tmp_path: Path):
        place = Place(None, None, tmp_path / "out")
        place.make(first="a-08", count=3)
        other = replace(place, out=tmp_path / "other")
        for first in ("a-08", "a-10", "a-06"):
            with fails("device a-(08|10) of fleet home is in .*/out: give another --first", ProvisionError):
                other.make(first=first)
            assert not other.out.exists()
        other.make(first="a-11")
        with fails("device a-11 of fleet home is in .*/other", ProvisionError):
            place.make(first="a-08", count=4)
        assert replace(place, out=tmp_path / "lab").make(first="a-08", fleet="lab").new == COUNT

    def test_runs_at_the_same_time_never_share_an_id(self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch):
        """The second run starts in another place when the first one has checked its ids."""
        place = fresh()
        (place.out.parent / "elsewhere").mkdir()
        other, make = replace(place, out=place.out.parent / "elsewhere/out"), Batch.make

        def make_twice(self: Batch, devices: Any, now: Any) -> Any:
            monkeypatch.setattr(Batch, "make", make)
            other.make(first="a-1")
            return make(self, devices, now)

        monkeypatch.setattr(Batch, "make", make_twice)
        with fails("device a-1( of fleet home)? already exists", Exception):
            place.make(first="a-1")
        check_finished(other)
        assert not pages(place)

    @pytest.mark.slow
    def test_survives_a_kill_at_every_step(self, fresh: Fresh):
        for step in range(2000):
            place = fresh()
            first = None if place.login or place.store else "line-098"

            def act(count: Callable[..., None], place: Place = place, first: str | None = first) -> None:
                steps_of(count)
                place.make(first=first)

            if not kill_at(step, act):
                break
            check_consistent(place)
            before, listed = pages(place), roster(place)
            place.make(first=first)
            check_finished(place)
            assert before.items() <= pages(place).items()
            assert listed.items() <= roster(place).items()
            if first:
                assert set(roster(place)) == {"line-098", "line-099", "line-100"}
        else:
            raise AssertionError("it does not end")
        assert step > 40

    @pytest.mark.slow
    def test_full_disk_gives_one_line_and_continues(self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch):
        if fresh().store is not None:
            pytest.skip("SQLite writes with functions of its own")
        for step in range(0, 2000, 3):
            place, left = fresh(), step

            def count() -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise OSError(errno.ENOSPC, "No space left on device")

            with monkeypatch.context() as patch:
                for name in ("open", "fsync", "replace", "unlink", "mkdir", "chmod", "fdopen"):
                    patch.setattr(os, name, getattr(os, name))
                steps_of(count)
                try:
                    place.make()
                    break
                except ProvisionError as e:
                    message = str(e)
            assert "\n" not in message
            assert "No space left on device" in message
            check_consistent(place)
            place.make()
            check_finished(place)
        else:
            raise AssertionError("it does not end")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Provide a place of a keyed fleet without a folder."""
    return Place(None, None, tmp_path / "out")


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"fleet": "other"}, "was started with --fleet home: give the same again, or another --out"),
            ({"target": Firmware.NVS}, "was started with --for page: give the same again"),
            ({"first": "a-1"}, "was started without --first: give the same again"),
            (
                {"network": Network(mqtt_host="b")},
                "was started with another network, other keys or other options",
            ),
            ({"fleet_keys": None}, "was started with another network, other keys or other options"),
            ({"count": 0}, "--count must be 1 to 1,000,000"),
            ({"first": "line"}, "--first line: must end in digits, as in line-0001"),
            ({"first": "Line-1"}, "device"),
            ({"first": "a" * 31 + "9", "count": 99}, "device"),
            ({"network": Network(mqtt_host="a b")}, "mqtt_host must be host or host:port"),
            ({"network": Network(mqtt_host=",".join(["b"] * 2000))}, "but a page has 4,096"),
        ],
    )
    def test_wrong_value_changes_nothing(self, place: Place, changes: dict[str, Any], message: str):
        place.make()
        before = {path.name: path.read_bytes() for path in place.out.iterdir()}
        with pytest.raises(Exception, match=message) as caught:
            place.make(**changes)
        assert "\n" not in str(caught.value)
        assert {path.name: path.read_bytes() for path in place.out.iterdir()} == before

    def test_other_files_are_left_alone(self, place: Place):
        place.out.mkdir()
        (place.out / "thesis.txt").write_text("years of work")
        with fails("contains other files, not a batch to continue", ProvisionError):
            place.make()
        assert [path.name for path in place.out.iterdir()] == ["thesis.txt"]

    @pytest.mark.parametrize("name", [STATE, ROSTER])
    def test_damaged_state_is_refused(self, place: Place, name: str):
        place.make()
        for content in (b"", b"{", b"[]", b"device_id,file\n", b"\xff"):
            (place.out / name).write_bytes(content)
            with fails(f"{name} is damaged: restore it from a backup", ProvisionError):
                place.make()

    def test_two_commands_do_not_write_one_folder(self, place: Place):
        place.make()
        message = "another command is writing .*: wait until it has ended"
        with private_file.locked(place.out, wait=False), fails(message, ProvisionError):
            place.make()
        place.make()

    def test_revoked_id_is_refused(self, tmp_path: Path):
        folder = fleet_folder.make(tmp_path / "fleet", FleetSpec("home", ("broker",)), write_master=True)
        folder.revoke(["a-2"], now_utc())
        with fails("device a-2 of fleet home already exists", ProvisionError):
            Place(folder, None, tmp_path / "out").make(first="a-1")
