"""What the kernel of every node, the API and the disks show at one moment: the audit's one input.

collect.py reads it from a lab; tests write it down. Names are those of the kernel, the kubelet and
Kubernetes; what kube-rdma wrote on a disk stands here only as far as the audit compares it.
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class SeenLink(Frozen):
    """An interface: its kind as the kernel has it, the bridge it is in, its own IP addresses.

    `parent` is the interface of the node that a virtual one stands on.
    """

    name: str
    kind: str = ""
    is_up: bool = True
    bridge: str = ""
    addresses: tuple[str, ...] = ()
    parent: str = ""


class SeenRule(Frozen):
    """A policy rule of routing that is not the kernel's own."""

    source: str
    table: str


class SeenNamespace(Frozen):
    """A network namespace; without a name it is the node's own.

    `pods` are the uids of pods that have a process in it, read from its control groups; `rdma` are
    RDMA devices whose interface is in it, each with the name of that.
    """

    name: str
    pods: tuple[str, ...] = ()
    links: tuple[SeenLink, ...] = ()
    rules: tuple[SeenRule, ...] = ()
    routes: tuple[str, ...] = ()
    rdma: tuple[tuple[str, str], ...] = ()


class SeenBooking(Frozen):
    """The record of a sandbox's addresses."""

    container: str
    pod: str
    addresses: tuple[str, ...]


class SeenAttachment(Frozen):
    """The record of a sandbox's interfaces: name and address of each."""

    container: str
    pod: str
    interfaces: tuple[tuple[str, str], ...] = ()


class SeenBinding(Frozen):
    """The record of the shares that a pod's container holds."""

    nonce: str
    container: str
    pod: str
    shares: tuple[str, ...]


class SeenPromise(Frozen):
    """The record of shares that were allocated, whoever gets them."""

    nonce: str
    shares: tuple[str, ...]


class SeenCdiFile(Frozen):
    """A CDI file of kube-rdma, with the device nodes that it names."""

    name: str
    nodes: tuple[str, ...] = ()


class KubeletShare(Frozen):
    """A share that the kubelet's own checkpoint says a pod has.

    `is_late`: the devices come with the pod's network, so kube-rdma has a record of them. Where the
    runtime was not known at that moment, the kubelet's answer has them (docs/agent.md).
    """

    pod: str
    share: str
    is_late: bool = True


class KubeletClaim(Frozen):
    """A claim that the kubelet has had prepared, and the pods that it had this done for."""

    uid: str
    pods: tuple[str, ...]


class SeenNode(Frozen):
    """A node: its kernel, its records, its files."""

    name: str
    namespaces: tuple[SeenNamespace, ...] = ()
    rdma: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()
    bookings: tuple[SeenBooking, ...] = ()
    attachments: tuple[SeenAttachment, ...] = ()
    bindings: tuple[SeenBinding, ...] = ()
    promises: tuple[SeenPromise, ...] = ()
    claims: tuple[str, ...] = ()  # uids of claims that are prepared
    unreadable: tuple[str, ...] = ()  # records that are torn, or set aside
    cdi: tuple[SeenCdiFile, ...] = ()
    settings: tuple[str, ...] = ()  # folders of settings of containers
    kubelet: tuple[KubeletShare, ...] = ()
    kubelet_claims: tuple[KubeletClaim, ...] = ()
    is_chained: bool = True

    @property
    def own(self) -> SeenNamespace:
        """The node's own network namespace."""
        return next(each for each in self.namespaces if not each.name)

    @property
    def others(self) -> tuple[SeenNamespace, ...]:
        """The named ones."""
        return tuple(each for each in self.namespaces if each.name)


class SeenPod(Frozen):
    """A pod of the load: what it asked for, what became of it, and what was told of it.

    `has_verbs`: each of its interfaces has an RDMA device of its own.
    """

    uid: str
    name: str
    node: str
    interfaces: int = 1
    by_claim: bool = False
    phase: str = "Running"
    is_ready: bool = True
    notes: tuple[str, ...] = ()  # warnings about it: Events, its own status
    has_verbs: bool = False

    @property
    def has_lost_networks(self) -> bool:
        """Whether it was told that an interface went with its card, so that it is to be deleted."""
        return any(note.startswith("NetworksLost") for note in self.notes)


class SeenClaim(Frozen):
    """A claim of the load: the pod that owns it, its share of each device."""

    uid: str
    name: str
    owner: str
    is_allocated: bool = True
    devices: tuple[str, ...] = ()


class SeenHolding(Frozen):
    """What a block of addresses says that a node holds."""

    block: str
    node: str
    addresses: tuple[str, ...]


class SeenOffer(Frozen):
    """What can be had of a node: allocatable shares, healthy cards, cards in slices, taints."""

    node: str
    shares: int
    healthy: int
    by_claims: tuple[str, ...]
    taints: tuple[str, ...] = ()


class SeenTransfer(Frozen):
    """Bytes by verbs from a pod to another over one card of both nodes; `why`, if none arrived."""

    server: str
    client: str
    card: str
    why: str = ""


class Seen(Frozen):
    """All of it. `others` are uids of living pods that are not of the load."""

    nodes: tuple[SeenNode, ...]
    pods: tuple[SeenPod, ...] = ()
    claims: tuple[SeenClaim, ...] = ()
    holdings: tuple[SeenHolding, ...] = ()
    offers: tuple[SeenOffer, ...] = ()
    others: tuple[str, ...] = ()
    subnet: str = "10.77.0.0/24"
    transfers: tuple[SeenTransfer, ...] = ()
