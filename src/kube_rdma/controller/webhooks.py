"""The configurations of the admission webhook that kube-rdma had once: whose service they ask."""

from __future__ import annotations

import msgspec

from kube_base.foreign_json import decoded
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind


class WebhookService(msgspec.Struct, frozen=True):
    """The service that is asked; empty where a webhook has a URL."""

    namespace: str = ""
    name: str = ""


class _ClientConfig(msgspec.Struct, frozen=True):
    service: WebhookService | None = None


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook of a configuration."""

    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)


def _webhooks(data: bytes) -> tuple[Webhook, ...]:
    return () if data == b"{}" else decoded(data, tuple[Webhook, ...])


WEBHOOK_CONFIGURATIONS: tuple[ObjectKind[tuple[Webhook, ...], None], ...] = tuple(
    ObjectKind(
        "admissionregistration.k8s.io",
        "v1",
        f"{kind}WebhookConfiguration",
        f"{kind.lower()}webhookconfigurations",
        namespaced=False,
        spec=ObjectCodec(_webhooks),
        status=NOTHING,
        content="webhooks",
    )
    for kind in ("Validating", "Mutating")
)
