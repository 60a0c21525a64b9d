"""A value of the installation as people read of it: its path, its sentence, what is by default."""

from __future__ import annotations

from typing import Any

from kube_base.frozen import Frozen

UNSAID: Any = object()
"""What stands where there is no default."""


class ChartValue(Frozen):
    """One value of the Helm chart and of `kube-rdma render`.

    `path` is ``agent.enabled``, or ``pools[].name`` in the entries of a list. `whole` is an object
    whose values follow. `default` is everybody's, and `others` have presets and distributions with
    another one, as ``preset vke``.
    """

    path: str
    sentence: str
    default: Any = UNSAID
    others: tuple[tuple[str, Any], ...] = ()
    required: bool = False
    whole: bool = False

    @property
    def in_list(self) -> bool:
        """Whether it is a value of a list's entries."""
        return "[]" in self.path
