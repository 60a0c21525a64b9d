"""What the kubelet asks of a driver of dynamic resource allocation, and what it is answered.

adapters/kubelet/claim_plugin carries both; KEP-4381 has what they mean. kube-rdma's own driver
reads what the scheduler allocated (AllocatedClaim), books it (claims/rules/prepare) and keeps the
booking in the journal (PreparedClaim) until the kubelet gives the claim back.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.parameters import ClaimParameters, OpaqueConfig
from kube_rdma.model.pools.pool import ShareId

CLAIM_KIND = "kube-rdma.io/claim"
"""Of CDI devices that stand for what a claim holds."""


class ClaimName(Frozen):
    """A ResourceClaim: its name may be used again, its `uid` never."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """namespace/name, as in messages of Kubernetes."""
        return f"{self.namespace}/{self.name}"


class PreparedDevice(Frozen):
    """A device of a claim that is ready for containers.

    `requests` are those of the claim that it answers, all if there are none. `cdi` are names of
    CDI devices, which have to exist by now.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share: str | None = None  # of a device that several claims share (KEP-5075)


class ClaimUser(Frozen):
    """Who may use a claim (status.reservedFor): a pod, or what stands for several, by its kind."""

    resource: str  # pods
    name: str
    uid: str


class AllocatedDevice(Frozen):
    """What the scheduler gave for a request of a claim (status.allocation.devices.results).

    `request` is ``main`` or ``main/sub``. `slots` are what was consumed of the capacity of that
    name, None for a device that is nobody's besides. `admin`: it is for looking at the device, and
    takes nothing away. `tolerant`: the request bears taints of devices.
    """

    request: str
    driver: str
    pool: str
    device: str
    share: str | None = None
    slots: int | None = None
    admin: bool = False
    tolerant: bool = False


class AllocatedClaim(Frozen):
    """A ResourceClaim as it stands in the cluster; `devices` and `configs` are of every driver.

    `pod_claim` is what its pod calls it, where it was made for the pod by a template.
    """

    claim: ClaimName
    devices: tuple[AllocatedDevice, ...]
    users: tuple[ClaimUser, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    pod_claim: str = ""


class ClaimShare(Frozen):
    """A device of a claim as it is booked: what it stands for on this node.

    `share` is its name among the shares of the resource, which nobody had before and nobody gets
    later, but where a share is the card itself. `char_paths` are the device nodes that the CDI
    device `cdi` has. Without any the device does not exist: a container that names it does not
    start, which is meant where a network has to come first (Attach.REQUIRED). No `cdi`: the card
    has no node to give. `parameters` say what interface the device becomes in a pod.
    """

    request: str
    pool: str
    device: str
    share_id: str | None
    resource: str
    share: ShareId
    cards: tuple[CardId, ...]
    slots: int
    char_paths: tuple[str, ...]
    cdi: str = ""
    admin: bool = False
    parameters: ClaimParameters = ClaimParameters()

    @property
    def makes_interface(self) -> bool:
        """Whether a pod gets an interface by it, without saying so itself."""
        return not self.admin and self.parameters != ClaimParameters()


class ClaimDevice(Frozen):
    """A device of a claim of a pod that is going to be an interface of it."""

    claim: ClaimName
    share: ClaimShare

    @property
    def source(self) -> str:
        """What messages call it."""
        return f"claim {self.claim}: request {self.share.request}"


class PreparedClaim(Frozen):
    """A record of the agent: a claim that the kubelet has been told to be prepared.

    `boot` is the boot of the node in which its device nodes have these paths, `pod_claim` is as
    AllocatedClaim has it.
    """

    claim: ClaimName
    shares: tuple[ClaimShare, ...]
    users: tuple[ClaimUser, ...]
    boot: str
    when: float  # seconds of the wall clock, for people and to tell which of two came later
    pod_claim: str = ""
