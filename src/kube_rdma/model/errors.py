"""The errors of kube-rdma, sorted by who has to act.

    KubeRdmaError
    ├── Refused       the asker must change something; carries the place and the remedy
    ├── Unavailable   a neighbour is down or not ready; trying again can help
    │   ├── Gone      what it is about was taken out of the machine
    │   └── Outdated  what a pod was given is another's by now; a new pod gets the right thing
    └── Broken        the world disagrees with the record; stop and tell a person

Adapters and rules raise them; each program maps them once to its own wire (exit code, gRPC
status, CNI code). A message is one sentence a person can act on, never a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MOST_FAULTS = 20
"""So many faults of one document are told; the others are counted."""


class KubeRdmaError(Exception):
    """Base of every error that kube-rdma raises on purpose; ``str()`` is the sentence to show."""


class Refused(KubeRdmaError):
    """The asker must change something.

    `problem` says what is wrong, `remedy` what to do about it, `where` the place it was found
    (file with line and field, option, entry), if there is one. A document may have several faults:
    the first one is raised and carries the others in `more`; ``str()`` then has a line for each.
    """

    def __init__(
        self, problem: str, *, remedy: str, where: str = "", more: tuple[Refused, ...] = ()
    ) -> None:
        self.problem = problem
        self.remedy = remedy
        self.where = where
        self.more = more
        place = f"{where}: " if where else ""
        super().__init__("\n".join([f"{place}{problem}. {remedy}.", *map(str, more)]))

    @classmethod
    def all(cls, faults: Sequence[Refused]) -> Refused:
        """One error out of one or more faults, in their order: the first MOST_FAULTS, and a count.

        Whoever writes a document decides how many it has, and each becomes a line of logs, Events
        and answers.
        """
        first, *more = (single for fault in faults for single in _alone(fault))
        if len(more) > MOST_FAULTS:  # one beyond them may be the count of somebody below
            hidden = len(more) - MOST_FAULTS + 1
            count = Refused(f"there are {hidden} more faults", remedy="Mend these first")
            more[MOST_FAULTS - 1 :] = [count]
        return cls(first.problem, remedy=first.remedy, where=first.where, more=tuple(more))


class Unavailable(KubeRdmaError):
    """A neighbour (kernel, kubelet, API server, tool) does not answer now; retrying can help."""


class HardwareGone(Unavailable):
    """A piece of hardware is nowhere; it may come back, unless it is gone `for_good`."""

    def __init__(self, sentence: str, *, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(sentence)


class Outdated(Unavailable):
    """What a pod's container was given at its start is another device's by now.

    The caller tries again in vain, as a rule: only a new pod is given what is right.
    """


class Broken(KubeRdmaError):
    """What is there contradicts what was recorded; going on could destroy something."""


def _alone(fault: Refused) -> Iterator[Refused]:
    """A fault and those that it carries, each without others."""
    yield Refused(fault.problem, remedy=fault.remedy, where=fault.where) if fault.more else fault
    for carried in fault.more:
        yield from _alone(carried)
