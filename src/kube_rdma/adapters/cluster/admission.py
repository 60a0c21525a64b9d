"""The webhook's own objects at the API server: the Secret of its certificate, and who trusts it.

Of a webhook configuration only the names and authorities of its entries are seen, and only the
authorities are written, by server-side apply: all else is whoever installed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from kube_base.foreign_json import decoded
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Owner, Stored, Wanted
from kube_client.objects import Cluster

SecretData = dict[str, bytes]

WEBHOOK_SECRET: ObjectKind[SecretData, None] = ObjectKind(
    "",
    "v1",
    "Secret",
    "secrets",
    namespaced=True,
    spec=ObjectCodec(partial(decoded, what=SecretData), msgspec.json.encode),
    status=NOTHING,
    content="data",
)


class _Service(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _ClientConfig(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"ca_bundle": "caBundle"}
):
    ca_bundle: bytes = b""
    service: _Service | None = None


class WebhookEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook of a configuration."""

    name: str
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)


WebhookEntries = tuple[WebhookEntry, ...]


def _entries(data: bytes) -> WebhookEntries:
    return () if data == b"{}" else decoded(data, WebhookEntries)


def _configuration(kind: str) -> ObjectKind[WebhookEntries, None]:
    return ObjectKind(
        "admissionregistration.k8s.io",
        "v1",
        f"{kind}WebhookConfiguration",
        f"{kind.lower()}webhookconfigurations",
        namespaced=False,
        spec=ObjectCodec(_entries, msgspec.json.encode),
        status=NOTHING,
        content="webhooks",
    )


WEBHOOK_CONFIGURATIONS = (_configuration("Validating"), _configuration("Mutating"))
StoredWebhooks = Stored[WebhookEntries, None]


def bundles_of(stored: StoredWebhooks) -> tuple[bytes, ...]:
    """The authorities that its entries trust, each text once."""
    return tuple({entry.client_config.ca_bundle: None for entry in stored.spec})


def asks(stored: StoredWebhooks, namespace: str, service: str) -> bool:
    """Whether its entries ask this service, all of them, and there are any."""
    wanted = _Service(namespace, service)
    return bool(stored.spec) and all(entry.client_config.service == wanted for entry in stored.spec)


async def trust(
    cluster: Cluster,
    kind: ObjectKind[WebhookEntries, None],
    stored: StoredWebhooks,
    authorities: bytes,
) -> None:
    """Have every entry of a configuration trust these authorities (PEM), whoever wrote others.

    Needs the verb patch of the configuration's name.
    """
    config = _ClientConfig(authorities)
    entries = tuple(WebhookEntry(entry.name, config) for entry in stored.spec)
    await cluster.apply(kind, Wanted(stored.name, spec=entries), force=True)


async def keep(
    cluster: Cluster,
    where: tuple[str, str],
    data: Mapping[str, bytes],
    owner: tuple[ObjectKind[WebhookEntries, None], StoredWebhooks],
) -> None:
    """Write the Secret at a namespace and name; it goes away with its owner.

    Needs the verbs patch and create of the Secret's name. Keys that `data` lacks are taken away if
    kube-rdma wrote them.
    """
    namespace, name = where
    kind, stored = owner
    reference = Owner(kind.api_version, kind.kind, stored.name, stored.uid)
    wanted = Wanted(name, namespace, spec=dict(data), owners=(reference,))
    await cluster.apply(WEBHOOK_SECRET, wanted, force=True)
