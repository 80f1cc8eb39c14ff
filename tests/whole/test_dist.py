"""The first commands of each registry's users work with the files in dist/, and nothing else of the clone.

HUSHMOTE_DIST names a folder that `make release` wrote; without it, one is built. Each way ends in a report
for the same experiment if this machine can run it, and is otherwise compiled against models of the headers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from c_core import needs_gcc
from c_packages import build_sketch, check_port
from esphome_host import esphome, needs_esphome
from experiments import experiment_json
from flashing import Bench, on_board
from mip_site import install, serve_packages
from npm_packages import npm_file
from run_once import once

from hushmote._version import VERSION
from hushmote.device.ldp_client import Experiment
from hushmote.server.wire.report import decode

ROOT = Path(__file__).parents[2]
PAYLOAD = experiment_json(
    name="door", type="bool", mechanism="rr", epsilon=1_000_000, budget={"rule": "sum", "cap": 4_000_000}
)
NO_INDEX = "connection broken by"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is built from a git clone"),
]

PYTHON_BOARD = """
from hushmote.device.ldp_client import Client, provision
policy = {"sum": 8_000_000, "squares": 0, "epsilon": 1_000_000, "rules": ("sum",), "experiments": ("door",)}
provision("ldp", consent=True)
client = Client(policy, "ldp", device_id="desk")
with open("experiment.json", "rb") as f:
    client.enroll(f.read())
print(client.report("door", True).hex())
"""
MICROPYTHON_BOARD = (
    PYTHON_BOARD.replace("hushmote.device.", "")
    .replace('"ldp"', '"/ldp"')
    .replace(
        'with open("experiment.json", "rb") as f:\n    client.enroll(f.read())', "client.enroll(PAYLOAD)"
    )
)
JAVASCRIPT = """
import { readFile } from 'node:fs/promises';
import { Client } from 'hushmote';
import { Folder } from 'hushmote/folder';

const storage = new Folder('ledger');
const policy = { sum: 8_000_000, squares: 0, epsilon: 1_000_000, rules: ['sum'], experiments: ['door'] };
await Client.provision(storage, { consent: true, deviceId: 'desk' });
const client = await Client.open({ policy, storage });
await client.enroll(await readFile('experiment.json'));
console.log(Buffer.from(await client.report('door', true)).toString('hex'));
"""
TYPESCRIPT = """
import { Client, type Policy, type Status } from 'hushmote';
import { Database } from 'hushmote/database';
import { Door } from 'hushmote/door';
import 'hushmote/sw';

const policy: Policy = { sum: SUM, squares: 0, epsilon: 1_000_000, rules: ['sum'], experiments: ['door'] };
const client = await Client.open({ policy, storage: new Database('mine'), fleet: 'home' });
const door = new Door(client, 'https://door.example');
await door.enroll(policy.experiments);
const report: Uint8Array | null = await client.report('door', true);
const status: Status = await client.status();
console.log(report?.length, status.experiments['door']?.left);
"""
TSC = ("--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom", "--module", "nodenext")
C_PROGRAM = """
#include <hushmote.h>
#include <stdio.h>
#include <string.h>

static uint8_t slots[2][256];
static size_t lengths[2];

static long read_slot(void *context, int slot, uint8_t *data, size_t bytes) {
    (void)context;
    memcpy(data, slots[slot], lengths[slot] < bytes ? lengths[slot] : bytes);
    return (long)lengths[slot];
}

static int write_slot(void *context, int slot, const uint8_t *data, size_t bytes) {
    (void)context;
    memcpy(slots[slot], data, bytes);
    lengths[slot] = bytes;
    return 0;
}

static int entropy(void *context, uint8_t *data, size_t bytes) {
    FILE *file = fopen("/dev/urandom", "rb");
    size_t count = fread(data, 1, bytes, file);
    (void)context;
    fclose(file);
    return count == bytes ? 0 : -1;
}

HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, false, "door");

static struct hushmote_experiment experiments[1];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(1, 4)];
static struct hushmote client;

int main(void) {
    struct hushmote_config config = {0};
    uint8_t payload[1024], report[HUSHMOTE_REPORT_BYTES];
    FILE *file = fopen("experiment.json", "rb");
    size_t bytes = fread(payload, 1, sizeof payload, file);
    int length;
    config.read = read_slot;
    config.write = write_slot;
    config.entropy = entropy;
    config.policy = &policy;
    config.device_id = "desk";
    config.experiments = experiments;
    config.records = records;
    config.record_bytes = sizeof records / 2;
    config.unsent_max = 4;
    if (hushmote_provision(&config, false, HUSHMOTE_YES) != HUSHMOTE_OK ||
        hushmote_begin(&client, &config) != HUSHMOTE_OK ||
        hushmote_enroll(&client, payload, bytes) != HUSHMOTE_OK)
        return 1;
    length = hushmote_report(&client, "door", hushmote_flag(true), report);
    for (int i = 0; i < length; i++)
        printf("%02x", report[i]);
    puts("");
    return 0;
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(firmware C)
find_package(hushmote VERSION REQUIRED)
add_executable(firmware main.c)
target_link_libraries(firmware hushmote::hushmote)
"""
# Stands for ESP-IDF's and Zephyr's build systems, and writes down what a package asks them to compile.
BUILD_SYSTEM = """
cmake_minimum_required(VERSION 3.16)
project(firmware C)
function(note name)
    foreach(path ${ARGN})
        get_filename_component(path "${path}" ABSOLUTE)
        file(APPEND ${CMAKE_BINARY_DIR}/${name} "${path}\\n")
    endforeach()
endfunction()
function(idf_component_register)
    cmake_parse_arguments(component "" "" "SRCS;INCLUDE_DIRS;REQUIRES" ${ARGN})
    note(sources ${component_SRCS})
    note(folders ${component_INCLUDE_DIRS})
endfunction()
function(zephyr_library_named)
endfunction()
function(zephyr_library_sources)
    note(sources ${ARGN})
endfunction()
function(zephyr_include_directories)
    note(folders ${ARGN})
endfunction()
foreach(setting ${SETTINGS})
    set(${setting} 1)
endforeach()
add_subdirectory(${PACKAGE} package)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide dist/."""
    if folder := os.environ.get("HUSHMOTE_DIST"):
        return Path(folder).resolve()

    def make(folder: Path) -> None:
        command = [sys.executable, "tools/make_release.py", "--no-validation", "--dist", folder]
        run(command, ROOT)

    return once(tmp_path_factory, "dist", make)


@pytest.fixture
def mirror(dist: Path, tmp_path: Path) -> Path:
    """Provide a copy of hushmote-embedded."""
    return Path(shutil.copytree(dist / "hushmote-embedded", tmp_path / "hushmote-embedded"))


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Provide an empty folder with the experiment."""
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "experiment.json").write_bytes(PAYLOAD)
    return tmp_path / "desk"


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command without the clone on any path, and return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_report(output: str) -> None:
    """Check that a program printed a report for the experiment, in hex."""
    report = decode(bytes.fromhex(output.strip()))
    assert (report.digest, report.number) == (Experiment.parse(PAYLOAD).digest, 1)
    assert report.code in (b"\0", b"\1")


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive as its registry's client would, and return the folder."""
    if archive.suffix == ".zip":
        shutil.unpack_archive(archive, folder)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


def make_environment(folder: Path, *pips: Sequence[str | Path]) -> Path:
    """Make an empty environment, run pip with each of these arguments, and return its folder of scripts."""
    run([sys.executable, "-m", "venv", "venv"], folder)
    scripts = folder / "venv" / "bin"
    for arguments in pips:
        pip = [scripts / "pip", "--disable-pip-version-check", "--quiet", *arguments]
        done = subprocess.run(pip, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode and NO_INDEX in done.stderr:
            pytest.skip("pip cannot reach a package index")
        assert done.returncode == 0, done.stdout + done.stderr
    return scripts


class TestPip:
    def test_wheel_plans_and_reports_in_empty_environment(self, dist: Path, desk: Path):
        (wheel,) = dist.glob("hushmote-*.whl")
        scripts = make_environment(desk, ["install", "--no-compile", wheel])
        assert VERSION in run([scripts / "hushmote", "--version"], desk)
        question = ["--devices", "5000", "--epsilon", "2", "--values", "yes-no", "--share", "0.2"]
        assert "±1.62 points" in run([scripts / "hushmote", "plan", *question], desk)
        check_report(run([scripts / "python", "-c", PYTHON_BOARD], desk))

    @pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the images have Python 3.11")
    @pytest.mark.parametrize(
        ("archive", "locked"),
        [("container", "locks/container.txt"), ("home-assistant", "hushmote/requirements.txt")],
    )
    def test_image_has_all_that_the_wheel_needs(self, archive: str, locked: str, dist: Path, desk: Path):
        """Run what the image's build would run, without a container engine."""
        packed = dist / f"hushmote-{archive}-{VERSION}.tar.gz"
        if not packed.exists():
            pytest.skip(f"there is no {packed.name}")
        context = unpack(packed, desk) / packed.name.removesuffix(".tar.gz")
        (wheel,) = dist.glob("hushmote-*.whl")
        pinned = ["--require-hashes", "--only-binary", ":all:", "--requirement", context / locked]
        scripts = make_environment(
            desk,
            ["install", "--no-compile", *pinned],
            ["install", "--no-compile", "--no-deps", wheel],
            ["check"],
        )
        assert VERSION in run([scripts / "hushmote", "--version"], desk)
        for command in ("serve", "page", "door"):
            run([scripts / "hushmote", command, "--help"], desk)


@pytest.mark.micropython  # Node.js
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
class TestNpm:
    @pytest.fixture
    def project(self, dist: Path, desk: Path) -> Path:
        (desk / "package.json").write_text('{"type": "module"}')
        run(
            ["npm", "install", "--offline", "--no-audit", "--no-fund", dist / f"hushmote-{VERSION}.tgz"], desk
        )
        return desk

    def test_esm_import_reports(self, project: Path):
        (project / "main.js").write_text(JAVASCRIPT)
        check_report(run(["node", "main.js"], project))

    def test_types_check(self, project: Path):
        tsc = npm_file("typescript/bin/tsc")
        (project / "main.ts").write_text(TYPESCRIPT.replace("SUM", "8_000_000"))
        run(["node", tsc, *TSC, "main.ts"], project)
        (project / "main.ts").write_text(TYPESCRIPT.replace("SUM", "'8'"))
        with pytest.raises(AssertionError, match="Type 'string' is not assignable to type 'number'"):
            run(["node", tsc, *TSC, "main.ts"], project)


def requested(package: Path, folder: Path, *settings: str) -> tuple[list[Path], list[Path]]:
    """Return the sources and the folders of headers that a package asks ESP-IDF or Zephyr to compile."""
    (folder / "CMakeLists.txt").write_text(BUILD_SYSTEM)
    run(["cmake", "-B", "build", f"-DPACKAGE={package}", f"-DSETTINGS={';'.join(settings)}"], folder)
    sources, folders = (
        [Path(line) for line in (folder / "build" / name).read_text().splitlines()]
        for name in ("sources", "folders")
    )
    assert len(sources) > 20
    return sources, folders


@needs_gcc
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
class TestC:
    def test_cmake_finds_installed_package(self, mirror: Path, desk: Path):
        (desk / "main.c").write_text(C_PROGRAM)
        (desk / "CMakeLists.txt").write_text(CMAKE.replace("hushmote VERSION", f"hushmote {VERSION}"))
        run(["cmake", "-S", mirror, "-B", "library", f"-DCMAKE_INSTALL_PREFIX={desk}/installed"], desk)
        run(["cmake", "--build", "library"], desk)
        run(["cmake", "--install", "library"], desk)
        shutil.rmtree(mirror)  # nothing refers to it any more
        run(["cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={desk}/installed"], desk)
        run(["cmake", "--build", "build"], desk)
        check_report(run(["build/firmware"], desk))

    def test_platformio_sources_make_a_native_program(self, dist: Path, desk: Path):
        """Compile what library.json lists as PlatformIO's native platform does, without a framework."""
        package = unpack(dist / f"hushmote-platformio-{VERSION}.tar.gz", desk / "package")
        build = json.loads((package / "library.json").read_text())["build"]
        (desk / "main.c").write_text(C_PROGRAM)
        include, sources = package / build["includeDir"], package / build["srcDir"]
        assert list(sources.glob("*.cpp"))
        for path in (desk / "main.c", *sources.glob("*.c*")):
            run(
                ["g++" if path.suffix == ".cpp" else "gcc", "-Wall", "-Werror", f"-I{include}", "-c", path],
                desk,
            )
        run(["g++", "-o", "program", *desk.glob("*.o")], desk)
        check_report(run(["./program"], desk))

    @pytest.mark.parametrize("origin", ["archive", "mirror"])
    def test_esp_idf_compiles_component(self, origin: str, dist: Path, mirror: Path, desk: Path):
        package = mirror
        if origin == "archive":
            package = unpack(dist / f"hushmote-esp-idf-{VERSION}.tgz", desk / "components" / "hushmote")
        sources, folders = requested(package, desk, "ESP_PLATFORM")
        if not Path("/usr/include/psa/crypto.h").exists():  # libmbedtls-dev
            sources = [path for path in sources if path.parent.name != "psa"]
        check_port("idf", [*sources, package / "examples" / "esp_idf" / "main" / "main.c"], *folders)

    def test_zephyr_compiles_module(self, mirror: Path, desk: Path):
        settings = ("CONFIG_HUSHMOTE", "CONFIG_FLASH_MAP", "CONFIG_FLASH_PAGE_LAYOUT")
        build = yaml.safe_load((mirror / "zephyr" / "module.yml").read_text())["build"]
        sources, folders = requested(mirror / build["cmake"], desk, *settings)
        assert "zephyr_mount.c" in {path.name for path in sources}
        check_port("zephyr", [*sources, mirror / "examples" / "zephyr" / "src" / "main.c"], *folders)

    @pytest.mark.parametrize("origin", ["archive", "mirror"])
    def test_arduino_compiles_sketch(self, origin: str, dist: Path, mirror: Path, desk: Path):
        library = mirror
        if origin == "archive":
            library = unpack(dist / f"hushmote-arduino-{VERSION}.zip", desk) / "Hushmote"
        assert build_sketch(library, desk).exists()


@pytest.mark.skipif(shutil.which("pio") is None, reason="PlatformIO is not installed")
def test_platformio_builds_natively(dist: Path, desk: Path):
    core = Path(os.environ.get("PLATFORMIO_CORE_DIR", Path.home() / ".platformio"))
    if not (core / "platforms" / "native").exists():
        pytest.skip("PlatformIO's platform native is not installed: pio pkg install --global -p native")
    archive = dist / f"hushmote-platformio-{VERSION}.tar.gz"
    (desk / "src").mkdir()
    (desk / "src" / "main.c").write_text(C_PROGRAM)
    (desk / "platformio.ini").write_text(f"[env:native]\nplatform = native\nlib_deps = file://{archive}\n")
    run(["pio", "run"], desk)
    check_report(run([".pio/build/native/program"], desk))


def test_mpremote_installs_from_web_server(dist: Path, bench: Bench, tmp_path: Path):
    shutil.copytree(dist / "mip", tmp_path / "site" / "package")
    with bench.board() as board, serve_packages(tmp_path / "site") as address:
        install(board.port, address)
        check_report(on_board(board, f"PAYLOAD = {PAYLOAD!r}\n{MICROPYTHON_BOARD}"))
        on_board(board, "import mqtt_reporter, kept_experiments, health")


@needs_esphome
def test_esphome_accepts_mirror_as_source(mirror: Path, desk: Path):
    example = (mirror / "examples" / "esphome" / "example.yaml").read_text()
    example, count = re.subn(r"source: github://\S+", f"source: {mirror / 'components'}", example)
    assert count == 1
    (desk / "desk.yaml").write_text(example)
    (desk / "secrets.yaml").write_text("wifi_ssid: any\nwifi_password: any_password\n")
    (desk / "hushmote").mkdir()
    identity = "fleet: home\ndevice_id: desk\nbroker: 127.0.0.1\n"
    (desk / "hushmote" / "desk.esphome.yaml").write_text(identity)
    assert "Configuration is valid!" in esphome("config", "desk.yaml", folder=desk)


def test_container_context_has_everything_it_copies(dist: Path, tmp_path: Path):
    unpack(dist / f"hushmote-container-{VERSION}.tar.gz", tmp_path)
    context = tmp_path / f"hushmote-container-{VERSION}"
    lines = re.findall(
        r"^COPY (?!--from)(.*)$", (context / "deploy" / "Containerfile").read_text(), re.MULTILINE
    )
    names = [name for line in lines for name in line.split()[:-1]]
    assert any(name.endswith(".whl") for name in names)
    assert [name for name in names if not (context / name).exists()] == []


def test_checksums_match(dist: Path):
    if shutil.which("sha256sum") is None:
        pytest.skip("sha256sum is not installed")
    run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], dist)
