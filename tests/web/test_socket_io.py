"""NiceGUI's socket.io with clients other than browsers, against the real process."""

import contextlib
import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from boards import ask_fleet, experiment
from browser import paged
from running_aggregator import WAIT_S
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from hushmote.server.store.store import Store

PATH = "/_nicegui_ws/socket.io/?EIO=4&transport="
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
HANDSHAKE = (
    f"GET {PATH}websocket HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}Sec-WebSocket-Key: {'A' * 22}==\r\n\r\n"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.sqlite'}"
    with Store(url) as store:
        ask_fleet(store, "home", experiment())
    return url


@pytest.fixture(scope="module")
def page(store: str) -> Iterator[str]:
    with paged(store) as page:
        yield page


def open_socket(page: str, query: str = "websocket") -> Connection:
    url = page.replace("http", "ws") + PATH + query
    return connect(url, proxy=None, open_timeout=WAIT_S, close_timeout=1)


def is_closed(client: Connection) -> bool:
    """Wait for the page to close the connection, reading its messages; return whether it did."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            client.recv(WAIT_S)
    return True


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Upgrade": "websocket"},  # not a WebSocket without Connection: Upgrade
    ],
    ids=["plain", "foreign origin", "upgrade without connection"],
)
@pytest.mark.parametrize("transport", ["polling", "websocket", "polling&j=0"])
def test_session_needs_websocket(page, method, headers, transport):
    with contextlib.closing(http.client.HTTPConnection(urlsplit(page).netloc, timeout=WAIT_S)) as connection:
        connection.request(method, PATH + transport, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    is_foreign = headers.get("Origin") and method != "GET"
    assert answer.status == (403 if is_foreign else 400)
    assert answer.headers["access-control-allow-origin"] is None
    assert b'"sid"' not in body
    assert (
        is_foreign
        or body == b"This address accepts only WebSockets; a proxy must pass on the Upgrade header.\n"
    )


def test_websocket_starts_no_long_polling_session(page):
    with pytest.raises((ConnectionClosed, InvalidStatus)), open_socket(page, "polling") as client:
        client.recv(WAIT_S)


MALFORMED = [
    *["", "x", "9", "²", "7", "b!", "b4", "0", "2probe", "4", "4x", "42", "42[]", "42{", "44", "45", "49"],
    *["42" + "1" * 200 + "[]", "42" + "[" * 100_000, '451-["event",{"_placeholder":true,"num":5}]', "40{"],
    *[b"", b"\x00", b"\xff\xfe"],
]
UNEXPECTED = [  # well-formed, but not an event that NiceGUI's script sends
    *["42[{}]", '42["event"]', '42["event",{}]', '42["event",{"client_id":[]}]', '42["handshake",1]'],
    *['42["log",{}]', '42["javascript_response"]', '420["ack",null]'],
]
FRAMES = [
    b"\x81\x82\0\0\0\0\xff\xfe",
    b"\x81\x02hi",
    b"\x83\x80\0\0\0\0",
    b"\xf1\x80\0\0\0\0",
    b"no frame" * 9,
]


def test_malformed_packet_closes_connection_without_traceback(store, capfd):
    with paged(store) as page:
        for packets in [*([p] for p in MALFORMED), *(["40", p] for p in MALFORMED + UNEXPECTED)]:
            with open_socket(page) as client:
                for packet in [*packets, packets[-1]]:  # the page ignores the repeated packet
                    with contextlib.suppress(ConnectionClosed):
                        client.send(packet)
                assert is_closed(client), packets
        with open_socket(page, "websocket&implicit_handshake=true") as client:
            client.send("40")
            assert is_closed(client)
        for frame in FRAMES:
            with socket.create_connection(("127.0.0.1", urlsplit(page).port), WAIT_S) as s:
                s.sendall(HANDSHAKE.encode())
                assert s.recv(12) == b"HTTP/1.1 101"
                s.sendall(frame)
                with contextlib.suppress(ConnectionResetError):
                    while s.recv(4096):
                        pass
        with open_socket(page) as client:
            client.send("40")
            assert client.recv(WAIT_S)[:1] == "0"
            assert client.recv(WAIT_S)[:2] == "40"  # the page still serves other clients
    logged = capfd.readouterr().err
    assert "Traceback" not in logged
    assert "ERROR" not in logged
    assert logged.count("\n") == logged.count("a browser sent a malformed packet (") > len(UNEXPECTED)
