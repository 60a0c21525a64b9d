"""Which interfaces a pod gets by the parameters of its claims, beside those of its annotation.

    bookings of the pod ─► ClaimDevice ─┐
    annotation ─► NetworkAsk ───────────┴► NetworkAsk ─► the same procedure (attach/rules/procedure)

Each device whose parameters say anything is one interface, on the card of that very device. Where
the annotation names the network of the parameters already, that entry is the device's: what it says
itself counts, and the rest the parameters say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.attach.rules.claim_holders import claims_of
from kube_rdma.model.attach.attachment import Network, NetworkAsk, NetworkKind
from kube_rdma.model.claims.parameters import NetworkReference
from kube_rdma.model.claims.prepared import ClaimDevice, PreparedClaim
from kube_rdma.model.claims.users import PodClaims
from kube_rdma.model.cni_conf import Wiring
from kube_rdma.model.ipam import InterfaceName

_UNNAMED = InterfaceName("")


def interfaces(pod: PodClaims, prepared: Iterable[PreparedClaim]) -> tuple[ClaimDevice, ...]:
    """The devices of the pod's claims that become interfaces, in the order of the pod's claims."""
    by_name = {one.claim.name: one for one in claims_of(pod, prepared)}
    names = dict.fromkeys(name for _, name in pod.claims if name in by_name)
    return tuple(
        ClaimDevice(by_name[name].claim, share)
        for name in names
        for share in by_name[name].shares
        if share.makes_interface
    )


def refuse_uncalled(prepared: PreparedClaim, wiring: Wiring) -> None:
    """Raise for parameters that nobody would follow, because the agent is not called for the pod.

    Refused behind a meta-plugin, which calls it for the networks of the annotation alone;
    Unavailable while nobody calls it.
    """
    share = next((one for one in prepared.shares if one.makes_interface), None)
    if share is None or wiring is Wiring.CHAIN:
        return
    where = ClaimDevice(prepared.claim, share).source
    if wiring is Wiring.NONE:
        raise Unavailable(
            f"{where}: its parameters ask for an interface, and kube-rdma is not in the CNI "
            "configuration of this node yet. Wait until it is; the kubelet tries again."
        )
    raise Refused(
        "its parameters ask for an interface, and on this node a meta-plugin (Multus) calls "
        "kube-rdma only for networks that the pod's annotation names",
        remedy="Remove the parameters from class and claim, and name the network in "
        "k8s.v1.cni.cncf.io/networks",
        where=where,
    )


def ask_of(device: ClaimDevice) -> NetworkAsk:
    """What a device asks for, as an entry of an annotation would; "" is an interface to number."""
    wanted, share = device.share.parameters, device.share
    network = wanted.network or NetworkReference(_own_name(device))
    return NetworkAsk(
        namespace=network.namespace or device.claim.namespace,
        network=network.name,
        interface=wanted.interface or _UNNAMED,
        source=device.source,
        addresses=wanted.addresses or (),
        mac=wanted.mac,
        guid=wanted.guid,
        routes=wanted.routes or (),
        default=bool(wanted.default_route),
        held=(share.resource, share.share),
        mtu=wanted.mtu,
    )


def own_network(device: ClaimDevice) -> Network | None:
    """The network that parameters without one describe themselves; None where they name one."""
    wanted = device.share.parameters
    if wanted.network is not None:
        return None
    return Network(
        name=f"{device.claim.namespace}/{_own_name(device)}",
        kind=wanted.kind or NetworkKind.CARD,
        source=device.source,
        mode=wanted.mode or "",
        resource=device.share.resource,
        pools=(wanted.pool,) if wanted.pool else (),
    )


def with_claims(
    annotated: Sequence[NetworkAsk], claimed: Sequence[NetworkAsk]
) -> tuple[NetworkAsk, ...]:
    """All entries of a pod, each with an interface of its own; those of claims come last.

    Raise Refused for a name that two of them have.
    """
    entries = list(annotated)
    open_entries = [n for n, entry in enumerate(entries) if entry.device_id is None]
    for ask in claimed:
        same = (n for n in open_entries if _network(entries[n]) == _network(ask))
        if (place := next(same, None)) is None:
            entries.append(ask)
        else:
            open_entries.remove(place)
            entries[place] = _together(entries[place], ask)
    return _numbered(entries)


def _together(entry: NetworkAsk, ask: NetworkAsk) -> NetworkAsk:
    """An entry of the annotation with what the parameters say besides."""
    return replace(
        entry,
        addresses=entry.addresses or ask.addresses,
        mac=entry.mac or ask.mac,
        guid=entry.guid or ask.guid,
        routes=entry.routes or ask.routes,
        default=entry.default or (ask.default and not entry.default_routes),
        held=ask.held,
        mtu=ask.mtu,
    )


def _numbered(entries: Sequence[NetworkAsk]) -> tuple[NetworkAsk, ...]:
    """The unnamed get net1, net2 and so on, by their place where that is free."""
    first: dict[str, NetworkAsk] = {}
    for entry in entries:
        if entry.interface and first.setdefault(entry.interface, entry) is not entry:
            problem = f"the interface {entry.interface} is that of {first[entry.interface].source}"
            remedy = "Write another name, or leave interface out"
            raise Refused(f"{problem} too", remedy=remedy, where=entry.source)
    named: list[NetworkAsk] = []
    for place, entry in enumerate(entries, 1):
        if entry.interface:
            named.append(entry)
            continue
        free = next(name for n in count(place) if (name := InterfaceName(f"net{n}")) not in first)
        first[free] = entry
        named.append(replace(entry, interface=free))
    return tuple(named)


def _network(ask: NetworkAsk) -> tuple[str, str]:
    return ask.namespace, ask.network


def _own_name(device: ClaimDevice) -> str:
    """No name of an object, so that no annotation and no definition can mean the same."""
    request = device.share.request.replace("/", ".")
    return f"{device.claim.name}:{request}"
