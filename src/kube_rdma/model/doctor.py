"""What `kube-rdma doctor` saw of a node or a pod: the whole of a support bundle.

doctor/evidence collects an Observation, doctor/rules maps it to Findings, doctor/views
shows them. Every part may be missing: a doctor without a right sees less and says so. What a bundle
may hold is what stands here, field by field; no file is copied whole, so nobody's secret comes
along.
"""

from __future__ import annotations

from kube_base.frozen import Frozen, field
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice
from kube_rdma.model.device import PciAddress, PcieLink
from kube_rdma.model.finding import Finding, NotSeen, Severity
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import Runtime
from kube_rdma.model.pools import PoolSpec
from kube_rdma.model.survey import Survey

VERSION = 1  # of the document; a doctor reads bundles up to its own


class SystemVersions(Frozen):
    """What runs here; "" is not known. `kernel` is the release, `system` its distribution.

    `vpc_cni` is VKE's network plugin, Cello.
    """

    kube_rdma: str
    kernel: str = ""
    system: str = ""
    kubelet: str = ""  # v1.36.3
    vpc_cni: str = ""


class ObservedLink(Frozen):
    """An interface with its addresses, ``10.0.0.1/24``; `kind` is the kernel's, `pci` its card.

    `parent` is the interface of the node below it, "" where it has none or it cannot be named.
    """

    name: str
    mtu: int
    up: bool  # administratively
    carrier: bool | None = None  # None while it is down
    kind: str = ""
    parent: str = ""
    pci: str = ""
    addresses: tuple[str, ...] = ()


class ObservedRoute(Frozen):
    """A unicast route; `table` 0 is the main one."""

    interface: str
    to: str
    via: str = ""
    table: int = 0


class ObservedNeighbour(Frozen):
    """An address that the kernel asked for on an interface; `answered` nobody for long if not."""

    interface: str
    address: str
    answered: bool


class ObservedKubelet(Frozen):
    """The kubelet's folders: `sockets` are the names in device-plugins.

    `allocatable` are healthy shares by resource, `holdings` who has which; None: it did not say.
    `devices` are what containers hold by ResourceClaims, of any driver. `topology_policy` is that
    of its configuration; "" where that was not read.
    """

    sockets: tuple[str, ...] = ()
    allocatable: tuple[tuple[str, int], ...] | None = None
    holdings: tuple[Holding, ...] | None = None
    topology_policy: str = ""
    devices: tuple[ClaimedDevice, ...] = ()


class ObservedFolder(Frozen):
    """A folder of kube-rdma's state: `free` bytes, and `inodes` where they are counted."""

    path: str
    free: int
    inodes: int | None = None
    read_only: bool = False


class ObservedCni(Frozen):
    """The node's CNI configuration: names of files and types of plugins, never a text.

    `pending` says what kube-rdma would change in it now. `refused` is why nothing can be done.
    `guard` is a product that may keep others out, `aside` are files that it has put aside.
    `installed`: the binary of kube-rdma is where the runtime looks, so an agent gives networks.
    """

    files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    wiring: str = ""
    default: str = ""
    pending: bool = False
    refused: str = ""
    guard: str = ""
    aside: tuple[str, ...] = ()
    installed: bool = False


class ObservedRail(Frozen):
    """A rail of the agent's record: its number, or its entry in a policy's list, and its card.

    `card` is the PCI address of the physical function, which may be gone.
    """

    rail: str
    card: str


class ObservedBridge(Frozen):
    """A PCIe port between a card and a GPU: `acs` are the bits of its ACS Control register.

    They are 0 where it has no such register.
    """

    pci: PciAddress
    acs: int


class ObservedDomain(Frozen):
    """The type of the IOMMU domain that the kernel gives a card: ``identity``, ``DMA-FQ``."""

    pci: PciAddress
    type: str


class ObservedFlowControl(Frozen):
    """What an interface does about congestion, by priority from 0 to 7.

    `pfc` and `ecn` are the priorities that have it, None where the driver does not tell. `trust` is
    the field of a packet that makes its priority, ``dscp`` or ``pcp``; "" where that is not told.
    """

    interface: str
    pfc: tuple[int, ...] | None = None
    trust: str = ""
    ecn: tuple[int, ...] | None = None


class ObservedErrors(Frozen):
    """Counters of a port that have risen within some seconds, each with how much."""

    device: str
    port: int
    seconds: float
    rises: tuple[tuple[str, int], ...]


class AddressUse(Frozen):
    """An address of a pod's interface on a network, as the pod's status annotation has it."""

    pod: str  # namespace/name
    network: str
    interface: str
    address: str


class AddressRange(Frozen):
    """A network's addresses by its IPPool."""

    network: str
    subnets: tuple[str, ...]


class ObservedContainer(Frozen):
    """A container of the pod, by its first process. None: that was not seen.

    `asks` are extended resources with their counts. `memlock` is the limit in bytes, -1 without
    limit. `locks`: CAP_IPC_LOCK is in force.
    `pinned` are bytes that its processes have pinned now.
    `asked_lock`: the pod asks for it. `nodes` are the paths below /dev/infiniband. `granted`: it
    asks for devices or is privileged, so somebody opened its device cgroup. `variables` are those
    that steer RDMA.
    """

    name: str
    asks: tuple[tuple[str, int], ...] = ()
    user: int | None = None
    memlock: int | None = None
    locks: bool | None = None
    asked_lock: bool | None = None
    nodes: tuple[str, ...] | None = None
    granted: bool | None = None
    pinned: int | None = None
    variables: tuple[tuple[str, str], ...] | None = None


class ObservedQueuePairs(Frozen):
    """The queue pairs of a container's processes on a device, of one transport: RC, UD, DRIVER.

    `ready` of them are connected. `programs` are the names of the processes.
    """

    container: str
    device: str
    type: str
    count: int
    ready: int = 0
    programs: tuple[str, ...] = ()


class ObservedAttachment(Frozen):
    """An interface of the agent's journal, against the pod as it is now.

    `wrong` are the sentences of CNI CHECK: what is not as it was attached.
    """

    interface: str
    network: str
    wrong: tuple[str, ...] = ()


class ObservedLimit(Frozen):
    """What a pod may have of an RDMA device, and what it has; None: no limit."""

    device: str
    handles: int = 0
    objects: int = 0
    most_handles: int | None = None
    most_objects: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether the kernel limits anything of the device."""
        return self.most_handles is not None or self.most_objects is not None

    @property
    def is_used_up(self) -> bool:
        """Whether the next one will be refused."""
        return bool(self.text)

    @property
    def text(self) -> str:
        """What is used up: ``all 100 objects``."""
        counts = (
            (self.handles, self.most_handles, "handles"),
            (self.objects, self.most_objects, "objects"),
        )
        full = (f"{most} {word}" for now, most, word in counts if most is not None and now >= most)
        return " and ".join(f"all {words}" for words in full)


class ObservedPod(Frozen):
    """The pod that is asked about, as API server, kubelet and kernel have it.

    `networks` are the names in its annotations, `attached` is what its status annotation says.
    `why` is what it waits for. `findings` are those of admission. `survey` has the RDMA devices
    that its namespace shows, `links` are its interfaces. `attachments` are those that the agent of
    its node has in its journal, `limits` those of its control group.
    `queue_pairs` are None where the kernel does not name the processes of the pod.
    """

    namespace: str
    name: str
    node: str = ""
    phase: str = ""
    why: str = ""
    host_network: bool = False
    networks: tuple[str, ...] = ()
    attached: tuple[AddressUse, ...] | None = None
    findings: tuple[Finding, ...] | None = None
    containers: tuple[ObservedContainer, ...] | None = None
    links: tuple[ObservedLink, ...] | None = None
    routes: tuple[ObservedRoute, ...] | None = None
    survey: Survey | None = None
    attachments: tuple[ObservedAttachment, ...] | None = None
    limits: tuple[ObservedLimit, ...] | None = None
    queue_pairs: tuple[ObservedQueuePairs, ...] | None = None

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class Observation(Frozen):
    """A node, and a pod on it if one is asked about, at one moment.

    None is a part that was not seen; `not_seen` names it with the reason. `modules` are those of
    the kernel that are loaded or built in, `absent` paths of device nodes that are not there.
    `specs` are the wishes for pools, `refusals` sentences about a configuration that is not
    understood. `rails` are those that the agent has numbered, or a policy lists. `settings` are
    sysctls by path, ``net/ipv4/conf/all/rp_filter``. `folders` are those of kube-rdma's state that
    are there. `problems` are what `kube-rdma status` finds about this node. `uses` are the
    addresses of pods everywhere, `slices` the node's ResourceSlices, `pcie` the links of its cards.
    `bridges` are the PCIe ports between cards and the GPUs of their switch, `domains` those of the
    IOMMU that have a card. `errors` are of ports whose counters have risen while they were watched.
    """

    node: str
    taken: str = ""  # a time as in RFC 3339
    document: int = VERSION
    versions: SystemVersions | None = None
    survey: Survey | None = None
    modules: tuple[str, ...] | None = None
    absent: tuple[str, ...] | None = None
    links: tuple[ObservedLink, ...] | None = None
    routes: tuple[ObservedRoute, ...] | None = None
    neighbours: tuple[ObservedNeighbour, ...] | None = None
    settings: tuple[tuple[str, str], ...] | None = None
    specs: tuple[PoolSpec, ...] | None = None
    refusals: tuple[str, ...] | None = None
    folders: tuple[ObservedFolder, ...] | None = None
    rails: tuple[ObservedRail, ...] | None = None
    kubelet: ObservedKubelet | None = None
    runtime: Runtime | None = None
    cni: ObservedCni | None = None
    problems: tuple[Finding, ...] | None = None
    uses: tuple[AddressUse, ...] | None = None
    ranges: tuple[AddressRange, ...] | None = None
    slices: tuple[DeviceSlice, ...] | None = None
    pcie: tuple[PcieLink, ...] | None = None
    bridges: tuple[ObservedBridge, ...] | None = None
    domains: tuple[ObservedDomain, ...] | None = None
    flow_control: tuple[ObservedFlowControl, ...] | None = None
    errors: tuple[ObservedErrors, ...] | None = None
    virtual_machine: bool | None = None
    pod: ObservedPod | None = None
    not_seen: tuple[NotSeen, ...] = field(default=(), name="blanks")  # the name in a bundle


class UnseenCheck(Frozen):
    """A check that could not be made, and the parts that were missing for it."""

    code: str
    title: str
    parts: tuple[str, ...]


class CardByClaim(Frozen):
    """A card that a container has by a ResourceClaim.

    `device` is its name in the driver's pool, `card` its PCI function, `rdma` its RDMA device as it
    was seen; "" is not known.
    """

    container: str
    driver: str  # dra.net
    pool: str
    device: str
    card: str = ""
    rdma: str = ""


class ContainerUse(Frozen):
    """What the processes of a container with a card use of RDMA now.

    `pinned` are bytes of memory. `pairs` are its queue pairs, `unused` the devices that it has and
    no queue pair is on. None is not seen.
    """

    container: str
    pinned: int | None = None
    pairs: tuple[ObservedQueuePairs, ...] | None = None
    unused: tuple[str, ...] = ()


class Diagnosis(Frozen):
    """What a doctor comes to: Findings, root causes first, and the checks that found nothing.

    `passed` are codes of checks that saw what they need and have nothing to say. `claimed` are the
    cards that the pod has by claims, of any driver. `uses` are of its containers with cards.
    """

    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    unseen: tuple[UnseenCheck, ...]
    claimed: tuple[CardByClaim, ...] = ()
    uses: tuple[ContainerUse, ...] = ()

    @property
    def ill(self) -> bool:
        """Whether RDMA does not work."""
        return any(one.is_error for one in self.findings)

    @property
    def is_blind(self) -> bool:
        """Whether too little was seen to call it well: most checks could not be made."""
        return len(self.unseen) > len(self.passed) + len(self.findings)


# What `kube-rdma doctor` comes to for several nodes at once, each asked through its agent.


class AgentPod(Frozen):
    """The pod of an agent, and its container; `why` is what it waits for if not ready.

    `words` are the command and arguments of the container, without those of its image.
    """

    namespace: str
    name: str
    node: str
    container: str
    ready: bool = True
    why: str = ""
    words: tuple[str, ...] = ()


class NodeAnswer(Frozen):
    """What the agent's container of a node answered; `seen` is None where it did not, for `why`."""

    node: str
    seen: Observation | None = None
    why: str = ""


class NodeDiagnosis(Frozen):
    """A node with what is wrong with it; without a diagnosis it was not seen, for `why`."""

    node: str
    diagnosis: Diagnosis | None = None
    why: str = ""

    @property
    def is_dark(self) -> bool:
        """Whether too little was seen of it to call it well."""
        return self.diagnosis is None or self.diagnosis.is_blind


class FleetPlace(Frozen):
    """Where a Finding is: a node, and the Finding as that node has it."""

    node: str
    finding: Finding


class FleetFinding(Frozen):
    """The same Finding on one or more nodes; the evidence may differ from node to node.

    `follows` is the code of its root, "" where it is a root on any node.
    """

    code: str
    severity: Severity
    cause: str
    places: tuple[FleetPlace, ...]
    follows: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have it, each once."""
        return tuple(dict.fromkeys(place.node for place in self.places))


class FleetDiagnosis(Frozen):
    """All nodes, and what they have in common; the worst and most frequent Finding first."""

    nodes: tuple[NodeDiagnosis, ...]
    findings: tuple[FleetFinding, ...] = ()

    @property
    def ill(self) -> bool:
        """Whether RDMA does not work on a node."""
        return any(one.diagnosis is not None and one.diagnosis.ill for one in self.nodes)

    @property
    def is_blind(self) -> bool:
        """Whether of any node too little was seen; also where there is no node at all."""
        return not self.nodes or any(one.is_dark for one in self.nodes)
