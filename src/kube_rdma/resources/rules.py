"""Lists the resources, classes and networks of a namespace, and how much of them is free.

resources/reader hands in what it read, and resources/views shows the result. A share is free where
its node may get pods, the node lists it as allocatable, and no unfinished pod there asks for it.
Where claims serve a resource's name, the kubelet lists no shares, and the node's report says how
many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from kube_base.frozen import replace
from kube_rdma.attach.rules import requests
from kube_rdma.model import resources
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.names import PublishedName
from kube_rdma.model.pools import Bind, Mode
from kube_rdma.model.reports import ReportedPool
from kube_rdma.pools.rules.modes import MODES, ModeRow

_NATIVE = ("kubernetes.io/", "requests.", "limits.")
_OLD_RUNTIME = "containerd://1."  # by default it reads no CDI files, which lift the memlock limit
_BLOCK = (requests.POD_NETWORKS, '[{"cniConf": {"name": "rdma"}}]')


def resource_list(facts: resources.AuthorFacts) -> resources.ResourceListing:
    """Return what a namespace's pods may use; empty if nothing could be read.

    Resources and classes are sorted by name.
    """
    every = facts.networks or ()
    allowed = [network for network in every if _may_name(facts, network)]
    free = {pool.name: pool.free for pool in facts.ip_pools or ()}
    agents = facts.agents or resources.AgentFacts()
    runtimes = [node.runtime_version for node in facts.nodes or ()]
    lifted = agents.networks and not any(one.startswith(_OLD_RUNTIME) for one in runtimes)
    return resources.ResourceListing(
        facts.namespace,
        tuple(_resource(facts, name, allowed) for name in sorted(_names(facts))),
        tuple(sorted(facts.classes or (), key=lambda one: one.name)),
        tuple(_allowed(network, free) for network in allowed),
        len(every) - len(allowed),
        agents.image,
        not (lifted and runtimes),
        facts.not_seen,
        tuple(_named(facts.names or ())),
        agents.preflight,
    )


def _named(names: Sequence[PublishedName]) -> Iterator[resources.NamingListing]:
    """Yield each Service that names addresses, with how many it names."""
    for _, group in groupby(names, key=lambda one: one.service):
        of_service = tuple(group)
        dns = replace(of_service[0], hostname="HOSTNAME").dns
        ready = sum(one.ready for one in of_service)
        yield resources.NamingListing(dns, len(of_service), ready)


def _names(facts: resources.AuthorFacts) -> set[str]:
    """Return the resource names of kube-rdma's objects, and others that look like RDMA."""
    reported = {pool.resource for _, pool in _pools(facts)}
    classes = {one.resource for one in facts.classes or ()}
    networks = {one.resource for one in facts.networks or ()}
    guessed = {name for node in facts.nodes or () for name, _ in node.allocatable}
    guessed |= {held.resource for held in (*(facts.own_pods or ()), *(facts.pods or ()))}
    guessed |= {quota.resource for quota in facts.quotas or () if not quota.idle}
    return {*reported, *classes, *networks, *filter(_looks_like_rdma, guessed)} - {""}


def _looks_like_rdma(name: str) -> bool:
    return (
        "/" in name
        and not name.startswith(_NATIVE)
        and any(part in name.lower() for part in resources.NAMED_LIKE_RDMA)
    )


def _pools(facts: resources.AuthorFacts) -> Iterator[tuple[str, ReportedPool]]:
    """Yield each pool of all NodeReports, with the name of its node."""
    for node, report in (facts.reports or {}).items():
        for pool in report.pools:
            yield node, pool


def _resource(
    facts: resources.AuthorFacts, name: str, networks: list[resources.NamedNetwork]
) -> resources.NamedResource:
    pools = [pool for _, pool in _pools(facts) if pool.resource == name]
    modes = tuple(dict.fromkeys(pool.mode for pool in pools))
    totals = _totals(facts, name)
    free = _free(facts, name, totals)
    tied = [network for network in networks if network.resource == name]
    needs, owned = _needs_network(facts, name), any(row.owns for row in _rows(modes))
    quotas = [quota for quota in facts.quotas or () if quota.resource == name]
    return resources.NamedResource(
        name=name,
        modes=modes,
        meaning=_meaning(modes),
        nodes=None if totals is None else sum(count > 0 for count in totals.values()),
        total=None if totals is None else sum(totals.values()),
        free=None if free is None else sum(free.values()),
        most=None if free is None else max(free.values(), default=0),
        used_here=None if facts.own_pods is None else _held(facts.own_pods, name).total(),
        quota=min((max(one.hard - one.used, 0) for one in quotas if not one.idle), default=None),
        by_claims=any(pool.by_claims for pool in pools),
        networks=tuple(network.title for network in tied),
        needs_network=needs,
        annotation=_annotation(name, tied) if needs is not False or owned else None,
        idle_quotas=tuple(one.idle for one in quotas if one.idle),
    )


def _rows(modes: Iterable[str]) -> list[ModeRow]:
    """Return the properties of these modes; skip modes that only a newer release has."""
    return [MODES[Mode(mode)] for mode in modes if mode in set(Mode)]


def _meaning(modes: tuple[str, ...]) -> str:
    """Return what a share means, if there is one known mode; else an empty text."""
    return _rows(modes)[0].meaning if len(modes) == 1 and _rows(modes) else ""


def _needs_network(facts: resources.AuthorFacts, name: str) -> bool | None:
    """Return whether a pod needs a network to have an address on its card; None if unknown.

    InfiniBand and EFA reach peers without one, and a share of all cards is for pods on the node's
    own network.
    """
    needs = set()
    for report in (facts.reports or {}).values():
        modes = [pool.mode for pool in report.pools if pool.resource == name]
        if any(row.bind is Bind.POOL for row in _rows(modes)):
            needs.add(False)
        elif modes:
            ports = (port for card in report.cards if name in card.resources for port in card.ports)
            needs |= {port.link_layer == LinkLayer.ETHERNET for port in ports}
    return any(needs) if needs else None


def _annotation(name: str, networks: Sequence[resources.NamedNetwork]) -> tuple[str, str] | None:
    """Return the annotation that gives a pod with one share a network; None without a network.

    A network that follows the card comes before others. VKE's resource has an annotation of its own
    where no network exists.
    """
    if networks:
        return requests.ANNOTATION, max(networks, key=lambda one: one.follows_card).title
    return _BLOCK if name == requests.RESOURCE else None


def _totals(facts: resources.AuthorFacts, name: str) -> dict[str, int] | None:
    """Return by node the shares that pods can be given; None with no nodes and no reports."""
    reported = {node: pool for node, pool in _pools(facts) if pool.resource == name}
    if facts.nodes is None:
        if facts.reports is None:
            return None
        return {node: pool.healthy for node, pool in reported.items()}
    totals = {}
    for node in facts.nodes:
        if node.unschedulable or node.ready is False:
            continue
        pool = reported.get(node.name)
        listed = dict(node.allocatable).get(name, 0)
        totals[node.name] = pool.healthy if pool and pool.by_claims else listed
    return totals


def _free(
    facts: resources.AuthorFacts, name: str, totals: dict[str, int] | None
) -> dict[str, int] | None:
    if totals is None or facts.pods is None:
        return None
    held = _held(facts.pods, name)
    return {node: max(total - held[node], 0) for node, total in totals.items()}


def _held(pods: tuple[resources.HeldShares, ...], name: str) -> Counter[str]:
    """Return by node the number of shares of a resource that pods hold."""
    held: Counter[str] = Counter()
    for shares in pods:
        if shares.resource == name:
            held[shares.node] += shares.count
    return held


def _may_name(facts: resources.AuthorFacts, network: resources.NamedNetwork) -> bool:
    """Return whether agents' isolation and the network's pools let the namespace name it."""
    shared = facts.agents.global_namespaces if facts.agents else None
    if shared is not None and network.namespace not in (facts.namespace, *shared):
        return False
    pools = [pool for pool in facts.ip_pools or () if pool.name in network.pools]
    return all(not pool.namespaces or facts.namespace in pool.namespaces for pool in pools)


def _allowed(network: resources.NamedNetwork, free: Mapping[str, str]) -> resources.AllowedNetwork:
    counts = [free[name] for name in network.pools if free.get(name)]
    shown = ", ".join(dict.fromkeys(counts)) if len(counts) == len(network.pools) else ""
    return resources.AllowedNetwork(network.title, network.resource, shown)
