"""Shows the pools of a configuration, and what they are on a node: `kube-rdma config check`.

The specs come with all defaults filled in; the node's pools and cards come from pools/rules/pools
and pools/rules/selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kube_base.frozen import Frozen
from kube_base.plain_text import ended
from kube_rdma.lib.json_values import json_list, json_object
from kube_rdma.lib.page import Block, Line, Page, PageRow, PageState, PageTable, Part, Sentence
from kube_rdma.model import pools as model
from kube_rdma.model.card import Card, is_vfio
from kube_rdma.model.settings import FabricProfile

_NONE = "-"
_SPEC = ("POOL", "MODE", "SHARES", "ATTACH", "PREFER")
_SPEC_RIGHT = (2,)
_FUNCTIONS = ("FUNCTIONS", "DRIVERS", "FORCED", "OF")
_FUNCTIONS_RIGHT = (0,)
_CARD = ("POOL", "CARD", "FUNCTION", "NUMA", "SHARES", "USABLE")
_CARD_RIGHT = (3, 4)
_USABLE = (("yes", PageState.HEALTHY), ("no", PageState.UNHEALTHY))

_FORMATS = (16, 12, 60)  # columns, whatever the names are

# The fields of a Selector, as people read them.
_FIELDS = (
    ("vendor", "vendors"),
    ("device id", "device_ids"),
    ("driver", "drivers"),
    ("interface", "interfaces"),
    ("link type", "link_types"),
    ("PCI address", "pci_addresses"),
    ("ACPI index", "acpi_indexes"),
    ("physical function", "physical"),
    ("physical function", "roots"),
    ("auxiliary type", "auxiliary_types"),
    ("RDMA device", "rdma_devices"),
    ("partition key", "pkeys"),
)

_RANGES = ("physical", "roots")  # fields of virtual functions of a physical one


class PoollessCard(Frozen):
    """A card in no pool, with the reason for each pool."""

    card: Card
    reasons: tuple[tuple[str, str], ...]  # resource, sentence about the card


class NodePools(Frozen):
    """The result of resolving a configuration's pools on one node."""

    pools: tuple[model.Pool, ...]
    clashes: tuple[str, ...] = ()  # about cards that two pools mean and only one can have
    warnings: tuple[str, ...] = ()  # about cards that two pools have, and missing virtual functions
    left_out: tuple[PoollessCard, ...] = ()


def specs_page(
    specs: Sequence[model.PoolSpec],
    takes: Mapping[model.Mode, str],
    warnings: Sequence[str] = (),
    node: NodePools | None = None,
) -> Page:
    """Return the page of pool specs: clashes and warnings first, then each pool's selectors.

    `specs` have all defaults filled in; `takes` says which cards a mode takes without selectors.
    """
    rows = []
    for spec in specs:
        whole = spec.bind is model.Bind.POOL
        shares = f"{spec.shares}/{'pool' if whole else 'card'}"
        prefer = _NONE if whole or spec.prefer is None else spec.prefer.value
        cells = (spec.resource, spec.mode.value, shares, spec.attach or _NONE, prefer)
        chosen = "; or ".join(map(_selector, spec.selectors)) or takes[spec.mode]
        rows.append(PageRow(cells, notes=(chosen, *_besides(spec))))
    return (
        _marked("✗", node.clashes if node else (), PageState.UNHEALTHY),
        _marked("!", (*warnings, *(node.warnings if node else ())), PageState.WARNING),
        (PageTable(_SPEC, tuple(rows), _SPEC_RIGHT),),
    )


def functions_page(specs: Sequence[model.FunctionsSpec]) -> Page:
    """Return the table of wanted virtual functions, a row for each spec; empty without specs."""
    rows = []
    for spec in specs:
        drivers, forced = ("yes" if flag else "no" for flag in (spec.autoprobe, spec.force))
        chosen = "; or ".join(map(_selector, spec.selectors))
        rows.append(PageRow((str(spec.count), drivers, forced, chosen)))
    table = PageTable(_FUNCTIONS, tuple(rows), _FUNCTIONS_RIGHT, ranked=True)
    return ((table,),) if specs else ()


def node_page(node: NodePools, title: str) -> Page:
    """Return the page with each pool's cards, and the reasons why other cards have no pool."""
    table = PageTable(
        _CARD,
        tuple(map(_pool_row, node.pools)),
        _CARD_RIGHT,
        stated=_CARD.index("USABLE"),
        words=_USABLE,
    )
    return (
        (Line(f"{title}:"),),
        (table,),
        tuple(_poolless(node.left_out)),
    )


def formats_page(rows: Sequence[tuple[str, str, str]]) -> Page:
    """Return the table of configuration formats: name, identifying field and author."""
    listed = tuple(map(PageRow, rows))
    return ((PageTable(("",) * 3, listed, columns=_FORMATS, headless=True, ranked=True),),)


def pools_document(
    specs: Sequence[model.PoolSpec],
    rescan: int,
    warnings: Sequence[str] = (),
    node: NodePools | None = None,
    functions: Sequence[model.FunctionsSpec] = (),
) -> dict[str, object]:
    """Return a configuration as JSON values, with its pools on a node if one was looked at.

    ``pools`` have the fields of PoolSpec, ``functions`` the fields of FunctionsSpec, and selectors
    the fields that are given. ``rescan`` is in seconds, ``warnings`` are sentences. ``node`` is
    null without a node. Else it has ``pools`` with cards, ``clashes`` and ``warnings``, and in
    ``leftOut`` the cards in no pool with reasons by resource.
    """
    return {
        "pools": [
            json_object(
                spec,
                extraInfo={one.card: dict(one.facts) for one in spec.extra_info},
                selectors=[_selector_document(one) for one in spec.selectors],
            )
            for spec in specs
        ],
        "functions": [
            json_object(spec, selectors=[_selector_document(one) for one in spec.selectors])
            for spec in functions
        ],
        "rescan": rescan,
        "warnings": list(warnings),
        "node": node and _node(node),
    }


def _besides(spec: model.PoolSpec) -> Iterator[str]:
    """Yield sentences about a pool's settings that the table has no column for."""
    if spec.variables is model.Variables.PCIDEVICE:
        yield "containers get the PCIDEVICE variables of the SR-IOV network device plugin"
        if spec.extra_info:  # no other variable has it
            cards = ("every card" if one.card == "*" else one.card for one in spec.extra_info)
            yield f"containers get further facts about {' and '.join(cards)}"
    if spec.device_files != model.DATA_FILES:
        yield f"containers open {', '.join(spec.device_files)}"
    if any(is_vfio(driver) for selector in spec.selectors for driver in selector.drivers):
        yield "containers get /dev/vfio/GROUP and /dev/vfio/vfio for functions of vfio"
    if spec.extra_paths:
        yield f"containers also get {' and '.join(spec.extra_paths)}"
    if spec.host_network:
        yield "its pods use the node's own network"
    if spec.serve:
        way = "claims serve" if spec.serve is model.Serving.CLAIMS else "the device plugin serves"
        yield f"{way} it, whatever the node's label says"
    if spec.fabric:
        yield f"programs get {', '.join(_fabric(spec.fabric))}"
    if spec.limits:
        yield f"a share takes at most {_limits(spec.limits)} of each RDMA device"
    if not spec.numa_hints:
        yield "the kubelet does not get the NUMA node of a share"


def _fabric(fabric: FabricProfile) -> Iterator[str]:
    """Yield the settings as text, such as ``timeout 22`` or ``NCCL_IB_AR_THRESHOLD=0``."""
    named = {name: getattr(fabric, name) for name in fabric.__struct_fields__}
    variables = named.pop("variables")
    yield from (f"{n.replace('_', ' ')} {v}" for n, v in named.items() if v is not None)
    yield from (f"{name}={value}" for name, value in variables)


def _limits(limits: model.RdmaLimits) -> str:
    """Return the limits as text, such as ``2 handles and 20000 objects``."""
    counts = ((limits.handles, "handle"), (limits.objects, "object"))
    return " and ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts if n is not None)


def _selector(selector: model.Selector) -> str:
    """Return a selector as text, such as ``vendor 15b3, interface ens2f0 or ens2f1``."""
    parts = [
        f"{word} {' or '.join(map(str, choice))}"
        for word, field in _FIELDS
        if (choice := getattr(selector, field))
    ]
    if selector.pkeys:
        parts[-1] = f"partition key {' or '.join(f'{key:#06x}' for key in selector.pkeys)}"
    if selector.rdma is not None:
        parts.append("an RDMA device" if selector.rdma else "no RDMA device")
    return ", ".join(parts)


def _cards(pool: model.Pool) -> Iterator[tuple[str, ...]]:
    """Yield a table row for each card; shares of the whole pool are counted in its first row."""
    resource, whole = pool.spec.resource, sum(share.card is None for share in pool.shares)
    for card in pool.cards:
        own = sum(share.card == card.id for share in pool.shares)
        node = _NONE if card.numa_node is None else str(card.numa_node)
        shares = str(whole or own or "")
        usable = "yes" if card.usable else "no"
        yield resource, card.name, card.pci or _NONE, node, shares, usable
        resource, whole = "", 0
    if not pool.cards:
        yield resource, _NONE, _NONE, _NONE, "0", _NONE


def _pool_row(pool: model.Pool) -> PageRow:
    """Return the table row of a pool: its cards, and what is wrong with them."""
    first, *rest = _cards(pool)
    if not pool.cards:
        return PageRow(first, PageState.WARNING, tuple(rest), ("it has no card here",))
    troubles = [f"{card.name}: {reason}" for card in pool.unusable for reason in card.reasons]
    state = PageState.UNHEALTHY if troubles else PageState.NONE
    return PageRow(first, state, tuple(rest), tuple(troubles))


def _poolless(left_out: Sequence[PoollessCard]) -> Iterator[Part]:
    """Yield the cards in no pool with their reasons; a reason that all pools have is given once."""
    if left_out:
        yield Line("In no pool:")
    groups: dict[tuple[str, ...], list[str]] = {}
    for entry in left_out:
        distinct = dict.fromkeys(reason for _, reason in entry.reasons)
        if len(distinct) == 1:
            reasons = tuple(distinct)
        else:
            reasons = tuple(f"{resource}: {reason}" for resource, reason in entry.reasons)
        card = entry.card
        place = f" ({card.pci})" if card.pci and card.pci != card.name else ""
        groups.setdefault(reasons, []).append(f"{card.name}{place}")
    for reasons, names in groups.items():
        yield Sentence(f"  {', '.join(names)}", "  ")
        for reason in reasons:
            yield Sentence(f"    └ {reason}", "      ")


def _marked(mark: str, sentences: Sequence[str], state: PageState) -> Block:
    return tuple(Sentence(f"{mark} {ended(sentence)}", "    ", state) for sentence in sentences)


def _selector_document(selector: model.Selector) -> dict[str, Any]:
    """Return the selector's set fields as JSON values, its ranges of functions as text."""
    given = [field for _, field in _FIELDS if getattr(selector, field)]
    if selector.rdma is not None:
        given.append("rdma")
    ranges = {name: list(map(str, getattr(selector, name))) for name in _RANGES if name in given}
    return json_object(selector, "source", *given) | ranges


def _node(node: NodePools) -> dict[str, object]:
    return {
        "pools": [
            {
                "resource": pool.spec.resource,
                "shares": len(pool.shares),
                "healthy": sum(share.healthy for share in pool.shares),
                "cards": json_list(pool.cards, "id", "name", "usable", "reasons"),
            }
            for pool in node.pools
        ],
        **json_object(node, "clashes", "warnings"),
        "leftOut": [
            json_object(one.card, "id", "name", reasons=dict(one.reasons)) for one in node.left_out
        ],
    }
