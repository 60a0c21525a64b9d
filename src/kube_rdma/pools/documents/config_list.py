"""Reads the dialect ``configList``: config.json of the shared RDMA device plugin.

Every pool is of mode hca: `rdmaHcaMax` shares, each for all cards of the pool. Shares are called as
that plugin calls them, so that either takes over a node from the other while pods hold some
(docs/decisions/0107). Some things that the plugin lets pass are refused: an `rdmaHcaMax` of zero or
none at all, and a field that it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import Field, ValidationInfo, field_validator

from kube_rdma.lib.text.document import Document
from kube_rdma.lib.text.faults import Slip, slips, validate
from kube_rdma.lib.text.typed import MOST_SHARES, RESCAN, Config, GoTyped, Many
from kube_rdma.lib.text.words import DeviceId, Driver, Interface, LinkType, Name, Prefix, Vendor
from kube_rdma.model.device import CharKind
from kube_rdma.model.pools import Bind, Mode, PoolSpec, Selector

_A_DAY = 86_400  # seconds
_INSTEAD = 'Add "selectors": {"ifNames": ["ens2f0"]}, or other fields of it'


class CardSelectors(GoTyped):
    """A choice of cards: every list that is not empty must match, by any value of it."""

    vendors: Many[Vendor] = ()
    """vendors are PCI vendor IDs, four hexadecimal digits each. A card with any of them matches.
    Left out: any vendor. Example: 15b3.
    """
    device_ids: Many[DeviceId] = Field((), alias="deviceIDs")
    """deviceIDs are PCI device IDs, four hexadecimal digits each. A card with any of them matches.
    Left out: any device. Example: 1017.
    """
    drivers: Many[Driver] = ()
    """drivers are names of kernel drivers. A card with any of them matches. Left out: any driver.
    Example: mlx5_core.
    """
    if_names: Many[Interface] = ()
    """ifNames are names of network interfaces on the node. A card with any of them matches. Left
    out: any interface. Example: ens2f0.
    """
    link_types: Many[LinkType] = ()
    """linkTypes are ether (Ethernet, RoCE) and infiniband. A card with any of them matches. Left
    out: any link type.
    """

    @property
    def choose(self) -> bool:
        """Decide whether any field is set; an empty list counts as left out."""
        return any(getattr(self, name) for name in type(self).model_fields)


class SharedPool(GoTyped):
    """One resource: `rdmaHcaMax` shares of all its cards together."""

    resource_name: Name = Field(examples=["hca_shared_devices_a"])
    """resourceName is the part of the resource name after the slash. Example: hca_shared_devices_a.
    """
    resource_prefix: Prefix = "rdma"
    """resourcePrefix is the part of the resource name before the slash. Left out: rdma."""
    rdma_hca_max: int = Field(ge=1, le=MOST_SHARES, examples=[1000])
    """rdmaHcaMax is the number of shares of the whole pool, not of each card. Example: 1000."""
    devices: Many[Interface] = ()
    """devices are names of network interfaces. They are deprecated: write them into
    selectors.ifNames. A pool has either devices or selectors.
    """
    selectors: CardSelectors | None = Field(None, validate_default=True)
    """selectors choose the cards of the pool; every field that is given must match. A pool has
    either devices or selectors.
    """

    @field_validator("selectors")
    @classmethod
    def _one_choice(
        cls, selectors: CardSelectors | None, info: ValidationInfo
    ) -> CardSelectors | None:
        """Refuse a pool with both selectors and `devices`, or neither.

        Refuse nothing if `devices`, which Pydantic validates first, is invalid.
        """
        chosen = selectors is not None and selectors.choose
        if "devices" in info.data and chosen == bool(info.data["devices"]):
            if chosen:
                problem = "selectors and devices are both given, and only one can choose the cards"
                raise slips(Slip(problem, "Move the names from devices to selectors.ifNames"))
            raise slips(Slip("nothing says which cards the pool has", _INSTEAD))
        return selectors


class ConfigList(GoTyped):
    """The whole file, as of the shared RDMA device plugin."""

    periodic_update_interval: int = Field(RESCAN, ge=0, le=_A_DAY)
    """periodicUpdateInterval is the number of seconds between two looks at the node's cards when
    the kernel announces no change. 0: no such looks. Left out: 300.
    """
    config_list: Many[SharedPool] = Field(
        min_length=1,
        examples=[[{"resourceName": "a", "rdmaHcaMax": 1000, "selectors": {"vendors": ["15b3"]}}]],
    )
    """configList is the list of pools; each is one resource of mode hca."""


def load(document: Document) -> Config:
    """Return the configuration that the document means; raise Refused with all of its faults."""
    config = validate(ConfigList, document)
    pools = (_pool(one, index, document) for index, one in enumerate(config.config_list))
    return Config(tuple(pools), config.periodic_update_interval, tuple(_warnings(config)))


def _pool(pool: SharedPool, index: int, document: Document) -> PoolSpec:
    path = ("configList", index)
    wanted = pool.selectors if pool.selectors and pool.selectors.choose else None
    if wanted is None:
        selector = Selector(document.where((*path, "devices")), interfaces=pool.devices)
    else:
        selector = Selector(
            document.where((*path, "selectors")),
            vendors=tuple(v.lower() for v in wanted.vendors),
            device_ids=tuple(d.lower() for d in wanted.device_ids),
            drivers=wanted.drivers,
            interfaces=wanted.if_names,
            link_types=wanted.link_types,
        )
    return PoolSpec(
        f"{pool.resource_prefix}/{pool.resource_name}",
        Mode.HCA,
        source=document.where(path),
        selectors=(selector,),
        shares=pool.rdma_hca_max,
        bind=Bind.POOL,
        device_files=tuple(CharKind),  # as that plugin
        bare_ids=True,
    )


def _warnings(config: ConfigList) -> Iterator[str]:
    """Yield a warning for each name that pools have under several prefixes."""
    full = {(one.resource_prefix, one.resource_name) for one in config.config_list}
    for name, count in Counter(name for _, name in full).items():
        if count > 1:
            yield (
                f"{count} pools are named {name} under different prefixes; "
                "the shared RDMA device plugin would refuse that, kube-rdma does not"
            )
