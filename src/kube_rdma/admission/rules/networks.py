"""Rules about a pod's annotations: against the shares in its limits and the networks there are.

Networks are attached long after admission, on a node whose own configuration is not seen here. So
a pod is refused only for what attach/rules would refuse on every node.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.admission.rules.shares import asked, candidates, fixed_mode, held_shares
from kube_rdma.attach.rules import requests
from kube_rdma.attach.rules.addresses import refuse_reserved, unpooled
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission import AdmissionFacts, AdmissionSettings, PodTemplate
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


def block_count(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """Refuse another number of blocks than of cards, as attaching the network would."""
    if not template.whole:
        return
    resource = settings.counted
    cards = held_shares(template, resource)
    if template.blocks is None:
        yield from _no_blocks(template, cards, settings)
        return
    if _pooled(template, resource, facts):
        return
    named = [network_of(ask, facts) for ask in template.blocks]
    sure = sum(
        _belongs(ask, net, settings) for ask, net in zip(template.blocks, named, strict=True)
    )
    usable = sum(_may_belong(network, resource) for network in named)
    others = any(ask.resource != resource for _, ask in asked(template, settings.shares))
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


def network_shares(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """Refuse a network that is tied to a resource of which the pod asks for no share."""
    if not template.whole:
        return
    asks = tuple((ask, network_of(ask, facts)) for ask in template.networks)
    for resource in dict.fromkeys(network.resource for _, network in asks if network):
        if resource is None or _pooled(template, resource, facts):
            continue
        tied = [ask.network for ask, network in asks if network and network.resource == resource]
        shares = held_shares(template, resource)
        if len(tied) > shares:
            yield Finding.of(
                "network-shares",
                NETWORKS,
                f"{listed(tied)} of the pod's networks need {len(tied)} shares of {resource}, and "
                f"its containers ask for {shares}",
                f"Ask for {resource}: {len(tied)}, or remove networks",
                Severity.ERROR if shares else Severity.WARNING,
            )


def isolation(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """Refuse a network of another tenant, where agents keep namespaces apart."""
    blocks = tuple(_shared(ask, facts) for ask in template.blocks or ())
    for path, asks in ((NETWORKS, template.networks), (BLOCKS, blocks)):
        try:
            requests.refuse_isolated(template.namespace, asks, settings.everybodys)
        except Refused as refused:
            for fault in (refused, *refused.more):
                problem = f"{fault.where}: {fault.problem}"
                yield Finding.of("namespace-isolation", path, problem, fault.remedy)


def _shared(block: NetworkAsk, facts: AdmissionFacts) -> NetworkAsk:
    """Return a block with the namespace of its network, where that is the shared one."""
    shared = replace(block, namespace=requests.SHARED)
    is_shared = network_of(block, facts) is None and network_of(shared, facts) is not None
    return shared if is_shared else block


def unfit_entries(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """Refuse what an entry asks for and an interface of its network cannot have, by attach/rules.

    Another program may attach networks of the one annotation, so there it is a warning. What
    ib-kubernetes writes into an entry is not there yet.
    """
    del settings
    for path, asks in ((NETWORKS, template.networks), (BLOCKS, template.blocks or ())):
        for ask in asks:
            network = network_of(ask, facts)
            try:
                waits = isinstance(network, kinds.IbSriovNetwork) and network.configured
                if network is not None and not waits:
                    asked_addresses = unpooled(requests.match_entries((ask,), (network,)))
                    refuse_reserved(asked_addresses, template.namespace, facts.reserved)
            except Refused as refused:
                severity = Severity.ERROR if path == BLOCKS else Severity.WARNING
                for fault in (refused, *refused.more):
                    problem = f"{fault.where}: {fault.problem}"
                    yield Finding.of("network-entry", path, problem, fault.remedy, severity)


def no_address(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """Warn of an interface without an address: the pod starts, and its programs cannot use the
    card.
    """
    for path, asks in ((NETWORKS, template.networks), (BLOCKS, template.blocks or ())):
        for ask in asks:
            why = "" if ask.addresses else _addressless(template, ask, facts, settings)
            if why:
                yield Finding.of(
                    "no-address",
                    path,
                    f"{ask.source}: {why}, so its interface would have no address",
                    "Create the IPPool, name one in the network's ipam, or ask for an address",
                    Severity.WARNING,
                )


def network_of(ask: NetworkAsk, facts: AdmissionFacts) -> Network | None:
    """Return the network that an entry names, if it is known here."""
    name = f"{ask.namespace}/{ask.network}"
    return next((network for network in facts.networks if network.name == name), None)


def _no_blocks(template: PodTemplate, cards: int, settings: AdmissionSettings) -> Iterator[Finding]:
    """Warn of cards without any block: the container opens them, and has no interface on them."""
    asking = (
        template.networks or template.faults or requests.POD_NETWORKS in dict(template.annotations)
    )
    if cards and not template.host_network and not asking:
        yield Finding.of(
            "block-count",
            BLOCKS,
            f"the pod asks for {cards} of {settings.counted} and for no network, so it gets "
            "their device nodes alone",
            f"Write {_blocks(cards)}, or hostNetwork: true",
            Severity.WARNING,
        )


def _belongs(ask: NetworkAsk, network: Network | None, settings: AdmissionSettings) -> bool:
    """Decide whether an entry takes a card of the counted resource for sure."""
    if network is None:
        return ask.network == settings.block
    return network.resource == settings.counted


def _may_belong(network: Network | None, resource: str) -> bool:
    """Decide whether an entry can take a card of it; what is not known here may."""
    if network is None:
        return True
    return network.resource == resource or (
        network.resource is None and not isinstance(network, kinds.ForeignNetwork)
    )


def _pooled(template: PodTemplate, resource: str, facts: AdmissionFacts) -> bool:
    """Decide whether a share may stand for all cards of a pool: then the numbers say nothing."""
    pools = candidates(template, resource, facts)
    return any(terms(pool.spec).bind is Bind.POOL for pool in pools)


def _addressless(
    template: PodTemplate, ask: NetworkAsk, facts: AdmissionFacts, settings: AdmissionSettings
) -> str:
    """Return why an entry gets no address; empty where it gets one, or nobody can know."""
    network = network_of(ask, facts)
    if network is None:
        built_in = ask.network == settings.block and ask.by_pod_networks
        if not built_in or facts.ip_pools is None or settings.block in facts.ip_pools:
            return ""
        mode = fixed_mode(template, settings.counted, facts)
        return "" if mode and MODES[mode].owns else f"no IPPool is called {settings.block}"
    if isinstance(network, kinds.ForeignNetwork) or network.ipam_plugin or network.static:
        return ""
    if network.card_addresses is not CardAddresses.STAY:
        return ""
    if not network.pools:
        return f"the network {network.name} says nothing of addresses"
    missing = [pool for pool in network.pools if pool not in (facts.ip_pools or network.pools)]
    return (
        f"the network {network.name} names IPPool {missing[0]}, which is not here"
        if missing
        else ""
    )


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
