"""Cards that a pod has by claims of any driver are listed, and judged as those of shares are."""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.doctor.views import doctor_document, doctor_page
from kube_rdma.lib.page import page_text
from kube_rdma.model.claims.devices import DRIVER, ClaimedDevice, SliceDevice
from kube_rdma.model.doctor import CardByClaim
from kube_rdma.model.finding import Severity
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import ShareId
from tests.unit.doctor.rules.healthy import BY_CLAIM, CLAIMING, DEVICES, LINKS, NIC, SURVEY


def container(**facts):
    return replace(CLAIMING, pod=replace(CLAIMING.pod, containers=(replace(BY_CLAIM, **facts),)))


def codes(seen):
    return [one.code for one in diagnose(seen).findings]


def by(driver, seen=CLAIMING):
    """The same with the card of another driver."""
    held = (ClaimedDevice("team", "job", "main", SliceDevice(driver, "node-1", "nic")),)
    part = replace(seen.slices[0], driver=driver)
    return replace(seen, kubelet=replace(seen.kubelet, devices=held), slices=(part,))


def test_a_card_of_another_driver_is_listed_and_nothing_is_wrong_with_it():
    diagnosis = diagnose(CLAIMING)
    assert diagnosis.findings == ()
    assert diagnosis.unseen == ()
    assert diagnosis.claimed == (
        CardByClaim("main", "dra.net", "node-1", "nic", NIC.pci, "mlx5_1"),
    )
    text = " ".join(page_text(doctor_page(CLAIMING, diagnosis), 100).split())
    assert f"Cards by claims of driver dra.net: mlx5_1 ({NIC.pci}) in main. Not checked:" in text
    (card,) = doctor_document(CLAIMING, diagnosis)["claimed"]
    assert (card["driver"], card["rdmaDevice"], card["container"]) == ("dra.net", "mlx5_1", "main")


def test_of_kube_rdma_s_own_driver_all_is_checked():
    seen = by(DRIVER)
    text = page_text(doctor_page(seen, diagnose(seen)), 100)
    assert f"Cards by claims of driver {DRIVER}" in text
    assert "only the driver knows" not in text


def test_other_pods_and_devices_that_are_no_cards_are_not_listed():
    gpu = ClaimedDevice("team", "job", "main", SliceDevice("gpu.nvidia.com", "node-1", "gpu-0"))
    other = replace(CLAIMING.kubelet.devices[0], pod="other")
    seen = replace(CLAIMING, kubelet=replace(CLAIMING.kubelet, devices=(gpu, other)))
    assert diagnose(seen).claimed == ()


def test_its_containers_are_judged_as_those_with_shares():
    assert codes(container(nodes=())) == ["KR415"]
    assert "KR430" in codes(container(memlock=65536))
    assert codes(container(variables=(("NCCL_IB_HCA", "mlx5_7"),))) == ["KR421"]
    assert codes(container(variables=(("NCCL_IB_GID_INDEX", "3"),))) == ["KR420"]
    seen = replace(CLAIMING, pod=replace(CLAIMING.pod, survey=SURVEY))
    assert "KR418" in codes(seen)  # its table has the addresses of the node alone
    (finding,) = diagnose(container(nodes=())).findings
    assert "mlx5_1 of driver dra.net" in finding.problem


def test_without_a_claim_nobody_speaks_of_such_a_container():
    seen = replace(container(nodes=()), kubelet=replace(CLAIMING.kubelet, devices=()))
    assert codes(seen) == []


def test_a_card_that_neither_node_nor_pod_shows():
    gone = replace(SURVEY, devices=DEVICES[:1])
    seen = replace(CLAIMING, survey=gone, pod=replace(CLAIMING.pod, survey=gone, links=()))
    assert "KR441" in codes(seen)
    assert diagnose(seen).claimed[0].rdma == ""
    words = replace(NIC, rdma="", capable=None)  # nothing says that it was an RDMA card
    seen = replace(seen, slices=(replace(seen.slices[0], cards=(words,)),))
    assert diagnose(seen).claimed == ()


def test_a_pod_that_started_without_the_interface_of_its_card():
    """A hook of the runtime that is late lets the pod start without it."""
    late = replace(
        CLAIMING,
        links=LINKS,
        routes=(*CLAIMING.routes, replace(CLAIMING.routes[0], interface="eth1", to="10.1.0.0/16")),
        pod=replace(CLAIMING.pod, links=CLAIMING.pod.links[:1], survey=SURVEY),
    )
    (finding,) = [one for one in diagnose(late).findings if one.code == "KR443"]
    assert (finding.subject, finding.severity) == ("mlx5_1", Severity.WARNING)
    assert "eth1 is on the node" in finding.problem
    below = replace(CLAIMING.pod.links[1], name="net1", kind="ipvlan", parent="eth1", pci="")
    for seen in (
        replace(late, pod=replace(late.pod, links=(late.pod.links[0], below))),
        replace(late, pod=replace(late.pod, host_network=True)),
        by(DRIVER, late),
    ):
        assert "KR443" not in codes(seen)


def test_a_card_far_from_the_gpu():
    """The kubelet tells the NUMA node of the GPU, the survey that of the card."""
    gpu = Holding("team", "job", "main", "nvidia.com/gpu", (ShareId("g"),), (0,))
    far = replace(CLAIMING.kubelet, holdings=(gpu,))
    assert "KR440" in codes(replace(CLAIMING, kubelet=far))
    near = replace(CLAIMING.kubelet, holdings=(replace(gpu, numa_nodes=(1,)),))
    assert "KR440" not in codes(replace(CLAIMING, kubelet=near))
