"""Nodes of cards and their pools, for what is offered to claims."""

from __future__ import annotations

from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.devices import DeviceAttribute, ResourceSlice, SlicePool, SliceSpec
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.pools import Mode, Pool, PoolSpec
from kube_rdma.pools.rules.pools import resolve, shares_of
from kube_rdma.pools.rules.selection import cards
from tests.kit.nodes import DOWN, device, function, hard_card, nodes, specs


def attributes(values):
    """Attributes of a device by name, each of the type of its value."""
    return {name: DeviceAttribute.of(value) for name, value in values.items()}


def slice_of(driver, *devices, name="s", node="node-1", generation=1, slices=1, **spec):
    """The slice of a node, whose name its pool has too."""
    where = SlicePool(node, generation, slices)
    spec = {"node_name": node, **spec}
    return ResourceSlice(name, SliceSpec(driver, where, devices, **spec))


def pool(*members, mode=Mode.SHARED_MULTI, resource="rdma/hca", **facts):
    """A pool of these cards."""
    spec = PoolSpec(resource, mode, "config.json:1", **facts)
    return Pool(spec, tuple(shares_of(spec, members)), members)


def fleet(count, *reasons):
    """So many cards; the first is as the reasons say."""
    made = [hard_card(0x10 + n, n) for n in range(count)]
    return tuple(replace(card, reasons=reasons) if card is made[0] else card for card in made)


def functions(count, bus=0x81):
    """The virtual functions of one card, each with an RDMA device; as many as are wished for."""
    above = PciAddress(f"0000:{bus:02x}:00.0")
    places = [PciAddress(f"0000:{bus:02x}:{n // 8 + 1:02x}.{n % 8}") for n in range(count)]
    positions = [PciPosition(pci, "pci0000:80", (pci,), 1, above) for pci in places]
    parts = [function(where, f"ens1f0v{n}", vf=n) for n, where in enumerate(positions)]
    return tuple(
        Card(CardId(one.position.pci), (device(n, one.position, f"ens1f0v{n}"),), one)
        for n, one in enumerate(parts)
    )


@st.composite
def pools(draw):
    """The pools of a node that is drawn; some cards are ill."""
    node, wishes = draw(nodes()), draw(specs())
    ill = draw(st.sets(st.sampled_from([card.id for card in node.cards]))) if node.cards else set()
    members = [
        replace(card, reasons=(DOWN,)) if card.id in ill else card
        for card in cards(node.survey, node.verdicts)
    ]
    made, _ = resolve(wishes, members, node.survey)
    return made
