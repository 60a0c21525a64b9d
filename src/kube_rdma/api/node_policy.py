"""The dialect ``kind: NodePolicy`` (kube-rdma.io/v1alpha1): in it everything can be said.

The other dialects can say parts of it. As an object of the cluster it names the nodes that it is
for; a file on a node is for that node, whatever it says about others. What the validators here say
of several fields together, the object's definition says in CEL: lists have an end, or the API
server would find the rules too dear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationInfo, field_validator

from kube_rdma.api.dialect import HOST_NETWORK, MOST_SHARES, Config, Many, Typed
from kube_rdma.api.document import Document, Path
from kube_rdma.api.faults import Slip, slips, validate
from kube_rdma.api.object_document import of_json
from kube_rdma.api.policy_fabric import PolicyFabric
from kube_rdma.api.words import (
    DeviceId,
    Driver,
    Facts,
    Interface,
    LinkType,
    Pci,
    PhysicalCard,
    PhysicalFunction,
    PKey,
    RdmaDevice,
    Resource,
    RootDevice,
    Vendor,
    extra_info,
    function_range,
    partition,
    root_range,
)
from kube_rdma.model.device import PciAddress
from kube_rdma.model.function import FunctionsWish
from kube_rdma.model.node_policy import ClusterNodePolicy
from kube_rdma.model.pool import Attach, Bind, Mode, PoolSpec, Preference, Selector

MOST_FUNCTIONS = 0xFFFF  # of one card: sriov_numvfs has 16 bits

MOST = 64  # entries of a list; a node of more cards chooses them by what they have in common

# What the pattern of a resource says, in the words of CEL: Go's expressions look neither way.
_RESOURCE_RULE = (
    "self.resource.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/"
    "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && !self.resource.startsWith('requests.') && "
    "!self.resource.contains('kubernetes.io/')"
)

_Named = Strict(strict=False)  # a choice is written by its name
_Few = Field(max_length=MOST)


def _chooses(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """The rule of `_all_choose` for the API server: a selector says something."""
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    lists = [f"has(self.{name}) && size(self.{name}) > 0" for name in fields if name != "rdma"]
    rule = " || ".join([*lists, *(["has(self.rdma)"] if "rdma" in fields else [])])
    message = "this selector chooses nothing: remove it, or add a field that chooses"
    schema["x-kubernetes-validations"] = [{"rule": rule, "message": message}]


class CardSelector(Typed):
    """Which physical functions: any value of a list, every field that is given."""

    model_config = ConfigDict(json_schema_extra=_chooses)

    vendors: Annotated[Many[Vendor], _Few] = ()
    device_ids: Annotated[Many[DeviceId], _Few] = Field((), alias="deviceIDs")
    drivers: Annotated[Many[Driver], _Few] = ()
    interfaces: Annotated[Many[Interface], _Few] = ()
    pci_addresses: Annotated[Many[Pci], _Few] = ()

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return all(getattr(self, name) in ((), None) for name in type(self).model_fields)


class PoolSelector(CardSelector):
    """Which cards: any value of a list, every field that is given."""

    link_types: Annotated[Many[LinkType], _Few] = ()
    acpi_indexes: Annotated[Many[Annotated[int, Field(ge=0)]], _Few] = ()
    physical_functions: Annotated[Many[PhysicalFunction], _Few] = ()
    root_devices: Annotated[Many[RootDevice], _Few] = ()
    rdma_devices: Annotated[Many[RdmaDevice], _Few] = ()
    p_keys: Annotated[Many[PKey], _Few] = ()
    rdma: bool | None = None


_Selectors = TypeVar("_Selectors", bound=CardSelector)


def _all_choose(selectors: tuple[_Selectors, ...], remedy: str) -> tuple[_Selectors, ...]:
    empty = [
        Slip("this selector chooses nothing", remedy, (n,))
        for n, one in enumerate(selectors)
        if one.empty
    ]
    if empty:
        raise slips(*empty)
    return selectors


class PolicyPool(Typed):
    """One resource; what is left out is said by the mode (docs/modes.md)."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": _RESOURCE_RULE,
                    "message": "a resource is named like rdma/hca, below a domain that is not "
                    "kubernetes.io",
                },
                {
                    "rule": "!has(self.bind) || self.bind != 'pool' || self.mode == 'hca'",
                    "message": "only in mode hca a share stands for the pool: "
                    "leave bind out, or write per-card",
                },
            ]
        }
    )

    resource: Annotated[Resource, Field(max_length=317)] = Field(examples=["rdma/hca"])
    mode: Annotated[Mode, _Named]
    selectors: Annotated[Many[PoolSelector], _Few] = ()
    shares: int | None = Field(None, ge=1, le=MOST_SHARES)
    bind: Annotated[Bind, _Named] | None = None
    attach: Annotated[Attach, _Named] | None = None
    prefer: Annotated[Preference, _Named] | None = None
    numa_hints: bool = True
    extra_info: Facts = Field(default_factory=dict)
    host_network: bool = Field(False, description=HOST_NETWORK)
    fabric: PolicyFabric | None = None

    @field_validator("selectors")
    @classmethod
    def _no_empty(cls, selectors: tuple[PoolSelector, ...]) -> tuple[PoolSelector, ...]:
        remedy = "Remove it, for a pool without selectors has every card that its mode can take"
        return _all_choose(selectors, remedy)

    @field_validator("bind")
    @classmethod
    def _pool_of_hca(cls, bind: Bind | None, info: ValidationInfo) -> Bind | None:
        """In the other modes something of one card goes into the pod."""
        mode = info.data.get("mode", Mode.HCA)
        if bind is Bind.POOL and mode is not Mode.HCA:
            problem = f"in mode {mode} a share stands for one card, not for the pool"
            raise slips(Slip(problem, 'Write "bind": "per-card", or "mode": "hca"'))
        return bind


class PolicyFunctions(Typed):
    """How many virtual functions each physical one that a selector chooses should have."""

    selectors: Many[CardSelector] = Field(
        min_length=1, max_length=MOST, examples=[[{"interfaces": ["ens2f0"]}]]
    )
    count: int = Field(ge=0, le=MOST_FUNCTIONS, examples=[8])
    autoprobe: bool = Field(True, description="Whether the kernel binds a driver to each.")
    force: bool = Field(
        False,
        description="Also where the node's default route leads through the card, and in place of "
        "virtual functions that somebody else made or set up.",
    )

    @field_validator("selectors")
    @classmethod
    def _no_empty(cls, selectors: tuple[CardSelector, ...]) -> tuple[CardSelector, ...]:
        return _all_choose(selectors, 'Add a field that chooses, such as "interfaces": ["ens2f0"]')


class PolicySpec(Typed):
    """For which nodes, and what they offer; a higher priority wins on a node of two policies."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.pools.all(a, self.pools.exists_one(b, a.resource == b.resource))",
                    "message": "a resource has one pool: give the others another name",
                },
                {
                    "rule": "!has(self.rails) || "
                    "self.rails.all(a, self.rails.exists_one(b, a == b))",
                    "message": "a card has one rail: write each card once",
                },
            ]
        }
    )

    node_selector: dict[str, str] = Field(default_factory=dict)
    priority: int = 0
    pools: Many[PolicyPool] = Field(
        min_length=1, max_length=MOST, examples=[[{"resource": "rdma/hca", "mode": "hca"}]]
    )
    virtual_functions: Annotated[Many[PolicyFunctions], _Few] = ()
    rails: Many[Annotated[PhysicalCard, Field(max_length=16)]] = Field(
        (),
        max_length=MOST,
        examples=[["0000:1a:00.0", "ens2f0"]],
        description="The physical cards in the order of their rails, by PCI address or interface; "
        "others have no rail.",
    )

    @field_validator("rails")
    @classmethod
    def _each_once(cls, rails: tuple[str, ...]) -> tuple[str, ...]:
        doubles = [n for n, card in enumerate(rails) if card.lower() in map(str.lower, rails[:n])]
        if doubles:
            problem = "this card has a rail already"
            raise slips(*(Slip(problem, "Write each card once", (n,)) for n in doubles))
        return rails


class Metadata(Typed):
    """Its name; what else the API server keeps about an object is left alone."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(examples=["rdma"])


class NodePolicy(Typed):
    """The whole object."""

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["NodePolicy"]
    metadata: Metadata = Field(examples=[{"name": "rdma"}])
    spec: PolicySpec = Field(examples=[{"pools": [{"resource": "rdma/hca", "mode": "hca"}]}])


def load(document: Document) -> Config:
    """What the document means; raise Refused with all of its faults."""
    spec = validate(NodePolicy, document).spec
    return Config(
        tuple(_pools(spec, document, ("spec",))),
        functions=tuple(_functions(spec, document, ("spec",))),
        rails=spec.rails,
    )


def load_object(data: bytes, name: str) -> ClusterNodePolicy:
    """What the JSON of an object's spec means; raise Refused with all of its faults."""
    document = of_json(data, f"NodePolicy {name}", ("spec",))
    spec = validate(PolicySpec, document)
    return ClusterNodePolicy(
        name,
        tuple(sorted(spec.node_selector.items())),
        spec.priority,
        tuple(_pools(spec, document, ())),
        tuple(_functions(spec, document, ())),
        spec.rails,
    )


def _functions(spec: PolicySpec, document: Document, base: Path) -> Iterator[FunctionsWish]:
    for index, functions in enumerate(spec.virtual_functions):
        path = (*base, "virtualFunctions", index)
        yield FunctionsWish(
            tuple(
                _cards(each, document.where((*path, "selectors", n)))
                for n, each in enumerate(functions.selectors)
            ),
            functions.count,
            document.where(path),
            autoprobe=functions.autoprobe,
            force=functions.force,
        )


def _pools(spec: PolicySpec, document: Document, base: Path) -> Iterator[PoolSpec]:
    for index, pool in enumerate(spec.pools):
        path = (*base, "pools", index)
        yield PoolSpec(
            pool.resource,
            pool.mode,
            source=document.where(path),
            selectors=tuple(
                _selector(each, document.where((*path, "selectors", n)))
                for n, each in enumerate(pool.selectors)
            ),
            shares=pool.shares,
            bind=pool.bind,
            attach=pool.attach,
            prefer=pool.prefer,
            numa_hints=pool.numa_hints,
            extra_info=extra_info(pool.extra_info),
            host_network=pool.host_network,
            fabric=pool.fabric.profile() if pool.fabric else None,
        )


def _cards(selector: CardSelector, source: str) -> Selector:
    return Selector(
        source,
        vendors=tuple(v.lower() for v in selector.vendors),
        device_ids=tuple(d.lower() for d in selector.device_ids),
        drivers=selector.drivers,
        interfaces=selector.interfaces,
        pci_addresses=tuple(map(PciAddress, selector.pci_addresses)),
    )


def _selector(selector: PoolSelector, source: str) -> Selector:
    return replace(
        _cards(selector, source),
        link_types=selector.link_types,
        acpi_indexes=selector.acpi_indexes,
        physical=tuple(map(function_range, selector.physical_functions)),
        roots=tuple(map(root_range, selector.root_devices)),
        rdma_devices=selector.rdma_devices,
        pkeys=tuple(map(partition, selector.p_keys)),
        rdma=selector.rdma,
    )
