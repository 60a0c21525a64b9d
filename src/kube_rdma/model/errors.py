"""Defines the errors of cards, below those of kube_base/errors.py.

Unavailable
├── HardwareGone  the card was taken out of the machine
└── Outdated      what a pod was given is another's by now; a new pod gets the right thing
"""

from __future__ import annotations

from kube_base.errors import Unavailable


class HardwareGone(Unavailable):
    """The error for hardware that was found neither on the node nor in pods.

    It may come back, unless it is gone `for_good`.
    """

    def __init__(self, sentence: str, *, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(sentence)


class Outdated(Unavailable):
    """The error for a device that a container got at its start and that is another one's by now.

    Trying again seldom helps: only a new pod is given what is right.
    """
