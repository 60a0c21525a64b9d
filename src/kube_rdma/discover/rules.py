"""Groups nodes by hardware, proposes an installation, and compares nodes with an installation.

Reports come from agents, so only words of a known form get from them into proposed values and
NodePolicies. Nodes are sorted by name, so the order in which they are read changes nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_rdma.lib.phrases import listed
from kube_rdma.model import discover as model
from kube_rdma.model.card import CardId
from kube_rdma.model.device import LinkLayer, PortState
from kube_rdma.model.pools import HARDWARE
from kube_rdma.model.reports import NodeReport, ReportedCard
from kube_rdma.pools.rules.labels import FABRIC, LINK_LAYER, RATE

_DRIVER = re.compile(r"[A-Za-z0-9_-]{1,63}")
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LINKS = {link.value: link for link in LinkLayer}
_LINK_TYPES = {LinkLayer.ETHERNET: "ether", LinkLayer.INFINIBAND: "infiniband"}
_WORDS = {LinkLayer.ETHERNET: "RoCE", LinkLayer.INFINIBAND: "InfiniBand"}
_OF_DRIVERS = {"efa": "EFA", "cxgb4": "iWARP", "erdma": "iWARP"}  # the kernel calls them Ethernet
# Labels by which groups are told apart: a node keeps each of them when a card fails.
_LABELS = (HARDWARE, LINK_LAYER, RATE, FABRIC)
_FEWEST_RAILS = 4
_FASTEST = 1e5  # Gbit/s; what is more is no rate of a port
_MOST_ADDRESSES = 64  # of a selector
_MOST_RAILS = 8  # networks of the chart
_LONGEST = 48  # characters of a name, which is also a label's value

# Hardware: what a report says of a node's cards, without their state.


def hardware(node: model.SeenNode) -> model.Hardware:
    """Return the hardware of a node, as far as its report tells it."""
    return model.Hardware(tuple(map(_card, _whole(node.report))), node.gpus)


def _whole(report: NodeReport) -> list[ReportedCard]:
    """Return the physical cards of a report that are there, sorted by id."""
    every = {_id(card): card for card in (*report.rejected, *report.cards)}
    return [every[name] for name in sorted(every) if not (every[name].part_of or every[name].gone)]


def _id(card: ReportedCard) -> CardId:
    return CardId(re.sub("[^!-~]", "?", card.id) or "?")


def _card(card: ReportedCard) -> model.HardwareCard:
    active = [port for port in card.ports if port.state == PortState.ACTIVE]
    fastest = max(active or card.ports, key=lambda port: port.gbps or 0.0, default=None)
    rate = fastest.gbps if fastest and active else None
    return model.HardwareCard(
        _id(card),
        round(rate, 1) if rate and rate < _FASTEST else None,
        _LINKS.get(fastest.link_layer if fastest else "", LinkLayer.UNKNOWN),
        card.driver if _DRIVER.fullmatch(card.driver) else "",
        card.numa_node,
    )


def _kind(card: model.HardwareCard) -> str:
    """Return what people call a card: ``400G RoCE``."""
    word = _OF_DRIVERS.get(card.driver) or _WORDS.get(card.link, "RDMA")
    return word if card.gbps is None else f"{card.gbps:g}G {word}"


def _described(card: model.HardwareCard) -> str:
    numa = "" if card.numa_node is None else f"NUMA {card.numa_node}"
    return ", ".join(filter(None, (_kind(card), card.driver, numa)))


def _title(seen: model.Hardware) -> str:
    """Return what people call nodes of this hardware: ``8 × 400G RoCE, 8 GPUs``."""
    linked = [card for card in seen.cards if card.gbps]
    fastest = sorted(linked, key=lambda card: (-(card.gbps or 0.0), _kind(card)))
    kinds = [f"{n} × {kind}" for kind, n in Counter(map(_kind, fastest)).items()]
    idle = len(seen.cards) - len(linked)
    cards = [" + ".join(kinds)] if kinds else []
    more = [f"{idle} without link"] if idle else []
    gpus = [f"{seen.gpus} GPU{'s' * (seen.gpus > 1)}"] if seen.gpus else []
    return ", ".join((*cards, *more, *gpus))


# Groups: nodes with the same cards; a node with nearly the same cards joins a larger group.


def _groups(nodes: Sequence[model.SeenNode]) -> Mapping[model.Hardware, list[model.SeenNode]]:
    """Return the nodes of each group by the hardware that most of them have, the largest first.

    Where two kinds of hardware are equally common, the one with more known rates counts.
    """
    variants: dict[model.Hardware, list[model.SeenNode]] = {}
    for node in sorted(nodes, key=lambda one: natural(one.name)):
        variants.setdefault(hardware(node), []).append(node)

    def place(seen: model.Hardware) -> tuple[Any, ...]:
        told = sum(card.gbps is not None for card in seen.cards)
        return -len(variants[seen]), -told, natural(variants[seen][0].name)

    groups: dict[model.Hardware, list[model.SeenNode]] = {}
    for seen in sorted(variants, key=place):
        group = next((most for most in groups if _alike(most, seen)), seen)
        groups.setdefault(group, []).extend(variants[seen])
    return groups


def _alike(most: model.Hardware, seen: model.Hardware) -> bool:
    """Decide whether hardware has half of most nodes' cards or more, and GPUs just if they do."""
    if bool(most.gpus) is not bool(seen.gpus):
        return False
    return 2 * _common(most, seen) >= len(most.cards)


def _common(most: model.Hardware, seen: model.Hardware) -> int:
    cards = {card.id: card for card in seen.cards}
    return sum(card.agrees(cards.get(card.id)) for card in most.cards)


def deviations(expected: model.Hardware, seen: model.Hardware) -> Iterator[str]:
    """Yield a sentence for each card that is not as expected, and for another number of GPUs."""
    before = {card.id: card for card in expected.cards}
    now = {card.id: card for card in seen.cards}
    gone = [card for card in expected.cards if card.id not in now]
    new = [card for card in seen.cards if card.id not in before]
    for old, card in zip_longest(gone, new):
        if old and card:
            yield f"{card.id} has a card ({_described(card)}), and {old.id} has none"
        elif card:
            yield f"{card.id} has a card more ({_described(card)})"
        elif old:
            yield f"{old.id} has no card ({_described(old)})"
    for name in before.keys() & now.keys():
        if not before[name].agrees(now[name]):
            yield f"{name} is {_described(now[name])}, not {_described(before[name])}"
    if expected.gpus != seen.gpus:
        yield f"it has {seen.gpus} GPUs, not {expected.gpus}"


def _gathered(found: Iterable[tuple[str, str]]) -> tuple[model.Deviation, ...]:
    """Return pairs of sentence and node, as one Deviation for each sentence."""
    nodes: dict[str, list[str]] = {}
    for sentence, node in found:
        nodes.setdefault(sentence, []).append(node)
    return tuple(model.Deviation(one, tuple(nodes[one])) for one in sorted(nodes))


# The proposal: for each group a pool, for all an installation.


def proposal(nodes: Sequence[model.SeenNode], unreported: Iterable[str] = ()) -> model.Proposal:
    """Return the installation that fits these nodes; `unreported` are nodes without a report."""
    carrying = [node for node in nodes if _whole(node.report)]
    groups = _merged(_group(most, members) for most, members in _groups(carrying).items())
    names: Counter[str] = Counter()
    for at, group in enumerate(groups):
        names[group.name] += 1
        if (number := names[group.name]) > 1:
            title = f"{group.title} ({number})"
            groups[at] = replace(group, name=f"{group.name}-{number}", title=title)
    if len(groups) > 1:
        groups = [_selected(group, carrying) for group in groups]
    pools = [group.pool for group in groups if group.pool]
    nics = [group.offered for group in groups if group.pool and group.pool["resource"] == _NIC]
    return model.Proposal(
        _values(pools, networks=bool(nics)),
        tuple(groups),
        min(max(nics, default=0), _MOST_RAILS),
        tuple(sorted((n.name for n in nodes if not _whole(n.report)), key=natural)),
        tuple(sorted(unreported, key=natural)),
    )


def _merged(groups: Iterable[model.HardwareGroup]) -> list[model.HardwareGroup]:
    """Return the groups; those with equal titles and pools, but different layouts, become one."""
    merged: dict[tuple[str, str], model.HardwareGroup] = {}
    for group in groups:
        key = (group.title, json.dumps(group.pool))
        first = merged.setdefault(key, group)
        if first is not group:
            merged[key] = replace(
                first,
                nodes=tuple(sorted((*first.nodes, *group.nodes), key=natural)),
                layouts=(*first.layouts, *group.layouts),
                left_out=tuple(dict.fromkeys((*first.left_out, *group.left_out))),
                deviations=(*first.deviations, *group.deviations),
            )
    return list(merged.values())


_NIC = "rdma/nic"
_EFA = {"resource": "vpc.amazonaws.com/efa", "mode": "exclusive", "attach": "none"} | {
    "selectors": [{"drivers": ["efa"]}]  # as preset efa
}
_PARTS = {"resource": "rdma/vf", "mode": "sriov", "attach": "auto", "selectors": [{"rdma": True}]}


def _values(pools: Sequence[Mapping[str, Any]], *, networks: bool) -> Mapping[str, Any]:
    """Return the values of the preset that fits, whose agents follow NodePolicies.

    Preset efa needs no NodePolicies: it has its own pool.
    """
    if pools and all(pool == _EFA for pool in pools):
        return {"preset": "efa"}
    preset = "rails" if any(pool["mode"] == "shared" for pool in pools) else "default"
    return {"preset": preset, "agent": {"config": ""}, "networks": {"install": networks}}


def _group(most: model.Hardware, members: Sequence[model.SeenNode]) -> model.HardwareGroup:
    cards: dict[CardId, list[tuple[str, ReportedCard]]] = {card.id: [] for card in most.cards}
    for node in members:
        for card in _whole(node.report):
            if _id(card) in cards:
                cards[_id(card)].append((node.name, card))
    why = {name: _unfit(seen) for name, seen in cards.items()}
    fit = [card for card in most.cards if not why[card.id]]
    if not fit:  # a shared mode leaves the node what it uses itself
        fit = [card for card in most.cards if not _ill(cards[card.id])]
    rate = max((card.gbps or 0.0 for card in fit), default=0.0)
    offered = [card for card in fit if card.gbps in (None, rate)]
    slower = f"it is slower than {_title(model.Hardware(tuple(offered)))}"
    others = [card for card in most.cards if why[card.id] or card not in offered]
    parts = 0 if offered else sum(map(_is_free_part, members[0].report.cards))
    pool = _pool(most, offered, others) if offered else _PARTS if parts else None
    title = _title(most)
    return model.HardwareGroup(
        re.sub("[^a-z0-9.]+", "-", title.replace(" × ", "x").lower())[:_LONGEST].strip("-."),
        title,
        tuple(sorted((node.name for node in members), key=natural)),
        (most,),
        pool,
        len(offered) + parts,
        tuple(
            model.LeftOutCard(f"{cards[c.id][0][1].name} ({c.id})", why[c.id] or slower)
            for c in others
            if c not in offered
        ),
        _gathered((one, node.name) for node in members for one in deviations(most, hardware(node))),
    )


def _is_free_part(card: ReportedCard) -> bool:
    """Decide whether a card is a virtual function that can be given to pods."""
    return bool(card.part_of and not card.reasons and _PCI.fullmatch(card.id))


def _ill(seen: Sequence[tuple[str, ReportedCard]]) -> str:
    """Return why a card cannot be given to pods on any node that has it; "" if it can on one."""
    return seen[0][1].reasons[0] if all(card.reasons for _, card in seen) else ""


def _unfit(seen: Sequence[tuple[str, ReportedCard]]) -> str:
    """Return why a card is not for pods: ill on all nodes, or used by a node itself; else ""."""
    users = [(node, card.carries[0]) for node, card in seen if card.carries]
    return _ill(seen) or (f"{users[0][1]}, on {listed([n for n, _ in users])}" if users else "")


def _pool(
    most: model.Hardware,
    offered: Sequence[model.HardwareCard],
    others: Sequence[model.HardwareCard],
) -> Mapping[str, Any]:
    """Return the pool of these cards.

    Unless the driver is efa, its mode is `shared` for four or more cards of one kind and as many
    GPUs or more, else `shared-multi`.
    """
    if {card.driver for card in offered} == {"efa"}:
        return _EFA
    alike = len({(card.driver, card.link) for card in offered}) == 1
    rails = alike and _FEWEST_RAILS <= len(offered) <= most.gpus
    pool = {"resource": _NIC, "mode": "shared" if rails else "shared-multi"}
    return {**pool, "selectors": [_choice(offered, others)]} if others else pool


def _choice(
    offered: Sequence[model.HardwareCard], others: Sequence[model.HardwareCard]
) -> Mapping[str, Any]:
    """Return the selector that tells cards from others by link type, driver or PCI addresses.

    Where none of these can, it selects all RDMA devices.
    """
    fields: Mapping[str, Callable[[model.HardwareCard], str]] = {
        "linkTypes": lambda card: _LINK_TYPES.get(card.link, ""),
        "drivers": lambda card: card.driver,
    }
    for field, value in fields.items():
        chosen, avoided = set(map(value, offered)), set(map(value, others))
        if "" not in chosen | avoided and not chosen & avoided:
            return {field: sorted(chosen)}
    addresses = [card.id for card in offered if _PCI.fullmatch(card.id)][:_MOST_ADDRESSES]
    return {"pciAddresses": addresses} if addresses else {"rdma": True}


def _selected(group: model.HardwareGroup, nodes: Sequence[model.SeenNode]) -> model.HardwareGroup:
    """Return the group with a selector: labels that all its nodes have, and no other node has all.

    Else its selector is a label that an administrator has to give to the nodes.
    """
    names = frozenset(group.nodes)
    own = [node.labels for node in nodes if node.name in names]
    others = [node.labels for node in nodes if node.name not in names]
    common = {
        key: own[0][key]
        for key in _LABELS
        if own[0].get(key) and all(labels.get(key) == own[0][key] for labels in own)
    }
    if common and not any(common.items() <= labels.items() for labels in others):
        return replace(group, selector=common)
    return replace(group, selector={HARDWARE: group.name}, is_labelled=False)


# An installation, and what is different from it.


def differences(
    nodes: Sequence[model.SeenNode], proposed: model.Proposal, installed: model.Installed
) -> tuple[model.Deviation, ...]:
    """Return what differs between nodes and an installation, one Deviation for each difference."""
    groups = {name: group for group in proposed.groups for name in group.nodes}
    expected = {layout: policy for policy in installed.policies for layout in policy.layouts}
    found: list[tuple[str, str]] = []
    used = set()
    for node in sorted(nodes, key=lambda one: natural(one.name)):
        if node.name not in groups or proposed.values["preset"] == "efa":
            continue
        seen, group = hardware(node), groups[node.name]
        layout = max(expected, key=partial(_nearness, seen), default=seen)
        common, *less = _nearness(seen, layout)
        if not (expected and (common or (group.pool and any(less)))):
            if group.pool:
                found.append((f"no NodePolicy is for {group.title}", node.name))
            continue
        policy = expected[layout]
        used.add(policy.name)
        found += ((one, node.name) for one in deviations(layout, seen))
        if node.in_cluster and not policy.selector.items() <= node.labels.items():
            labels = " ".join(f"{key}={value}" for key, value in policy.selector.items())
            found.append((f"NodePolicy {policy.name} is for nodes with {labels}", node.name))
    unused = [policy.name for policy in installed.policies if policy.name not in used]
    changes = [f"NodePolicy {name} is for no node" for name in unused]
    if installed.values is not None and not (found or unused):  # what deviates changes them too
        changes += _changes(proposed.values, installed.values)
    return (*(model.Deviation(one, ()) for one in changes), *_gathered(found))


def _nearness(seen: model.Hardware, layout: model.Hardware) -> tuple[int, int, bool]:
    """Return how near hardware is to a layout: equal cards and addresses, and if titles agree."""
    names = {card.id for card in seen.cards}
    places = sum(card.id in names for card in layout.cards)
    return _common(layout, seen), places, _title(layout) == _title(seen)


def _changes(
    proposed: Mapping[str, Any], values: Mapping[str, Any], path: str = ""
) -> Iterator[str]:
    """Yield a sentence for each value of an installation that differs from the proposed one."""
    for key, wanted in proposed.items():
        if isinstance(wanted, Mapping):
            yield from _changes(wanted, values[key], f"{path}{key}.")
        elif values[key] != wanted:
            yield f"value {path}{key} is {json.dumps(values[key])}, not {json.dumps(wanted)}"
