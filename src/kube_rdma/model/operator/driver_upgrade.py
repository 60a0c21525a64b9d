"""What the coming and going of drivers is decided on, node by node, and the acts it comes to.

operator/upgrades reads the cluster into these, operator/rules/upgrade decides.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen

DRIVER_FIELDS = "kube-rdma.io/driver-fields"  # annotation of drivers' pods: another is outdated


class DrainPolicy(Frozen):
    """Which holders may be evicted; the others are waited for. Words and defaults are kubectl's.

    `selector` is a label selector of pods, "" for all; `seconds` end the evictions, 0 never.
    """

    selector: str = ""
    force: bool = False  # also pods that no controller would make anew
    delete_empty_dir: bool = False  # also pods whose emptyDir volumes would be lost
    seconds: int = 300


class UpgradePolicy(Frozen):
    """How a policy wants its drivers upgraded; `parallel` nodes at a time, 0 for all.

    `automatic` is about other images alone: first loads and removals go on without it.
    """

    automatic: bool = False
    parallel: int = 1
    drain: DrainPolicy | None = None
    wait_for: str = ""  # a label selector of pods whose end is waited for besides

    @property
    def drains(self) -> DrainPolicy | None:
        """The drain, as far as nodes are emptied at all."""
        return self.drain if self.automatic else None


class DriverPod(Frozen):
    """A driver's pod on a node: `unloads` when it ends takes the cards' driver away.

    `current`: it is of the DaemonSet's present template.
    """

    name: str
    uid: str
    current: bool
    ready: bool
    deleting: bool = False
    unloads: bool = True  # False: a driver on top of it, such as that of peer memory


class DriverPlace(Frozen):
    """Where a driver belongs: the node's label `key`, its value, and which it should have.

    "" is no label, and so no driver. `unloads` as of its pods.
    """

    key: str
    has: str = ""
    wants: str = ""
    unloads: bool = True


class ShareHolder(Frozen):
    """A pod that holds RDMA shares of its node; one that `stays` is not to be evicted.

    It would be there again at once (of a DaemonSet, or of a file on the node), or the policy's
    drain leaves it alone.
    """

    namespace: str
    name: str
    uid: str
    deleting: bool = False
    stays: bool = False

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.name}"


class UpgradeNode(Frozen):
    """One node: its drivers' pods and what stands against their coming and going.

    `missing`: a driver's pod that should be there is not. `closed` nodes take no pods, by whoever's
    will; `ours` were closed by the operator, and `changing` ones among them for a change that it
    makes itself. `carries` says what the node needs its cards for, and is not known of one that is
    not `reported`; one that is `away` is not ready.
    """

    name: str
    pods: tuple[DriverPod, ...] = ()
    missing: bool = False
    holders: tuple[ShareHolder, ...] = ()
    closed: bool = False
    ours: bool = False
    changing: bool = False
    carries: tuple[str, ...] = ()
    places: tuple[DriverPlace, ...] = ()  # the driver of the cards first
    away: bool = False
    closed_seconds: float = 0.0  # since it was closed for a change
    reported: bool = True


class UpgradeStage(StrEnum):
    """How far a node is."""

    CURRENT = "current"
    STARTING = "starting"  # its driver ends or begins
    CLOSED = "closed"  # its holders are being evicted
    WAITING_FOR_PODS = "waiting for pods"
    WAITING_FOR_OTHERS = "waiting for other nodes"
    REFUSED = "refused"
    AWAY = "away"  # the node is not ready
    MANUAL = "manual"  # the policy has people end the drivers


class NodeStage(Frozen):
    """The stage of one node, with a sentence where somebody may have to act."""

    node: str
    stage: UpgradeStage
    sentence: str = ""


class Close(Frozen):
    """Let a node take no pods, for a `change` of its drivers or while one of them starts."""

    node: str
    change: bool = True


class Open(Frozen):
    """Let it take pods again."""

    node: str


class Evict(Frozen):
    """End a holder, as a drain does."""

    node: str
    pod: ShareHolder


class EndDrivers(Frozen):
    """End drivers' pods of a node, those on top first; their DaemonSets make new ones."""

    node: str
    pods: tuple[DriverPod, ...]


class LabelDrivers(Frozen):
    """Write labels of a node, by which drivers' DaemonSets choose it; None takes one away."""

    node: str
    labels: tuple[tuple[str, str | None], ...]


UpgradeAct = Close | Open | Evict | EndDrivers | LabelDrivers


class UpgradePlan(Frozen):
    """What a look comes to: acts in their order, and the stage of each node, by name."""

    acts: tuple[UpgradeAct, ...] = ()
    stages: tuple[NodeStage, ...] = ()


class UpgradeState(Frozen):
    """How far the upgrade of all nodes is; `reason` is for programs, `message` a sentence."""

    current: bool
    reason: str
    message: str = ""
