"""The dialect ``kind: ClaimParameters``: what a claim says of the interface in the pod.

It stands in ``opaque.parameters`` of ResourceClaims, their templates and DeviceClasses, whose
driver is kube-rdma's. Names and forms are those of networks (attach/documents) and pools (ipam). A
document may say a part: claims/rules/parameters merges those of class and claim, and says what a
claim, which a tenant writes, can say without a network. What is set in a virtual function, such as
its VLAN, is left to networks, which administrators write.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from kube_base.errors import Refused
from kube_rdma.attach.documents.network_plugins import Mtu
from kube_rdma.attach.documents.networks import Asked, Guid, Mac, PodInterface
from kube_rdma.lib.text.document import Document, of_json
from kube_rdma.lib.text.faults import Slip, slips, validate
from kube_rdma.lib.text.ip_words import Cidr, IpAddress, Label
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.lib.text.words import TextForm
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute
from kube_rdma.model.claims.parameters import MOST_PARAMETERS, ClaimParameters, NetworkReference
from kube_rdma.model.ipam import InterfaceName, PoolName

API_VERSION = "kube-rdma.io/v1alpha1"
KIND = "ClaimParameters"

MOST_LISTED = 16
"""Addresses, and routes: a device's status takes 16 (NetworkDeviceDataMaxIPs of resource/v1)."""

_OBJECT = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_TAKEN = ("lo", "eth0")  # what every pod has before its first further interface

NETWORK = TextForm(
    rf"([a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?/)?(?=[^/]{{1,253}}$){_OBJECT}",
    "the name of a network, with its namespace or without",
    "team-a/rdma-net",
    longest=63 + 1 + 253,
)
NetworkText: TypeAlias = Annotated[str, NETWORK]
_Few = Field(max_length=MOST_LISTED)


class ClaimRoute(Typed):
    """A route through the interface."""

    dst: Cidr = Field(examples=["10.0.0.0/8"])
    """dst is the subnet that the route leads to. Example: 10.0.0.0/8."""
    gw: IpAddress | None = None
    """gw is the address of the next router. Left out: the gateway of the interface's address.
    Example: 10.0.0.1.
    """

    @model_validator(mode="after")
    def _one_family(self) -> ClaimRoute:
        if self.gw is not None and self.gw.version != self.dst.version:
            problem = (
                f"{self.gw} is IPv{self.gw.version}, the destination {self.dst} "
                f"IPv{self.dst.version}"
            )
            raise slips(Slip(problem, "Write a gateway of the same family", ("gw",)))
        return self


class ClaimParametersObject(Typed):
    """ClaimParameters say what a device of a ResourceClaim becomes in the pod. They stand below
    opaque.parameters in the config of a ResourceClaim, a ResourceClaimTemplate or a DeviceClass.
    A field of the claim wins over that of the class.
    """

    api_version: Literal["kube-rdma.io/v1alpha1"]
    """apiVersion is kube-rdma.io/v1alpha1."""
    kind: Literal["ClaimParameters"]
    """kind is ClaimParameters."""
    network: NetworkText | None = None
    """network is the NetworkAttachmentDefinition that the interface belongs to, with or without its
    namespace. Without one, it is in the namespace of the claim. Left out: no network, and type,
    mode and pool count. Example: team-a/rdma-net.
    """
    type: Literal["kube-rdma", "macvlan", "ipvlan", "ipoib", "host-device"] | None = None
    """type is how the device comes into the pod, as in a CNI configuration. kube-rdma follows the
    mode of the pool that the device is from. type cannot stand beside network. Left out: kube-rdma.
    """
    mode: Literal["bridge", "private", "vepa", "l2"] | None = None
    """mode is that of the virtual interface: bridge, private or vepa of type macvlan, l2 of type
    ipvlan. mode cannot stand beside network. Left out: bridge, or l2.
    """
    interface: PodInterface | None = None
    """interface is the name of the interface in the pod, of 1 to 15 characters. Left out: net1,
    net2 and so on. Example: rdma0.
    """
    mtu: Mtu | None = None
    """mtu is the largest packet of the interface in bytes, at most that of the card. 0 is that of
    the card. Left out: that of the network, else that of the card. Example: 9000.
    """
    pool: Label | None = None
    """pool is the IPPool that the interface gets its addresses of. pool cannot stand beside
    network. Left out: no pool gives an address. Example: rail-0.
    """
    addresses: Annotated[Many[Asked], _Few] | None = None
    """addresses are the addresses that the interface gets, at most 16. With a pool they are those
    that the claim wants of it. In a claim they need a pool or a network, and without either each
    needs its length. Left out: those that the pool chooses. Example: 10.0.0.10/24.
    """
    routes: Annotated[Many[ClaimRoute], _Few] | None = None
    """routes lead through the interface, at most 16, and come before those of the network and the
    pool. A default route is in the table of the interface alone. In a claim they need a pool or a
    network. Left out: no further routes.
    """
    default_route: bool | None = None
    """defaultRoute is true if the pod's default route leads to the gateway of this interface. In a
    claim it needs a pool or a network. Left out: false.
    """
    mac: Mac | None = None
    """mac is the MAC address of the interface. In a claim it needs a network. Left out: the kernel
    chooses it, or the network says it. Example: 02:00:0a:00:00:01.
    """
    guid: Guid | None = None
    """guid is the GUID of an InfiniBand interface, eight octets. In a claim it needs a network.
    Left out: that of the network, else that of the device. Example: 02:00:0a:00:00:00:00:01.
    """

    @field_validator("interface")
    @classmethod
    def _is_free(cls, interface: str | None) -> str | None:
        if interface in _TAKEN:
            problem = f"every pod has an interface {interface} already"
            raise slips(Slip(problem, "Write another name, such as rdma0"))
        return interface

    @field_validator("addresses")
    @classmethod
    def _differ(cls, addresses: tuple[AskedAddress, ...] | None) -> tuple[AskedAddress, ...] | None:
        written = [one.address for one in addresses or ()]
        twice = [n for n, one in enumerate(written) if one in written[:n]]
        if twice:
            problem = "the address stands here twice"
            raise slips(*(Slip(problem, "Remove one of the two", (n,)) for n in twice))
        return addresses

    def value(self) -> ClaimParameters:
        """What the document says."""
        routes = self.routes
        return ClaimParameters(
            network=_reference(self.network) if self.network else None,
            kind=NetworkKind(self.type) if self.type else None,
            mode=self.mode,
            interface=InterfaceName(self.interface) if self.interface else None,
            mtu=self.mtu,
            pool=PoolName(self.pool) if self.pool else None,
            addresses=self.addresses,
            routes=None if routes is None else tuple(NetworkRoute(r.dst, r.gw) for r in routes),
            default_route=self.default_route,
            mac=self.mac.lower() if self.mac else None,
            guid=self.guid.lower() if self.guid else None,
        )


def of_document(document: Document) -> ClaimParameters:
    """What the document says; raise Refused with all faults of it."""
    text = json.dumps(document.value, separators=(",", ":"), ensure_ascii=False)
    _refuse_long(len(text.encode(errors="surrogatepass")), document.where(()))
    return validate(ClaimParametersObject, document).value()


def of_bytes(data: bytes, source: str) -> ClaimParameters:
    """The same of JSON, whatever stands in it; `source` names it in messages."""
    _refuse_long(len(data), source)
    return validate(ClaimParametersObject, of_json(data, source)).value()


def _refuse_long(size: int, where: str) -> None:
    if size > MOST_PARAMETERS:
        problem = f"the parameters have {size} bytes, and Kubernetes takes {MOST_PARAMETERS}"
        raise Refused(problem, remedy="Write fewer addresses and routes", where=where)


def _reference(text: str) -> NetworkReference:
    namespace, _, name = text.rpartition("/")
    return NetworkReference(name, namespace or None)
