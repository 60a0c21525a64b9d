"""Rules about a pod's annotations: against the shares in its limits and the networks there are.

Networks are attached long after admission, on a node whose own configuration is not seen here. So
a pod is refused only for what attach/rules would refuse on every node.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.admission.rules.shares import PodReview, candidates, fixed_mode, held_shares
from kube_rdma.attach.rules import requests
from kube_rdma.attach.rules.addresses import refuse_reserved, unpooled
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import CardAddresses, Network, NetworkAsk
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.pools import Bind
from kube_rdma.pools.rules.modes import MODES, terms

NETWORKS = ("metadata", "annotations", requests.ANNOTATION)
BLOCKS = ("metadata", "annotations", requests.POD_NETWORKS)


def unreadable(template: PodTemplate) -> Iterator[Finding]:
    """Yield faults of the annotations themselves. Networks may be for another to read."""
    for fault in template.faults:
        yield fault if fault.path == BLOCKS else replace(fault, severity=Severity.WARNING)


def block_count(review: PodReview) -> Iterator[Finding]:
    """Refuse another number of blocks than of cards, as attaching the network would."""
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
    """Refuse a network that is tied to a resource of which the pod asks for no share."""
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
            yield Finding.of(
                "network-shares",
                NETWORKS,
                f"{listed(tied)} {needs} of {resource}, and the pod's containers {few}",
                f"Ask for {resource}: {len(tied)}, or remove networks",
                Severity.ERROR if shares else Severity.WARNING,
            )


def isolation(review: PodReview) -> Iterator[Finding]:
    """Refuse a network of another tenant, where agents keep namespaces apart."""
    blocks = tuple(_shared(ask, review) for ask in review.pod.blocks or ())
    for path, asks in ((NETWORKS, review.pod.networks), (BLOCKS, blocks)):
        try:
            requests.refuse_isolated(review.pod.namespace, asks, review.settings.global_namespaces)
        except Refused as refused:
            for fault in (refused, *refused.more):
                problem = f"{fault.where}: {fault.problem}"
                yield Finding.of("namespace-isolation", path, problem, fault.remedy)


def _shared(block: NetworkAsk, review: PodReview) -> NetworkAsk:
    """Return a block with the namespace of its network, where that is the shared one."""
    shared = replace(block, namespace=requests.SHARED)
    is_shared = network_of(block, review) is None and network_of(shared, review) is not None
    return shared if is_shared else block


def unfit_entries(review: PodReview) -> Iterator[Finding]:
    """Refuse what an entry asks for and an interface of its network cannot have, by attach/rules.

    Another program may attach networks of the one annotation, so there it is a warning. What
    ib-kubernetes writes into an entry is not there yet.
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
    """Warn of an interface without an address: the pod starts, and its programs cannot use the
    card.
    """
    for path, asks in ((NETWORKS, review.pod.networks), (BLOCKS, review.pod.blocks or ())):
        for ask in asks:
            why = "" if ask.addresses else _addressless(ask, review)
            if why:
                problem = f"{ask.source}: {why}, so its interface would have no address"
                remedy = "Create the IPPool, name one in the network's ipam, or ask for an address"
                yield Finding.of("no-address", path, problem, remedy, Severity.WARNING)


def network_of(ask: NetworkAsk, review: PodReview) -> Network | None:
    """Return the network that an entry names, if it is known here."""
    name = f"{ask.namespace}/{ask.network}"
    return next((network for network in review.facts.networks if network.name == name), None)


def _no_blocks(cards: int, review: PodReview) -> Iterator[Finding]:
    """Warn of cards without any block: the container opens them, and has no interface on them."""
    pod = review.pod
    asking = pod.networks or pod.faults or requests.POD_NETWORKS in dict(pod.annotations)
    if cards and not pod.host_network and not asking:
        yield Finding.of(
            "block-count",
            BLOCKS,
            f"the pod asks for {cards} of {review.settings.counted} and for no network, so it gets "
            "their device nodes alone",
            f"Write {_blocks(cards)}, or hostNetwork: true",
            Severity.WARNING,
        )


def _belongs(ask: NetworkAsk, network: Network | None, review: PodReview) -> bool:
    """Decide whether an entry takes a card of the counted resource for sure."""
    if network is None:
        return ask.network == review.settings.block
    return network.resource == review.settings.counted


def _may_belong(network: Network | None, resource: str) -> bool:
    """Decide whether an entry can take a card of it; what is not known here may."""
    if network is None or network.resource == resource:
        return True
    return network.resource is None and not isinstance(network, kinds.ForeignNetwork)


def _pooled(resource: str, review: PodReview) -> bool:
    """Decide whether a share may stand for all cards of a pool: then the numbers say nothing."""
    pools = candidates(review.pod, resource, review.facts)
    return any(terms(pool.spec).bind is Bind.POOL for pool in pools)


def _addressless(ask: NetworkAsk, review: PodReview) -> str:
    """Return why an entry gets no address; empty where it gets one, or nobody can know."""
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
