"""What happens in a run, and in which order: a pure function of its seed.

A run is a row of steps: pods are made and deleted, faults begin and end between them. A fault that
lasts ends before the run does, and most of its time pods go on to be made. Nothing here knows how
a step is done (faults.py, load.py), so a seed means the same on every lab.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from kube_base.frozen import Frozen


class Way(Enum):
    """How a pod gets its cards."""

    SHARE = "share"
    CLAIM = "claim"


class Fault(Enum):
    """What goes wrong; the text is what runs.jsonl has of it."""

    AGENT_KILLED = "agent killed"
    AGENT_FROZEN = "agent frozen"
    AGENT_ROLLED_BACK = "agent rolled out and back"
    CONTROLLER_KILLED = "controllers killed"
    KUBELET_KILLED = "kubelet killed"
    CONTAINERD_KILLED = "containerd killed"
    ETCD_KILLED = "etcd killed"
    API_SERVER_KILLED = "API server killed"
    STORE_RESTORED = "etcd restored"
    NODE_OFF = "node off"
    NODE_CUT = "node cut from the API"
    DISK_FULL = "disk of the journals full"
    DISK_READ_ONLY = "disk of the journals read-only"
    LINK_DOWN = "link down"
    CARD_REMOVED = "card removed"
    CONFIG_GARBAGE = "configuration is garbage"
    DEFINITIONS_GONE = "definitions deleted"
    CLOCK_AHEAD = "clock ahead"
    CLOCK_BEHIND = "clock behind"


AT_ONCE = (
    Fault.AGENT_KILLED,
    Fault.CONTROLLER_KILLED,
    Fault.KUBELET_KILLED,
    Fault.CONTAINERD_KILLED,
    Fault.ETCD_KILLED,
    Fault.API_SERVER_KILLED,
)
"""Faults without an end: what was killed is started again by who keeps it."""
LASTING = tuple(fault for fault in Fault if fault not in AT_ONCE)
OF_THE_CLUSTER = frozenset(
    (
        Fault.AGENT_ROLLED_BACK,
        Fault.CONTROLLER_KILLED,
        Fault.ETCD_KILLED,
        Fault.API_SERVER_KILLED,
        Fault.STORE_RESTORED,
        Fault.CONFIG_GARBAGE,
        Fault.DEFINITIONS_GONE,
    )
)
"""Faults that have no node."""
OF_A_CARD = frozenset((Fault.LINK_DOWN, Fault.CARD_REMOVED))
# One of a group at a time: the second could not begin, or would end the first.
GROUPS = (
    frozenset((Fault.NODE_OFF, Fault.NODE_CUT, Fault.AGENT_FROZEN)),
    frozenset((Fault.DISK_FULL, Fault.DISK_READ_ONLY, Fault.NODE_OFF)),
    frozenset((Fault.STORE_RESTORED, Fault.DEFINITIONS_GONE, Fault.CONFIG_GARBAGE)),
    frozenset((Fault.STORE_RESTORED, Fault.AGENT_ROLLED_BACK)),
    OF_A_CARD,
    frozenset((Fault.CLOCK_AHEAD, Fault.CLOCK_BEHIND, Fault.NODE_OFF)),
)


class Target(Frozen):
    """What a fault hits: a node, a card of it, or all of the cluster where it has neither."""

    node: str = ""
    card: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.node, self.card)))


class Create(Frozen):
    """A pod is made, and not waited for."""

    name: str
    node: str
    way: Way
    interfaces: int = 1


class Delete(Frozen):
    """A pod is deleted, and not waited for; `force`: without asking its node."""

    name: str
    force: bool = False


class Pause(Frozen):
    """Nothing for a while, so that faults meet attachments at different points."""

    milliseconds: int


class Begin(Frozen):
    """A fault begins."""

    fault: Fault
    target: Target


class End(Frozen):
    """A fault that lasts ends."""

    fault: Fault
    target: Target


Step = Create | Delete | Pause | Begin | End


class Size(Frozen):
    """How much happens in a run."""

    pods: int = 8
    faults: int = 3
    longest: int = 4  # the steps of the load that a fault lasts


class Place(Frozen):
    """What a run may hit: nodes, and the cards of each; `groups`: which faults exclude others."""

    nodes: tuple[str, ...]
    cards: tuple[str, ...]
    groups: tuple[frozenset[Fault], ...] = GROUPS


def schedule(seed: int, place: Place, size: Size, faults: tuple[Fault, ...]) -> tuple[Step, ...]:
    """The steps of a run; `faults` are those that it may have."""
    chance = Random(seed)  # noqa: S311  what is drawn again from its seed has to be predictable
    load = _load(chance, place, size)
    steps: list[list[Step]] = [[step] for step in load]
    for begin, end, fault, target in _faults(chance, place, size, faults):
        steps[begin].append(Begin(fault, target))
        if end is not None:
            steps[end].append(End(fault, target))
    return tuple(step for several in steps for step in several)


def _load(chance: Random, place: Place, size: Size) -> list[Step]:
    """Pods come and go, with pauses; the last ones stay."""
    steps: list[Step] = []
    alive: list[str] = []
    for number in range(size.pods):
        made = Create(
            f"pod-{number}",
            chance.choice(place.nodes),
            chance.choice((Way.SHARE, Way.CLAIM)),
            chance.choice((1, 1, 2)),
        )
        steps.append(made)
        alive.append(made.name)
        if chance.random() < 0.5:
            steps.append(Pause(chance.randrange(3000)))
        if len(alive) > 2 and chance.random() < 0.5:
            gone = alive.pop(chance.randrange(len(alive)))
            steps.append(Delete(gone, chance.random() < 0.3))
    return steps


Span = tuple[int, int | None, Fault, Target]


def _faults(chance: Random, place: Place, size: Size, faults: tuple[Fault, ...]) -> list[Span]:
    """Which faults begin and end behind which steps of the load."""
    last = size.pods - 1  # a load has at least a step for each pod
    spans: list[Span] = []
    for _ in range(size.faults):
        fault = chance.choice(faults)
        node = "" if fault in OF_THE_CLUSTER else chance.choice(place.nodes)
        card = chance.choice(place.cards) if fault in OF_A_CARD else ""
        begin = chance.randrange(last)
        length = chance.randint(1, size.longest)
        end = min(begin + length, last) if fault in LASTING else None
        span = (begin, end, fault, Target(node, card))
        if not any(_exclude(span, other, place.groups) for other in spans):
            spans.append(span)
    return spans


def _exclude(new: Span, old: Span, groups: tuple[frozenset[Fault], ...]) -> bool:
    """Whether two faults cannot both be: they last at the same time and are of one group."""
    if new[1] is None or old[1] is None or new[0] > old[1] or old[0] > new[1]:
        return False
    return new[2] is old[2] or any({new[2], old[2]} <= group for group in groups)
