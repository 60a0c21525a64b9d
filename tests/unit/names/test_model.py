"""A small world of pods, cards, blocks and agents: slices are as they are defined."""

import asyncio
from ipaddress import ip_address

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.names.cluster import ENDPOINT_SLICE
from tests.unit.names.world import CARD, OTHER_CARD, SUBNET, NamesWorld, interface

NAMES, NODES = st.sampled_from(["a", "b", "c"]), st.sampled_from(["node-1", "node-2"])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "198.51.100.1", "127.0.0.1"])
POD_STEP = st.tuples(
    st.just("pod"),
    NAMES,
    st.lists(st.tuples(ADDRESSES, st.sampled_from([CARD, OTHER_CARD])), min_size=1, max_size=2),
    st.fixed_dictionaries(
        {
            "node": NODES,
            "ready": st.booleans(),
            "labels": st.sampled_from([{"app": "trainer"}, {"app": "other"}]),
            "phase": st.sampled_from(["Running", "Running", "Failed"]),
        }
    ),
)
STEPS = st.lists(
    st.one_of(
        POD_STEP,
        st.tuples(st.just("gone"), NAMES),
        st.tuples(st.just("block"), NODES, st.sampled_from(["10.0.0.1", "10.0.0.2"])),
        st.tuples(st.just("report"), NODES, st.lists(st.sampled_from([CARD, OTHER_CARD]))),
        st.tuples(st.just("away"), NODES),
        st.tuples(st.just("again")),
    ),
    min_size=1,
    max_size=12,
)


class Believed:
    """What is true of the world, by the steps that were made."""

    def __init__(self):
        self.world, self.pods, self.ill, self.held = NamesWorld(), {}, {}, {}
        self.world.service()
        labels = {"kubernetes.io/service-name": "trainer", "app": "theirs"}
        content = {"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.99"]}]}
        self.world.put(ENDPOINT_SLICE, "theirs", "default", {"labels": labels}, **content)

    def do(self, what, *words):
        getattr(self, f"do_{what}")(*words)

    def do_pod(self, name, places, facts):
        age = self.pods[name][0] if name in self.pods else self.world.born + 1
        self.pods[name] = age, places, facts
        shown = [interface(address, card=card) for address, card in places]
        self.world.pod(name, *shown, held=False, **facts)

    def do_gone(self, name):
        if self.pods.pop(name, None):
            self.world.server.remove(POD, name, "default")

    def do_block(self, node, address):
        self.held[address] = node
        self.world.held.clear()
        for each, of in self.held.items():
            self.world.hold(of, each)

    def do_report(self, node, ill):
        self.ill[node] = set(ill)
        self.world.report(node, *ill)

    def do_away(self, node):
        self.ill.pop(node, None)
        if any(d["metadata"]["name"] == node for d in self.world.server.documents("nodereports")):
            self.world.server.remove(NODE_REPORT, node)

    def has(self, name, address):
        _, places, facts = self.pods[name]
        if facts["phase"] == "Failed" or address not in (each for each, _ in places):
            return False
        if ip_address(address) in SUBNET:
            return self.held.get(address) == facts["node"]
        return address != "127.0.0.1"

    @property
    def ready(self):
        """Pairs of pod and address that are to be ready, by the definition."""
        found = set()
        for name, (_, places, facts) in self.pods.items():
            for address, card in places:
                others = (one for one in self.pods if self.has(one, address))
                first = min(others, key=lambda one: self.pods[one][0], default="")
                well = card not in self.ill.get(facts["node"], ())
                asked = facts["labels"]["app"] == "trainer"
                if asked and first == name and facts["ready"] and well:
                    found.add((name, address))
        return found

    @property
    def published(self):
        names = self.world.names().items()
        return {(name, a) for name, found in names for a, ready in found.items() if ready}


async def scenario(steps):
    believed = Believed()
    world, waiting = believed.world, [*steps]
    while waiting:
        async with world.publishing():
            await world.settled()
            before = len([r for r in world.writes if "fence" not in f"{r.name}{r.body}"])
            again = False
            while waiting and not again:
                step = waiting.pop(0)
                again = step[0] == "again"
                if not again:
                    believed.do(*step)
            await world.settled()
            assert believed.published == believed.ready
            await world.settled()
            own = [r for r in world.writes if "fence" not in f"{r.name}{r.body}"]
            assert len(own) - before <= 3 * len(steps)
        async with world.publishing():
            await world.settled()
            assert not [r for r in world.writes if "fence" not in f"{r.name}{r.body}"]
            assert believed.published == believed.ready
    (theirs,) = (
        d for d in world.server.documents("endpointslices") if d["metadata"]["name"] == "theirs"
    )
    assert theirs["endpoints"] == [{"addresses": ["192.0.2.99"]}]


@settings(max_examples=12, deadline=None)
@given(STEPS)
def test_slices_are_what_the_definition_says_whatever_happened(steps):
    asyncio.run(scenario(steps))
