"""Finds variables that keep NCCL or UCX from the devices and interfaces of their container.

`config check` and explain judge the values that a template has, the doctor those of a process, in
the same words. Forms of values: docs.nvidia.com NCCL "Environment Variables", and UCX's own
``ucx_info -cf``; both read ``^`` before a list as: all except these.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatch

from kube_base.frozen import replace
from kube_rdma.admission.rules.near_misses import KEYS
from kube_rdma.admission.rules.networks import network_need, network_of
from kube_rdma.admission.rules.shares import PodReview, asked, candidates
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission import ContainerTemplate
from kube_rdma.model.attach import kinds
from kube_rdma.model.device import Device
from kube_rdma.model.finding import Finding, Severity

_HCA, _UCX, _SOCKET = "NCCL_IB_HCA", "UCX_NET_DEVICES", "NCCL_SOCKET_IFNAME"
_INDEX = re.compile(r"[0-9]{1,9}")
_UNKNOWN = re.compile(r"[$<{]")  # a value that is filled in later
# Names that drivers give RDMA devices, and rdma-core's udev rules (rdma-persistent-naming).
_RDMA_DEVICE = re.compile(
    r"(?:mlx[45]|bnxt_re|irdma|qedr|hns|erdma|mana|rxe|siw|ionic|rdmap|roce|ibp|ibo)[-_a-z0-9]*"
)
# Annotations by which others than Multus and kube-rdma give a pod interfaces.
_OTHERS = re.compile(r"network|interface|\beni\b", re.IGNORECASE)


def switches(values: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each variable that is wrong in every container, with its name as code."""
    if values.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        yield _wrong("NCCL_IB_DISABLE", values, "switches RDMA off")
    if values.get("NCCL_NET", "").lower() == "socket":
        yield _wrong("NCCL_NET", values, "chooses TCP")
    words = _words(values.get(_UCX, ""))
    if bare := [word for word in words if _RDMA_DEVICE.fullmatch(word)]:
        right = ",".join(f"{word}:1" if word in bare else word for word in words)
        why = f"has {listed(bare)} without a port, and UCX below 1.21 knows no such device"
        remedy = f"Write {_UCX}={right}, or leave it out"
        yield replace(_wrong(_UCX, values, why, remedy), severity=Severity.WARNING)


def off_devices(values: Mapping[str, str], devices: Collection[Device]) -> Iterator[Finding]:
    """Yield a finding for each variable that excludes all RDMA devices of the container."""
    ports = [(one.name, str(port.number)) for one in devices for port in one.ports]
    for name in (_HCA, _UCX):
        if ports and not _leaves_any(values.get(name, ""), ports, exact=name == _UCX):
            names = listed(sorted({device for device, _ in ports}))
            yield _wrong(name, values, f"matches none of the container's devices: {names}")


def off_interfaces(values: Mapping[str, str], interfaces: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if NCCL_SOCKET_IFNAME excludes all interfaces of the pod."""
    text = values.get(_SOCKET, "")
    if len(text) < len("^="):  # as findInterfaces of NCCL asks: one character is no list
        return
    kept = [name for name in interfaces if name != "lo" or not text.startswith("^")]
    # Some plugins make several interfaces of one network: multi-nic CNI net1-0, net1-1.
    if any(word.startswith(f"{name}-") for word in _words(text) for name in kept):
        return
    if kept and not _leaves_any(text, [(name, "") for name in kept], exact=False):
        why = f"matches none of the pod's interfaces: {listed(kept)}"
        remedy = f"Leave {_SOCKET} out of the pod and the image, or name an interface of the pod"
        yield _wrong(_SOCKET, values, why, remedy)


def fixed_indexes(values: Mapping[str, str]) -> Iterator[tuple[int, Finding]]:
    """Yield fixed GID indexes, each with a finding for cards that several pods share."""
    why = "is fixed, and the index of a pod's GID on a shared card differs from pod to pod"
    for name in ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX"):
        remedy = f"Leave {name} out: UCX finds the index, and NCCL from 2.21 on"
        if _INDEX.fullmatch(values.get(name, "")):
            yield int(values[name]), _wrong(name, values, why, remedy)


def variables(review: PodReview) -> Iterator[Finding]:
    """Report environment variables in a pod template that are wrong in all of its pods."""
    interfaces = _interfaces(review)
    tied = filter(None, (network_of(ask, review) for ask in review.pod.networks))
    virtual = [one.resource for one in tied if not isinstance(one, kinds.DeviceNetwork)]
    sure = [name for name in virtual if name and network_need(name, review) is Severity.WARNING]
    for container in dict.fromkeys(each for each, _ in asked(review.pod, review.settings.shares)):
        values = {name: text for name, text in container.env if not _UNKNOWN.search(text)}
        faults = [*switches(values), *off_interfaces(values, interfaces)]
        faults += off_devices(values, _devices(container, review))
        faults += [fault for _, fault in fixed_indexes(values)] if sure else []
        at = {name: place for place, (name, _) in enumerate(container.env)}
        for one in faults:
            # A program may have RDMA by UCX while NCCL has none.
            is_choice = one.code in ("NCCL_IB_DISABLE", "NCCL_NET")
            severity = Severity.ADVICE if is_choice else Severity.WARNING
            path = (*container.path, "env", at[one.code])
            yield Finding.of("variables", path, one.problem, one.remedy, severity)


def _devices(container: ContainerTemplate, review: PodReview) -> list[Device]:
    """Return the RDMA devices of the pools that a container asks for; none if not all are known."""
    pools = (p for a in container.asks for p in candidates(review.pod, a.resource, review.facts))
    cards = [card for pool in pools for card in pool.cards]
    return [d for c in cards for d in c.devices] if all(card.devices for card in cards) else []


def _interfaces(review: PodReview) -> tuple[str, ...]:
    """Return the interfaces that the pod will have; none if they are not known."""
    pod = review.pod
    others = any(_OTHERS.search(key) and key not in KEYS for key, _ in pod.annotations)
    if pod.host_network or not pod.whole or pod.claims or pod.faults or others:
        return ()
    return ("eth0", *(ask.interface for ask in (*pod.networks, *(pod.blocks or ()))))


def _wrong(name: str, values: Mapping[str, str], why: str, remedy: str = "") -> Finding:
    usual = f"Leave {name} out of the pod and the image, or name what the container holds"
    return Finding.of(name, "", f"{name}={values[name]} {why}", remedy or usual)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.lstrip("^=").split(",") if word.strip()]


def _leaves_any(text: str, ports: Iterable[tuple[str, str]], *, exact: bool) -> bool:
    """Decide whether a list of names matches one of these ports; `exact` is UCX's way.

    UCX takes patterns. NCCL (parseStringList and matchIfList of src/misc/utils.cc) takes prefixes,
    or whole names behind ``=``, and a space as part of a name. An empty list matches all; for NCCL
    it matches none behind ``^``.
    """
    without, bare = text.startswith("^"), text.removeprefix("^")
    whole = bare.startswith("=")
    words = _words(text) if exact else [*filter(None, bare.removeprefix("=").split(","))]
    if not words or (exact and text == "all"):
        return exact or not without

    def has(name: str, port: str, word: str) -> bool:
        if exact:
            return fnmatch(name, word) or fnmatch(f"{name}:{port}", word)
        wanted, number, *_ = (*word.split(":"), "")  # rail and plane come behind the port
        return (name == wanted if whole else name.startswith(wanted)) and number in ("", port)

    return any(any(has(*one, word) for word in words) != without for one in ports)
