"""Run Hushmote's aggregator and page as an app of Home Assistant.

The Supervisor writes the options to /data/options.json, and its services API names the broker. People can
open /config, which holds the questions, and the settings that the app writes for devices. The store and the
keys are in /data. The app runs until the Supervisor stops it, or until the aggregator or the page ends.
"""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

HUSHMOTE = (sys.executable, "-m", "hushmote")
ACCOUNT = "hushmote"  # of the container; everything but this script runs as it
NO_BROKER = (
    "Home Assistant offers no MQTT broker: install and start the app Mosquitto broker, then start Hushmote"
)


class CannotStart(Exception):
    """Raised with what someone has to do first."""


@dataclass(frozen=True)
class Places:
    """Where the app finds things in its container; a test has other places.

    Attributes:
        data: The folder that only this app sees.
        config: The folder that people can open.
        supervisor: The address of the Supervisor's API.
        ingress: The address from which the Supervisor opens the page.
        page_port: The page's port.
        health_port: The port of the aggregator's health check, for this container only.
    """

    data: Path = Path("/data")
    config: Path = Path("/config")
    supervisor: str = "http://supervisor"
    ingress: str = "172.30.32.2"
    page_port: int = 8099
    health_port: int = 9417

    @property
    def state(self) -> Path:
        """The folder with the store and the keys."""
        return self.data / "hushmote"


def broker(places: Places, token: str) -> Mapping[str, Any]:
    """Return the broker as the Supervisor describes it: host, port, ssl, perhaps username and password."""
    request = urllib.request.Request(
        f"{places.supervisor}/services/mqtt", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as e:
        if e.code == 400:  # "Service not enabled"
            raise CannotStart(NO_BROKER) from None
        raise CannotStart(f"the Supervisor does not name the broker, but answers {e.code}") from None
    except (OSError, ValueError, KeyError) as e:
        raise CannotStart(f"the Supervisor does not name the broker: {e}") from None


def environment(places: Places, service: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of Hushmote's commands, and write the broker's password to a file."""
    settings = {"HOME": str(places.state), "HUSHMOTE_STORE": f"sqlite:///{places.state / 'hushmote.sqlite'}"}
    user = quote(service.get("username") or "", safe="")
    scheme = "mqtts" if service.get("ssl") else "mqtt"
    settings["HUSHMOTE_BROKER"] = f"{scheme}://{user}{'@' if user else ''}{service['host']}:{service['port']}"
    if service.get("password"):
        password = write_secret(places.state / "broker.password", service["password"])
        settings["HUSHMOTE_BROKER_PASSWORD_FILE"] = str(password)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TZ", "PYTHONPATH")}
    return kept | settings


def write_secret(path: Path, text: str) -> Path:
    """Write a file that only Hushmote's account can read."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    give(path)
    return path


def account() -> dict[str, Any]:
    """Return how to start a process as Hushmote's account; nothing outside the container."""
    if os.geteuid() != 0 or ACCOUNT not in (entry.pw_name for entry in pwd.getpwall()):
        return {}
    return {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": ()}


def give(*paths: Path) -> None:
    """Give files or folders to Hushmote's account."""
    for path in paths:
        if account():
            shutil.chown(path, ACCOUNT, ACCOUNT)


def run(env: Mapping[str, str], *arguments: object, more: Mapping[str, str] | None = None) -> str | None:
    """Run a command of Hushmote and return its output, or None if it failed; print its errors."""
    command = [*HUSHMOTE, *map(str, arguments)]
    done = subprocess.run(
        command, env={**env, **(more or {})}, stdout=subprocess.PIPE, text=True, check=False, **account()
    )
    return done.stdout if done.returncode == 0 else None


def write_devices(places: Places, options: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Write the settings of devices that do not have any yet."""
    folder = places.config / "devices"
    url = str(options["device_broker"])
    scheme, at, host = url.rpartition("://")
    if user := options.get("device_user"):
        host = f"{quote(user, safe='')}@{host}"
    for name in options["devices"]:
        if (folder / f"{name}.settings.json").exists():
            continue
        arguments = (
            "--fleet",
            options["fleet"],
            "--master-key",
            places.state / "master.key",
            "--out",
            folder,
        )
        made = run(
            env,
            *("provision", "device", name, "--for", "esphome", *arguments),
            *("--broker", f"{scheme if at else 'mqtt'}://{host}"),
            more={"HUSHMOTE_MQTT_PASSWORD": options.get("device_password") or ""},
        )
        if made is not None:
            print(f"wrote the secret settings of {name} to the folder devices")


def update_questions(places: Places, fleet: str, env: Mapping[str, str]) -> None:
    """Ask what the files in the folder `questions` ask, and withdraw what no file asks any more."""
    names, are_readable = set[str](), True
    for file in sorted((places.config / "questions").glob("*.toml")):
        try:
            names.add(tomllib.loads(file.read_text(encoding="utf-8"))["name"])
        except (OSError, ValueError, KeyError, TypeError):
            are_readable = False  # the next command says why
        print(run(env, "experiment", "add", file, "--fleet", fleet, "--keys") or "", end="")
    if not are_readable:
        print("nothing is withdrawn, because a file in the folder questions cannot be read")
        return
    listed = (
        run(env, "experiment", "list", "--fleet", fleet, "--json") if names or has_store(places) else None
    )
    for line in json.loads(listed or "[]"):
        if line["current"] and line["name"] not in names:
            print(run(env, "experiment", "withdraw", line["name"], "--fleet", fleet) or "", end="")


def has_store(places: Places) -> bool:
    """Return whether there is a store from an earlier start."""
    return (places.state / "hushmote.sqlite").exists()


def commands(places: Places, options: Mapping[str, Any]) -> list[list[str]]:
    """Return the arguments of the aggregator and of the page."""
    receivers, notify = places.state / "receivers.txt", "home-assistant"
    if options["notify"]:
        notify = str(write_secret(receivers, "\n".join(options["notify"])))
    serve = ["serve", "--master-key", str(places.state / "master.key")]
    serve += ["--signing-key", str(places.state / "signing.key"), "--notify", notify]
    serve += [
        "--publish",
        f"{options['publish']},home-assistant",
        "--http",
        f"127.0.0.1:{places.health_port}",
    ]
    page = ["page", "--http", f"0.0.0.0:{places.page_port}", "--trusted-proxy", places.ingress]
    page += ["--frame-ancestors", "self", "--aggregator", f"http://127.0.0.1:{places.health_port}"]
    return [serve, page]


def run_until_stopped(programs: Iterable[Sequence[str]], env: Mapping[str, str]) -> int:
    """Run the programs until a signal or until one of them ends; return the exit status.

    The page does not get the broker, which is only for its board in the browser.
    """
    is_stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_stopped.set())
    children = list[subprocess.Popen[Any]]()
    for program in programs:
        own = {k: v for k, v in env.items() if program[0] == "serve" or not k.startswith("HUSHMOTE_BROKER")}
        children.append(subprocess.Popen([*HUSHMOTE, *program], env=own, **account()))
    while all(child.poll() is None for child in children) and not is_stopped.wait(0.5):
        pass
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
    return 0 if is_stopped.is_set() else 1


def main(places: Places) -> int:
    """Run the app; return its exit status."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        options = json.loads((places.data / "options.json").read_text(encoding="utf-8"))
        service = broker(places, os.environ.get("SUPERVISOR_TOKEN", ""))
    except CannotStart as e:
        print(f"hushmote: {e}", file=sys.stderr)
        return 1
    folders = (places.state, places.config / "questions", places.config / "devices")
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for secret in (folders[0], folders[2]):
        secret.chmod(0o700)
    give(places.state, *places.state.iterdir(), folders[2], *folders[2].iterdir())
    env = environment(places, service)
    if (
        not (places.state / "master.key").exists()
        and run(env, "provision", "keys", places.state / "master.key") is None
    ):
        return 1
    write_devices(places, options, env)
    update_questions(places, options["fleet"], env)
    return run_until_stopped(commands(places, options), env)


if __name__ == "__main__":
    sys.exit(main(Places()))
