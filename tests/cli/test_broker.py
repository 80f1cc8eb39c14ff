"""The broker login, which commands read from a file or the environment but never from arguments."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import DOOR, hushmote
from refusals import Refusal, fails, refusals
from serve_process import served

from hushmote.cli.broker import PASSWORD, Connection, settings
from hushmote.server.errors import UsageError
from hushmote.server.ingest.broker_url import NatsAddress
from hushmote.simulator.broker import MosquittoBroker

SECRET = "p@ss word"
FILE = "HUSHMOTE_BROKER_PASSWORD_FILE"
LOGIN_IN_URL = "agg:p%40ss%20word@"
SERVE = "serve --broker mqtt://host"
USER = "serve --broker mqtt://a@host"
TLS = "serve --broker mqtts://host"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text, mode in (("secret", f"{SECRET}\n", 0o600), ("open", "x", 0o644), ("empty", "", 0o600)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    (tmp_path / "door.toml").write_text(DOOR)
    hushmote("experiment", "add", "door.toml", "--open", cwd=tmp_path)
    return tmp_path


@pytest.fixture
def mosquitto(folder: Path) -> Iterator[MosquittoBroker]:
    if shutil.which("mosquitto_passwd") is None:
        pytest.skip("mosquitto_passwd is not installed")
    logins = folder / "logins"
    subprocess.run(["mosquitto_passwd", "-b", "-c", logins, "agg", SECRET], check=True, capture_output=True)
    with MosquittoBroker(password_file=logins) as broker:
        yield broker


class TestSettings:
    def test_file_overrides_environment(self, folder: Path, monkeypatch):
        file = folder / "broker.toml"
        file.write_text('url = "mqtts://agg@host"\nca = "own.pem"\ncert = "/etc/a.pem"\nshare = "group"\n')
        monkeypatch.setenv("HUSHMOTE_BROKER_CA", "other.pem")
        monkeypatch.setenv("HUSHMOTE_CLIENT_ID", "a1")
        assert settings(str(file)) == Connection(
            *("mqtts://agg@host", "", f"{folder}/own.pem", "/etc/a.pem"), client_id="a1", share="group"
        )
        for text, words in [
            ("url = ", "not TOML: "),
            (
                "port = 1883",
                "port is not valid: each value must be a string under one of these keys: url, password_file",
            ),
            ("ca = 5", "ca is not valid: each value must be a string"),
            ('ca = "own.pem"', 'has no broker URL; add url = "mqtt://host"'),
            ('url = "mqtt://agg:b@host"', "put the password in a separate file"),
            (None, "cannot read"),
        ]:
            file.unlink() if text is None else file.write_text(text)
            with fails(words, UsageError):
                settings(str(file))

    def test_nats_uses_same_login_and_tls(self, folder: Path, monkeypatch):
        monkeypatch.chdir(folder)
        monkeypatch.delenv(PASSWORD, raising=False)
        monkeypatch.setenv(FILE, "secret")
        address, tls = settings("nats://agg@a,b").reports()
        assert isinstance(address, NatsAddress)
        assert (address.username, address.password, tls) == ("agg", SECRET, None)
        assert settings("tls://agg@a,b").reports()[1] is not None
        for url, options, words in [
            ("nats://agg:x@a", {}, "every user of this machine can read a command line"),
            ("nats://a", {"password_file": "secret"}, "write the broker as nats://user@host"),
            ("nats://a", {"ca": "ca"}, "start the broker URL with tls://"),
        ]:
            with fails(words, UsageError):
                Connection(url, **options).reports()

    def test_empty_password_is_refused(self, monkeypatch):
        monkeypatch.setenv(PASSWORD, "")
        with fails(f"{PASSWORD} is empty", UsageError):
            settings("mqtt://agg@host").address()

    @pytest.mark.slow
    @refusals(
        (USER, "is readable by other users; run chmod 600", {}, {FILE: "open"}),
        (USER, "must contain the password as one line", {}, {FILE: "empty"}),
        (USER, "No such file", {}, {FILE: "none"}),
        (SERVE, "requires a user name", {}, {FILE: "secret"}),
        (SERVE, "requires a user name", {}, {PASSWORD: "x"}),
        (
            USER,
            f"is given by password_file and by {PASSWORD}; use only one",
            {},
            {FILE: "secret", PASSWORD: "x"},
        ),
        ("serve", "the broker's URL and by", {}, {"HUSHMOTE_BROKER": "mqtt://a:b@h", PASSWORD: "x"}),
        ("serve", "start the broker URL with mqtts://", {}, {"HUSHMOTE_BROKER_CA": "ca.pem"}),
        (TLS, "cannot read ca.pem: No such file", {}, {"HUSHMOTE_BROKER_CA": "ca.pem"}),
        (TLS, "cannot read c.pem: No such file", {}, {"HUSHMOTE_BROKER_CERT": "c.pem"}),
        (TLS, "a client certificate needs its key", {}, {"HUSHMOTE_BROKER_CERT_KEY": "c.pem"}),
        ("demo --broker mqtts://host", "TLS is not supported here"),
        ("serve --broker nats://a:x", "NATS servers are written nats://"),
    )
    def test_refusal_is_one_line(self, refusal: Refusal, folder: Path):
        refusal.check(folder)


class TestLogin:
    def test_serve_reads_file_and_environment(self, folder: Path, mosquitto: MosquittoBroker):
        address = f"127.0.0.1:{mosquitto.port}"
        (folder / "broker.toml").write_text(
            f'url = "mqtt://agg@{address}"\npassword_file = "secret"\nclient_id = "mine"\n'
        )
        for options, environment in [
            (("--broker", folder / "broker.toml"), {}),
            ((), {"HUSHMOTE_BROKER": f"mqtt://{LOGIN_IN_URL}{address}"}),
        ]:
            store = ("--store", f"sqlite:///{folder}/hushmote.sqlite")
            with served(*store, *options, environment=environment) as process:
                process.ready()
                assert process.end() == 0
                assert "word" not in process.log()

    def test_status_and_demo_read_file_or_variable(self, folder: Path, mosquitto: MosquittoBroker):
        user = f"mqtt://agg@127.0.0.1:{mosquitto.port}"
        demo = ("demo", "--devices", "100", "--json", "--broker", user)
        status = ("status", "--json", "--broker", user)
        for environment in ({"HUSHMOTE_BROKER_PASSWORD_FILE": "secret"}, {PASSWORD: SECRET}):
            output = hushmote(*status, cwd=folder, environment=environment)
            assert json.loads(output)["devices"] == []
        output = hushmote(*demo, cwd=folder, environment={PASSWORD: SECRET, "HUSHMOTE_SHARE": "mine"})
        assert json.loads(output)["reports"] == 100
        hushmote(*status, cwd=folder, environment={PASSWORD: "wrong"}, expect=1)

    @pytest.mark.parametrize("command", ["serve", "status", "demo"])
    def test_refuses_typed_password_without_showing_it(self, command: str, folder: Path):
        line = hushmote(command, "--broker", "mqtt://agg:p%40ss@host", cwd=folder, expect=1)
        assert "every user of this machine can read a command line" in line
        assert re.findall(r"HUSHMOTE_BROKER_\w+", line) == [FILE, PASSWORD]
        assert "p%40ss" not in line

    def test_url_in_environment_may_hold_password(self):
        address = settings("mqtt://agg:b@host").address(typed=False)
        assert (address.username, address.password) == ("agg", "b")
        with fails("every user of this machine", UsageError):
            settings("mqtt://agg:b@host").address()
