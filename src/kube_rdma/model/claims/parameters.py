"""What a claim or its class asks of the interface that a device becomes in the pod.

claims/parameter_document reads it from the opaque configuration of a ResourceClaim or a
DeviceClass, claims/rules/parameters merges what both say, and an attachment follows it
(model/attach).
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute
from kube_rdma.model.ipam import InterfaceName, PoolName

MOST_PARAMETERS = 10 << 10
"""Bytes of one configuration: OpaqueParametersMaxLength, k8s.io/api@v0.36.3 resource/v1."""


class NetworkReference(Frozen):
    """A network by name; without a namespace it is in that of the claim."""

    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ClaimParameters(Frozen):
    """What one document says, or several say together; None is what none of them says.

    `network` is a NetworkAttachmentDefinition; without it the interface is of `kind` and `mode`,
    with addresses of `pool`.
    """

    network: NetworkReference | None = None
    kind: NetworkKind | None = None
    mode: str | None = None  # of a macvlan or ipvlan interface
    interface: InterfaceName | None = None
    mtu: int | None = None  # 0: that of the card
    pool: PoolName | None = None
    addresses: tuple[AskedAddress, ...] | None = None
    routes: tuple[NetworkRoute, ...] | None = None
    default_route: bool | None = None
    mac: str | None = None
    guid: str | None = None


class ConfigOrigin(StrEnum):
    """Who wrote a configuration, by Kubernetes' words (AllocationConfigOrigin)."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


class OpaqueConfig(Frozen):
    """One entry of the configuration that a claim was allocated with.

    `requests` are those that it is for (``main``, or ``main/sub``), all if there are none.
    `parameters` is JSON of whatever form.
    """

    origin: ConfigOrigin
    driver: str
    parameters: bytes
    requests: tuple[str, ...] = ()


class ParameterFault(Frozen):
    """Parameters that do not go together: the `field` at fault as documents call it."""

    field: str
    problem: str
    remedy: str


class AskedDevices(Frozen):
    """The devices that one request asks for, with the parameters that they will have.

    `request` is ``main`` or ``main/sub``; `count` is None for all that there are.
    """

    request: str
    count: int | None
    parameters: ClaimParameters
