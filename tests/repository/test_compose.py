"""deploy/compose.yaml: every container's limits, and its commands run as plain processes."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import psycopg
import pytest
import yaml
from command_line import hushmote, parse
from fleet_broker import context, visit
from postgres import Cluster
from running_aggregator import WAIT_S, until
from serve_process import get

from hushmote.fleet.provisioning import fleet_folder
from hushmote.fleet.provisioning.master_key import load_keys
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import find_mosquitto, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?([^}]*))?\}")
DIGEST = "ab" * 32
OURS = ("aggregator", "page")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to the containers' users")


def composed(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the file with its variables replaced as compose does."""
    values = environment or {"STATE": "/srv/hushmote"}
    text = VARIABLE.sub(lambda match: values.get(match[1], match[2] or DIGEST), COMPOSE.read_text())
    return yaml.safe_load(text)


SERVICES: dict[str, dict[str, Any]] = composed()["services"]


class TestFile:
    @pytest.mark.parametrize("name", SERVICES)
    def test_containers_are_confined(self, name):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "cap_add" not in service
        assert "privileged" not in service
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert int(service["user"].partition(":")[0]) > 0
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
        assert service["restart"] == "unless-stopped"
        for limit in ("mem_limit", "cpus", "pids_limit", "stop_grace_period"):
            assert service[limit], limit
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        for needed, how in service.get("depends_on", {}).items():
            assert needed in SERVICES
            assert how["condition"] in ("service_healthy", "service_started")
        assert not re.search(r"password=|[0-9a-f]{40}", str(service.get("environment", "")).lower())

    def test_images_need_digests(self):
        needed = {name for name, default, hint in VARIABLE.findall(COMPOSE.read_text()) if hint}
        assert needed == {
            "STATE",
            *(f"{n}_DIGEST" for n in ("PYTHON", "MOSQUITTO", "POSTGRES", "PROMETHEUS", "GRAFANA")),
        }
        for name, service in SERVICES.items():
            if name in OURS:
                assert service["build"]["args"] == {"PYTHON_DIGEST": DIGEST}
            else:
                assert re.fullmatch(rf"docker\.io/[a-z/-]+:[\w.-]+@sha256:{DIGEST}", service["image"])

    def test_only_broker_can_be_published_beyond_localhost(self):
        published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
        assert set(published) == {"broker", "page", "prometheus", "grafana"}
        assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
        open_to_all = composed({"STATE": "/srv/hushmote", "BOARDS_ADDRESS": "0.0.0.0"})["services"]
        beyond = [name for name, service in open_to_all.items() if "0.0.0.0:" in str(service.get("ports"))]
        assert beyond == ["broker"]

    def test_networks_reach_only_needed_services(self):
        on = {
            network: {name for name, service in SERVICES.items() if network in service["networks"]}
            for network in composed()["networks"]
        }
        assert on == {
            "boards": {"broker"},
            "inside": {"broker", "aggregator", "page", "prometheus"},
            "data": {"store", "aggregator", "page"},
            "people": {"page", "prometheus", "grafana"},
        }
        internal = {name for name, network in composed()["networks"].items() if network.get("internal")}
        assert internal == {"inside", "data"}

    def test_mounted_files_exist_and_are_read_only(self):
        for name, service in SERVICES.items():
            for volume in service.get("volumes", ()):
                source, _, target = volume.partition(":")
                if source.startswith("./"):
                    assert (DEPLOY / source).exists(), f"{name}: {source}"
                    assert target.endswith(":ro"), volume
                elif not source.startswith("/"):
                    assert source in composed()["volumes"]

    @pytest.mark.parametrize("name", OURS)
    def test_commands_parse_and_name_only_provided_secrets(self, name):
        service = SERVICES[name]
        parse(service["command"])
        text = " ".join([*service["command"], *service["environment"].values()])
        assert set(re.findall(r"/run/secrets/([\w.]+)", text)) == set(service["secrets"])

    @pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
    def test_docker_compose_accepts_it(self):
        values = {match[0]: DIGEST for match in VARIABLE.findall(COMPOSE.read_text())}
        values |= {"STATE": "/srv/hushmote", "BOARDS_ADDRESS": "127.0.0.1"}
        command = ["docker-compose", "--file", COMPOSE, "config", "--quiet"]
        taken = subprocess.run(command, env=os.environ | values, capture_output=True, text=True, check=False)
        assert taken.returncode == 0, taken.stderr
        values["POSTGRES_DIGEST"] = ""
        result = subprocess.run(command, env=os.environ | values, capture_output=True, text=True, check=False)
        assert result.returncode != 0
        assert "sha256 of postgres" in result.stderr


class TestFirstLook:
    TEXT = (DEPLOY / "compose.demo.yaml").read_text()
    DEMO: ClassVar[dict[str, Any]] = yaml.safe_load(TEXT)["services"]["page"]

    def test_copies_what_the_container_does(self):
        copies = re.findall(r"COPY (?!locks|--)(.+)", (DEPLOY / "Containerfile").read_text())
        assert re.findall(r"COPY (.+)", self.TEXT) == copies

    def test_is_confined(self):
        assert self.DEMO["read_only"] is True
        assert self.DEMO["cap_drop"] == ["ALL"]
        assert self.DEMO["security_opt"] == ["no-new-privileges:true"]
        assert self.DEMO["user"] == "10001:10001"
        assert all(port.startswith("127.0.0.1:") for port in self.DEMO["ports"])

    @pytest.mark.slow
    def test_command_serves_the_page_behind_its_token(self, tmp_path):
        address = f"127.0.0.1:{free_port()}"
        shell, option, script = self.DEMO["command"]
        script = script.replace("0.0.0.0:9419", address).replace("--health", "--health --devices 1000")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        process = subprocess.Popen([shell, option, script], cwd=tmp_path, env=os.environ | {"PATH": path})
        try:
            token = "first-look-at-hushmote"
            assert token in self.TEXT.partition("name:")[0]  # what a user reads

            def answers(headers: dict[str, str]) -> int:
                assert process.poll() is None
                try:
                    request = Request(f"http://{address}/api/fleets", headers=headers)
                    return urlopen(request, timeout=WAIT_S).status
                except HTTPError as e:
                    return e.code
                except OSError:
                    return 0

            until(lambda: answers({"Authorization": f"Bearer {token}"}) in (200, 404), "the page")
            assert answers({}) == 401
        finally:
            process.terminate()
            process.wait()


def prepared(folder: Path, *hosts: str) -> Path:
    """Make a fleet folder and, next to it, the files of deploy/prepare.sh; return the latter's folder."""
    named = [part for host in ("broker", *hosts) for part in ("--host", host)]
    command = "provision fleet home --fleet home --broker-folder /mosquitto/hushmote"
    hushmote(*command.split(), *named, cwd=folder)
    prepare(folder)
    return folder / "state"


def prepare(folder: Path) -> None:
    command = ["sh", DEPLOY / "prepare.sh", folder / "home", folder / "state"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


class TestPreparation:
    @needs_root
    def test_only_container_user_can_read_its_secrets(self, tmp_path):
        state = prepared(tmp_path)
        environment = {
            name: Path(secret["file"]) for name, secret in composed({"STATE": str(state)})["secrets"].items()
        }
        assert {path.name for path in (state / "secrets").iterdir()} == set(environment)
        for name, path in environment.items():
            assert path.stat().st_mode & 0o777 == 0o400, name
        for name, service in SERVICES.items():
            user = int(service["user"].partition(":")[0])
            for secret in service.get("secrets", ()):
                assert environment[secret].stat().st_uid == user, f"{name} cannot read {secret}"
        broker = int(SERVICES["broker"]["user"].partition(":")[0])
        for path in (state / "broker", *(state / "broker").rglob("*")):
            assert path.stat().st_uid == broker
            assert path.stat().st_mode & 0o077 == 0
        assert (state / "secrets").stat().st_mode & 0o777 == 0o711

    @needs_root
    def test_repetition_keeps_passwords_and_renews_certs(self, tmp_path):
        state = prepared(tmp_path)
        before = {path.name: path.read_bytes() for path in (state / "secrets").iterdir()}
        assert len(set(before.values())) == len(before)
        (tmp_path / "home" / "aggregator" / "aggregator_1.pem").write_bytes(b"renewed")
        (state / "broker" / "data" / "mosquitto.db").write_bytes(b"what waits")
        prepare(tmp_path)
        after = {path.name: path.read_bytes() for path in (state / "secrets").iterdir()}
        assert after == before | {"aggregator.pem": b"renewed"}
        assert (state / "broker" / "data" / "mosquitto.db").read_bytes() == b"what waits"


class Machine:
    """One machine instead of the containers, with the file's names, ports and paths mapped to local ones.

    state: the folder that prepare.sh wrote. cluster: the PostgreSQL that replaces the container `store`.
    """

    def __init__(self, state: Path, cluster: Cluster) -> None:
        self.state = state
        self.ports = {port: free_port() for port in (8883, 9417, 9419)}
        self._names = {
            "/run/secrets": f"{state}/secrets",
            "/mosquitto/hushmote": f"{state}/broker",
            "user mosquitto": "user root",
            "@store/": f"@127.0.0.1:{cluster.port}/",
            "store:5432:": f"127.0.0.1:{cluster.port}:",
            "mqtts://broker:": "mqtts://localhost:",
            "http://aggregator:": "http://127.0.0.1:",
            "0.0.0.0:": "127.0.0.1:",
            ":22B3 ": f":{self.ports[8883]:04X} ",
        } | {str(port): str(here) for port, here in self.ports.items()}
        for path in (state / "broker" / "mosquitto.conf", *(state / "secrets").glob("*.pgpass")):
            path.write_text(self.here(path.read_text()))

    def here(self, text: str) -> str:
        """Return text from the file with this machine's values."""
        for there, here in self._names.items():
            text = text.replace(there, here)
        return text

    def environment(self, name: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HUSHMOTE_", "PG"))}
        return clean | {k: self.here(v) for k, v in SERVICES[name].get("environment", {}).items()}

    @contextmanager
    def running(self, name: str) -> Iterator[Path]:
        """Run a container's command as a process and yield the log of both its outputs."""
        command = [self.here(part) for part in SERVICES[name]["command"]]
        if name in OURS:
            command = [sys.executable, "-m", "hushmote", *command]
        log = self.state / f"{name}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command, env=self.environment(name), cwd=self.state, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield log
            assert process.poll() is None, log.read_text()
            process.terminate()
            assert process.wait(60) in (0, -15), log.read_text()
        finally:
            process.kill()
            process.wait()

    def answers(self, port: int) -> bool:
        """Return whether it reports that it is healthy; cheaper to poll than the health check's process."""
        with suppress(OSError):
            return get(f"http://127.0.0.1:{self.ports[port]}/healthz")[0] == 200
        return False

    def is_healthy(self, name: str) -> bool:
        """Return the result of the container's health check."""
        kind, *check = (self.here(part) for part in SERVICES[name]["healthcheck"]["test"])
        command = ["sh", "-c", *check] if kind == "CMD-SHELL" else check
        if command[0] == "python":
            command[0] = sys.executable
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def with_roles(state: Path) -> Iterator[Cluster]:
    """Run a PostgreSQL that requires passwords and has the roles of deploy/postgres/roles.sql."""
    with Cluster() as cluster:
        roles = (DEPLOY / "postgres" / "roles.sql").read_text().replace("/run/secrets", f"{state}/secrets")
        (state / "roles.sql").write_text(roles)
        superuser = ["-h", "127.0.0.1", "-p", str(cluster.port), "-U", "postgres", "-d", "postgres"]
        cluster.run("psql", *superuser, "-v", "ON_ERROR_STOP=1", "-f", str(state / "roles.sql"))
        (hba_file,) = cluster.execute("SHOW hba_file")[0]
        Path(hba_file).write_text(
            "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        cluster.execute("SELECT pg_reload_conf()")
        yield cluster


def send_report(fleet: Path, port: int, store: Store) -> None:
    """Send a report over TLS from a board provisioned by the fleet folder, with its certificate."""
    folder, (version,) = fleet_folder.find(fleet), store.experiments("home")
    pem = fleet / "k3f9.pem"
    pem.write_bytes(folder.issue_device("k3f9", fleet_folder.now_utc()).to_pem())
    fleet_keys = load_keys(folder.master_file())
    assert fleet_keys is not None
    boards_key = keys.device_key(fleet_keys.masters[0], "home", "k3f9")
    sent = report.encode(version.experiment, 1, 0, "k3f9", boards_key)
    with visit(port, context(folder, pem), client_id="k3f9") as visitor:
        assert visitor.connected()
        visitor.publish(topics.report_topic("home", "k3f9"), sent)
        assert visitor.acknowledged == ["Success"]


def get_with_token(page: str, token: str) -> int:
    """Return a page's HTTP status for a logged-in user."""
    browser = build_opener(HTTPCookieProcessor())
    with browser.open(f"{page}?token={token}", timeout=WAIT_S) as answer:
        return answer.status


class TestServices:
    @needs_root
    @pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
    def test_count_and_show_a_report(self, tmp_path, monkeypatch):
        assert find_mosquitto() == SERVICES["broker"]["command"][0]
        state = prepared(tmp_path, "localhost")
        with with_roles(state) as cluster:
            machine = Machine(state, cluster)
            monkeypatch.setenv("PGPASSFILE", machine.environment("aggregator")["PGPASSFILE"])
            url = machine.environment("aggregator")["HUSHMOTE_STORE"]
            (tmp_path / "room_temp.toml").write_text(
                (DEPLOY.parent / "examples" / "room_temp.toml").read_text()
            )
            add = ("experiment", "add", "room_temp.toml", "--fleet", "home", "--keys")
            hushmote(*add, cwd=tmp_path, environment={"HUSHMOTE_STORE": url})
            with Store(url) as store:
                (version,) = store.experiments("home")
            assert not any(map(machine.is_healthy, ("broker", *OURS)))
            with Store(url) as store, machine.running("broker") as broker:
                until(lambda: machine.is_healthy("broker"), broker.read_text)
                with machine.running("aggregator") as counting, machine.running("page") as showing:
                    for name, port, log in (("aggregator", 9417, counting), ("page", 9419, showing)):
                        until(lambda port=port: machine.answers(port), log.read_text)
                        assert machine.is_healthy(name)
                    send_report(tmp_path / "home", machine.ports[8883], store)
                    until(
                        lambda: store.histogram("home", version.experiment.digest).sum() == 1,
                        counting.read_text,
                    )
                    page = f"http://127.0.0.1:{machine.ports[9419]}/"
                    assert get(page)[0] == 401
                    assert get_with_token(page, (state / "secrets" / "page.token").read_text()) == 200
            monkeypatch.setenv("PGPASSFILE", machine.environment("page")["PGPASSFILE"])
            with StoreReader(machine.environment("page")["HUSHMOTE_STORE"]) as shown:
                assert shown.fleet("home").experiments == ("room_temp",)
                assert shown.store.histogram("home", version.experiment.digest).sum() == 1

    @needs_root
    def test_pages_role_is_read_only(self, tmp_path):
        state = prepared(tmp_path)
        with with_roles(state) as cluster:

            def connect(role: str, password: str) -> psycopg.Connection:
                return psycopg.connect(cluster.dsn("hushmote", role), password=password, autocommit=True)

            passwords = {
                "hushmote": (state / "secrets" / "aggregator_password").read_text(),
                "page": (state / "secrets" / "page_password").read_text(),
            }
            with (
                connect("hushmote", passwords["hushmote"]) as owner,
                connect("page", passwords["page"]) as page,
            ):
                owner.execute("CREATE TABLE counts (n integer)")
                owner.execute("INSERT INTO counts VALUES (3)")
                assert page.execute("SELECT n FROM counts").fetchall() == [(3,)]
                # Allowed, but useless without the privilege.
                page.execute("SET default_transaction_read_only = off")
                for statement in ("DELETE FROM counts", "CREATE TABLE more (n integer)", "DROP TABLE counts"):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        page.execute(statement)
            for role in passwords:
                with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                    connect(role, "another")
