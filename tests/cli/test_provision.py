"""`hushmote provision device`, where nobody is there to be asked."""

from pathlib import Path

import pytest
from command_line import hushmote

from hushmote.server.provisioning.settings import load_settings

DEVICE = ("provision", "device", "desk", "--open", "--wifi-ssid", "any", "--broker", "localhost")


def test_the_wifi_password_is_asked_for_at_a_terminal_only(tmp_path: Path):
    said = (
        "hushmote: the password of any is asked for at a terminal: use one, or set HUSHMOTE_WIFI_PASSWORD\n"
    )
    assert hushmote(*DEVICE, cwd=tmp_path, expect=1) == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("password", ["correct horse", ""])
def test_the_wifi_password_may_come_from_the_environment_and_be_empty(tmp_path: Path, password: str):
    hushmote(*DEVICE, cwd=tmp_path, environment={"HUSHMOTE_WIFI_PASSWORD": password})
    assert load_settings(tmp_path / "desk.settings.json").wifi_password == password
