"""The annotation ``k8s.volcengine.com/network-status``: what pods that ask in that way are told.

Written as Cello's meta plugin does: the cluster's network first, then one object for each entry,
each indented by four. kube-rdma's own annotation (network_status) stands beside it and has more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from kube_rdma.model.attach.attachment import Attached
from kube_rdma.model.attach.cni import CniResult

ANNOTATION = "k8s.volcengine.com/network-status"

Json: TypeAlias = dict[str, Any]


def status(attached: Sequence[Attached], cluster: str, result: CniResult | None) -> str:
    """The annotation; `cluster` is the name of the cluster's network, `result` what it made.

    Without a result there is no entry for it.
    """
    entries = [] if result is None else [_of_cluster(cluster, result)]
    entries += [
        _entry(
            one.network.partition("/")[2],
            one.interface,
            [str(each.address) for each in one.addresses],
            one.mac,
        )
        for one in attached
    ]
    return f"[{','.join(json.dumps(one, indent=4, ensure_ascii=False) for one in entries)}]"


def _of_cluster(name: str, result: CniResult) -> Json:
    """The last of the interfaces in the pod, as there."""
    inside = [link for link in result.links if link.sandbox]
    link = inside[-1] if inside else None
    addresses = [str(one.address.ip) for one in result.addresses]
    return _entry(name, link.name if link else "", addresses, link.mac if link else "")


def _entry(name: str, interface: str, addresses: list[str], mac: str) -> Json:
    """What is empty is left out, but never the device itself."""
    device = {"ifName": interface, "ips": addresses, "mac": mac}
    device_info = {key: value for key, value in device.items() if value}
    return {"cniName": name, "deviceInfo": device_info}
