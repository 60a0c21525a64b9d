"""The hardware self-test as one paragraph for a bug report: what was tried, and what came of it.

`command` prints it last. Everything that a maintainer asks first stands in it: versions, the cards
with driver and firmware, interfaces stacked on them, how their virtual functions are set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kube_rdma.attach.views import describe
from kube_rdma.lib.page import Page, Sentence
from kube_rdma.model.card import Card
from kube_rdma.model.pools import FunctionSettings
from kube_rdma_selftest.trial import (
    SelftestScene,
    SelftestSystem,
    TrialResult,
    TrialStage,
    UntriedCard,
)

_WHEN = {
    TrialStage.ATTACH: "when attached",
    TrialStage.REPEAT: "when attached again",
    TrialStage.UNDO: "when taken back",
    TrialStage.END: "after the end of its namespace",
}

Outcome = TrialResult | UntriedCard


def report(system: SelftestSystem, scene: SelftestScene, outcomes: Sequence[Outcome]) -> Page:
    """Return the paragraph for a bug report; `scene` is the node before the first trial."""
    head = (
        f"For a bug report: kube-rdma {system.version} on Linux {system.kernel} "
        f"({system.machine}), RDMA namespace mode {scene.network.namespace_mode}."
    )
    sentences = [head]
    for card, of_card in groupby(outcomes, key=_card):
        came = "; ".join(_came(outcome) for outcome in of_card)
        sentences.append(f"{_described(card, scene)}: {came}.")
    return ((Sentence(" ".join(sentences)),),)


def _card(outcome: Outcome) -> Card:
    return outcome.card if isinstance(outcome, UntriedCard) else outcome.trial.card


def _interfaces(card: Card) -> tuple[str, ...]:
    return tuple(netdev.name for netdev in card.function.netdevs) if card.function else ()


def _described(card: Card, scene: SelftestScene) -> str:
    """Return a card's name and, in brackets, its other names and other facts of it."""
    facts = [*_interfaces(card), str(card.id)]
    altnames = dict(scene.altnames)
    facts += [f"altname {other}" for name in _interfaces(card) for other in altnames.get(name, ())]
    if function := card.function:
        facts += [function.driver or "no driver", f"{function.vendor:04x}:{function.device:04x}"]
    facts += [f"firmware {device.firmware}" for device in card.devices if device.firmware]
    facts += dict.fromkeys(
        f"in {port.bond}" for device in card.devices for port in device.ports if port.bond
    )
    above = dict(scene.above)
    facts += [f"below {' and '.join(above[name])}" for name in _interfaces(card) if above.get(name)]
    facts += _functions(card, scene)
    return f"{card.name} ({', '.join(one for one in dict.fromkeys(facts) if one != card.name)})"


def _functions(card: Card, scene: SelftestScene) -> Iterator[str]:
    """Yield the settings of the card's virtual functions, or of the card if it is one."""
    places = {link.virtual: link.pci for link in scene.network.links if link.virtual}
    for place, settings in scene.functions:
        if card.pci in (place.pci, places.get(place)):
            text = _settings(settings)
            yield f"virtual function {place.number} of {place.physical.name} with {text}"


def _settings(settings: FunctionSettings) -> str:
    values = ((name, getattr(settings, name)) for name in settings.__struct_fields__)
    texts = (f"{name.replace('_', ' ')} {value}" for name, value in values if value is not None)
    return " ".join(texts) or "nothing set"


def _came(outcome: Outcome) -> str:
    if isinstance(outcome, UntriedCard):
        kind = f"{outcome.kind} " if outcome.kind else ""
        return f"{kind}not tried, for {outcome.reason.rstrip('.')}"
    kind = outcome.trial.kind
    if outcome.stopped:
        return f"{kind} stopped"
    if not outcome.troubles:
        return f"{kind} passed"
    wrong = "; ".join(
        f"{_WHEN[trouble.stage]}: "
        + (f"{describe(trouble.act)}: " if trouble.act else "")
        + trouble.message.rstrip(".")
        for trouble in outcome.troubles
    )
    return f"{kind} failed ({wrong})"
