"""What a check of the doctor is: a code, the parts that it needs, and a look at them.

First of rules/doctor: cards, kubelet, network and pod have the checks, diagnose runs them. A check
whose parts were not all seen is not run, so what could not be read is never taken for missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kube_rdma.model.frozen import Frozen
from kube_rdma.model.observation import Ailment, Gravity, Observation

Look = Callable[[Observation], Iterator["Symptom"]]


class Symptom(Frozen):
    """An Ailment without the code of its check."""

    about: str
    evidence: str
    cause: str
    fix: str
    gravity: Gravity = Gravity.ERROR


class Check(Frozen):
    """One check. `needs` are the parts of the Observation that it reads, ``pod.links`` also.

    `explains` are codes of Ailments that follow from one of this check about the same thing,
    `spreads` of those that follow whatever they are about. A code is never given to another check.
    """

    code: str
    title: str
    needs: tuple[str, ...]
    look: Look
    explains: tuple[str, ...] = ()
    spreads: tuple[str, ...] = ()

    def ailments(self, seen: Observation) -> Iterator[Ailment]:
        """What it finds; all that it needs was seen."""
        for symptom in self.look(seen):
            yield Ailment(
                self.code,
                symptom.gravity,
                symptom.about,
                symptom.evidence,
                symptom.cause,
                symptom.fix,
            )

    def missing(self, seen: Observation) -> tuple[str, ...]:
        """The parts that it needs and that were not seen."""
        return tuple(part for part in self.needs if part_of(seen, part) is None)


def part_of(seen: Observation, part: str) -> object:
    """A part by its name; None where it, or what it is a part of, was not seen."""
    value: object = seen
    for name in part.split("."):
        value = None if value is None else getattr(value, name)
    return value
