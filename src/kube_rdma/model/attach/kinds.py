"""The kinds of a pod's further networks, each with the fields that it alone has.

Rules decide by the class: ``case kinds.IpvlanNetwork():``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kube_rdma.model.attach.attachment import Network, NetworkKind
from kube_rdma.model.pools import FunctionSettings


class MacvlanNetwork(Network):
    """A network of type macvlan: a virtual link on an Ethernet card."""

    kind = NetworkKind.MACVLAN

    mode: str = ""


class IpvlanNetwork(Network):
    """A network of type ipvlan: a virtual link with the MAC of its card."""

    kind = NetworkKind.IPVLAN

    mode: str = ""


class IpoibNetwork(Network):
    """A network of type ipoib: a virtual link on an InfiniBand card."""

    kind = NetworkKind.IPOIB

    pkey: int | None = None  # of a partition, without the bit for full members


class DeviceNetwork(Network):
    """A network of type host-device or sriov, in which a pod gets a card's own link.

    Type sriov has `function`.
    """

    kind = NetworkKind.DEVICE

    function: FunctionSettings | None = None  # of a virtual function, which its link then has to be


class IbSriovNetwork(DeviceNetwork):
    """A network of type ib-sriov: a virtual function of an InfiniBand card."""

    guid: str | None = None  # for a pod that asks for no other
    pkey: int | None = None
    isolated: bool = False  # only where an RDMA device belongs to one namespace
    configured: bool = False  # only for entries that ib-kubernetes has seen


class CardNetwork(Network):
    """A network of type kube-rdma, whose kind of interface the mode of the granted card decides."""

    kind = NetworkKind.CARD

    pkey: int | None = None


class ForeignNetwork(Network):
    """A network whose interface other CNI plugins make, with addresses and routes of their own."""

    kind = NetworkKind.OTHER


_KINDS: tuple[type[Network], ...] = (
    *(MacvlanNetwork, IpvlanNetwork, IpoibNetwork, DeviceNetwork, CardNetwork, ForeignNetwork),
)
NETWORKS: Mapping[NetworkKind, type[Network]] = MappingProxyType({of.kind: of for of in _KINDS})


def partition_of(network: Network) -> int | None:
    """Return the InfiniBand partition that a network's document names, None without one."""
    if isinstance(network, IpoibNetwork | IbSriovNetwork | CardNetwork):
        return network.pkey
    return None
