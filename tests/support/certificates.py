"""Makes certificates for servers on this machine."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A self-signed certificate for 127.0.0.1 and its key, in PEM."""

    certificate: bytes
    key: bytes
    serial: int
    expiry_s: float
    encrypted_key: bytes

    def write(self, cert_path: Path, key_path: Path) -> None:
        cert_path.write_bytes(self.certificate)
        key_path.write_bytes(self.key)


def make_pair(days: int = 2) -> Pair:
    """Make a pair that is valid from ten days ago until so many days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # OpenSSL looks issuers up by name, so each certificate has its own.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"frazil test {serial % 10**9}")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # Python 3.13 verifies strictly.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )

    def pem(encryption: serialization.KeySerializationEncryption) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return key.private_bytes(serialization.Encoding.PEM, form, encryption)

    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        pem(serialization.NoEncryption()),
        certificate.serial_number,
        certificate.not_valid_after_utc.timestamp(),
        pem(serialization.BestAvailableEncryption(b"secret")),
    )
