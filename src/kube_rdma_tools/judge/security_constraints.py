"""Constraints that OpenShift has from its installation; every account may use restricted-v2.

Rows are from openshift/cluster-kube-apiserver-operator bindata/bootkube/scc-manifests
(0000_20_kube-apiserver-operator_00_scc-NAME.yaml, 2026). An account gets one more by a binding to
the ClusterRole system:openshift:scc:NAME.
"""

from __future__ import annotations

from kube_rdma_tools.judge.environment import EVERY, SecurityConstraint, UserRange

_VOLUMES = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
_BIND, _RUNTIME = frozenset(("NET_BIND_SERVICE",)), frozenset(("RuntimeDefault",))
_NETWORK = frozenset(("hostNetwork", "hostPort"))

SECURITY_CONSTRAINTS = (
    SecurityConstraint(
        "restricted-v2",
        for_all=True,
        capabilities=_BIND,
        users=UserRange.OF_NAMESPACE,
        seccomp=_RUNTIME,
        volumes=_VOLUMES,
    ),
    SecurityConstraint(
        "nonroot-v2",
        capabilities=_BIND,
        users=UserRange.NOT_ROOT,
        seccomp=_RUNTIME,
        volumes=_VOLUMES,
    ),
    SecurityConstraint(
        "hostnetwork-v2",
        host=_NETWORK,
        capabilities=_BIND,
        users=UserRange.OF_NAMESPACE,
        seccomp=_RUNTIME,
        volumes=_VOLUMES,
    ),
    SecurityConstraint("anyuid", escalation=True, volumes=_VOLUMES),
    SecurityConstraint("hostmount-anyuid", escalation=True, volumes=_VOLUMES | {"hostPath", "nfs"}),
    SecurityConstraint(
        "hostaccess",
        host=_NETWORK | {"hostPID", "hostIPC"},
        escalation=True,
        users=UserRange.OF_NAMESPACE,
        volumes=_VOLUMES | {"hostPath"},
    ),
    SecurityConstraint(
        "privileged",
        host=EVERY,
        privileged=True,
        escalation=True,
        capabilities=EVERY,
        any_selinux=True,
        seccomp=EVERY,
        volumes=EVERY,
    ),
)
CONSTRAINT_ROLE = "system:openshift:scc:"
# The redhat documentation snippet "default projects" (openshift-docs snippets/default-projects):
# neither constraints nor Pod Security hold in them.
UNHELD_NAMESPACES = frozenset(
    (
        "default",
        "kube-public",
        "kube-system",
        "openshift",
        "openshift-infra",
        "openshift-node",
    )
)
# An example of a namespace's range of users, which OpenShift writes into its annotation
# openshift.io/sa.scc.uid-range.
SMALLEST_USER, USERS = 1_000_650_000, 10_000
