"""A fault that is planted is named first, whatever else follows from it."""

from __future__ import annotations

import pytest

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import CHECKS, diagnose
from kube_rdma.doctor.rules.kubelet import KUBELET_SOCKET
from kube_rdma.doctor.views import doctor_page
from kube_rdma.lib.page import page_text
from kube_rdma.model import doctor
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice, SliceDevice
from kube_rdma.model.device import CharKind, LinkLayer, PhysicalState, PortState
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.pools import Mode, RdmaLimits, Selector, Serving
from kube_rdma.model.survey import NamespaceMode
from tests.unit.doctor.rules.healthy import (
    CLAIMING,
    CONTAINER,
    DEVICES,
    FUNCTIONS,
    GPUS,
    HEALTHY,
    LINKS,
    POD,
    RESOURCE,
    ROUTES,
    SPEC,
    SURVEY,
    WITH_POD,
    below_a_switch,
    codes,
    flow_control,
    four_ports,
    rising,
    with_container,
    with_device,
    with_net1,
    with_pod,
)

DOWN = {"state": PortState.DOWN, "physical_state": PhysicalState.DISABLED, "gids": ()}
POLLING = {"state": PortState.DOWN, "physical_state": PhysicalState.POLLING}
NO_SM = {
    "state": PortState.INIT,
    "physical_state": PhysicalState.LINK_UP,
    "link_layer": LinkLayer.INFINIBAND,
}


def of_versions(kubelet, vpc_cni=""):
    """A node without pools, which need newer ones still."""
    versions = replace(HEALTHY.versions, kubelet=kubelet, vpc_cni=vpc_cni)
    return replace(HEALTHY, specs=(), versions=versions)


def survey(**facts):
    return replace(HEALTHY, survey=replace(SURVEY, **facts))


def kubelet(**facts):
    return replace(HEALTHY, kubelet=replace(HEALTHY.kubelet, **facts))


def with_pcie(**facts):
    """The same where the link of the first card is otherwise."""
    first, *others = HEALTHY.pcie
    return replace(HEALTHY, pcie=(replace(first, **facts), *others))


DMA = tuple(doctor.ObservedDomain(one.position.pci, "DMA-FQ") for one in FUNCTIONS[:1])


def offers(count):
    return replace(HEALTHY.kubelet, allocatable=((RESOURCE, count),) if count else ())


def links(**facts):
    return replace(HEALTHY, links=(replace(LINKS[0], **facts), LINKS[1]))


def setting(interface, word, value):
    values = dict(HEALTHY.settings) | {f"net/ipv4/conf/{interface}/{word}": value}
    return replace(HEALTHY, settings=tuple(values.items()))


def cni(**facts):
    return replace(HEALTHY, cni=replace(HEALTHY.cni, **facts))


PROBLEM = Finding.of("AgentNotReady", "node/node-1", "It is not ready", "See its log")
CABLE = Finding.of(
    "CableMoved",
    "node/node-1",
    "node-1 mlx5_0 is in leaf-2 swp1, and belongs in leaf-1 swp1",
    "Plug it in where it belongs, or accept it as it is: kube-rdma fabric accept node-1",
)
VOLUME = Finding.of(
    "device-volume", ("spec", "volumes", 0), "it shows all", "Remove the volume and its mount"
)
MISMATCH = Finding.of("network-shares", ("metadata",), "it needs 2", "Ask for 2 of rdma/nic")
MODE_FAST = "policy.yaml: pools[0].mode is fast: write hca, shared, shared-multi or exclusive"
TWO_PLUGINS = "two meta-plugins attach networks. Take one list out of /etc/cni/net.d."
FAR = (HEALTHY.kubelet.holdings[0], replace(HEALTHY.kubelet.holdings[1], numa_nodes=(1,)))
HOLDER = (FAR[0].namespace, FAR[0].pod, FAR[0].container)
BY_CLAIM = replace(
    WITH_POD,
    kubelet=replace(
        HEALTHY.kubelet,
        holdings=HEALTHY.kubelet.holdings[:1],
        devices=(ClaimedDevice(*HOLDER, SliceDevice("gpu.nvidia.com", "node-1", "gpu-0")),),
    ),
    slices=(DeviceSlice("gpu.nvidia.com", "node-1", 1, (("gpu-0", (GPUS[1].position.pci,)),)),),
)
COUNTED = doctor.ObservedLimit("mlx5_1", 1, 20, 4, 100)


def routed(to, interface="net1", table=0):
    """The pod has one more route."""
    return with_pod(routes=(*POD.routes, doctor.ObservedRoute(interface, to, "10.0.0.1", table)))


def limited(*limits):
    """A pod whose shares have limits, and what its control group shows."""
    specs = (replace(SPEC, limits=RdmaLimits(4, 100)),)
    return replace(WITH_POD, specs=specs, pod=replace(POD, limits=limits))


DRIVERLESS = tuple(replace(one, driver=None, netdevs=()) for one in FUNCTIONS)
BARE = "eth0, eth1: driver mlx5_core and no RDMA device"
EXCLUSIVE = replace(SPEC, mode=Mode.EXCLUSIVE)
SHARED = replace(SPEC, mode=Mode.SHARED)
OWN = replace(EXCLUSIVE, resource="rdma/own")

APART = replace(
    with_pod(survey=replace(SURVEY, devices=())),
    survey=replace(SURVEY, namespace_mode=NamespaceMode.EXCLUSIVE),
    specs=(EXCLUSIVE,),
)
ADD = 'FailedCreatePodSandBox: rpc error: plugin type="kube-rdma" failed (add): '
FULL = f"{ADD}IPPool narrow: the pool is full: 2 of 2 addresses are held; Add a range."

# The pod as it is, and what CNI CHECK says of it; the device has lost the GID of the address.
VANISHED = with_pod(
    attachments=(
        doctor.ObservedAttachment(
            "net1", "default/rdma", ("net1 (default/rdma): the address 10.0.1.1/16 is missing",)
        ),
    ),
    links=(POD.links[0], replace(POD.links[1], addresses=())),
    survey=SURVEY,
)

# The card of the claim is not on the node.
AWAY = replace(
    CLAIMING,
    survey=replace(SURVEY, devices=DEVICES[:1], functions=FUNCTIONS[:1]),
    rails=HEALTHY.rails[:1],
    kubelet=replace(CLAIMING.kubelet, allocatable=((RESOURCE, 1),)),
)
MOVED = CLAIMING.pod.survey.devices[1]
MOVED_AND_DOWN = replace(MOVED, ports=(replace(MOVED.ports[0], state=PortState.DOWN),))


def away(**facts):
    """The card of the claim is not on the node, and the pod is otherwise."""
    return replace(AWAY, pod=replace(CLAIMING.pod, **facts))


def folder(path="/var/lib/kube-rdma", free=1 << 30, **facts):
    """The same with one folder that the agent writes in."""
    return replace(HEALTHY, folders=(doctor.ObservedFolder(path, free, **facts),))


FAULTS = {
    "driver unloaded": ("KR101", survey(devices=(), functions=DRIVERLESS)),
    "RDMA module unloaded": ("KR102", survey(devices=())),
    "nobody saw which": ("KR102", replace(survey(devices=()), modules=None)),
    "PCIe with half its lanes": ("KR125", with_pcie(width=8)),
    "PCIe at half its speed": ("KR125", with_pcie(speed=16.0)),
    "trust of one port": ("KR126", four_ports(trust="pcp")),
    "PFC of one port": ("KR126", four_ports(pfc=())),
    "ECN of one port": ("KR126", four_ports(ecn=())),
    "loss without PFC": (
        "KR127",
        rising("out_of_sequence", "np_cnp_sent", flow_control=flow_control(pfc=())),
    ),
    "loss beside the priority of PFC": ("KR127", rising("packet_seq_err")),
    "a bad cable": ("KR129", rising("symbol_error", "link_downed")),
    "a bad cable by mlx5's interface": ("KR129", rising("rx_pcs_symbol_err_phy")),
    "a bad cable by bnxt's interface": ("KR129", rising("rx_fec_uncorrectable_blocks")),
    "a bad cable by ice's interface": ("KR129", rising("mac_local_faults.nic")),
    "a pause storm": ("KR129", rising("tx_pause_storm_error_events", "tx_pause_ctrl_phy")),
    "a pause storm by bnxt": ("KR129", rising("continuous_roce_pause_events")),
    "a full buffer of the card": ("KR129", rising("rx_discards_phy")),
    "loss in InfiniBand": (
        "KR129",
        replace(
            with_device(port={"link_layer": LinkLayer.INFINIBAND, "gids": ()}),
            errors=rising("out_of_sequence", "packet_seq_err").errors,
            flow_control=HEALTHY.flow_control[1:],
        ),
    ),
    "ACS on the card's side": ("KR141", below_a_switch((0x1D, 0))),
    "ACS on the GPU's side": ("KR141", below_a_switch((0, 0x1D))),
    "IOMMU translates": ("KR142", replace(HEALTHY, domains=DMA)),
    "no card at all": ("KR103", survey(devices=(), functions=(), gpus=())),
    "ib_uverbs unloaded": ("KR104", with_device(char_devices=())),
    "node of a device removed": ("KR105", replace(HEALTHY, absent=("/dev/infiniband/uverbs0",))),
    "rdma_ucm unloaded": ("KR106", survey(rdma_cm=None)),
    "namespace mode against pool": ("KR110", survey(namespace_mode=NamespaceMode.EXCLUSIVE)),
    "card in a bond": (
        "KR115",
        replace(
            with_device(
                port={"bond": "bond0", "gids": ()}, netdev={"master": "bond0", "bonded": True}
            ),
            specs=(EXCLUSIVE,),
        ),
    ),
    "link down": ("KR120", with_device(port=DOWN, netdev={"up": False, "carrier": None})),
    "no carrier": ("KR121", with_device(port=POLLING, netdev={"carrier": False})),
    "no carrier and no signal": ("KR121", with_device(port=DOWN, netdev={"carrier": False})),
    "no subnet manager": ("KR122", with_device(port=NO_SM)),
    "no GID": ("KR123", with_device(port={"gids": ()})),
    "slow lane": ("KR124", with_device(port={"rate_gbps": 25.0})),
    "configuration refused": ("KR130", replace(HEALTHY, specs=None, refusals=(MODE_FAST,))),
    "selector of no card": (
        "KR132",
        replace(HEALTHY, specs=(replace(SPEC, selectors=(Selector(interfaces=("eno9",)),)),)),
    ),
    "two pools, one card": ("KR131", replace(HEALTHY, specs=(SPEC, OWN))),
    "a card left its rail": (
        "KR135",
        replace(HEALTHY, rails=(*HEALTHY.rails, doctor.ObservedRail("2", "0000:83:00.0"))),
    ),
    "a pool that opens the fabric": (
        "KR136",
        replace(
            with_device(port={"link_layer": LinkLayer.INFINIBAND}),
            specs=(replace(SPEC, device_files=(CharKind.UVERBS, CharKind.UMAD)),),
        ),
    ),
    "a name of a selector that no card has": (
        "KR137",
        replace(
            HEALTHY,
            specs=(replace(SPEC, selectors=(Selector(interfaces=("eth0", "ens9")),)),),
            kubelet=replace(HEALTHY.kubelet, allocatable=((RESOURCE, 1),)),
        ),
    ),
    "no peer memory": ("KR140", replace(HEALTHY, modules=("ib_uverbs",))),
    "kubelet gone": ("KR201", kubelet(sockets=(), allocatable=None)),
    "plugin dead": ("KR202", kubelet(sockets=(KUBELET_SOCKET,), allocatable=())),
    "resource not registered": ("KR203", kubelet(allocatable=())),
    "kubelet counts less": ("KR204", kubelet(allocatable=((RESOURCE, 1),))),
    "topology policy none": ("KR205", kubelet(topology_policy="none")),
    "cable on another leaf": ("KR138", replace(HEALTHY, cables=(CABLE,))),
    "problem of status": ("KR290", replace(HEALTHY, problems=(PROBLEM,))),
    "narrow card": ("KR301", links(mtu=1500)),
    "two rails, one subnet": (
        "KR302",
        replace(
            links(addresses=("10.1.0.9/16",)),
            routes=(doctor.ObservedRoute("eth0", "10.1.0.0/16"), ROUTES[1]),
        ),
    ),
    "strict reverse path": ("KR303", setting("eth1", "rp_filter", "1")),
    "route of a rail removed": ("KR304", replace(HEALTHY, routes=ROUTES[1:])),
    "silent peer": (
        "KR305",
        replace(HEALTHY, neighbours=(doctor.ObservedNeighbour("eth0", "10.0.0.2", False),)),
    ),
    "two meta-plugins": ("KR310", cni(refused=TWO_PLUGINS)),
    "conflist owned by Cilium": ("KR311", cni(pending=True)),
    "conflist put aside": ("KR311", cni(guard="", aside=("00-kube-rdma.conflist.cilium_bak",))),
    "conflist rewritten": ("KR312", cni(guard="", pending=True)),
    "one address twice": (
        "KR320",
        replace(HEALTHY, uses=(*HEALTHY.uses, replace(HEALTHY.uses[0], pod="default/third"))),
    ),
    "address of another subnet": (
        "KR321",
        replace(HEALTHY, uses=(replace(HEALTHY.uses[0], address="10.9.1.1"),)),
    ),
    "pool exhausted": ("KR322", with_pod(phase="Pending", why=FULL)),
    "annotation without a request": ("KR401", with_pod(findings=(MISMATCH,))),
    "network not attached": ("KR403", with_pod(attached=())),
    "address vanished in the pod": ("KR404", VANISHED),
    "link down in the pod": ("KR410", with_net1(up=False, carrier=None)),
    "wrong MTU in the pod": ("KR411", with_net1(mtu=9100)),
    "route removed in the pod": ("KR412", with_pod(routes=())),
    "default route through a network": ("KR413", routed("0.0.0.0/0")),
    "half of a default route": ("KR413", routed("0.0.0.0/1")),
    "route to all of the cluster": ("KR413", routed("10.0.0.0/8")),
    "a card without an interface": (
        "KR414",
        replace(with_pod(links=POD.links[:1], networks=(), attached=()), specs=(SHARED,)),
    ),
    "one network too few": (
        "KR414",
        replace(
            with_container(
                asks=((RESOURCE, 2),), nodes=(*CONTAINER.nodes, "/dev/infiniband/uverbs1")
            ),
            specs=(SHARED,),
        ),
    ),
    "no device nodes": ("KR415", with_container(nodes=())),
    "cgroup closed": ("KR416", with_container(asks=(), granted=False)),
    "a share and all nodes": ("KR416", with_pod(findings=(VOLUME,))),
    "device in another namespace": ("KR417", APART),
    "no GID for the pod": ("KR418", with_pod(survey=SURVEY)),
    "stale GID index": ("KR420", with_container(variables=(("NCCL_IB_GID_INDEX", "3"),))),
    "NCCL names another device": ("KR421", with_container(variables=(("NCCL_IB_HCA", "mlx5_7"),))),
    "NCCL without RDMA": ("KR421", with_container(variables=(("NCCL_IB_DISABLE", "1"),))),
    "RDMA_CM on the overlay": (
        "KR422",
        replace(
            with_pod(links=POD.links[:1], networks=(), attached=(), survey=SURVEY),
            specs=(replace(SPEC, mode=Mode.HCA, shares=2),),
        ),
    ),
    "missing IPC_LOCK": ("KR430", with_container(memlock=65536)),
    "memlock": ("KR431", with_container(memlock=65536, asked_lock=True)),
    "limits that nobody wrote": ("KR432", limited(doctor.ObservedLimit("mlx5_0", 1, 9))),
    "limits used up": ("KR432", limited(doctor.ObservedLimit("mlx5_0", 1, 100, 4, 100), COUNTED)),
    "a driver that counts nothing": ("KR432", limited(COUNTED)),
    "a program that chose TCP": ("KR433", with_container(pinned=0)),
    "GPU far away": ("KR440", replace(WITH_POD, kubelet=replace(HEALTHY.kubelet, holdings=FAR))),
    "GPU of a claim far away": ("KR440", BY_CLAIM),
    "card of a claim gone": (
        "KR441",
        away(
            survey=replace(SURVEY, devices=DEVICES[:1]),
            links=CLAIMING.pod.links[:1],
            containers=(replace(CLAIMING.pod.containers[0], variables=()),),
        ),
    ),
    "port of a claim's card down": (
        "KR442",
        away(survey=replace(CLAIMING.pod.survey, devices=(MOVED_AND_DOWN,))),
    ),
    "interface of a claim's card left on the node": (
        "KR443",
        replace(
            CLAIMING,
            links=LINKS,
            routes=ROUTES,
            pod=replace(CLAIMING.pod, links=CLAIMING.pod.links[:1]),
        ),
    ),
    "pod waits": ("KR490", with_pod(phase="Pending", why="0/3 nodes: untolerated taint")),
    "disk full": ("KR207", folder(free=0)),
    "no inode left": ("KR207", folder(inodes=0)),
    "disk read-only": ("KR207", folder("/run/kube-rdma", read_only=True)),
    "old Kubernetes": ("KR208", of_versions("v1.20.15-gke.1")),
    "old VKE": ("KR208", of_versions("v1.24.15-vke.11")),
    "old vpc-cni": ("KR208", of_versions("v1.30.4-vke.7", "v1.6.9")),
    "CDI off": ("KR206", replace(HEALTHY, runtime=replace(HEALTHY.runtime, version="1.6.1"))),
}


@pytest.mark.parametrize(
    ("facts", "spec"),
    [
        ({}, replace(SHARED, mode=Mode.HCA)),
        ({}, replace(SHARED, serve=Serving.CLAIMS)),
        ({"host_network": True}, SHARED),
    ],
)
def test_a_card_needs_no_network_of_the_pod_where_the_node_s_gids_are_used(facts, spec):
    """In mode hca, by claims, and on the node's own network."""
    pod = {"links": POD.links[:1], "networks": (), "attached": ()} | facts
    assert "KR414" not in codes(replace(with_pod(**pod), specs=(spec,)))


@pytest.mark.parametrize(
    ("count", "networks", "layer", "found"),
    [
        (1, (), LinkLayer.ETHERNET, True),
        (2, ("default/rdma",), LinkLayer.ETHERNET, True),
        (2, ("default/rdma", "default/rdma"), LinkLayer.ETHERNET, False),
        (1, (), LinkLayer.INFINIBAND, False),
    ],
)
def test_from_elsewhere_networks_are_counted_against_shares(count, networks, layer, found):
    container = replace(CONTAINER, asks=((RESOURCE, count), ("nvidia.com/gpu", 8)))
    pod = with_pod(containers=(container,), networks=networks, links=None, survey=None)
    node = with_device(port={"link_layer": layer}).survey
    assert ("KR414" in codes(replace(pod, survey=node, specs=(SHARED,)))) is found
    waits = replace(pod, pod=replace(pod.pod, phase="Pending"), survey=node, specs=(SHARED,))
    assert "KR414" not in codes(waits)


def test_what_containers_show_is_not_told_by_the_document_once_more():
    """KR401 has a variable of the document only where nobody saw those of the container."""
    rules = ("variables", "inert-lock", "device-volume", "preflight", "little-memory")
    said = tuple(Finding.of(rule, ("spec",), rule, "Do", Severity.ADVICE) for rule in rules)

    def documents(**facts):
        seen = with_pod(findings=said, containers=(replace(CONTAINER, **facts),))
        return [one.problem for one in diagnose(seen).findings if one.code == "KR401"]

    assert documents() == ["little-memory"]
    assert documents(variables=None) == ["variables", "little-memory"]


@pytest.mark.parametrize(
    ("kubelet", "vpc_cni", "count"),
    [
        ("v1.24.15-vke.12", "v1.7.1", 0),
        (f"v1.{'9' * 5_000}.1", f"v1.{'9' * 5_000}.1", 0),
        ("v1.24.16-vke.1", "", 0),
        ("v1.30.4-vke.7", "latest", 0),
        # Enough for VKE's own component, and too old for kube-rdma.
        ("v1.20.15-vke.18", "v1.7.1", 1),
        ("v1.20.15-vke.17", "v1.7.0", 3),
        ("v1.22.17", "v1.7.0", 1),
        ("nonsense", "", 0),
    ],
)
def test_what_vke_s_own_component_needs_is_told_as_advice(kubelet, vpc_cni, count):
    """kube-rdma goes on behind all of them; too old a Kubernetes is a warning."""
    findings = diagnose(of_versions(kubelet, vpc_cni)).findings
    assert [one.code for one in findings if one.code == "KR208"] == ["KR208"] * count
    about_vke = [one for one in findings if "VKE" in one.cause]
    assert all(one.severity is Severity.ADVICE for one in about_vke)


def test_nothing_is_found_where_all_is_well():
    diagnosis = diagnose(WITH_POD)
    assert diagnosis.findings == ()
    assert diagnosis.unseen == ()
    assert not diagnosis.ill


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_first(name):
    code, seen = FAULTS[name]
    first = diagnose(seen).findings[0]
    assert (first.code, first.follows) == (code, "")
    assert first.problem
    assert first.cause
    assert first.remedy


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "selector of no card",
            "mlx5_0: interface eth0 is not among eno9, mlx5_1: interface eth1 is not among eno9",
        ),
        ("RDMA module unloaded", f"{BARE}; module mlx5_ib is loaded, and has made none"),
        ("nobody saw which", BARE),
        ("two meta-plugins", TWO_PLUGINS.partition(".")[0]),
        ("pool exhausted", "the pool is full: 2 of 2 addresses are held"),
        (
            "device in another namespace",
            "/dev/infiniband/uverbs0 opens a device that the pod's network namespace does not show",
        ),
    ],
)
def test_a_fault_is_told_by_what_was_seen(name, problem):
    assert diagnose(FAULTS[name][1]).findings[0].problem == problem


def test_a_pool_of_a_node_without_devices_says_so():
    problems = {one.code: one.problem for one in diagnose(survey(devices=())).findings}
    assert problems["KR132"] == "no card of this node has an RDMA device"


NO_POLICY = kubelet(topology_policy="none")


@pytest.mark.parametrize(
    "seen",
    [
        routed("0.0.0.0/0", table=101),  # of an interface's own table
        routed("0.0.0.0/0", "eth0"),
        routed("::/0"),  # eth0 has no IPv6
        routed("10.64.0.0/10"),  # no address of eth0 is in it
        routed("128.0.0.0/1"),
        setting("eth1", "rp_filter", "\u00b2"),  # a digit to Python, and no number
        replace(NO_POLICY, survey=replace(SURVEY, gpus=GPUS[:1])),
        with_device(1, base=NO_POLICY, numa_node=0),
        replace(WITH_POD, uses=(*HEALTHY.uses, replace(HEALTHY.uses[1], pod="default/third"))),
    ],
)
def test_what_is_near_a_fault_is_well(seen):
    assert codes(seen) == []


def test_a_port_that_could_not_be_read_lacks_nothing_that_is_known():
    found = codes(with_device(port={"state": PortState.UNKNOWN}))
    assert not {"KR120", "KR121", "KR122"} & set(found)


def test_a_bond_that_no_pool_takes_apart_is_advice():
    seen = with_device(port={"bond": "bond0"}, netdev={"master": "bond0", "bonded": True})
    (finding,) = diagnose(seen).findings
    assert (finding.code, finding.severity) == ("KR115", Severity.ADVICE)


def test_an_unused_network_card_is_advice():
    extra = (*FUNCTIONS, replace(FUNCTIONS[0], driver=None, netdevs=()))
    (finding,) = diagnose(survey(functions=extra, devices=DEVICES)).findings
    assert (finding.code, finding.severity) == ("KR101", Severity.ADVICE)


def test_codes_are_unique_and_every_explained_code_is_there():
    codes = [check.code for check in CHECKS]
    assert len(set(codes)) == len(codes)
    assert codes == sorted(codes)
    after = [(check.code, {*check.explains, *check.spreads}) for check in CHECKS]
    assert all(codes_after <= set(codes) for _, codes_after in after)
    assert all(code < min(codes_after, default="z") for code, codes_after in after)


def test_every_check_has_a_planted_fault():
    """KR133 and KR134 stand for what other rules say."""
    without = {check.code for check in CHECKS} - {code for code, _ in FAULTS.values()}
    assert without <= {"KR133", "KR134"}


def test_a_pod_that_waits_for_a_resource_leads_to_the_card():
    """Over two steps: the card, the kubelet's count, the pod."""
    seen = with_device(port=DOWN, netdev={"up": False, "carrier": None})
    seen = with_device(1, base=seen, port=DOWN, netdev={"up": False, "carrier": None})
    why = f"0/3 nodes are available: 3 Insufficient {RESOURCE}"
    seen = replace(
        seen,
        kubelet=replace(seen.kubelet, allocatable=()),
        pod=replace(POD, phase="Pending", why=why),
    )
    follows = {one.code: one.follows for one in diagnose(seen).findings}
    assert follows["KR490"] == follows["KR204"] == "KR120"
    seen = replace(seen, pod=replace(seen.pod, why="ErrImagePull"))
    assert {one.code: one.follows for one in diagnose(seen).findings}["KR490"] == ""


def test_what_kube_rdma_refused_is_told_without_the_words_around_it():
    why = f"{ADD}there is no network default/nowhere; Define it."
    first, *_ = diagnose(with_pod(phase="Pending", why=why)).findings
    assert (first.code, first.problem) == ("KR490", "there is no network default/nowhere")
    assert first.remedy == "The Event says: Define it"


def test_why_a_pod_does_not_start_stands_before_what_its_node_has():
    seen = with_device(port=DOWN, netdev={"up": False, "carrier": None})
    why = 'FailedMount: configmap "topo" not found'
    first, *rest = diagnose(replace(seen, pod=replace(POD, phase="Pending", why=why))).findings
    assert (first.code, first.problem) == ("KR490", f"not RDMA: {why}")
    refused = with_pod(phase="Pending", why=why, findings=(MISMATCH,))
    assert [one.code for one in diagnose(refused).findings][:2] == ["KR401", "KR490"]
    assert first.remedy == "Create configmap topo in namespace default, or take it out of the pod"
    assert "KR120" in {one.code for one in rest}


def test_cards_that_the_pod_does_not_hold_take_one_line_behind_its_own():
    lost = {"port": DOWN, "netdev": {"up": False, "carrier": None}}
    seen = with_device(1, base=with_container(memlock=8 << 20), **lost)
    found = diagnose(seen)
    assert [one.code for one in found.findings if not one.follows][:2] == ["KR430", "KR120"]
    text = page_text(doctor_page(seen, found), 100)
    assert "KR120" not in text
    assert "\nAnd 1 about other cards of node-1: kube-rdma doctor node/node-1\n" in text
    assert any("raise the limit" in one.remedy for one in found.findings)
    own = with_device(0, base=seen, **lost)
    text = page_text(doctor_page(own, diagnose(own)), 100)
    assert text.index("KR120  mlx5_0") < text.index("KR430")


def test_a_full_pool_is_the_cause_of_the_wait():
    first, second = diagnose(with_pod(phase="Pending", why=FULL)).findings
    assert (first.subject, first.remedy) == ("IPPool narrow", "The Event says: Add a range")
    assert (second.code, second.follows) == ("KR490", "KR322")


def test_a_device_that_the_pod_does_not_show_is_nothing_in_mode_shared():
    seen = replace(APART, survey=SURVEY, specs=HEALTHY.specs)
    assert "KR417" in codes(APART)
    assert "KR417" not in codes(seen)


def test_the_address_that_rdma_cm_has_to_take_is_named():
    """That of the card's interface on the node; of a bond, the bond's."""
    seen = FAULTS["RDMA_CM on the overlay"][1]
    (own,) = [one for one in diagnose(seen).findings if one.code == "KR422"]
    assert own.remedy.endswith("where RDMA_CM has to take 10.0.0.1, the address of eth0")
    device = seen.pod.survey.devices[0]
    port = replace(device.ports[0], netdev="bond0")
    bonded = replace(seen.pod.survey, devices=(replace(device, ports=(port,)),))
    slave = replace(seen.links[0], addresses=())
    bond = replace(slave, name="bond0", pci="", kind="bond", addresses=("192.0.2.9/24",))
    seen = replace(seen, links=(slave, bond), pod=replace(seen.pod, survey=bonded))
    (own,) = [one for one in diagnose(seen).findings if one.code == "KR422"]
    assert own.remedy.endswith("RDMA_CM has to take 192.0.2.9, the address of bond0")
