"""The certificate of a server, as somebody hands it over while it runs; never on a disk.

Beside identity.py, whose certificate lies in a folder. The next handshake shows what was taken
last.
"""

from __future__ import annotations

import os
import ssl

from kube_base.errors import Refused
from kube_rdma.adapters.webhook.identity import bare_context


class HeldIdentity:
    """What a server shows; before something was taken each handshake fails, and nothing else."""

    def __init__(self) -> None:
        self._current = bare_context()
        self.listening = bare_context()
        self.listening.sni_callback = self._chosen

    def take(self, certificate: bytes, key: bytes) -> None:
        """Show this from now on; raise Refused, and show the former still, for what is no pair."""
        context = bare_context()
        try:
            _load(context, certificate + b"\n" + key)
        except (OSError, ssl.SSLError) as error:
            raise Refused(
                f"the certificate of the server cannot be used ({error.strerror or error})",
                remedy="Wait until the controller that leads has replaced it, or delete its Secret",
            ) from None
        self._current = context

    def _chosen(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Called in each handshake, before the certificate is shown."""
        connection.context = self._current


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """OpenSSL reads files alone; this lies in memory, and goes with its descriptor."""
    descriptor = os.memfd_create("certificate")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")  # it must not ask
    finally:
        os.close(descriptor)
