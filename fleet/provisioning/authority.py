"""A fleet's own certificate authority: P-256 certificates for its broker, aggregators and devices.

Everything here is a function of its arguments and fresh random keys; other modules handle files. Times are
UTC. No certificate outlives the authority that signs it.
"""

import base64
import datetime
import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...server.errors import ProvisionError

AUTHORITY_DAYS = 7305  # 20 years, because a board in the field gets a new root only by being flashed
BROKER_DAYS = 825
AGGREGATOR_DAYS = 825
DEVICE_DAYS = 3653

SERVER_URI = "urn:hushmote:server"
"""The name by which a broker's servers recognize each other; no client has it."""

_EARLY = datetime.timedelta(days=1)  # a clock that is hours slow must accept a new certificate
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9 _.-]{1,64}", re.ASCII)


class AuthorityError(ProvisionError):
    """Raised if a certificate or key cannot be created, read or used; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class CertifiedKey:
    """A certificate with its private key.

    Attributes:
        chain: Certificates between it and a trusted root, if any.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    chain: tuple[x509.Certificate, ...] = ()

    @property
    def name(self) -> str:
        """The subject's common name."""
        return common_name(self.certificate)

    @property
    def issuer(self) -> str:
        """The common name of the authority that signed it."""
        return _common_name(self.certificate.issuer)

    @property
    def serial(self) -> str:
        """The serial number in hex digits, as in the journal."""
        return f"{self.certificate.serial_number:x}"

    @property
    def until(self) -> datetime.datetime:
        """When the certificate expires."""
        return self.certificate.not_valid_after_utc

    def to_pem(self, passphrase: bytes | None = None) -> bytes:
        """Return key, certificate and chain as one PEM file, so that replacing it cannot separate them."""
        protection = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
        parts = [self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)]
        parts += [c.public_bytes(Encoding.PEM) for c in (self.certificate, *self.chain)]
        return b"".join(parts)

    def board_fields(self) -> tuple[str, str]:
        """Return certificate and key in the format of a device's settings: base64 of DER, for every port."""
        key = self.key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        return der_text(self.certificate), base64.b64encode(key).decode()


def der_text(certificate: x509.Certificate) -> str:
    """Return base64 of a certificate's DER."""
    return base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()


def common_name(certificate: x509.Certificate) -> str:
    """Return the subject's common name, empty if there is none."""
    return _common_name(certificate.subject)


def _common_name(name: x509.Name) -> str:
    names = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def host_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names and addresses of a broker's certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = (name.value for name in names if isinstance(name, x509.DNSName | x509.IPAddress))
    return [str(host) for host in hosts]


def new_authority(fleet: str, now: datetime.datetime) -> CertifiedKey:
    """Return a new root; its name ends in 32 random bits, which distinguish a fleet's roots."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"Hushmote {fleet} {secrets.token_hex(4)}")
    # Path length 1, because this root signs the next one while both are in use.
    end = now + datetime.timedelta(days=AUTHORITY_DAYS)
    builder = _builder(subject, subject, key.public_key(), now, end, 1)
    return CertifiedKey(_sign(builder.serial_number(x509.random_serial_number()), key, key), key)


def cross_sign(old: CertifiedKey, new: CertifiedKey, now: datetime.datetime) -> x509.Certificate:
    """Return the old root's certificate for the new one, so that anyone who trusts the old trusts both."""
    public = new.key.public_key()
    end = min(old.until, new.until)
    builder = _builder(new.certificate.subject, old.certificate.subject, public, now, end, 0)
    return _sign(builder.serial_number(x509.random_serial_number()), old.key, new.key)


def issue_broker(
    authority: CertifiedKey, hosts: Sequence[str], now: datetime.datetime, *, clustered: bool = False
) -> CertifiedKey:
    """Return a broker's certificate for DNS names and IP addresses; raises AuthorityError.

    Args:
        authority: The fleet's authority.
        hosts: The names and addresses.
        now: The current time, UTC.
        clustered: Whether the broker has several servers; they also use it to connect to each other.
    """
    if not hosts:
        raise AuthorityError("a broker needs a name: give --host, the name under which devices reach it")
    names: list[x509.GeneralName] = [host_name(host) for host in hosts]
    usage = [ExtendedKeyUsageOID.SERVER_AUTH]
    if clustered:
        names.append(x509.UniformResourceIdentifier(SERVER_URI))
        usage.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    return _issue(authority, "hushmote broker", now, BROKER_DAYS, x509.random_serial_number(), usage, names)


def issue_client(authority: CertifiedKey, name: str, now: datetime.datetime, days: int) -> CertifiedKey:
    """Return a client's certificate; the broker uses its common name, or its URI, as the user name."""
    serial = x509.random_serial_number()
    names = [x509.UniformResourceIdentifier(client_uri(name, serial))]
    return _issue(authority, name, now, days, serial, [ExtendedKeyUsageOID.CLIENT_AUTH], names)


def client_uri(name: str, serial: int) -> str:
    """Return the second name in a client's certificate, by which NATS revokes it."""
    return f"urn:hushmote:{quote(name, safe='')}:{serial:x}"


def _issue(
    authority: CertifiedKey,
    name: str,
    now: datetime.datetime,
    days: int,
    serial: int,
    usage: Sequence[x509.ObjectIdentifier],
    names: Sequence[x509.GeneralName],
) -> CertifiedKey:
    if not _NAME.fullmatch(name):
        raise AuthorityError(f"{name!r} cannot be in a certificate: 1 to 64 letters, digits, spaces, _ . -")
    if now >= authority.until:
        raise AuthorityError(f"the authority expired on {authority.until:%Y-%m-%d}: rotate the ca")
    if days < 1:
        raise AuthorityError("a certificate must be valid for at least 1 day")
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + datetime.timedelta(days=days), authority.until)
    builder = _builder(_subject(name), authority.certificate.subject, key.public_key(), now, end)
    builder = builder.serial_number(serial).add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return CertifiedKey(_sign(builder, authority.key, key), key)


def host_name(host: str) -> x509.GeneralName:
    """Return a host's name for a certificate; raises AuthorityError unless it is a name or an address."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise AuthorityError(
            f"host {host!r} must be a lowercase DNS name or an IP address, without a port or wildcard"
        )
    return x509.DNSName(host)


def revocation_list(
    authority: CertifiedKey, revoked: Sequence[tuple[int, datetime.datetime]], now: datetime.datetime
) -> bytes:
    """Return the PEM list of an authority's revoked certificates, given as (serial number, time).

    The list is valid for as long as the authority, because a broker refuses everyone if its list has expired.
    """
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.certificate.subject)
    builder = builder.last_update(now - _EARLY).next_update(authority.until)
    for serial, when in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when)
        builder = builder.add_revoked_certificate(entry.build())
    builder = builder.add_extension(_key_identifier(authority.key), critical=False)
    builder = builder.add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
    return builder.sign(authority.key, SHA256()).public_bytes(Encoding.PEM)


def needs_passphrase(pem: bytes) -> bool:
    """Return whether a PEM file's key is encrypted."""
    return b"ENCRYPTED PRIVATE KEY" in pem


def parse(pem: bytes, where: str, passphrase: bytes | None = None) -> CertifiedKey:
    """Parse the output of CertifiedKey.to_pem(); raise AuthorityError, which never shows part of the key."""
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        key = load_pem_private_key(pem, passphrase if needs_passphrase(pem) else None)
    except TypeError:
        raise AuthorityError(f"the key in {where} needs a passphrase: set HUSHMOTE_CA_PASSPHRASE") from None
    except ValueError:
        if needs_passphrase(pem):
            raise AuthorityError(f"wrong passphrase for {where}, or the file is damaged") from None
        raise AuthorityError(
            f"{where} must contain a key and its certificate, as `hushmote provision` wrote it"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificates[0].public_key():
        raise AuthorityError(f"{where} must contain a P-256 key and its certificate")
    return CertifiedKey(certificates[0], key, tuple(certificates[1:]))


def parse_board_fields(certificate: str, key: str) -> CertifiedKey:
    """Parse the output of CertifiedKey.board_fields(); raise ValueError, never with part of the key."""
    try:
        parsed_certificate = x509.load_der_x509_certificate(base64.b64decode(certificate, validate=True))
        parsed_key = load_der_private_key(base64.b64decode(key, validate=True), None)
    except (ValueError, TypeError):
        raise ValueError(
            "mqtt_cert and mqtt_key must be base64 of DER, as `hushmote provision` wrote them"
        ) from None
    is_p256 = isinstance(parsed_key, ec.EllipticCurvePrivateKey)
    if not is_p256 or parsed_key.public_key() != parsed_certificate.public_key():
        raise ValueError("mqtt_key is not the P-256 key of mqtt_cert")
    return CertifiedKey(parsed_certificate, parsed_key)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    end: datetime.datetime,
    path_length: int | None = None,
) -> x509.CertificateBuilder:
    """Return a builder with the fields that all certificates share.

    Args:
        subject: The name in the certificate.
        issuer: The signer's name.
        public: The subject's public key.
        now: The current time, UTC.
        end: When it expires.
        path_length: An authority's path length; None for a certificate that signs no others.
    """
    signs = path_length is not None
    usage = x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=signs, path_length=path_length)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.not_valid_before(now - _EARLY).not_valid_after(end)
    return builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)


def _key_identifier(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _sign(
    builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey, subject: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    identifier = x509.SubjectKeyIdentifier.from_public_key(subject.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return builder.add_extension(_key_identifier(signer), critical=False).sign(signer, SHA256())
