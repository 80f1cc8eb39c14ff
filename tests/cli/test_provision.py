"""`hushmote provision device`, where nobody is there to be asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hushmote.server.provisioning.settings import load_settings

DEVICE = ("provision", "device", "desk", "--open", "--wifi-ssid", "any", "--mqtt-host", "localhost")


def provision(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with a pipe for a keyboard."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
    command = [sys.executable, "-m", "hushmote", *DEVICE]
    return subprocess.run(
        command, cwd=folder, env=clean | environment, input="", capture_output=True, text=True, timeout=60
    )


def test_the_wifi_password_is_asked_for_at_a_terminal_only(tmp_path: Path):
    done = provision(tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "hushmote: the password of any is asked for at a terminal: use one, or set HUSHMOTE_WIFI_PASSWORD\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("password", ["correct horse", ""])
def test_the_wifi_password_may_come_from_the_environment_and_be_empty(tmp_path: Path, password: str):
    done = provision(tmp_path, HUSHMOTE_WIFI_PASSWORD=password)
    assert done.returncode == 0, done.stderr
    assert load_settings(tmp_path / "desk.settings.json").wifi_password == password
