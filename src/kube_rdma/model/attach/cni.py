"""A call of the Container Network Interface, and what is answered.

The shim hands calls over, adapters/cni/protocol decodes them to a Call and encodes a Result,
for the versions 0.3.0 to 1.1.0 of the specification. Names are those of the specification.
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
from kube_rdma.model.cni_conf import PLUGIN
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding.binding import ContainerId, PodName

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
    the cluster's list (attach/rules/cni_conf/conflist). `annotations` are the pod's where the
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
