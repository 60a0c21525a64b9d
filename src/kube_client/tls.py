"""Makes the TLS of one new connection: authorities that it trusts, certificate that it shows.

It is made anew for each connection, from files as they are then. So an authority or a certificate
that was rotated is taken into use. No key is written to disk.
"""

from __future__ import annotations

import base64
import os
import ssl
from pathlib import Path

from kube_base.errors import Refused
from kube_client.kubeconfig import Access


def client_context(access: Access, certificate: bytes = b"") -> ssl.SSLContext:
    """Return the TLS context of a new connection, with the `certificate` that a plugin gave (PEM).

    Raise Refused when a file or its content cannot be used.
    """
    server, user, where = access.server, access.user, access.where
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    authority = read_authority(access)
    if server.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority:
        _trust(context, authority, where)
    else:
        context.load_default_certs()
    if not certificate:
        chain = _pem(
            "client-certificate", user.client_certificate, user.client_certificate_data, where
        )
        key = _pem("client-key", user.client_key, user.client_key_data, where)
        certificate = b"\n".join(part for part in (chain, key) if part)
    if certificate:
        _show(context, certificate, where)
    return context


def read_authority(access: Access) -> bytes:
    """Return the CA certificates to trust, as PEM; empty to trust the system's.

    Raise Refused when they cannot be read.
    """
    server = access.server
    path, data = server.certificate_authority, server.certificate_authority_data
    return _pem("certificate-authority", path, data, access.where)


def _trust(context: ssl.SSLContext, authority: bytes, where: str) -> None:
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise Refused(
            "certificate-authority holds no certificate in PEM",
            remedy="Give it the certificate of the API server's authority",
            where=where,
        ) from None


def _show(context: ssl.SSLContext, certificate: bytes, where: str) -> None:
    """Load a client certificate through a file in memory (memfd), as Python takes only files."""
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")  # it must not ask
    except ssl.SSLError:
        raise Refused(
            "the client certificate and its key are not PEM, or do not belong together",
            remedy="Correct client-certificate and client-key, or what the plugin prints",
            where=where,
        ) from None
    finally:
        os.close(descriptor)


def _pem(name: str, path: str, data: str, where: str) -> bytes:
    """Return the content of the file, or the decoded base64 text; empty when both are missing.

    Raise Refused for an unreadable file or a text that is not base64.
    """
    if not path:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except ValueError:
            raise Refused(
                f"{name}-data is not base64", remedy="Write its PEM in base64", where=where
            ) from None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Refused(
            f"cannot read the file of {name}, {path}: {error.strerror}",
            remedy="Put the file there, or correct its name",
            where=where,
        ) from error
