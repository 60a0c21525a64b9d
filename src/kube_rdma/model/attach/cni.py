"""The CNI configuration of a node: its files, who calls kube-rdma, and what has to change for it.

adapters/cni/conf reads and writes the folder, attach/rules/conflist decides what it should
hold.
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
CHAINED = "chain"  # the key by which kube-rdma's entry in the cluster's list says that it is that
BUILT_IN = (
    "builtIn"  # the key of kube-rdma's own configuration `rdma`, which has nothing else to say
)

ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
"""The capability by which containerd and CRI-O tell a plugin the pod's annotations."""


class Wiring(StrEnum):
    """Who calls kube-rdma for a pod (docs/decisions/0010)."""

    CHAIN = "chain"  # the runtime, behind the cluster's own plugin
    DELEGATE = "delegate"  # a meta-plugin such as Multus, for the networks that a pod names
    NONE = "none"  # nobody yet: the cluster's network is not installed


class ConfFile(Frozen):
    """One file of the folder by its name, without the folder."""

    name: str
    text: str


class ConfPlan(Frozen):
    """What the folder should become. `default` is the file that the runtime takes before it.

    Nothing to write and nothing to remove: all is as it should be. `readers` are the annotations
    that meta-plugins read, each with the product; `notes` are sentences about files of others.
    `missing` are plugins of the default that are not beside kube-rdma's: the runtime has them
    elsewhere. `guard` is a product in the default that may keep all others out of the folder, so
    what is written counts only when it has stood for a while.
    """

    wiring: Wiring
    default: str = ""
    writes: tuple[ConfFile, ...] = ()
    removes: tuple[str, ...] = ()
    readers: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    guard: str = ""

    @property
    def changes(self) -> bool:
        """Whether anything has to be done."""
        return bool(self.writes or self.removes)


SET_ASIDE = ".cilium_bak"  # what Cilium puts behind the name of a file that no runtime shall read


class Undone(Frozen):
    """What became of kube-rdma's writes to the folder.

    `at_once` counts those, in a row, that somebody undid within a second; `set_aside` are files of
    kube-rdma that got SET_ASIDE behind their names.
    """

    at_once: int = 0
    set_aside: tuple[str, ...] = ()


# A call of the Container Network Interface, and what is answered.

VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")


class Verb(StrEnum):
    """What is asked; VERSION never comes, the shim answers it."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"


class Code(IntEnum):
    """Error codes: those of the specification below 100, kube-rdma's from there on."""

    VERSION = 1
    ENVIRONMENT = 4
    DECODE = 6
    CONFIGURATION = 7
    TRY_AGAIN = 11
    NOT_AVAILABLE = 50  # STATUS: no ADD can succeed now
    CONTRADICTION = 100  # the world is not as it was recorded
    FAULT = 101  # an internal error; the agent's log has more


class CniInterface(Frozen):
    """An interface, of the host if without `sandbox`; `mtu` and what follows is of 1.1.0."""

    name: str
    mac: str = ""
    sandbox: str = ""
    mtu: int = 0
    socket_path: str = ""
    pci: str = ""


class LinkAddress(Frozen):
    """An address; `link` is the place of its interface among the result's, if it has one."""

    address: IPv4Interface | IPv6Interface
    gateway: IPv4Address | IPv6Address | None = None
    link: int | None = None


class LinkRoute(Frozen):
    """A route; what is None is not said. All but the first two are of 1.1.0."""

    to: IPv4Network | IPv6Network
    via: IPv4Address | IPv6Address | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


class Dns(Frozen):
    """How the container should resolve names."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class CniResult(Frozen):
    """What an ADD made. As an answer it holds only what kube-rdma made.

    The encoder puts it behind the previous result, of which every field is kept as it was.
    """

    links: tuple[CniInterface, ...] = ()
    addresses: tuple[LinkAddress, ...] = ()
    routes: tuple[LinkRoute, ...] = ()
    dns: Dns | None = None


class CniAttachment(Frozen):
    """One interface of one sandbox: what DEL removes, and what GC is told to leave."""

    container: ContainerId
    interface: InterfaceName


class Call(Frozen):
    """One call. What a verb has no use for is empty: GC and STATUS are about no container.

    `netns` is a descriptor of the pod's network namespace, checked to be one, and open for as long
    as the call lasts; ADD always has it. `uid` and `pod` are what the kubelet told the runtime,
    `args` all of CNI_ARGS. `previous` is what the plugins before kube-rdma made, `valid` what GC
    must leave, `config` the whole configuration as it came, for the keys that only some callers
    know. `plugin` is the type of that configuration, `marked` says that it is kube-rdma's entry in
    the cluster's list (attach/rules/conflist). `annotations` are the pod's where the
    runtime tells them to that entry.
    """

    verb: Verb
    version: str
    network: str
    config: bytes
    container: ContainerId
    interface: InterfaceName
    netns: int | None = None
    netns_path: str = ""
    pod: PodName | None = None
    uid: str = ""
    args: tuple[tuple[str, str], ...] = ()
    previous: CniResult | None = None
    valid: tuple[CniAttachment, ...] = ()
    plugin: str = PLUGIN
    marked: bool = False
    annotations: tuple[tuple[str, str], ...] | None = None
