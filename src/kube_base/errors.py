"""Errors sorted by who has to act.

    KubeError
    ├── Refused       the asker must change something; carries the place and the remedy
    ├── Unavailable   another program is down or not ready; trying again can help
    └── Broken        the world disagrees with the record; stop and tell a person

Each program maps them once to its own wire (exit code, gRPC status, CNI code). A message is
sentences for a person, never a traceback. A package adds classes below these where its callers act
on more (kube_client/errors.py, kube_rdma/model/errors.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kube_base.plain_text import ended

MOST_FAULTS = 20
"""The number of faults of one document that are shown; the others are counted."""


class KubeError(Exception):
    """The base of Refused, Unavailable and Broken; ``str()`` is the text to show."""


class Refused(KubeError):
    """The error for a request that its author must change.

    `problem` says what is wrong, and `remedy` what to do about it. `where` is the place of the
    fault, such as a file with line and field; it may be empty. A document may have several faults:
    the first one is raised and carries the others in `more`. ``str()`` then has a line for each.
    """

    def __init__(
        self, problem: str, *, remedy: str, where: str = "", more: tuple[Refused, ...] = ()
    ) -> None:
        self.problem = problem
        self.remedy = remedy
        self.where = where
        self.more = more
        place = f"{where}: " if where else ""
        super().__init__("\n".join([f"{place}{ended(problem)} {ended(remedy)}", *map(str, more)]))

    @classmethod
    def all(cls, faults: Sequence[Refused]) -> Refused:
        """Return one error with the first MOST_FAULTS faults, and the count of further ones.

        A single further fault is shown itself. Whoever writes a document decides how many faults it
        has, and each becomes a line of logs, Events and answers.
        """
        first, *more = (single for fault in faults for single in _alone(fault))
        if len(more) > MOST_FAULTS:  # one beyond them may be the count of an inner error
            hidden = len(more) - MOST_FAULTS + 1
            count = Refused(f"there are {hidden} more faults", remedy="Mend these first")
            more[MOST_FAULTS - 1 :] = [count]
        return cls(first.problem, remedy=first.remedy, where=first.where, more=tuple(more))


def refuse_all(faults: Iterable[Refused]) -> None:
    """Raise all faults as one Refused, as Refused.all makes it; return if there is none."""
    if listed := tuple(faults):
        raise Refused.all(listed)


class Unavailable(KubeError):
    """The error for a program (kubelet, API server, tool) that does not answer now.

    A retry may help.
    """


class Broken(KubeError):
    """The error for a state that contradicts the records; going on could destroy something."""


def _alone(fault: Refused) -> Iterator[Refused]:
    """Yield a Refused and each fault that it carries in `more`, every one with an empty `more`."""
    yield Refused(fault.problem, remedy=fault.remedy, where=fault.where) if fault.more else fault
    for carried in fault.more:
        yield from _alone(carried)
