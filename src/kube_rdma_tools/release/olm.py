"""The bundle for the Operator Lifecycle Manager (OLM): the operator's installation in OLM's form.

    objects of preset nvidia-operator ─┬─► accounts, roles, Deployment ─► ClusterServiceVersion
                                       └─► what OLM takes beside it ─► files of their own

OLM makes accounts and bindings of what the ClusterServiceVersion asks for. It takes no DaemonSet,
and needs none here: the operator makes the agents' DaemonSets of a NicClusterPolicy. It takes no
admission policy and no namespace either; the description says what to apply by hand. Formats:
operator-framework/api (pkg/operators/v1alpha1) and operator-registry (pkg/lib/bundle).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kube_base.errors import Broken
from kube_rdma.install.installation import objects
from kube_rdma.install.rules.release import OLDEST
from kube_rdma.install.views import manifests
from kube_rdma.lib.text import reader
from kube_rdma_tools.release.archives import ArchivedFile

Json = dict[str, Any]

PACKAGE = "kube-rdma"
EXAMPLE = "examples/s3-network/nic-cluster-policy.yaml"
_PRESET = "nvidia-operator"
_INSTALLED = {"distribution": "openshift", "admission": {"install": False}}
_BESIDE = ("CustomResourceDefinition", "ClusterRole", "Role", "PodDisruptionBudget")
_IN_CSV = ("ServiceAccount", "ClusterRoleBinding", "RoleBinding", "Deployment", "Namespace")
# OpenShift has a role for each constraint; OLM makes roles of rules alone.
_PRIVILEGED = ("ClusterRole", "system:openshift:scc:privileged")
_CONSTRAINT = {
    "apiGroups": ["security.openshift.io"],
    "resources": ["securitycontextconstraints"],
    "resourceNames": ["privileged"],
    "verbs": ["use"],
}
_MODES = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
_METADATA = "operators.operatorframework.io.bundle."
_ANNOTATIONS = {
    f"{_METADATA}mediatype.v1": "registry+v1",
    f"{_METADATA}manifests.v1": "manifests/",
    f"{_METADATA}metadata.v1": "metadata/",
    f"{_METADATA}package.v1": PACKAGE,
    f"{_METADATA}channels.v1": "candidate",
    f"{_METADATA}channel.default.v1": "candidate",
}
_DESCRIPTION = """\
kube-rdma gives pods RDMA cards with their networks, addresses and settings. A NicClusterPolicy has
the operator deploy agents and, if it says so, drivers of cards.

Before you create one:

- Nodes with cards need the label `feature.node.kubernetes.io/pci-15b3.present=true`. Node Feature
  Discovery writes it.
- Agents run as root of their nodes. The constraint `privileged` is bound to their account.
- Policies that hold each agent to its own node are no part of a bundle. Apply what
  `kube-rdma render --preset nvidia-operator --part admission --namespace NAMESPACE` prints.

Before you remove the operator, delete the NicClusterPolicy and wait until its drivers are gone.

kube-rdma has not run on OpenShift, nor on RDMA hardware.
"""


def bundle_files(repository: str, chart: Json, policy: Json) -> dict[str, ArchivedFile]:
    """Return the files of the OLM bundle by path, for an image in a repository.

    `chart` is Chart.yaml, which describes the product; `policy` an example of a NicClusterPolicy,
    which gets the image. Raise Broken for an object of a kind that this module does not know.
    """
    values = {**_INSTALLED, "image": {"repository": repository, "tag": chart["version"]}}
    made = objects([reader.read(json.dumps(values).encode(), "the bundle's values")], _PRESET)
    if strange := {one["kind"] for one in made} - {*_BESIDE, *_IN_CSV}:
        raise Broken(f"OLM takes no {', '.join(sorted(strange))}; sort it in {__name__}")
    bound = {_role(one) for one in made if "roleRef" in one}
    beside = [
        one for one in made if one["kind"] in _BESIDE and (one["kind"], _name(one)) not in bound
    ]
    labels = "".join(f"LABEL {key}={value}\n" for key, value in _ANNOTATIONS.items())
    texts = {
        f"manifests/{PACKAGE}.clusterserviceversion.yaml": manifests(
            [_service_version(repository, chart, policy, made)]
        ),
        **{
            f"manifests/{_name(one)}.{one['kind'].lower()}.yaml": manifests([_unplaced(one)])
            for one in beside
        },
        "metadata/annotations.yaml": manifests([{"annotations": _ANNOTATIONS}]),
        "bundle.Dockerfile": f"FROM scratch\n{labels}COPY manifests /manifests/\n"
        "COPY metadata /metadata/\n",
    }
    return {name: ArchivedFile(text.encode()) for name, text in texts.items()}


def _service_version(repository: str, chart: Json, policy: Json, made: Sequence[Json]) -> Json:
    """Return the ClusterServiceVersion that installs these objects."""
    version = chart["version"]
    registry, _, image = repository.rpartition("/")
    plugin = {"repository": registry, "image": image, "version": version}
    example = {**policy, "spec": {"devicePlugin": {**policy["spec"]["devicePlugin"], **plugin}}}
    (namespace,) = _of_kind(made, "Namespace")
    owned = [_owned(one) for one in _of_kind(made, "CustomResourceDefinition")]
    spec: Json = {
        "displayName": PACKAGE,
        "description": _DESCRIPTION,
        "version": version,
        "maturity": "alpha",
        "minKubeVersion": f"1.{OLDEST}.0",
        "keywords": chart["keywords"],
        "installModes": [{"type": mode, "supported": mode == _MODES[0]} for mode in _MODES],
        "customresourcedefinitions": {"owned": owned},
        "install": {
            "strategy": "deployment",
            "spec": {
                "deployments": [
                    {"name": _name(one), "label": one["metadata"]["labels"], "spec": one["spec"]}
                    for one in _of_kind(made, "Deployment")
                ],
                "permissions": list(_permissions(made, "RoleBinding")),
                "clusterPermissions": list(_permissions(made, "ClusterRoleBinding")),
            },
        },
    }
    if maintainers := chart.get("maintainers"):  # the owner's answers
        spec["maintainers"] = maintainers
        spec["provider"] = {"name": maintainers[0]["name"], "url": chart["home"]}
        spec["links"] = [{"name": "Source", "url": chart["home"]}]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{version}",
            "annotations": {
                "alm-examples": json.dumps([example], indent=2),
                "capabilities": "Basic Install",
                "categories": "Networking",
                "containerImage": f"{repository}:{version}",
                "description": chart["description"],
                "operatorframework.io/suggested-namespace-template": json.dumps(namespace),
            },
            "labels": {
                f"operatorframework.io/arch.{each}": "supported" for each in ("amd64", "arm64")
            },
        },
        "spec": spec,
    }


def _permissions(made: Sequence[Json], kind: str) -> Iterator[Json]:
    """Yield each service account with the rules that bindings of this kind grant it."""
    rules = {(one["kind"], _name(one)): one["rules"] for one in made if "rules" in one}
    rules[_PRIVILEGED] = [_CONSTRAINT]
    accounts: dict[str, list[Json]] = {}
    for binding in _of_kind(made, kind):
        for subject in binding["subjects"]:
            accounts.setdefault(subject["name"], []).extend(rules[_role(binding)])
    for account, listed in accounts.items():
        yield {"serviceAccountName": account, "rules": listed}


def _owned(definition: Json) -> Json:
    """Return the ClusterServiceVersion's entry for a CRD that the bundle defines."""
    (version,) = definition["spec"]["versions"]
    return {
        "name": _name(definition),
        "kind": definition["spec"]["names"]["kind"],
        "version": version["name"],
        "displayName": definition["spec"]["names"]["kind"],
        "description": version["schema"]["openAPIV3Schema"]["description"],
    }


def _of_kind(made: Sequence[Json], kind: str) -> list[Json]:
    return [one for one in made if one["kind"] == kind]


def _name(one: Json) -> str:
    return str(one["metadata"]["name"])


def _role(binding: Json) -> tuple[str, str]:
    return binding["roleRef"]["kind"], binding["roleRef"]["name"]


def _unplaced(one: Json) -> Json:
    """Return an object without its namespace, which OLM decides."""
    metadata = {key: value for key, value in one["metadata"].items() if key != "namespace"}
    return {**one, "metadata": metadata}
