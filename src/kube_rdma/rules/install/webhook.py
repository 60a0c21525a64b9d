"""The admission webhook of an installation: what its objects are called, and whose certificate.

objects/admission.yaml and objects/rights.yaml describe the objects. The certificate is one that the
controller makes and renews itself, or somebody else's.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.model.install.blueprint import Values

NAME = "pods.kube-rdma.io"
SERVICE = "kube-rdma-admission"
OWN_SECRET = SERVICE  # that the controller makes


class WebhookNames(Frozen):
    """The names of a webhook's objects; both configurations have the same."""

    configuration: str = NAME
    service: str = SERVICE
    secret: str = OWN_SECRET


def webhook_names(fullname: str = "") -> WebhookNames:
    """Those of a release, by the value fullnameOverride (rules/install/release)."""
    if not fullname:
        return WebhookNames()
    service = f"{fullname}-admission"
    return WebhookNames(f"{fullname}.{NAME}", service, service)


def check_webhook(values: Values) -> None:
    """Raise Refused where all values of an installation ask for two certificates."""
    webhook = values["admission"]["webhook"]
    others = [name for name in ("secret", "caBundle", "injectCaFrom") if webhook[name]]
    if webhook["certificate"] and others:
        raise Refused(
            f"the webhook's certificate is to be kube-rdma's own, and {others[0]} is for another",
            remedy=f"Leave out certificate, or {others[0]}",
            where="admission.webhook",
        )
