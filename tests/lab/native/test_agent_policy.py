"""The policy for agents at a real API server: what one node's token may do, and what it may not.

Rights, policy and account are those that an installation brings. Every act is one that agents do,
with the code that does it, or one of a table; every harm is one of a table, and is refused.
"""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client import wire
from kube_client.kinds import Wanted
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.kinds.resource_api import (
    RESOURCE_SLICE,
    changed_slice,
    wanted_slice,
)
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.attach.cluster import NetworkObjects, Restarts
from kube_rdma.attach.documents import network_status
from kube_rdma.claims.cluster import write_statuses
from kube_rdma.claims.rules.publication import PoolSite, pool_slices
from kube_rdma.claims.rules.shape import slice_name
from kube_rdma.fabric.cluster import expect
from kube_rdma.install.installation import assignment, objects
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL
from kube_rdma.ipam.effect_runner import IpamTiming
from kube_rdma.ipam.ip_conf import load as load_ipam
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.ipam.objects import HOLDER, PINNED
from kube_rdma.lib.text import reader
from kube_rdma.model.attach.attachment import RestartRequest
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import ClaimName, DeviceCondition, DeviceStatus
from kube_rdma.model.claims.devices import DRIVER, ListedDevice
from kube_rdma.model.ipam import (
    EDITED,
    AddressRequest,
    ContainerId,
    NicRequest,
    NodeName,
    Owner,
    Pin,
    PodUid,
    PoolName,
    Timing,
)
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.reports import (
    BurnInReceipt,
    ExpectedCable,
    NodeReportStatus,
    ReportSummary,
)
from kube_rdma.repair.cluster import write_receipt
from kube_rdma.reports.node_report import NodeReports
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from kube_rdma_testing.disk import FakeDisk
from tests.kit import cluster_users
from tests.kit.agent_writes import (
    NETWORK,
    block_at,
    changed,
    document_of,
    request,
    slice_of,
    update,
)
from tests.kit.pods import sleeping_pod

SPACE = "kube-rdma-rights"
NODES = ("node-1", "node-2")
OWN, OTHER = NODES
# Of IPv6 too, and where a zero word more or less changes how the text is shortened.
FIRSTS = ("10.90.0.64", "fd00:90::40", "1:2:3:4:5:6::", "fd00:0:0:3:4::", "2001:db8:0:5:0:6::")
CARDS = {"type": "kube-rdma.io/CardsHealthy", "status": "True", "reason": "A", "message": "a"}
OTHER_DRIVER = "gpu.example.org"
TOLD_OF = network_status.OWN_ANNOTATION
TAINT = {"key": "kube-rdma.io/starting", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def lab(native):
    """Nodes with the rights and the policy of an installation, and a pod of its agent on each."""
    scc.install_kinds(native)
    layers = [assignment(f"namespace.name={SPACE}"), assignment("claims.enabled=true")]
    parts = ("namespace", "rights", "admission")
    made = [each for part in parts for each in objects(layers, "vke", part)]
    cluster.apply(native, *made)
    for node in NODES:
        pod = sleeping_pod(
            f"agent-of-{node}", namespace=SPACE, nodeName=node, serviceAccountName="kube-rdma-agent"
        )
        cluster.apply(native, pod)
    cluster.ready(native, *(f"agent-of-{node}" for node in NODES), namespace=SPACE)
    yield native
    blocks = cluster.kubectl(native, "get", "ipblocks,ippools", "-o", "name").split()
    if blocks:
        cluster.kubectl(native, "delete", *blocks)
    cluster.kubectl(native, "delete", "-f", "-", "--wait", stdin=json.dumps(listed(made)))


def listed(documents):
    return {"apiVersion": "v1", "kind": "List", "items": documents}


@pytest.fixture(scope="module")
def config_of(lab, tmp_path_factory):
    """A kubeconfig with the token of the agent's pod on a node, once the policy is in force."""

    def written(node):
        folder = tmp_path_factory.mktemp("token")
        return cluster_users.of_pod(lab, f"agent-of-{node}", SPACE, folder)

    def refused():
        words = ("label", "node", OTHER, "kube-rdma.io/ports=1", "--dry-run=server", "--overwrite")
        try:
            cluster.kubectl(lab, f"--kubeconfig={written(OWN)}", *words)
        except Unavailable as error:
            return "may not change" in str(error)
        return False

    until(lab, "the policy in force", refused)
    return written


@pytest.fixture
async def agents(config_of):
    """The API server as the agent of each node sees it."""
    async with AsyncExitStack() as stack:
        yield {node: await stack.enter_async_context(connect(config_of(node))) for node in NODES}


@pytest.fixture
def stored(lab):
    """Puts a block there as the admin, and takes it away."""
    names = []

    def put(block):
        names.append(block.key.name)
        cluster.apply(lab, document_of(block))
        return cluster.get(lab, "ipblock", block.key.name)

    yield put
    cluster.kubectl(lab, "delete", "ipblocks", "--ignore-not-found", *names)


@pytest.mark.parametrize("first", FIRSTS)
async def test_a_node_claims_and_gives_back_what_is_its_own(agents, stored, first):
    """First, last, all that is left, and nothing any more; with as many pins as fit.

    The pod that had an address of another node has one of this node now.
    """
    theirs = range(10)
    pins = tuple(Pin(Owner(f"default/b-{place}/net1"), place) for place in theirs)
    before = stored(replace(block_at(first, node_2=theirs), edition=3, pins=pins))
    for mine in ((63,), range(10, 64, 2), range(10, 64), ()):
        added = tuple(
            Pin(Owner(f"default/{'b-0' if place == 63 else f'a-{place}'}/net1"), place)
            for place in mine
        )
        owners = {pin.owner for pin in added}
        pins = (*(pin for pin in pins if pin.owner not in owners), *added)
        wanted = replace(block_at(first, node_1=mine, node_2=theirs), pins=pins)
        spec = document_of(wanted)["spec"]
        after = changed(before, holdings=spec["holdings"], pins=spec["pins"])
        before = json.loads(await agents[OWN].write(update(after)))


async def test_an_agent_of_an_earlier_release_writes_no_labels(agents, stored):
    """Those of all go with its write; the next one writes all of them, long names cut."""
    long = "a." * 100 + "z"
    pins = tuple(Pin(Owner(owner), 2) for owner in ("text", f"node/{long}/10.90.0.64"))
    block = replace(block_at("10.90.0.64", node_1=[1], node_2=[2]), edition=3, pins=pins)
    before = stored(block)
    earlier = json.loads(await agents[OWN].write(update(changed(before), labels={})))
    assert "labels" not in earlier["metadata"]
    again = json.loads(await agents[OWN].write(update(changed(earlier))))
    assert again["metadata"]["labels"] == before["metadata"]["labels"]
    assert f"{PINNED}{long[:62]}z" in again["metadata"]["labels"]


@pytest.mark.parametrize("first", FIRSTS)
async def test_a_node_takes_nothing_of_another_node(agents, stored, first):
    """Not by leaving it out, not by holding it too, and not by saying more of it."""
    before = stored(replace(block_at(first, node_1=[20], node_2=range(10)), edition=3))
    harms = (
        block_at(first, node_1=[20]),
        block_at(first, node_1=[20], node_2=range(9)),
        block_at(first, node_1=[20], node_2=range(11)),
        block_at(first, node_1=[9, 20], node_2=range(10)),
        block_at(first, node_1=range(64), node_2=range(10)),
        block_at(first, node_1=[20], node_2=range(10), node_3=[30]),
    )
    for harm in harms:
        after = changed(before, holdings=document_of(harm)["spec"].get("holdings", []))
        with pytest.raises(Refused, match=r"other nodes have of|that another node has"):
            await agents[OWN].write(update(after))


TEXTS = (
    *("", "x", "10.90.0.128", "10.90.1.70", "10.90.0.070", "10.90.0.70-", "10.90.0.70-10.90.0.66"),
    *("10.90.0.70/32", "10.90.0.66-10.90.0.67-10.90.0.68", "fd00:90::45", "10.90.0.70-10.90.0.200"),
)
TEXTS_V6 = (
    *("fd00:90:::45", "fd00:90::45:", "fd00:90::0045", "fd00:90::45::", "FD00:90::45"),
    *("fd00:90::4g", "fd00:90::80", "fd00:90::3f", "::45", "fd00:90:0:0:0:0:0::45", "10.90.0.70"),
)


async def test_a_node_writes_no_text_that_would_close_a_block_for_all(agents, stored):
    for first, texts in zip(FIRSTS, (TEXTS, TEXTS_V6), strict=False):
        before = stored(replace(block_at(first, node_2=[0]), edition=3))
        theirs = before["spec"]["holdings"]
        for text in texts:
            held = [{"node": OWN, "addresses": [text]}, *theirs]
            pins = [{"owner": "default/a/net1", "address": text}]
            for part in ({"holdings": held}, {"pins": pins}, {"first": text}):
                with pytest.raises(Refused, match="as the block's name, its edition"):
                    await agents[OWN].write(update(changed(before, **part)))


def holding(*addresses, node=OWN):
    return {"node": node, "addresses": list(addresses)}


THEIRS = holding("fd00:90::40", node=OTHER)
FORMS = {
    "no addresses": {"holdings": [holding(), THEIRS]},
    "zeros written out": {"holdings": [holding("fd00:90:0:0:0:0:0:45"), THEIRS]},
    "an end written out": {"holdings": [holding("fd00:90::45-fd00:90:0::46"), THEIRS]},
    "a range of one": {"holdings": [holding("fd00:90::45-fd00:90::45"), THEIRS]},
    "spans that touch": {"holdings": [holding("fd00:90::45", "fd00:90::46"), THEIRS]},
    "a span twice": {"holdings": [holding("fd00:90::45", "fd00:90::45"), THEIRS]},
    "the second before the first": {"holdings": [holding("fd00:90::47", "fd00:90::45"), THEIRS]},
    "a node behind its place": {"holdings": [THEIRS, holding("fd00:90::45")]},
    "a pin written out": {
        "holdings": [holding("fd00:90::45"), THEIRS],
        "pins": [{"owner": "default/a/net1", "address": "fd00:90:0::45"}],
    },
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_node_writes_no_form_that_others_could_not_leave_as_it_was(agents, stored, form):
    """They write what they decoded, and would be refused for the entry of the node before them."""
    before = stored(replace(block_at("fd00:90::40", node_2=[0]), edition=3))
    after = changed(before, **FORMS[form])
    with pytest.raises(Refused, match="in the order and spelling that all agents use"):
        await agents[OWN].write(update(after, labels={}))


BLOCK_HARMS = {
    "edition": lambda block: update(changed(block, edition=2**62)),
    "network": lambda block: update(changed(block, network="other")),
    "owner": lambda block: update(
        changed(block),
        ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a"}],
    ),
    "finalizer": lambda block: update(changed(block), finalizers=["example.org/a"]),
    "label": lambda block: update(changed(block), labels={"a": "b"}),
    "label of a node that holds nothing": lambda block: update(
        changed(block), labels={**block["metadata"]["labels"], f"{HOLDER}node-3": ""}
    ),
    "only its own label": lambda block: update(changed(block), labels={f"{HOLDER}{OWN}": ""}),
    "label with a value": lambda block: update(
        changed(block), labels=dict.fromkeys(block["metadata"]["labels"], "x")
    ),
    "two of a node": lambda block: update(
        changed(block, holdings=[*block["spec"]["holdings"], {"node": OWN, "addresses": []}] * 2)
    ),
    "too many pins": lambda block: update(
        changed(block, pins=[{"owner": f"a/{n}/b", "address": "10.90.0.64"} for n in range(65)])
    ),
    "pin at another's address": lambda block: update(
        changed(block, pins=[*block["spec"]["pins"], {"owner": "a/b/c", "address": "10.90.0.67"}])
    ),
    "no pin of others": lambda block: update(changed(block, pins=[])),
    "pin of others for another": lambda block: update(
        changed(block, pins=[{"owner": "a/b/c", "address": "10.90.0.66"}])
    ),
    "of others": lambda block: request(
        "create",
        "ipblocks",
        body=document_of(replace(block_at("10.90.1.0", node_2=[1]), edition=1)),
    ),
    "another name": lambda block: request(
        "create",
        "ipblocks",
        body={
            **document_of(replace(block_at("10.90.1.0", node_1=[1]), edition=1)),
            "metadata": {"name": "rights.10-90-1-64"},
        },
    ),
    "deletion": lambda block: request("delete", "ipblocks", block["metadata"]["name"]),
}


@pytest.mark.parametrize("harm", BLOCK_HARMS)
async def test_a_node_does_no_harm_by_a_block(agents, stored, harm):
    pins = (Pin(Owner("default/x-0/net1"), 2),)
    block = replace(block_at("10.90.0.64", node_1=[1], node_2=[2]), edition=3, pins=pins)
    before = stored(block)
    with pytest.raises(Refused, match=r"AdmissionPolicy|forbids to delete|cannot delete|Too many"):
        await agents[OWN].write(BLOCK_HARMS[harm](before))


@pytest.fixture
def expecting(lab):
    """The report of a node whose cable an administrator expects."""
    head = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodeReport", "metadata": {"name": OWN}}
    cluster.apply(lab, {**head, "spec": {"cabling": [{"card": "a", "switch": "leaf-1"}]}})
    yield
    cluster.kubectl(lab, "delete", "nodereport", OWN)


async def test_an_agent_writes_its_report_and_leaves_what_is_expected(agents, lab, expecting):
    """Whether it makes the object its node's own, or writes the status alone."""
    node = NodeState(OWN, uid=cluster.get(lab, "node", OWN)["metadata"]["uid"])
    status = NodeReportStatus(version="1", summary=ReportSummary(0, 0))
    seen = None
    for _ in range(2):
        seen = await NodeReports(agents[OWN], OWN).write(node, seen, status)
        assert (seen.spec.cabling, seen.status) == ((ExpectedCable(CardId("a"), "leaf-1"),), status)
    with pytest.raises(Refused, match=r"An agent may not write spec\.cabling of nodereports"):
        await expect(agents[OWN], OWN, (ExpectedCable(CardId("a"), "leaf-2"),), force=True)
    with pytest.raises(Refused, match="An agent writes no receipt"):
        await write_receipt(agents[OWN], OWN, BurnInReceipt("now", "cards", "All is well."))


@pytest.fixture
def pool(lab):
    """A pool of thirty addresses with the wants of a node that is not here."""
    spec = {"network": NETWORK, "ranges": [{"subnet": "10.91.0.0/27"}], "blockSize": 8}
    meta = {"name": NETWORK}
    base = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "IPPool", "metadata": meta}
    cluster.apply(lab, {**base, "spec": {**spec, "restSeconds": 0}})
    wants = [{"node": "node-3", "family": "IPv4", "count": 1}]
    patch = json.dumps({"status": {"wants": wants, "used": "8"}})
    words = ("patch", "ippool", NETWORK, "--subresource=status", "--type=merge", "-p", patch)
    cluster.kubectl(lab, *words)
    yield cluster.get(lab, "ippool", NETWORK)
    cluster.kubectl(lab, "delete", "ippool", NETWORK)


def status(pool, **fields):
    document = {**pool, "status": {**pool["status"], **fields}}
    return request("update", "ippools", NETWORK, document, part="status")


def asked(pool, **fields):
    want = {"node": OWN, "family": "IPv4", "count": 1, **fields}
    return status(pool, wants=[*pool["status"]["wants"], want])


def pool_of(name, annotations=None, **spec):
    meta = {"name": name, "annotations": annotations or {}}
    base = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "IPPool", "metadata": meta}
    spec = {"network": NETWORK, "ranges": [{"subnet": "10.92.0.0/24"}], **spec}
    return request("create", "ippools", body={**base, "spec": spec})


MADE = "whereabouts-0123456789"
CHOSEN = {"node": OTHER, "subnet": "10.92.0.0/31"}
POOL_HARMS = {
    "others' wants": lambda pool: status(pool, wants=[]),
    "others' count": lambda pool: status(pool, wants=[{**pool["status"]["wants"][0], "count": 9}]),
    "used": lambda pool: status(pool, used="0"),
    "another name": lambda pool: pool_of("team-a"),
    "routes": lambda pool: pool_of("whereabouts-0123456789", routes=[{"dst": "0.0.0.0/0"}]),
    "longer name": lambda pool: pool_of("whereabouts-0123456789a"),
    "excludes": lambda pool: pool_of(
        MADE, excludes=[f"10.92.{n >> 8}.{n & 255}" for n in range(1, 1001)]
    ),
    "ranges": lambda pool: pool_of(MADE, ranges=[{"subnet": f"10.{n}.0.0/24"} for n in range(17)]),
    "rest": lambda pool: pool_of(MADE, restSeconds=86400),
    "probe": lambda pool: pool_of(MADE, probe=True),
    "slices of nodes": lambda pool: pool_of(
        MADE, ranges=[{"subnet": "10.92.0.0/24", "perNode": {"prefix": 31, "nodes": [CHOSEN]}}]
    ),
    "mark of an administrator": lambda pool: pool_of(MADE, {EDITED: "true"}),
    "a rail of null": lambda pool: asked(pool, rail=None),
    "an address of null": lambda pool: asked(pool, address=None),
    "no address": lambda pool: asked(pool, address="10.91.0.1%a"),
    "many wants": lambda pool: status(
        pool,
        wants=[
            *pool["status"]["wants"],
            *({"node": OWN, "family": "IPv4", "rail": n, "count": 1} for n in range(65)),
        ],
    ),
}


@pytest.mark.parametrize("harm", POOL_HARMS)
async def test_a_node_does_no_harm_by_a_pool(agents, pool, harm):
    with pytest.raises(Refused, match="ValidatingAdmissionPolicy"):
        await agents[OWN].write(POOL_HARMS[harm](pool))


async def test_a_node_asks_beside_others_and_makes_the_pool_of_a_network(agents, pool):
    own = {"node": OWN, "family": "IPv4", "count": 2}
    await agents[OWN].write(status(pool, wants=[*pool["status"]["wants"], own]))
    for kind, ipam in (
        ("whereabouts", {"range": "10.93.0.0/24", "exclude": ["10.93.0.1/32"]}),
        ("host-local", {"ranges": [[{"subnet": "10.94.0.0/24"}]]}),
    ):
        text = json.dumps({"type": "macvlan", "ipam": {"type": kind, **ipam}})
        brought = load_ipam(reader.read(text.encode(), "conf")).pool
        await agents[OWN].create(IP_POOL, Wanted(brought.name, spec=brought))


@pytest.fixture
def slices(lab):
    """A slice of the driver on each node, and one of another driver on the first."""
    made = [slice_of(node, f"rights-{node}") for node in NODES]
    made.append(slice_of(OWN, "rights-other", driver=OTHER_DRIVER))
    cluster.apply(lab, *made)
    yield
    names = [each["metadata"]["name"] for each in made]
    cluster.kubectl(lab, "delete", "resourceslices", "--ignore-not-found", *names)


async def test_a_node_publishes_and_withdraws_slices_of_its_own(lab, agents, slices):
    """With the code that agents do it with."""
    agent = agents[OWN]
    uid = cluster.get(lab, "node", OWN)["metadata"]["uid"]
    (part,) = pool_slices(PoolSite(OWN, uid), 1, ((ListedDevice("0000-1a-00-0"),),))
    part = replace(part, name=slice_name(7, OWN))
    empty = replace(part, spec=replace(part.spec, devices=()))
    stored = await agent.create(RESOURCE_SLICE, wanted_slice(part))
    stored = await agent.replace(RESOURCE_SLICE, changed_slice(stored, empty))
    await agent.delete(RESOURCE_SLICE, stored, unchanged=False)


SLICE_HARMS = {
    "another name": request("create", "resourceslices", body=slice_of(OWN, "rights-slice")),
    "another node's name": request(
        "create", "resourceslices", body=slice_of(OWN, slice_name(7, OTHER))
    ),
    "another node": request("create", "resourceslices", body=slice_of(OTHER)),
    "another node's pool": request(
        "create",
        "resourceslices",
        body=slice_of(OWN, pool={"name": OTHER, "generation": 9, "resourceSliceCount": 1}),
    ),
    "another driver": request("create", "resourceslices", body=slice_of(OWN, driver=OTHER_DRIVER)),
    "all nodes": request(
        "create", "resourceslices", body=slice_of(OWN, nodeName=None, allNodes=True)
    ),
    "deletion at another node": request("delete", "resourceslices", f"rights-{OTHER}"),
    "deletion of another driver's": request("delete", "resourceslices", "rights-other"),
}


@pytest.mark.parametrize("harm", SLICE_HARMS)
async def test_a_node_does_no_harm_by_a_slice(agents, slices, harm):
    with pytest.raises(Refused, match="ValidatingAdmissionPolicy"):
        await agents[OWN].write(SLICE_HARMS[harm])


THIEF = {"resource": "pods", "name": "thief", "uid": "uid-1"}
TOLD = (DeviceCondition("Ready", holds=True, reason="Prepared", message="It is there."),)


def given(node, *drivers):
    """The status of a claim that was allocated: a device of each driver on a node."""
    given_device = {"request": "nic", "pool": node, "device": "card"}
    results = [{**given_device, "driver": driver} for driver in drivers]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    allocation = {"devices": {"results": results}, "nodeSelector": selector}
    devices = [{**told(OTHER_DRIVER, node), "data": {"a": "b"}}] if OTHER_DRIVER in drivers else []
    return {"status": {"allocation": allocation, "devices": devices}}


def told(driver, pool=OWN):
    return {"driver": driver, "pool": pool, "device": "card", "data": {"c": "d"}}


CLAIMS = {
    "own": (OWN, DRIVER, OTHER_DRIVER),
    "elsewhere": (OTHER, DRIVER),
    "of-others": (OWN, OTHER_DRIVER),
}


@pytest.fixture
def claims(lab):
    """Claims with devices of a node and of drivers, by name."""
    request = {"name": "nic", "exactly": {"deviceClassName": "rights", "count": 2}}
    for name, (node, *drivers) in CLAIMS.items():
        base = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        meta = {"name": name, "namespace": SPACE}
        cluster.apply(lab, {**base, "metadata": meta, "spec": {"devices": {"requests": [request]}}})
        words = ("resourceclaim", name, "-n", SPACE, "--subresource=status", "--type=merge")
        cluster.kubectl(lab, "patch", *words, "-p", json.dumps(given(node, *drivers)))
    yield
    cluster.kubectl(lab, "delete", "resourceclaims", "-n", SPACE, *CLAIMS)


async def test_a_node_says_of_a_claim_what_became_of_its_devices(lab, agents, claims):
    """With the code that agents do it with; what other drivers say stays."""
    said = DeviceStatus(OWN, "card", None, TOLD, "net1", ("10.0.0.5/24",), "02:00:00:00:00:01")
    await write_statuses(agents[OWN], ClaimName(SPACE, "own", ""), [said])
    devices = cluster.get(lab, "-n", SPACE, "resourceclaim", "own")["status"]["devices"]
    kept = {one["driver"]: one.get("data") for one in devices}
    assert kept == {DRIVER: None, OTHER_DRIVER: {"a": "b"}}


def claim_status(name, **status):
    where = {"part": "status", "namespace": SPACE}
    written = request("patch", "resourceclaims", name, {"status": status}, **where)
    return replace(written, content_type=wire.MERGE)


CLAIM_HARMS = {
    "another node's": claim_status("elsewhere", devices=[told(DRIVER, OTHER)]),
    "no device of its own": claim_status("of-others", devices=[told(OTHER_DRIVER)]),
    "another driver's": claim_status("own", devices=[told(OTHER_DRIVER)]),
    "another driver's gone": claim_status("own", devices=[told(DRIVER)]),
    "allocation": claim_status("own", allocation=None),
    "reserved for": claim_status("own", reservedFor=[THIEF]),
}


@pytest.mark.parametrize("harm", CLAIM_HARMS)
async def test_a_node_does_no_harm_by_a_claim(agents, claims, harm):
    with pytest.raises(Refused, match=r"ValidatingAdmissionPolicy|forbidden"):
        await agents[OWN].write(CLAIM_HARMS[harm])


class Node:
    """A node's addresses as its agent has them, at its own token."""

    def __init__(self, agents, node):
        timing = IpamTiming(Timing(contact=30.0, margin=3.0, patience=20.0), tick=0.1)
        dependencies = IpamDependencies(agents[node], SPACE, FakeDisk())
        self.name, self.addresses = (
            node,
            NodeAddresses(NodeName(node), "boot", dependencies, timing),
        )

    async def entered(self):
        while True:
            try:
                return await self.addresses.check()
            except Unavailable:
                await asyncio.sleep(0.1)

    async def add(self, number):
        nic = NicRequest(
            "net1", PoolName(NETWORK), owner=Owner(f"default/{self.name}-{number}/net1")
        )
        container = ContainerId(f"{self.name}-{number}")
        return await self.addresses.add(AddressRequest(container, PodUid(container), (nic,)))


async def test_two_nodes_share_a_pool_to_its_last_address(agents, pool):
    """Claims, borrow requests of one, loans of the other, leases: all that IPAM writes."""
    first, second = (Node(agents, node) for node in NODES)
    async with first.addresses, second.addresses:
        await asyncio.gather(first.entered(), second.entered())
        granted = [await first.add(number) for number in range(20)]
        for number in range(12):
            await first.addresses.delete(ContainerId(f"{OWN}-{number}"))
        granted = granted[12:] + [await second.add(number) for number in range(22)]
        addresses = {lease.address for each in granted for lease in each.record.allocations}
        assert len(addresses) == len(granted) == 30
        blocks = await agents[OWN].list(IP_BLOCK)
        nodes = {held.node for each in blocks for held in each.spec.holdings}
        assert nodes == set(NODES)


async def test_a_node_tells_its_pods_and_marks_them(agents):
    """Each annotation that agents write, the mark, and its end."""
    pod = await Pods(agents[OWN]).read(SPACE, f"agent-of-{OWN}")
    keys = ["k8s.v1.cni.cncf.io/network-status", "k8s.volcengine.com/network-status", TOLD_OF]
    await NetworkObjects(agents[OWN]).tell(pod, tuple((key, "[]") for key in keys))
    restarts = Restarts(agents[OWN])
    await restarts.ask(pod, RestartRequest(OWN, 1, "a test"))
    await restarts.withdraw(pod)


POD_HARMS = {
    "label": {"metadata": {"labels": {"k8s-app": "kube-dns"}}},
    "annotation": {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "a"}}},
    "finalizer": {"metadata": {"finalizers": ["example.org/a"]}},
    "owner": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a"}]
        }
    },
    "image": {"spec": {"containers": [{"name": "main", "image": "example.org/evil:1"}]}},
    "deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "toleration": {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
}


@pytest.mark.parametrize("harm", POD_HARMS)
async def test_a_node_changes_nothing_else_of_its_pods(lab, agents, harm):
    body = POD_HARMS[harm]
    if harm == "toleration":  # the API itself lets tolerations be added and none go
        read = cluster.get(lab, "pod", "-n", SPACE, f"agent-of-{OWN}")["spec"]["tolerations"]
        body = {"spec": {"tolerations": [*read, *body["spec"]["tolerations"]]}}
    written = request("patch", "pods", f"agent-of-{OWN}", body, namespace=SPACE)
    with pytest.raises(Refused, match="ValidatingAdmissionPolicy"):
        await agents[OWN].write(replace(written, content_type=wire.STRATEGIC))


STATUS_HARMS = {
    "addresses": {"addresses": [{"type": "InternalIP", "address": "10.0.0.99"}]},
    "port": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 666}}},
    "volumesInUse": {"volumesInUse": ["kubernetes.io/csi/a"]},
    "volumesAttached": {"volumesAttached": [{"name": "a", "devicePath": "b"}]},
    "images": {"images": [{"names": ["example.org/evil:1"]}]},
    "kernel": {"nodeInfo": {"kernelVersion": "1"}},
}


@pytest.mark.parametrize("harm", STATUS_HARMS)
async def test_a_node_changes_nothing_of_its_status_but_the_condition(agents, harm):
    with pytest.raises(Refused, match="may not write status"):
        await agents[OWN].write(
            request("patch", "nodes", OWN, {"status": STATUS_HARMS[harm]}, part="status")
        )
    for entry in (CARDS, {"type": CARDS["type"], "$patch": "delete"}):
        body = {"status": {"conditions": [entry]}}
        await agents[OWN].write(request("patch", "nodes", OWN, body, part="status"))


@pytest.mark.parametrize("part", ["", "status"])
@pytest.mark.parametrize("field", ["finalizers", "ownerReferences"])
async def test_a_node_is_owned_and_held_by_nobody_new(agents, part, field):
    owner = {"apiVersion": "v1", "kind": "Node", "name": OTHER, "uid": "a"}
    entries = {"finalizers": ["example.org/a"], "ownerReferences": [owner]}
    body = {"metadata": {field: entries[field]}}
    with pytest.raises(Refused, match=f"may not write metadata.{field}"):
        await agents[OWN].write(request("patch", "nodes", OWN, body, part=part))


@pytest.mark.parametrize("name", ["kube-rdma-controller", OWN, f"ipam.{OTHER}"])
async def test_a_node_writes_no_lease_but_its_own(agents, name):
    """Not the one by which a controller is elected."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
    with pytest.raises(Refused, match="may not change leases"):
        await agents[OWN].write(request("create", "leases", body=lease, namespace=SPACE))


async def test_a_pod_with_as_much_as_fits_is_told_of_its_networks(lab, agents):
    """256 KiB of annotations; thousands of keys are too dear for the API server's own merge."""
    many = {f"{number:05x}": "a" * 1_200 for number in range(200)}
    pod = sleeping_pod("large", namespace=SPACE, nodeName=OWN, annotations=many)
    cluster.kubectl(lab, "create", "-f", "-", stdin=json.dumps(pod))
    try:
        large = await Pods(agents[OWN]).read(SPACE, "large")
        await NetworkObjects(agents[OWN]).tell(large, ((TOLD_OF, "a" * 9_000),))
    finally:
        cluster.kubectl(lab, "delete", "pod", "-n", SPACE, "large", "--wait=false")


# What an agent says of a pod's networks, which nobody else may.

ONLY_AGENTS = "Only the agent of a pod's node writes"
TENANT = "tenant"
SPACES = {"agent elsewhere": "elsewhere", "deployer": "deploys", "tenant": TENANT}
NOTE = {TOLD_OF: '[{"ips": ["10.90.0.66"]}]'}
BIND = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": OWN}}


@pytest.fixture(scope="module")
def writers(lab, config_of, tmp_path_factory):
    """Kubeconfigs by who writes, once the policy is in force: each at a pod on the first node.

    The admin; an agent of an installation in another namespace, with its rights; a controller that
    deploys what tenants write, with all rights; a pod of a tenant that may do anything in its
    namespace; and an agent on the other node.
    """
    for space in SPACES.values():
        cluster.kubectl(lab, "create", "namespace", space)
        cluster.kubectl(lab, "create", "serviceaccount", "writer", "-n", space)
        pod = sleeping_pod("writes", namespace=space, nodeName=OWN, serviceAccountName="writer")
        cluster.apply(lab, pod)
    for who, kind, role in (
        ("agent elsewhere", "clusterrolebinding", f"{SPACE}-agent"),
        ("deployer", "clusterrolebinding", "cluster-admin"),
        ("tenant", "rolebinding", "cluster-admin"),
    ):
        to = (f"--clusterrole={role}", f"--serviceaccount={SPACES[who]}:writer")
        cluster.kubectl(lab, "create", kind, SPACES[who], "-n", SPACES[who], *to)
    told = sleeping_pod("told", namespace=TENANT, nodeName=OWN)
    told["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    cluster.apply(lab, told)
    forged = json.dumps(sleeping_pod("new", namespace=TENANT, annotations=NOTE))

    def refused():
        try:
            cluster.kubectl(lab, "create", "--dry-run=server", "-f", "-", stdin=forged)
        except Unavailable as error:
            return ONLY_AGENTS in str(error)
        return False

    until(lab, "the policy for everybody in force", refused)
    yield {
        "admin": lab.kubeconfig,
        "agent": config_of(OWN),
        "agent of the other node": config_of(OTHER),
        **{
            who: cluster_users.of_pod(lab, "writes", space, tmp_path_factory.mktemp("token"))
            for who, space in SPACES.items()
        },
    }
    cluster.kubectl(lab, "delete", "clusterrolebinding", "elsewhere", "deploys")
    cluster.kubectl(lab, "delete", "namespace", *SPACES.values())


async def write(writers, who, written):
    """What the API server stored of a request."""
    async with connect(writers[who]) as api:
        return json.loads(await api.write(written))


def noted(text, part=""):
    """A change of what a pod was told; None takes it away."""
    body = {"metadata": {"annotations": {TOLD_OF: text}}}
    return request("patch", "pods", "told", body, part=part, namespace=TENANT)


@pytest.mark.parametrize("who", ["agent", "agent elsewhere"])
async def test_the_agent_of_its_node_says_what_a_pod_got(writers, who):
    """The first time, again, and no more; whichever installation the agent is of."""
    for text in ("[]", '[{"ips": []}]', None):
        stored = await write(writers, who, noted(text))
        assert stored["metadata"].get("annotations", {}).get(TOLD_OF) == text


@pytest.mark.parametrize("before", [None, "[]"])
@pytest.mark.parametrize("who", ["admin", "tenant", "agent of the other node"])
async def test_nobody_else_says_what_a_pod_got(writers, who, before):
    """Not for the first time, not another thing, and not that it has nothing any more."""
    await write(writers, "agent", noted(before))
    # Of two policies that refuse the API server names one.
    refusal = f"{ONLY_AGENTS}|may not change pods of node {OWN}" if "agent" in who else ONLY_AGENTS
    for part in ("",) if "agent" in who else ("", "status"):
        for text in ("", "[{}]", *((None,) if before else ())):
            with pytest.raises(Refused, match=refusal):
                await write(writers, who, noted(text, part))


@pytest.mark.parametrize("who", ["admin", "deployer", "tenant"])
async def test_nobody_makes_a_pod_that_was_told_already(writers, who):
    """Not the pod itself, nor by a Binding, whose annotations the API server gives to the pod."""
    made = sleeping_pod("new", namespace=TENANT, annotations=NOTE, nodeName=OWN)
    bound = {**BIND, "metadata": {"name": "told", "annotations": NOTE}}
    for written in (
        request("create", "pods", body=made, namespace=TENANT),
        request("create", "pods", "told", bound, part="binding", namespace=TENANT),
        request("create", "bindings", body=bound, namespace=TENANT),
    ):
        with pytest.raises(Refused, match=ONLY_AGENTS):
            await write(writers, who, written)


async def test_other_writes_of_pods_leave_what_the_pod_was_told(writers):
    """All pass: labels, conditions, another container for a while, and a new pod with a Binding.

    The API server itself keeps annotations where containers are added for a while, or resized.
    """
    text = "[]"
    await write(writers, "agent", noted(text))
    added = {"name": "debugs", "image": "localhost/lab/verbs:1", "command": ["true"]}
    forged = {"metadata": {"annotations": {TOLD_OF: "[{}]"}}}
    condition = {"type": "example.org/a", "status": "True"}
    more = [{"name": "main", "resources": {"requests": {"cpu": "2m"}}}]
    for part, body in (
        ("", {"metadata": {"labels": {"a": "b"}}}),
        ("status", {"status": {"conditions": [condition]}}),
        ("ephemeralcontainers", {**forged, "spec": {"ephemeralContainers": [added]}}),
        ("resize", {**forged, "spec": {"containers": more}}),
    ):
        written = request("patch", "pods", "told", body, part=part, namespace=TENANT)
        written = replace(written, content_type=wire.STRATEGIC)
        stored = await write(writers, "tenant", written)
        assert stored["metadata"]["annotations"][TOLD_OF] == text
    unbound = sleeping_pod("bound", namespace=TENANT, schedulerName="none")
    await write(writers, "tenant", request("create", "pods", body=unbound, namespace=TENANT))
    body = {**BIND, "metadata": {"name": "bound", "annotations": {"a": "b"}}}
    bound = request("create", "pods", "bound", body, part="binding", namespace=TENANT)
    await write(writers, "tenant", bound)
