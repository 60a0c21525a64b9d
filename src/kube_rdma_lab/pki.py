"""Every key and certificate of a lab: made at each boot, gone with the lab.

Certificates are valid for a week. Two authorities issue them: one for servers and users, one for
the aggregation layer's front proxy.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=7)
# A node whose emulated clock starts a little late must not refuse a fresh certificate.
BACKDATED = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its certificate, as PEM."""

    key: bytes
    certificate: bytes

    def write(self, folder: Path, name: str) -> None:
        """Write `name`.key (mode 0600) and `name`.crt into `folder`."""
        write_secret(folder / f"{name}.key", self.key)
        (folder / f"{name}.crt").write_bytes(self.certificate)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that nobody but its owner can read, from its first moment on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a P-256 key: small and quick, which counts where a node is emulated."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a private key as unencrypted PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode the public half of a key as PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def write_ssh_key(path: Path) -> str:
    """Write a new SSH key (mode 0600) to `path` and return its public half as one line."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    write_secret(path, private)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return public.decode()


class Authority:
    """A certificate authority whose key is only in memory, and so ends with the supervisor."""

    def __init__(self, name: str) -> None:
        self._key = new_key()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """Return the authority's own certificate, as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, user: str, *, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> KeyPair:
        """Issue a certificate for `user` (CN) in `groups` (O), or for a server at `hosts`.

        Each certificate is good for a client, and with `hosts` (addresses and names) for a server
        too.
        """
        key = new_key()
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        )
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(subject, self._name, key.public_key())
        if hosts:
            usage.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False).sign(
            self._key, hashes.SHA256()
        )
        return KeyPair(private_pem(key), certificate.public_bytes(serialization.Encoding.PEM))


_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )
