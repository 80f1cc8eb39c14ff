"""Moving a fleet's boards from mosquitto to NATS servers with the commands in docs/scale.md."""

from pathlib import Path

from command_line import hushmote
from take_over import let_boards_in, take_over

from hushmote.fleet.provisioning.settings import load_settings


def test_nats_servers_take_over_boards_from_mosquitto(tmp_path: Path):
    """Only listed boards that are not revoked are admitted; tests/whole/ has boards that report."""

    def run(*arguments: str) -> str:
        return hushmote(*arguments, cwd=tmp_path)

    run("provision", "fleet", "old", "--fleet", "home", "--host", "broker.example")
    for device in ("desk", "lost"):
        run("provision", "device", device, "--folder", "old")
    run("provision", "revoke", "lost", "--folder", "old", "--only-folder")
    hosts = [word for name in "abc" for word in ("--host", f"{name}.example")]
    run(
        *("provision", "fleet", "new", "--fleet", "home", "--broker", "nats", *hosts),
        *("--set", "board_host=broker.example"),
    )
    old, new = tmp_path / "old", tmp_path / "new"
    take_over(old, new, run)
    for number in "123":
        assert "urn:hushmote:desk:" not in (new / f"broker/{number}/users.conf").read_text()
    let_boards_in(old, new, run)
    for number in "123":
        users = (new / f"broker/{number}/users.conf").read_text()
        assert "urn:hushmote:desk:" in users
        assert "urn:hushmote:lost:" not in users


def test_boards_get_all_servers_and_no_other_host(tmp_path: Path):
    hosts = [word for name in "abc" for word in ("--host", f"{name}.example")]
    hushmote("provision", "fleet", "new", "--broker", "nats", *hosts, cwd=tmp_path)

    def provision(device: str, *options: str) -> str:
        hushmote("provision", "device", device, "--folder", "new", *options, cwd=tmp_path)
        return load_settings(tmp_path / f"new/devices/{device}.settings.json").mqtt_host

    assert provision("desk") == "a.example,b.example,c.example"
    assert provision("lamp", "--broker", "b.example,a.example") == "b.example,a.example"
    other = ("provision", "device", "x", "--folder", "new", "--broker", "a.example,d.example")
    assert "and not a.example,d.example" in hushmote(*other, cwd=tmp_path, expect=1)
