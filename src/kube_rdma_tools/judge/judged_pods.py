"""The pods that objects of an installation make, with their paths, for the rules to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.model.install import Json
from kube_rdma_tools.judge.violation import Violation

DEFAULT_ACCOUNT = "default"
ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
"""The annotation of an AppArmor profile before Kubernetes 1.30; the container's name follows."""
_TEMPLATE = "spec.template"
# Where a kind has its pod: labels and spec stand below.
_PATHS = {
    "DaemonSet": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": "spec.jobTemplate.spec.template",
    "Pod": "",
}
_LISTS = ("initContainers", "containers")


class JudgedContainer(Frozen):
    """A container of a pod template; `path` is its field, with its name in place of an index."""

    name: str
    path: str
    body: Json

    @property
    def security(self) -> Json:
        """Return the container's security context."""
        return dict(self.body.get("securityContext") or {})


class JudgedPod(Frozen):
    """The pod that an object makes; `path` is the field of the object with the pod's spec."""

    kind: str
    name: str
    namespace: str
    path: str
    labels: Json
    annotations: Json
    spec: Json

    @property
    def where(self) -> str:
        """Return the object's name as violations give it: ``Kind/name``."""
        return f"{self.kind}/{self.name}"

    @property
    def account(self) -> str:
        """Return the service account that the pod runs under."""
        return str(self.spec.get("serviceAccountName") or DEFAULT_ACCOUNT)

    @property
    def containers(self) -> tuple[JudgedContainer, ...]:
        """Return all containers, in the order in which they start."""
        return tuple(
            JudgedContainer(body["name"], f"{self.path}.{listed}[{body['name']}]", body)
            for listed in _LISTS
            for body in self.spec.get(listed) or ()
        )

    @property
    def security(self) -> Json:
        """Return the pod's security context."""
        return dict(self.spec.get("securityContext") or {})

    @property
    def host_folders(self) -> dict[str, Json]:
        """Return the hostPath of each hostPath volume, by the volume's name."""
        return {
            volume["name"]: volume["hostPath"]
            for volume in self.spec.get("volumes") or ()
            if "hostPath" in volume
        }

    def effective(self, container: JudgedContainer, key: str) -> Any:
        """Return a field of a container's security context, or else of the pod's."""
        own = container.security.get(key)
        return self.security.get(key) if own is None else own

    def violation(
        self, field: str, problem: str, remedy: str, container: JudgedContainer | None = None
    ) -> Violation:
        """Return a violation of a field below the pod's spec, or below one of its containers."""
        name, path = (container.name, container.path) if container else ("", self.path)
        return Violation(self.where, name, f"{path}.{field}", problem, remedy)


def judged_pods(objects: Sequence[Json]) -> Iterator[JudgedPod]:
    """Yield the pod of each object that makes any, such as a DaemonSet or a Deployment."""
    for made in objects:
        path = _PATHS.get(made["kind"])
        if path is None:
            continue
        template: Any = made
        for name in filter(None, path.split(".")):
            template = template[name]
        yield JudgedPod(
            made["kind"],
            made["metadata"]["name"],
            made["metadata"].get("namespace", "default"),
            f"{path}.spec".lstrip("."),
            dict(template.get("metadata", {}).get("labels") or {}),
            dict(template.get("metadata", {}).get("annotations") or {}),
            template["spec"],
        )
