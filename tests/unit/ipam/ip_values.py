"""Values of model/ipam for hypothesis: pools that are right, blocks, leases and borrow queues."""

from ipaddress import ip_network

from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model import ipam

LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?", fullmatch=True)
NODES = st.from_regex(r"[a-z]([-a-z0-9.]{0,9}[a-z0-9])?", fullmatch=True)
FAMILIES = st.sampled_from(ipam.Family)


@st.composite
def ranges(draw, number, family):
    """A range in the subnet of this number, so that no two meet."""
    base = (10 << 24 if family == 4 else 0xFD << 120) + (number << 16)
    bits = 32 if family == 4 else 128
    subnet = ip_network((base, draw(st.integers(bits - 16, bits - 2))))
    inside = st.integers(0, subnet.num_addresses - 1).map(subnet.__getitem__)
    first, last = sorted(draw(st.tuples(inside, inside)))
    gateway = st.integers(1, subnet.num_addresses - 2).map(subnet.__getitem__)
    rail, source = draw(st.none() | st.integers(0, 7)), f"IPPool {{}}: spec.ranges[{number}]"
    if draw(st.booleans()):
        router = draw(st.none() | gateway)
        per_node = draw(slices(subnet, router))
        return ipam.IPRange(
            subnet,
            gateway=router if per_node.is_one_subnet else None,
            rail=rail,
            source=source,
            per_node=per_node,
        )
    return ipam.IPRange(
        subnet,
        draw(st.none() | st.just(first)),
        draw(st.none() | st.just(last)),
        draw(st.none() | gateway),
        rail,
        source=source,
    )


@st.composite
def slices(draw, subnet, router):
    """Slices of a range, some of them chosen; `router`: the gateway of all, in one subnet."""
    bits = subnet.max_prefixlen
    prefix = draw(st.integers(subnet.prefixlen, bits - 1))
    size = 1 << (bits - prefix)
    lowest, highest = (1, size - 2) if size > 2 and bits == 32 else (0, size - 1)
    index = None if router else draw(st.none() | st.integers(lowest, highest))
    numbers = st.integers(0, (1 << (prefix - subnet.prefixlen)) - 1)
    chosen = draw(st.dictionaries(NODES, numbers, max_size=2))
    nodes = [
        ipam.NodeSlice(node, ip_network((int(subnet[0]) + number * size, prefix)))
        for number, node in {number: node for node, number in chosen.items()}.items()
    ]
    return ipam.PerNode(prefix, index, tuple(nodes), router is not None)


def ends(one):
    """The first and the last address of a range."""
    return one.first or one.subnet[0], one.last or one.subnet[-1]


@st.composite
def pools(draw):
    """A pool that is accepted; its ranges say where they stand."""
    kinds = draw(st.lists(FAMILIES, min_size=1, max_size=4))
    found = [draw(ranges(number, family)) for number, family in enumerate(kinds)]
    spans, routes = [], []
    for one in draw(st.lists(st.sampled_from(found), max_size=3)):
        low, high = sorted(draw(st.tuples(st.sampled_from(ends(one)), st.sampled_from(ends(one)))))
        spans.append(ipam.Span(low, high))
        to = ip_network(("10.0.0.0/8", "fd00::/8")[one.subnet.version == 6])
        routes.append(ipam.Route(to, one.subnet[1]))
    name = draw(LABELS)
    return ipam.IPPool(
        name,
        tuple(replace(r, source=r.source.format(name)) for r in found),
        draw(LABELS),
        tuple(spans),
        tuple(routes),
        draw(st.integers(1, 1024)),
        float(draw(st.integers(0, 86400))),
        draw(st.booleans()),
        tuple(draw(st.lists(LABELS, max_size=3))),
    )


@st.composite
def keys(draw):
    """A block anywhere in either family."""
    family = draw(FAMILIES)
    most = 2 ** (32 if family == 4 else 128) // ipam.BLOCK_ADDRESSES - 1
    return ipam.BlockKey(draw(LABELS), family, draw(st.integers(0, most)) * ipam.BLOCK_ADDRESSES)


BITS = st.integers(0, 2**ipam.BLOCK_ADDRESSES - 1)
PINS = st.builds(
    ipam.Pin, st.text("abc/-0", min_size=1, max_size=9), st.integers(0, ipam.BLOCK_ADDRESSES - 1)
)
BLOCKS = st.builds(
    ipam.Block,
    keys(),
    st.lists(st.builds(ipam.NodeHolding, NODES, BITS.filter(bool)), max_size=4).map(
        lambda held: tuple(sorted(held, key=lambda each: each.node))
    ),
    st.lists(PINS, max_size=3).map(tuple),
    st.integers(0, 2**40),
)
LEASES = st.builds(
    ipam.NodeLease,
    NODES,
    st.text("abc-0", max_size=9),
    st.text("abc-0", max_size=9),
    st.integers(0, 2**40),
    st.integers(1, 10**6).map(float),
    st.booleans(),
)
ADDRESSES = keys().map(lambda key: key.address(5))
REQUESTS = st.builds(
    ipam.BorrowRequest,
    node=NODES,
    family=st.sampled_from(["IPv4", "IPv6"]),
    rail=st.none() | st.integers(0, 7),
    count=st.integers(1, 99),
    address=st.none() | ADDRESSES.map(str),
)
QUEUES = st.builds(ipam.BorrowQueue, LABELS, st.lists(REQUESTS, max_size=3).map(tuple))
