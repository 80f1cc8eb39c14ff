"""The login at the broker: from a file or the environment in every command that connects, never typed."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import DOOR, hushmote
from served import served

from hushmote.cli.broker import PASSWORD, Connection, settings
from hushmote.server.errors import UsageError
from hushmote.server.ingest.broker_url import NatsAddress
from hushmote.simulator.broker import MosquittoBroker

SECRET = "p@ss word"
FILE = "HUSHMOTE_BROKER_PASSWORD_FILE"
IN_URL = "agg:p%40ss%20word@"


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


def test_serve_takes_the_password_from_a_file_and_from_the_environment(
    folder: Path, mosquitto: MosquittoBroker
):
    where = f"127.0.0.1:{mosquitto.port}"
    (folder / "broker.toml").write_text(
        f'url = "mqtt://agg@{where}"\npassword_file = "secret"\nclient_id = "mine"\n'
    )
    for options, environment in [
        (("--broker", folder / "broker.toml"), {}),
        ((), {"HUSHMOTE_BROKER": f"mqtt://{IN_URL}{where}"}),
    ]:
        store = ("--store", f"sqlite:///{folder}/hushmote.sqlite")
        with served(*store, *options, environment=environment) as process:
            process.ready()
            assert process.end() == 0
            assert "word" not in process.log()


def test_status_and_demo_take_it_from_a_named_file_or_a_variable(folder: Path, mosquitto: MosquittoBroker):
    user = f"mqtt://agg@127.0.0.1:{mosquitto.port}"
    demo = ("demo", "--devices", "100", "--json", "--broker", user)
    status = ("status", "--json", "--broker", user)
    for environment in ({"HUSHMOTE_BROKER_PASSWORD_FILE": "secret"}, {PASSWORD: SECRET}):
        shown = hushmote(*status, cwd=folder, environment=environment)
        assert json.loads(shown)["devices"] == []
    shown = hushmote(*demo, cwd=folder, environment={PASSWORD: SECRET, "HUSHMOTE_SHARE": "mine"})
    assert json.loads(shown)["reports"] == 100
    hushmote(*status, cwd=folder, environment={PASSWORD: "wrong"}, expect=1)


def test_a_typed_password_is_refused_in_one_line_that_names_the_places(folder: Path):
    for command in ("serve", "status", "demo"):
        said = hushmote(command, "--broker", "mqtt://agg:p%40ss@host", cwd=folder, expect=1)
        assert "every user of this machine can read a command line" in said
        assert "HUSHMOTE_BROKER_PASSWORD_FILE" in said
        assert PASSWORD in said
        assert "p%40ss" not in said


@pytest.mark.slow
def test_logins_that_cannot_be_are_one_line(folder: Path):
    user = ("serve", "--broker", "mqtt://a@host")
    tls = ("serve", "--broker", "mqtts://host")
    assistant = ("--publish", "ended,home-assistant")
    serve = ("serve", "--broker", "mqtt://host")
    for arguments, environment, words in [
        (user, {FILE: "open"}, "can be read by others: chmod 600"),
        (user, {FILE: "empty"}, "must hold a password"),
        (user, {FILE: "none"}, "No such file"),
        (serve, {FILE: "secret"}, "needs the user's name"),
        (serve, {PASSWORD: "x"}, "needs the user's name"),
        (user, {PASSWORD: ""}, f"{PASSWORD} is empty"),
        (user, {FILE: "secret", PASSWORD: "x"}, f"is given by password_file and by {PASSWORD}: take one"),
        (("serve",), {"HUSHMOTE_BROKER": "mqtt://a:b@h", PASSWORD: "x"}, "the broker's URL and by"),
        (("serve",), {"HUSHMOTE_BROKER_CA": "ca.pem"}, "write the broker as mqtts://"),
        (tls, {"HUSHMOTE_BROKER_CA": "ca.pem"}, "cannot read ca.pem: No such file"),
        (tls, {"HUSHMOTE_BROKER_CERT": "c.pem"}, "cannot read c.pem: No such file"),
        (tls, {"HUSHMOTE_BROKER_CERT_KEY": "c.pem"}, "belong together"),
        (serve, {"HUSHMOTE_SHARE": "crew"}, "share needs client_id"),
        (serve, {"HUSHMOTE_CLIENT_ID": "a/b"}, "client_id must be 1 to 64 of"),
        (serve, {"HUSHMOTE_SHARE": "Crew!", "HUSHMOTE_CLIENT_ID": "a"}, "must be 1 to 32 of a-z"),
        (serve, {"HUSHMOTE_PROTOCOL": "4"}, "protocol must be one of auto, 5, 3.1.1, not 4"),
        ((*serve, "--retire"), {"HUSHMOTE_PROTOCOL": "3.1.1"}, "need MQTT 5"),
        ((*user, *assistant), {"HUSHMOTE_DISCOVERY_PREFIX": "a/#"}, "letters, digits, _ and -"),
        (("demo", "--broker", "mqtts://host"), {}, "speaks no TLS"),
    ]:
        assert words in hushmote(*arguments, cwd=folder, environment=environment, expect=1), arguments


def test_a_url_of_the_environment_may_hold_a_password():
    address = settings("mqtt://agg:b@host").address(typed=False)
    assert (address.username, address.password) == ("agg", "b")
    with pytest.raises(UsageError, match="every user of this machine"):
        settings("mqtt://agg:b@host").address()


def test_a_file_holds_the_url_and_what_goes_with_it_and_goes_before_the_environment(
    folder: Path, monkeypatch
):
    file = folder / "broker.toml"
    file.write_text('url = "mqtts://agg@host"\nca = "own.pem"\ncert = "/etc/a.pem"\nshare = "crew"\n')
    monkeypatch.setenv("HUSHMOTE_BROKER_CA", "other.pem")
    monkeypatch.setenv("HUSHMOTE_CLIENT_ID", "a1")
    assert settings(str(file)) == Connection(
        *("mqtts://agg@host", "", f"{folder}/own.pem", "/etc/a.pem"), client_id="a1", share="crew"
    )
    for text, words in [
        ("url = ", "not TOML: "),
        ("port = 1883", "port must be a text under one of these names: url, password_file, ca"),
        ("ca = 5", "ca must be a text"),
        ('ca = "own.pem"', 'must say where the broker is: url = "mqtt://host"'),
        ('url = "mqtt://agg:b@host"', "put the password into a file of its own"),
        (None, "cannot read"),
    ]:
        file.unlink() if text is None else file.write_text(text)
        with pytest.raises(UsageError, match=words):
            settings(str(file))


def test_what_nats_servers_cannot_do_is_refused_in_one_line(folder: Path):
    serve = ("serve", "--broker", "nats://a,b")
    for environment, words in [
        ({"HUSHMOTE_SHARE": "crew", "HUSHMOTE_CLIENT_ID": "a"}, "with one client_id divide the reports"),
        ({"HUSHMOTE_PROTOCOL": "5"}, "protocol is for MQTT brokers"),
        ({"HUSHMOTE_CLIENT_ID": "a.b"}, "cannot have a dot: write - or _"),
    ]:
        assert words in hushmote(*serve, cwd=folder, environment=environment, expect=1)
    assert "NATS servers are written nats://" in hushmote(
        "serve", "--broker", "nats://a:x", cwd=folder, expect=1
    )


def test_nats_servers_take_login_and_tls_from_the_same_places(folder: Path, monkeypatch):
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
        ("nats://a", {"ca": "ca"}, "write the broker as tls://"),
    ]:
        with pytest.raises(UsageError, match=words):
            Connection(url, **options).reports()
