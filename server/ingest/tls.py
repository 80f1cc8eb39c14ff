"""TLS for connections to the broker: the context that checks it, and one-line explanations of errors."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HushmoteError, refusing
from ..wire.limits import EARLIEST

if TYPE_CHECKING:
    from cryptography import x509

# OpenSSL's reasons for refusing the broker's certificate (X509_V_ERR_...), with advice.
_VERIFY = {
    9: "its certificate is not valid yet: set this machine's clock, or wait",
    10: "its certificate has expired: renew it",
    18: "its certificate is self-signed and not trusted: give its CA in HUSHMOTE_BROKER_CA",
    19: "the CA of its certificate is not trusted: give that CA's certificate in HUSHMOTE_BROKER_CA",
    20: "the CA of its certificate is not trusted: give that CA's certificate in HUSHMOTE_BROKER_CA",
    21: "the CA of its certificate is not trusted: give that CA's certificate in HUSHMOTE_BROKER_CA",
    23: "its certificate was revoked: give it a new one",
    62: "its certificate is for another name: connect by a name in it, or renew it with this one",
    64: "its certificate is for another address: connect by a name in it, or renew it with this address",
}
# A broker's answers to our certificate, by parts of OpenSSL's names for the alerts.
_ALERTS = {
    "CERTIFICATE_REQUIRED": "it requires a client certificate: give HUSHMOTE_BROKER_CERT",
    "HANDSHAKE_FAILURE": "it refuses the handshake: it may require a certificate, HUSHMOTE_BROKER_CERT",
    "UNKNOWN_CA": "it does not trust the CA of our certificate: give one that its CA signed",
    "CERTIFICATE_EXPIRED": "it says that our certificate has expired: renew it",
    "CERTIFICATE_REVOKED": "it says that our certificate was revoked: create a new one",
    "BAD_CERTIFICATE": "it does not accept our certificate: give one that its CA signed",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate: give one that its CA signed",
    "UNSUPPORTED_CERTIFICATE": "it does not accept our certificate: it must allow TLS clients",
    "WRONG_VERSION_NUMBER": "it does not use TLS on this port: use another port, or mqtt://",
    "RECORD_LAYER_FAILURE": "it does not use TLS on this port: use another port, or mqtt://",
    "PROTOCOL_VERSION": "it does not support TLS 1.2 or newer: update it",
    "UNSUPPORTED_PROTOCOL": "it does not support TLS 1.2 or newer: update it",
    "UNEXPECTED_EOF": "it closed the connection in the handshake: is TLS set up on this port?",
}


class CertificateError(HushmoteError):
    """Raised for a certificate or key file that cannot be used; the message says why and what to do."""


def client_context(
    ca: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return a context that checks a broker's certificate and its name, with TLS 1.2 or newer.

    Args:
        ca: PEM file with the trusted CAs; None for the system's CAs.
        certificate: PEM file with the client's certificate; None to send no certificate.
        key: PEM file with the certificate's key; None without a certificate.

    Raises:
        CertificateError: If a file cannot be used, or only one of certificate and key is given.
    """
    if (certificate is None) != (key is None):
        raise CertificateError(
            "a client certificate needs its key: set both HUSHMOTE_BROKER_CERT and HUSHMOTE_BROKER_CERT_KEY"
        )
    if ca is None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    else:
        # Trust only this CA, because any of the system's CAs could certify a private broker's name.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _certificates(ca)
        context.load_verify_locations(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None and key is not None:
        _check_dates(_certificates(certificate)[0], certificate)
        _load(context, certificate, key)
    return context


def first_expiry(path: Path) -> datetime.datetime:
    """Return the time, UTC, at which the first of a PEM file's certificates expires.

    Raises:
        CertificateError: If the file contains no certificate.
    """
    return validity(path)[1]


def validity(path: Path) -> tuple[datetime.datetime, datetime.datetime]:
    """Return from when to when, UTC, the first of a PEM file's certificates to expire is valid.

    Raises:
        CertificateError: If the file contains no certificate.
    """
    first = min(_certificates(path), key=lambda certificate: certificate.not_valid_after_utc)
    return first.not_valid_before_utc, first.not_valid_after_utc


def _read(path: Path) -> bytes:
    with refusing(CertificateError, f"read {path}"):
        return path.read_bytes()


def _certificates(path: Path) -> list[x509.Certificate]:
    from cryptography import x509  # imported lazily: it is slow to load and only TLS needs it

    content = _read(path)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise CertificateError(
            f"{path} contains no certificate: it must be a PEM file, -----BEGIN CERTIFICATE-----"
        ) from None


def _check_dates(certificate: x509.Certificate, path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    if now > certificate.not_valid_after_utc:
        raise CertificateError(
            f"{path} expired on {certificate.not_valid_after_utc:%Y-%m-%d}: renew it; brokers refuse it"
        )
    # A machine without a battery-backed clock may start in 1970: its connections fail until it has the time.
    if EARLIEST <= now < certificate.not_valid_before_utc:
        raise CertificateError(
            f"{path} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}: set this clock, or wait"
        )


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    if b"PRIVATE KEY-----" not in _read(key):
        raise CertificateError(f"{key} contains no key: it must be a PEM file, -----BEGIN PRIVATE KEY-----")
    try:
        # Pass an empty password because OpenSSL would otherwise prompt at the terminal, where a service
        # cannot answer.
        context.load_cert_chain(certificate, key, password=b"")
    except ssl.SSLError as e:
        if e.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{key} is not the key of {certificate}: give a matching pair") from None
        if b"ENCRYPTED" in _read(key):
            raise CertificateError(
                f"{key} is encrypted: give a key without a passphrase, in a file of mode 0600"
            ) from None
        raise CertificateError(f"cannot use {certificate} with {key}: {e.reason or e}") from None


def explain(error: BaseException | str) -> str | None:
    """Return why a TLS connection failed and what to do, or None if TLS is not the cause.

    Args:
        error: A connection attempt's exception, or the log line about a lost connection.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _VERIFY.get(error.verify_code, f"its certificate is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        text = f"{error.reason or ''} {error}"
    elif isinstance(error, str) and "SSL" in error:
        text = error
    else:
        return None
    for part, words in _ALERTS.items():
        if part in text.replace(" ", "_").upper():
            return words
    return f"TLS failed: {text.strip()}"
