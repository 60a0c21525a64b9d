"""The evidence of `kube-rdma doctor` and its diagnosis: one node, one pod, or all nodes.

doctor/evidence collects an Observation, doctor/rules maps it to Findings, doctor/views shows them.
Every part may be missing: a doctor without a right sees less and says so. An Observation is the
whole of a support bundle, so its field names are a format. No configuration file is copied whole.
"""

from __future__ import annotations

from kube_base.frozen import Frozen, field
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice
from kube_rdma.model.device import PciAddress, PcieLink
from kube_rdma.model.finding import Finding, NotSeen, Severity
from kube_rdma.model.holdings import Holding
from kube_rdma.model.kubernetes import NamespacedName
from kube_rdma.model.late_binding import Runtime
from kube_rdma.model.pools import PoolSpec
from kube_rdma.model.survey import Survey

VERSION = 1  # of the document; a doctor reads bundles up to its own


class SystemVersions(Frozen):
    """The versions of the software on a node; "" means not known."""

    kube_rdma: str
    kernel: str = ""  # its release
    system: str = ""  # the distribution
    kubelet: str = ""  # v1.36.3
    vpc_cni: str = ""  # VKE's network plugin, Cello


class ObservedLink(Frozen):
    """A network interface with its addresses, as seen on the node or in the pod."""

    name: str
    mtu: int
    up: bool  # administratively
    carrier: bool | None = None  # None while it is down
    kind: str = ""  # the kernel's, such as macvlan
    parent: str = ""  # the node's interface below it; "" for none, or one that cannot be named
    pci: str = ""  # of its card
    addresses: tuple[str, ...] = ()  # 10.0.0.1/24


class ObservedRoute(Frozen):
    """A unicast route that was seen on the node or in the pod."""

    interface: str
    to: str
    via: str = ""
    table: int = 0  # 0 is the main one


class ObservedNeighbour(Frozen):
    """An entry of the kernel's neighbour table."""

    interface: str
    address: str
    answered: bool  # False: nobody answered for long


class ObservedKubelet(Frozen):
    """The state of a node's kubelet, read from its folders and its PodResources API."""

    sockets: tuple[str, ...] = ()  # names in the folder device-plugins
    allocatable: tuple[tuple[str, int], ...] | None = None  # healthy shares by resource
    holdings: tuple[Holding, ...] | None = None  # None, as of allocatable: it did not say
    topology_policy: str = ""  # of its configuration; "" where that was not read
    devices: tuple[ClaimedDevice, ...] = ()  # held by ResourceClaims, of any driver


class ObservedFolder(Frozen):
    """A folder of kube-rdma's state, with the free room of its file system."""

    path: str
    free: int  # bytes
    inodes: int | None = None  # None where they are not counted
    read_only: bool = False


class ObservedCni(Frozen):
    """The node's CNI configuration: names of files and types of plugins, not the files' content."""

    files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    wiring: str = ""
    default: str = ""
    pending: bool = False  # kube-rdma would change something in it now
    refused: str = ""  # why nothing can be done
    guard: str = ""  # a product that may keep others out
    aside: tuple[str, ...] = ()  # the files that the guard has put aside
    installed: bool = False  # the runtime finds kube-rdma's binary: an agent gives networks


class ObservedRail(Frozen):
    """A rail in the agent's record, and the card that has it."""

    rail: str
    card: str  # PCI address of the physical function, which may be gone


class ObservedBridge(Frozen):
    """A PCIe port on the way between a card and a GPU, with its ACS settings."""

    pci: PciAddress
    acs: int  # the bits of its ACS Control register; 0 without such a register


class ObservedDomain(Frozen):
    """The type of IOMMU domain in which the kernel has a card."""

    pci: PciAddress
    type: str  # identity, DMA-FQ


class ObservedFlowControl(Frozen):
    """The congestion settings of an interface: PFC and ECN priorities, from 0 to 7."""

    interface: str
    pfc: tuple[int, ...] | None = None  # None, as of ecn: the driver does not tell
    trust: str = ""  # the field of a packet that makes its priority: dscp, pcp; "" is unknown
    ecn: tuple[int, ...] | None = None


class ObservedErrors(Frozen):
    """The error counters of a port that rose during `seconds`, each with its rise."""

    device: str
    port: int
    seconds: float
    rises: tuple[tuple[str, int], ...]
    full: tuple[tuple[str, int], ...] = ()  # counters at their maximum, with it


class AddressUse(Frozen):
    """An address of a pod's interface on a network, read from the pod's status annotation."""

    pod: str  # namespace/name
    network: str
    interface: str
    address: str


class AddressRange(Frozen):
    """The subnets that a network's IPPools give addresses from."""

    network: str
    subnets: tuple[str, ...]


class ObservedContainer(Frozen):
    """The state of a container of the pod; None means not seen."""

    name: str
    asks: tuple[tuple[str, int], ...] = ()  # extended resources with their counts
    user: int | None = None
    memlock: int | None = None  # bytes, -1 without limit
    locks: bool | None = None  # CAP_IPC_LOCK is in force
    asked_lock: bool | None = None  # the pod asks for CAP_IPC_LOCK
    nodes: tuple[str, ...] | None = None  # paths below /dev/infiniband
    granted: bool | None = None  # device plugin, claim or privileged opened its device cgroup
    pinned: int | None = None  # bytes that its processes have pinned now
    variables: tuple[tuple[str, str], ...] | None = None  # those that steer RDMA


class ObservedQueuePairs(Frozen):
    """The number of queue pairs of one transport that a container's processes have on a device."""

    container: str
    device: str
    type: str  # RC, UD, DRIVER
    count: int
    ready: int = 0  # the connected ones
    programs: tuple[str, ...] = ()  # names of the processes


class ObservedAttachment(Frozen):
    """An attached interface of the pod, and how it differs from the agent's journal."""

    interface: str
    network: str
    wrong: tuple[str, ...] = ()  # sentences of CNI CHECK: all that differs


class ObservedLimit(Frozen):
    """A pod's use of an RDMA device, and its limit by cgroup; None means no limit."""

    device: str
    handles: int = 0
    objects: int = 0
    most_handles: int | None = None
    most_objects: int | None = None

    @property
    def is_set(self) -> bool:
        """Return whether the kernel limits the pod's use of the device."""
        return self.most_handles is not None or self.most_objects is not None

    @property
    def used_up(self) -> str:
        """Return the limits that are reached, as ``all 100 objects``; "" for none."""
        counts = (
            (self.handles, self.most_handles, "handles"),
            (self.objects, self.most_objects, "objects"),
        )
        full = (f"{most} {word}" for now, most, word in counts if most is not None and now >= most)
        return " and ".join(f"all {words}" for words in full)


class ObservedPod(NamespacedName):
    """All that was seen of the pod that the doctor is asked about."""

    node: str = ""
    phase: str = ""
    why: str = ""  # the reason that it waits for
    host_network: bool = False
    networks: tuple[str, ...] = ()  # names in its annotations
    attached: tuple[AddressUse, ...] | None = None  # by its status annotation
    findings: tuple[Finding, ...] | None = None  # of admission
    containers: tuple[ObservedContainer, ...] | None = None
    links: tuple[ObservedLink, ...] | None = None
    routes: tuple[ObservedRoute, ...] | None = None
    survey: Survey | None = None  # the RDMA devices that its network namespace shows
    attachments: tuple[ObservedAttachment, ...] | None = None  # of its node's agent's journal
    limits: tuple[ObservedLimit, ...] | None = None  # of its control group
    queue_pairs: tuple[ObservedQueuePairs, ...] | None = None  # None: its processes are hidden


class Observation(Frozen):
    """All that was seen of a node at one moment, and of a pod on it; None means not seen."""

    node: str
    taken: str = ""  # a time as in RFC 3339
    document: int = VERSION
    versions: SystemVersions | None = None
    survey: Survey | None = None
    modules: tuple[str, ...] | None = None  # of the kernel, loaded or built in
    absent: tuple[str, ...] | None = None  # paths of device nodes that are not there
    links: tuple[ObservedLink, ...] | None = None
    routes: tuple[ObservedRoute, ...] | None = None
    neighbours: tuple[ObservedNeighbour, ...] | None = None
    settings: tuple[tuple[str, str], ...] | None = None  # by path: net/ipv4/conf/all/rp_filter
    specs: tuple[PoolSpec, ...] | None = None  # of the configured pools
    refusals: tuple[str, ...] | None = None  # sentences about a configuration that is refused
    folders: tuple[ObservedFolder, ...] | None = None  # of kube-rdma's state, if they are there
    rails: tuple[ObservedRail, ...] | None = None
    kubelet: ObservedKubelet | None = None
    runtime: Runtime | None = None
    cni: ObservedCni | None = None
    problems: tuple[Finding, ...] | None = None  # of `kube-rdma status` about this node
    uses: tuple[AddressUse, ...] | None = None  # of pods on all nodes
    ranges: tuple[AddressRange, ...] | None = None
    slices: tuple[DeviceSlice, ...] | None = None  # the node's ResourceSlices
    cables: tuple[Finding, ...] | None = None  # of `kube-rdma fabric` about this node
    pcie: tuple[PcieLink, ...] | None = None  # of its cards, and of switches above them
    bridges: tuple[ObservedBridge, ...] | None = None  # between cards and GPUs of one switch
    domains: tuple[ObservedDomain, ...] | None = None  # those that have a card
    flow_control: tuple[ObservedFlowControl, ...] | None = None
    errors: tuple[ObservedErrors, ...] | None = None  # of ports that had any, or full counters
    virtual_machine: bool | None = None
    pod: ObservedPod | None = None
    from_files: bool = False  # of --sysfs, which show cards alone
    not_seen: tuple[NotSeen, ...] = field(default=(), name="blanks")  # the name in a bundle


class UnseenCheck(Frozen):
    """A check that could not be made, and the parts of the Observation that it lacked."""

    code: str
    title: str
    parts: tuple[str, ...]


class CardByClaim(Frozen):
    """A card that a container holds by a ResourceClaim."""

    container: str
    driver: str  # dra.net
    pool: str
    device: str  # its name in the driver's pool
    card: str = ""  # its PCI function; "" is not known, as of rdma
    rdma: str = ""  # its RDMA device, as it was seen


class ContainerUse(Frozen):
    """The use of RDMA by the processes of a container with a card; None means not seen."""

    container: str
    pinned: int | None = None  # bytes of memory
    pairs: tuple[ObservedQueuePairs, ...] | None = None
    unused: tuple[str, ...] = ()  # its devices on which it has no queue pair


def keeps_from_starting(finding: Finding) -> bool:
    """Return whether a Finding says why a pod does not run, and so stands first."""
    # Networks that the agent refuses are KR401; of other networks it is a warning.
    return finding.code in ("KR322", "KR490") or (finding.code == "KR401" and finding.is_error)


class Diagnosis(Frozen):
    """The result of all checks of a node and its pod."""

    findings: tuple[Finding, ...]  # root causes first
    passed: tuple[str, ...]  # codes of checks that saw all they need and found nothing
    unseen: tuple[UnseenCheck, ...]
    claimed: tuple[CardByClaim, ...] = ()  # of the pod, by any driver
    uses: tuple[ContainerUse, ...] = ()  # by its containers with cards
    elsewhere: frozenset[str] = frozenset()  # subjects of findings: cards that the pod lacks
    from_files: bool = False

    @property
    def ill(self) -> bool:
        """Return whether any Finding says that RDMA does not work."""
        return any(one.is_error for one in self.findings)

    @property
    def is_blind(self) -> bool:
        """Return whether too little was seen of the node to say that it is well.

        That is so if unseen checks outnumber passed checks and findings together. It is never so
        for a node in files, of which only the cards are judged.
        """
        return not self.from_files and len(self.unseen) > len(self.passed) + len(self.findings)


# Several nodes at once, each asked through its agent.


class AgentPod(NamespacedName):
    """The pod of an agent, with its container."""

    node: str
    container: str
    ready: bool = True
    why: str = ""  # the reason that it waits for, if not ready
    argv: tuple[str, ...] = ()  # command and arguments, without those of the image


class NodeAnswer(Frozen):
    """The answer of a node's agent to the doctor."""

    node: str
    seen: Observation | None = None  # None: it did not answer, for `why`
    why: str = ""


class NodeDiagnosis(Frozen):
    """The diagnosis of one of several nodes, or why there is none."""

    node: str
    diagnosis: Diagnosis | None = None  # None: the node was not seen, for `why`
    why: str = ""

    @property
    def is_dark(self) -> bool:
        """Return whether too little was seen of the node to say that it is well."""
        return self.diagnosis is None or self.diagnosis.is_blind


class FleetPlace(Frozen):
    """A Finding, and the node that has it."""

    node: str
    finding: Finding


class FleetFinding(Frozen):
    """The same Finding on one or more nodes; the evidence may differ from node to node."""

    code: str
    severity: Severity
    cause: str
    places: tuple[FleetPlace, ...]
    follows: str = ""  # the code of its root, "" where it is a root on any node

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes that have the Finding, each once."""
        return tuple(dict.fromkeys(place.node for place in self.places))


class FleetDiagnosis(Frozen):
    """All nodes with their Findings: root causes first, then by severity and frequency."""

    nodes: tuple[NodeDiagnosis, ...]
    findings: tuple[FleetFinding, ...] = ()

    @property
    def ill(self) -> bool:
        """Return whether RDMA does not work on at least one node."""
        return any(one.diagnosis is not None and one.diagnosis.ill for one in self.nodes)

    @property
    def is_blind(self) -> bool:
        """Return whether too little was seen of some node to call it well, or there is no node."""
        return not self.nodes or any(one.is_dark for one in self.nodes)
