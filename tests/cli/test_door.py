"""`hushmote door` as a process: access, termination, and one-line errors."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from boards import experiment, payload_of, reports
from refusals import Refusal, refusals
from running_aggregator import WAIT_S, until
from serve_process import get
from traffic import publish

from hushmote.simulator.broker import MosquittoBroker, free_port

EXPERIMENT = experiment()
REPORTS = reports("d1", EXPERIMENT, 2)
TOKEN = "0123456789abcdef0123456789abcdef"


def started(*arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HUSHMOTE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "hushmote", "door", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean | environment,
    )


@contextlib.contextmanager
def running_door(*arguments, ready=True, **environment):
    """Run a door process, and kill it at the end if it is still running."""
    process = started(*arguments, **environment)
    killer = threading.Timer(WAIT_S, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        if ready:
            assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


def post(port, payload, device="d1", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    headers = {"Content-Type": "application/octet-stream"} | headers
    connection.request("POST", f"/v1/open/report/{device}", payload, headers)
    with contextlib.closing(connection):
        return connection.getresponse().status


@pytest.fixture(scope="module")
def broker():
    with MosquittoBroker() as broker:
        publish(broker, [("hushmote/v1/open/experiment/temp", payload_of(EXPERIMENT))], retain=True)
        yield broker


class TestAccess:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_serves_known_hosts_and_logs_no_client(self, broker, number):
        port = free_port()
        arguments = ("--broker", f"mqtt://127.0.0.1:{broker.port}", "--http", f"127.0.0.1:{port}")
        with running_door(*arguments, "--origin", "https://board.example") as process:
            # The response is 503 because no aggregator uses this broker; only its arrival matters here.
            assert post(port, REPORTS[0], "secret-device") == 503
            assert post(port, REPORTS[0], Host="evil.example") == 403
            assert post(port, REPORTS[0], Origin="https://evil.example") == 403
            assert post(port, REPORTS[0], Origin="https://board.example") == 503
            assert get(f"http://127.0.0.1:{port}/healthz")[0] == 200
            idle = http.client.HTTPConnection("127.0.0.1", port)
            idle.connect()
            process.send_signal(number)
            assert process.wait(WAIT_S) == 0
            out, error = process.communicate()
            idle.close()
        assert out == ""
        assert len(error.splitlines()) == 1, error
        assert f"publishing at 127.0.0.1:{broker.port} with MQTT 5" in error
        assert "secret" not in error

    def test_requires_token_beyond_localhost(self, broker, tmp_path):
        token = tmp_path / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        port = free_port()
        arguments = ("--broker", f"mqtt://127.0.0.1:{broker.port}", "--http", f"0.0.0.0:{port}")
        with running_door(*arguments, HUSHMOTE_DOOR_TOKEN_FILE=str(token)):
            assert post(port, REPORTS[0]) == 401
            assert post(port, REPORTS[0], Authorization=f"Bearer {TOKEN}") == 503
            assert post(port, REPORTS[0], Authorization=f"Bearer {TOKEN}", Host="door.example") == 503
        with running_door(*arguments, "--open"):
            assert post(port, REPORTS[0], Host="door.example") == 503


class TestBrokerFailure:
    @pytest.mark.slow
    def test_missing_broker_is_reported_but_not_fatal(self):
        port = free_port()
        arguments = ("--broker", f"mqtt://127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{port}")
        with running_door(*arguments, ready=False) as process:

            def status():
                with contextlib.suppress(OSError):
                    return get(f"http://127.0.0.1:{port}/healthz")
                return None

            until(status, "the door responds")
            assert status() == (503, '{"healthy": false, "reason": "not connected to the broker"}\n')
            process.terminate()
            assert process.wait(WAIT_S) == 0
            assert "trying again" in process.communicate()[1]

    def test_refused_login_ends_process(self, tmp_path):
        passwords = tmp_path / "passwords"
        subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "door", "right"], check=True)
        with MosquittoBroker(password_file=passwords) as broker:
            process = started(
                "--broker",
                f"mqtt://door@127.0.0.1:{broker.port}",
                "--http",
                f"127.0.0.1:{free_port()}",
                HUSHMOTE_BROKER_PASSWORD="wrong",
            )
            out, error = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out) == (1, "")
        assert error.splitlines()[-1].startswith("hushmote: the broker at 127.0.0.1")
        assert "refuses the connection: not authorized" in error


class TestRefusals:
    @refusals(
        ("--http 0.0.0.0:9418", "give --token-file FILE, or --open"),
        ("--http door.example:9418", "give --token-file FILE, or --open"),
        ("--http 9418", "must be host:port"),
        ("--open --token-file token", "give only one of them"),
        *(
            (f"--origin {origin}", "must be https://host")
            for origin in (
                "board.example",
                "https://board.example/",
                "ftp://x",
                "*",
                "http://[",
                "https://a@b",
            )
        ),
        ("--fleet Home", "must be 1 to 32 of a-z"),
        ("--experiment temp", "add --fleet NAME"),
        ("--fleet home --experiment Temp", "name 'Temp' must be 1 to 32 of a-z"),
        ("--token-file token", "cannot read the token"),
        (
            "--token-file token",
            "16 or more letters and digits: openssl rand -hex 16",
            {"token": "short"},
        ),
        command="door",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path):
        refusal.check(tmp_path)

    def test_token_readable_by_others(self, tmp_path):
        (tmp_path / "token").touch()
        (tmp_path / "token").chmod(0o644)
        Refusal("door --token-file token", "chmod 600", {"token": TOKEN}).check(tmp_path)

    def test_port_in_use(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            Refusal(f"door --http {address}", "Address already in use").check(tmp_path)
