"""What has to happen next to the webhook's certificate, so that it is trusted at every moment.

    Secret, bundles, now ─► next_act ─► one act ─► programs/admission/certificate_keeper does it ─┐
                                ▲                                looked again                  │
                                └────────────────────────────────────────────────────────────────┘

The order is what keeps it safe: an authority is in the Secret before it is in the bundles, in the
bundles before it signs, and leaves them no sooner than at its end. So whichever copy of the
controller shows an older certificate for a while is trusted, and an ending between two acts costs
nothing: the next look decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from kube_rdma.model.admission.certificate import (
    CertificateAct,
    CertificateLife,
    CertificateTimes,
    Forget,
    KeptCertificates,
    MakeAuthority,
    MakeServer,
    Rest,
    ServerCertificate,
    Trust,
    TrustBundle,
    TrustedAuthority,
)

MOST_AUTHORITIES = 8  # that are trusted: whoever deletes the Secret all day fills no bundle
_ENDS_SOON = "the former ends soon"


def next_act(
    kept: KeptCertificates,
    bundles: Sequence[TrustBundle],
    host: str,
    now: datetime,
    times: CertificateTimes,
) -> CertificateAct:
    """The next of the acts after which all is well; `host` is the name that servers go by.

    There is at least one bundle: where nobody asks a webhook, nothing is kept.
    """
    trusted = _trusted(kept.authorities, now)
    if reason := _authority_reason(kept, now):
        former = _trusted((*_of(bundles), *trusted), now)[-(MOST_AUTHORITIES - 1) :]
        repair = reason != _ENDS_SOON and (kept.exists or bool(former))
        return MakeAuthority(former, reason, repair)
    if trusted != kept.authorities:
        return Forget(trusted)
    if others := tuple(one.configuration for one in bundles if not _trusts(one, trusted)):
        return Trust(others, trusted)
    signer = trusted[-1]
    server = kept.server
    if reason := _server_reason(kept, host, now):
        repair = bool(kept.faults) or (server is not None and not _serves(server, host, now))
        return MakeServer(min(now + times.server, signer.life.ends), reason, repair)
    assert server
    renewals = (_renewal(server.life), _renewal(signer.life))
    return Rest(min(*renewals, *(one.life.ends for one in trusted)))


def _authority_reason(kept: KeptCertificates, now: datetime) -> str:
    """Why there has to be a new authority; "" where there need not."""
    if not kept.exists:
        return "the Secret is missing"
    newest = kept.authorities[-1] if kept.authorities else None
    if newest is None or newest.fingerprint != kept.signer:
        return next(iter(kept.faults), "the Secret lacks the key of its newest authority")
    if not newest.own:
        return "the authority in the Secret is not kube-rdma's"
    if not _within(newest.life, now):
        return f"the former was valid {_span(newest.life)}"
    return _ENDS_SOON if now >= _renewal(newest.life) else ""


def _server_reason(kept: KeptCertificates, host: str, now: datetime) -> str:
    """Why there has to be a new certificate for servers; "" where there need not."""
    server = kept.server
    if server is None:
        return next(iter(kept.faults), "the Secret has none yet")
    if host not in server.hosts:
        return f"the former was not for {host}"
    if not _within(server.life, now):
        return f"the former was valid {_span(server.life)}"
    if server.issuer != kept.signer:
        return "the former is by another authority"
    return _ENDS_SOON if now >= _renewal(server.life) else ""


def _serves(server: ServerCertificate, host: str, now: datetime) -> bool:
    """Whether an API server that trusts its issuer accepts it."""
    return server.issuer is not None and host in server.hosts and _within(server.life, now)


def _trusted(
    authorities: Iterable[TrustedAuthority], now: datetime
) -> tuple[TrustedAuthority, ...]:
    """Those of kube-rdma's that are not over, without repetition, in order, not too many.

    Also those that are not valid yet: a clock that went back takes no trust away.
    """
    unique = {one.fingerprint: one for one in authorities if one.own and now < one.life.ends}
    return tuple(unique.values())[-MOST_AUTHORITIES:]


def _of(bundles: Sequence[TrustBundle]) -> tuple[TrustedAuthority, ...]:
    """What is trusted anywhere."""
    return tuple(one for bundle in bundles for one in bundle.authorities)


def _trusts(bundle: TrustBundle, authorities: tuple[TrustedAuthority, ...]) -> bool:
    return bundle.agree and [one.fingerprint for one in bundle.authorities] == [
        one.fingerprint for one in authorities
    ]


def _within(life: CertificateLife, now: datetime) -> bool:
    return life.begins <= now < life.ends


def _renewal(life: CertificateLife) -> datetime:
    """When two thirds are over: the rest is for whoever is away meanwhile."""
    return life.begins + (life.ends - life.begins) * 2 / 3


def _span(life: CertificateLife) -> str:
    return f"from {life.begins:%Y-%m-%d %H:%M} to {life.ends:%Y-%m-%d %H:%M} UTC"
