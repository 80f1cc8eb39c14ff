"""A fleet's boards go from mosquitto to NATS servers: the commands of docs/set-ups.md."""

import shutil
from pathlib import Path

from command_line import hushmote
from cryptography import x509

from hushmote.server.provisioning.settings import load_settings


def test_nats_servers_take_over_the_boards_of_a_fleet_on_mosquitto(tmp_path: Path):
    """The old authority, its boards, and the name that they know."""
    hushmote("provision", "fleet", "old", "--fleet", "home", "--host", "broker.example", cwd=tmp_path)
    hushmote("provision", "device", "desk", "--folder", "old", cwd=tmp_path)
    hosts = [word for name in "abc" for word in ("--host", f"{name}.example")]
    hushmote(
        *("provision", "fleet", "new", "--fleet", "home", "--broker", "nats", *hosts),
        *("--board-host", "broker.example"),
        cwd=tmp_path,
    )
    old, new = tmp_path / "old", tmp_path / "new"
    for part in ("authority", "aggregator", "devices"):
        shutil.copytree(old / part, new / part, dirs_exist_ok=True)
    for part in ("broker", "broker/1", "broker/2", "broker/3"):
        shutil.copy(old / "broker/ca.pem", new / part)
    hushmote("provision", "rotate", "broker", "--folder", "new", cwd=tmp_path)
    ca = x509.load_pem_x509_certificate((old / "broker/ca.pem").read_bytes())
    for number in "123":
        server = x509.load_pem_x509_certificate((new / f"broker/{number}/broker.pem").read_bytes())
        server.verify_directly_issued_by(ca)
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "broker.example" in names.get_values_for_type(x509.DNSName)
        users = (new / f"broker/{number}/users.conf").read_text()
        assert "urn:hushmote:desk:" in users
        assert "urn:hushmote:aggregator_1:" in users


def test_boards_are_told_all_servers_and_none_that_is_no_server(tmp_path: Path):
    hosts = [word for name in "abc" for word in ("--host", f"{name}.example")]
    hushmote("provision", "fleet", "new", "--broker", "nats", *hosts, cwd=tmp_path)

    def made(device: str, *options: str) -> str:
        hushmote("provision", "device", device, "--folder", "new", *options, cwd=tmp_path)
        return load_settings(tmp_path / f"new/devices/{device}.settings.json").mqtt_host

    assert made("desk") == "a.example,b.example,c.example"
    assert made("lamp", "--mqtt-host", "b.example,a.example") == "b.example,a.example"
    other = ("provision", "device", "x", "--folder", "new", "--mqtt-host", "a.example,d.example")
    assert "and not a.example,d.example" in hushmote(*other, cwd=tmp_path, expect=1)
