"""The Home Assistant app: its manifest, and its program with a model of the Supervisor and a real broker.

The model answers GET /services/mqtt as the documentation and sources of the real one say, which needs Docker.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import yaml
from experiments import experiment_json
from filled_store import fill
from home_assistant import HomeAssistant
from paho.mqtt.enums import CallbackAPIVersion
from PIL import Image
from running_aggregator import WAIT_S, until
from traffic import publish

from hushmote import __version__
from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import MosquittoBroker, free_port

FOLDER = Path(__file__).parents[2] / "deploy" / "home-assistant"
APP = FOLDER / "hushmote"
TOKEN = "the-supervisors-token"
PASSWORDS = {"addons": "ä secret@/", "homeassistant": "another", "devices": "third"}  # as the Mosquitto app
INGRESS = "127.0.0.2"
QUESTION = """
name = "door"
purpose = "Is the door open?"
owner = "me@example.org"
expires = 2099-12-31
type = "bool"
epsilon = 2.0
window = "day"
[budget]
rule = "sum"
cap = 20.0
"""
OPTIONS = {"fleet": "home", "devices": ["desk"], "device_broker": "192.168.1.5:1884"}
OPTIONS |= {"device_user": "devices", "device_password": PASSWORDS["devices"], "publish": "1", "notify": []}


def manifest() -> dict[str, Any]:
    return yaml.safe_load((APP / "config.yaml").read_text())


class TestManifest:
    # https://developers.home-assistant.io/docs/apps/configuration
    KEYS = "name version slug description url arch services ingress panel_icon watchdog timeout backup map"

    def test_has_documented_keys_and_the_version(self):
        config = manifest()
        assert set(config) == {*self.KEYS.split(), "options", "schema"}
        assert config["version"] == __version__
        assert config["slug"] == APP.name
        assert (config["services"], config["ingress"]) == (["mqtt:need"], True)  # on port 8099
        assert re.fullmatch(r"http://\[HOST\]:\[PORT:8099\]/healthz", config["watchdog"])

    def test_options_fit_the_schema_and_have_names(self):
        config = manifest()
        optional = {name for name, kind in config["schema"].items() if str(kind).endswith("?")}
        assert set(config["options"]) == set(config["schema"]) - optional
        for name, kind in config["schema"].items():
            pattern = re.fullmatch(r"match\((.*)\)", kind if isinstance(kind, str) else "")
            assert pattern is None or re.match(pattern[1], config["options"][name]), name
        names = yaml.safe_load((APP / "translations" / "en.yaml").read_text())["configuration"]
        assert set(names) == set(config["schema"])
        assert set(OPTIONS) == set(config["schema"])

    def test_folder_is_an_app_repository(self):
        assert set(yaml.safe_load((FOLDER / "repository.yaml").read_text())) == {"name", "url", "maintainer"}
        sizes = {name: Image.open(APP / name).size for name in ("icon.png", "logo.png")}
        assert sizes == {"icon.png": (128, 128), "logo.png": (250, 100)}
        for name in ("README.md", "DOCS.md", "requirements.txt"):
            assert (APP / name).stat().st_size, name

    def test_image_runs_the_program_and_names_its_files(self):
        lines = (APP / "Dockerfile").read_text().replace("\\\n", "").splitlines()
        steps = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
        assert json.loads(steps["CMD"]) == ["python", "/app/run.py"]
        assert steps["COPY"] == ". /app/"
        assert "--require-hashes" in steps["RUN"]


class Supervisor(http.server.ThreadingHTTPServer):
    """A model of the Supervisor's services API."""

    def __init__(self, service: dict[str, Any] | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = service
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Supervisor

    def do_GET(self) -> None:
        status, answer = 200, dict[str, Any]()
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, answer = 401, {"result": "error", "message": "unauthorized"}
        elif self.path != "/services/mqtt":
            status, answer = 404, {"result": "error", "message": "not found"}
        elif self.server.service is None:
            status, answer = 400, {"result": "error", "message": "Service not enabled"}
        else:
            answer = {"result": "ok", "data": self.server.service}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def mosquitto(folder: Path) -> Iterator[MosquittoBroker]:
    """Run a broker with the Mosquitto app's settings: a queue of 8192 messages, and logins."""
    passwords = folder / "passwords"
    passwords.write_text("".join(f"{user}:{password}\n" for user, password in PASSWORDS.items()))
    subprocess.run(["mosquitto_passwd", "-U", passwords], check=True)
    with MosquittoBroker(password_file=passwords, settings=("max_queued_messages 8192",)) as broker:
        yield broker


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import run
data, config, supervisor, ingress, *ports = sys.argv[2:]
sys.exit(run.main(run.Places(Path(data), Path(config), supervisor, ingress, *map(int, ports))))
"""


class App:
    """The app's program in a container's place; a context manager.

    Attributes:
        data: Its own folder.
        config: The folder that people can open.
        page: The port of its page.
    """

    def __init__(self, folder: Path, service: dict[str, Any] | None, **options: Any) -> None:
        self.data, self.config, self.page = folder / "data", folder / "config", free_port()
        for each in (self.data, self.config / "questions"):
            each.mkdir(parents=True, exist_ok=True)
        (self.data / "options.json").write_text(json.dumps(OPTIONS | options))
        self._supervisor = Supervisor(service)
        self._log = folder / "log"
        places = self.data, self.config, self._supervisor.url, INGRESS, self.page, free_port()
        self._arguments = [str(place) for place in places]

    def __enter__(self) -> App:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, APP, *self._arguments],
                env=clean | {"SUPERVISOR_TOKEN": TOKEN},
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)
        self._supervisor.shutdown()
        self._supervisor.server_close()

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.log() or self.process.poll() is not None, self.log)
        assert words in self.log(), self.log()

    def status(self, path: str, source: str) -> int:
        """Return the status of the page's answer to a request from an address."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.page, timeout=WAIT_S, source_address=(source, 0)
        )
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Host": "hass.local:8123", "X-Forwarded-For": "::1"})
            return connection.getresponse().status

    def store(self) -> Store:
        return Store(f"sqlite:///{self.data}/hushmote/hushmote.sqlite")


def service_of(broker: MosquittoBroker) -> dict[str, Any]:
    """Return what the Supervisor tells apps about the Mosquitto app."""
    login = {"username": "addons", "password": PASSWORDS["addons"]}
    where = {"host": "127.0.0.1", "port": broker.port, "ssl": False, "protocol": "3.1.1"}
    return login | where | {"addon": "core_mosquitto"}


def add_change(app: App) -> None:
    """Add a question whose answer changed four days ago."""
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(back)) for back in range(30, 0, -1)]
    shares = {day: [0.7, 0.3] if i < 26 else [0.5, 0.5] for i, day in enumerate(days)}
    with contextlib.closing(app.store()) as store:
        payload = experiment_json(name="window", epsilon=1_000_000)
        fill(store, "home", payload, dict.fromkeys(days, 4_000), shares)


def log_in(client: paho.Client, user: str = "devices") -> None:
    client.username_pw_set(user, PASSWORDS[user])


def retained(broker: MosquittoBroker, topic: str) -> bytes:
    """Return a topic's retained message, waiting for it."""
    messages = list[bytes]()
    client = paho.Client(CallbackAPIVersion.VERSION2)
    log_in(client)
    client.on_message = lambda _client, _userdata, message: messages.append(bytes(message.payload))
    client.connect(broker.host, broker.port)
    client.subscribe(topic, 1)
    client.loop_start()
    until(lambda: messages, topic)
    client.disconnect()
    client.loop_stop()
    return messages[0]


class TestApp:
    def test_counts_reports_and_shows_them_in_home_assistant(self, tmp_path: Path):
        with mosquitto(tmp_path) as broker, HomeAssistant(broker, "homeassistant", "another") as hass:
            app = App(tmp_path, service_of(broker))
            (app.config / "questions" / "door.toml").write_text(QUESTION)
            with app:
                app.wait_for("door ")
                payload, _, _ = retained(broker, topics.experiment_topic("home", "door")).partition(b"\0")
                experiment = Experiment.parse(payload)
                master = re.search(r"[0-9a-f]{64}", (app.data / "hushmote" / "master.key").read_text())
                assert master
                key = keys.device_key(bytes.fromhex(master[0]), "home", "desk")
                messages = [
                    (
                        topics.report_topic("home", "desk"),
                        report.encode(experiment, number, number % 2, "desk", key),
                    )
                    for number in range(1, 11)
                ]
                publish(broker, messages, set_up=log_in)
                sensor = hass.until("hushmote/home/alerts_active", "off")
                assert sensor["device"] == "Hushmote home"

                def reports_shown() -> int | None:
                    sensor = hass.sensors().get("hushmote/home/door/share_1")  # absent before its discovery
                    return None if sensor is None else sensor["attributes"].get("reports")

                until(
                    lambda: reports_shown() == 10,
                    lambda: (hass.sensors(), app.log()),
                )
                assert hass.until("hushmote/home/alert", "unknown")["entity_id"].startswith("event.")
                add_change(app)
                until(
                    lambda: hass.sensors()["hushmote/home/alert"]["attributes"].get("event_type") == "change",
                    lambda: (hass.sensors(), app.log()),
                )
                hass.until("hushmote/home/alerts_active", "on")
                until(lambda: app.status("/healthz", "127.0.0.1") == 200, app.log)
                assert app.status("/", INGRESS) == 200
                assert app.status("/", "127.0.0.1") == 403
            assert app.process.returncode == 0, app.log()
            settings = json.loads((app.config / "devices" / "desk.settings.json").read_text())
            assert (settings["mqtt_host"], settings["mqtt_port"]) == ("192.168.1.5", 1884)
            assert (settings["mqtt_user"], settings["mqtt_password"]) == ("devices", "third")
            assert settings["key"] == key.hex()
            assert (app.config / "devices" / "desk.esphome.yaml").exists()
            for secret in (PASSWORDS["addons"], PASSWORDS["devices"], master[0]):
                assert secret not in app.log()

    def test_deleted_question_is_withdrawn_and_bad_file_is_named(self, tmp_path: Path):
        with mosquitto(tmp_path) as broker:
            questions = tmp_path / "config" / "questions"
            app = App(tmp_path, service_of(broker))
            (questions / "door.toml").write_text(QUESTION)
            with app:
                app.wait_for("the page is at")
            (questions / "door.toml").unlink()
            (questions / "bad.toml").write_text("name = ")
            with App(tmp_path, service_of(broker)) as app:
                app.wait_for("nothing is withdrawn, because")
                app.wait_for("bad.toml")
            (questions / "bad.toml").unlink()
            with App(tmp_path, service_of(broker), notify=["json://127.0.0.1:1/"]) as app:
                app.wait_for("door is withdrawn from fleet home")
                assert app.process.poll() is None
            assert (tmp_path / "data" / "hushmote" / "receivers.txt").stat().st_mode & 0o777 == 0o600

    def test_says_what_is_missing_without_a_broker(self, tmp_path: Path):
        with App(tmp_path, None) as app:
            assert app.process.wait(WAIT_S) == 1
            assert app.log().splitlines() == [
                "hushmote: Home Assistant offers no MQTT broker: install and start the app Mosquitto broker, "
                "then start Hushmote"
            ]

    def test_ends_if_the_aggregator_cannot_go_on(self, tmp_path: Path):
        with mosquitto(tmp_path) as broker, App(tmp_path, service_of(broker), publish="0") as app:
            assert app.process.wait(WAIT_S) == 1
            assert "--publish must be" in app.log()
