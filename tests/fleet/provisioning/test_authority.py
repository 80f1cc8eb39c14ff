"""Certificates: their contents, their validity, and OpenSSL's verdict."""

import datetime
import ipaddress
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID
from refusals import Refusal, fails, refusals
from running_aggregator import HANGS_S

from hushmote.fleet.provisioning import authority
from hushmote.fleet.provisioning import journal as issued
from hushmote.fleet.provisioning.authority import AuthorityError

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
ROOT = authority.new_authority("home", NOW)
OTHER_ROOT = authority.new_authority("away", NOW)
DAY = datetime.timedelta(days=1)

CLIENT_NAME = "cannot be in a certificate: 1 to 64 letters, digits, spaces, _ . -"
NOT_OURS = "ca.key must contain a key and its certificate, as `hushmote provision` wrote it"

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(c.public_bytes(Encoding.PEM) for c in certificates)


def verify(
    folder: Path, leaf: authority.CertifiedKey, *trusted: x509.Certificate, purpose: str, more: tuple = ()
):
    """Run `openssl verify` with the strict checks of RFC 5280."""
    (folder / "ca.pem").write_bytes(pem(*trusted))
    (folder / "leaf.pem").write_bytes(pem(leaf.certificate))
    (folder / "chain.pem").write_bytes(pem(*leaf.chain) or pem(leaf.certificate))
    command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", str(folder / "ca.pem")]
    command += ["-attime", str(int((NOW + DAY).timestamp())), "-untrusted", str(folder / "chain.pem"), *more]
    return subprocess.run(
        [*command, str(folder / "leaf.pem")], capture_output=True, text=True, timeout=HANGS_S, check=False
    )


class TestCrossSigning:
    @needs_openssl
    def test_old_root_trusts_new_certificates(self, tmp_path: Path):
        new = authority.new_authority("home", NOW)
        broker = authority.issue_broker(new, ["broker.example"], NOW)
        crossed = authority.CertifiedKey(
            broker.certificate, broker.key, (authority.cross_sign(ROOT, new, NOW),)
        )
        for trusted in (ROOT.certificate, new.certificate):
            assert verify(tmp_path, crossed, trusted, purpose="sslserver").returncode == 0
        assert verify(tmp_path, broker, ROOT.certificate, purpose="sslserver").returncode != 0

    @needs_openssl
    def test_does_not_extend_to_a_third_root(self, tmp_path: Path):
        second, third = (authority.new_authority("home", NOW) for _ in range(2))
        chain = (authority.cross_sign(second, third, NOW), authority.cross_sign(ROOT, second, NOW))
        broker = authority.issue_broker(third, ["broker.example"], NOW)
        crossed = authority.CertifiedKey(broker.certificate, broker.key, chain)
        assert "path length" in verify(tmp_path, crossed, ROOT.certificate, purpose="sslserver").stderr


class TestRevocationList:
    @needs_openssl
    def test_contains_revoked_certificate(self, tmp_path: Path):
        board, other = (authority.issue_client(ROOT, name, NOW, 30) for name in ("k3f9", "k3f8"))
        crl = authority.revocation_list(ROOT, [(board.certificate.serial_number, NOW)], NOW)
        (tmp_path / "crl.pem").write_bytes(crl)
        more = ("-crl_check", "-CRLfile", str(tmp_path / "crl.pem"))
        result = verify(tmp_path, board, ROOT.certificate, purpose="sslclient", more=more)
        assert "certificate revoked" in result.stderr
        result = verify(tmp_path, other, ROOT.certificate, purpose="sslclient", more=more)
        assert result.returncode == 0, result.stderr

    def test_lasts_as_long_as_root(self):
        crl = x509.load_pem_x509_crl(authority.revocation_list(ROOT, [], NOW))
        assert crl.next_update_utc == ROOT.until
        assert len(crl) == 0


def broker_of(*hosts: str) -> Callable[[Path], object]:
    return lambda _folder: authority.issue_broker(ROOT, list(hosts), NOW)


def client(name: str, now: datetime.datetime = NOW, days: int = 30) -> Callable[[Path], object]:
    return lambda _folder: authority.issue_client(ROOT, name, now, days)


def parsed(text: bytes, *passphrase: bytes) -> Callable[[Path], object]:
    return lambda _folder: authority.parse(text, "ca.key", *passphrase)


class TestCertificates:
    @needs_openssl
    def test_verify_for_their_purpose_only(self, tmp_path: Path):
        broker = authority.issue_broker(ROOT, ["broker.example", "10.0.0.5"], NOW)
        board = authority.issue_client(ROOT, "k3f9", NOW, 30)
        accepted = [(broker, "sslserver"), (board, "sslclient")]
        rejected = [(broker, "sslclient"), (board, "sslserver")]
        for leaf, purpose in accepted:
            assert verify(tmp_path, leaf, ROOT.certificate, purpose=purpose).returncode == 0
        for leaf, purpose in rejected:
            assert "purpose" in verify(tmp_path, leaf, ROOT.certificate, purpose=purpose).stderr

    def test_keys_are_p_256_and_signatures_sha_256(self):
        for certified in (ROOT, authority.issue_client(ROOT, "k3f9", NOW, 30)):
            assert isinstance(certified.key.curve, ec.SECP256R1)
            algorithm = certified.certificate.signature_hash_algorithm
            assert algorithm is not None
            assert algorithm.name == "sha256"

    def test_broker_names_are_dns_names_and_addresses(self):
        hosts = ["broker.example", "10.0.0.5", "fd00::5", "localhost"]
        certificate = authority.issue_broker(ROOT, hosts, NOW).certificate
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["broker.example", "localhost"]
        assert names.get_values_for_type(x509.IPAddress) == [
            ipaddress.ip_address(a) for a in ("10.0.0.5", "fd00::5")
        ]

    @refusals(
        *(
            (broker_of(host), "lowercase DNS name or an IP address")
            for host in (
                *("", "a b", "*.example", "broker:8883", "Broker.example"),
                *("-a", "a-", "a..b", "ä.de", "a" * 64),
            )
        ),
        (broker_of(), "--host"),
        *((client(name), CLIENT_NAME) for name in ("", "+", "#", "a/b", "a\n", "ä", "a" * 65)),
        (client("k3f9", ROOT.until), "rotate the ca"),
        (client("k3f9", days=0), "at least 1 day"),
        (parsed(ROOT.to_pem(b"correct horse"), b"wrong horse"), "wrong passphrase for"),
        (parsed(ROOT.to_pem(b"correct horse")), "HUSHMOTE_CA_PASSPHRASE"),
        *((parsed(text), NOT_OURS) for text in (b"", b"rubbish", pem(ROOT.certificate), ROOT.to_pem()[:200])),
        (
            parsed(pem(OTHER_ROOT.certificate) + ROOT.to_pem().split(b"-----BEGIN CERT")[0]),
            "ca.key must contain a P-256 key",
        ),
        error=AuthorityError,
    )
    def test_refusal_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)

    def test_never_outlive_their_root(self):
        board = authority.issue_client(ROOT, "k3f9", NOW, 100_000)
        assert board.until == ROOT.until
        assert authority.issue_client(ROOT, "k3f9", NOW, 30).until == NOW + 30 * DAY
        assert board.certificate.not_valid_before_utc == NOW - DAY

    def test_clients_and_brokers_cannot_sign(self):
        for certified in (
            authority.issue_broker(ROOT, ["b"], NOW),
            authority.issue_client(ROOT, "k3f9", NOW, 30),
        ):
            basic = certified.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
            assert basic.critical
            assert not basic.value.ca
            usage = certified.certificate.extensions.get_extension_for_oid(ExtensionOID.KEY_USAGE)
            assert usage.critical
            assert not usage.value.key_cert_sign  # pyright: ignore[reportAttributeAccessIssue]
        extended = authority.issue_client(
            ROOT, "k3f9", NOW, 30
        ).certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert list(extended.value) == [ExtendedKeyUsageOID.CLIENT_AUTH]

    def test_roots_have_distinct_names_and_serials_never_repeat(self):
        roots = [authority.new_authority("home", NOW) for _ in range(20)]
        # With 32 random bits, two of 20 are equal in fewer than 1 of 2 x 10^7 runs, so only most must differ.
        assert len({r.name for r in roots}) >= 18
        serials = {authority.issue_client(ROOT, "k3f9", NOW, 1).certificate.serial_number for _ in range(20)}
        assert len(serials) == 20  # 159 random bits


class TestFiles:
    def test_round_trip_without_showing_the_key(self):
        certified = authority.CertifiedKey(
            ROOT.certificate, ROOT.key, (authority.cross_sign(ROOT, ROOT, NOW),)
        )
        copy = authority.parse(certified.to_pem(), "x")
        assert copy.certificate == certified.certificate
        assert copy.chain == certified.chain
        assert "key" not in repr(certified)

    def test_passphrase_protects_the_key(self):
        text = ROOT.to_pem(b"correct horse")
        assert authority.needs_passphrase(text)
        assert authority.parse(text, "x", b"correct horse").certificate == ROOT.certificate

    def test_board_fields_round_trip_and_must_match(self):
        board, other = (authority.issue_client(ROOT, name, NOW, 30) for name in ("k3f9", "k3f8"))
        certificate, key = board.board_fields()
        assert authority.parse_board_fields(certificate, key).name == "k3f9"
        with pytest.raises(ValueError, match="not the P-256 key"):
            authority.parse_board_fields(certificate, other.board_fields()[1])
        for bad in ("", "?", "AAAA", key):
            with pytest.raises(ValueError, match="must be base64 of DER, as `hushmote provision` wrote them"):
                authority.parse_board_fields(bad, key)


class TestJournal:
    def test_lists_valid_expired_withdrawn_and_revoked(self):
        boards = [authority.issue_client(ROOT, name, NOW, 30) for name in ("a", "a", "b", "c")]
        serials = [f"{b.certificate.serial_number:x}" for b in boards]
        lines = [issued.certificate_line(b, "device") for b in boards]
        lines.append(issued.login_line("d", ROOT.certificate))
        lines.append(issued.line(withdraw=serials[0], at=NOW.isoformat()))
        lines.append(issued.line(revoke="b", at=NOW.isoformat()))
        journal = issued.parse(b"".join(lines), "x")
        assert [c.serial for c in journal.valid("device", NOW)] == [serials[1], serials[3], None]
        assert [c.serial for c in journal.valid("device", NOW + 31 * DAY)] == [None]
        assert journal.revoked == {"b": NOW}
        assert {c.authority for c in journal.credentials} == {ROOT.name}

    def test_revocation_outlasts_later_lines(self):
        line = issued.certificate_line(authority.issue_client(ROOT, "b", NOW, 30), "device")
        journal = issued.parse(line + issued.line(revoke="b", at=NOW.isoformat()) + line, "x")
        assert [c.revoked for c in journal.credentials] == [NOW, None]
        assert "b" in journal.revoked

    @pytest.mark.parametrize(
        "line",
        [b"{", b"[]", b"{}", b'{"name": 1}', b'{"revoke": "a"}', b"\xff"],
        ids=["brace", "list", "empty object", "integer name", "no date", "not UTF-8"],
    )
    def test_names_damaged_line(self, line: bytes):
        good = issued.line(revoke="b", at=NOW.isoformat())
        with fails("ca is damaged in line 2", issued.JournalError):
            issued.parse(good + line, "ca")
