"""A certificate authority for TLS tests, and the certificates it signs, as PEM files."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """A CA in a folder: .file is its certificate; sign() writes a certificate and its key."""

    def __init__(self, folder, name="ca"):
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        builder = self._builder(name, self._key, -1, 10).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def _builder(self, name, key, start, end):
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(_name(name)).issuer_name(_name(self._name))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now + start * DAY).not_valid_after(now + end * DAY)

    def sign(self, name, *names, start: float = -1, end: float = 5):
        """Write name.pem and name.key, valid between `start` and `end` days from now; return both paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name, key, start, end)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_alt, names))), False)
        certificate, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
        return certificate, secret


def _name(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alt(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)
