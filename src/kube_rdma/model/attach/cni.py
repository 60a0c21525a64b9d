"""The CNI configuration of a node, the calls of runtimes and meta-plugins, and their answers.

adapters/cni/conf reads and writes the folder, attach/rules/conflist decides what it should hold;
adapters/cni/protocol decodes calls and encodes answers.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)

from kube_base.frozen import Frozen
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName

PLUGIN = "kube-rdma"  # its type in a configuration, and so the name of the binary on the host
IPAM_PLUGIN = "kube-rdma-ipam"  # its type in an ``ipam`` block: the same binary by a second name
HOOK_PROGRAM = "kube-rdma-hook"  # the same binary again, for CDI files alone
CHAINED = "chain"  # the key that marks kube-rdma's entry in the cluster's list of plugins
BUILT_IN = "builtIn"  # key of kube-rdma's own configuration `rdma`, which says nothing else

ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
"""The capability by which containerd and CRI-O tell a plugin the pod's annotations."""


class Wiring(StrEnum):
    """The program that calls kube-rdma's CNI plugin for a pod (docs/decisions/0010)."""

    CHAIN = "chain"  # the runtime, behind the cluster's own plugin
    DELEGATE = "delegate"  # a meta-plugin such as Multus, for the networks that a pod names
    NONE = "none"  # nobody yet: the cluster's network is not installed


class ConfFile(Frozen):
    """A file in the folder of CNI configuration: its name and its text."""

    name: str
    text: str


class ConfPlan(Frozen):
    """The changes to make to the folder of CNI configuration, and what was found there."""

    wiring: Wiring
    default: str = ""  # the first file of others, which the runtime takes; "" for none
    writes: tuple[ConfFile, ...] = ()
    removes: tuple[str, ...] = ()
    readers: tuple[tuple[str, str], ...] = ()  # annotations of meta-plugins, with the product
    notes: tuple[str, ...] = ()  # sentences about files of others
    # Plugins of the default that are not beside kube-rdma's: the runtime has them elsewhere.
    missing: tuple[str, ...] = ()
    # A product in the default that may keep all others out of the folder, so that what is written
    # counts only when it has stood for a while.
    guard: str = ""

    @property
    def changes(self) -> bool:
        """Return whether the folder has to be changed."""
        return bool(self.writes or self.removes)


SET_ASIDE = ".cilium_bak"  # what Cilium puts behind the name of a file that no runtime shall read


class UndoneWrites(Frozen):
    """Writes of kube-rdma to the folder of CNI configuration that another program has undone."""

    at_once: int = 0  # in a row, within a second each
    set_aside: tuple[str, ...] = ()  # files of kube-rdma that got SET_ASIDE behind their names


# A call of the Container Network Interface, and what is answered.

VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")


class Verb(StrEnum):
    """The command of a CNI call; VERSION is not among them, for the shim answers it."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"


class Code(IntEnum):
    """The codes of CNI errors: those below 100 are of the specification, others are kube-rdma's."""

    VERSION = 1
    ENVIRONMENT = 4
    DECODE = 6
    CONFIGURATION = 7
    TRY_AGAIN = 11
    NOT_AVAILABLE = 50  # STATUS: no ADD can succeed now
    CONTRADICTION = 100  # the pod's network is not as it was recorded
    FAULT = 101  # an internal error; the agent's log has more


class CniInterface(Frozen):
    """An interface in a CNI result."""

    name: str
    mac: str = ""
    sandbox: str = ""  # empty: it is the host's
    # Of 1.1.0:
    mtu: int = 0
    socket_path: str = ""
    pci: str = ""


class LinkAddress(Frozen):
    """An address in a CNI result."""

    address: IPv4Interface | IPv6Interface
    gateway: IPv4Address | IPv6Address | None = None
    link: int | None = None  # the place of its interface among the result's


class LinkRoute(Frozen):
    """A route of a CNI result.

    All but the first two fields are of version 1.1.0.
    """

    to: IPv4Network | IPv6Network
    via: IPv4Address | IPv6Address | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


class Dns(Frozen):
    """The DNS settings in a CNI result."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class CniResult(Frozen):
    """The result of an ADD. As an answer it holds only what kube-rdma made.

    The encoder adds it to the previous result.
    """

    links: tuple[CniInterface, ...] = ()
    addresses: tuple[LinkAddress, ...] = ()
    routes: tuple[LinkRoute, ...] = ()
    dns: Dns | None = None


class CniAttachment(Frozen):
    """An attachment of the CNI specification: one interface of one container.

    DEL removes it, and GC is told which ones to keep.
    """

    container: ContainerId
    interface: InterfaceName


class Call(Frozen):
    """One CNI call, decoded."""

    verb: Verb
    version: str
    network: str
    config: bytes  # all of the configuration as it came, for keys that only some callers know
    container: ContainerId  # empty for GC and STATUS
    interface: InterfaceName
    netns: int | None = None  # descriptor of the pod's namespace, open while the call lasts
    netns_path: str = ""
    pod: PodName | None = None  # as the kubelet told the runtime
    uid: str = ""
    args: tuple[tuple[str, str], ...] = ()  # all of CNI_ARGS
    previous: CniResult | None = None  # of the plugins before kube-rdma
    valid: tuple[CniAttachment, ...] = ()  # GC must leave them
    plugin: str = PLUGIN  # the type in the configuration
    marked: bool = False  # kube-rdma's entry in the cluster's list (attach/rules/conflist)
    # The pod's, where the runtime gives them to that entry.
    annotations: tuple[tuple[str, str], ...] | None = None
