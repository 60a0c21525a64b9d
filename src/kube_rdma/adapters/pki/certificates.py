"""Authorities and server certificates in PEM, by the library `cryptography`, and nowhere else.

    Secret ─► read ─► KeptCertificates ─► rules/admission/certificate ─► new_authority, new_server

What cannot be read is no error but a clause in `faults`: it is about to be replaced. Only the copy
of the controller that leads imports this, for the library takes 9 MB of memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube_base.frozen import Frozen
from kube_rdma.model.admission.certificate import (
    CertificateLife,
    Fingerprint,
    KeptCertificates,
    ServerCertificate,
    TrustedAuthority,
)

AUTHORITY, AUTHORITY_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "tls.crt", "tls.key"
AUTHORITY_NAME = "kube-rdma-admission"
_BACKDATED = timedelta(hours=1)  # for API servers whose clocks are late

# What the library raises about content, whose common base is Exception alone.
_UNREADABLE = (
    *(ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion),
    *(x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)

NewKey: TypeAlias = Callable[[], ec.EllipticCurvePrivateKey]


class MadePair(Frozen):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


def new_key() -> ec.EllipticCurvePrivateKey:
    """A key of P-256: every TLS client knows it, and it is made in a millisecond."""
    return ec.generate_private_key(ec.SECP256R1())


def new_authority(make_key: NewKey, begins: datetime, ends: datetime) -> MadePair:
    """An authority that signs itself, and may sign servers alone."""
    key = make_key()
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    name = _name(AUTHORITY_NAME)
    made = (
        _builder(name, key.public_key(), begins, ends)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def new_server(
    make_key: NewKey, authority: MadePair, host: str, begins: datetime, ends: datetime
) -> MadePair:
    """A certificate for servers at `host`, by an authority that `read` has shown with its key."""
    signer = _authorities(authority.certificate)[-1]
    signing = _signing_key(authority.key)
    key = make_key()
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    made = (
        _builder(_name("webhook"), key.public_key(), begins, ends)
        .issuer_name(signer.subject)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(identifier, critical=False)
        .sign(signing, hashes.SHA256())
    )
    return _pair(made, key)


def read(data: Mapping[str, bytes]) -> KeptCertificates:
    """What a Secret that exists holds."""
    with warnings.catch_warnings(action="ignore"):  # about content, on standard error
        return _read(data)


def bundle(data: bytes) -> tuple[TrustedAuthority, ...]:
    """The authorities of a caBundle; none where it cannot be read."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return tuple(map(_trusted, _authorities(data)))
        except _UNREADABLE:
            return ()


def _read(data: Mapping[str, bytes]) -> KeptCertificates:
    faults: list[str] = []
    authorities: list[x509.Certificate] = []
    trusted: tuple[TrustedAuthority, ...] = ()
    signer: Fingerprint | None = None
    server: ServerCertificate | None = None
    try:
        authorities = _authorities(data.get(AUTHORITY, b""))
        trusted = tuple(map(_trusted, authorities))
    except _UNREADABLE:
        authorities = []
        faults.append(f"{AUTHORITY} of the Secret holds no certificates")
    try:
        signer = _signer(data.get(AUTHORITY_KEY, b""), authorities)
    except _UNREADABLE:
        faults.append(f"{AUTHORITY_KEY} of the Secret holds no key of an authority")
    if CERTIFICATE in data or KEY in data:
        try:
            server = _server(data, authorities)
        except _UNREADABLE:
            faults.append(f"{CERTIFICATE} and {KEY} of the Secret are not a pair")
    return KeptCertificates(trusted, signer, server, exists=True, faults=tuple(faults))


def _signer(pem: bytes, authorities: list[x509.Certificate]) -> Fingerprint | None:
    """Whose key it is."""
    signing = _signing_key(pem).public_key()
    return next((_print(one) for one in authorities if one.public_key() == signing), None)


def _server(data: Mapping[str, bytes], authorities: list[x509.Certificate]) -> ServerCertificate:
    """Raise ValueError for what is no pair."""
    certificate = x509.load_pem_x509_certificate(data.get(CERTIFICATE, b""))
    if _signing_key(data.get(KEY, b"")).public_key() != certificate.public_key():
        raise ValueError("the key is another's")
    issuer = next((_print(one) for one in authorities if _signed(certificate, one)), None)
    return ServerCertificate(issuer, _hosts(certificate), _life(certificate))


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (*_UNREADABLE, InvalidSignature):
        return False
    return True


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.value.get_values_for_type(x509.DNSName))


def _authorities(pem: bytes) -> list[x509.Certificate]:
    """Raise ValueError where there is none, or anything else."""
    return x509.load_pem_x509_certificates(pem)


def _signing_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Raise ValueError for everything but an elliptic key without a password."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("a key of another kind")  # noqa: TRY004  what is read is no argument
    return key


def _trusted(certificate: x509.Certificate) -> TrustedAuthority:
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    own = certificate.subject == _name(AUTHORITY_NAME)
    return TrustedAuthority(pem, _print(certificate), _life(certificate), own)


def _print(certificate: x509.Certificate) -> Fingerprint:
    return Fingerprint(certificate.fingerprint(hashes.SHA256()).hex())


def _life(certificate: x509.Certificate) -> CertificateLife:
    return CertificateLife(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    """The fields of both kinds; whoever reads finds an authority by its key's identifier."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - _BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> MadePair:
    written = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return MadePair(certificate.public_bytes(serialization.Encoding.PEM), written)
