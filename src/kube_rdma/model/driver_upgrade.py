"""What an upgrade of drivers is decided on, node by node, and the acts that it comes to.

programs/operator/upgrades reads the cluster into these, rules/operator/upgrade decides.
"""

from __future__ import annotations

from enum import StrEnum

from kube_rdma.model.frozen import Frozen


class UpgradePolicy(Frozen):
    """How a policy wants its drivers upgraded; `parallel` nodes at a time, 0 for all."""

    automatic: bool = True
    parallel: int = 1
    drain: bool = False


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


class ShareHolder(Frozen):
    """A pod that holds RDMA shares of its node; one that `stays` would be there again at once."""

    namespace: str
    name: str
    uid: str
    deleting: bool = False
    stays: bool = False  # of a DaemonSet, or of a file on the node

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.name}"


class UpgradeNode(Frozen):
    """One node: its drivers' pods and what stands against their end.

    `missing`: a driver's pod that should be there is not. `closed` nodes take no pods, by whoever's
    will; `ours` were closed for an upgrade. `carries` says what the node needs its cards for.
    """

    name: str
    pods: tuple[DriverPod, ...] = ()
    missing: bool = False
    holders: tuple[ShareHolder, ...] = ()
    closed: bool = False
    ours: bool = False
    carries: tuple[str, ...] = ()


class UpgradeStage(StrEnum):
    """How far a node is."""

    CURRENT = "current"
    STARTING = "starting"  # its driver ends or begins
    CLOSED = "closed"  # its holders are being evicted
    WAITING_FOR_PODS = "waiting for pods"
    WAITING_FOR_OTHERS = "waiting for other nodes"
    REFUSED = "refused"
    MANUAL = "manual"  # the policy has people end the drivers


class NodeStage(Frozen):
    """The stage of one node, with a sentence where somebody may have to act."""

    node: str
    stage: UpgradeStage
    sentence: str = ""


class Close(Frozen):
    """Let a node take no pods."""

    node: str


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


UpgradeAct = Close | Open | Evict | EndDrivers


class UpgradePlan(Frozen):
    """What a look comes to: acts in their order, and the stage of each node, by name."""

    acts: tuple[UpgradeAct, ...] = ()
    stages: tuple[NodeStage, ...] = ()


class UpgradeState(Frozen):
    """How far the upgrade of all nodes is; `reason` is for programs, `message` a sentence."""

    current: bool
    reason: str
    message: str = ""
