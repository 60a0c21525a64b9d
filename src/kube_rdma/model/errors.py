"""The errors of kube-rdma, sorted by who has to act.

    KubeRdmaError
    ├── Refused       the asker must change something; carries the place and the remedy
    ├── Unavailable   a neighbour is down or not ready; trying again can help
    └── Broken        the world disagrees with what we recorded; stop and tell a person

Adapters and rules raise them; each program maps them once to its own wire (exit code, gRPC
status, CNI code). A message is one sentence a person can act on, never a traceback.
"""

from __future__ import annotations


class KubeRdmaError(Exception):
    """Base of every error that kube-rdma raises on purpose; ``str()`` is the sentence to show."""


class Refused(KubeRdmaError):
    """The asker must change something.

    `problem` says what is wrong, `remedy` what to do about it, `where` the place it was found
    (file with line and field, option, entry), if there is one.
    """

    def __init__(self, problem: str, *, remedy: str, where: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        self.where = where
        place = f"{where}: " if where else ""
        super().__init__(f"{place}{problem}. {remedy}.")


class Unavailable(KubeRdmaError):
    """A neighbour (kernel, kubelet, API server, tool) does not answer now; retrying can help."""


class Broken(KubeRdmaError):
    """What is there contradicts what was recorded; going on could destroy something."""
