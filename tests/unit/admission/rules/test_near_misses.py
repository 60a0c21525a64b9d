"""Names that nobody has, near to one that somebody has: a typing error, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.admission.rules.findings import findings
from kube_rdma.admission.rules.near_misses import misspelt, near
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.model.admission import AdmissionFacts, AdmissionSettings
from kube_rdma.model.attach import kinds
from kube_rdma.model.finding import Severity
from tests.kit.admission import asking, blocks, container, networks, template

OTHERS = AdmissionSettings(shares=("none/*",), completes=())
WORDS = st.text("abcdefghij", min_size=6, max_size=12)


def named(*resources, networks=()):
    listed = (kinds.ForeignNetwork(name=f"team/{name}", source=name) for name in networks)
    return AdmissionFacts(resources=resources, networks=tuple(listed))


def codes(pod, facts):
    return [(one.code, one.remedy) for one in findings(pod, facts, OTHERS)]


@pytest.mark.parametrize(
    ("asked", "offered", "meant"),
    [
        ("rdma/hca_shared_device_a", "rdma/hca_shared_devices_a", "rdma/hca_shared_devices_a"),
        ("nvidia.com/mlnxics", "nvidia.com/mlnxnics", "nvidia.com/mlnxnics"),
        ("openshift.io/sriov_rdma", "openshift.io/sriov_rdm", "openshift.io/sriov_rdm"),
        ("rdma/rail0", "rdma/rail-0", "rdma/rail-0"),
        ("rdma/rail-1", "rdma/rail-0", None),
        ("rdma/hca_shared_devices_b", "rdma/hca_shared_devices_a", None),
        ("intel.con/a", "intel.com/a", "intel.com/a"),
        ("rdma/hca2", "rdma/hca", None),
        ("nvidia.com/gpu", "nvidia.com/gpus", None),
        ("vpc.amazonaws.com/eni", "vpc.amazonaws.com/efa", None),
        ("rdma/fast", "example.com/storage", None),
    ],
)
def test_a_resource_near_to_one_that_is_offered_is_told(asked, offered, meant):
    wanted = [("unknown-resource", f"Did you mean {meant}?")] if meant else []
    assert codes(template(asking(asked, 1)), named(offered)) == wanted
    assert codes(template(asking(asked, 1)), named(offered, asked)) == []
    assert codes(template(asking(asked, 1)), named()) == []


ROW = tuple(f"rdma/rail-{number}" for number in range(8))


@pytest.mark.parametrize(
    ("asked", "row", "told"),
    [
        ("rdma/rail-9", ROW, "Write one of rdma/rail-0 to rdma/rail-7"),
        ("rdma/rail-11", (*ROW, "rdma/rail-10"), "Write one of rdma/rail-0 to rdma/rail-10"),
        ("rdma/rail-2", ROW[:2], None),  # two are no row
        ("rdma/rail-7", ROW, None),
        ("rdma/rail", ROW, None),
    ],
)
def test_one_beyond_a_whole_row_is_told(asked, row, told):
    assert [remedy for _, remedy in codes(template(asking(asked, 1)), named(*row))] == (
        [told] if told else []
    )
    pod = template(container(), annotations=networks(asked.replace("/", "-")))
    facts = named(networks=[one.replace("/", "-") for one in row])
    wanted = [told.replace("rdma/", "rdma-")] if told else []
    assert [remedy for _, remedy in codes(pod, facts)] == wanted


@pytest.mark.parametrize(
    ("network", "placeless", "told"),
    [
        ("fabric", (), True),
        ("other/fabric", (), True),
        ("fabric", ("shared/fabric",), False),  # its file may be applied to any namespace
        ("shared/fabric", (), False),
        ("loose", (), False),
    ],
)
def test_a_network_of_another_namespace_is_told(network, placeless, told):
    there = kinds.ForeignNetwork(name="shared/fabric", source="fabric")
    facts = AdmissionFacts(networks=(there,), placeless=placeless)
    pod = template(container(), annotations=networks(network))
    remedies = [remedy for _, remedy in codes(pod, facts)]
    assert [remedy.startswith("Write shared/fabric, or create") for remedy in remedies] == (
        [True] if told else []
    )


@given(WORDS, st.integers(0, 40), st.integers(0, 40), st.sampled_from(["-", "_", "."]))
def test_siblings_are_no_typing_errors(stem, first, second, sign):
    """Whatever their numbers are; a letter too few is one."""
    assert near(f"rdma/{stem}{sign}{first}", [f"rdma/{stem}{sign}{second}"]) is None or (
        first == second
    )
    assert near(f"rdma/{stem[:-1]}{sign}{first}", [f"rdma/{stem}{sign}{first}"])


def test_a_network_near_to_one_of_its_namespace_is_told():
    facts = named(networks=("rdma-net", "rail-0"))
    pod = template(container(), annotations=networks("rdma-nett", "rail-1", "other/rdma-ne"))
    assert codes(pod, facts) == [("unknown-network", "Did you mean rdma-net?")]
    assert codes(template(container(), annotations=networks("rdma-net")), facts) == []
    facts = named(networks=("rdma1",))
    assert "unknown-network" not in [
        one for one, _ in codes(template(container(), annotations=blocks("rdma")), facts)
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("k8s.v1.cni.cncf.io/network", ANNOTATION),
        ("k8s.v1.cncf.io/networks", ANNOTATION),
        ("k8s.volcengine.com/pod-network", POD_NETWORKS),
        ("k8s.v1.cni.cncf.io/network-status", None),
        ("k8s.v1.cni.cncf.io/networks-status", None),
        ("k8s.v1.cni.cncf.io/resourceName", None),
        ("k8s.ovn.org/pod-networks", None),
        ("example.com/networks", None),
        (ANNOTATION, None),
        (POD_NETWORKS, None),
    ],
)
def test_an_annotation_that_nobody_reads_is_told_where_one_is_near(key, meant):
    assert dict(misspelt([key])) == ({key: meant} if meant else {})
    told = [
        one
        for one in findings(template(container(), annotations={key: "a"}))
        if one.code == "annotation-name"
    ]
    assert [(one.severity, one.path[-1], one.remedy) for one in told] == (
        [(Severity.WARNING, key, f"Did you mean {meant}?")] if meant else []
    )
