"""Settings of `hushmote serve`, which are refused in one line before it connects."""

from pathlib import Path

import pytest
from command_line import DOOR, hushmote
from refusals import Refusal, refusals

SERVE = "serve --broker mqtt://host"
NATS = "serve --broker nats://a,b"
ACCEPTED = "fleet home is keyed: give its master key"
"""The error of serve without keys after it has accepted all settings."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    (folder / "door.toml").write_text(DOOR)
    hushmote("experiment", "add", "door.toml", "--keys", cwd=folder)
    return folder


class TestSettings:
    @refusals(
        (f"{SERVE} --publish ended", ACCEPTED),
        (f"{SERVE} --publish ended --retire", "exits; omit --publish"),
        (
            f"{SERVE} --publish ended,home-assistant",
            "letters, digits, _ and -",
            {},
            {"HUSHMOTE_DISCOVERY_PREFIX": "a/#"},
        ),
        (f"{SERVE} --publish ended,home-assistant --notify home-assistant", ACCEPTED),
        (f"{SERVE} --notify home-assistant", "also give --publish ended,home-assistant"),
        (f"{SERVE} --publish ended --notify home-assistant", "also give --publish ended,home-assistant"),
        (f"{SERVE} --retire", "require MQTT 5", {}, {"HUSHMOTE_PROTOCOL": "3.1.1"}),
        (SERVE, "protocol must be one of auto, 5, 3.1.1, not 4", {}, {"HUSHMOTE_PROTOCOL": "4"}),
        (SERVE, "share requires client_id", {}, {"HUSHMOTE_SHARE": "group"}),
        (SERVE, "must be 1 to 32 of a-z", {}, {"HUSHMOTE_SHARE": "Group!", "HUSHMOTE_CLIENT_ID": "a"}),
        (SERVE, "client_id must have 1 to 64", {}, {"HUSHMOTE_CLIENT_ID": "a/b"}),
        (SERVE, ACCEPTED, {}, {"HUSHMOTE_CLIENT_ID": "a.b"}),
        (NATS, ACCEPTED, {}, {"HUSHMOTE_CLIENT_ID": "a-b"}),
        (NATS, "cannot contain a dot; use - or _", {}, {"HUSHMOTE_CLIENT_ID": "a.b"}),
        (NATS, "protocol applies only to MQTT brokers", {}, {"HUSHMOTE_PROTOCOL": "5"}),
        (
            NATS,
            "with the same client_id divide the reports",
            {},
            {"HUSHMOTE_SHARE": "group", "HUSHMOTE_CLIENT_ID": "a"},
        ),
    )
    def test_refusal_is_one_line(self, refusal: Refusal, folder: Path):
        refusal.check(folder)
