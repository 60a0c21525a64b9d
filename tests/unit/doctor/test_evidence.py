"""What a doctor collects of a pod and its cluster: an API server in memory, a fake /proc."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS, DEPLOYMENTS, POD
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.journal.codec import RAILS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel import proc
from kube_rdma.attach.documents.network_status import ANNOTATION
from kube_rdma.attach.rules.conflist import ENTRY
from kube_rdma.doctor import evidence
from kube_rdma.doctor.cluster import address_ranges, address_uses, vpc_cni_version
from kube_rdma.doctor.containers import steering
from kube_rdma.doctor.evidence import DoctorPlaces, observe
from kube_rdma.doctor.pod import noted, pod_by_api
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.attach.attachment import SeenLink
from kube_rdma.model.card import CardId, IommuGroup
from kube_rdma.model.doctor import (
    AddressRange,
    AddressUse,
    Observation,
    ObservedContainer,
    ObservedRail,
)
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import RailRecord
from kube_rdma.reports import cluster as objects
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.nodes import function, node, position
from tests.unit.fabric.world import FabricWorld

KINDS = (*(DAEMON_SETS, DEPLOYMENTS, objects.EVENT, objects.BINDING), *(IP_POOL, DEFINITION, POD))
HCA = "rdma/hca"
NETWORKS = "k8s.v1.cni.cncf.io/networks"


def status(*addresses):
    entries = [
        {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"], "default": True},
        *(
            {"name": "default/rdma", "interface": f"net{n}", "ips": [address]}
            for n, address in enumerate(addresses, 1)
        ),
    ]
    return json.dumps(entries)


def pod(name, phase="Running", **annotations):
    container = {
        "name": "main",
        "resources": {"limits": {HCA: "1"}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": "node-1", "containers": [container]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}],
        },
    }


@pytest.fixture
def server():
    made = FakeServer(KINDS)
    made.put(POD, pod("train", **{NETWORKS: "rdma", ANNOTATION: status("10.0.0.5")}))
    made.put(POD, pod("other", **{ANNOTATION: status("10.0.0.6")}))
    made.put(POD, pod("over", "Succeeded", **{ANNOTATION: status("10.0.0.5")}))
    return made


async def test_addresses_are_those_of_pods_that_run_on_networks_of_their_own(server):
    assert await address_uses(Cluster(server.line())) == (
        AddressUse("default/other", "default/rdma", "net1", "10.0.0.6"),
        AddressUse("default/train", "default/rdma", "net1", "10.0.0.5"),
    )


@pytest.mark.parametrize(
    ("name", "image", "version"),
    [
        ("cello", "cr.example.com:5000/vke/cello:v1.7.3", "v1.7.3"),
        ("cello", "cello", ""),
        ("cello", "cr.example.com/vke/cilium:v1.9", ""),
        ("cilium", "cr.example.com/vke/cello:v1.7.3", ""),
    ],
)
async def test_vke_s_network_plugin_is_known_by_its_image(server, name, image, version):
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    meta = {"name": name, "namespace": "kube-system"}
    server.put(DAEMON_SETS, {"metadata": meta, "spec": {"template": template}})
    assert await vpc_cni_version(Cluster(server.line())) == version


def put_network(server, name="rdma", source="train"):
    """A network, whose addresses come from a pool, and pool train."""
    pool = {"metadata": {"name": "train"}, "spec": {"ranges": [{"subnet": "10.0.0.0/16"}]}}
    server.put(IP_POOL, pool)
    ipam = {"type": "kube-rdma-ipam", "pool": source}
    config = {"cniVersion": "1.0.0", "name": "rdma", "type": "macvlan", "ipam": ipam}
    meta = {"name": name, "namespace": "default"}
    server.put(DEFINITION, {"metadata": meta, "spec": {"config": json.dumps(config)}})


async def test_a_network_has_the_subnets_of_its_pools(server):
    put_network(server, "other", "removed")
    put_network(server)
    meta = {"name": "bad", "namespace": "default"}
    garbled = {"metadata": meta, "spec": {"config": "{"}}
    server.put(DEFINITION, garbled)
    ranges = await address_ranges(Cluster(server.line()))
    assert ranges == (AddressRange("default/rdma", ("10.0.0.0/16",)),)


async def test_an_agent_that_may_not_list_networks_reads_those_of_the_pods(server):
    """Agents may get networks; so the subnet of an address is judged from a laptop, too."""
    put_network(server)
    server.forbidden.add(("list", "network-attachment-definitions"))
    cluster = Cluster(server.line())
    with pytest.raises(Refused):
        await address_ranges(cluster)
    uses = await address_uses(cluster)
    assert await address_ranges(cluster, uses) == (AddressRange("default/rdma", ("10.0.0.0/16",)),)
    gone = (AddressUse("default/train", "default/removed", "net1", "10.0.0.5"),)
    assert await address_ranges(cluster, gone) == ()


async def test_a_pod_is_what_the_api_server_says_of_it(server):
    seen, _ = await pod_by_api(Cluster(server.line()), PodName("default", "train"))
    assert seen.networks == ("default/rdma",)
    assert seen.attached == (AddressUse("default/train", "default/rdma", "net1", "10.0.0.5"),)
    assert seen.containers == (
        ObservedContainer("main", ((HCA, 1),), asked_lock=True, granted=True),
    )
    assert seen.why == ""
    server.put(POD, pod("waits", "Pending"))
    seen, _ = await pod_by_api(Cluster(server.line()), PodName("default", "waits"))
    assert seen.why == "no node"


async def test_a_pod_is_seen_without_the_right_to_its_events(server):
    """An agent of example S3 may read pods and no event."""
    waiting = pod("waits", "Pending")
    del waiting["status"]["conditions"]
    server.put(POD, waiting)
    server.forbidden.add(("list", "events"))
    seen, _ = await pod_by_api(Cluster(server.line()), PodName("default", "waits"))
    assert (seen.phase, seen.why) == ("Pending", "")


async def test_a_pod_that_is_not_there_is_refused(server):
    with pytest.raises(Refused, match="there is no pod gone in namespace default"):
        await pod_by_api(Cluster(server.line()), PodName("default", "gone"))


async def test_a_node_without_anything_is_seen_as_far_as_it_goes(tmp_path, server):
    """No kubelet, no runtime, no record: each is named, and nothing is made."""

    @asynccontextmanager
    async def opener():
        yield Cluster(server.line())

    places = DoctorPlaces(
        "node-1",
        host=tmp_path,
        kubelet_root=tmp_path / "kubelet",
        runtime_socket=tmp_path / "none.sock",
        state=tmp_path / "state",
        pod=PodName("default", "train"),
    )
    info = {"kubeletVersion": "v1.36.3"}
    server.put(NODE, {"metadata": {"name": "node-1"}, "status": {"nodeInfo": info}})
    seen = await observe(places, opener)
    assert seen.versions.kubelet == "v1.36.3"
    blank = {one.part for one in seen.not_seen}
    assert {"specs", "runtime", "cni", "pod.containers"} <= blank
    assert seen.pod.title == "default/train"
    assert len(seen.uses) == 2
    assert not list(tmp_path.iterdir())
    assert bundle.decode(bundle.encode(seen), "x") == seen


@pytest.mark.parametrize(
    ("there", "absent"), [((), ()), (("vfio",), ("/dev/vfio/41",)), (("vfio", "41"), ())]
)
async def test_files_of_vfio_are_absent_where_the_hosts_folder_is_seen(
    there, absent, tmp_path, monkeypatch
):
    for name in ("infiniband", *(f"vfio/{one}" for one in there)):
        (tmp_path / name).mkdir(parents=True)
    card = replace(function(position(0x81), driver="vfio-pci"), group=IommuGroup(41))
    monkeypatch.setattr(evidence, "_DEV", (tmp_path / "infiniband",))
    monkeypatch.setattr(evidence, "take_survey", lambda: node(card, rdma_cm=None).survey)
    monkeypatch.setattr(evidence, "with_uses", lambda survey: survey)
    places = DoctorPlaces("node-1", host=tmp_path, state=tmp_path / "state")
    seen = await observe(places, closed)
    assert seen.absent == absent
    assert bundle.decode(bundle.encode(seen), "x") == seen
    told = [one.remedy for one in diagnose(seen).findings if one.code == "KR105"]
    assert len(told) == len(absent)
    assert all("the host's /dev/vfio into" in one for one in told)


@asynccontextmanager
async def closed():
    """A client of an API server that is away."""
    raise Unavailable("nobody answers")
    yield


async def test_the_rails_are_those_of_the_agents_record(tmp_path):
    places = DoctorPlaces("node-1", host=tmp_path, state=tmp_path / "state")
    assert (await observe(places, closed)).rails == ()
    (tmp_path / "state").mkdir()
    with Journal(Folder(tmp_path / "state/rails"), RAILS) as journal:
        journal.put("rails", RailRecord(functions=(CardId("0000:81:00.0"),)))
    seen = await observe(places, closed)
    assert seen.rails == (ObservedRail("0", "0000:81:00.0"),)
    assert bundle.decode(bundle.encode(seen), "x") == seen


async def test_a_list_whose_plugins_lie_in_a_folder_is_the_nodes_network(tmp_path):
    """Of CNI 1.1, which a doctor that knows files alone takes for no network."""
    net, binaries = tmp_path / "etc/cni/net.d", tmp_path / "opt/cni/bin"
    for folder in (net / "pods", binaries):
        folder.mkdir(parents=True)
    (binaries / "kube-rdma").touch()
    (net / "05-x.conflist").write_text('{"cniVersion": "1.1.0", "name": "pods"}')
    (net / "pods/10.conf").write_text('{"type": "ptp"}')
    places = DoctorPlaces("node-1", host=tmp_path, runtime_socket=tmp_path / "none.sock")
    seen = await observe(places, closed)
    assert seen.cni.files == (("05-x.conflist", ("ptp",)),)
    assert (seen.cni.default, seen.cni.pending) == ("05-x.conflist", True)
    (net / "pods/zz-kube-rdma.conf").write_text(json.dumps(ENTRY, indent=2) + "\n")
    assert not (await observe(places, closed)).cni.pending


async def test_without_an_api_server_the_node_is_seen_all_the_same(tmp_path):
    (tmp_path / "state").mkdir()
    places = DoctorPlaces("node-1", host=tmp_path, state=tmp_path / "state", run=tmp_path / "run")
    seen = await observe(places, closed)
    (folder,) = seen.folders
    assert (folder.path, folder.read_only) == (str(tmp_path / "state"), False)
    assert folder.free > 0
    assert seen.problems is None
    assert "nobody answers" in {one.why for one in seen.not_seen}


def test_no_secret_comes_into_a_bundle():
    kept = steering(
        (
            ("NCCL_IB_HCA", "mlx5_0"),
            ("UCX_TLS", "rc"),
            ("PCIDEVICE_RDMA_HCA", "0000:81:00.0"),
            ("NCCL_AUTH_TOKEN", "hunter2"),
            ("UCX_SECRET", "hunter2"),
            ("AWS_SECRET_ACCESS_KEY", "hunter2"),
            ("PASSWORD", "hunter2"),
        )
    )
    assert [name for name, _ in kept] == ["NCCL_IB_HCA", "PCIDEVICE_RDMA_HCA", "UCX_TLS"]


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_process_is_read_by_its_files(tmp_path):
    identity = "ab" * 32
    put(tmp_path, "7/cgroup", f"0::/kubepods.slice/kubepods-pod1_2.slice/cri-{identity}.scope\n")
    put(tmp_path, "9/cgroup", f"0::/kubepods.slice/kubepods-pod1_2.slice/cri-{identity}.scope\n")
    put(tmp_path, "8/cgroup", "0::/system.slice\n")
    put(tmp_path, "7/limits", "Max locked memory         65536                65536     bytes\n")
    put(tmp_path, "9/limits", "Max locked memory         unlimited            unlimited bytes\n")
    put(tmp_path, "7/status", "Name:\tx\nUid:\t0\t1000\t0\t0\nCapEff:\t0000000000004000\n")
    put(tmp_path, "7/environ", "A=1\0NCCL_IB_HCA=x=y\0")
    assert proc.processes_of("1-2", tmp_path) == {identity: (7, 9)}
    assert proc.processes_of("1-3", tmp_path) == {}
    assert (proc.memlock(7, tmp_path), proc.memlock(9, tmp_path)) == (65536, -1)
    assert proc.user_and_lock(7, tmp_path) == (1000, True)
    assert proc.variables(7, tmp_path) == (("A", "1"), ("NCCL_IB_HCA", "x=y"))
    with pytest.raises(Unavailable):
        proc.memlock(8, tmp_path)


@pytest.mark.parametrize("text", ["Max locked memory", "Max locked memory   many  many bytes"])
def test_a_limit_that_is_no_number_is_not_told(tmp_path, text):
    put(tmp_path, "7/limits", text)
    with pytest.raises(Unavailable, match="says nothing of locked memory"):
        proc.memlock(7, tmp_path)


def test_a_neighbour_whose_flags_are_no_number_is_passed_over(tmp_path):
    put(tmp_path, "net/arp", "head\n10.0.0.2 0x1 0x 00:00:00:00:00:00 * eth1\n")
    assert proc.read_neighbours(tmp_path) == ()


@pytest.mark.parametrize(
    ("flags", "is_virtual"), [("fpu hypervisor lm", True), ("fpu lm", False), ("", False)]
)
def test_a_virtual_machine_is_told_by_its_processor(tmp_path, flags, is_virtual):
    put(tmp_path, "cpuinfo", f"processor\t: 0\nflags\t\t: {flags}\nvmx flags\t: hypervisor\n")
    assert proc.read_hypervisor(tmp_path) is is_virtual


def test_another_processor_does_not_tell_whether_it_is_virtual(tmp_path):
    put(tmp_path, "cpuinfo", "processor : 0\nFeatures : fp asimd\n")
    with pytest.raises(Unavailable, match="does not tell"):
        proc.read_hypervisor(tmp_path)


def test_modules_neighbours_and_sysctls_are_read(tmp_path):
    put(tmp_path, "modules", "mlx5_ib 1 0 - Live 0x0\nib_uverbs 1 1 mlx5_ib, Live 0x0\n")
    put(tmp_path, "sys/module/rdma_rxe/x", "")
    assert proc.read_modules(tmp_path, tmp_path / "sys") == ("ib_uverbs", "mlx5_ib", "rdma_rxe")
    head = "IP address HW type Flags HW address Mask Device\n"
    rows = "10.0.0.2 0x1 0x0 00:00:00:00:00:00 * eth1\n10.0.0.3 0x1 0x2 aa:bb:cc:dd:ee:ff * eth1\n"
    put(tmp_path, "net/arp", head + rows)
    assert [one.answered for one in proc.read_neighbours(tmp_path)] == [False, True]
    put(tmp_path, "sys/net/ipv4/conf/all/rp_filter", "2\n")
    path = "net/ipv4/conf/all/rp_filter"
    assert proc.read_settings((path, "net/gone"), tmp_path) == ((path, "2"),)
    with pytest.raises(Unavailable):
        proc.read_modules(tmp_path / "none")


def test_a_field_that_a_later_release_adds_is_passed_over():
    data = json.loads(bundle.encode(Observation("node-1")))
    assert bundle.decode(json.dumps(data | {"later": 1}).encode(), "x") == Observation("node-1")


def test_the_parent_of_a_pods_link_is_one_of_the_node_or_nobody():
    """Index 2 could be the pod's own eth0 as well, so nothing is compared with it."""
    eth0 = SeenLink(InterfaceName("eth0"), 2, 1500, "", True, "veth", parent=40)
    net1 = SeenLink(InterfaceName("net1"), 3, 9000, "", True, "macvlan", parent=7)
    net2 = SeenLink(InterfaceName("net2"), 4, 9000, "", True, "macvlan", parent=2)
    below = {2: "ens2f0", 7: "ens2f1"}
    inside = noted((eth0, net1, net2), {3: True}, below)
    assert [one.parent for one in inside] == ["", "ens2f1", ""]
    assert [one.carrier for one in inside] == [None, True, None]
    assert [one.parent for one in noted((eth0, net1, net2), {})] == ["", "", "eth0"]


async def test_cables_of_a_node_are_seen_once_whichever_end_it_has(tmp_path):
    """And they are no further problem of `kube-rdma status`."""
    world = FabricWorld()
    for n in (1, 2):
        world.report(f"node-{n}", f"leaf-1 swp{3 - n}")
        world.expect(f"node-{n}", f"leaf-1 swp{n}")

    @asynccontextmanager
    async def opener():
        yield Cluster(world.server.line())

    for name in ("node-1", "node-2"):
        places = DoctorPlaces(name, host=tmp_path, state=tmp_path / "state")
        seen = await observe(places, opener)
        assert [(one.code, one.subject) for one in seen.cables] == [
            ("CablesSwapped", "node/node-1")
        ]
        assert not [one for one in seen.problems if one in seen.cables]
        assert bundle.decode(bundle.encode(seen), "x").cables == seen.cables
    seen = await observe(DoctorPlaces("node-3", host=tmp_path, state=tmp_path / "state"), opener)
    assert seen.cables == ()
