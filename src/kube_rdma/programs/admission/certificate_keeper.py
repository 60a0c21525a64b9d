"""Makes the webhook's certificate, has it trusted, and replaces it in time; by the copy that leads.

    watches: Secret, webhook configurations ─► wake ─► look: read ─► rules ─► act ─┐
                                                         └──────── again ◄─────────┘

The rules are those of rules/admission/certificate. Level-triggered: each look reads all anew and
does one act after another until nothing is left. The copies take the certificate from the Secret
(programs/admission/server). Where no webhook configuration is installed nobody would ask, and
nothing is made.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from kube_base.errors import KubeError
from kube_base.frozen import Frozen, field
from kube_base.notices import Notices
from kube_client.kinds import ObjectKind, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import admission
from kube_rdma.adapters.cluster.admission import (
    WEBHOOK_CONFIGURATIONS,
    WEBHOOK_SECRET,
    StoredWebhooks,
    WebhookEntries,
)
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.pki import certificates
from kube_rdma.adapters.pki.certificates import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY, MadePair
from kube_rdma.model.admission.certificate import (
    CertificateAct,
    CertificateTimes,
    Forget,
    KeptCertificates,
    MakeAuthority,
    MakeServer,
    Rest,
    Trust,
    TrustBundle,
    TrustedAuthority,
)
from kube_rdma.programs.mirror import Mirror
from kube_rdma.rules.admission.certificate import next_act
from kube_rdma.rules.install.webhook import WebhookNames

_MOST_ACTS = 8  # of one look; more would be a quarrel with somebody
_LONGEST = timedelta(hours=1)  # until the next look: a clock may be set

log = structlog.get_logger()

Asked = tuple[ObjectKind[WebhookEntries, None], StoredWebhooks]


def _now() -> datetime:
    return datetime.now(UTC)


def _later(_failures: int) -> float:
    """Where a kind may not be read: somebody has to do something first."""
    return random.uniform(30.0, 60.0)  # noqa: S311  spreads load


class CertificateTools(Frozen):
    """What makes and times certificates, and waits: seconds `apart` between looks, `again` after
    a failure. Tests have others.
    """

    now: Callable[[], datetime] = field(default=_now)
    new_key: certificates.NewKey = field(default=certificates.new_key)
    times: CertificateTimes = CertificateTimes()
    apart: float = 2.0
    again: float = 10.0
    pause: Callable[[int], float] = field(default=_later)


class SeenCertificates(Frozen):
    """All that one look has read."""

    data: dict[str, bytes]
    uid: str
    kept: KeptCertificates
    asked: tuple[Asked, ...]

    @property
    def bundles(self) -> tuple[TrustBundle, ...]:
        """Whom each configuration trusts."""
        return tuple(_bundle(*one) for one in self.asked)


class CertificateKeeper:
    """The Secret of a release's webhook, `kube-rdma-admission`, and the webhook's authorities."""

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        namespace: str,
        tools: CertificateTools | None = None,
        names: WebhookNames | None = None,
    ) -> None:
        self._cluster, self._events, self._namespace = cluster, events, namespace
        self._names = names or WebhookNames()
        self._tools = tools or CertificateTools()
        self._host = f"{self._names.service}.{namespace}.svc"
        self._wake = asyncio.Event()
        self._notices = Notices()
        self._mirrors: tuple[Mirror[str], ...] = (
            Mirror(WEBHOOK_SECRET, _version, self._changed, Where(namespace, self._names.secret)),
            *(
                Mirror(kind, _version, self._changed, Where(name=self._names.configuration))
                for kind in WEBHOOK_CONFIGURATIONS
            ),
        )

    async def run(self) -> None:
        """Look at every change and whenever it is time, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors:
                tasks.create_task(mirror.follow(self._cluster, self._tools.pause))
            while True:
                self._wake.clear()
                await self._sleep(await self._attempt())

    async def look(self) -> datetime | None:
        """Do all that is to be done; until when it holds, None for as long as nothing changes.

        Raise what the API server's door raises.
        """
        for _ in range(_MOST_ACTS):
            seen = await self._seen()
            if not seen.asked:
                return None
            act = next_act(
                seen.kept, seen.bundles, self._host, self._tools.now(), self._tools.times
            )
            if isinstance(act, Rest):
                return act.until
            await self._do(act, seen)
        return self._tools.now()

    async def _attempt(self) -> timedelta:
        """How long to sleep at most after a look, well or not."""
        try:
            until = await self.look()
        except KubeError as error:
            for why in self._notices.news("look", str(error)):
                log.warning("certificate not kept", secret=self._names.secret, why=why)
            return timedelta(seconds=self._tools.again)
        self._notices.over("look")
        return min(until - self._tools.now(), _LONGEST) if until else _LONGEST

    async def _seen(self) -> SeenCertificates:
        stored = await self._cluster.get(WEBHOOK_SECRET, self._names.secret, self._namespace)
        asked = []
        for kind in WEBHOOK_CONFIGURATIONS:
            configuration = await self._cluster.get(kind, self._names.configuration)
            if configuration and self._is_own(kind.kind, configuration):
                asked.append((kind, configuration))
        data = dict(stored.spec) if stored else {}
        kept = certificates.read(data) if stored else KeptCertificates()
        return SeenCertificates(data, stored.uid if stored else "", kept, tuple(asked))

    def _is_own(self, kind: str, configuration: StoredWebhooks) -> bool:
        """Whether it asks these controllers, not those of another installation."""
        own = admission.asks(configuration, self._namespace, self._names.service)
        name = self._names.configuration
        why = f"{kind} {name} does not ask {self._host}. Uninstall the other kube-rdma."
        for sentence in self._notices.news(kind, *([] if own else [why])):
            log.warning("configuration left alone", why=sentence)
        return own

    async def _do(self, act: CertificateAct, seen: SeenCertificates) -> None:
        now = self._tools.now()
        match act:
            case MakeAuthority(former):
                ends = now + self._tools.times.authority
                made = certificates.new_authority(self._tools.new_key, now, ends)
                bundle = _pem(former) + made.certificate
                await self._keep(seen, {AUTHORITY: bundle, AUTHORITY_KEY: made.key})
                self._tell(seen, "authority", act)
            case MakeServer(ends):
                signer = MadePair(seen.data[AUTHORITY], seen.data[AUTHORITY_KEY])
                made = certificates.new_server(self._tools.new_key, signer, self._host, now, ends)
                await self._keep(seen, {CERTIFICATE: made.certificate, KEY: made.key})
                self._tell(seen, "certificate", act)
            case Forget(kept):
                await self._keep(seen, {AUTHORITY: _pem(kept)})
            case Trust(configurations, authorities):
                for kind, stored in seen.asked:
                    if kind.kind in configurations:
                        bundle = _pem(authorities)
                        await admission.trust(self._cluster, kind, stored, bundle)
                        log.info("authorities written", kind=kind.kind, count=len(authorities))

    async def _keep(self, seen: SeenCertificates, changes: dict[str, bytes]) -> None:
        """Write the Secret with these changes; what cannot be used goes."""
        parts = (AUTHORITY, AUTHORITY_KEY, *((CERTIFICATE, KEY) if seen.kept.server else ()))
        data = {name: seen.data[name] for name in parts if name in seen.data} | changes
        where = (self._namespace, self._names.secret)
        await admission.keep(self._cluster, where, data, seen.asked[0])

    def _tell(self, seen: SeenCertificates, what: str, act: MakeAuthority | MakeServer) -> None:
        """In the log, and as an Event of the Secret."""
        note = f"kube-rdma made a new {what} for the admission webhook: {act.why}."
        about = About("Secret", self._names.secret, self._namespace, seen.uid)
        reason = "CertificateRepaired" if act.repair else "CertificateMade"
        self._events.tell(about, reason, note, warning=act.repair)
        (log.warning if act.repair else log.info)(
            f"{what} made", secret=self._names.secret, why=act.why
        )

    def _changed(self, _old: object, _new: object) -> None:
        self._wake.set()

    async def _sleep(self, longest: timedelta) -> None:
        """Until something changes or it is time, but not too short."""
        await asyncio.sleep(self._tools.apart)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, longest.total_seconds())):
                await self._wake.wait()


def _bundle(kind: ObjectKind[WebhookEntries, None], stored: StoredWebhooks) -> TrustBundle:
    texts = admission.bundles_of(stored)
    authorities = tuple(one for text in texts for one in certificates.bundle(text))
    return TrustBundle(kind.kind, authorities, agree=len(texts) == 1)


def _pem(authorities: tuple[TrustedAuthority, ...]) -> bytes:
    return "".join(one.pem for one in authorities).encode()


def _version(stored: Any) -> str:
    version: str = stored.version
    return version
