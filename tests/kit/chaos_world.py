"""A cluster that an audit finds nothing in: two nodes, pods by shares and by claims, all well.

Tests take one thing away from it, or add one that nobody has.
"""

from chaos.seen import (
    KubeletShare,
    Seen,
    SeenAttachment,
    SeenBinding,
    SeenBooking,
    SeenCdiFile,
    SeenClaim,
    SeenHolding,
    SeenLink,
    SeenNamespace,
    SeenNode,
    SeenOffer,
    SeenPod,
    SeenPromise,
    SeenRule,
)
from kube_base.frozen import replace

NODES = ("node-1", "node-2")
CARDS = ("0000:04:00.0", "0000:84:00.0")
OWN = (SeenLink("eth0", "veth", addresses=("10.89.0.11/24",)), SeenLink("ib0"), SeenLink("ib4"))
CLUSTER = "10.244.1.7"  # of each pod on the cluster's own network
TAINT = "example.com/theirs=kept:PreferNoSchedule"
DEVICE = "/dev/infiniband/uverbs0"
ROUTE = "route default dev eth0 via 10.89.0.1 in main"


class ChaosWorld:
    """Makes a Seen of pods: each is (node's number, by claim, interfaces).

    `has_verbs`: on machines, where each interface has an RDMA device of its own.
    """

    def __init__(self, *pods, has_verbs=False):
        self._wanted = pods
        self._has_verbs = has_verbs

    def seen(self):
        """With these pods."""
        pods = [
            SeenPod(
                f"uid-{at}", f"pod-{at}", NODES[node], count, by_claim, has_verbs=self._has_verbs
            )
            for at, (node, by_claim, count) in enumerate(self._wanted)
        ]
        nodes = tuple(
            _node(name, [pod for pod in pods if pod.node == name], self._first(pods))
            for name in NODES
        )
        return Seen(
            nodes,
            tuple(pods),
            tuple(_claim(pod) for pod in pods if pod.by_claim),
            tuple(
                SeenHolding(
                    f"block-{at}", name, tuple(f"10.77.0.{at * 100 + n}" for n in range(100))
                )
                for at, name in enumerate(NODES)
            ),
            tuple(SeenOffer(name, 64, 8, CARDS, (TAINT,)) for name in NODES),
            ("uid-agent",),
        )

    def before(self):
        """Without any."""
        return ChaosWorld(has_verbs=self._has_verbs).seen()

    def _first(self, pods):
        """The number of each pod's first address on its node."""
        return {pod.uid: 1 + at * 3 for at, pod in enumerate(pods)}


def _addresses(pod, first):
    base = NODES.index(pod.node) * 100 + first[pod.uid]
    return [f"10.77.0.{base + n}" for n in range(pod.interfaces)]


def _claim(pod):
    return SeenClaim(f"claim-{pod.uid}", pod.name, pod.uid, devices=(f"{pod.node}/card/{pod.uid}",))


def shares_of(pod):
    """What a pod holds by shares."""
    return tuple(f"0000:04:00.0-{pod.uid}-{n}" for n in range(pod.interfaces))


def _node(name, pods, first):
    shared = [pod for pod in pods if not pod.by_claim]
    claimed = [pod for pod in pods if pod.by_claim]
    pairs = tuple(SeenLink(f"veth{pod.uid}", "veth", bridge="cni0") for pod in pods)
    bridge = (SeenLink("cni0", "bridge"),) if pods else ()
    own = SeenNamespace("", links=(*OWN, *bridge, *pairs), routes=(ROUTE,))
    return SeenNode(
        name,
        (own, *(_namespace(pod, _addresses(pod, first)) for pod in pods)),
        ("mlx5_0", "mlx5_4", *(name for pod in pods for name, _ in _verbs(pod))),
        (DEVICE,),
        tuple(SeenBooking(_c(pod), pod.uid, tuple(_addresses(pod, first))) for pod in pods),
        tuple(
            SeenAttachment(
                _c(pod),
                pod.uid,
                tuple((f"net{n}", text) for n, text in enumerate(_addresses(pod, first), 1)),
            )
            for pod in pods
        ),
        tuple(SeenBinding(_n(pod), _c(pod), pod.uid, shares_of(pod)) for pod in shared),
        tuple(SeenPromise(_n(pod), shares_of(pod)) for pod in shared),
        tuple(f"claim-{pod.uid}" for pod in claimed),
        (),
        tuple(SeenCdiFile(_file(pod), (DEVICE,)) for pod in pods),
        tuple(f"claims/{_c(pod)}" if pod.by_claim else f"{_c(pod)}-{_n(pod)}" for pod in pods),
        tuple(KubeletShare(pod.uid, share) for pod in shared for share in shares_of(pod)),
    )


def _c(pod):
    return f"container-{pod.uid}"


def _n(pod):
    return f"nonce-{pod.uid}"


def _file(pod):
    if pod.by_claim:
        return f"kube-rdma_claim-claim-{pod.uid}.json"
    return f"kube-rdma-{_c(pod)}-{_n(pod)}.json"


def _namespace(pod, addresses):
    links = (
        SeenLink("eth0", "veth", addresses=(f"{CLUSTER}/24",)),
        *(
            SeenLink(f"net{n}", "macvlan", addresses=(f"{text}/24",), parent=f"ib{n * 4 - 4}")
            for n, text in enumerate(addresses, 1)
        ),
    )
    rules = tuple(SeenRule(text, f"{100 + n}") for n, text in enumerate(addresses, 1))
    return SeenNamespace(f"cni-{pod.uid}", (pod.uid,), links, rules, rdma=_verbs(pod))


def _verbs(pod):
    """The RDMA devices of a pod, each with its interface."""
    count = pod.interfaces if pod.has_verbs else 0
    return tuple((f"rxe-{pod.uid}-{n}", f"net{n}") for n in range(1, count + 1))


def on(seen, name, **changes):
    """The same with a node changed; each change makes the new value from the node."""
    nodes = tuple(
        replace(node, **{key: make(node) for key, make in changes.items()})
        if node.name == name
        else node
        for node in seen.nodes
    )
    return replace(seen, nodes=nodes)


def in_namespace(seen, name, space_name, **changes):
    """The same with a namespace of a node changed in the same way."""

    def spaces(node):
        return tuple(
            replace(space, **{key: make(space) for key, make in changes.items()})
            if space.name == space_name
            else space
            for space in node.namespaces
        )

    return on(seen, name, namespaces=spaces)
