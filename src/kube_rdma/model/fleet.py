"""What `kube-rdma doctor` comes to for several nodes at once, each asked through its agent.

doctor/agents asks, doctor/rules/fleet brings the Findings of all nodes together,
doctor/views/fleet shows them on one page.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.doctor import Diagnosis, Observation
from kube_rdma.model.finding import Finding, Severity


class AgentPod(Frozen):
    """The pod of an agent, and its container; `why` is what it waits for if not ready.

    `words` are the command and arguments of the container, without those of its image.
    """

    namespace: str
    name: str
    node: str
    container: str
    ready: bool = True
    why: str = ""
    words: tuple[str, ...] = ()


class NodeAnswer(Frozen):
    """What the agent's container of a node answered; `seen` is None where it did not, for `why`."""

    node: str
    seen: Observation | None = None
    why: str = ""


class NodeDiagnosis(Frozen):
    """A node with what is wrong with it; without a diagnosis it was not seen, for `why`."""

    node: str
    diagnosis: Diagnosis | None = None
    why: str = ""

    @property
    def is_dark(self) -> bool:
        """Whether too little was seen of it to call it well."""
        return self.diagnosis is None or self.diagnosis.is_blind


class FleetPlace(Frozen):
    """Where a Finding is: a node, and the Finding as that node has it."""

    node: str
    finding: Finding


class FleetFinding(Frozen):
    """The same Finding on one or more nodes; the evidence may differ from node to node.

    `follows` is the code of its root, "" where it is a root on any node.
    """

    code: str
    severity: Severity
    cause: str
    places: tuple[FleetPlace, ...]
    follows: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have it, each once."""
        return tuple(dict.fromkeys(place.node for place in self.places))


class FleetDiagnosis(Frozen):
    """All nodes, and what they have in common; the worst and most frequent Finding first."""

    nodes: tuple[NodeDiagnosis, ...]
    findings: tuple[FleetFinding, ...] = ()

    @property
    def ill(self) -> bool:
        """Whether RDMA does not work on a node."""
        return any(one.diagnosis is not None and one.diagnosis.ill for one in self.nodes)

    @property
    def is_blind(self) -> bool:
        """Whether of any node too little was seen; also where there is no node at all."""
        return not self.nodes or any(one.is_dark for one in self.nodes)
