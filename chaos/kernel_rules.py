"""What the kernel of a node has to show: of the node as on the first day, of each pod what it has.

Links, addresses, rules, routes and RDMA devices of the node are compared with those of before the
load; those of a pod's namespace with what the pod asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network

from chaos.finding import Account, Discrepancy, Thing, repeated
from chaos.seen import Seen, SeenLink, SeenNamespace, SeenNode, SeenPod

VETH = "veth"  # the cluster's own network has one for each pod
BRIDGE = "cni0"  # which its plugin makes for the first pod of a node
OURS = "net"  # how kube-rdma's interfaces are called in a pod that names none


def addresses_of(link: SeenLink, seen: Seen) -> tuple[str, ...]:
    """The addresses of a link that are of the pods' pool, without their prefix."""
    texts = (text.partition("/")[0] for text in link.addresses)
    return tuple(text for text in texts if ip_address(text) in ip_network(seen.subnet))


def in_use(node: SeenNode, seen: Seen) -> tuple[tuple[str, SeenNamespace], ...]:
    """Every address of the pool that the kernel of a node has, with its namespace."""
    return tuple(
        (address, space)
        for space in node.namespaces
        for link in space.links
        for address in addresses_of(link, seen)
    )


def explains(pod: SeenPod) -> bool:
    """Whether somebody has told of the pod that its card is away, or what went with it."""
    return pod.has_lost_networks or any(note.startswith("RDMACard") for note in pod.notes)


def judge(
    node: SeenNode,
    before: SeenNode,
    pods: Mapping[str, SeenPod],
    living: frozenset[str],
    seen: Seen,
) -> Iterable[Discrepancy]:
    """What is wrong in the kernel of a node; `pods` are those of the load there, by uid."""
    account = Account(node.name)
    _own_links(account, node, before)
    of_pods = {name for space in node.others for name, _ in space.rdma}
    _same(account, Thing.RDMA, (name for name in node.rdma if name not in of_pods), before.rdma)
    own, first = node.own, before.own
    _same(account, Thing.RULE, map(str, own.rules), map(str, first.rules))
    _same(account, Thing.RULE, own.routes, first.routes)
    _namespaces(account, node, living)
    for space in node.others:
        for uid in space.pods:
            if uid in pods:
                _pod(account, space, pods[uid], seen)
        is_informed = any(uid in pods and pods[uid].has_lost_networks for uid in space.pods)
        _rules(account, space, seen, is_informed=is_informed)
    with_one = {uid for space in node.others for uid in space.pods}
    for uid, pod in pods.items():
        if pod.is_ready and uid not in with_one:
            account.lost(Thing.NAMESPACE, f"pod {pod.name} is Ready and has none")
    return account


def _same(account: Account, thing: Thing, now: Iterable[str], before: Iterable[str]) -> None:
    """What is there now and was not, and the other way round."""
    present, first = list(now), list(before)
    for text in sorted({*present} - {*first}):
        account.leaked(thing, f"the node has {text}")
    for text in sorted({*first} - {*present}):
        account.lost(thing, f"the node has no {text} any more")
    for text in repeated(present):
        if first.count(text) < present.count(text):
            account.doubled(thing, f"the node has {text} more than once")


def _own_links(account: Account, node: SeenNode, before: SeenNode) -> None:
    """The node's interfaces, but those pairs by which pods reach the cluster's network."""
    _same(account, Thing.NETDEV, _lasting(node.own), _lasting(before.own))
    were_up = {link.name for link in before.own.links if link.is_up}
    for link in node.own.links:
        if link.name in were_up and not link.is_up:
            account.lost(Thing.NETDEV, f"{link.name} is down, it was up")
    pairs = sum(link.kind == VETH and link.bridge == BRIDGE for link in node.own.links)
    ends = sum(link.kind == VETH for space in node.others for link in space.links)
    if pairs > ends:
        account.leaked(Thing.NETDEV, f"{pairs} pairs lead to pods, {ends} ends are in pods")


def _lasting(space: SeenNamespace) -> Iterator[str]:
    """The interfaces of a node that do not come and go with pods."""
    for link in space.links:
        if link.name != BRIDGE and (link.kind != VETH or link.bridge != BRIDGE):
            yield link.name


def _namespaces(account: Account, node: SeenNode, living: frozenset[str]) -> None:
    """Each is a living pod's, and each pod has one."""
    for space in node.others:
        if not living & {*space.pods}:
            whose = (
                f"pods {', '.join(space.pods)} are gone" if space.pods else "no process is in it"
            )
            account.leaked(Thing.NAMESPACE, f"{space.name}: {whose}")
    for uid in repeated(uid for space in node.others for uid in space.pods):
        account.doubled(Thing.NAMESPACE, f"pod {uid} has processes in more than one")


def _pod(account: Account, space: SeenNamespace, pod: SeenPod, seen: Seen) -> None:
    """The interfaces that a pod asked for, each up and with its address."""
    links = [link for link in space.links if link.name.startswith(OURS)]
    if len(links) > pod.interfaces:
        account.doubled(Thing.NETDEV, f"pod {pod.name} has {len(links)} for {pod.interfaces}")
    if not pod.is_ready or explains(pod):
        return
    if len(links) < pod.interfaces:
        account.lost(Thing.NETDEV, f"pod {pod.name} has {len(links)} of {pod.interfaces}")
    for link in links:
        if not link.is_up:
            account.lost(Thing.NETDEV, f"{link.name} of pod {pod.name} is down")
        count = len(addresses_of(link, seen))
        if not count:
            account.lost(Thing.ADDRESS, f"{link.name} of pod {pod.name} has none")
        elif count > 1:
            account.doubled(Thing.ADDRESS, f"{link.name} of pod {pod.name} has {count}")
    if pod.has_verbs:
        _devices(account, space, pod, [link.name for link in links])


def _devices(account: Account, space: SeenNamespace, pod: SeenPod, links: Iterable[str]) -> None:
    """Each of a pod's interfaces has one RDMA device of its own."""
    standing = [link for _, link in space.rdma]
    for name in links:
        count = standing.count(name)
        if not count:
            account.lost(Thing.RDMA, f"{name} of pod {pod.name} has none")
        elif count > 1:
            account.doubled(Thing.RDMA, f"{name} of pod {pod.name} has {count}")


def _rules(account: Account, space: SeenNamespace, seen: Seen, *, is_informed: bool) -> None:
    """Each address of a pod has one rule, and each rule an address.

    The kernel keeps a rule whose interface is gone. It is inside of the pod, and goes with it; so
    it is no leak where the pod knows of it (`is_informed`).
    """
    have = {address for link in space.links for address in addresses_of(link, seen)}
    sources = [rule.source for rule in space.rules]
    for source in () if is_informed else sorted({*sources} - have):
        account.leaked(Thing.RULE, f"{space.name} has one from {source}, which is not there")
    for source in repeated(sources):
        account.doubled(Thing.RULE, f"{space.name} has more than one from {source}")
    for address in sorted(have - {*sources}):
        account.lost(Thing.RULE, f"{space.name} has none from {address}")
