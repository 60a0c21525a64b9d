"""KR4xx: finds what stands between a pod and the card that it was given.

Its checks come last, and are made only where somebody asks about a pod. admission/rules judge the
pod's documents; here is judged what its containers really have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from kube_base.frozen import replace
from kube_rdma.admission.rules import variables
from kube_rdma.admission.rules.shares import is_shared, matches, with_shares
from kube_rdma.attach.rules.requests import ANNOTATION
from kube_rdma.doctor.rules import claimed_cards
from kube_rdma.doctor.rules.check import Check, interfaces_of, part_of, unrouted
from kube_rdma.doctor.rules.claimed_cards import pod_cards
from kube_rdma.doctor.rules.waiting import refusal, waits_for
from kube_rdma.lib.phrases import listed
from kube_rdma.model import doctor
from kube_rdma.model.admission import USUAL
from kube_rdma.model.device import Device, GidType, LinkLayer
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import gid_of
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.nearness import claim_gpus, claimed_gpus

_RUNNING = "Running"
_ENOUGH = 1 << 30  # bytes of locked memory; queues and buffers of a small job
_DEVICES_FOLDER = "/dev/infiniband"
_OVERLAY = "eth0"
_RAISED = "have an administrator raise the limit (docs/agent.md#locked-memory)"
_IDLE = ("Pending", "Failed")
_POOL = "IPPool "

# Which containers of a pod hold RDMA cards, by shares or by claims, and which devices they have.


def is_share(seen: doctor.Observation, resource: str) -> bool:
    """Return whether a resource means shares of RDMA cards, by a usual name or that of a pool."""
    return matches(resource, with_shares(USUAL, (one.resource for one in seen.specs or ())).shares)


def has_share(seen: doctor.Observation, container: doctor.ObservedContainer) -> bool:
    """Return whether a container asks for shares of RDMA cards."""
    return any(is_share(seen, resource) for resource, _ in container.asks)


def sharing(seen: doctor.Observation) -> list[doctor.ObservedContainer]:
    """Return the pod's containers that hold RDMA cards, by shares or by claims."""
    by_claim = {one.container for one in pod_cards(seen)}
    every = (seen.pod.containers or ()) if seen.pod else ()
    return [one for one in every if has_share(seen, one) or one.name in by_claim]


def devices_of(seen: doctor.Observation) -> Iterator[tuple[doctor.ObservedContainer, Device]]:
    """Yield each container that holds cards with each RDMA device whose device nodes it has."""
    survey = seen.pod.survey if seen.pod else None
    for container in sharing(seen):
        for device in survey.devices if survey else ():
            if any(char.path in (container.nodes or ()) for char in device.char_devices):
                yield container, device


def other_cards(seen: doctor.Observation) -> frozenset[str]:
    """Return names of devices, functions and interfaces of the node's cards that the pod lacks.

    Return none for a pod without cards.
    """
    held = {device.name for _, device in devices_of(seen)}
    held |= {card.device.name for card in pod_cards(seen) if card.device}
    others = [one for one in (seen.survey.devices if seen.survey else ()) if one.name not in held]
    names = {one.name for one in others} | {one.pci for one in others if one.pci}
    names |= {port.netdev for one in others for port in one.ports if port.netdev}
    return frozenset(names) if held else frozenset()


# Documents of the pod, its attachments, interfaces and devices.


def _documents(seen: doctor.Observation) -> Iterator[Finding]:
    """The pod's requests and annotations contradict each other. `kube-rdma config check FILE` finds
    this beforehand.
    """
    inside = part_of(seen, "pod.containers.variables")
    elsewhere = {"device-volume", "inert-lock", "preflight"}
    elsewhere |= set() if inside is None else {"variables"}
    for finding in _pod(seen).findings or ():
        if finding.code in elsewhere:
            continue  # KR416, KR431, KR420, KR421 and KR490 see what became of it
        cause = f"Requests and annotations contradict each other (rule {finding.code})"
        yield replace(finding, cause=cause)


def _not_attached(seen: doctor.Observation) -> Iterator[Finding]:
    """The pod runs and lacks an interface. Mend KR310 to KR312 first."""
    pod = _pod(seen)
    if pod.phase == _RUNNING and len(pod.attached or ()) < len(pod.networks):
        made = len(pod.attached or ())
        yield Finding(
            pod.title,
            f"It asks for {listed(pod.networks)}, and {made} of {len(pod.networks)} are attached",
            "The runtime did not call kube-rdma for the pod's sandbox",
            "Delete the pod when the node's CNI configuration is right; see the agent's Events",
        )


def _not_as_attached(seen: doctor.Observation) -> Iterator[Finding]:
    """The pod lost its network: address, route, MTU or GID."""
    for attachment in _pod(seen).attachments or ():
        if attachment.wrong:
            cause = "A program changed the interface after the agent made it"
            remedy = "Delete the pod; take NET_ADMIN from its containers"
            yield Finding(attachment.interface, "; ".join(attachment.wrong), cause, remedy)


def _link_down(seen: doctor.Observation) -> Iterator[Finding]:
    """The port is DOWN in the pod."""
    for link in _rails(_pod(seen)):
        if not link.up or link.carrier is False:
            state = "has no carrier" if link.up else "is down"
            evidence = f"{link.name} {state} in the pod"
            cause = "The interface's card is down, or a program in the pod set the interface down"
            remedy = f"Look at {link.parent or 'the card'} on the node: kube-rdma doctor"
            yield Finding(link.name, evidence, cause, remedy)


def _mtu(seen: doctor.Observation) -> Iterator[Finding]:
    """Small messages pass and large ones hang, or bandwidth is low."""
    parents = {link.name: link for link in seen.links or ()}
    for link in _rails(_pod(seen)):
        parent = parents.get(link.parent)
        if parent is None or link.mtu == parent.mtu:
            continue
        wider = link.mtu > parent.mtu
        yield Finding(
            link.name,
            f"MTU {link.mtu} in the pod, and {parent.mtu} on {parent.name} below it",
            "The card drops large frames" if wider else "Messages are cut into smaller packets",
            'Set "mtu" of the network to the card\'s MTU, or leave it out; restart the pod',
            Severity.ERROR if wider else Severity.WARNING,
        )


def _no_route(seen: doctor.Observation) -> Iterator[Finding]:
    """`rdma_resolve_route` fails in the pod."""
    pod = _pod(seen)
    for link in _rails(pod):
        for address in unrouted(link, pod.routes or ()):
            evidence = f"{address} is on {link.name}, and no route to its subnet is"
            cause = "The rail's peers are sought on another interface"
            remedy = "Restart the pod; if a container changes routes, take NET_ADMIN from it"
            yield Finding(link.name, evidence, cause, remedy)


def _taken_route(seen: doctor.Observation) -> Iterator[Finding]:
    """The pod resolves no names and reaches no services."""
    pod = _pod(seen)
    overlay = [link for link in pod.links or () if link.name == _OVERLAY]
    own = [at.ip for link in overlay for at in interfaces_of(link.addresses)]
    rails = {link.name for link in _rails(pod)}
    ways = [one for one in pod.routes or () if one.interface in rails and not one.table]
    for way, to in ((one, at.network) for one in ways for at in interfaces_of((one.to,))):
        if inside := [str(ip) for ip in own if ip in to and not ip.is_link_local]:
            yield Finding(
                way.interface,
                f"{way.to} leads through {way.interface}, and {_OVERLAY} has {listed(inside)}",
                "Services, DNS and other pods are sought on this network",
                "Narrow the network's route, unless the pod asks for it, and delete the pod",
                Severity.WARNING,
            )


def _no_nodes(seen: doctor.Observation) -> Iterator[Finding]:
    """`ibv_devices` is empty in a pod that holds a share."""
    for container in sharing(seen):
        if container.nodes == ():
            cards = [str(one) for one in pod_cards(seen) if one.container == container.name]
            held = [*(name for name, _ in container.asks), *cards]
            evidence = f"It holds {listed(held)}, and {_DEVICES_FOLDER} is empty"
            cause = "CDI is off, or a volume is mounted over /dev"
            remedy = "See KR206; take volumes at /dev out of the pod; restart it"
            yield Finding(container.name, evidence, cause, remedy)


def _closed_nodes(seen: doctor.Observation) -> Iterator[Finding]:
    """`ibv_open_device` fails with EPERM, or a container with a share sees all cards of the node.

    The device cgroup lets a container open the devices of its shares and claims, and all if it is
    privileged. A container with none of these may open no RDMA device.
    """
    for container in _pod(seen).containers or ():
        nodes = [path for path in container.nodes or () if "uverbs" in path]
        if nodes and container.granted is False:
            evidence = f"{listed(nodes)} is in the container, which asks for no device and no claim"
            cause = "A volume shows the device node, and the device cgroup does not open it"
            remedy = "Ask for a share instead of a hostPath volume"
            yield Finding(container.name, evidence, cause, remedy)
    for finding in _pod(seen).findings or ():
        if finding.code == "device-volume":
            yield replace(finding, cause="NCCL and UCX try each card that they see")


def _unseen_device(seen: doctor.Observation) -> Iterator[Finding]:
    """`ibv_open_device` fails, although the device file is there."""
    pod = _pod(seen)
    assert seen.survey is not None
    assert pod.survey is not None
    if seen.survey.namespace_mode is not NamespaceMode.EXCLUSIVE:
        return
    for container in sharing(seen):
        nodes = [path for path in container.nodes or () if "uverbs" in path]
        visible = {char.path for device in pod.survey.devices for char in device.char_devices}
        hidden = [path for path in nodes if path not in visible]
        if hidden:
            yield Finding(
                container.name,
                f"{listed(hidden)} opens a device that the pod's network namespace does not show",
                "In namespace mode exclusive the device is in another namespace",
                "Choose a mode or a claim's setting that moves the card, or boot the node with "
                "ib_core.netns_mode=1",
            )


def _no_gid(seen: doctor.Observation) -> Iterator[Finding]:
    """Programs fail with "invalid GID" or "Failed to modify QP to RTR". If the GID table is full,
    give the card fewer pods.
    """
    pod = _pod(seen)
    for container, device in devices_of(seen):
        if _of_ethernet(device) and _addresses(pod) and not _indexes(device, pod):
            evidence = f"{device.name} has no GID of {listed(sorted(_addresses(pod)))}"
            cause = "No interface of this card has the pod's address, or its GID table is full"
            remedy = "Let the pod's network be on the card that the pod holds (resourceName)"
            yield Finding(container.name, evidence, cause, remedy)


def _stale_index(seen: doctor.Observation) -> Iterator[Finding]:
    """NCCL hangs or fails with "modify QP", on some pods or after a restart."""
    pod = _pod(seen)
    for container, device in devices_of(seen):
        if not _of_ethernet(device):
            continue
        right = _indexes(device, pod)
        places = listed([str(index) for index in right])
        for index, fault in variables.fixed_indexes(dict(container.variables or ())):
            if right and index not in right:
                evidence = f"{fault.code}={index}, and {device.name} has the pod's addresses at "
                cause = "The index differs from pod to pod and start to start"
                yield Finding(container.name, f"{evidence}{places}", cause, fault.remedy)


def _variables(seen: doctor.Observation) -> Iterator[Finding]:
    """NCCL prints "Using network Socket", or finds no device. Before UCX 1.21 UCX_NET_DEVICES needs
    the port (`mlx5_0:1`). `kube-rdma nccl-env` prints what fits.
    """
    interfaces = [link.name for link in _pod(seen).links or ()]
    for container in sharing(seen):
        values = dict(container.variables or ())
        devices = [device for owner, device in devices_of(seen) if owner == container]
        for fault in (
            *variables.switches(values),
            *variables.off_devices(values, devices),
            *variables.off_interfaces(values, interfaces),
        ):
            cause = "The variable contradicts what the container holds"
            yield Finding(container.name, fault.problem, cause, fault.remedy, fault.severity)


def _fewer_networks(seen: doctor.Observation) -> Iterator[Finding]:
    """NCCL or UCX chooses a card and hangs or fails on it. InfiniBand and mode hca need
    no network.
    """
    pod, devices = _pod(seen), seen.survey.devices if seen.survey else ()
    shared = {spec.resource for spec in seen.specs or () if is_shared(spec)}
    asks = [ask for one in sharing(seen) for ask in one.asks if is_share(seen, ask[0])]
    shares, networks = sum(count for _, count in asks), len(pod.networks)
    is_sure = all(map(_of_ethernet, devices)) and shared.issuperset(dict(asks))
    if is_sure and pod.phase == _RUNNING and not pod.host_network and networks < shares:
        held = listed([f"{count} of {name}" for name, count in asks])
        yield Finding(
            pod.title,
            f"It holds {held} and has {networks or 'no'} network{'s' * (networks > 1)}",
            "Without an interface of the pod a card has no RoCE GID that the pod can use",
            f"Name a network for each share in {ANNOTATION}: see kube-rdma resources",
        )


def _overlay(seen: doctor.Observation) -> Iterator[Finding]:
    """`rping`, `ib_write_bw -R` and UCX's rdmacm fail; `ib_write_bw` without -R may work."""
    pod = _pod(seen)
    devices = [(owner, device) for owner, device in devices_of(seen) if has_share(seen, owner)]
    holding = [owner for owner, device in devices if _of_ethernet(device)]
    if pod.host_network or not holding or any(link.addresses for link in _rails(pod)):
        return
    overlay = next((link for link in pod.links or () if link.name == _OVERLAY), None)
    if overlay and overlay.addresses and len(holding) == len(devices):
        yield Finding(
            holding[0].name,
            f"The only addresses are of {_OVERLAY} ({listed(overlay.addresses)})",
            "RDMA_CM looks for the card behind an address; the overlay's has no card behind it",
            "Ask for a network on the card by annotation, or for hostNetwork"
            f"{_node_address(seen, [device for _, device in devices])}",
            Severity.WARNING,
        )


def _node_address(seen: doctor.Observation, devices: Sequence[Device]) -> str:
    """Return a part of a sentence: which address of the node RDMA_CM has to take, "" if unknown.

    The address is that of an interface of the card, or of its bond, whose name the card's GIDs
    have.
    """
    ports = [port for device in devices for port in device.ports]
    names = {port.netdev for port in ports} | {gid.netdev for p in ports for gid in p.gids}
    cards = {device.pci for device in devices if device.pci}
    for link in seen.links or ():
        if link.addresses and (link.name in names or link.pci in cards):
            address = link.addresses[0].partition("/")[0]
            return f", where RDMA_CM has to take {address}, the address of {link.name}"
    return ""


def _no_lock(seen: doctor.Observation) -> Iterator[Finding]:
    """`ibv_reg_mr` fails with ENOMEM. NCCL warns `Call to ibv_reg_mr_iova2 failed` and ends."""
    for container in _unlocked(seen):
        if container.asked_lock is False:
            evidence = f"Locked memory is limited to {container.memlock} bytes, without IPC_LOCK"
            cause = "Verbs lock memory, and the pod does not ask for IPC_LOCK"
            remedy = f"Write securityContext.capabilities.add: [IPC_LOCK], or {_RAISED}"
            yield Finding(container.name, evidence, cause, remedy)


def _inert_lock(seen: doctor.Observation) -> Iterator[Finding]:
    """The pod fails as with KR430, although it asks for IPC_LOCK."""
    for container in _unlocked(seen):
        if container.asked_lock:
            yield Finding(
                container.name,
                f"Locked memory is limited to {container.memlock} bytes for user {container.user}",
                "IPC_LOCK counts for root alone; others have the runtime's limit",
                f"Set LimitMEMLOCK=infinity for the runtime, run as root, or {_RAISED}",
            )


# KR432: limits of shares that the kernel does not hold a pod to, or that are used up.


def _limits(seen: doctor.Observation) -> Iterator[Finding]:
    """`ibv_create_qp` or `ibv_reg_mr` fails with EAGAIN, or a pod takes more of a card than its
    pool allows.
    """
    pod = _pod(seen)
    names = {spec.resource for spec in seen.specs or () if spec.limits}
    resources = sorted({one.resource for one in _held(seen) if one.shares} & names)
    if not resources:
        return
    shown = pod.limits or ()
    if not any(limit.is_set for limit in shown):
        evidence = f"The kernel limits no RDMA device of the pod, which holds {listed(resources)}"
        cause = "The agent has not written the rdmaLimits of the pool"
        remedy = 'Look for "share limits not held" in the agent\'s log'
        yield Finding(pod.title, evidence, cause, remedy, Severity.WARNING)
        return
    for limit in shown:
        if limit.used_up:
            evidence = f"The pod has used up {limit.used_up}"
            cause = "Beyond rdmaLimits the kernel refuses to make objects (EAGAIN)"
            remedy = "Request more shares, or raise rdmaLimits of the pool"
            yield Finding(limit.device, evidence, cause, remedy, Severity.WARNING)
    counted = {limit.device for limit in shown}
    for device in pod.survey.devices if pod.survey else ():
        if device.name not in counted:
            evidence = "The kernel counts nothing that the pod makes on it, so it has no limit"
            cause = "The device's driver does not know the rdma control group"
            remedy = "Use the kernel's own driver, or a newer one of the vendor"
            yield Finding(device.name, evidence, cause, remedy, Severity.WARNING)


# KR433: the programs of a pod that use no RDMA now, whatever their variables say.

_TRANSPORTS = ("UCX_TLS", "UCX_NET_DEVICES", "NCCL_NET", "NCCL_IB_HCA")


def uses(seen: doctor.Observation) -> tuple[doctor.ContainerUse, ...]:
    """Return how each container with a card uses RDMA, as far as that was seen."""
    return tuple(_use(seen, container) for container in sharing(seen))


def _use(seen: doctor.Observation, container: doctor.ObservedContainer) -> doctor.ContainerUse:
    every = seen.pod.queue_pairs if seen.pod else None
    if every is None:
        return doctor.ContainerUse(container.name, container.pinned)
    pairs = tuple(one for one in every if one.container == container.name)
    mine = {device.name for owner, device in devices_of(seen) if owner == container}
    unused = sorted(mine - {one.device for one in pairs})
    return doctor.ContainerUse(container.name, container.pinned, pairs, tuple(unused))


def _unused(seen: doctor.Observation) -> Iterator[Finding]:
    """A job is as slow as over TCP, often because of KR421 or KR430."""
    pod = _pod(seen)
    if pod.phase != _RUNNING:
        return
    for container in sharing(seen):
        if container.pinned or _use(seen, container).pairs:
            continue
        evidence = "No process of it has pinned memory"
        if pod.queue_pairs is not None:
            evidence += " and none has a queue pair"
        settings = dict(container.variables or ())
        chosen = [f"{name}={settings[name]}" for name in _TRANSPORTS if settings.get(name)]
        if chosen:
            evidence += f", although it has {' and '.join(chosen)}"
        yield Finding(
            container.name,
            evidence,
            "The program is idle, or chose another transport",
            "If the program works, UCX_LOG_LEVEL=info or NCCL_DEBUG=INFO shows its choice",
            Severity.ADVICE,
        )


# NUMA nodes, and pods that do not start.


def _numa(seen: doctor.Observation) -> Iterator[Finding]:
    """GPUDirect is slow in this pod."""
    pod = _pod(seen)
    assert seen.kubelet is not None
    held = _held(seen)
    claims = claim_gpus(seen.slices or (), seen.survey.gpus if seen.survey else ())
    by_claims = pod_cards(seen)
    names = [*(one.container for one in held), *(card.container for card in by_claims)]
    for name in dict.fromkeys(names):
        mine = [one for one in held if one.container == name]
        cards = {n for o in mine if is_share(seen, o.resource) for n in o.numa_nodes}
        devices = (one.device for one in by_claims if one.container == name)
        cards |= {one.numa_node for one in devices if one and one.numa_node is not None}
        gpus = {n for o in mine if matches(o.resource, USUAL.gpus) for n in o.numa_nodes}
        container = (pod.namespace, pod.name, name)
        by_claim = claimed_gpus(container, seen.kubelet.devices, claims)
        gpus |= {number for gpu in by_claim for number in gpu.numa_nodes}
        if cards and gpus and not cards & gpus:
            yield Finding(
                name,
                f"Cards are on NUMA node {sorted(cards)}, GPUs on {sorted(gpus)}",
                "The kubelet did not give card and GPU of one NUMA node",
                "Set topologyManagerPolicy: restricted or single-numa-node on this node (KR205)",
                Severity.WARNING,
            )


def _refused(seen: doctor.Observation) -> tuple[str, str]:
    """Return why kube-rdma refused the network of a Pending or Failed pod, and the remedy.

    Return ("", "") where it did not.
    """
    pod = _pod(seen)
    return refusal(pod.why) if pod.phase in _IDLE else ("", "")


def _pool_refuses(seen: doctor.Observation) -> Iterator[Finding]:
    """The pod is Pending. Taint a dead node as out-of-service to free its addresses."""
    problem, remedy = _refused(seen)
    if problem.startswith(_POOL):
        name, _, why = problem.partition(": ")
        yield Finding(
            name,
            why or problem,
            "The IPPool gives this pod no address, so its sandbox is not made",
            remedy or f"kubectl describe {quote(name.lower())}; kube-rdma ip check",
        )


def _waits(seen: doctor.Observation) -> Iterator[Finding]:
    """The pod is Pending or Failed: what its status or an Event says is shown. Evidence that begins
    with `not RDMA` names a fault of another kind.
    """
    pod = _pod(seen)
    problem, remedy = _refused(seen)
    if problem:
        cause = "kube-rdma refused the pod's network, so its sandbox is not made"
        yield Finding("CNI", problem, cause, remedy or "See the agent's events and its log")
    elif pod.phase in _IDLE:
        resources = {name for one in pod.containers or () for name, _ in one.asks}
        about = next((name for name in sorted(resources) if name in pod.why), pod.title)
        known = waits_for(pod.why, pod.namespace)
        yield Finding(
            "CNI" if "FailedCreatePodSandBox" in pod.why else about,
            known.problem or f"It is {pod.phase}, and gives no reason",
            "The pod does not run",
            known.remedy or f"kubectl -n {quote(pod.namespace)} describe pod {quote(pod.name)}",
        )


def _pod(seen: doctor.Observation) -> doctor.ObservedPod:
    assert seen.pod is not None
    return seen.pod


def _held(seen: doctor.Observation) -> list[Holding]:
    """Return what the pod's containers hold by device plugins, as the kubelet lists it."""
    pod, every = _pod(seen), (seen.kubelet.holdings or ()) if seen.kubelet else ()
    return [one for one in every if (one.namespace, one.pod) == (pod.namespace, pod.name)]


def _unlocked(seen: doctor.Observation) -> list[doctor.ObservedContainer]:
    """Return the containers with cards whose limit of locked memory is too low for RDMA."""
    return [
        one
        for one in sharing(seen)
        if one.locks is False and one.memlock is not None and 0 <= one.memlock < _ENOUGH
    ]


def _rails(pod: doctor.ObservedPod) -> list[doctor.ObservedLink]:
    """Return the pod's interfaces except lo and eth0; none with hostNetwork."""
    links = () if pod.host_network else pod.links or ()
    return [link for link in links if link.name not in ("lo", _OVERLAY)]


def _of_ethernet(device: Device) -> bool:
    return any(port.link_layer is LinkLayer.ETHERNET for port in device.ports)


def _addresses(pod: doctor.ObservedPod) -> set[str]:
    return {str(at.ip) for link in _rails(pod) for at in interfaces_of(link.addresses)}


def _indexes(device: Device, pod: doctor.ObservedPod) -> list[int]:
    """Return the RoCE v2 indexes of the pod's addresses in a device's GID table."""
    rails = {
        (link.name, gid_of(at.ip)) for link in _rails(pod) for at in interfaces_of(link.addresses)
    }
    return [
        gid.index
        for port in device.ports
        for gid in port.gids
        if gid.type is GidType.ROCE_V2 and (gid.netdev or "", gid.value) in rails
    ]


_INSIDE = ("pod", "pod.containers")
_NODES = (*_INSIDE, "pod.containers.nodes")
_POOLED = (*_INSIDE, "specs", "survey")
_DEVICES = (*_NODES, "pod.links", "pod.survey")
_LOCKS = (*_INSIDE, "pod.containers.memlock", "pod.containers.locks", "pod.containers.asked_lock")
_HIDDEN = (*_NODES, "pod.survey", "survey", "survey.namespace_mode")
_CLOSED = (*_NODES, "pod.containers.granted")
_WORDS = (*_INSIDE, "pod.containers.variables")
_HELD = ("pod", "kubelet", "kubelet.holdings")

CHECKS = (
    Check("KR322", "free addresses", ("pod",), _pool_refuses, (), ("KR490",)),
    Check("KR401", "requests of the pod", ("pod", "pod.findings"), _documents),
    Check("KR403", "networks of the pod", ("pod", "pod.attached"), _not_attached, (), ("KR422",)),
    Check(
        "KR404",
        "attachments of the pod",
        ("pod", "pod.attachments"),
        _not_as_attached,
        ("KR410", "KR411", "KR412"),
        ("KR418", "KR420", "KR422"),
    ),
    Check("KR410", "links of the pod", ("pod", "pod.links"), _link_down),
    Check("KR411", "MTU of the pod", ("pod", "pod.links", "links"), _mtu),
    Check("KR412", "routes of the pod", ("pod", "pod.links", "pod.routes"), _no_route),
    Check("KR413", "default route of the pod", ("pod", "pod.links", "pod.routes"), _taken_route),
    Check("KR414", "networks for shares", _POOLED, _fewer_networks, (), ("KR418", "KR422")),
    Check("KR415", "device files of the container", _NODES, _no_nodes),
    Check("KR416", "device cgroup", _CLOSED, _closed_nodes),
    Check("KR417", "devices in the namespace", _HIDDEN, _unseen_device, ("KR418",)),
    Check("KR418", "GIDs of the pod", _DEVICES, _no_gid, ("KR420",)),
    Check("KR420", "GID index", (*_DEVICES, *_WORDS), _stale_index),
    Check("KR421", "variables", _WORDS, _variables),
    Check("KR422", "address for RDMA_CM", _DEVICES, _overlay),
    Check("KR430", "IPC_LOCK", _LOCKS, _no_lock),
    Check("KR431", "locked memory", _LOCKS, _inert_lock),
    Check("KR432", "RDMA limits of the pod", (*_HELD, "pod.limits", "specs"), _limits),
    Check("KR433", "use of RDMA", (*_INSIDE, "pod.containers.pinned"), _unused),
    Check("KR440", "NUMA distance", _HELD, _numa),
    *claimed_cards.CHECKS,
    Check("KR490", "start of the pod", ("pod",), _waits),
)
