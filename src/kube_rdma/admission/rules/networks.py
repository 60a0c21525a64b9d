"""Rules that compare a pod's annotations with the shares in its limits and the known networks.

Networks are attached long after admission, on a node whose own configuration is not seen here. So
a pod is refused only for what attach/rules would refuse on every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.admission.rules.shares import (
    PodReview,
    candidates,
    fixed_mode,
    held_shares,
    is_shared,
    layers_of,
    matches,
)
from kube_rdma.attach.rules import requests
from kube_rdma.attach.rules.addresses import refuse_reserved, unpooled
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import CardAddresses, Network, NetworkAsk
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.pools import Bind
from kube_rdma.pools.rules.modes import MODES, terms

NETWORKS = ("metadata", "annotations", requests.ANNOTATION)
BLOCKS = ("metadata", "annotations", requests.POD_NETWORKS)
_ON_ETHERNET = kinds.MacvlanNetwork | kinds.IpvlanNetwork
_OF_INFINIBAND = kinds.IpoibNetwork | kinds.IbSriovNetwork


def unreadable(template: PodTemplate) -> Iterator[Finding]:
    """Yield faults of the network annotations; only in that of pod-networks are they errors."""
    for fault in template.faults:
        yield fault if fault.path == BLOCKS else replace(fault, severity=Severity.WARNING)


def block_count(review: PodReview) -> Iterator[Finding]:
    """Refuse pod-networks blocks if their number surely differs from that of the cards.

    Warn of cards without any network.
    """
    if not review.pod.whole:
        return
    resource = review.settings.counted
    cards = held_shares(review.pod, resource)
    if review.pod.blocks is None:
        yield from _no_blocks(cards, review)
        return
    if _pooled(resource, review):
        return
    named = [network_of(ask, review) for ask in review.pod.blocks]
    sure = sum(
        _belongs(ask, net, review) for ask, net in zip(review.pod.blocks, named, strict=True)
    )
    usable = sum(_may_belong(network, resource) for network in named)
    others = any(ask.resource != resource for _, ask in review.shares)
    if cards > usable or (sure > cards and not others):
        blocks = usable if cards > usable else sure
        yield Finding.of(
            "block-count",
            BLOCKS,
            f"the pod has {_blocks(blocks)} for {resource}, and its containers ask for {cards}",
            f"Write {_blocks(cards)}, or ask for {resource}: {blocks}"
            if cards and blocks
            else (f"Ask for {resource}: {blocks}" if blocks else f"Write {_blocks(cards)}"),
        )


def network_shares(review: PodReview) -> Iterator[Finding]:
    """Refuse more networks for a resource than the pod asks for shares of it.

    Only warn of a pod that asks for no share of the resource.
    """
    if not review.pod.whole:
        return
    asks = tuple((ask, network_of(ask, review)) for ask in review.pod.networks)
    for resource in dict.fromkeys(network.resource for _, network in asks if network):
        if resource is None or _pooled(resource, review):
            continue
        tied = [ask.network for ask, network in asks if network and network.resource == resource]
        shares = held_shares(review.pod, resource)
        if len(tied) > shares:
            others = dict.fromkeys(ask.resource for _, ask in review.shares)
            few = f"ask for {shares}" if shares else f"ask for {listed([*others]) or 'none'}"
            needs = "needs a share" if len(tied) == 1 else f"need {len(tied)} shares"
            problem = f"{listed(tied)} {needs} of {resource}, and the pod's containers {few}"
            remedy = f"Ask for {resource}: {len(tied)}, or remove networks"
            severity = Severity.ERROR if shares else Severity.WARNING
            yield Finding.of("network-shares", NETWORKS, problem, remedy, severity)


def isolation(review: PodReview) -> Iterator[Finding]:
    """Refuse a network in another tenant's namespace, if agents isolate namespaces."""
    blocks = tuple(_shared(ask, review) for ask in review.pod.blocks or ())
    for path, asks in ((NETWORKS, review.pod.networks), (BLOCKS, blocks)):
        try:
            requests.refuse_isolated(review.pod.namespace, asks, review.settings.global_namespaces)
        except Refused as refused:
            for fault in (refused, *refused.more):
                problem = f"{fault.where}: {fault.problem}"
                yield Finding.of("namespace-isolation", path, problem, fault.remedy)


def _shared(block: NetworkAsk, review: PodReview) -> NetworkAsk:
    """Return a block with the shared namespace, if its network exists only there."""
    shared = replace(block, namespace=requests.SHARED)
    is_shared = network_of(block, review) is None and network_of(shared, review) is not None
    return shared if is_shared else block


def unfit_entries(review: PodReview) -> Iterator[Finding]:
    """Refuse requests of an entry that an interface of its network cannot fulfil.

    Another program may attach networks of Multus' annotation, so there it is a warning. Entries
    that ib-kubernetes completes later are not judged.
    """
    for path, asks in ((NETWORKS, review.pod.networks), (BLOCKS, review.pod.blocks or ())):
        for ask in asks:
            network = network_of(ask, review)
            try:
                waits = isinstance(network, kinds.IbSriovNetwork) and network.configured
                if network is not None and not waits:
                    asked_addresses = unpooled(requests.match_entries((ask,), (network,)))
                    refuse_reserved(asked_addresses, review.pod.namespace, review.facts.reserved)
            except Refused as refused:
                severity = Severity.ERROR if path == BLOCKS else Severity.WARNING
                for fault in (refused, *refused.more):
                    problem = f"{fault.where}: {fault.problem}"
                    yield Finding.of("network-entry", path, problem, fault.remedy, severity)


def no_address(review: PodReview) -> Iterator[Finding]:
    """Warn of a network by which a pod would get an interface without an address."""
    for path, asks in ((NETWORKS, review.pod.networks), (BLOCKS, review.pod.blocks or ())):
        for ask in asks:
            why = "" if ask.addresses else _addressless(ask, review)
            if why:
                problem = f"{ask.source}: {why}, so its interface would have no address"
                remedy = "Create the IPPool, name one in the network's ipam, or ask for an address"
                yield Finding.of("no-address", path, problem, remedy, Severity.WARNING)


def shares_without_network(review: PodReview) -> Iterator[Finding]:
    """Report fewer networks than shares, where each share needs, or may need, an interface.

    RoCE needs a GID of the pod's own, which the interface's address makes.
    """
    pod = review.pod
    elsewhere = pod.claims or pod.faults or requests.DEFAULT_NETWORK in dict(pod.annotations)
    if pod.host_network or not pod.whole or elsewhere:
        return
    asks = (*pod.networks, *(pod.blocks or ()))
    tied = [one.resource if (one := network_of(ask, review)) else None for ask in asks]
    needs = {ask.resource: network_need(ask.resource, review) for _, ask in review.shares}
    short = {
        name: held_shares(pod, name) - tied.count(name) for name, need in needs.items() if need
    }
    lacking = {name: count for name, count in short.items() if count > 0}
    if sum(lacking.values()) <= tied.count(None):
        return
    severity = min((needs[name] or Severity.ADVICE for name in lacking), key=[*Severity].index)
    shares = listed([f"{held_shares(pod, name)} of {name}" for name in lacking])
    named = f"{len(asks) or 'no'} network{'s' * (len(asks) > 1)}"
    card = "a card without one" if severity is Severity.WARNING else "on Ethernet (RoCE) a card"
    problem = f"the pod asks for {shares} and for {named}: {card} has no GID of its own and "
    problem += "reaches no peer"
    remedy = _missing_networks(lacking, review)
    yield Finding.of("shares-without-network", NETWORKS, problem, remedy, severity)


def network_need(resource: str, review: PodReview) -> Severity | None:
    """Return WARNING if each share of a resource needs a network, ADVICE if it may, else None.

    InfiniBand and EFA need none, nor does a share of all cards. The setting networkResources of the
    administrator counts first, then the cards of pools and the networks of the resource.
    """
    if matches(resource, review.settings.network_resources):
        return Severity.WARNING
    pools = candidates(review.pod, resource, review.facts)
    layers = {layer for pool in pools for layer in layers_of(pool)}
    if not all(is_shared(pool.spec) for pool in pools) or layers - {LinkLayer.ETHERNET}:
        return None
    tied = [one for one in review.facts.networks if one.resource == resource]
    if layers or any(isinstance(one, _ON_ETHERNET) for one in tied):
        return Severity.WARNING
    if tied and all(isinstance(one, _OF_INFINIBAND) for one in tied):
        return None
    return Severity.ADVICE if pools or tied else None


def _missing_networks(lacking: Mapping[str, int], review: PodReview) -> str:
    """Return the annotation to write for networks of these resources, as a remedy."""
    space = f"{review.pod.namespace}/"
    tied = sorted((one.name.removeprefix(space), one.resource) for one in review.facts.networks)
    own = {resource: name for name, resource in sorted(tied, key=lambda one: "/" not in one[0])}
    names = [own.get(name, "") for name, count in lacking.items() for _ in range(count)]
    add = "Add" if review.pod.networks else "Write"
    if all(names):
        return f"{add} {requests.ANNOTATION}: {listed(names, most=8)}"
    where = f"{requests.ANNOTATION} (kube-rdma resources lists them)"
    return f"{add} a network for each share in {where}"


def two_kinds(networks: Iterable[Network]) -> Iterator[Finding]:
    """Warn of networks of types macvlan and ipvlan on one interface, which cannot be used at once.

    Either takes all frames of the interface, which the kernel gives to one: EBUSY of
    ipvlan_port_create (drivers/net/ipvlan/ipvlan_main.c) and macvlan_port_create.
    """
    for one, other in permutations(networks, 2):
        kinds_of = isinstance(one, kinds.MacvlanNetwork) and isinstance(other, kinds.IpvlanNetwork)
        if kinds_of and one.device and one.device == other.device:
            problem = f"network {one.name} is of type macvlan and {other.name} of type ipvlan, and "
            problem += f"{one.device} can have only one of both at a time (EBUSY)"
            remedy = "Write one type into both networks, or put one of them on another card"
            yield Finding.of("two-kinds", "", problem, remedy, Severity.WARNING)


def costly_entries(review: PodReview) -> Iterator[Finding]:
    """Warn of entries that take the pod's default route, or one address for several pods."""
    pod, warning = review.pod, Severity.WARNING
    everywhere = pod.kind == "DaemonSet"
    pods = "its pod on each node" if everywhere else f"all {pod.copies} pods of it"
    for path, asks in ((NETWORKS, pod.networks), (BLOCKS, pod.blocks or ())):
        for ask in asks:
            if ask.default_routes:
                ways = listed([*map(str, ask.default_routes)])
                problem = f"{ask.source}: by default-route {ways} all traffic leaves through "
                problem += f"{ask.network}, so the pod loses cluster DNS and Services"
                remedy = "Remove default-route; write routes to other subnets into network or pool"
                yield Finding.of("default-route", path, problem, remedy, warning)
            if ask.addresses and (everywhere or pod.copies > 1):
                problem = f"{ask.source}: the template asks for "
                problem += f"{listed([str(one.address) for one in ask.addresses])}, and {pods} "
                problem += "would have this same address"
                remedy = "Leave ips out, so that a pool gives each pod its own"
                yield Finding.of("one-address", path, problem, remedy, warning)


def network_of(ask: NetworkAsk, review: PodReview) -> Network | None:
    """Return the known network that an entry names; None for an unknown one."""
    name = f"{ask.namespace}/{ask.network}"
    return next((network for network in review.facts.networks if network.name == name), None)


def _no_blocks(cards: int, review: PodReview) -> Iterator[Finding]:
    """Warn of cards of a pod that asks for no network: it gets no interface on them."""
    pod = review.pod
    asking = pod.networks or pod.faults or requests.POD_NETWORKS in dict(pod.annotations)
    if cards and not pod.host_network and not asking:
        problem = (
            f"the pod asks for {cards} of {review.settings.counted} and for no network, so it "
        )
        problem += "gets their device nodes alone"
        remedy = f"Write {_blocks(cards)}, or hostNetwork: true"
        yield Finding.of("block-count", BLOCKS, problem, remedy, Severity.WARNING)


def _belongs(ask: NetworkAsk, network: Network | None, review: PodReview) -> bool:
    """Decide whether a block surely takes a card of the resource that blocks are counted for."""
    if network is None:
        return ask.network == review.settings.block
    return network.resource == review.settings.counted


def _may_belong(network: Network | None, resource: str) -> bool:
    """Decide whether an entry may take a card of a resource; an unknown network may."""
    if network is None or network.resource == resource:
        return True
    return network.resource is None and not isinstance(network, kinds.ForeignNetwork)


def _pooled(resource: str, review: PodReview) -> bool:
    """Decide whether one share may stand for all cards of a pool, so that counts say nothing."""
    pools = candidates(review.pod, resource, review.facts)
    return any(terms(pool.spec).bind is Bind.POOL for pool in pools)


def _addressless(ask: NetworkAsk, review: PodReview) -> str:
    """Return why an entry's interface gets no address; empty if it does, or is unknown."""
    network = network_of(ask, review)
    block, pools = review.settings.block, review.facts.ip_pools
    if network is None:
        built_in = ask.network == block and ask.by_pod_networks
        if not built_in or pools is None or block in pools:
            return ""
        mode = fixed_mode(review.pod, review.settings.counted, review.facts)
        return "" if mode and MODES[mode].owns else f"no IPPool is called {block}"
    if isinstance(network, kinds.ForeignNetwork) or network.ipam_plugin or network.static:
        return ""
    if network.card_addresses is not CardAddresses.STAY:
        return ""
    if not network.pools:
        return f"the network {network.name} says nothing of addresses"
    missing = [pool for pool in network.pools if pool not in (pools or network.pools)]
    which = f"the network {network.name} names IPPool"
    return f"{which} {missing[0]}, which is not here" if missing else ""


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
