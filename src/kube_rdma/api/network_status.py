"""The annotations that tell a pod's networks: the one that everybody reads, and ours with RDMA.

``k8s.v1.cni.cncf.io/network-status`` is written byte for byte as Multus does, because tools compare
it: objects indented by four, joined by commas, empty fields left out, ``dns`` always there. Whoever
reads a pod's annotation writes all of it, so it is written whole: the first is the cluster's
network, the only one that is called default. Ours says besides which RDMA device and GID an
interface has, for the applications and the tools that need them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

from kube_rdma.model.attachment import Attached
from kube_rdma.model.cni import Dns, Result

ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
OWN_ANNOTATION = "kube-rdma.io/network-status"
DEVICE_INFO_VERSION = "1.1.0"

Json: TypeAlias = dict[str, Any]


def status(
    attached: Sequence[Attached], cluster: str = "", result: Result | None = None, before: str = ""
) -> str:
    """The annotation: the cluster's network, then our interfaces.

    `cluster` and `result` make the first entry: the network of the cluster and what its plugins
    answered for this sandbox. Nobody tells it to an ADD that is made late; then the first entry
    stays as it is in `before`, which the pod has now.
    """
    if result is not None:
        first = [_of_cluster(cluster, result)]
    else:
        first = [one for one in _entries(before) if one.get("default") is True][:1]
    return _joined([*first, *map(_entry, attached)])


def own_status(attached: Sequence[Attached], before: str = "", others: Collection[str] = ()) -> str:
    """Our annotation: one object for each interface, in the order of the pod's networks.

    Of `before`, which the pod has now, only what is about the interfaces `others` stays.
    """
    kept = [one for one in _entries(before) if one.get("interface") in others]
    return json.dumps([*kept, *map(_own, attached)], separators=(",", ":"))


def _entries(text: str) -> list[Json]:
    """The entries of an annotation; what is no list of objects is not worth keeping."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _joined(entries: Iterable[Json]) -> str:
    return f"[{','.join(json.dumps(one, indent=4, ensure_ascii=False) for one in entries)}]"


def _entry(one: Attached) -> Json:
    return {
        "name": one.network,
        **_said(
            interface=one.interface,
            ips=[str(each.address) for each in one.addresses],
            mac=one.mac,
            mtu=one.mtu,
        ),
        "dns": _dns(one.dns),
        **_said(**{"device-info": _device_info(one)}, gateway=list(map(str, one.default_routes))),
    }


def _device_info(one: Attached) -> Json:
    if one.pci is None:
        return {}
    names = {
        "pci-address": one.pci,
        "rdma-device": one.rdma_device,
        "pf-pci-address": one.physical,
    }
    return {"type": "pci", "version": DEVICE_INFO_VERSION, "pci": _said(**names)}


def _of_cluster(name: str, result: Result) -> Json:
    """The first entry, out of what the plugins before us answered: only what is in the pod."""
    inside = [(at, link) for at, link in enumerate(result.links) if link.sandbox]
    at, link = inside[0] if inside else (None, None)
    addresses = [one for one in result.addresses if at is None or one.link in (None, at)]
    return {
        "name": name,
        **_said(
            interface=link.name if link else "",
            ips=[str(one.address.ip) for one in addresses],
            mac=link.mac if link else "",
            mtu=link.mtu if link else 0,
        ),
        "default": True,
        "dns": _dns(result.dns),
        **_said(
            gateway=[str(one.via) for one in result.routes if one.via and not one.to.prefixlen]
        ),
    }


def _dns(dns: Dns | None) -> Json:
    if dns is None:
        return {}
    return _said(
        nameservers=list(dns.nameservers),
        domain=dns.domain,
        search=list(dns.search),
        options=list(dns.options),
    )


def _own(one: Attached) -> Json:
    return {
        "name": one.network,
        "interface": one.interface,
        **_said(
            ips=[f"{each.address}/{each.prefix}" for each in one.addresses],
            mtu=one.mtu,
            card=one.card,
            rdmaDevice=one.rdma_device,
            gid=one.gid,
        ),
        **({} if one.gid_index is None else {"gidIndex": one.gid_index}),
    }


def _said(**values: object) -> Json:
    """What is not empty, as Go's omitempty leaves it out."""
    return {key: value for key, value in values.items() if value not in (None, "", [], {}, 0)}
