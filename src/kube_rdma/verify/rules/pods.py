"""Which RDMA devices a pod measures with: those that kube-rdma gave it, or those that it may open.

The annotation of kube-rdma tells device, GID and address by interface; such a pod is asked only for
the rates of its ports. Pods without one are asked for their devices too, by the script that their
programs have (nccl_env.sh). Of a pod with cards by ResourceClaims, whatever driver gave them, only
these count: a privileged pod may open all of its node. Both run in the pod, so what comes back is
looked at like any word of a stranger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_interface
from shlex import quote
from typing import Any

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen
from kube_rdma.model.claims.device import PublishedCard
from kube_rdma.model.device import PciAddress
from kube_rdma.model.verify.bandwidth import PairedPod, PodDevice
from kube_rdma.pools.rules.claimed_cards import rdma_devices
from kube_rdma.verify.rules.copies import LABEL

MOST_DEVICES = 64  # of a pod; its own word for them decides how long it is measured
OWN_STATUS = "kube-rdma.io/network-status"
# Behind what a probe reads: the way into a pod may have no end of its own (v4.channel.k8s.io).
_END = "# end of nccl_env.sh"
END_OF_INPUT = f"\n{_END}\n"
# Prints a line for each port that the pod's sysfs shows.
PORT_RATES = """\
for at in /sys/class/infiniband/*/ports/*; do
    [ -r "$at/rate" ] || continue
    device=${at%/ports/*} kind=soft
    [ ! -e "$device/device" ] || kind=card
    read -r rate <"$at/rate"
    echo "port ${device##*/} ${at##*/} $kind $rate"
done
"""
# The same, then runs its stdin, nccl_env.sh.
PROBE = f"""\
{PORT_RATES}text=
while IFS= read -r line && [ "$line" != "{_END}" ]; do
    text="$text$line
"
done
sh -c "$text" nccl_env.sh --format json 2>/dev/null || :
"""
# Prints where each device sits, for pods whose claims name cards by their PCI address.
PLACES = """\
for at in /sys/class/infiniband/*; do
    [ -e "$at/device" ] || continue
    place=$(cd -P "$at/device" && pwd -P) || continue
    echo "place ${at##*/} ${place##*/}"
done
"""
# Numbers have an end: Python refuses to read those of thousands of digits.
_PORT = re.compile(
    r"^port ([\w.:-]+) (\d{1,3}) (card|soft) (\d{1,9}(?:\.\d{1,9})?)\b", re.MULTILINE | re.ASCII
)
_PLACE = re.compile(
    r"^place ([\w.:-]+) ([0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])$", re.MULTILINE | re.ASCII
)
_NUMBER = re.compile(r"[0-9]{1,9}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}")


def names_devices(document: Mapping[str, Any]) -> bool:
    """Whether a pod's annotation has its devices, so that only the ports are to be asked for."""
    return bool(_of_annotation(_annotation(document)))


class _PlacedDevice(Frozen):
    """A device that the pod's sysfs shows."""

    name: str
    pci: PciAddress | None


def paired_pod(
    document: Mapping[str, Any], answer: str, cards: Iterable[PublishedCard] = ()
) -> PairedPod:
    """A pod out of its object and of what the probe printed in it; `cards` are those of its claims.

    A copy made for a node (verify/rules/copies) goes by the node's name.

    Raise Refused when it has no address or no device that perftest could use.
    """
    metadata, status = document["metadata"], document.get("status", {})
    where = f"pod/{metadata['name']}"
    if not status.get("podIP"):
        raise Refused(
            "it has no address, so it does not run",
            remedy=f"See `kubectl describe {quote(where)}`",
            where=where,
        )
    rates = {
        (name, int(port)): float(rate) if kind == "card" else None
        for name, port, kind, rate in _PORT.findall(answer)
    }
    devices = (
        _of_annotation(_annotation(document))
        or _of_claims(cards, answer, rates)
        or _of_script(answer)
    )[:MOST_DEVICES]
    if not devices:
        raise Refused(
            "it has no RDMA device of its own",
            remedy="Give it a share of a pool, and see `kube-rdma status`",
            where=where,
        )
    title = f"{metadata['namespace']}/{metadata['name']}"
    return PairedPod(
        title=document["spec"]["nodeName"] if LABEL in metadata.get("labels", {}) else title,
        namespace=metadata["namespace"],
        name=metadata["name"],
        address=status["podIP"],
        devices=tuple(
            PodDevice(d.name, d.port, d.gid_index, d.address, rates.get((d.name, d.port)))
            for d in devices
        ),
    )


def short_title(document: Mapping[str, Any]) -> str:
    """What a pod is called without its namespace; a copy goes by its node here too."""
    metadata = document["metadata"]
    is_copy = LABEL in metadata.get("labels", {})
    return str(document["spec"]["nodeName"] if is_copy else metadata["name"])


def _annotation(document: Mapping[str, Any]) -> str:
    return str(document["metadata"].get("annotations", {}).get(OWN_STATUS, ""))


def _of_annotation(text: str) -> list[PodDevice]:
    """In the order of the pod's networks; what has no RDMA device is left out."""
    devices = []
    for entry in _objects(text):
        name, index = entry.get("rdmaDevice"), entry.get("gidIndex")
        if isinstance(name, str) and _NAME.fullmatch(name):
            gid = index if type(index) is int and index >= 0 else None
            devices.append(PodDevice(name, gid_index=gid, address=_address(entry.get("ips"))))
    return devices


def _of_claims(
    cards: Iterable[PublishedCard], answer: str, ports: Iterable[tuple[str, int]]
) -> list[PodDevice]:
    """The cards of claims that the pod shows, in their order, with the script's GID."""
    listed = tuple(ports)
    places = dict(_PLACE.findall(answer))
    shown = [
        _PlacedDevice(name, PciAddress(places[name]) if name in places else None)
        for name in dict.fromkeys(name for name, _ in listed)
    ]
    by_name: dict[str, list[PodDevice]] = {}
    for device in _of_script(answer):
        by_name.setdefault(device.name, []).append(device)
    chosen = [device.name for card in cards for device in rdma_devices(card, shown)]
    return [
        device
        for name in dict.fromkeys(chosen)
        if _NAME.fullmatch(name)
        for device in by_name.get(name)
        or [PodDevice(name, at) for own, at in listed if own == name]
    ]


def _of_script(answer: str) -> list[PodDevice]:
    """What nccl_env.sh found: one GID index for all, where they have one."""
    last = answer.strip().rpartition("\n")[2]
    variables = next(iter(_objects(f"[{last}]")), {})
    index = _word(variables.get("UCX_IB_GID_INDEX"))
    gid = int(index) if _NUMBER.fullmatch(index) else None
    devices = []
    for entry in _word(variables.get("UCX_NET_DEVICES")).split(","):
        name, _, port = entry.partition(":")
        if _NAME.fullmatch(name) and _NUMBER.fullmatch(port):
            devices.append(PodDevice(name, int(port), gid))
    return devices


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _objects(text: str) -> Sequence[Mapping[str, Any]]:
    try:
        listed = decoded(text)
    except Undecodable:
        return []
    entries = listed if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _address(ips: object) -> str | None:
    """The first of an interface's addresses."""
    for entry in ips if isinstance(ips, list) else []:
        with suppress(ValueError):
            return str(ip_interface(entry).ip)
    return None
