"""The admission webhook of an installation: its Service, and who asks it.

By choice, with a certificate that the controller makes and renews itself, or that somebody else
does: a Secret, and its authority in `caBundle` or by an annotation of cert-manager. Whoever does
not get an answer goes on, kube-system and the installation itself are not asked about, and neither
are pods that name no resource of a plugin: so it can lock nobody out.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_rdma.model.install.blueprint import (
    Blueprint,
    Hole,
    Json,
    Node,
    Values,
    When,
    either,
    joined,
)
from kube_rdma.rules.attach.requests import POD_NETWORKS
from kube_rdma.rules.install.rights import CONTROLLER, NAMESPACE, binding, role, rule

SECRET = "admission.webhook.secret"  # noqa: S105  the name of a value
OWN = "admission.webhook.certificate"
NAME = "pods.kube-rdma.io"
SERVICE = "kube-rdma-admission"
OWN_SECRET = SERVICE  # that the controller makes
PORT = 9443
FOLDER = "/admission"
_CONDITIONS = ("controller.enabled", either(OWN, SECRET))
_BUNDLE, _INJECTED = "admission.webhook.caBundle", "admission.webhook.injectCaFrom"
_WRITES = "get list watch patch"
_CONCERNED = (
    "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, "
    "c.?resources.?limits.orValue({}).exists(key, key.contains('/'))) || "
    f"'{POD_NETWORKS}' in object.metadata.?annotations.orValue({{}})"
)
ISOLATION = "agent.namespaceIsolation"
_SETTINGS = (
    *("shareResources", "mgpuResources", "gpuResources", "vepfsDrivers", "vepfsStorageClasses"),
    *("hostNetworkResources", "shmSize"),
)


def webhook() -> tuple[Blueprint, ...]:
    """The objects beside the controller's Deployment."""
    return (
        Blueprint(_service(), _CONDITIONS),
        Blueprint(
            _asked(
                "Mutating",
                _entry(NAME, "/complete", _level("NotIn")),
                _entry(f"confined-{NAME}", "/complete-confined", _level("In")),
            ),
            _CONDITIONS,
        ),
        Blueprint(_asked("Validating", _entry(NAME, "/validate")), _CONDITIONS),
    )


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


def webhook_rights() -> tuple[Blueprint, ...]:
    """What the controller may besides where the certificate is its own: these objects by name."""
    conditions = ("controller.enabled", OWN)
    cluster = joined(NAMESPACE, "-admission")
    configurations = (
        _named("admissionregistration.k8s.io", f"{kind}webhookconfigurations", NAME, _WRITES)
        for kind in ("validating", "mutating")
    )
    secret = _named("", "secrets", OWN_SECRET, f"{_WRITES} create")
    bodies = (
        role("Role", SERVICE, [secret]),
        binding("Role", SERVICE, CONTROLLER),
        role("ClusterRole", cluster, list(configurations)),
        binding("ClusterRole", cluster, CONTROLLER),
    )
    return tuple(Blueprint(body, conditions) for body in bodies)


def arguments() -> list[Node]:
    """What the controller is told."""
    settings = (
        joined(f"--admission-set={name}=", Hole(f"admission.pods.{name}")) for name in _SETTINGS
    )
    isolation = When(ISOLATION, joined("--admission-set=namespaceIsolation=", Hole(ISOLATION)))
    return [
        When(OWN, "--admission-own", When(SECRET, f"--admission={FOLDER}")),
        *(When(either(OWN, SECRET), one) for one in (*settings, isolation)),
    ]


def readiness() -> Node:
    """A copy that has not looked for its certificate yet is not asked."""
    return When(either(OWN, SECRET), {"tcpSocket": {"port": PORT}})


def mount() -> Json:
    """Where the certificate is in its container."""
    return {"name": "admission", "mountPath": FOLDER, "readOnly": True}


def volume() -> Json:
    """The certificate."""
    return {"name": "admission", "secret": {"secretName": Hole(SECRET)}}


def _service() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {
            "selector": {"name": CONTROLLER},
            "ports": [{"port": 443, "targetPort": PORT}],
        },
    }


def _asked(kind: str, *entries: Json) -> Json:
    """Who is asked, and what cert-manager may be told."""
    note = When(_INJECTED, {"cert-manager.io/inject-ca-from": Hole(_INJECTED)})
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": NAME, "annotations": note},
        "webhooks": list(entries),
    }


def _entry(name: str, path: str, *namespaces: Json) -> Json:
    """The API server asks about new pods of these namespaces, and does not wait for long."""
    elsewhere = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", NAMESPACE],
    }
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
        "clientConfig": {
            "service": {"name": SERVICE, "namespace": NAMESPACE, "path": path},
            "caBundle": When(_BUNDLE, Hole(_BUNDLE)),
        },
        "namespaceSelector": {"matchExpressions": [elsewhere, *namespaces]},
        "rules": [{**pods, "operations": ["CREATE"]}],
        "matchConditions": [{"name": "shares", "expression": _CONCERNED}],
    }


def _named(group: str, resource: str, name: str, verbs: str) -> Json:
    """A rule for one object. To apply an object that is missing names it too when it is created."""
    return {**rule(group, resource, verbs), "resourceNames": [name]}


def _level(operator: str) -> Json:
    """Whether Pod Security refuses a pod for the capability that would be added."""
    return {
        "key": "pod-security.kubernetes.io/enforce",
        "operator": operator,
        "values": ["baseline", "restricted"],
    }
