"""Reads the dialect ``kind: NodePolicy`` (kube-rdma.io/v1alpha1), kube-rdma's own.

The other dialects can say parts of it, and add only settings of their own plugins, such as the
rescan interval and the PCIDEVICE variables. As an object of the cluster it names the nodes that it
is for. A file on a node is for that node, whatever it says about others. What the validators here
say of several fields together, the object's definition says in CEL. Lists have a limit there, or
the API server would refuse the rules for their cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kube_base.frozen import replace
from kube_rdma.lib.text import words
from kube_rdma.lib.text.document import Document, Path, of_json, shown
from kube_rdma.lib.text.faults import Slip, slips, validate
from kube_rdma.lib.text.typed import MOST_SHARES, Config, Many, Typed, validations
from kube_rdma.model import pools as specs
from kube_rdma.model.device import CharKind, PciAddress
from kube_rdma.model.settings import FabricProfile

# `fabric` of a NodePolicy's pool: what programs on this fabric should use.

# Variables that kube-rdma writes from what the container got: from elsewhere they would be wrong.
OWN = ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX")
_NAME = "(NCCL|UCX)_[A-Z0-9_]{1,60}"
_VALUE = "[!-~]([ -~]{0,254}[!-~])?"
_MOST = 32  # variables
_LEGAL = f"self.variables.all(k, k.matches('^{_NAME}$') && self.variables[k].matches('^{_VALUE}$'))"
_RESERVED = f"self.variables.exists(k, k in [{', '.join(map(repr, OWN))}])"
_RULES = validations(
    (
        f"!has(self.variables) || {_LEGAL}",
        "a variable is of NCCL_ or UCX_, in capitals; its value one line of ASCII",
    ),
    (
        f"!has(self.variables) || !{_RESERVED}",
        "devices and GID indexes are each container's own: kube-rdma writes them",
    ),
)


def _bounded(schema: dict[str, Any]) -> None:
    """Add to a schema its validation rules, and the length limits that bound their cost."""
    schema |= _RULES
    schema["properties"]["variables"]["maxProperties"] = _MOST
    schema["properties"]["variables"]["additionalProperties"]["maxLength"] = 256


class PolicyFabric(Typed):
    """Settings of NCCL and UCX in containers with cards of the pool."""

    model_config = ConfigDict(json_schema_extra=_bounded)

    traffic_class: int | None = Field(None, ge=0, le=255, examples=[106])
    """trafficClass is the traffic class of packets; on RoCE it is DSCP times 4. It becomes
    NCCL_IB_TC and UCX_IB_TRAFFIC_CLASS. Left out: each program decides. Example: 106.
    """
    service_level: int | None = Field(None, ge=0, le=15, examples=[3])
    """serviceLevel is the service level (SL) of packets. It becomes NCCL_IB_SL and UCX_IB_SL. Left
    out: each program decides. Example: 3.
    """
    timeout: int | None = Field(None, ge=0, le=31, examples=[22])
    """timeout is the exponent of the time that a sender waits for an acknowledgement: 4.096
    microseconds times 2^timeout. It becomes NCCL_IB_TIMEOUT and, in microseconds, UCX_RC_TIMEOUT.
    Left out: each program decides. Example: 22, about 17 s.
    """
    retry_count: int | None = Field(None, ge=0, le=7, examples=[7])
    """retryCount is how many times a sender tries again without an acknowledgement. It becomes
    NCCL_IB_RETRY_CNT and UCX_RC_RETRY_COUNT. Left out: each program decides. Example: 7.
    """
    qps_per_connection: int | None = Field(None, ge=1, le=128, examples=[4])
    """qpsPerConnection is how many queue pairs NCCL uses for a connection between two ranks. It
    becomes NCCL_IB_QPS_PER_CONNECTION; UCX has no such setting. Left out: NCCL decides. Example: 4.
    """
    variables: dict[str, str] = Field(
        default_factory=dict, examples=[{"NCCL_IB_SPLIT_DATA_ON_QPS": "0"}]
    )
    """variables is a map of at most 32 further variables, whose names begin with NCCL_ or UCX_.
    Variables that name devices or GID indexes are refused, because kube-rdma sets them for each
    container. Left out: none. Example: NCCL_IB_SPLIT_DATA_ON_QPS: "0".
    """

    @field_validator("variables")
    @classmethod
    def _can_be_written(cls, variables: dict[str, str]) -> dict[str, str]:
        faults = [Slip(*fault, (name,)) for name in variables for fault in _faults(name, variables)]
        if len(variables) > _MOST:
            faults.append(Slip(f"these are {len(variables)}", f"Keep {_MOST} at most", ()))
        if faults:
            raise slips(*faults)
        return variables

    def profile(self) -> FabricProfile:
        """Return the settings as a FabricProfile."""
        variables = tuple(sorted(self.variables.items()))
        return FabricProfile(**self.model_dump(exclude={"variables"}), variables=variables)


def _faults(name: str, variables: dict[str, str]) -> list[tuple[str, str]]:
    """Return problem and remedy of the first fault of a variable, none if it is valid."""
    if not re.fullmatch(_NAME, name):
        return [(f"{shown(name)} is not a variable of NCCL or UCX", 'Write it like "NCCL_IB_TC"')]
    if name in OWN:
        remedy = "Remove it: kube-rdma writes it out of what each one got"
        return [(f"{name} differs from container to container", remedy)]
    if not re.fullmatch(_VALUE, variables[name]):
        return [(f"{shown(variables[name])} is not one line of ASCII", "Write a value of one line")]
    return []


# `rdmaLimits` of a NodePolicy's pool: what a share may take of an RDMA device.


class PolicyLimits(Typed):
    """Limits that the kernel enforces, for each share and each RDMA device."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            (
                "has(self.hcaHandle) || has(self.hcaObject)",
                "these limits limit nothing: add hcaHandle or hcaObject, or remove rdmaLimits",
            )
        )
    )

    hca_handle: int | None = Field(None, ge=1, le=specs.MOST, examples=[16])
    """hcaHandle is how many times the programs of a pod may have a device open, for each share.
    Left out: no limit. Example: 16.
    """
    hca_object: int | None = Field(None, ge=1, le=specs.MOST, examples=[20000])
    """hcaObject is how many objects a pod may have on a device, for each share: queue pairs, memory
    regions, completion queues, protection domains and all others, counted together. Left out: no
    limit. Example: 20000.
    """

    @model_validator(mode="after")
    def _limits_something(self) -> PolicyLimits:
        if self.hca_handle is None and self.hca_object is None:
            remedy = "Add hcaHandle or hcaObject, or remove rdmaLimits"
            raise slips(Slip("these limits limit nothing", remedy))
        return self

    def limits(self) -> specs.RdmaLimits:
        """Return the limits as RdmaLimits."""
        return specs.RdmaLimits(self.hca_handle, self.hca_object)


MOST_FUNCTIONS = 0xFFFF  # of one card: sriov_numvfs has 16 bits

# Entries of a list; a node of more cards chooses them by what they have in common.
MOST_ENTRIES = 64

# The pattern of a resource in CEL: Go's regular expressions have no lookahead.
_RESOURCE_RULE = (
    "self.resource.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/"
    "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && !self.resource.startsWith('requests.') && "
    "!self.resource.contains('kubernetes.io/')"
)

_Named = Strict(strict=False)  # a choice is written by its name
_Few = Field(max_length=MOST_ENTRIES)


def _chooses(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add to a schema the validation rule that a selector sets at least one field."""
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    lists = [f"has(self.{name}) && size(self.{name}) > 0" for name in fields if name != "rdma"]
    rule = " || ".join([*lists, *(["has(self.rdma)"] if "rdma" in fields else [])])
    message = "this selector chooses nothing: remove it, or add a field that chooses"
    schema |= validations((rule, message))


class CardSelector(Typed):
    """A choice of cards: every field that is given must match, by any value of its list."""

    model_config = ConfigDict(json_schema_extra=_chooses)

    vendors: Annotated[Many[words.Vendor], _Few] = ()
    """vendors are PCI vendor IDs, four hexadecimal digits each. A card with any of them matches.
    Left out: any vendor. Example: 15b3.
    """
    device_ids: Annotated[Many[words.DeviceId], _Few] = Field((), alias="deviceIDs")
    """deviceIDs are PCI device IDs, four hexadecimal digits each. A card with any of them matches.
    Left out: any device. Example: 101e.
    """
    drivers: Annotated[Many[words.Driver], _Few] = ()
    """drivers are names of kernel drivers. A card with any of them matches. Left out: any driver.
    Example: mlx5_core.
    """
    interfaces: Annotated[Many[words.Interface], _Few] = ()
    """interfaces are names of network interfaces on the node. A card with any of them matches. Left
    out: any interface. Example: ens2f0np0.
    """
    pci_addresses: Annotated[Many[words.Pci], _Few] = ()
    """pciAddresses are full PCI addresses. A card at any of them matches. Left out: any address.
    Example: 0000:81:00.1.
    """

    @property
    def empty(self) -> bool:
        """Decide whether no field of the selector is set."""
        return all(getattr(self, name) in ((), None) for name in type(self).model_fields)


class PoolSelector(CardSelector):
    """A choice of the cards of a pool, virtual functions too."""

    link_types: Annotated[Many[words.LinkType], _Few] = ()
    """linkTypes are ether (Ethernet, RoCE) and infiniband. A card with any of them matches. Left
    out: any link type.
    """
    acpi_indexes: Annotated[Many[Annotated[int, Field(ge=0)]], _Few] = ()
    """acpiIndexes are numbers that firmware gives to onboard cards, as in acpi_index of sysfs. A
    card with any of them matches. Left out: any card.
    """
    physical_functions: Annotated[Many[words.PhysicalFunction], _Few] = ()
    """physicalFunctions are interfaces of physical functions (PFs). ens2f0 means the PF and all its
    virtual functions; ens2f0#0,2-7 means only its virtual functions 0 and 2 to 7. Left out: any
    card.
    """
    root_devices: Annotated[Many[words.RootDevice], _Few] = ()
    """rootDevices are PCI addresses of physical functions, with ranges of virtual functions as in
    physicalFunctions. Left out: any card. Example: 0000:81:00.0#0,2-7.
    """
    rdma_devices: Annotated[Many[words.RdmaDevice], _Few] = ()
    """rdmaDevices are names of RDMA devices. A card with any of them matches. Left out: any device.
    Example: mlx5_0.
    """
    p_keys: Annotated[Many[words.PKey], _Few] = ()
    """pKeys are InfiniBand partition keys in hexadecimal. A card matches by the first P_Key of a
    port; the membership bit does not count. Left out: any card. Example: 0x8001.
    """
    rdma: bool | None = None
    """rdma says whether a card must have an RDMA device (true) or must have none (false). Only mode
    sriov takes cards without one. Left out: both match.
    """


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
    """One resource; pools/rules/modes has the defaults of fields that are left out."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            (
                _RESOURCE_RULE,
                "a resource is named like rdma/hca, below a domain that is not kubernetes.io",
            ),
            (
                "!has(self.bind) || self.bind != 'pool' || self.mode == 'hca'",
                "only in mode hca a share stands for the pool: leave bind out, or write per-card",
            ),
            (
                "!has(self.deviceFiles) || 'uverbs' in self.deviceFiles",
                "without uverbs a container can use no card: add it, or leave deviceFiles out",
            ),
        )
    )

    resource: Annotated[words.Resource, Field(max_length=317)] = Field(examples=["rdma/hca"])
    """resource is the resource name that containers ask for. Example: rdma/hca."""
    mode: Annotated[specs.Mode, _Named]
    """mode says what a share gives to a container. hca: all cards of the pool, or one with bind
    per-card, shared with other containers. exclusive: a physical card. shared: a virtual interface,
    one on each card. shared-multi: a virtual interface, many on each card. sriov: a virtual
    function, or a card that has none.
    """
    selectors: Annotated[Many[PoolSelector], _Few] = ()
    """selectors choose the cards of the pool among those that the mode can take. One selector has
    to match. Left out: every card that the mode can take.
    """
    shares: int | None = Field(None, ge=1, le=MOST_SHARES)
    """shares is the number of shares of each card, or of the whole pool with bind pool. Left out:
    1000 in mode hca, 16 in shared-multi, 1 in other modes. At most 1000 in shared-multi; 1 in
    exclusive, shared and sriov.
    """
    bind: Annotated[specs.Bind, _Named] | None = None
    """bind says what a share stands for: pool (all cards of the pool, only in mode hca) or per-card
    (one card). Left out: pool in mode hca, per-card in other modes.
    """
    attach: Annotated[specs.Attach, _Named] | None = None
    """attach says when a container gets device files. none: when the kubelet allocates shares.
    required: when the pod's network is attached. auto: like required, or at the start if the pod
    has no networks. On nodes without CDI attach is always none. Left out: auto; none in sriov, and
    in hca on nodes without networks of kube-rdma.
    """
    prefer: Annotated[specs.Preference, _Named] | None = None
    """prefer says which free shares a container gets. pack: on the fullest cards. spread: on as
    many cards as possible. least-loaded: on the least used cards. numa: on cards near the GPUs of
    the pod's claims, else near free GPUs. Left out: pack in hca, spread in sriov, least-loaded in
    shared-multi, else numa. It has no effect with bind pool.
    """
    numa_hints: bool = True
    """numaHints says whether the kubelet gets the NUMA node of each share, for its topology
    manager. It has no effect with bind pool. Left out: true.
    """
    device_files: Annotated[Many[Annotated[CharKind, _Named]], Field(max_length=len(CharKind))] = (
        specs.DATA_FILES
    )
    """deviceFiles are the files in /dev/infiniband that a container may open for its cards: uverbs,
    rdma_cm, umad, issm. On InfiniBand, umad and issm reach the management of the whole fabric; see
    SECURITY.md. Left out: uverbs and rdma_cm.
    """
    extra_info: words.Facts = Field(default_factory=dict)
    """extraInfo is facts about cards, by PCI address or "*" for every card. kube-rdma config check
    -o json shows them. Containers do not get them. Left out: none. Example: {"*": {"rail": "2"}}.
    """
    host_network: bool = False
    """hostNetwork is true if all pods of the pool have hostNetwork: true. Shares are then healthy
    also in RDMA namespace mode exclusive, where other pods see no shared cards. Left out: false.
    """
    serve: Annotated[specs.Serving, _Named] | None = None
    """serve says how pods get the cards. plugin: as shares of the device plugin. claims: by
    ResourceClaims (needs --claims and Kubernetes 1.34), and by the same resource name where a
    DeviceClass has it (Kubernetes 1.36). Left out: what the label kube-rdma.io/serve of the node
    says, else plugin.
    """
    fabric: PolicyFabric | None = None
    """fabric is what programs such as NCCL and UCX use on these cards. Left out: the programs
    decide themselves.
    """
    rdma_limits: PolicyLimits | None = None
    """rdmaLimits is what a share may take of each RDMA device; the kernel holds a pod to the sum of
    its shares. rdmaLimits needs the value agent.shareLimits, and cgroup v2. Left out: no limit.
    """

    @field_validator("selectors")
    @classmethod
    def _no_empty(cls, selectors: tuple[PoolSelector, ...]) -> tuple[PoolSelector, ...]:
        remedy = "Remove it, for a pool without selectors has every card that its mode can take"
        return _all_choose(selectors, remedy)

    @field_validator("device_files")
    @classmethod
    def _verbs(cls, files: tuple[CharKind, ...]) -> tuple[CharKind, ...]:
        if CharKind.UVERBS not in files:
            problem = "without uverbs a container can use no card"
            raise slips(Slip(problem, "Add uverbs, or leave the field out"))
        return files

    @field_validator("bind")
    @classmethod
    def _pool_of_hca(cls, bind: specs.Bind | None, info: ValidationInfo) -> specs.Bind | None:
        """Refuse `bind: pool` in modes other than hca, where a share stands for one card."""
        mode = info.data.get("mode", specs.Mode.HCA)
        if bind is specs.Bind.POOL and mode is not specs.Mode.HCA:
            problem = f"in mode {mode} a share stands for one card, not for the pool"
            raise slips(Slip(problem, 'Write "bind": "per-card", or "mode": "hca"'))
        return bind


class PolicyFunctions(Typed):
    """The number of virtual functions for each physical one that a selector chooses."""

    selectors: Many[CardSelector] = Field(
        min_length=1, max_length=MOST_ENTRIES, examples=[[{"interfaces": ["ens2f0"]}]]
    )
    """selectors choose the physical functions. One selector has to match. Example: interfaces:
    [ens4f0].
    """
    count: int = Field(ge=0, le=MOST_FUNCTIONS, examples=[8])
    """count is the number of virtual functions that each chosen card has. 0 removes all virtual
    functions of these cards. The card itself sets the largest number (sriov_totalvfs).
    """
    autoprobe: bool = True
    """autoprobe says whether the kernel binds a driver to each new virtual function. Left out:
    true.
    """
    force: bool = False
    """force says whether the number changes also where the node is reached through the physical
    function, or where others made or use the virtual ones. Functions that pods hold stay. Left out:
    false.
    """

    @field_validator("selectors")
    @classmethod
    def _no_empty(cls, selectors: tuple[CardSelector, ...]) -> tuple[CardSelector, ...]:
        return _all_choose(selectors, 'Add a field that chooses, such as "interfaces": ["ens2f0"]')


class PolicySpec(Typed):
    """The nodes of a policy and all that they are to offer."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            (
                "self.pools.all(a, self.pools.exists_one(b, a.resource == b.resource))",
                "a resource has one pool: give the others another name",
            ),
            (
                "!has(self.rails) || self.rails.all(a, self.rails.exists_one(b, a == b))",
                "a card has one rail: write each card once",
            ),
        )
    )

    node_selector: words.Labels = Field(default_factory=dict)
    """nodeSelector is the labels of the nodes that the policy is for; a node needs all of them. A
    configuration file on a node is for that node, whatever nodeSelector says. Left out: all nodes.
    """
    priority: int = 0
    """priority decides between policies of one node that name the same resource, or that both order
    rails. The higher number wins; of equal numbers the first policy by name. Left out: 0.
    """
    pools: Many[PolicyPool] = Field(
        min_length=1, max_length=MOST_ENTRIES, examples=[[{"resource": "rdma/hca", "mode": "hca"}]]
    )
    """pools are the resources that nodes offer, each with its cards. A resource has one pool."""
    virtual_functions: Annotated[Many[PolicyFunctions], _Few] = ()
    """virtualFunctions say how many virtual functions the agent makes on which cards. Cards in no
    entry are left alone. Left out: the agent makes none.
    """
    rails: Many[Annotated[words.PhysicalCard, Field(max_length=16)]] = Field(
        (), max_length=MOST_ENTRIES, examples=[["0000:1a:00.0", "ens2f0"]]
    )
    """rails are the physical cards in the order of their rails, from 0, by PCI address or
    interface. Other cards then have no rail. Left out: cards of pools are numbered by PCI address.
    Example: [0000:1a:00.0, ens2f0].
    """

    @field_validator("rails")
    @classmethod
    def _each_once(cls, rails: tuple[str, ...]) -> tuple[str, ...]:
        doubles = [n for n, card in enumerate(rails) if card.lower() in map(str.lower, rails[:n])]
        if doubles:
            problem = "this card has a rail already"
            raise slips(*(Slip(problem, "Write each card once", (n,)) for n in doubles))
        return rails


class Metadata(Typed):
    """The name of a policy; all other metadata is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: words.ObjectName = Field(examples=["rdma"])
    """name is the name of the policy."""


class NodePolicy(Typed):
    """NodePolicy defines which cards nodes offer to pods, and under which resource names."""

    api_version: Literal["kube-rdma.io/v1alpha1"]
    """apiVersion is kube-rdma.io/v1alpha1."""
    kind: Literal["NodePolicy"]
    """kind is NodePolicy."""
    metadata: Metadata = Field(examples=[{"name": "rdma"}])
    """metadata is that of every object. A file on a node needs only name."""
    spec: PolicySpec = Field(examples=[{"pools": [{"resource": "rdma/hca", "mode": "hca"}]}])
    """spec says which cards nodes offer under which resource names, and for which nodes this is."""


def load(document: Document) -> Config:
    """Return the policy that the document describes; raise Refused with all of its faults."""
    spec = validate(NodePolicy, document).spec
    return Config(
        tuple(_pools(spec, document, ("spec",))),
        functions=tuple(_functions(spec, document, ("spec",))),
        rails=spec.rails,
    )


def load_object(data: bytes, name: str) -> specs.ClusterNodePolicy:
    """Return the policy that the JSON of a spec describes; raise Refused with all of its faults."""
    document = of_json(data, f"NodePolicy {name}", ("spec",))
    spec = validate(PolicySpec, document)
    return specs.ClusterNodePolicy(
        name,
        tuple(sorted(spec.node_selector.items())),
        spec.priority,
        tuple(_pools(spec, document, ())),
        tuple(_functions(spec, document, ())),
        spec.rails,
    )


def _functions(spec: PolicySpec, document: Document, base: Path) -> Iterator[specs.FunctionsSpec]:
    for index, functions in enumerate(spec.virtual_functions):
        path = (*base, "virtualFunctions", index)
        places = (document.where((*path, "selectors", n)) for n in count())
        yield specs.FunctionsSpec(
            tuple(map(_cards, functions.selectors, places)),
            functions.count,
            document.where(path),
            autoprobe=functions.autoprobe,
            force=functions.force,
        )


def _pools(spec: PolicySpec, document: Document, base: Path) -> Iterator[specs.PoolSpec]:
    for index, pool in enumerate(spec.pools):
        path = (*base, "pools", index)
        places = (document.where((*path, "selectors", n)) for n in count())
        yield specs.PoolSpec(
            pool.resource,
            pool.mode,
            source=document.where(path),
            selectors=tuple(map(_selector, pool.selectors, places)),
            shares=pool.shares,
            bind=pool.bind,
            attach=pool.attach,
            prefer=pool.prefer,
            numa_hints=pool.numa_hints,
            device_files=tuple(kind for kind in CharKind if kind in pool.device_files),
            extra_info=words.extra_info(pool.extra_info),
            host_network=pool.host_network,
            serve=pool.serve,
            fabric=pool.fabric.profile() if pool.fabric else None,
            limits=pool.rdma_limits.limits() if pool.rdma_limits else None,
        )


def _cards(selector: CardSelector, source: str) -> specs.Selector:
    return specs.Selector(
        source,
        vendors=tuple(v.lower() for v in selector.vendors),
        device_ids=tuple(d.lower() for d in selector.device_ids),
        drivers=selector.drivers,
        interfaces=selector.interfaces,
        pci_addresses=tuple(map(PciAddress, selector.pci_addresses)),
    )


def _selector(selector: PoolSelector, source: str) -> specs.Selector:
    return replace(
        _cards(selector, source),
        link_types=selector.link_types,
        acpi_indexes=selector.acpi_indexes,
        physical=tuple(map(words.function_range, selector.physical_functions)),
        roots=tuple(map(words.root_range, selector.root_devices)),
        rdma_devices=selector.rdma_devices,
        pkeys=tuple(map(words.partition, selector.p_keys)),
        rdma=selector.rdma,
    )
