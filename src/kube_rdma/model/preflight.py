"""Preflight: the pods of a gang measure their rails before their own containers start.

A pod asks by the annotation `kube-rdma.io/preflight`. Two init containers do it: one measures as
its plan says, one waits for the verdict on the whole gang. Plan and verdict are annotations that
the controller writes, and files that the kubelet shows in the pod (downward API). The figures are
the termination message of the first container. So no pod needs rights, DNS or another's trust.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.card import CardId
from kube_rdma.model.kubernetes import NamespacedName, PodState
from kube_rdma.model.verify import Pairing, PodDevice

REQUEST = "kube-rdma.io/preflight"
"""The annotation that asks for a preflight; the label of the same name and value."""

PAIRINGS = (Pairing.RING.value, Pairing.STAR.value)
"""The values of the annotation REQUEST."""

MIN_BANDWIDTH = "kube-rdma.io/preflight-min-bandwidth"
"""The annotation with the lowest bandwidth of a good pair. Example: 80G."""

MAX_LATENCY = "kube-rdma.io/preflight-max-latency"
"""The annotation with the highest average latency of a good pair. Example: 5us."""

TOLERANCE = "kube-rdma.io/preflight-tolerance"
"""The annotation that says how much worse than the median of its rail a good pair may be.

Left out: 20%.
"""

WAIT = "kube-rdma.io/preflight-wait"
"""The annotation with the seconds that a pod waits for its peers. Left out: 600."""

SIZE = "kube-rdma.io/preflight-size"
"""The annotation with the number of pods in the gang; it goes before what the owner says."""

GANG = "kube-rdma.io/preflight-gang"
"""The label that names a gang of pods of any owner, or of none. It needs the annotation SIZE."""

PLAN, VERDICT = "kube-rdma.io/preflight-plan", "kube-rdma.io/preflight-verdict"
"""The annotations that the controller writes."""

RESULT = "kube-rdma.io/preflight-result"
"""The label of a BandwidthCheck that only tells what a gang measured; its value is its kind."""

MEASURES, AWAITS = "kube-rdma-preflight", "kube-rdma-preflight-verdict"
"""The names of the two init containers."""

FOLDER = "/run/kube-rdma/preflight"
"""The folder in both containers with the files `plan` and `verdict`."""

NOT_WELL = 42
"""The exit code of the second container when the verdict is bad, for a podFailurePolicy."""

MOST_MESSAGE = 4096  # bytes of a termination message that the kubelet keeps
MOST_PODS = 1024  # of a gang
MOST_DEVICES = 64  # of a pod
MOST_PLAN = 100_000  # characters; all annotations of a pod together have 262,144 bytes


class Standard(Frozen):
    """The pairs that a gang asks to measure, and the limits of a good pair."""

    pairing: Pairing
    gbps: float | None = None  # the lowest bandwidth
    microseconds: float | None = None  # the highest latency; None: latencies are not measured
    tolerance: float = 0.2  # the part by which a pair may be worse than the median of its rail

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Return whether latencies are measured, for each run of a pair: the bandwidth first."""
        return (False,) if self.microseconds is None else (False, True)


OWNERS = {
    "Job": ("batch", "jobs"),
    "JobSet": ("jobset.x-k8s.io", "jobsets"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "leaderworkersets"),
    "MPIJob": ("kubeflow.org", "mpijobs"),
    "PyTorchJob": ("kubeflow.org", "pytorchjobs"),
    "RayCluster": ("ray.io", "rayclusters"),
    "StatefulSet": ("apps", "statefulsets"),
}
"""API group and plural of the kinds whose specs say how many pods a gang has."""


class GangOwner(Frozen):
    """The object whose spec says how many pods a gang has."""

    api_version: str
    kind: str
    name: str
    uid: str = ""

    @property
    def group(self) -> str:
        """Return the API group; "" of the core."""
        return self.api_version.rpartition("/")[0]


class CardPlace(Frozen):
    """The facts of a NodeReport that tell the cards of a gang from each other."""

    rail: int | None = None
    card: str = ""  # the physical card
    pools: tuple[str, ...] = ()  # resources of which a share stands for this card among others
    ports: tuple[PodDevice, ...] = ()
    is_infiniband: bool = False  # so that any network namespace reaches its ports
    is_up: bool = False  # a port is ACTIVE


NOWHERE = CardPlace()
"""The place of a card that no report has."""


class Gang(NamespacedName):
    """A gang: pods of one namespace that start together or not at all."""

    kind: str  # of the owner; label: the pods name their gang themselves
    size: int | None = None  # None: the owner says it
    owner: GangOwner | None = None
    attempt: str = ""  # tells it from an earlier gang of its name, whose pods may still run

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return what tells this gang from others."""
        return self.namespace, self.kind, self.name, self.attempt

    @property
    def words(self) -> str:
        """Return the gang for people, such as Job train/llama."""
        return f"{self.kind} {self.title}"


class Run(Frozen):
    """One perftest in a pod: its end of a pair on one rail."""

    turn: int  # runs of a turn are at the same time, and turns one after the other
    rail: int
    latency: bool
    client: bool
    device: PodDevice
    peer: str  # the address of the other end
    port: int  # of TCP, at which the server listens


class GangPlan(Frozen):
    """The measurements of one pod in one round of its gang."""

    round: str
    pods: int  # of the gang
    runs: tuple[Run, ...] = ()
    slot: int = 0  # seconds between the begins of two turns; 0: a pod goes on when it is ready


class GangVerdict(Frozen):
    """The controller's decision on the round of a gang."""

    round: str
    well: bool
    why: str  # one sentence


class PreflightPod(PodState):
    """A pod that asks for a preflight, and how far it is."""

    controller: GangOwner | None = None  # by its ownerReferences
    gang: Gang | None = None  # None: not decided yet, or refused
    standard: Standard | None = None  # likewise
    refusal: str = ""  # what is wrong with the request, in one sentence
    address: str = ""  # on the cluster's network, or of the node
    resources: tuple[str, ...] = ()  # extended ones of its first init container
    devices: tuple[PodDevice, ...] = ()  # as kube-rdma attached them, or by its node's report
    cards: tuple[CardId | None, ...] = ()  # of each device
    rails: tuple[int, ...] = ()  # of each device; their places if empty
    plan: GangPlan | None = None
    verdict: GangVerdict | None = None
    is_measuring: bool = False  # its first init container runs
    result: str | None = None  # the termination message of that container; None: it has not ended
    failed: str = ""  # why that container ended without having measured
    pending: str = ""  # why it is not yet scheduled
