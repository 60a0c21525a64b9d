"""A kind of cluster, as far as an installation can fail in it.

The table of environments fills these values; rules read them. Defaults describe a cluster that
kubeadm makes on Ubuntu with containerd.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kube_base.frozen import Frozen, field
from kube_rdma.model.kubernetes import Taint

EVERY = frozenset(("*",))
"""A set that stands for everything: rules look for its "*"."""
IN_MEMORY = ("/run", "/tmp", "/dev", "/sys", "/proc")  # noqa: S108 - folders of a node
"""Folders that can be written on every node, whatever file system its root is."""


class SecurityLevel(StrEnum):
    """The levels of the Pod Security Standards, from the most permissive to the strictest."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


class UserRange(StrEnum):
    """The users that an OpenShift constraint lets a container run as."""

    ANY = "RunAsAny"
    NOT_ROOT = "MustRunAsNonRoot"
    OF_NAMESPACE = "MustRunAsRange"


class SelinuxPolicy(Frozen):
    """The SELinux policy of a node, whose runtime labels containers with one of its types.

    A type of `confined` writes below its folders only; the others write everywhere. A container
    that names no type gets `default`.
    """

    name: str
    types: frozenset[str]
    confined: Mapping[str, tuple[str, ...]]
    default: str = "container_t"


class JudgedNode(Frozen):
    """A node of an environment, for all that are like it; with `cards` it should have an agent.

    On a virtual node no kubelet starts what the scheduler puts there.
    """

    name: str
    cards: bool = False
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    system: str = "linux"
    architecture: str = "amd64"
    virtual: bool = False
    selinux: SelinuxPolicy | None = None

    @property
    def all_labels(self) -> dict[str, str]:
        """Return the node's labels, with the standard ones that its kubelet sets."""
        own = {
            "kubernetes.io/os": self.system,
            "kubernetes.io/arch": self.architecture,
            "kubernetes.io/hostname": self.name,
        }
        return own | dict(self.labels)


class NodePaths(Frozen):
    """The folders of a node's programs, and those that are read-only.

    Below `read_only` a folder is writable again if `writable` has it. The runtime reads CDI files
    in the folders of `cdi`.
    """

    kubelet: str = "/var/lib/kubelet"
    cni_conf: str = "/etc/cni/net.d"
    cni_binaries: str = "/opt/cni/bin"
    runtime: str = "/run/containerd"
    cdi: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    read_only: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


class SecurityConstraint(Frozen):
    """An OpenShift SecurityContextConstraints; except for `users`, a default refuses all values.

    One with `for_all` is bound to every account of the cluster.
    """

    name: str
    for_all: bool = False
    host: frozenset[str] = frozenset()  # allowed fields of a pod, and hostPort
    privileged: bool = False
    escalation: bool = False
    capabilities: frozenset[str] = frozenset()
    users: UserRange = UserRange.ANY
    any_selinux: bool = False
    seccomp: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()


class TakenObject(Frozen):
    """An object that another installation has already; without a namespace it is cluster-wide."""

    kind: str
    name: str
    namespace: str = ""


class TakenDefinition(Frozen):
    """A CustomResourceDefinition that another installation has already."""

    name: str  # plural.group
    kind: str
    cluster_wide: bool = False
    short_names: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words for the kind that kubectl takes without a group, such as short names."""
        return (self.name.partition(".")[0], self.kind.lower(), *self.short_names)

    @property
    def group(self) -> str:
        """Return the API group of the CustomResourceDefinition."""
        return self.name.partition(".")[2]


class Neighbour(Frozen):
    """Another project's installation that is in the cluster already.

    Its DaemonSets run on nodes with one of the labels of `selected`.
    """

    name: str
    objects: tuple[TakenObject, ...] = ()
    definitions: tuple[TakenDefinition, ...] = ()
    selected: tuple[str, ...] = ()


class Environment(Frozen):
    """A kind of cluster to judge installations in.

    An installation there has the first of `distributions` that the product knows, so a distribution
    that is added later is judged at once. docs/install.md has `values` for this kind of cluster.
    `quota_classes` are priority classes that a namespace needs a ResourceQuota for.
    """

    name: str
    title: str
    kubernetes: int = 34  # the minor version
    nodes: tuple[JudgedNode, ...] = (JudgedNode("worker", cards=True),)
    distributions: tuple[str, ...] = ("kubernetes",)
    values: Mapping[str, str] = field(default_factory=dict)
    paths: NodePaths = NodePaths()
    level: SecurityLevel = SecurityLevel.PRIVILEGED
    exempt: frozenset[str] = frozenset()  # namespaces that neither level nor constraints hold for
    constraints: tuple[SecurityConstraint, ...] = ()
    quota_classes: frozenset[str] = frozenset()
    image: frozenset[str] = frozenset(("amd64", "arm64"))  # architectures that were built
    neighbours: tuple[Neighbour, ...] = ()
