"""Defines the errors of cards, below those of kube_base/errors.py.

Unavailable
├── HardwareGone  a card or its link was not found
└── Outdated      a container was given device nodes that its device no longer has
"""

from __future__ import annotations

from kube_base.errors import Unavailable


class HardwareGone(Unavailable):
    """The error for hardware that was not found.

    The hardware may come back, unless it is gone `for_good`.
    """

    def __init__(self, sentence: str, *, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(sentence)


class Outdated(Unavailable):
    """The error for device nodes that a container was given and its device no longer has.

    Trying again seldom helps: a new pod is given the right ones.
    """
