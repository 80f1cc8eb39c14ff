"""Brokers by other people, as child processes: HiveMQ CE, ActiveMQ Artemis, Moquette, mochi, rumqttd, aedes.

`make brokers` installs those whose tools this machine has into .rig/brokers, in the versions below. Each
broker writes its data to disk if it can, lets anyone connect, and refuses publications to the
topic filters in `forbidden` if it has permissions. `session_s` is the longest time, in seconds, for which it
keeps a session.
"""

import getpass
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from running_aggregator import WAIT_S

from hushmote.simulator.broker import ChildBroker, find_mosquitto, free_port

FOLDER = Path(__file__).parents[1] / ".rig" / "brokers"
SOURCES = Path(__file__).parent / "broker_programs"
_JAVA = ("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class RealBroker(ChildBroker):
    """An installed broker on a free port of 127.0.0.1.

    Attributes:
        title: Its name and version.
        tool: The program that installs it.
        protocol: The versions of MQTT for an aggregator.
        has_permissions, has_session_limit: What this broker can be configured to do.
        keeps_data: Whether acknowledged reports survived a restart when this was measured.
        recovers: Whether it served clients again after a restart under load.
        varying: The cells of its column in docs/your-own-broker.md that differ from run to run, by row.
    """

    title: ClassVar[str]
    tool: ClassVar[str]
    marker: ClassVar[str]  # a path in its folder that exists once it is installed
    has_permissions: ClassVar[bool] = True
    has_session_limit: ClassVar[bool] = True
    keeps_data: ClassVar[bool] = True
    recovers: ClassVar[bool] = True
    varying: ClassVar[Mapping[str, str]] = {}
    _start_s = WAIT_S

    def __init__(self, forbidden: Sequence[str] = (), session_s: int | None = None) -> None:
        super().__init__(free_port())
        self._forbidden = forbidden
        self._session_s = session_s

    @classmethod
    def home(cls) -> Path:
        """Return the folder in which it is installed."""
        return FOLDER / cls.name

    @classmethod
    def missing(cls) -> str:
        """Return why it cannot run here, or ""."""
        return "" if (cls.home() / cls.marker).exists() else f"{cls.title} is not installed: make brokers"

    @classmethod
    def install(cls) -> None:
        """Install it; raise OSError or CalledProcessError if that fails."""
        raise NotImplementedError

    def command(self, folder: Path) -> list[str]:
        """Write the configuration into a new or existing folder and return the command."""
        raise NotImplementedError

    def start(self) -> None:
        """Return once clients can connect; raises BrokerError."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"hushmote-{self.name}-"))
        self._launch(self.command(self._folder), self.home())

    def stop(self) -> None:
        """Kill the broker and remove its folder."""
        self.kill()
        super().stop()


def _run(*command: str, folder: Path, **environment: str) -> None:
    subprocess.run(
        command, cwd=folder, env=os.environ | environment, check=True, capture_output=True, text=True
    )


def _install_jars(home: Path, group: str, artifact: str, version: str) -> None:
    names = (f"-Dbroker.group={group}", f"-Dbroker.artifact={artifact}", f"-Dbroker.version={version}")
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}")
    _run("mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *names, *goal, folder=home)


class HiveMq(RealBroker):
    """HiveMQ Community Edition."""

    name = "hivemq"
    title = "HiveMQ CE 2025.5"
    tool = "mvn"
    marker = "lib"

    @classmethod
    def install(cls) -> None:
        _install_jars(cls.home(), "com.hivemq", "hivemq-community-edition-embedded", "2025.5")

    def command(self, folder: Path) -> list[str]:
        for part in ("conf", "data", "extensions"):
            (folder / part).mkdir(exist_ok=True)
        limit = f"<session-expiry><max-interval>{self._session_s}</max-interval></session-expiry>"
        (folder / "conf" / "config.xml").write_text(f"""<hivemq>
  <listeners><tcp-listener><port>{self.port}</port><bind-address>{self.host}</bind-address></tcp-listener></listeners>
  <mqtt>{limit if self._session_s is not None else ""}</mqtt>
  <persistence><mode>file</mode></persistence>
  <anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>
</hivemq>
""")
        main = [str(SOURCES / "HiveMq.java"), str(folder), *self._forbidden]
        return [*_JAVA, "-Dhivemq.log.folder=" + str(folder), "-cp", "lib/*", *main]


class Artemis(RealBroker):
    """ActiveMQ Artemis, started without its scripts and its web console."""

    name = "artemis"
    title = "ActiveMQ Artemis 2.40.0"
    tool = "mvn"
    marker = "apache-artemis-2.40.0/lib/artemis-boot.jar"
    has_session_limit = False

    @classmethod
    def install(cls) -> None:
        artifact = "org.apache.activemq:apache-artemis:2.40.0:tar.gz:bin"
        goal = ("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cls.home()}")
        _run("mvn", "-q", "-B", *goal, folder=cls.home())
        archive = "apache-artemis-2.40.0-bin.tar.gz"
        _run("tar", "xzf", archive, folder=cls.home())
        (cls.home() / archive).unlink()

    def command(self, folder: Path) -> list[str]:
        etc = folder / "etc"
        etc.mkdir(exist_ok=True)
        kinds = ("send", "consume", "browse", "createAddress", "createNonDurableQueue", "createDurableQueue")
        kinds += ("deleteNonDurableQueue", "deleteDurableQueue", "deleteAddress")

        def permissions(match: str, forbidden: str) -> str:
            lines = (f'<permission type="{k}" roles="{"no" if k == forbidden else "all"}"/>' for k in kinds)
            return f'<security-setting match="{match}">{"".join(lines)}</security-setting>'

        matches = [permissions(f.replace("/", ".").replace("+", "*"), "send") for f in self._forbidden]
        (etc / "broker.xml").write_text(f"""<configuration xmlns="urn:activemq">
 <core xmlns="urn:activemq:core">
  <persistence-enabled>true</persistence-enabled>
  <journal-type>NIO</journal-type>
  <paging-directory>{folder}/paging</paging-directory>
  <bindings-directory>{folder}/bindings</bindings-directory>
  <journal-directory>{folder}/journal</journal-directory>
  <large-messages-directory>{folder}/large</large-messages-directory>
  <max-disk-usage>-1</max-disk-usage>
  <acceptors><acceptor name="mqtt">tcp://{self.host}:{self.port}?protocols=MQTT</acceptor></acceptors>
  <security-settings>{permissions("#", "")}{"".join(matches)}</security-settings>
 </core>
</configuration>
""")
        (etc / "bootstrap.xml").write_text(f"""<broker xmlns="http://activemq.apache.org/schema">
 <jaas-security domain="activemq"/>
 <server configuration="file:{etc}/broker.xml"/>
</broker>
""")
        (etc / "management.xml").write_text(
            '<management-context xmlns="http://activemq.apache.org/schema"/>\n'
        )
        module = "org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule"
        roles = 'org.apache.activemq.jaas.guest.user="guest" org.apache.activemq.jaas.guest.role="all"'
        (etc / "login.config").write_text(f"activemq {{ {module} required {roles}; }};\n")
        home = self.home() / "apache-artemis-2.40.0"
        paths = {
            "artemis.home": home,
            "artemis.instance": folder,
            "artemis.instance.etc": etc,
            "java.security.auth.login.config": etc / "login.config",
        }
        properties = [f"-D{key}={value}" for key, value in paths.items()]
        jar = str(home / "lib" / "artemis-boot.jar")
        main = "org.apache.activemq.artemis.boot.Artemis"
        return [*_JAVA, *properties, "-cp", jar, main, "run", f"xml:{etc}/bootstrap.xml"]


class Moquette(RealBroker):
    """Moquette."""

    name = "moquette"
    title = "Moquette 0.17"
    tool = "mvn"
    marker = "lib"
    keeps_data = recovers = False

    @classmethod
    def install(cls) -> None:
        _install_jars(cls.home(), "io.moquette", "moquette-broker", "0.17")

    def command(self, folder: Path) -> list[str]:
        (folder / "config").mkdir(exist_ok=True)
        (folder / "data").mkdir(exist_ok=True)
        settings = {
            "host": self.host,
            "port": self.port,
            "allow_anonymous": "true",
            "persistence_enabled": "true",
            "persistent_queue_type": "segmented",
            "data_path": folder / "data",
            "telemetry_enabled": "false",
        }
        if self._session_s is not None:
            settings["persistent_client_expiration"] = f"{self._session_s}s"
        if self._forbidden:
            # It can only list what is allowed.
            settings["acl_file"] = "config/acl"
            topics = [f"topic readwrite hushmote/v1/+/{kind}/+" for kind in ("report", "experiment")]
            (folder / "config" / "acl").write_text("\n".join((*topics, "topic read #")) + "\n")
        lines = "".join(f"{key} {value}\n" for key, value in settings.items())
        (folder / "config" / "moquette.conf").write_text(lines)
        return [*_JAVA, f"-Dmoquette.path={folder}", "-cp", "lib/*", "io.moquette.broker.Server"]


# mochi's defaults; without them, a list with one limit would set the others to 0.
_MOCHI_LIMITS = {
    "maximum_clients": 10_000,
    "maximum_client_writes_pending": 8192,
    "maximum_message_expiry_interval": 86_400,
    "receive_maximum": 1024,
    "maximum_inflight": 8192,
    "topic_alias_maximum": 65_535,
    "shared_sub_available": 1,
    "minimum_protocol_version": 3,
    "maximum_qos": 2,
    "retain_available": 1,
    "wildcard_sub_available": 1,
    "sub_id_available": 1,
}


class Mochi(RealBroker):
    """mochi, with its files in bolt."""

    name = "mochi"
    title = "mochi 2.7.9"
    tool = "go"
    marker = "docker"
    keeps_data = recovers = False

    @classmethod
    def install(cls) -> None:
        package = "github.com/mochi-mqtt/server/v2/cmd/docker@v2.7.9"
        _run("go", "install", package, folder=cls.home(), GOBIN=str(cls.home()))

    def command(self, folder: Path) -> list[str]:
        lines = [
            "listeners:",
            f'  - {{type: tcp, id: tcp, address: "{self.host}:{self.port}"}}',
            "hooks:",
            f"  storage: {{bolt: {{path: {folder}/data.db, bucket: mochi}}}}",
            "  auth:",
            "    ledger:",
            "      auth: [{allow: true}]",
        ]
        if self._forbidden:  # 1: read only; everything else is allowed
            lines.append(f"      acl: [{{filters: {{{', '.join(f'{f}: 1' for f in self._forbidden)}}}}}]")
        if self._session_s is not None:
            limits = _MOCHI_LIMITS | {"maximum_session_expiry_interval": self._session_s}
            lines += [
                "options:",
                "  capabilities:",
                *(f"    {key}: {value}" for key, value in limits.items()),
            ]
        (folder / "config.yaml").write_text("\n".join(lines) + "\n")
        return [str(self.home() / "docker"), "--config", str(folder / "config.yaml")]


class Rumqttd(RealBroker):
    """rumqttd, which has neither permissions nor files."""

    name = "rumqttd"
    title = "rumqttd 0.20"
    tool = "cargo"
    marker = "bin/rumqttd"
    protocol: Literal["auto", "3.1.1"] = "3.1.1"
    has_permissions = has_session_limit = keeps_data = False

    @classmethod
    def install(cls) -> None:
        _run("cargo", "install", "--quiet", "--root", str(cls.home()), "rumqttd@0.20.0", folder=cls.home())

    def command(self, folder: Path) -> list[str]:
        (folder / "config.toml").write_text(f"""id = 0
[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v4.1]
name = "v4-1"
listen = "{self.host}:{self.port}"
next_connection_delay_ms = 1
[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 20480
max_inflight_count = 100
dynamic_filters = true
""")
        return [str(self.home() / self.marker), "--config", str(folder / "config.toml"), "--quiet"]


class AedesBroker(RealBroker):
    """aedes in Node.js, with its files in LevelDB; it speaks MQTT 3.1.1 only."""

    name = "aedes"
    title = "aedes 1.2.0"
    tool = "npm"
    marker = "node_modules/aedes"
    protocol: Literal["auto", "3.1.1"] = "3.1.1"
    has_session_limit = False
    varying: ClassVar[Mapping[str, str]] = {"kill": "some or all"}

    @classmethod
    def install(cls) -> None:
        (cls.home() / "package.json").write_text('{"private": true}\n')
        packages = ("aedes@1.2.0", "aedes-persistence-level@9.2.0", "level@10.0.0")
        _run("npm", "install", "--silent", "--no-audit", "--no-fund", *packages, folder=cls.home())

    def command(self, folder: Path) -> list[str]:
        arguments = [str(self.port), str(folder / "data"), *self._forbidden]
        return ["node", str(SOURCES / "aedes.mjs"), *arguments]


class Mosquitto(RealBroker):
    """The machine's mosquitto, for comparison; it saves to disk every second or two."""

    name = "mosquitto"
    title = "mosquitto 2.0"
    tool = ""
    has_session_limit = False

    @classmethod
    def home(cls) -> Path:
        return Path("/")

    @classmethod
    def missing(cls) -> str:
        return "" if find_mosquitto() else "mosquitto is not installed: apt install mosquitto"

    def command(self, folder: Path) -> list[str]:
        lines = [
            f"listener {self.port} {self.host}",
            "allow_anonymous true",
            f"user {getpass.getuser()}",
            "persistence true",
            f"persistence_location {folder}/",
            "autosave_interval 1",
        ]
        if self._forbidden:
            topics = [f"topic write hushmote/v1/+/{kind}/+" for kind in ("report", "experiment")]
            (folder / "acl").write_text("\n".join(("topic read #", *topics)) + "\n")
            lines.append(f"acl_file {folder}/acl")
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        return [find_mosquitto() or "mosquitto", "-c", str(folder / "mosquitto.conf")]


OWN_BROKERS: tuple[type[RealBroker], ...] = (
    Mosquitto,
    HiveMq,
    Artemis,
    Moquette,
    Mochi,
    Rumqttd,
    AedesBroker,
)
