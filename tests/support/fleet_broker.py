"""A real mosquitto with a fleet folder's exact configuration, and clients that test it."""

import contextlib
import getpass
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from running_aggregator import WAIT_S, until

from hushmote.fleet.provisioning import fleet_folder
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, FleetSpec
from hushmote.simulator.broker import MosquittoBroker, free_port

FLEET = "home"


def make_fleet(path: Path, *, passwords: bool = False, hosts: Sequence[str] = ("localhost", "127.0.0.1")):
    """Create a fleet folder with free ports, for a broker that runs as the current user."""
    fleet = FleetSpec(
        FLEET,
        tuple(hosts),
        port=free_port(),
        password_port=free_port() if passwords else None,
        aggregator_port=free_port() if passwords else None,
        broker_user=getpass.getuser(),
    )
    return fleet_folder.make(path, fleet, write_master=True)


class FleetBroker(MosquittoBroker):
    """mosquitto on a fleet folder, as started by `mosquitto -c FOLDER/broker/mosquitto.conf`."""

    def __init__(self, folder: FleetFolder) -> None:
        super().__init__(folder.fleet.port)
        self.folder = folder
        self._folder = folder.path / "broker"  # already contains mosquitto.conf
        self.config = self._folder / "mosquitto.conf"

    def start(self) -> None:
        super().start()
        until(self._listens, f"mosquitto listens: {self.log()}")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        # Wait for a handshake, not just a connection: the port opens before SIGHUP is handled.
        tls = context(self.folder)
        tls.check_hostname = False
        with contextlib.suppress(OSError):
            plain = socket.create_connection(("127.0.0.1", self.folder.fleet.port), 1)
            plain.settimeout(WAIT_S)
            with tls.wrap_socket(plain):
                return True
        return False

    def log(self) -> str:
        return (self.folder.path / "broker" / "log").read_text(errors="replace")

    def reload(self) -> None:
        """Reload with SIGHUP, as operators do after a revocation or rotation, and wait for the reload."""
        assert self._process is not None
        # It logs this line each time it reads the access list, the last file it reads.
        remark = "experiment/+' does not contain"
        before = self.log().count(remark)
        self._process.send_signal(signal.SIGHUP)
        until(lambda: self.log().count(remark) > before, "mosquitto rereads its files")

    def stop(self) -> None:
        """Stop the broker and keep the fleet's folder."""
        self.terminate()


@contextlib.contextmanager
def running(folder: FleetFolder) -> Iterator[FleetBroker]:
    broker = FleetBroker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def context(folder: FleetFolder, pem: Path | None = None) -> ssl.SSLContext:
    """Return a TLS context that verifies the fleet's broker, with an optional client certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(folder.path / "aggregator/ca.pem")
    if pem is not None:
        tls.load_cert_chain(pem)
    return tls


class Visitor:
    """A client of the broker; messages: the (topic, payload) pairs received."""

    def __init__(
        self,
        port: int,
        tls: ssl.SSLContext | None,
        *,
        protocol: MQTTProtocolVersion = paho.MQTTv5,
        client_id: str = "",
        login: tuple[str, str] | None = None,
        host: str = "localhost",
        clean: bool = True,
        will: tuple[str, bytes] | None = None,
    ) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.answer: str | None = None
        self.ended: str | None = None
        self.acknowledged: list[str] = []
        clean_session = None if protocol == paho.MQTTv5 else clean
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id or "x",
            clean_session,
            protocol=protocol,
            reconnect_on_failure=False,
        )
        if tls is not None:
            self.client.tls_set_context(tls)
        if will is not None:
            self.client.will_set(*will, qos=1, retain="/status/" in will[0])
        if login is not None:
            self.client.username_pw_set(*login)
        self.client.on_connect = lambda _c, _d, _f, reason, _p: setattr(self, "answer", str(reason))
        self.client.on_disconnect = lambda _c, _d, _f, reason, _p: setattr(self, "ended", str(reason))
        self.client.on_publish = lambda _c, _d, _m, reason, _p: self.acknowledged.append(str(reason))
        self.client.on_message = lambda _c, _d, m: self.messages.append((m.topic, bytes(m.payload)))
        self.granted: list[str] = []
        self.client.on_subscribe = lambda _c, _d, _m, reasons, _p: self.granted.append(str(reasons[0]))
        self.client.connect(host, port, keepalive=30)
        self.client.loop_start()

    def connected(self) -> bool:
        """Wait for the broker's answer or a disconnect, and return whether it accepted the connection."""
        until(lambda: self.answer or self.ended, "the broker answers")
        return self.answer == "Success"

    def subscribe(self, topic: str, qos: int = 1) -> str:
        """Subscribe, and return what the broker granted, or why the connection ended."""
        wanted = len(self.granted) + 1
        self.client.subscribe(topic, qos)
        until(lambda: len(self.granted) == wanted or self.ended, "the broker answers a subscription")
        return self.granted[-1] if len(self.granted) == wanted else str(self.ended)

    def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> None:
        """Publish at QoS 1 and wait for the broker's answer, or for the end of the connection."""
        wanted = len(self.acknowledged) + 1
        self.client.publish(topic, payload, qos=1, retain=retain)
        until(lambda: len(self.acknowledged) >= wanted or self.ended, "the broker answers a publication")

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


# The CONNECT packet of client k3f9, and the CONNACK that accepts it.
CONNECT = bytes.fromhex("101000044d5154540402003c00046b336639")
LET_IN = b"\x20\x02\x00\x00"


def cannot_resume(
    port: int, tls: ssl.SSLContext, version: ssl.TLSVersion, revoke: Callable[[], None]
) -> bool:
    """Return whether a resumable TLS session is useless once its board is revoked."""
    tls.maximum_version = version

    def connect(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None, bytes]:
        """Connect, and return the session, whether it was resumed, and the broker's CONNACK."""
        plain = socket.create_connection(("127.0.0.1", port), 10)
        with tls.wrap_socket(plain, server_hostname="localhost", session=session) as connection:
            connection.sendall(CONNECT)
            answer = connection.recv(4)  # read before .session: TLS 1.3 sends the session after the handshake
            return connection.session, connection.session_reused, answer

    session, resumed, answer = connect(None)
    assert (resumed, answer) == (False, LET_IN)
    assert connect(session)[1:] == (True, LET_IN)
    revoke()
    try:
        return connect(session)[2] != LET_IN
    except OSError:  # the subclass depends on which end notices first
        return True


def is_mute_in_plain(port: int) -> bool:
    """Return whether a port rejects MQTT without TLS."""
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.settimeout(10)
        plain.sendall(CONNECT)
        try:
            return plain.recv(4)[:1] != b"\x20"
        except ConnectionError:
            return True


@contextlib.contextmanager
def visit(*args, **options) -> Iterator[Visitor]:
    visitor = Visitor(*args, **options)
    try:
        yield visitor
    finally:
        visitor.close()
