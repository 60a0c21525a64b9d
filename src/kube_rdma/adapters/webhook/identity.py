"""The certificate of a server, from files that somebody renews while it runs.

A folder as a Secret is mounted: tls.crt and tls.key, exchanged together. Each handshake looks
whether they are others by now, so a renewal needs no restart and no clock.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from kube_base.errors import Refused

CERTIFICATE, KEY = "tls.crt", "tls.key"

Stamp = tuple[tuple[int, int], ...]


class ServerIdentity:
    """What a server shows; `unusable` hears of files that could not be taken into use."""

    def __init__(self, folder: Path, unusable: Callable[[str], None]) -> None:
        """Raise Refused when the folder has no pair that can be used."""
        self._folder, self._unusable = folder, unusable
        self._stamp = self._now()
        self._current = self._load()
        self.listening = bare_context()
        self.listening.sni_callback = self._chosen

    def _chosen(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Called in each handshake, before the certificate is shown."""
        stamp = self._now()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._current = self._load()
            except Refused as error:  # half of an exchange; the next one is seen again
                self._unusable(str(error))
        connection.context = self._current

    def _now(self) -> Stamp:
        """What changes with the files."""
        stamps = []
        for name in (CERTIFICATE, KEY):
            try:
                status = (self._folder / name).stat()
            except OSError:
                stamps.append((0, 0))
            else:
                stamps.append((status.st_mtime_ns, status.st_ino))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        context = bare_context()
        try:
            context.load_cert_chain(
                self._folder / CERTIFICATE,
                self._folder / KEY,
                password="",  # it must not ask
            )
        except (OSError, ssl.SSLError) as error:
            raise Refused(
                f"the certificate of the server cannot be used ({error.strerror or error})",
                remedy=f"Put a pair that belongs together there, as {CERTIFICATE} and {KEY} in PEM",
                where=str(self._folder),
            ) from None
        return context


def bare_context() -> ssl.SSLContext:
    """The settings of every server's context, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
