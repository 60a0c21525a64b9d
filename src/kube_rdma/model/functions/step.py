"""What is done to a virtual function for a pod, as values: settings, and its driver bound anew.

Steps like those of model/attach/steps, which says what a Step is. A virtual function is set up
through its physical one, which stays on the node; what the interface of the function itself has is
set by other Steps.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.device import PciAddress
from kube_rdma.model.link import PlannedHostLink


class VlanProtocol(StrEnum):
    """The tag that carries a VLAN: of the customer, or of the provider around that."""

    CUSTOMER = "802.1q"
    PROVIDER = "802.1ad"


class LinkState(StrEnum):
    """What a virtual function is told of its link: that of the card, always up, always down."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


class FunctionSettings(Frozen):
    """What a physical function decides about a virtual one. None: to be left, or not told.

    `mac` is the administrative one; all zeros where none is set. `qos` and `protocol` belong to
    `vlan`, which is 0 for none. Rates are in Mbit/s, 0 for no limit. GUIDs are of InfiniBand, eight
    octets as ``02:00:00:00:00:00:00:01``; all zeros where the physical function has set none.
    """

    mac: str | None = None
    vlan: int | None = None
    qos: int | None = None
    protocol: VlanProtocol | None = None
    spoof_check: bool | None = None
    trust: bool | None = None
    link_state: LinkState | None = None
    min_rate: int | None = None
    max_rate: int | None = None
    node_guid: str | None = None
    port_guid: str | None = None


class FunctionPlace(Frozen):
    """A virtual function by its number, from 0, at its physical one.

    `physical` stays on the node; `pci` is the address of the physical function, which finds that
    again when it has another name or index.
    """

    physical: PlannedHostLink
    pci: PciAddress
    number: int


class SetFunction(Frozen):
    """Set up a virtual function through its physical one, which stays on the node.

    `previous` has the same fields as `wanted`, as they were before. Done when the physical function
    tells what is wanted. The link of the function may be on the node or in the pod.
    """

    place: FunctionPlace
    wanted: FunctionSettings
    previous: FunctionSettings


class ResetFunction(Frozen):
    """Give a virtual function its previous settings back.

    Nothing to do where the physical function has none of this number: settings go with it.
    """

    place: FunctionPlace
    previous: FunctionSettings


class RebindFunction(Frozen):
    """Bind the driver of a virtual function anew, so that it takes the GUIDs that it was given.

    Its RDMA device and its link, wherever they are, end with the binding and are made anew on the
    node, with another name and index; whoever wants them finds them by `pci`. Done when the RDMA
    device has the node GUID `guid`. Undone by the same with the `previous` GUID, all ones for
    none, after ResetFunction and before GiveBackLink; then it is done only when the RDMA device is
    on the node too.
    """

    pci: PciAddress
    physical: PciAddress  # nobody else changes its functions meanwhile
    driver: str
    guid: str
    previous: str
