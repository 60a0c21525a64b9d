"""Finds the RDMA devices of pods that measure and their rails, and makes kube-rdma's own pods.

The annotation of kube-rdma tells device, GID and address by interface. Pods with it are asked only
for the rates of their ports. Other pods are asked for their devices too, by the script
that their programs have (nccl_env.sh). Where a pod shows cards that it has by claims of any driver,
only these count: a privileged pod may open all devices of its node. All of this comes out of the
pod, so it is checked like any foreign text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_interface
from shlex import quote
from typing import Any

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.model.claims.devices import PublishedCard
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools import Bind
from kube_rdma.model.reports import NodeReport, ReportedPool
from kube_rdma.model.verify import PairedPod, PodDevice
from kube_rdma.pools.rules.claimed_cards import rdma_devices
from kube_rdma.pools.rules.modes import MODES, ModeRow, Takes
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
    """Decide whether a pod's annotation lists its devices, so that only ports must be read."""
    return bool(_of_annotation(_annotation(document)))


class _PlacedDevice(Frozen):
    """An RDMA device in a pod's sysfs, with its PCI function."""

    name: str
    pci: PciAddress | None


def paired_pod(
    document: Mapping[str, Any], answer: str, cards: Iterable[PublishedCard] = ()
) -> PairedPod:
    """Combine a pod's object and the probe's output; `cards` are those of its claims.

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
        or of_script(answer)
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
    """Return a pod's name without its namespace; for a copy, the name of its node."""
    metadata = document["metadata"]
    is_copy = LABEL in metadata.get("labels", {})
    return str(document["spec"]["nodeName"] if is_copy else metadata["name"])


def _annotation(document: Mapping[str, Any]) -> str:
    return str(document["metadata"].get("annotations", {}).get(OWN_STATUS, ""))


def _of_annotation(text: str) -> list[PodDevice]:
    """Return the devices that the annotation lists, in the order of the pod's networks."""
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
    """Return the devices of claimed cards in the pod, in the cards' order.

    They have the GID index of the script where it lists them.
    """
    listed = tuple(ports)
    places = dict(_PLACE.findall(answer))
    shown = [
        _PlacedDevice(name, PciAddress(places[name]) if name in places else None)
        for name in dict.fromkeys(name for name, _ in listed)
    ]
    by_name: dict[str, list[PodDevice]] = {}
    for device in of_script(answer):
        by_name.setdefault(device.name, []).append(device)
    chosen = [device.name for card in cards for device in rdma_devices(card, shown)]
    return [
        device
        for name in dict.fromkeys(chosen)
        if _NAME.fullmatch(name)
        for device in by_name.get(name)
        or [PodDevice(name, at) for own, at in listed if own == name]
    ]


def of_script(answer: str) -> list[PodDevice]:
    """Return the devices that nccl_env.sh found, with the one GID index it chose for all."""
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
    """Return the first valid address in an annotation's list of IPs; None without one."""
    for entry in ips if isinstance(ips, list) else []:
        with suppress(ValueError):
            return str(ip_interface(entry).ip)
    return None


# Pods of `kube-rdma verify nodes` without a manifest, made from the nodes' NodeReports.

_FUNCTIONS = (
    "its pool gives virtual functions, which have no address on the node; give a pod with their "
    "network by -f"
)


class OwnPods(Frozen):
    """The pods to create for a resource, one per node, and why other nodes get none."""

    resource: str
    by_node: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, str]
    cards: tuple[tuple[str, str, str], ...] = ()  # unhealthy ones: node, card and reason


def own_pods(reports: Mapping[str, NodeReport], resource: str, image: str) -> OwnPods:
    """Return a pod for each node that has a resource, by default the cluster's only resource.

    Raise Refused for an unknown resource, and without a name where the cluster has none or several.
    """
    chosen = _chosen(reports, resource)
    by_node: dict[str, Mapping[str, Any]] = {}
    left_out: dict[str, str] = {}
    cards: list[tuple[str, str, str]] = []
    for node, report in sorted(reports.items()):
        pool = next((pool for pool in report.pools if pool.resource == chosen), None)
        why = f"its NodeReport has no pool {chosen}" if pool is None else _hindered(pool)
        if pool is None or why:
            left_out[node] = why
            continue
        by_node[node] = own_pod(chosen, _shares(pool, report), image)
        cards += [(node, name, why) for name, why in _unhealthy(report, chosen)]
    return OwnPods(chosen, by_node, left_out, tuple(cards))


def own_pod(resource: str, shares: int, image: str) -> dict[str, Any]:
    """Return a pod on the node's own network, with the right to lock memory for RDMA.

    It tolerates NoSchedule taints: nodes with cards often have one.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {},
        "spec": {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
            "containers": [
                {
                    "name": "verify",
                    "image": image,
                    "resources": {"limits": {resource: shares}},
                    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                }
            ],
        },
    }


def _chosen(reports: Mapping[str, NodeReport], wanted: str) -> str:
    names = sorted({pool.resource for report in reports.values() for pool in report.pools})
    if not names:
        raise Refused(
            "no NodeReport has a pool of cards",
            remedy="See `kube-rdma status`, or give the manifest of a pod with -f",
            where="verify nodes",
        )
    listed = ", ".join(names)
    if wanted and wanted not in names:
        raise Refused(
            f"no NodeReport has a pool {wanted}",
            remedy=f"Choose one of {listed}",
            where="--resource",
        )
    if not wanted and len(names) > 1:
        raise Refused(
            f"the nodes have {len(names)} resources",
            remedy=f"Choose one with --resource: {listed}",
            where="verify nodes",
        )
    return wanted or names[0]


def _hindered(pool: ReportedPool) -> str:
    """Return why a pod on the node's network cannot measure with a pool's share, else ""."""
    row = _row(pool)
    if row is not None and row.takes is Takes.FUNCTION:
        return _FUNCTIONS
    return "" if pool.healthy else f"no share of {pool.resource} is healthy"


def _row(pool: ReportedPool) -> ModeRow | None:
    """Return the properties of a pool's mode; None for a mode of a later release."""
    return next((row for mode, row in MODES.items() if mode == pool.mode), None)


def _shares(pool: ReportedPool, report: NodeReport) -> int:
    """Return how many shares to ask for: 1 if a share is the pool, else 1 per healthy card."""
    if pool.bind == Bind.POOL:
        return 1
    cards = [card for card in report.cards if pool.resource in card.resources]
    healthy = sum(not card.reasons and not card.gone for card in cards)
    return max(1, min(healthy or pool.cards, pool.healthy))


def _unhealthy(report: NodeReport, resource: str) -> Iterator[tuple[str, str]]:
    for card in report.cards:
        if resource not in card.resources:
            continue
        if card.gone:
            yield card.name, "the node no longer has this card"
        elif card.reasons:
            yield card.name, card.reasons[0]


# The rail of a device is its place, or follows its name where pods have unlike numbers of them.


def with_rails(pods: Sequence[PairedPod]) -> list[PairedPod]:
    """Return the pods; those with fewer devices take the rails of the same names in a full pod."""
    most = max((len(pod.devices) for pod in pods), default=0)
    whole = Counter(_names(pod) for pod in pods if len(pod.devices) == most)
    usual = whole.most_common(1)[0][0] if whole else ()
    return [_placed(pod, usual) for pod in pods]


def _placed(pod: PairedPod, usual: tuple[str, ...]) -> PairedPod:
    names = _names(pod)
    are_unique = len(set(names)) == len(names) and len(set(usual)) == len(usual)
    if len(names) == len(usual) or not are_unique or not set(names) <= set(usual):
        return pod
    return replace(pod, rails=tuple(usual.index(name) for name in names))


def _names(pod: PairedPod) -> tuple[str, ...]:
    return tuple(device.name for device in pod.devices)


def lonely(pods: Sequence[PairedPod]) -> Iterator[tuple[str, str]]:
    """Yield devices on a rail of no other pod, with that reason; none for fewer than two pods."""
    if len(pods) < 2:
        return
    members = Counter(rail for pod in pods for rail in pod.by_rail)
    for pod in pods:
        for rail, device in pod.by_rail.items():
            if members[rail] == 1:
                yield f"{pod.title} {device.name}", f"no other pod has a device on rail {rail}"
