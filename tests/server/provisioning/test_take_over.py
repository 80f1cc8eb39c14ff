"""A fleet's boards go from mosquitto to NATS servers: the commands of docs/scale.md."""

from pathlib import Path

from command_line import hushmote
from cryptography import x509
from take_over import let_boards_in, take_over

from hushmote.server.provisioning.settings import load_settings


def test_nats_servers_take_over_the_boards_of_a_fleet_on_mosquitto(tmp_path: Path):
    """The old authority, the name that boards know, and its boards once they are let in."""

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
    ca = x509.load_pem_x509_certificate((old / "broker/ca.pem").read_bytes())
    for number in "123":
        server = x509.load_pem_x509_certificate((new / f"broker/{number}/broker.pem").read_bytes())
        server.verify_directly_issued_by(ca)
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "broker.example" in names.get_values_for_type(x509.DNSName)
        users = (new / f"broker/{number}/users.conf").read_text()
        assert "[STANDARD, MQTT]" in users
        assert "urn:hushmote:desk:" not in users
    let_boards_in(old, new, run)
    for number in "123":
        users = (new / f"broker/{number}/users.conf").read_text()
        assert "urn:hushmote:desk:" in users
        assert "urn:hushmote:lost:" not in users


def test_boards_are_told_all_servers_and_none_that_is_no_server(tmp_path: Path):
    hosts = [word for name in "abc" for word in ("--host", f"{name}.example")]
    hushmote("provision", "fleet", "new", "--broker", "nats", *hosts, cwd=tmp_path)

    def made(device: str, *options: str) -> str:
        hushmote("provision", "device", device, "--folder", "new", *options, cwd=tmp_path)
        return load_settings(tmp_path / f"new/devices/{device}.settings.json").mqtt_host

    assert made("desk") == "a.example,b.example,c.example"
    assert made("lamp", "--broker", "b.example,a.example") == "b.example,a.example"
    other = ("provision", "device", "x", "--folder", "new", "--broker", "a.example,d.example")
    assert "and not a.example,d.example" in hushmote(*other, cwd=tmp_path, expect=1)
