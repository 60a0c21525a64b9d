"""Reads the dialect ``resourceList``: config.json of the SR-IOV network device plugin.

Every pool is of mode sriov, and its containers get the variables of that plugin. Pools of
accelerators are refused, and so are selectors by vDPA type or DDP profile, or that choose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from kube_rdma.lib.text import words
from kube_rdma.lib.text.document import Document
from kube_rdma.lib.text.faults import Slip, slips, validate
from kube_rdma.lib.text.typed import Config, GoTyped, Many
from kube_rdma.model.device import CharKind, PciAddress
from kube_rdma.model.pools import Attach, Mode, PoolSpec, Selector, Variables

_VHOST = ("/dev/vhost-net", "/dev/net/tun")
_AUXILIARY = "auxNetDevice"
_OF_AUXILIARY = frozenset({"auxTypes"})  # fields that only one type of device has
_NOT_OF_AUXILIARY = frozenset({"pciAddresses", "acpiIndexes", "pKeys"})


class FunctionSelectors(GoTyped):
    """A choice of functions: every list that is not empty must match, by any value of it."""

    vendors: Many[words.Vendor] = ()
    """vendors are PCI vendor IDs, four hexadecimal digits each. A function with any of them
    matches. Left out: any vendor. Example: 15b3.
    """
    devices: Many[words.DeviceId] = ()
    """devices are PCI device IDs, four hexadecimal digits each. A function with any of them
    matches. Left out: any device. Example: 101e.
    """
    drivers: Many[words.Driver] = ()
    """drivers are names of kernel drivers. A function with any of them matches. Left out: any
    driver. Example: mlx5_core.
    """
    pci_addresses: Many[words.Pci] = ()
    """pciAddresses are full PCI addresses of functions, not with deviceType auxNetDevice. Left out:
    any address. Example: 0000:81:00.1.
    """
    acpi_indexes: Many[words.AcpiIndex] = ()
    """acpiIndexes are numbers, as texts, that firmware gives to onboard cards (acpi_index of
    sysfs). They are not for deviceType auxNetDevice. Left out: any function. Example: "101".
    """
    pf_names: Many[words.PhysicalFunction] = ()
    """pfNames are interfaces of physical functions (PFs). ens2f0 means the PF and all its virtual
    functions; ens2f0#0,2-7 means only its virtual functions 0 and 2 to 7. Such ranges are not for
    deviceType auxNetDevice. Left out: any function.
    """
    root_devices: Many[words.RootDevice] = ()
    """rootDevices are PCI addresses of physical functions, with ranges of virtual functions as in
    pfNames. Left out: any function. Example: 0000:81:00.0#0,2-7.
    """
    link_types: Many[words.LinkType] = ()
    """linkTypes are ether (Ethernet, RoCE) and infiniband. A function with any of them matches.
    Left out: any link type.
    """
    p_keys: Many[words.PKey] = ()
    """pKeys are InfiniBand partition keys in hexadecimal. A function matches by the first P_Key of
    a port; the membership bit does not count. Not with deviceType auxNetDevice. Left out: any
    function. Example: 0x8001.
    """
    aux_types: Many[Literal["sf"]] = ()
    """auxTypes are types of auxiliary devices, only with deviceType auxNetDevice. The only value is
    sf (sub-function). Left out: sf.
    """
    is_rdma: bool = False
    """isRdma says whether a function must have an RDMA device. Left out: false, so functions
    without one match too.
    """
    need_vhost_net: bool = False
    """needVhostNet says whether containers of the pool also get /dev/vhost-net and /dev/net/tun.
    One selector that says true is enough. Left out: false.
    """
    ddp_profiles: Many[str] = ()
    """ddpProfiles is not supported: a list that is not empty is refused."""
    vdpa_type: str = ""
    """vdpaType is not supported: a text that is not empty is refused."""

    @field_validator("ddp_profiles", "vdpa_type")
    @classmethod
    def _unsupported(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if value:
            problem = "kube-rdma does not choose cards by DDP profile or vDPA type"
            remedy = "Remove the field, or let the SR-IOV network device plugin serve this pool"
            raise slips(Slip(problem, remedy))
        return value

    @property
    def given(self) -> tuple[str, ...]:
        """Return the names, as documents spell them, of the set fields that choose functions."""
        return tuple(
            str(field.alias)
            for name, field in type(self).model_fields.items()
            if getattr(self, name) and name != "need_vhost_net"
        )


def _as_list(value: object) -> object:
    return [value] if isinstance(value, dict) else value


class ListedResource(GoTyped):
    """One resource of virtual functions, or of sub-functions."""

    resource_name: words.Name = Field(examples=["sriov_rdma_a"])
    """resourceName is the part of the resource name after the slash. Example: sriov_rdma_a."""
    resource_prefix: words.Prefix = "intel.com"
    """resourcePrefix is the part of the resource name before the slash. Left out: intel.com."""
    device_type: Literal["netDevice", "auxNetDevice", "accelerator"] = "netDevice"
    """deviceType is netDevice (PCI functions) or auxNetDevice (sub-functions). accelerator is not
    supported and is refused. Left out: netDevice.
    """
    exclude_topology: bool = False
    """excludeTopology says whether the NUMA nodes of the functions are kept from the kubelet and
    its topology manager. Left out: false.
    """
    additional_info: words.Facts = Field(default_factory=dict)
    """additionalInfo is facts about functions, by PCI address or "*" for all. Containers find them
    as extraInfo in the variable PCIDEVICE_<RESOURCE>_INFO. Left out: none. Example: {"*": {"rail":
    "2"}}.
    """
    selectors: Annotated[
        Many[FunctionSelectors],
        BeforeValidator(
            _as_list, json_schema_input_type=FunctionSelectors | Many[FunctionSelectors]
        ),
    ] = Field(min_length=1, examples=[{"pfNames": ["ens2f0#0-3"], "isRdma": True}])
    """selectors choose the functions: one object, or a list of which one has to match. Example:
    {"pfNames": ["ens2f0#0-3"]}.
    """

    @field_validator("device_type")
    @classmethod
    def _network_only(cls, device_type: str) -> str:
        if device_type == "accelerator":
            problem = "kube-rdma offers network cards, and an accelerator is not one"
            remedy = (
                "Serve this pool with the SR-IOV network device plugin, which runs beside kube-rdma"
            )
            raise slips(Slip(problem, remedy))
        return device_type

    @field_validator("selectors")
    @classmethod
    def _of_the_type(
        cls, selectors: tuple[FunctionSelectors, ...], info: ValidationInfo
    ) -> tuple[FunctionSelectors, ...]:
        """Refuse selectors that choose nothing, or have fields that their device type lacks."""
        device_type = info.data.get("device_type")
        problems = [
            Slip(slip.problem, slip.remedy, (index, *slip.path))
            for index, choice in enumerate(selectors)
            for slip in _slips(choice, device_type)
        ]
        if problems:
            raise slips(*problems)
        return selectors


class ResourceList(GoTyped):
    """The whole file, as of the SR-IOV network device plugin."""

    resource_list: Many[ListedResource] = Field(
        min_length=1,
        examples=[[{"resourceName": "sriov_rdma_a", "selectors": {"pfNames": ["ens2f0#0-3"]}}]],
    )
    """resourceList is the list of pools; each is one resource of mode sriov."""


def load(document: Document) -> Config:
    """Return the configuration that the document means; raise Refused with all of its faults."""
    config = validate(ResourceList, document)
    return Config(tuple(_pool(one, n, document) for n, one in enumerate(config.resource_list)))


def _slips(selectors: FunctionSelectors, device_type: str | None) -> Iterator[Slip]:
    """Yield each fault of the selectors; `device_type` is None when that field is invalid."""
    if not selectors.given:
        remedy = 'Add a field that chooses, such as "pfNames": ["ens2f0#0-3"]'
        yield Slip("the selectors choose nothing", remedy)
    if device_type is None:
        return
    auxiliary = device_type == _AUXILIARY
    for name in selectors.given:
        if name in (_NOT_OF_AUXILIARY if auxiliary else _OF_AUXILIARY):
            other = "netDevice" if auxiliary else _AUXILIARY
            remedy = f'Remove it, or write "deviceType": "{other}"'
            yield Slip(f"this field is not for deviceType {device_type}", remedy, (name,))
    for name, texts in (("pfNames", selectors.pf_names), ("rootDevices", selectors.root_devices)):
        for index, text in enumerate(texts if auxiliary else ()):
            if "#" in text:
                remedy = f'Write "{text.partition("#")[0]}" for all of its sub-functions'
                yield Slip("sub-functions cannot be chosen by range", remedy, (name, index))


def _pool(resource: ListedResource, index: int, document: Document) -> PoolSpec:
    path = ("resourceList", index)
    auxiliary = resource.device_type == _AUXILIARY
    vhost = any(each.need_vhost_net for each in resource.selectors)
    return PoolSpec(
        f"{resource.resource_prefix}/{resource.resource_name}",
        Mode.SRIOV,
        source=document.where(path),
        selectors=tuple(
            _selector(each, document.where((*path, "selectors", n)), auxiliary=auxiliary)
            for n, each in enumerate(resource.selectors)
        ),
        attach=Attach.NONE,
        numa_hints=not resource.exclude_topology,
        variables=Variables.PCIDEVICE,
        extra_info=words.extra_info(resource.additional_info),
        device_files=tuple(CharKind),  # as that plugin
        extra_paths=_VHOST if vhost else (),
    )


def _selector(selectors: FunctionSelectors, source: str, *, auxiliary: bool) -> Selector:
    return Selector(
        source,
        vendors=tuple(v.lower() for v in selectors.vendors),
        device_ids=tuple(d.lower() for d in selectors.devices),
        drivers=selectors.drivers,
        link_types=selectors.link_types,
        pci_addresses=tuple(map(PciAddress, selectors.pci_addresses)),
        acpi_indexes=tuple(map(int, selectors.acpi_indexes)),
        physical=tuple(map(words.function_range, selectors.pf_names)),
        roots=tuple(map(words.root_range, selectors.root_devices)),
        auxiliary_types=("sf",) if auxiliary else (),
        pkeys=tuple(map(words.partition, selectors.p_keys)),
        rdma=True if selectors.is_rdma else None,
    )
