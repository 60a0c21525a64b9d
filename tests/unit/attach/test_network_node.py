"""What the real neighbours of pod networks answer, over a fake API server."""

import json
from functools import partial
from ipaddress import ip_address, ip_network

import pytest
from structlog.testing import capture_logs

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.errors import NotInstalled
from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.agent.compose import mode_warnings
from kube_rdma.attach.annotated_networks import asking
from kube_rdma.attach.cluster import NetworkObjects
from kube_rdma.attach.documents.networks import ANNOTATION
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies, host_network
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.ipam import ip_conf
from kube_rdma.ipam.cluster import IP_POOL, pool_of
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.attach.attachment import GidTable, NetworkKind, SeenLink
from kube_rdma.model.attach.cni import Call, Verb
from kube_rdma.model.device import CharKind
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import EDITED, IMPORTED, IPPool, IPRange, Route, Span
from kube_rdma.model.kubernetes import MIRROR, PodState
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import Grant, Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit import pod_networks as pods
from tests.kit.claims import pool
from tests.kit.nodes import device, function, physical_with_virtual, position
from tests.kit.nodes import node as survey_of
from tests.kit.pod_networks import card, network, share, wish
from tests.unit.attach import network_world

POOL = IPPool("rail-0", (IPRange(ip_network("10.9.0.0/24")),))


def view_of(cluster, pools=None, **more):
    """The neighbours over this cluster."""
    context = NodeContext(pools or {})
    return NodeView(NodeViewDependencies(cluster, None, context, None, None, **more))


async def test_a_pool_is_as_the_api_server_has_it_now():
    cluster = Cluster(FakeServer((IP_POOL,)).line())
    node = view_of(cluster)
    with pytest.raises(Unavailable, match="IPPool rail-0 was just deleted"):
        await node.pool("rail-0")
    made = await cluster.create(IP_POOL, Wanted("rail-0", spec=POOL))
    assert not (await node.pool("rail-0")).probe
    routes = (Route(ip_network("10.0.0.0/8"), ip_network("10.9.0.0/24")[1]),)
    await cluster.replace(IP_POOL, replace(made, spec=replace(POOL, probe=True, routes=routes)))
    found = await node.pool("rail-0")
    assert (found.name, found.probe, found.routes) == ("rail-0", True, routes)


def brought(**ipam):
    block = {"type": "whereabouts", "range": "10.88.0.0/24", **ipam}
    return ip_conf.load(of_value({"type": "macvlan", "ipam": block}, "conf"))


OTHER_CONTENT = (
    {"ranges": (IPRange(ip_network("10.88.0.0/16")),)},
    {"network": "team-a"},
    {"excludes": (Span(ip_address("10.88.0.1"), ip_address("10.88.0.99")),)},
)


@pytest.mark.parametrize(
    ("is_watched", "mark"), [(True, (EDITED, "true")), (False, (IMPORTED, ""))]
)
@pytest.mark.parametrize("other", OTHER_CONTENT)
async def test_a_pool_of_a_configuration_that_gives_other_addresses_is_refused(
    other, is_watched, mark
):
    """Any node's token may make it before the configuration is used; one line says so."""
    ipam = brought(exclude=["10.88.0.9"])
    server = FakeServer((IP_POOL,))
    cluster = Cluster(server.line())
    made = await cluster.create(IP_POOL, Wanted(ipam.pool.name, spec=replace(ipam.pool, **other)))
    watched = {made.name: pool_of(made)} if is_watched else None
    node = view_of(cluster, watched=lambda: watched)
    with capture_logs() as log:
        for _ in range(2):
            with pytest.raises(Refused, match=r"differ from those of the network's configuration"):
                await node.bring(ipam)
    assert [line["event"] for line in log] == ["IPPool refused"]
    await cluster.patch(IP_POOL, made.name, annotations=(mark,))
    await node.bring(ipam)


@pytest.mark.parametrize(
    "many",
    [
        {"exclude": [f"10.88.{n >> 8}.{n & 255}" for n in range(1, 258)]},
        {"ipRanges": [{"range": f"10.{n}.0.0/24"} for n in range(16)]},
    ],
)
async def test_a_pool_that_an_agent_may_not_make_is_an_administrators(many):
    """The policy would refuse it; one that is there already is used."""
    ipam = brought(range="10.88.0.0/22", **many)
    cluster = Cluster(FakeServer((IP_POOL,)).line())
    node = view_of(cluster)
    with pytest.raises(Refused, match=r"an agent makes pools of 16 and 256.*Make an IPPool"):
        await node.bring(ipam)
    await cluster.create(IP_POOL, Wanted(ipam.pool.name, spec=ipam.pool))
    await node.bring(ipam)
    most = {key: values[:-1] for key, values in many.items()}
    await node.bring(brought(range="10.88.0.0/22", network_name="other", **most))


async def test_a_pool_of_a_configuration_may_have_other_namespaces_and_pauses():
    """A token of a node cannot write these; people do, and need no mark for it."""
    ipam = brought(exclude=["10.88.0.9"])
    line = FakeServer((IP_POOL,)).line()
    cluster = Cluster(line)
    node = view_of(cluster)
    await node.bring(ipam)
    stored = await cluster.get(IP_POOL, ipam.pool.name)
    edited = replace(stored.spec, namespaces=("team-a",), cooldown=5.0, probe=True)
    await cluster.replace(IP_POOL, replace(stored, spec=edited))
    await node.bring(ipam)
    assert [one.verb for one in line.requests].count("create") == 1


async def test_a_static_pod_is_known_by_the_uid_that_its_mirror_names():
    """The kubelet tells the runtime that one; the object has a uid of its own."""
    server = FakeServer()
    for name, annotations in (("lb-node1", {MIRROR: "abc"}), ("plain", {})):
        meta = {"name": name, "namespace": "kube-system", "annotations": annotations}
        server.put(POD, {"metadata": meta, "spec": {}, "status": {}})
    node = view_of(Cluster(server.line()))
    static, plain = PodName("kube-system", "lb-node1"), PodName("kube-system", "plain")
    found = await node.pod(static, "abc")
    assert (found.name, found.uid == "abc") == ("lb-node1", False)
    assert await node.pod(static, "") == found
    assert await node.pod(static, "abd") is None
    assert await node.pod(plain, "abc") is None
    assert await node.pod(plain, (await node.pod(plain, "")).uid)


async def test_a_pool_that_is_watched_is_not_asked_for():
    """The API server is, about one that the watch does not show."""
    line = FakeServer((IP_POOL,)).line()
    node = view_of(Cluster(line), watched=lambda: {POOL.name: POOL})
    assert await node.pool(POOL.name) == POOL
    assert not line.requests
    with pytest.raises(Unavailable, match="IPPool rail-1 was just deleted"):
        await node.pool("rail-1")


@pytest.mark.parametrize(
    "needed", ["the node's InternalIP 10.1.0.5", "the connection to the API server, from 10.1.0.5"]
)
def test_a_pod_gets_no_interface_with_the_node_s_own_address(needed):
    """Though no default route leads through it: a host-device network would cut the node off."""
    one = function(position(0x81), "ens1f0")
    wanted = [wish(of=network(kind=NetworkKind.DEVICE, device="ens1f0", resource=None))]
    links = [SeenLink("ens1f0", 7, 1500, "02:00:00:00:00:01", True)]
    pod_nics(wanted, [], host_network(survey_of(one).survey, links))
    carries = replace(one, netdevs=(replace(one.netdevs[0], needed=needed),))
    with pytest.raises(Refused, match="the node itself is reached through ens1f0"):
        pod_nics(wanted, [], host_network(survey_of(carries).survey, links))


def test_the_guids_of_the_node_are_those_that_ports_can_have():
    """In the form in which pods ask for them; a fresh virtual function has zeros."""
    first = device(1, position(0x81), node_guid="0200:0a00:0000:0001")
    others = (device(2, position(0x82)), device(3, position(0x83), node_guid="0000:0000:0000:0000"))
    found = host_network(survey_of(devices=(first, *others, device(4, None, "eth4"))).survey, ())
    assert found.guids == (("mlx5_1", first.pci, "02:00:0a:00:00:00:00:01"),)
    assert found.soft == "rxe"


SURVEY = survey_of(*physical_with_virtual(0x81, 2)).survey
LINK = SeenLink("ens1f0", 7, 1500, "", True, pci="0000:81:00.0")


class Kernel:
    """What the node shows: its surveys, and its interfaces by name."""

    def __init__(self, survey, *links):
        self.now, self.links, self.surveys, self.asked = survey, links, 0, []
        kept = SurveyCache(self.survey, lambda: self.now.namespace_mode, lambda found: found)
        self.node = NodeView(NodeViewDependencies(None, None, NodeContext({}), kept, self.named))

    def survey(self):
        self.surveys += 1
        return self.now

    def named(self, names):
        self.asked.append(names)
        return tuple(one for one in self.links if names is None or one.name in names)

    async def host(self):
        on = wish(of=network(kind=NetworkKind.MACVLAN, device="ens1f0"))
        return await self.node.host((on,), ())


async def test_settings_of_no_functions_are_asked_of_nobody():
    node = view_of(None, functions=list)
    assert await node.settings(()) == ()
    assert await node.settings(("a place",)) == ["a place"]


async def test_a_survey_serves_many_pods():
    """Only the interfaces of their networks are asked for, each time."""
    kernel = Kernel(SURVEY, LINK)
    for _ in range(2):
        (found,) = (await kernel.host()).links
        assert (found.index, found.pci) == (7, "0000:81:00.0")
    assert (kernel.surveys, kernel.asked) == (1, [("ens1f0",)] * 2)


async def test_what_the_survey_does_not_know_yet_is_looked_for_anew():
    """A card that was plugged in a moment ago is not refused."""
    kernel = Kernel(replace(SURVEY, functions=()), LINK)
    await kernel.host()
    kernel.now = SURVEY
    (found,) = (await kernel.host()).links
    assert found.link_type == "ether"
    assert kernel.asked[-1] is None
    taken = kernel.surveys
    await kernel.host()
    assert kernel.surveys == taken


async def test_all_interfaces_are_there_when_one_is_missing():
    """The sentence of the refusal names them."""
    kernel = Kernel(SURVEY, replace(LINK, name="ens1f0v0", index=8, pci="0000:81:00.1"))
    assert [one.name for one in (await kernel.host()).links] == ["ens1f0v0"]


async def test_the_namespace_mode_is_that_of_now():
    kernel = Kernel(replace(SURVEY, namespace_mode=NamespaceMode.SHARED), LINK)
    await kernel.host()
    kernel.now = replace(SURVEY, namespace_mode=NamespaceMode.EXCLUSIVE)
    assert (await kernel.host()).namespace_mode is NamespaceMode.EXCLUSIVE
    assert kernel.surveys == 1


async def test_a_default_route_of_now_keeps_a_card_on_the_node():
    """The routes are read for a card that may leave, and for no other."""
    kernel = Kernel(SURVEY, LINK)
    read = []
    kept = SurveyCache(kernel.survey, lambda: NamespaceMode.SHARED, read.append)
    kept.last(leaving=False)
    assert not read
    kept.last(leaving=True)
    assert read == [SURVEY]


async def test_the_rails_of_a_pod_s_cards_are_asked_for_only_by_networks_of_rails():
    """Right after its start the agent does not know them, and such a pod waits."""
    rails = {card(1).id: 3, card(2).id: None}
    kept = SurveyCache(lambda: SURVEY, lambda: SURVEY.namespace_mode, lambda survey: survey)
    asked = NodeViewDependencies(None, None, NodeContext({}), kept, lambda _: (), rail=rails.get)
    granted = [share(card(1)), share(card(2))]
    by_rail = wish(of=network("rail-3", rails=(3,)))
    host = await NodeView(asked).host((by_rail,), granted)
    assert host.rails == ((card(1).id, 3),)

    def unknown(_):
        raise Unavailable("not numbered yet")

    node = NodeView(replace(asked, rail=unknown))
    assert (await node.host((wish(),), granted)).rails == ()
    with pytest.raises(Unavailable):
        await node.host((by_rail,), granted)


VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com"}}
VKE = "vke.volcengine.com/rdma"


@pytest.mark.parametrize("call", [None, Call(Verb.ADD, "1.1.0", "c", b"{}", "c1", "eth0")])
@pytest.mark.parametrize(
    ("resource", "mode", "more", "words"),
    [
        (VKE, Mode.EXCLUSIVE, {"volumes": [VEPFS]}, "vePFS, which cannot be used in mode excl"),
        (VKE, Mode.SHARED, {"volumes": [VEPFS]}, None),
        (VKE, Mode.EXCLUSIVE, {}, None),
        (VKE, Mode.SHARED_MULTI, {}, "mode shared-multi is not recommended for pods with GPUs"),
        ("rdma/hca", Mode.EXCLUSIVE, {"volumes": [VEPFS]}, None),
    ],
)
async def test_a_mode_that_the_node_has_is_told_to_pods_that_do_not_go_with_it(
    resource, mode, more, words, call
):
    """Admission knew no mode: a NodePolicy sets it. The pod is read again only in these modes."""
    server = FakeServer()
    limits = {resource: "1", "nvidia.com/gpu": "1"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}], **more}
    server.put(POD, {"metadata": {"name": "a", "namespace": "team"}, "spec": spec, "status": {}})
    line, told = server.line(), []
    pools = {resource: pool(mode=mode, resource=resource)}
    cluster = Cluster(line)
    judge = partial(mode_warnings, cluster)
    node = view_of(cluster, pools, warn=lambda *one: told.append(one), mode_warnings=judge)
    seen = await node.pod(PodName("team", "a"), "")
    line.requests.clear()
    await (node.tell(seen, (), call) if call else node.tell_own(seen, (), frozenset()))
    reads = [one for one in line.requests if one.verb == "get"]
    assert len(reads) == (resource == VKE and mode is not Mode.SHARED)
    assert len(told) == (words is not None)
    for about, reason, note, is_warning in told:
        assert (about, reason, is_warning) == (seen, "UnsuitableMode", True)
        assert words in note
        assert note.endswith("Select nodes of another mode.") or "remove the volume" in note


async def test_a_pod_that_cannot_be_read_again_keeps_its_network():
    server = FakeServer()
    server.put(POD, {"metadata": {"name": "a", "namespace": "team"}, "spec": {}, "status": {}})
    pools = {VKE: pool(mode=Mode.EXCLUSIVE, resource=VKE)}
    node = view_of(Cluster(server.line()), pools)
    seen = await node.pod(PodName("team", "a"), "")
    server.forbidden.add(("get", "pods"))
    await node.tell_own(seen, (), frozenset())


async def test_a_cluster_without_the_kind_is_told_who_brings_it():
    """It is Multus's own: no version of kube-rdma has it among its definitions."""
    with pytest.raises(NotInstalled) as caught:
        await NetworkObjects(Cluster(FakeServer([]).line())).read("default", "nics")
    assert "network-attachment-definitions.k8s.cni.cncf.io" in caught.value.problem
    assert "Install Multus" in caught.value.remedy
    assert "crds.networkAttachmentDefinitions=true" in caught.value.remedy


META = {"name": "rdma", "namespace": "default"}


def warned(log):
    return [one["warning"] for one in log if one["log_level"] == "warning"]


def put(server, **fields):
    config = json.dumps({"type": "macvlan", "master": "ens1f0", **fields})
    server.put(DEFINITION, {"metadata": META, "spec": {"config": config}})


async def test_a_definitions_warnings_are_said_once():
    """For the first pod that asks for it, and again when others come in their place."""
    server = FakeServer((IP_POOL, DEFINITION))
    node = view_of(Cluster(server.line()))
    said = []
    for fields in ({"mastre": "x"}, {"mastre": "x"}, {}, {"mastre": "x"}, {"vlan": 5}):
        put(server, **fields)
        with capture_logs() as log:
            assert await node.definition("default", "rdma")
        said.append(["mastre" in one for one in warned(log)])
    assert said == [[True], [], [], [True], [False]]


def test_an_annotations_warnings_name_the_pod():
    """A key that is nobody's is ignored, as by Multus."""
    text = '[{"name": "a", "x-team": 1}]'
    pod = PodState("default", "train-0", "uid-1", ((ANNOTATION, text),), (), False)
    with capture_logs() as log:
        assert len(asking(pod, "").asks) == 1
    (warning,) = warned(log)
    assert warning.endswith('networks[0]."x-team": there is no such field, it is ignored')
    assert log[0]["pod"] == "default/train-0"


RESOURCE, OTHER = "rdma/hca", "nvidia.com/gpu"


def holding(resource, *shares):
    return Holding("default", "train-0", "main", resource, shares)


def viewing(pools, withdrawn=(), kubelet=None):
    """The neighbours as they are while these pools are offered."""
    context, rail = NodeContext(pools, withdrawn), NodeRails().number
    kubelet = kubelet or KubeletView(None)
    return NodeView(NodeViewDependencies(None, kubelet, context, None, None, rail=rail))


def test_right_after_the_start_nothing_is_known():
    """Not that the pod holds none: it is tried again, by whomever it was asked."""
    node = viewing(None)
    with pytest.raises(Unavailable, match="the agent has just started"):
        node.granted([holding(RESOURCE, "a-0")])
    with pytest.raises(Unavailable, match="the agent has just started"):
        node.rail("0000:81:00.0")


def test_a_resource_of_ours_that_is_withdrawn_makes_the_pod_wait():
    """Its shares are still ours, whatever the pod's networks are."""
    with pytest.raises(Unavailable, match="rdma/hca is not advertised on this node now"):
        viewing({}, (RESOURCE,)).granted([holding(OTHER, "gpu-0"), holding(RESOURCE, "a-0")])


def test_what_other_device_plugins_gave_is_theirs():
    assert viewing({}, (RESOURCE,)).granted([holding(OTHER, "gpu-0")]) == ()
    assert viewing({}).granted(()) == ()


def test_a_share_that_the_pool_has_no_more_is_not_left_out():
    """The networks behind it in the annotation would get each other's cards."""
    first = card(0)
    spec = PoolSpec(RESOURCE, Mode.SHARED_MULTI, "policy:1", device_files=tuple(CharKind))
    share = Share(ShareId(f"{first.id}-0"), healthy=True, card=first.id)
    node = viewing({RESOURCE: Pool(spec, (share,), (first,))})
    (found,) = node.granted([holding(RESOURCE, share.id)])
    assert (found.cards, found.device_files) == ((first,), tuple(CharKind))
    with pytest.raises(Unavailable, match="rdma/hca has no share gone-0 on this node now"):
        node.granted([holding(RESOURCE, "gone-0", share.id)])


async def test_a_share_that_is_bound_early_comes_with_what_allocate_gave():
    """Not with what it would give now; only where another agent gave it, nobody knows better.

    So after a restart a device that was renumbered goes unseen: decision 0025, Consequences.
    """
    first, kubelet = card(0), KubeletView(None)
    spec = PoolSpec(RESOURCE, Mode.SRIOV, "policy:1")
    share = Share(ShareId(first.id), healthy=True, card=first.id)
    node = viewing({RESOURCE: Pool(spec, (share,), (first,))}, kubelet=kubelet)
    now = tuple(sorted(char.path for char in first.devices[0].char_devices))
    (found,) = node.granted([holding(RESOURCE, share.id)])
    assert (found.early, found.char_paths) == (True, now)
    kubelet.granted(Grant(RESOURCE, (share.id,), ("/dev/infiniband/uverbs7",)))
    (found,) = node.granted([holding(RESOURCE, share.id)])
    assert found.char_paths == ("/dev/infiniband/uverbs7",)


@pytest.fixture
def world(tmp_path):
    """A pod with a share of each of two cards, and a network on either."""
    shares = [
        network_world.share(network_world.card(number), Mode.SHARED_MULTI) for number in range(2)
    ]
    networks = {"default/rdma": network_world.config("macvlan")}
    found = network_world.World(tmp_path, [one.cards[0] for one in shares], shares, networks)
    found.sandbox()
    found.ask("rdma,rdma")
    return found


async def test_a_full_table_is_refused_before_anything_is_done(world):
    """It says N of M; with room the same pod starts."""
    world.node.gids["mlx5_1"] = GidTable("mlx5_1", 256, 255)
    with pytest.raises(Refused, match="255 of 256 entries are in use, and 1 addresses need 2"):
        await world.add(1)
    assert not [link for link in world.kernel.links if link.name.startswith("net")]
    world.nothing_left(1)
    world.node.gids.clear()
    await world.add(1)
    await world.check(1)


def plans(mode, of, **facts):
    granted = pods.share(of, mode=mode)
    leased = [pods.given(1, "10.0.0.7/24", "fd00::7/64")]
    return pods.planned([pods.wish(of=pods.network(**facts))], [granted], pods.node(of), leased)


async def test_the_kernel_is_asked_about_the_plans_devices_only():
    asked = []

    def tables(wanted):
        asked.append(wanted)
        return (GidTable("mlx5_1", 8, 5),)

    node = view_of(None, gids=tables)
    await node.refuse_full(plans(Mode.EXCLUSIVE, pods.card(1)))
    assert not asked
    with pytest.raises(Refused, match="5 of 8 entries are in use, and 2 addresses need 4"):
        await node.refuse_full(plans(Mode.SHARED_MULTI, pods.card(1)))
    assert asked == [{"mlx5_1": 2}]
