"""The certificate of the admission webhook, which kube-rdma makes: what is seen, what is done.

A Secret holds authorities (newest last), the key of the newest, and the certificate that servers
show. The API server trusts the bundle of each webhook configuration. rules/admission/certificate
decides.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NewType

from kube_base.frozen import Frozen

Fingerprint = NewType("Fingerprint", str)
"""SHA-256 of a certificate, in hexadecimal."""


class CertificateLife(Frozen):
    """From when until when a certificate is valid."""

    begins: datetime
    ends: datetime


class TrustedAuthority(Frozen):
    """An authority's certificate, without its key; `own` where it has the name of kube-rdma's."""

    pem: str
    fingerprint: Fingerprint
    life: CertificateLife
    own: bool = True


class ServerCertificate(Frozen):
    """What servers show: whose signature it has (None: of nobody that the Secret trusts)."""

    issuer: Fingerprint | None
    hosts: tuple[str, ...]
    life: CertificateLife


class KeptCertificates(Frozen):
    """What the Secret holds, as far as it can be read; `faults` say what cannot, as clauses."""

    authorities: tuple[TrustedAuthority, ...] = ()
    signer: Fingerprint | None = None  # the authority whose key is kept too
    server: ServerCertificate | None = None
    exists: bool = False
    faults: tuple[str, ...] = ()


class TrustBundle(Frozen):
    """The authorities that one webhook configuration trusts; `agree`: all of its entries do."""

    configuration: str
    authorities: tuple[TrustedAuthority, ...]
    agree: bool = True


class CertificateTimes(Frozen):
    """How long certificates are valid; each is replaced when two thirds of that are over."""

    authority: timedelta = timedelta(days=730)
    server: timedelta = timedelta(days=90)


class MakeAuthority(Frozen):
    """Make an authority and keep it behind `kept`; the server's certificate stays."""

    kept: tuple[TrustedAuthority, ...]
    why: str
    repair: bool  # something was lost or broken; else it is time


class Trust(Frozen):
    """Have these configurations trust exactly these authorities."""

    configurations: tuple[str, ...]
    authorities: tuple[TrustedAuthority, ...]


class MakeServer(Frozen):
    """Make a certificate for servers, by the authority whose key is kept."""

    ends: datetime
    why: str
    repair: bool


class Forget(Frozen):
    """Keep only these authorities: the others are over."""

    kept: tuple[TrustedAuthority, ...]


class Rest(Frozen):
    """All is well until then."""

    until: datetime


CertificateAct = MakeAuthority | Trust | MakeServer | Forget | Rest
