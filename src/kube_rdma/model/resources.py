"""The facts about a cluster for the author of a pod, and the listing made of them.

resources/reader reads AuthorFacts, resources/rules makes a ResourceListing of it, resources/views
shows that. A part that could not be read is None, and `not_seen` says why unless its kind is not
installed.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen
from kube_rdma.model.finding import NotSeen
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.names import PublishedName
from kube_rdma.model.reports import NodeReport

NAMED_LIKE_RDMA = ("rdma", "hca", "roce", "infiniband", "efa")
"""Parts of names by which resources that kube-rdma does not know count as RDMA resources."""


class HeldShares(Frozen):
    """An extended resource that an unfinished pod asks for; `node` is "" until it is scheduled."""

    namespace: str
    node: str
    resource: str
    count: int


class NamedNetwork(Frozen):
    """A NetworkAttachmentDefinition, with its resource and the IPPools that give its addresses."""

    namespace: str
    name: str
    resource: str = ""
    pools: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the network as an annotation names it: namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def follows_card(self) -> bool:
        """Return whether the network has several pools, so that a card's rail decides the pool."""
        return len(self.pools) > 1


class NetworkPool(Frozen):
    """An IPPool with its free addresses, and the namespaces that may use it; none means all."""

    name: str
    free: str = ""
    namespaces: tuple[str, ...] = ()


class CardClass(Frozen):
    """A DeviceClass of kube-rdma's claim driver, and the name of the resource that it serves."""

    name: str
    resource: str = ""


class NamespaceQuota(Frozen):
    """The limit that a ResourceQuota sets for a resource in a namespace."""

    resource: str
    hard: int
    used: int
    idle: str = ""  # "KEY of ResourceQuota NAME" for a key that Kubernetes does not count


class AgentFacts(Frozen):
    """The facts about agents that matter to a pod, read from the settings of their workloads."""

    # The namespaces whose networks all pods may name, where agents keep networks to their
    # namespaces; None: agents keep none.
    global_namespaces: tuple[str, ...] | None = None
    image: str = ""  # of one of them
    networks: bool = False  # they give pods networks, and lift the limit of locked memory
    preflight: bool = False  # the controller lets gangs measure before they start


class AuthorFacts(Frozen):
    """The facts of a cluster that tell the author of a pod what it can ask for."""

    namespace: str
    own_pods: tuple[HeldShares, ...] | None = None  # of the namespace
    pods: tuple[HeldShares, ...] | None = None  # of all namespaces
    quotas: tuple[NamespaceQuota, ...] | None = None
    networks: tuple[NamedNetwork, ...] | None = None
    nodes: tuple[NodeState, ...] | None = None
    reports: Mapping[str, NodeReport] | None = None
    classes: tuple[CardClass, ...] | None = None
    ip_pools: tuple[NetworkPool, ...] | None = None
    agents: AgentFacts | None = None
    names: tuple[PublishedName, ...] | None = None
    not_seen: tuple[NotSeen, ...] = ()


class NamedResource(Frozen):
    """A resource that pods may ask for, with numbers of shares; None means not known."""

    name: str
    modes: tuple[str, ...] = ()
    meaning: str = ""  # what a share is, where all nodes have the same mode
    nodes: int | None = None
    total: int | None = None
    free: int | None = None
    most: int | None = None  # free shares on a single node: a pod for more of them waits
    used_here: int | None = None
    quota: int | None = None
    by_claims: bool = False
    networks: tuple[str, ...] = ()
    needs_network: bool | None = None  # None: nobody saw its cards
    annotation: tuple[str, str] | None = None  # by which a pod gets a network on its card
    idle_quotas: tuple[str, ...] = ()  # keys that count nothing, with their objects


class AllowedNetwork(Frozen):
    """A network that pods of the namespace may use; `free` tells of free addresses, or is ""."""

    title: str
    resource: str = ""
    free: str = ""


class NamingListing(Frozen):
    """A Service that names RDMA addresses of pods, with the number of addresses."""

    names: str  # HOSTNAME.SERVICE.NAMESPACE.svc
    addresses: int
    ready: int


class ResourceListing(Frozen):
    """The resources, classes and networks that pods of a namespace may ask for."""

    namespace: str
    resources: tuple[NamedResource, ...] = ()
    classes: tuple[CardClass, ...] = ()
    networks: tuple[AllowedNetwork, ...] = ()
    kept_networks: int = 0  # those that this namespace may not name
    image: str = ""  # which nodes have; "" if not known
    locks: bool = True  # a pod needs IPC_LOCK to lock memory
    not_seen: tuple[NotSeen, ...] = ()
    names: tuple[NamingListing, ...] = ()
    preflight: bool = False  # gangs can measure before they start
