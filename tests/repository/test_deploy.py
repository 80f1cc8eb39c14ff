"""The files in deploy/: the units pass systemd's checks, and their commands run as under systemd."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from boards import FLEET_KEYS, MASTER, ask_fleet, experiment
from certificates import Authority
from command_line import parse
from running_aggregator import WAIT_S, until
from serve_process import add_fleet, get, served
from traffic import crowd, publish

from hushmote.fleet.provisioning import master_key, nats
from hushmote.fleet.provisioning.fleet_spec import FleetSpec
from hushmote.fleet.provisioning.mosquitto import MAX_CONNECTIONS
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import MosquittoBroker, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
AGGREGATORS = ("hushmote.service", "hushmote@.service")
UNITS = (*AGGREGATORS, "hushmote-page.service", "hushmote-door.service", "hushmote-witness.service")
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def settings(unit: str) -> list[tuple[str, str]]:
    """Return a unit's (name, value) lines."""
    lines = (DEPLOY / unit).read_text().splitlines()
    split = [line.partition("=") for line in lines if not line.startswith("#")]
    return [(name, value) for name, equals, value in split if equals]


def verified(unit: Path) -> str:
    """Return systemd's output for a unit, which must have no errors."""
    command = ["systemd-analyze", "verify", "--man=no", unit]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stderr


BROKER = Path("/lib/systemd/system/mosquitto.service")


class TestUnits:
    @needs_systemd
    @pytest.mark.parametrize("unit", [*UNITS, "hushmote-nats@.service"])
    def test_systemd_finds_no_fault_and_little_exposure(self, unit, tmp_path):
        path = tmp_path / unit.replace("@", "@1")
        path.write_text(re.sub(r"/opt/hushmote/bin/[\w-]+", sys.executable, (DEPLOY / unit).read_text()))
        output = verified(path)
        assert path.name not in output  # warnings about the unit
        security = ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", path]
        assert subprocess.run(security, capture_output=True, check=False).returncode == 0  # 1.5 of 10

    def test_nats_unit_reads_provisioned_folder(self):
        unit = dict(settings("hushmote-nats@.service"))
        fleet = FleetSpec("home", ("a", "b", "c"), broker_folder=unit["ReadWritePaths"], broker="nats")
        command = unit["ExecStart"].replace("%i", "2")
        config = Path(command.split(" -c ")[1])
        assert f'store_dir: "{config.parent}/data"' in nats.nats_conf(fleet, 2)
        assert int(unit["LimitNOFILE"]) > MAX_CONNECTIONS

    @needs_systemd
    @pytest.mark.skipif(not BROKER.exists(), reason="Debian's mosquitto.service is not installed")
    def test_systemd_accepts_lines_for_mosquitto(self, tmp_path):
        unit, lines = tmp_path / BROKER.name, DEPLOY / "mosquitto-hushmote.conf"
        shutil.copy(BROKER, unit)
        (tmp_path / "mosquitto.service.d").mkdir()
        shutil.copy(lines, tmp_path / "mosquitto.service.d" / "hushmote.conf")
        assert verified(unit) == ""
        folder = "/etc/mosquitto/hushmote"
        assert f"ExecStart=/usr/sbin/mosquitto -c {folder}/mosquitto.conf\n" in lines.read_text()
        page = (DEPLOY.parent / "docs/run-it.md").read_text()
        assert f"--broker-folder {folder}\n" in page
        assert f"cp -r /root/home/broker/. {folder}/\n" in page

    @pytest.mark.parametrize("unit", AGGREGATORS)
    def test_command_counts_reports_over_tls(self, unit, tmp_path):
        ca, port, http = Authority(tmp_path), free_port(), free_port()
        certificate, key = ca.sign("aggregator_1")
        broker_pem, broker_key = ca.sign("broker", "localhost")
        files = {
            "ca.pem": ca.file.read_bytes(),
            "aggregator_1.pem": certificate.read_bytes() + key.read_bytes(),
            "master.key": master_key.to_text(FLEET_KEYS).encode(),
        }
        credentials = tmp_path / "credentials"
        credentials.mkdir()
        specifiers = {"%i": "1", "%d": str(credentials), "%S": str(tmp_path)}

        def expand(text):
            return re.sub("%[idS]", lambda unit_settings: specifiers[unit_settings[0]], text)

        unit_settings = settings(unit)
        for name, value in unit_settings:
            if name == "LoadCredential":
                to, _, source = expand(value).partition(":")
                (credentials / to).write_bytes(files[Path(source).name])
                (credentials / to).chmod(0o440)
        (tmp_path / "hushmote").mkdir()
        url = f"sqlite:///{tmp_path}/hushmote/hushmote.sqlite"
        environment = {"HUSHMOTE_STORE": url, "HUSHMOTE_SHARE": "group"} if "@" in unit else {}
        environment |= dict(
            expand(value).split("=", 1) for name, value in unit_settings if name == "Environment"
        )
        environment |= {
            "HUSHMOTE_BROKER": f"mqtts://localhost:{port}",
            "CREDENTIALS_DIRECTORY": str(credentials),
        }
        command = shlex.split(expand(dict(unit_settings)["ExecStart"]))
        assert command[:2] == ["/opt/hushmote/bin/hushmote", "serve"]
        index = command.index("--http") + 1
        assert command[index] in ("127.0.0.1:9417", "127.0.0.1:9411")
        command[index] = f"127.0.0.1:{http}"
        lines = (f"listener {port} 127.0.0.1", f"certfile {broker_pem}", f"keyfile {broker_key}")
        lines += (f"cafile {ca.file}", "require_certificate true", "allow_anonymous true")
        exp = experiment()
        messages = [
            (
                topics.report_topic("home", f"d{i}"),
                report.encode(exp, 1, i % 64, f"d{i}", keys.device_key(MASTER, "home", f"d{i}")),
            )
            for i in range(50)
        ]
        with Store(url) as store, MosquittoBroker(settings=lines) as broker:
            ask_fleet(store, "home", exp, keyed=True)
            with served(*command[2:], environment=environment) as process:
                process.ready()
                publish(broker, messages)
                until(lambda: store.histogram("home", exp.digest).sum() == 50, process.log)
                assert get(f"http://127.0.0.1:{http}/healthz")[0] == 200
                assert process.end() == 0
            assert all(json.loads(line) for line in process.log().splitlines())

    @pytest.mark.parametrize("unit", UNITS)
    def test_command_is_valid(self, unit):
        program, *command = shlex.split(dict(settings(unit))["ExecStart"])
        assert program == "/opt/hushmote/bin/hushmote"
        parse(command)
        # systemd loads every credential that a command names.
        variables = [value for name, value in settings(unit) if name == "Environment"]
        named = set(re.findall(r"%d/([\w.]+)", " ".join([*command, *variables])))
        assert named == {
            value.partition(":")[0] for name, value in settings(unit) if name == "LoadCredential"
        }

    @pytest.mark.slow
    def test_page_needs_token(self, tmp_path):
        unit_settings = settings("hushmote-page.service")
        (tmp_path / "page.token").write_text("0123456789abcdef\n")
        (tmp_path / "page.token").chmod(0o440)  # as systemd hands it over
        http = free_port()
        specifiers = {"%d": str(tmp_path), "%S": str(tmp_path), "%t": str(tmp_path)}
        text = re.sub("%[dSt]", lambda name: specifiers[name[0]], dict(unit_settings)["ExecStart"])
        assert ":9419" in text
        command = [sys.executable, "-m", *shlex.split(text.replace(":9419", f":{http}"))]
        command[2] = "hushmote"
        (tmp_path / "hushmote").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
        assigned = [
            re.sub("%[dSt]", lambda name: specifiers[name[0]], v)
            for n, v in unit_settings
            if n == "Environment"
        ]
        environment |= dict(value.split("=", 1) for value in assigned) | {
            "CREDENTIALS_DIRECTORY": str(tmp_path)
        }
        with Store(environment["HUSHMOTE_STORE"]) as store:
            add_fleet(store)
        with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert str(http) in process.stdout.readline().decode()  # printed once it listens
                page = f"http://127.0.0.1:{http}"
                assert get(f"{page}/healthz")[0] == 200
                assert get(page)[0] == 401
                assert get(f"{page}/?token=not-this-one-either")[0] == 401
                process.terminate()
                assert process.wait(WAIT_S) == 0
            finally:
                process.kill()


def instructions() -> list[tuple[str, str]]:
    """Return the container file's (instruction, rest) pairs, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


class TestContainerfile:
    def test_copies_existing_files_and_runs_unprivileged(self):
        root = DEPLOY.parent
        steps = instructions()
        copied: set[str] = set()
        for name, rest in steps:
            if name == "COPY" and "--from" not in rest:
                assert all((root / source).exists() for source in rest.split()[:-1]), rest
                copied |= {source.removeprefix("./") for source in rest.split()[:-1]}
        packages = {path.parent.name for path in root.glob("*/__init__.py")} - {"tests", "firmware_tests"}
        assert copied >= packages | {"pyproject.toml", "setup.py"}
        users = [rest for name, rest in steps if name == "USER"]
        assert users == ["10001"]
        assert [name for name, _ in steps].index("USER") < [name for name, _ in steps].index("ENTRYPOINT")

    @pytest.mark.slow
    def test_copies_every_file_for_a_wheel(self, tmp_path):
        root, source = DEPLOY.parent, tmp_path / "source"
        board = runpy.run_path(str(root / "web/board/fetch.py"))
        if not board["is_installed"]() and shutil.which("npm") is None:
            pytest.skip("MicroPython for browsers is not fetched, and npm is not installed")
        board["fetch"]()
        for name, rest in instructions():
            if name == "COPY":
                *paths, to = rest.split()
                for path in paths:
                    target = source / to if (root / path).is_dir() else source / to / Path(path).name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    copy = shutil.copytree if (root / path).is_dir() else shutil.copy
                    copy(root / path, target)
        (step,) = (rest for name, rest in instructions() if name == "RUN" and rest.startswith("pip wheel "))
        command = [sys.executable, "-m", *step.replace("/wheels", str(tmp_path)).split()]
        tools = {"PATH": os.path.dirname(sys.executable)}  # no npm, as in the image
        build = subprocess.run(
            command, cwd=source, env=os.environ | tools, capture_output=True, text=True, check=False
        )
        assert build.returncode == 0, build.stdout + build.stderr
        (wheel,) = tmp_path.glob("hushmote-*.whl")
        with zipfile.ZipFile(wheel) as packed:
            # Files sent to browsers; the page does not start without its styles.
            kinds = {".css", ".html", ".js", ".mjs", ".wasm"}
            sent = {path.relative_to(root) for path in (root / "web").rglob("*") if path.suffix in kinds}
            assert Path("web/static/page.css") in sent
            assert {f"hushmote/{path}" for path in sent} <= set(packed.namelist())

    def test_command_runs_and_health_check_works(self, tmp_path):
        steps = dict(instructions())
        command = json.loads(steps["CMD"])
        assert [*json.loads(steps["ENTRYPOINT"]), *command[:1]] == ["hushmote", "serve"]
        check = json.loads(steps["HEALTHCHECK"].partition(" CMD ")[2])
        assert check[0] == "python"
        http = free_port()
        command = [part.replace("0.0.0.0:9417", f"127.0.0.1:{http}") for part in command]
        check = [part.replace(":9417", f":{http}") for part in check]

        def healthy():
            return (
                subprocess.run([sys.executable, *check[1:]], capture_output=True, check=False).returncode == 0
            )

        url = f"sqlite:///{tmp_path}/store.sqlite"
        with Store(url) as store, MosquittoBroker() as broker:
            add_fleet(store)
            environment = {"HUSHMOTE_BROKER": f"mqtt://127.0.0.1:{broker.port}", "HUSHMOTE_STORE": url}
            with served(*command[1:], environment=environment) as process:
                process.ready()
                publish(broker, crowd(5)[0])
                until(healthy, process.log)
                broker.stop()
                until(lambda: not healthy(), process.log)
            assert not healthy()
