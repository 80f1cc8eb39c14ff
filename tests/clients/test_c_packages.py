"""The C client's packages: their contents, and their ports as far as this machine can build them.

The Arduino port runs if HUSHMOTE_ARDUINO names a folder with ArduinoCore-API and the MQTT library as
arduino-mqtt. test_c_storage.py and test_c_blocking.py run the ESP-IDF and Zephyr ports on models;
clients/c/packages.md has the commands for machines with these SDKs.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from boards import experiment, payload_of
from c_core import CORE, needs_gcc
from c_packages import WARNINGS, build_sketch, check_port
from experiments import number_json
from running_aggregator import WAIT_S, running, until

from hushmote._version import VERSION
from hushmote.fleet.provisioning.firmware import PAGE_BYTES, Firmware, file_content
from hushmote.fleet.provisioning.settings import DeviceSettings
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

pytestmark = needs_gcc
ROOT = Path(__file__).parents[2]
PROGRAMS = {"check.c", "fuzz.c"}
SOURCES = {path.name for path in CORE.glob("*.c")} - PROGRAMS
PICO_FLASH_BYTES = 2 * 1024 * 1024
PICO_SDK = Path(os.environ.get("PICO_SDK_PATH", ROOT / ".rig/pico/src/debian/usr/src/pico-sdk"))
EXPERIMENT = experiment(bins=4, epsilon=1_000_000, budget={"rule": "sum", "cap": 30_000_000})


class TestPackages:
    def test_contain_all_sources_and_share_a_version(self):
        cmake = (CORE / "CMakeLists.txt").read_text()
        listed = re.search(r"set\(hushmote_sources([^)]*)\)", cmake)
        assert listed
        assert set(listed[1].split()) == SOURCES
        library = json.loads((CORE / "library.json").read_text())
        assert library["build"]["srcFilter"] == ["+<*.c>", "-<check.c>", "-<fuzz.c>", "+<arduino/*.cpp>"]
        assert set(library["export"]["exclude"]) == PROGRAMS
        packed = runpy.run_path(str(CORE / "arduino" / "pack.py"))["files"]()
        assert {Path(name).name for name in packed if name.endswith(".c")} == SOURCES
        required = {
            "src/hushmote.h",
            "src/hushmote_arduino.cpp",
            "library.properties",
            "LICENSE",
            "examples/Room/Room.ino",
        }
        assert required <= packed.keys()
        component = yaml.safe_load((CORE / "idf_component.yml").read_text())
        assert set(component["files"]["exclude"]) >= PROGRAMS
        properties = dict(re.findall(r"(\w+)=(.*)", (CORE / "arduino" / "library.properties").read_text()))
        module = yaml.safe_load((CORE / "zephyr" / "module.yml").read_text())
        assert module["security"]["external-references"] == [f"pkg:generic/hushmote-c@{VERSION}"]
        project = re.search(r"project\(hushmote VERSION (\S+)", cmake)
        assert project
        header = (CORE / "hushmote.h").read_text()
        macro = re.search(
            r'#define HUSHMOTE_VERSION "(.*)"\n#define HUSHMOTE_VERSION_NUMBER (0x\w{6}) ', header
        )
        assert macro
        versions = {library["version"], component["version"], properties["version"], project[1], macro[1]}
        assert versions == {VERSION}
        assert list(int(macro[2], 16).to_bytes(3, "big")) == [int(part) for part in VERSION.split(".")]

    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
    def test_link_from_a_cmake_project(self, tmp_path: Path):
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(firmware C)\n"
            f"add_subdirectory({CORE} hushmote)\nadd_executable(firmware main.c)\n"
            "target_link_libraries(firmware hushmote)\n"
        )
        (tmp_path / "main.c").write_text(
            "#include <hushmote.h>\n#include <stdio.h>\n"
            "int main(void) { return puts(hushmote_text(0)) < 0; }\n"
        )
        for command in (
            ["cmake", "-S", ".", "-B", "build"],
            ["cmake", "--build", "build"],
            ["build/firmware"],
        ):
            subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


@pytest.fixture(scope="module")
def arduino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a sketch as a program for this machine."""
    folder = tmp_path_factory.mktemp("arduino")
    subprocess.run(["python3", CORE / "arduino" / "pack.py", "library.zip"], cwd=folder, check=True)
    shutil.unpack_archive(folder / "library.zip", folder)
    return build_sketch(folder / "Hushmote", folder)


class Board:
    def __init__(self, program: Path, folder: Path, port: int, page: Path | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self._log = folder / "log"
        environment = {"BOARD_PORT": str(port), "BOARD_FOLDER": str(folder)}
        environment |= {} if page is None else {"BOARD_PAGE": str(page)}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [program], env=environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )

    def type(self, text: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.log(), self.log)

    def log(self) -> str:
        assert self._process.poll() is None, self._log.read_text()
        return self._log.read_text()

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)


@contextlib.contextmanager
def run_aggregator(folder: Path, broker: MosquittoBroker) -> Iterator[Store]:
    with Store(f"sqlite:///{folder}/store.sqlite") as store:
        store.add_fleet("open", keyed=False)
        store.add_experiment("open", payload_of(EXPERIMENT))
        with running(store, broker):
            yield store


def count_reports(store: Store) -> int:
    return int(store.histogram("open", EXPERIMENT.digest).sum())


def take_packets(connection: socket.socket, closes: bool) -> None:
    """Act as a broker that waits 0.4 s before each PUBACK, or closes at the first report."""
    stream = connection.makefile("rb")
    payload = payload_of(EXPERIMENT)
    topic = b"hushmote/v1/open/experiment/" + EXPERIMENT.name.encode()
    while first := stream.read(1):
        length = shift = 0
        while (byte := stream.read(1)[0]) >= 128:
            length |= (byte & 127) << shift
            shift += 7
        body = stream.read(length | byte << shift)
        if first[0] >> 4 == 1:
            connection.sendall(b"\x20\x02\0\0")
        elif first[0] >> 4 == 8:
            connection.sendall(b"\x90\x03" + body[:2] + b"\0")
            size = 2 + len(topic) + len(payload)
            head = bytes([0x30, size & 127 | 128, size >> 7, 0, len(topic)])
            connection.sendall(head + topic + payload)
        elif first[0] >> 4 == 3:
            if closes and b"/report/" in body:
                return
            time.sleep(0.4)
            at = 2 + int.from_bytes(body[:2], "big")
            connection.sendall(b"\x40\x02" + body[at : at + 2])


class TestArduino:
    def test_reports_through_outage_until_cap(self, arduino: Path, tmp_path: Path):
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker) as store:
            (tmp_path / "flash").mkdir()
            (tmp_path / "flash" / "broken").touch()
            with Board(arduino, tmp_path / "flash", broker.port) as board:
                board.type("y")
                board.wait_for("no file system")
                board.wait_for("another call")
                assert "formatted" not in board.log()
                board.type("py")
                until(lambda: count_reports(store) >= 1, board.log)
                broker.terminate()
                board.wait_for(", 8 waiting")
                broker.start()
                until(lambda: count_reports(store) == 30, board.log)
                board.wait_for("spent 30, 0 waiting")
                board.type("we")
                board.wait_for("A report costs epsilon 1; 0 more reports left.")
                board.wait_for("]}\n")
                (exported,) = re.findall(r"^{.*}$", board.log(), re.MULTILINE)
                assert len(json.loads(exported)["last"]) == 8
            with Board(arduino, tmp_path / "flash", broker.port) as board:
                board.type("bp")  # before begin() succeeds, the board does nothing
                board.wait_for("a ledger exists")
                board.wait_for("spent 30, 0 waiting")
                board.type("n")
                assert "formatted" not in board.log()
            assert count_reports(store) == 30

    def test_runs_with_the_identity_of_its_page(self, arduino: Path, tmp_path: Path):
        page = tmp_path / "b-1.page.bin"
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker) as store:
            network = {"mqtt_host": "127.0.0.1", "mqtt_port": broker.port}
            page.write_bytes(file_content(DeviceSettings("open", "b-1", **network), Firmware.PAGE))
            with Board(arduino, tmp_path / "flash", 1, page) as board:
                board.type("py")
                until(lambda: count_reports(store) >= 1, board.log)
            assert {device for device, *_ in store.accepted_numbers("open")} == {"b-1"}
            page.write_bytes(b"\xff" * PAGE_BYTES)
            with Board(arduino, tmp_path / "other", broker.port, page) as board:
                board.wait_for("no identity: flash this board's page")

    def test_polls_for_at_most_a_second(self, arduino: Path, tmp_path: Path):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve() -> None:
                for closes in (True, False):  # the board makes reports in the meantime
                    with contextlib.suppress(OSError), server.accept()[0] as connection:
                        take_packets(connection, closes)
                        connection.shutdown(socket.SHUT_RDWR)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            with Board(arduino, tmp_path / "flash", server.getsockname()[1]) as board:
                board.type("py")
                board.wait_for("spent 12")
                board.type("l")
                board.wait_for("longest poll")
                longest = int(re.findall(r"longest poll (\d+) ms", board.log())[-1])
                assert 400 <= longest < 1200
            thread.join(WAIT_S)


class TestPorts:
    @pytest.mark.parametrize("port", ["idf", "zephyr"])
    def test_compile_without_warnings(self, port: str):
        """The examples are only compiled, against headers that declare the documented functions."""
        sources = sorted((CORE / port).rglob("*.c"))
        assert len(sources) > 1
        assert any(path.name == "main.c" for path in sources)
        check_port(port, sources, CORE, CORE / port)

    @pytest.mark.skipif(
        not Path("/usr/include/psa/crypto.h").exists(), reason="libmbedtls-dev is not installed"
    )
    def test_psa_hashes_and_accepts_valid_signatures(self, tmp_path: Path):
        class Piece(ctypes.Structure):
            _fields_ = (("data", ctypes.c_char_p), ("bytes", ctypes.c_size_t))

        flags = ("-std=c99", *WARNINGS[:-1], "-shared", "-fPIC", f"-I{CORE}", f"-I{CORE / 'psa'}")
        library = tmp_path / "psa.so"
        subprocess.run(
            ["gcc", *flags, "-o", library, CORE / "psa" / "hushmote_psa.c", "-lmbedcrypto"], check=True
        )
        psa = ctypes.CDLL(str(library))
        psa.hushmote_psa_verify.restype = ctypes.c_bool
        # psa_crypto_init() was not called yet.
        assert psa.hushmote_psa_entropy(None, ctypes.create_string_buffer(8), 8) != 0
        assert psa.psa_crypto_init() == 0
        entropy = ctypes.create_string_buffer(32)
        assert psa.hushmote_psa_entropy(None, entropy, 32) == 0
        assert any(entropy.raw)
        accepted = refused = 0
        for case in json.loads((ROOT / "tests" / "vectors.json").read_text())["signatures"]:
            payload = bytes.fromhex(case["payload"])
            end = payload.find(b"\0")
            if end < 0 or len(payload) != end + 69:
                continue
            name = json.loads(payload[:end])["name"]
            topic = f"hushmote/v1/{case['fleet']}/experiment/{name}\0".encode()
            pieces = (Piece * 3)(
                Piece(topic, len(topic)), Piece(None, 0), Piece(payload[:-64], len(payload) - 64)
            )
            digest = ctypes.create_string_buffer(32)
            psa.hushmote_psa_sha256(None, pieces, 3, digest)
            is_valid = psa.hushmote_psa_verify(None, bytes.fromhex(case["key"]), digest, payload[-64:])
            if case["refused"] is None:
                assert is_valid
                accepted += 1
            elif "signature" in case["refused"]:
                assert not is_valid
                refused += 1
        assert (accepted > 0, refused > 0) == (True, True)

    @pytest.mark.micropython
    @pytest.mark.skipif(not (PICO_SDK / "pico_sdk_init.cmake").exists(), reason="no Pico SDK: `make pico`")
    @pytest.mark.skipif(
        shutil.which("arm-none-eabi-g++") is None, reason="arm-none-eabi-g++ is not installed"
    )
    def test_emulated_pico_reports_up_to_cap_across_restart(self, tmp_path: Path):
        environment = os.environ | {
            "PICO_SDK_PATH": str(PICO_SDK),
            "HUSHMOTE_PICO": str(ROOT / ".rig" / "pico"),
        }
        configure = [
            "cmake",
            "-S",
            CORE / "pico",
            "-B",
            tmp_path,
            "-DPICO_NO_PICOTOOL=1",
            "-DINTERVAL_MS=1000",
        ]
        for command in (configure, ["make", "-s", "-C", tmp_path, "room"]):
            subprocess.run(command, env=environment, check=True, capture_output=True)
        payload = number_json(16, name="room_temp", budget={"rule": "sum", "cap": 4_000_000}).decode()
        rig = ROOT / "firmware_tests" / "emulation" / "pico" / "run_serial.mjs"
        page = file_content(DeviceSettings("home", "k3f9x1"), Firmware.PAGE)
        program, at = (tmp_path / "room.bin").read_bytes(), PICO_FLASH_BYTES - 5 * PAGE_BYTES
        (tmp_path / "board.bin").write_bytes(program.ljust(at, b"\xff") + page)
        command = ["node", rig, tmp_path / "board.bin"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as chip:
            serial_in, serial_out = chip.stdin, chip.stdout
            assert serial_in
            assert serial_out

            def reports_until(prefix: str, count: int = 1) -> list[str]:
                """Read until `count` lines start with the prefix, and return the reports."""
                reports = []
                for line in itertools.islice(iter(serial_out.readline, ""), 300):
                    count -= line.startswith(prefix)
                    reports += [line[7:].strip()] * line.startswith("report ")
                    if not count:
                        return reports
                raise AssertionError(f"the board did not print {prefix}")

            def send(*lines: str) -> None:
                for line in lines:
                    serial_in.write(f"{line}\n")
                    serial_in.flush()
                    assert reports_until("well") == []

            assert reports_until("locked: no ledger") == []
            send("provision", payload)
            assert reports_until("silent", 4) == []
            send("yes")
            reports = reports_until("report", 4)
            assert [int(report[10:18], 16) for report in reports] == [1, 2, 3, 4]
            assert reports_until("silent", 3) == []
            send("restart")
            assert reports_until("silent") == reports  # none was acknowledged
            send(*["sent"] * 4, payload)
            assert reports_until("silent", 3) == []
            send("restart", payload)
            assert reports_until("silent", 3) == []
