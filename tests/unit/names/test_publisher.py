"""The controller publishes RDMA addresses of pods: as differences, and never another's."""

import asyncio

import pytest

from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.ipam.cluster import IP_BLOCK
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.names import MANAGED_BY
from kube_rdma.names.cluster import ADDRESSED_CLAIM, ENDPOINT_SLICE, SERVICE
from tests.unit.ipam.conftest import until
from tests.unit.names.world import CARD, OTHER_CARD, NamesWorld, interface


@pytest.fixture
def world(recording):
    made = NamesWorld()
    made.log = recording
    return made


async def test_a_pod_has_its_rail_address_under_its_hostname(world):
    world.service()
    world.pod("pod-0", interface(["10.0.0.5", "fd00::5"]))
    async with world.publishing():
        await until(lambda: len(world.names().get("pod-0", ())) == 2)
    assert world.names() == {"pod-0": {"10.0.0.5": True, "fd00::5": True}}
    four, six = sorted(world.slices, key=lambda each: each["addressType"])
    assert (four["addressType"], six["addressType"]) == ("IPv4", "IPv6")
    (owner,) = four["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Service", "trainer")
    assert "blockOwnerDeletion" not in owner
    assert four["metadata"]["labels"] == {
        "kubernetes.io/service-name": "trainer",
        "endpointslice.kubernetes.io/managed-by": "kube-rdma.io",
        "service.kubernetes.io/headless": "",
    }
    (endpoint,) = four["endpoints"]
    assert endpoint["nodeName"] == "node-1"
    assert endpoint["targetRef"]["kind"] == "Pod"


async def test_nothing_of_pods_is_watched_until_a_service_asks(world):
    async with world.publishing():
        await until(lambda: world.line.watching == 2)
        assert {r.plural for r in world.line.requests} == {"services", "endpointslices"}
        world.service()
        await until(lambda: any(r.plural == "pods" for r in world.line.requests))


async def test_a_dead_card_is_not_ready_within_half_a_second_of_its_report(world):
    world.service()
    world.pod("pod-0", "10.0.0.5", interface("10.0.1.5", card=OTHER_CARD))
    async with world.publishing(Debounce()):
        await until(lambda: len(world.names().get("pod-0", ())) == 2)
        world.report("node-1", CARD)
        async with asyncio.timeout(0.5):
            await until(lambda: world.names() == {"pod-0": {"10.0.0.5": False, "10.0.1.5": True}})


async def test_what_an_agent_said_last_counts_while_it_is_away(world):
    world.service()
    world.report("node-2", CARD)
    world.pod("well", "10.0.0.5")
    world.pod("ill", "10.0.0.6", node="node-2")
    async with world.publishing():
        await world.settled()
        for node in ("node-1", "node-2"):
            world.server.remove(NODE_REPORT, node)
        await world.settled()
        assert world.names() == {"well": {"10.0.0.5": True}}


async def test_a_pod_comes_when_it_is_ready_and_ends_as_the_api_says(world):
    world.service()
    world.pod("pod-0", "10.0.0.5", ready=False)
    async with world.publishing():
        await world.settled()
        assert world.names() == {}
        world.pod("pod-0", "10.0.0.5")
        await until(lambda: world.names() == {"pod-0": {"10.0.0.5": True}})
        world.pod("pod-0", "10.0.0.5", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])
        await until(lambda: world.names() == {"pod-0": {"10.0.0.5": False}})
        (made,) = [s for s in world.slices if "trainer" in s["metadata"]["name"]]
        assert made["endpoints"][0]["conditions"] == {
            "ready": False,
            "serving": True,
            "terminating": True,
        }
        world.pod("pod-0", "10.0.0.5", phase="Succeeded")
        await until(lambda: world.names() == {})


async def test_addresses_of_pods_that_are_not_ready_are_named_where_the_service_says_so(world):
    world.service(publishNotReadyAddresses=True)
    world.pod("pod-0", "10.0.0.5", ready=False)
    async with world.publishing():
        await until(lambda: world.names() == {"pod-0": {"10.0.0.5": True}})


@pytest.mark.parametrize(
    ("asks", "named"),
    [
        ({}, {"10.0.0.5", "10.0.1.5"}),
        ({"network": "rail-0"}, {"10.0.0.5"}),
        ({"network": "default/rail-1"}, {"10.0.1.5"}),
        ({"rail": "1"}, {"10.0.1.5"}),
    ],
)
async def test_a_service_names_one_network_one_rail_or_all(world, asks, named):
    world.service(**asks)
    other = interface("10.0.1.5", "default/rail-1", OTHER_CARD)
    world.pod("pod-0", "10.0.0.5", other, interface("10.0.2.5", "default/bridge", None))
    async with world.publishing():
        await until(world.names)
        await world.settled()
        assert set(world.names()["pod-0"]) == named


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        ({"selector": {"app": "trainer"}}, "Remove spec.selector"),
        ({"clusterIP": "10.96.0.7"}, "Create it again with clusterIP: None"),
        ({"pods": "app in"}, "as for kubectl -l"),
        ({"network": "rail-0", "rail": "0"}, "exclude each other"),
        ({"rail": "first"}, "number from 0"),
        ({"network": "Rail 0"}, "names no network"),
    ],
)
async def test_a_service_that_cannot_have_names_gets_one_event_and_no_slice(world, asks, why):
    world.service("good")
    world.service(**asks)
    world.pod("pod-0", "10.0.0.5")
    async with world.publishing():
        await until(lambda: world.told("NamesRefused"))
        await until(lambda: world.names("good"))
        world.pod("pod-1", "10.0.0.6")
        await until(lambda: len(world.names("good")) == 2)
        (event,) = world.told("NamesRefused")
    assert why in event
    assert event.startswith("Service default/trainer: ")
    assert world.names() == {}


async def test_slices_go_when_a_service_asks_no_more(world):
    world.service()
    world.pod("pod-0", "10.0.0.5")
    async with world.publishing():
        await until(world.names)
        world.service(selector={"app": "trainer"})
        await until(lambda: not world.names())
        world.service()
        await until(world.names)
    world.put(SERVICE, "trainer", "default", spec={"clusterIP": "None"})
    async with world.publishing():
        await until(lambda: not world.names())
    assert {r.plural for r in world.line.requests} == {"services", "endpointslices"}


async def test_a_network_that_is_not_there_is_named_once(world):
    world.service(network="rail-9")
    world.pod("pod-0", "10.0.0.5")
    async with world.publishing():
        await until(lambda: world.told("NetworkUnknown"))
        await world.settled()
    (event,) = world.told("NetworkUnknown")
    assert event.startswith("There is no network default/rail-9: name one of kubectl get ")


async def test_an_unknown_network_is_not_complained_of_where_nobody_can_know(world):
    world.server.uninstall(DEFINITION, seen=True)
    world.service(network="rail-9")
    async with world.publishing():
        await world.settled()
        await until(lambda: world.names("fence"))
    assert not world.told("NetworkUnknown")


# Whose address it is.


@pytest.mark.parametrize(
    "address",
    [
        "10.0.9.9",  # of a pool, and no node holds it
        "10.0.0.77",  # another node holds it
        "192.0.2.2",  # a node's
        "172.16.0.7",  # another pod's on the cluster's network
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.5",
        "0.0.0.0",  # noqa: S104
        "fe80::1",
        "::ffff:172.16.0.7",
        "ff02::1",
    ],
)
async def test_a_forged_annotation_leads_no_name_to_another_s_address(world, address):
    world.service()
    world.pod("victim", "10.0.0.77", namespace="other", node="node-2", ip="172.16.0.7")
    world.pod("liar", interface([address, "10.0.0.5"]), held=False)
    world.hold("node-1", "10.0.0.5")
    async with world.publishing():
        await until(lambda: world.told("AddressNotNamed"))
        await world.settled()
    assert world.names() == {"liar": {"10.0.0.5": True}}
    assert "nothing but the pod's annotation says" in world.told("AddressNotNamed")[0]
    assert "victim" not in world.told("AddressNotNamed")[0]


async def test_of_two_pods_with_one_address_the_older_has_the_name(world):
    world.service()
    world.pod("old", "10.0.0.5")
    world.pod("young", "10.0.0.5")
    async with world.publishing():
        await until(lambda: world.told("AddressNotNamed"))
        assert world.names() == {"old": {"10.0.0.5": True}}
        world.server.remove(POD, "old", "default")
        await until(lambda: world.names() == {"young": {"10.0.0.5": True}})
    (event,) = world.told("AddressNotNamed")
    assert event == (
        "Service default/trainer does not name an address of pod default/young: an older pod has "
        "its address 10.0.0.5 too."
    )


async def test_an_address_of_a_claim_is_that_of_the_pods_that_reserved_it(world):
    world.service()
    world.pod("thief", "198.51.100.5")
    world.pod("owner", "198.51.100.5")
    uids = {d["metadata"]["name"]: d["metadata"]["uid"] for d in world.server.documents("pods")}
    device = {"driver": DRIVER, "networkData": {"ips": ["198.51.100.5/24"]}}
    users = [{"resource": "pods", "name": "owner", "uid": uids["owner"]}]
    status = {"devices": [device], "reservedFor": users}
    world.put(ADDRESSED_CLAIM, "claim", "default", spec={}, status=status)
    async with world.publishing():
        await until(world.names)
        await world.settled()
    assert world.names() == {"owner": {"198.51.100.5": True}}


async def test_an_address_of_another_ipam_is_named(world):
    world.service()
    world.pod("pod-0", "198.51.100.5")
    async with world.publishing():
        await until(lambda: world.names() == {"pod-0": {"198.51.100.5": True}})


async def test_a_block_that_nobody_can_read_takes_no_name_away(world):
    world.service()
    world.pod("pod-0", "10.0.0.5")
    async with world.publishing():
        await until(world.names)
        world.put(IP_BLOCK, "default.10-0-0-0", spec={"first": "x"})
        world.pod("pod-1", "10.0.1.6")
        await until(lambda: "pod-1" in world.names())
        assert world.names()["pod-0"] == {"10.0.0.5": True}


# Writes.


async def test_a_controller_that_starts_again_writes_nothing(world):
    world.service(ports=[{"name": "nvme", "port": 4420, "targetPort": "named"}])
    for n in range(7):
        world.pod(f"pod-{n}", f"10.0.0.{n + 1}")
    async with world.publishing():
        await until(lambda: len(world.names()) == 7)
        await world.settled()
    async with world.publishing():
        await world.settled()
        assert {r.name.partition("-rdma-")[0] for r in world.writes} <= {"fence"}
    (port,) = world.slices[0]["ports"]
    assert (port["name"], port["port"], port["protocol"]) == ("nvme", 4420, "TCP")


@pytest.mark.parametrize(
    "many", [1000, *(pytest.param(many, marks=pytest.mark.slow) for many in (5000, 10_000))]
)
async def test_pods_one_by_one_cost_a_write_each_and_all_at_once_few(world, many):
    world.service()
    for n in range(many):
        world.pod(f"pod-{n}", f"10.0.{n // 250}.{n % 250 + 1}")
    async with world.publishing():
        await until(lambda: len(world.names()) == many)
        assert len(world.writes) <= 0.1 * many
        assert max(len(each["endpoints"]) for each in world.slices) == 100
        before, more = len(world.writes), 20
        for n in range(more):
            world.pod(f"late-{n}", f"10.0.99.{n + 1}", ready=False)
            await world.settled()
            world.pod(f"late-{n}", f"10.0.99.{n + 1}")
            await until(lambda n=n: f"late-{n}" in world.names())
        own = [r for r in world.writes[before:] if "fence" not in (r.name or str(r.body))]
        assert len(own) <= 1.1 * more


async def test_slices_of_another_controller_stay_as_they_are(world):
    world.service()
    world.pod("pod-0", "10.0.0.5")
    labels = {"kubernetes.io/service-name": "trainer", MANAGED_BY[0]: "another.example.com"}
    theirs = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.9.9.9"]}]}
    world.put(ENDPOINT_SLICE, "theirs", "default", {"labels": labels}, **theirs)
    async with world.publishing():
        await until(world.names)
        world.server.remove(SERVICE, "trainer", "default")
        await until(lambda: not world.names())
    (left,) = world.server.documents("endpointslices")
    assert (left["metadata"]["name"], left["endpoints"]) == ("theirs", theirs["endpoints"])


async def test_a_slice_that_somebody_edits_is_put_right(world):
    world.service()
    world.pod("pod-0", "10.0.0.5")
    async with world.publishing():
        await until(world.names)
        (made,) = world.slices
        evil = {**made["endpoints"][0], "addresses": ["10.9.9.9"]}
        world.server.put(ENDPOINT_SLICE, {**made, "endpoints": [evil]})
        await until(lambda: world.names() == {"pod-0": {"10.0.0.5": True}})
        (made,) = world.slices
        meta = {**made["metadata"], "labels": {"kubernetes.io/service-name": "trainer"}}
        world.server.put(ENDPOINT_SLICE, {**made, "metadata": meta})  # it is no longer ours
        await until(lambda: world.slices)
        assert world.names() == {"pod-0": {"10.0.0.5": True}}


async def test_a_service_that_is_refused_by_the_api_server_stops_no_other(world):
    world.service("a", "first")
    world.service("b", "second")
    world.server.forbidden.add(("create", "first/endpointslices"))
    for namespace in ("first", "second"):
        world.pod("pod-0", "10.0.0.5" if namespace == "first" else "10.0.0.6", namespace=namespace)
    async with world.publishing():
        await until(lambda: world.names("b"))
        assert not world.names("a")
        await world.log.wait_for("names not published")
        world.server.forbidden.clear()
        await until(lambda: world.names("a"))


async def test_while_a_watch_is_cut_nothing_is_written(world):
    world.service()
    world.pod("pod-0", "10.0.0.5")
    async with world.publishing():
        await until(world.names)
        world.line.cut()
        world.server.remove(POD, "pod-0", "default")
        world.line.mend()
        await until(lambda: not world.names())
