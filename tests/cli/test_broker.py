"""The login at the broker: from a file or the environment in every command that connects, never typed."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import DOOR, hushmote
from served import served
from traffic import needs_mosquitto

from hushmote.cli.broker import PASSWORD, broker_address, reports_connection
from hushmote.server.errors import UsageError
from hushmote.server.ingest.broker_url import NatsAddress
from hushmote.simulator.broker import MosquittoBroker

SECRET = "p@ss word"
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


@needs_mosquitto
def test_serve_takes_the_password_from_any_of_four_places(folder: Path, mosquitto: MosquittoBroker):
    where = f"127.0.0.1:{mosquitto.port}"
    user = f"mqtt://agg@{where}"
    for options, environment in [
        (("--broker", user, "--password-file", folder / "secret"), {}),
        ((), {"HUSHMOTE_BROKER": f"mqtt://{IN_URL}{where}"}),
        ((), {"HUSHMOTE_BROKER": user, "HUSHMOTE_BROKER_PASSWORD_FILE": f"{folder}/secret"}),
        (("--broker", user), {PASSWORD: SECRET}),
    ]:
        store = ("--store", f"sqlite:///{folder}/hushmote.sqlite")
        with served(*store, *options, environment=environment) as process:
            process.ready()
            assert process.end() == 0
            assert "word" not in process.log()


@needs_mosquitto
def test_status_and_demo_take_it_from_the_same_places(folder: Path, mosquitto: MosquittoBroker):
    user = f"mqtt://agg@127.0.0.1:{mosquitto.port}"
    demo = ("demo", "--devices", "100", "--json", "--broker", user)
    status = ("status", "--json", "--broker", user)
    for options, environment in [
        (("--password-file", "secret"), {}),
        ((), {"HUSHMOTE_BROKER_PASSWORD_FILE": "secret"}),
        ((), {PASSWORD: SECRET}),
    ]:
        shown = hushmote(*status, *options, cwd=folder, environment=environment)
        assert json.loads(shown)["devices"] == []
    shown = hushmote(*demo, cwd=folder, environment={PASSWORD: SECRET, "HUSHMOTE_SHARE": "mine"})
    assert json.loads(shown)["reports"] == 100
    hushmote(*status, cwd=folder, environment={PASSWORD: "wrong"}, expect=1)


def test_a_typed_password_is_refused_in_one_line_that_names_the_places(folder: Path):
    for command in ("serve", "status", "demo"):
        said = hushmote(command, "--broker", "mqtt://agg:p%40ss@host", cwd=folder, expect=1)
        assert "every user of this machine can read a command line" in said
        assert "--password-file" in said
        assert PASSWORD in said
        assert "p%40ss" not in said


def test_logins_that_cannot_be_are_one_line(folder: Path):
    user = ("serve", "--broker", "mqtt://a@host")
    both = {PASSWORD: "x", "HUSHMOTE_BROKER_PASSWORD_FILE": "secret"}
    for arguments, environment, words in [
        ((*user, "--password-file", "open"), {}, "can be read by others: chmod 600"),
        ((*user, "--password-file", "empty"), {}, "must hold a password"),
        ((*user, "--password-file", "none"), {}, "No such file"),
        (("serve", "--broker", "mqtt://host", "--password-file", "secret"), {}, "needs the user's name"),
        (("serve", "--broker", "mqtt://host"), {PASSWORD: "x"}, "needs the user's name"),
        (user, {PASSWORD: ""}, f"{PASSWORD} is empty"),
        (user, both, f"is given by --password-file and by {PASSWORD}: take one"),
        (("serve",), {"HUSHMOTE_BROKER": "mqtt://a:b@h", PASSWORD: "x"}, "the broker's URL and by"),
        (("demo", "--broker", "mqtts://host"), {}, "speaks no TLS"),
    ]:
        assert words in hushmote(*arguments, cwd=folder, environment=environment, expect=1), arguments


def test_a_url_of_the_environment_may_hold_a_password():
    address = broker_address("mqtt://agg:b@host", None, typed=False)
    assert (address.username, address.password) == ("agg", "b")
    with pytest.raises(UsageError, match="every user of this machine"):
        broker_address("mqtt://agg:b@host", None, typed=True)


def test_what_nats_servers_cannot_do_is_refused_in_one_line(folder: Path):
    serve = ("serve", "--broker", "nats://a,b")
    for arguments, words in [
        ((*serve, "--share", "crew", "--client-id", "a"), "with one --client-id divide the reports"),
        ((*serve, "--protocol", "5"), "--protocol is for MQTT brokers"),
        ((*serve, "--client-id", "a.b"), "cannot have a dot: write - or _"),
        (("serve", "--broker", "nats://a:x"), "NATS servers are written nats://"),
    ]:
        assert words in hushmote(*arguments, cwd=folder, expect=1), arguments


def test_nats_servers_take_login_and_tls_from_the_same_places(folder: Path, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv(PASSWORD, raising=False)
    address, tls = reports_connection("nats://agg@a,b", Path("secret"))
    assert isinstance(address, NatsAddress)
    assert (address.username, address.password, tls) == ("agg", SECRET, None)
    assert reports_connection("tls://a,b")[1] is not None
    for url, options, words in [
        ("nats://agg:x@a", {}, "every user of this machine can read a command line"),
        ("nats://a", {"password_file": Path("secret")}, "write the broker as nats://user@host"),
        ("nats://a", {"ca": Path("ca")}, "write the broker as tls://"),
    ]:
        with pytest.raises(UsageError, match=words):
            reports_connection(url, **options)
