"""What the copies of a program write into their Lease (coordination.k8s.io), as client-go does.

Of the model: the rules (rules/election.py) judge it, adapters/cluster/election.py writes it.
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class ElectionRecord(Frozen):
    """Who leads. `holder` is empty when nobody does; times are RFC 3339 of the writer's clock.

    `renewed` is only compared with itself: clocks of two nodes may be minutes apart.
    """

    holder: str
    duration: float  # seconds after its last change in which nobody else may take it
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0  # how often the holder has changed


class ElectionTiming(Frozen):
    """Seconds. A leader that could not renew for `deadline` stops before `duration` is over.

    What is left between them is for its work to end. The defaults are those of client-go.
    """

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0
