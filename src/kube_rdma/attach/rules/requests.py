"""Matches entries of a pod's annotation with documents of networks; refuses what cannot be met.

These are the first rules of an attachment, before cards (attach/rules/placement) and addresses are
looked for: nothing is taken yet for what is refused here. A list of
``k8s.volcengine.com/pod-networks`` has a block for each card, so blocks and shares are counted here
too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_interface
from typing import TypeVar

from kube_base.errors import Refused, refuse_all
from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach import attachment, kinds
from kube_rdma.model.device import wrong_guid
from kube_rdma.model.ipam import Address
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import Bind
from kube_rdma.model.preflight import AWAITS, MEASURES, REQUEST

OfInterface = TypeVar("OfInterface", attachment.Plan, attachment.AttachedInterface)

ANNOTATION = "k8s.v1.cni.cncf.io/networks"
POD_NETWORKS = "k8s.volcengine.com/pod-networks"
POD_NETWORKS_DEFINITION = "k8s.volcengine.com/pod-networks-definition"
SHARED = "kube-system"
"""Namespace of the definitions that cniConf names and the pod's own namespace lacks."""

DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
RESOURCE = "vke.volcengine.com/rdma"
"""The resource that blocks are about when they say no other."""

_NO_EFFECT = {
    "portMappings": "ports are mapped on the cluster's network, where the pod's services are",
    "bandwidth": "RDMA bypasses the kernel's queues, so no rate set there would hold",
}


def is_asking(pod: PodState) -> bool:
    """Return whether a pod asks for networks by an annotation, and is not on the host's network."""
    return names_networks(pod.annotations) and not pod.host_network


def names_networks(annotations: Iterable[tuple[str, str]]) -> bool:
    """Return whether one of the annotations asks for networks."""
    keys = (ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION)
    return any(key in keys and text.strip() for key, text in annotations)


def names_default(annotations: Iterable[tuple[str, str]]) -> bool:
    """Return whether a pod's annotations name a network to use in place of the cluster's."""
    return bool(dict(annotations).get(DEFAULT_NETWORK, "").strip())


def default_refused(pod: PodState, wanted: str, cluster: str) -> Refused:
    """Return the refusal for a pod that wants another network than the cluster's as eth0."""
    return Refused(
        f"kube-rdma runs behind the cluster's network {cluster}, which has made eth0 already, and "
        f"cannot put {wanted} in its place",
        remedy=f"Remove {DEFAULT_NETWORK}, and name {wanted} in {ANNOTATION} to have it as a "
        "further interface; or install Multus, which can replace the cluster's network",
        where=f"pod {pod.namespace}/{pod.name}: {DEFAULT_NETWORK}",
    )


def refuse_host_network(
    pod: PodState, asks: Sequence[attachment.NetworkAsk], annotation: str = ANNOTATION
) -> None:
    """Raise Refused for a pod on the host's network that asks for networks."""
    if pod.host_network and asks:
        raise Refused(
            f"the pod asks for {listed([ask.network for ask in asks])} and is on the host's "
            "network, where it sees every card of the node anyway",
            remedy=f"Remove hostNetwork: true, or the annotation {annotation}",
            where=f"pod {pod.namespace}/{pod.name}",
        )


def lacks_preflight(
    annotations: Iterable[tuple[str, str]], init_containers: tuple[str, ...]
) -> bool:
    """Decide whether a pod asks for a preflight and has no init containers for it.

    Of its init containers the first two names are given.
    """
    return REQUEST in dict(annotations) and init_containers != (MEASURES, AWAITS)


def refuse_unmeasured(pod: PodState) -> None:
    """Raise Refused for a pod that would start without the preflight that it asks for."""
    if lacks_preflight(pod.annotations, pod.init_containers):
        raise Refused(
            f"its first init containers are not {MEASURES} and {AWAITS}, so it would start "
            "without having measured",
            remedy="From Kubernetes 1.36 on, have the administrator set controller.preflight=true; "
            "before, write into its template what kube-rdma preflight lines prints",
            where=f"pod {pod.namespace}/{pod.name}: {REQUEST}",
        )


def refuse_isolated(
    namespace: str, asks: Sequence[attachment.NetworkAsk], global_namespaces: Collection[str] | None
) -> None:
    """Raise Refused for entries of a pod of `namespace` that name networks it may not use.

    Any pod may use networks of `global_namespaces`; None: of all namespaces.
    """
    mine = (namespace, *(global_namespaces or ()))
    refuse_all(
        Refused(
            f"the network {ask.namespace}/{ask.network} is for pods of {ask.namespace}, and this "
            f"pod is of namespace {namespace}",
            remedy=f"Name one of {listed(mine)}, or have the administrator add {ask.namespace} to "
            "--namespace-isolation",
            where=ask.source,
        )
        for ask in asks
        if global_namespaces is not None and ask.namespace not in mine
    )


def match_entries(
    asks: Sequence[attachment.NetworkAsk],
    networks: Sequence[attachment.Network],
    *,
    holding: bool = True,
    others: Sequence[str] = (),
) -> tuple[attachment.MatchedEntry, ...]:
    """Return each entry with its network; raise Refused with all entries that cannot be met.

    `others` are further names of networks, one of which an entry may have misspelled. Without
    `holding` the pod has no share. Then macvlan and ipvlan networks without card and resource are
    left to their CNI plugins, which use the interface of the node's default route.
    """
    by_name = {network.name: network for network in networks}
    faults: list[Refused] = []
    matched: list[attachment.MatchedEntry] = []
    for ask in asks:
        network = by_name.get(f"{ask.namespace}/{ask.network}")
        if network is None:
            faults.append(_unknown(ask, [*by_name, *others]))
            continue
        entry = attachment.MatchedEntry(ask, _routed(network, ask))
        if ask.held is not None:
            faults.extend(_misfit(entry, ask.held[0]))
        if not holding and _is_plain(entry):
            fields = kinds.ForeignNetwork.__struct_fields__
            shared = {name: getattr(network, name) for name in fields}
            entry = replace(entry, network=kinds.ForeignNetwork(**shared))
        if not isinstance(entry.network, kinds.ForeignNetwork):
            try:
                entry = _with_argued(entry)
            except Refused as fault:
                faults.append(fault)
            faults.extend(_unfit(entry))
        matched.append(entry)
    refuse_all(faults)
    return tuple(matched)


def refuse_traffic(entries: Sequence[attachment.MatchedEntry]) -> None:
    """Raise Refused for routes in entries whose interfaces other plugins make."""
    refuse_all(
        refused(
            entry,
            "traffic",
            f"networks of type {entry.network.plugin} are made and routed by that plugin",
            "Remove traffic from this entry, and write the routes into the configuration",
        )
        for entry in entries
        if isinstance(entry.network, kinds.ForeignNetwork)
        and (entry.ask.routes or entry.ask.default)
    )


def refuse_count(
    entries: Sequence[attachment.MatchedEntry], granted: Sequence[attachment.GrantedShare]
) -> None:
    """Raise Refused if a pod has more or fewer pod-networks blocks for a resource than shares.

    A share with `bind: pool` is not one card, so there the two may differ. Shares of RESOURCE
    count even if no block names it; blocks for kube-rdma without a resource then stand for it.
    """
    faults = []
    held = [one.resource for one in granted if one.resource == RESOURCE]
    for resource in dict.fromkeys((*(entry.network.resource for entry in entries), *held)):
        shares = [one for one in granted if one.resource == resource]
        pooled = any(one.bind is Bind.POOL for one in shares)
        asking = [entry for entry in entries if entry.network.resource == resource]
        if len(shares) > len(asking) and resource == RESOURCE:
            untied = (one for one in entries if one.network.resource is None)
            free = [one for one in untied if not isinstance(one.network, kinds.ForeignNetwork)]
            asking += free[: len(shares) - len(asking)]
        if resource is None or pooled or len(asking) == len(shares):
            continue
        faults.append(_miscounted(resource, asking, len(shares)))
    refuse_all(faults)


def unknown(
    asks: Sequence[attachment.NetworkAsk],
    names: Sequence[str],
    places: Sequence[str],
    *,
    apart: bool,
) -> Refused:
    """Return the refusal for entries whose networks do not exist.

    `names` are of networks on the node and of kube-rdma's own, `places` are the namespaces in
    which a NetworkAttachmentDefinition was looked for. `apart`: pods get networks of the node only
    by a NetworkAttachmentDefinition.
    """
    available = listed(names)
    other = (
        "or have the administrator lend the node's CNI configuration of this name by a "
        "NetworkAttachmentDefinition without spec.config"
        if apart
        else "install a CNI configuration of this name on every node, or create the "
        "NetworkAttachmentDefinition"
    )
    faults = []
    for ask in asks:
        meant = get_close_matches(ask.network, names, n=1)
        guess = f"Did you mean {meant[0]}? " if meant else ""
        faults.append(
            Refused(
                f"there is no network {ask.network}: known are {available}, and no "
                f"NetworkAttachmentDefinition of this name is in namespace {' or '.join(places)}",
                remedy=f"{guess}Name one of these, {other}",
                where=f"{ask.source}.cniConf.name",
            )
        )
    return Refused.all(faults)


def in_order(
    entries: Sequence[attachment.MatchedEntry], interfaces: Sequence[OfInterface]
) -> tuple[OfInterface, ...]:
    """Return values that belong to interfaces, in the order of their entries."""
    places = {entry.ask.interface: place for place, entry in enumerate(entries)}
    return tuple(sorted(interfaces, key=lambda one: places[one.interface]))


def refused(entry: attachment.MatchedEntry, field: str, problem: str, remedy: str) -> Refused:
    """Return a refusal that names the entry, its network and the field."""
    ask = entry.ask
    is_said = {"ips": ask.addresses, "mac": ask.mac}.get(field.partition("[")[0])
    if ask.by_pod_networks and is_said:
        field = f"deviceConf.{field}"
    return Refused(problem, remedy=remedy, where=f"{ask.source} ({entry.network.name}): {field}")


def asked_guid(entry: attachment.MatchedEntry) -> tuple[str, str] | None:
    """Return field name and GUID if an entry or its network asks for one, else None."""
    own = entry.network.guid if isinstance(entry.network, kinds.IbSriovNetwork) else None
    for field, guid in (
        ("infiniband-guid", entry.ask.guid),
        ("cni-args.guid", entry.ask.argued_guid),
        ("args.cni.guid", own),
    ):
        if guid:
            return field, guid.lower()
    return None


def _routed(network: attachment.Network, ask: attachment.NetworkAsk) -> attachment.Network:
    """Return the network with the entry's routes and MTU, which override its own."""
    destinations = {route.to for route in ask.routes}
    others = tuple(route for route in network.routes if route.to not in destinations)
    mtu = network.mtu if ask.mtu is None else ask.mtu or None
    return replace(network, routes=(*ask.routes, *others), mtu=mtu)


def _misfit(entry: attachment.MatchedEntry, resource: str) -> Iterator[Refused]:
    """Yield refusals for a claim's resource and parameters that the network does not fit."""
    own, ask = entry.network.resource, entry.ask
    if own != resource:
        problem = f"the network is for shares of {own}, and the claim's device is of {resource}"
        remedy = f"Name a network of {resource}, or select devices whose resource is {own}"
        yield refused(entry, "network", problem, remedy)
    fields = {"mtu": ask.mtu is not None, "routes": bool(ask.routes), "defaultRoute": ask.default}
    for field, is_written in fields.items():
        if is_written and isinstance(entry.network, kinds.ForeignNetwork):
            problem = f"networks of type {entry.network.plugin} are made and routed by that plugin"
            remedy = f"Remove {field} from the parameters, and write it into the configuration"
            yield refused(entry, field, problem, remedy)


def _is_plain(entry: attachment.MatchedEntry) -> bool:
    """Return whether an entry is for macvlan or ipvlan, with no card or resource named."""
    network = entry.network
    named = entry.ask.device_id or network.device or network.resource
    return isinstance(network, kinds.MacvlanNetwork | kinds.IpvlanNetwork) and not named


def _with_argued(entry: attachment.MatchedEntry) -> attachment.MatchedEntry:
    """Return the entry with the addresses in its cni-args, unless it has addresses.

    Both may replace the addresses of the network itself (`yields_to`).
    """
    if entry.ask.addresses:
        return _in_place(entry, "ips")
    ips = decoded(entry.ask.arguments).get("ips")
    if not ips:
        return entry
    try:
        addresses = tuple(map(_asked, ips if isinstance(ips, list) else [ips]))
    except ValueError:
        problem = f"{json.dumps(ips)} is not a list of IP addresses"
        remedy = 'Write it like ["10.0.0.10/24"]'
        raise refused(entry, "cni-args.ips", problem, remedy) from None
    return _in_place(replace(entry, ask=replace(entry.ask, addresses=addresses)), "cni-args")


def argued_ips(ask: attachment.NetworkAsk) -> Iterator[Address]:
    """Yield the addresses in an entry's cni-args.

    To a plugin in Go `IPs` is the same key (encoding/json folds case).
    """
    for key, ips in decoded(ask.arguments).items():
        for ip in ips if isinstance(ips, list) else [ips]:
            if key.casefold() == "ips":
                with suppress(ValueError):  # no plugin can set it either
                    yield _asked(ip).address


def _in_place(entry: attachment.MatchedEntry, field: str) -> attachment.MatchedEntry:
    """Return the entry without its network's own addresses, if the pod's replace them."""
    if field not in entry.network.yields_to:
        return entry
    return replace(entry, network=replace(entry.network, static=()))


def _asked(entry: object) -> attachment.AskedAddress:
    """Return an address, with its length if any; raise ValueError for anything else, or a zone."""
    if not isinstance(entry, str) or "%" in entry:
        raise ValueError(entry)
    parsed = ip_interface(entry)
    return attachment.AskedAddress(parsed.ip, parsed.network.prefixlen if "/" in entry else None)


def _unknown(ask: attachment.NetworkAsk, names: Sequence[str]) -> Refused:
    name = f"{ask.namespace}/{ask.network}"
    elsewhere = sorted(one for one in names if one.partition("/")[2] == ask.network)
    meant = elsewhere or get_close_matches(name, names, n=1)
    guess = f"Did you mean {meant[0]}? " if meant else ""
    return Refused(
        f"there is no network {name}",
        remedy=f"{guess}Create the NetworkAttachmentDefinition {ask.network} in namespace "
        f"{ask.namespace}, or name another one",
        where=ask.source,
    )


def _unfit(entry: attachment.MatchedEntry) -> Iterator[Refused]:
    """Yield a refusal for each request of an entry that kube-rdma's interfaces cannot fulfil."""
    ask, network = entry.ask, entry.network
    for name, _ in ask.capabilities:
        problem = f"{name} has no effect on an RDMA network: {_NO_EFFECT[name]}"
        yield refused(entry, name, problem, f"Remove {name} from this entry")
    if request := asked_guid(entry):
        yield from _unfit_guid(entry, *request)
    match network:
        case kinds.IpvlanNetwork():
            yield from _unfit_mac(entry)
            if (mode := network.mode) not in ("", "l2"):
                problem = (
                    f"ipvlan in mode {mode} answers no neighbour, so RDMA peers cannot find it"
                )
                yield refused(entry, "mode", problem, 'Write "mode": "l2", or use macvlan')
        case kinds.IpoibNetwork():
            yield from _unfit_mac(entry)
            yield from _unfit_partition(entry, network.pkey)
        case kinds.IbSriovNetwork():
            if network.configured and not ask.configured:
                problem = "the network waits for ib-kubernetes, which has not configured this entry"
                remedy = "See why in the log of ib-kubernetes, or remove ibKubernetesEnabled"
                yield refused(entry, "cni-args", problem, remedy)
            yield from _unfit_partition(entry, network.pkey)
        case kinds.CardNetwork():
            yield from _unfit_partition(entry, network.pkey)
    if not network.pools and not network.ipam_plugin:
        yield from _unplaced(entry)


def _unfit_guid(entry: attachment.MatchedEntry, field: str, guid: str) -> Iterator[Refused]:
    if why := wrong_guid(guid):
        remedy = 'Write that of one port, like "02:00:0a:00:00:00:00:01"'
        yield refused(entry, field, f"{guid} {why}", remedy)
    elif isinstance(entry.network, kinds.MacvlanNetwork | kinds.IpvlanNetwork | kinds.IpoibNetwork):
        kind = entry.network.kind
        problem = f"{kind} links have no GUID of their own, but that of the card below them"
        yield refused(entry, field, problem, f"Remove {field}, or use type ib-sriov")


def _unfit_mac(entry: attachment.MatchedEntry) -> Iterator[Refused]:
    if mac := entry.mac:
        problem = f"{entry.network.kind} links have the address of the card below them, not {mac}"
        yield refused(entry, "mac", problem, "Remove mac, or use a network of type macvlan")


def _unfit_partition(entry: attachment.MatchedEntry, pkey: int | None) -> Iterator[Refused]:
    if pkey == 0:
        problem = "0 is not the number of a partition"
        remedy = "Write that of a partition of the fabric, like 0x8001"
        yield refused(entry, "pkey", problem, remedy)


def _unplaced(entry: attachment.MatchedEntry) -> Iterator[Refused]:
    """Yield a refusal for each address without a prefix length, where no pool knows it."""
    for index, asked in enumerate(entry.ask.addresses):
        if asked.prefix is None:
            remedy = f'Write it with its length, like "{asked.address}/24"'
            problem = f"{asked.address} has no length, and the network has no pool that knows it"
            yield refused(entry, f"ips[{index}]", problem, remedy)


def _miscounted(resource: str, asking: Sequence[attachment.MatchedEntry], shares: int) -> Refused:
    block = f'{{"cniConf": {{"name": "{asking[0].ask.network if asking else "rdma"}"}}}}'
    blocks = "block" if len(asking) == 1 else "blocks"
    times = "once" if shares == 1 else f"{shares} times"
    more = f"write {block} {times}" if shares else "remove them"
    less = f"Ask for {resource}: {len(asking)}" if asking else f"Ask for no {resource}"
    return Refused(
        f"the annotation has {len(asking)} {blocks} for {resource}, and the containers of the pod "
        f"hold {shares} of it",
        remedy=f"{less}, or {more}",
        where=POD_NETWORKS,
    )
