"""The table of modes: what each gives to a container, how many shares it makes, what they mean.

The other rules read it and hold no knowledge of a mode themselves, so a further mode is a further
row. Tables of docs/config.md are written from it. Mode `hca` is that of the SCC document and of the
shared device plugin. Its shares stand for the whole pool unless `bind` says otherwise. Modes
`exclusive`, `shared` and `shared-multi` are those of the VKE document, `sriov` is the SR-IOV
network device plugin's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from kube_base.frozen import Frozen, replace
from kube_rdma.model.card import Card
from kube_rdma.model.pools import Attach, Bind, Mode, Pool, PoolSpec, Preference


class Takes(StrEnum):
    """The cards that a mode takes if no selector restricts them."""

    RDMA = "every card with an RDMA device"
    PHYSICAL = "every physical card with an RDMA device"
    MOVABLE = "every physical card with an RDMA device that the node itself can do without"
    FUNCTION = (
        "virtual functions, and physical functions that have none, if the node can do without them"
    )


class ModeRow(Frozen):
    """The properties of one mode, with defaults for properties that a row leaves out."""

    takes: Takes
    prefer: Preference
    moves: str  # what goes into the pod besides device nodes
    isolation: str  # what the kernel really keeps apart
    meaning: str
    bind: Bind = Bind.PER_CARD
    shares: int = 1  # of the pool when bind is POOL, of each card when it is PER_CARD
    attach: Attach = Attach.AUTO
    networked: Attach = Attach.AUTO  # on a node whose pods get networks from kube-rdma
    owns: bool = False  # a share of it is the whole card, which belongs to no second pool
    numbered: bool = True  # share ids are <card>-<slot>; else the card's own identity
    most: int | None = 1  # shares that a document may ask for, None for no limit


MODES: Mapping[Mode, ModeRow] = {
    Mode.HCA: ModeRow(
        takes=Takes.RDMA,
        bind=Bind.POOL,
        shares=1000,
        attach=Attach.NONE,
        prefer=Preference.PACK,
        most=None,
        moves="nothing but the interfaces of the pod's networks",
        isolation=(
            "none: every pod opens every card; with networks of kube-rdma only its networks' cards"
        ),
        meaning="every RDMA card of the pool, shared by all containers that hold a share",
    ),
    Mode.EXCLUSIVE: ModeRow(
        takes=Takes.MOVABLE,
        prefer=Preference.NUMA,
        owns=True,
        moves="the card's own interface; in RDMA namespace mode `exclusive` also its RDMA device",
        isolation="the card belongs to one pod alone",
        meaning="the physical card itself, for one pod at a time",
    ),
    Mode.SHARED: ModeRow(
        takes=Takes.PHYSICAL,
        prefer=Preference.NUMA,
        moves="one virtual interface on the card",
        isolation="own interface and address",
        meaning="the one virtual interface of a physical card",
    ),
    Mode.SHARED_MULTI: ModeRow(
        takes=Takes.PHYSICAL,
        shares=16,
        prefer=Preference.LEAST_LOADED,
        most=1000,
        moves="one of many virtual interfaces on the card",
        isolation="own interface and address",
        meaning="one of many virtual interfaces of a physical card",
    ),
    Mode.SRIOV: ModeRow(
        takes=Takes.FUNCTION,
        attach=Attach.NONE,
        networked=Attach.NONE,
        prefer=Preference.SPREAD,
        owns=True,
        numbered=False,
        moves=(
            "the function's interface, by a network that the pod asks for; in RDMA namespace mode "
            "`exclusive` also its RDMA device"
        ),
        isolation="one pod has the function; the card isolates its functions from each other",
        meaning="a virtual function of a card, for one pod at a time",
    ),
}


def terms(spec: PoolSpec) -> ModeRow:
    """Return the properties of the spec's mode, with the fields that `spec` overrides."""
    row = MODES[spec.mode]
    return replace(
        row,
        shares=row.shares if spec.shares is None else spec.shares,
        bind=spec.bind or row.bind,
        attach=spec.attach or row.attach,
        prefer=spec.prefer or row.prefer,
    )


def pooled(pools: Iterable[Pool], *, owns: bool) -> tuple[tuple[Card, str], ...]:
    """Return the cards of pools whose mode owns cards or not, as `owns` says, with the resource."""
    mine = (pool for pool in pools if terms(pool.spec).owns is owns)
    return tuple((card, pool.spec.resource) for pool in mine for card in pool.cards)


def with_networks(spec: PoolSpec) -> PoolSpec:
    """Return the spec for a node with pod networks, whose runtime reads CDI files.

    An `attach` that is left out becomes the mode's default for such nodes.
    """
    return spec if spec.attach else replace(spec, attach=MODES[spec.mode].networked)
