"""Writes the annotations with a pod's networks as they are: in others' forms, and kube-rdma's own.

``k8s.v1.cni.cncf.io/network-status`` is written as Multus writes it. Objects are indented by four
and joined by commas, empty fields are left out, and ``dns`` is always there. It is written whole,
as each writer of an annotation replaces all of it. The cluster's network comes first, one of its
entries marked as default. kube-rdma's own annotation also has the RDMA device and GID of an
interface, for applications and tools. A pod that asks in Cello's way gets
``k8s.volcengine.com/network-status`` in place of Multus' annotation, as Cello's meta plugin writes
it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_interface
from typing import Any, TypeAlias

from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.model.attach.attachment import AttachedInterface, InterfaceAddress
from kube_rdma.model.attach.cni import Call, CniInterface, CniResult, Dns, LinkAddress
from kube_rdma.model.card import CardId
from kube_rdma.model.doctor import AddressUse
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState

ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
OWN_ANNOTATION = "kube-rdma.io/network-status"
POD_NETWORKS_STATUS = "k8s.volcengine.com/network-status"
_POD_NETWORKS = "k8s.volcengine.com/pod-networks"  # its models (pod_networks) are not needed here
DEVICE_INFO_VERSION = "1.1.0"

Json: TypeAlias = dict[str, Any]


def statuses(
    pod: PodState, interfaces: Sequence[AttachedInterface], call: Call
) -> tuple[tuple[str, str], ...]:
    """Return keys and texts of status annotations: Multus' or Cello's, and kube-rdma's own."""
    annotations = dict(pod.annotations)
    own = (OWN_ANNOTATION, own_status(interfaces))
    if annotations.get(_POD_NETWORKS, "").strip():
        text = pod_networks_status(interfaces, call.network, call.previous)
        return (POD_NETWORKS_STATUS, text), own
    before = annotations.get(ANNOTATION, "")
    return (ANNOTATION, status(interfaces, call.network, call.previous, before)), own


def status(
    attached: Sequence[AttachedInterface],
    cluster: str = "",
    result: CniResult | None = None,
    before: str = "",
) -> str:
    """Return the text of network-status: the cluster's network, then kube-rdma's interfaces.

    `cluster` and `result` make the first entries: the network of the cluster and what its plugins
    answered for this sandbox. An ADD that is made late has no `result`; then these entries stay as
    they are in `before`, the annotation that the pod has now.
    """
    first = _of_cluster(cluster, result) if result is not None else _clusters(before)
    return _joined([*first, *map(_entry, attached)])


def pod_networks_status(
    attached: Sequence[AttachedInterface], cluster: str, result: CniResult | None
) -> str:
    """Return the status annotation for pods that ask by ``k8s.volcengine.com/pod-networks``.

    Without a result the cluster's network has no entry.
    """
    entries = []
    if result is not None:  # Cello reports the last of the interfaces in the pod
        inside = [link for link in result.links if link.sandbox]
        link = inside[-1] if inside else None
        addresses = [str(one.address.ip) for one in result.addresses]
        mac = link.mac if link else ""
        entries.append(_block(cluster, link.name if link else "", addresses, mac))
    for one in attached:
        addresses = [str(each.address) for each in one.addresses]
        entries.append(_block(one.network.partition("/")[2], one.interface, addresses, one.mac))
    return _joined(entries)


def own_status(
    attached: Sequence[AttachedInterface], before: str = "", others: Collection[str] = ()
) -> str:
    """Return the text of kube-rdma's own annotation: one object for each interface.

    Of the present text `before`, only entries about the interfaces `others` stay.
    """
    kept = [one for one in _entries(before) if _text(one.get("interface")) in others]
    return json.dumps([*kept, *map(_own, attached)], separators=(",", ":"))


def address_uses(pod: str, text: str) -> Iterator[AddressUse]:
    """Yield the addresses in a pod's status annotation, except the cluster network's."""
    clusters = _clusters(text)
    for entry in (one for one in _entries(text) if one not in clusters):
        addresses = entry.get("ips")
        for address in addresses if isinstance(addresses, list) else ():
            network, interface = str(entry.get("name", "")), str(entry.get("interface", ""))
            yield AddressUse(pod, network, interface, str(address))


def own_attached(text: str) -> Iterator[AttachedInterface]:
    """Yield the interfaces in kube-rdma's own annotation; skip malformed entries."""
    for entry in _entries(text):
        network, interface, index = (entry.get(key) for key in ("name", "interface", "gidIndex"))
        if not isinstance(network, str) or not isinstance(interface, str):
            continue
        addresses, mtu = entry.get("ips"), entry.get("mtu")
        yield AttachedInterface(
            network=network,
            interface=InterfaceName(interface),
            mac="",
            mtu=mtu if type(mtu) is int else 0,
            addresses=tuple(_addresses(addresses if isinstance(addresses, list) else ())),
            rdma_device=_text(entry.get("rdmaDevice")),
            gid=_text(entry.get("gid")),
            gid_index=index if type(index) is int else None,
            card=CardId(card) if (card := _text(entry.get("card"))) else None,
        )


def _addresses(texts: Iterable[object]) -> Iterator[InterfaceAddress]:
    for text in texts:
        with suppress(ValueError):
            whole = ip_interface(str(text))
            yield InterfaceAddress(whole.ip, whole.network.prefixlen)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _clusters(text: str) -> list[Json]:
    """Return the status entries of the cluster's network: the default, and others of its name."""
    entries = _entries(text)
    names = [one.get("name") for one in entries if one.get("default") is True][:1]
    return [one for one in entries if one.get("name") in names]


def _entries(text: str) -> list[Json]:
    """Return the objects in an annotation's list; none if it is no list."""
    try:
        entries = decoded(text)
    except Undecodable:
        return []
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []


def _joined(entries: Iterable[Json]) -> str:
    return f"[{','.join(json.dumps(one, indent=4, ensure_ascii=False) for one in entries)}]"


def _entry(attached: AttachedInterface) -> Json:
    device_info: Json = {}
    if attached.pci is not None:
        own, above = attached.pci, attached.physical
        names = {"pci-address": own, "rdma-device": attached.rdma_device, "pf-pci-address": above}
        pci = _without_empty(**names)
        device_info = {"type": "pci", "version": DEVICE_INFO_VERSION, "pci": pci}
    return _multus_entry(
        attached.network,
        attached.dns,
        {"device-info": device_info, "gateway": list(map(str, attached.default_routes))},
        interface=attached.interface,
        ips=[str(each.address) for each in attached.addresses],
        mac=attached.mac,
        mtu=attached.mtu,
    )


def _multus_entry(name: str, dns: Dns | None, last: Json, **facts: object) -> Json:
    """Return a status entry with its keys in Multus' order, without empty fields but dns."""
    return {"name": name, **_without_empty(**facts), "dns": _dns(dns), **_without_empty(**last)}


def _of_cluster(name: str, result: CniResult) -> list[Json]:
    """Return the status entries of the cluster's network: one for each link in the pod, else one.

    The client library of these annotations does so (CreateNetworkStatuses). The default one is the
    link with the first gateway, or else the first. Addresses of no link belong to the last link;
    where there is one link, all belong to it.
    """
    inside = [(at, link) for at, link in enumerate(result.links) if link.sandbox]
    if not inside:
        return [_of_link(name, result, None, result.addresses, is_default=True)]
    places = [at for at, _ in inside]
    gates = [one.link for one in result.addresses if one.gateway and one.link in places]
    default = gates[0] if gates else places[0]
    entries = []
    for at, link in inside:
        own = {at, None} if at == places[-1] else {at}
        addresses = [one for one in result.addresses if one.link in own or len(result.links) == 1]
        is_default = at == default or len(result.links) == 1
        entries.append(_of_link(name, result, link, addresses, is_default=is_default))
    return entries


def _of_link(
    name: str,
    result: CniResult,
    link: CniInterface | None,
    addresses: Iterable[LinkAddress],
    *,
    is_default: bool,
) -> Json:
    hops = [str(one.via) for one in result.routes if one.via and not one.to.prefixlen]
    return _multus_entry(
        name,
        result.dns,
        {"gateway": hops},
        interface=link.name if link else "",
        ips=[str(one.address.ip) for one in addresses],
        mac=link.mac if link else "",
        mtu=link.mtu if link else 0,
        default=is_default,
    )


def _dns(dns: Dns | None) -> Json:
    if dns is None:
        return {}
    return _without_empty(
        nameservers=list(dns.nameservers),
        domain=dns.domain,
        search=list(dns.search),
        options=list(dns.options),
    )


def _own(attached: AttachedInterface) -> Json:
    return {
        "name": attached.network,
        "interface": attached.interface,
        **_without_empty(
            ips=[f"{each.address}/{each.prefix}" for each in attached.addresses],
            mtu=attached.mtu,
            card=attached.card,
            rdmaDevice=attached.rdma_device,
            gid=attached.gid,
        ),
        **({} if attached.gid_index is None else {"gidIndex": attached.gid_index}),
    }


def _without_empty(**values: object) -> Json:
    """Return the fields that are not empty, as Go's omitempty does."""
    return {key: value for key, value in values.items() if value not in (None, "", [], {}, 0)}


def _block(name: str, interface: str, addresses: list[str], mac: str) -> Json:
    """Return an interface's status entry in Cello's form, without empty fields."""
    device = {"ifName": interface, "ips": addresses, "mac": mac}
    device_info = {key: value for key, value in device.items() if value}
    return {"cniName": name, "deviceInfo": device_info}
