"""Variables against what a container has: values of NCCL's and UCX's lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.admission.rules.findings import findings
from kube_rdma.admission.rules.variables import off_devices, off_interfaces, switches
from kube_rdma.model.admission import AdmissionFacts, OfferedPool
from kube_rdma.model.attach import kinds
from kube_rdma.model.finding import Severity
from kube_rdma.model.pools import Mode, PoolSpec
from tests.kit.admission import asking, networks, template
from tests.kit.nodes import hard_card

NIC = "rdma/nic"
HARD = (hard_card(0x81, 0), hard_card(0x82, 1))
SECOND = HARD[1].devices[0].ports[0]
TWO = (HARD[0].devices[0], replace(HARD[1].devices[0], ports=(SECOND, replace(SECOND, number=2))))


@pytest.mark.parametrize(
    ("name", "text", "leaves"),
    [
        ("NCCL_IB_HCA", "mlx5", True),
        ("NCCL_IB_HCA", "=mlx5", False),
        ("NCCL_IB_HCA", "=mlx5_6,mlx5_7", False),
        ("NCCL_IB_HCA", "mlx5_7,mlx5_1", True),
        ("NCCL_IB_HCA", "=mlx5_0:2", False),
        ("NCCL_IB_HCA", "=mlx5_1:2", True),
        ("NCCL_IB_HCA", "^mlx5_0", True),
        ("NCCL_IB_HCA", "^mlx5_0,mlx5_1", False),
        ("NCCL_IB_HCA", "^mlx5", False),
        ("NCCL_IB_HCA", "^=mlx5", True),
        ("NCCL_IB_HCA", "^mlx5_0,mlx5_1:1", True),  # its other port
        ("NCCL_IB_HCA", "", True),
        ("NCCL_IB_HCA", "=", True),
        ("NCCL_IB_HCA", "^", False),  # all but all
        ("NCCL_IB_HCA", "^mlx5_0:1,mlx5_1:1,mlx5_1:2", False),
        ("NCCL_IB_HCA", "=^mlx5_0", False),  # a device of this name
        ("NCCL_IB_HCA", "mlx5_7, mlx5_1", False),  # one that begins with a space
        ("NCCL_IB_HCA", "=mlx5_*", False),
        ("NCCL_IB_HCA", "all", False),
        ("NCCL_IB_HCA", "=mlx5_1:2:0:1", True),  # port, rail, plane
        ("NCCL_IB_HCA", "=mlx5_1:3:0:1", False),
        ("UCX_NET_DEVICES", "^mlx5_0:1", True),
        ("UCX_NET_DEVICES", "^mlx5_0:1,mlx5_1:*", False),
        ("UCX_NET_DEVICES", "mlx5_1:*", True),
        ("UCX_NET_DEVICES", "all", True),
        ("UCX_NET_DEVICES", "mlx5_0:1", True),
        ("UCX_NET_DEVICES", "mlx5:1", False),
        ("UCX_NET_DEVICES", "mlx5_*:1", True),
        ("UCX_NET_DEVICES", "eth0", False),
    ],
)
def test_a_list_leaves_a_device_of_the_container_or_is_told(name, text, leaves):
    found = list(off_devices({name: text}, TWO))
    assert [one.code for one in found] == ([] if leaves else [name])
    assert all("mlx5_0, mlx5_1" in one.problem for one in found)
    assert not list(off_devices({name: text}, ()))  # nobody knows them


@pytest.mark.parametrize(("text", "leaves"), [("^", True), ("^=", False), ("eth9, eth0", False)])
def test_a_list_of_interfaces_is_read_as_nccl_reads_it(text, leaves):
    found = list(off_interfaces({"NCCL_SOCKET_IFNAME": text}, ("lo", "eth0")))
    assert bool(found) is not leaves


@given(st.sets(st.sampled_from(["eth0", "net1", "ens3"]), min_size=1), st.booleans())
def test_a_list_of_whole_names_leaves_interfaces_as_sets_do(names, without):
    """`lo` is no way to a peer, so what all others are kept from leaves nothing."""
    text = f"{'^' * without}={','.join(names)}"
    left = {"eth0", "net1"} - names if without else {"eth0", "net1"} & names
    found = list(off_interfaces({"NCCL_SOCKET_IFNAME": text}, ("lo", "eth0", "net1")))
    assert bool(found) is not bool(left)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("mlx5_0,mlx5_1", "mlx5_0:1,mlx5_1:1"),
        ("mlx5_0:1,bnxt_re0", "mlx5_0:1,bnxt_re0:1"),
        ("mlx5_0:1", None),
        ("eth0,mlx5_0:1", None),
        ("all", None),
    ],
)
def test_ucx_names_devices_with_their_port(text, right):
    """openucx/ucx pull request 11142 is in 1.21, as ai-dynamo/nixl 1528 says."""
    found = [one for one in switches({"UCX_NET_DEVICES": text}) if one.code == "UCX_NET_DEVICES"]
    assert bool(found) is (right is not None)
    assert all(f"UCX_NET_DEVICES={right}" in one.remedy for one in found)


def told(facts=None, pod=None, **env):
    """The codes and fields of what is said of a template with these variables."""
    asks = asking(NIC, 1) | {"env": [{"name": name, "value": text} for name, text in env.items()]}
    pod = {"annotations": networks("fabric")} | (pod or {})
    found = findings(template(asks, **pod), facts or AdmissionFacts())
    return [(one.path[-1], one.severity) for one in found if one.code == "variables"]


def test_a_socket_interface_that_the_pod_lacks_is_told_of_its_template():
    """Unless something else may give it the interface, or the value is filled in later."""
    wrong = {"NCCL_SOCKET_IFNAME": "ens3"}
    assert told(NCCL_DEBUG="INFO", **wrong) == [(1, Severity.WARNING)]
    for text in ("eth", "=net1", "net1-0,net1-1", "^lo,docker", "$(IFACE)", "{{ iface }}"):
        assert not told(NCCL_SOCKET_IFNAME=text)
    for pod in (
        {"hostNetwork": True, "annotations": {}},
        {"annotations": {"networking.gke.io/interfaces": "[]"}},
        {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}]},
        {"annotations": {"k8s.v1.cni.cncf.io/networks": "["}},
    ):
        assert not told(pod=pod, **wrong)
    part = asking(NIC, 1) | {"env": [{"name": "NCCL_SOCKET_IFNAME", "value": "ens3"}]}
    assert not findings(replace(template(part), whole=False))
    assert told(NCCL_IB_DISABLE="1") == [(0, Severity.ADVICE)]  # UCX may have RDMA


def test_a_list_of_devices_is_held_against_the_pools_of_a_node():
    """Forty mistakes 13; where a card of the pool is inside a pod, its devices are not known."""
    pool = OfferedPool(PoolSpec(NIC, Mode.SHARED, "policy"), cards=HARD)
    wrong, away = {"NCCL_IB_HCA": "=mlx5_6,mlx5_7"}, replace(HARD[0], devices=())
    assert told(AdmissionFacts((pool,)), **wrong) == [(0, Severity.WARNING)]
    assert not told(AdmissionFacts((pool,)), NCCL_IB_HCA="=mlx5_1")
    assert not told(AdmissionFacts((replace(pool, cards=(away, HARD[1])),)), **wrong)
    assert not told(AdmissionFacts((OfferedPool(pool.spec),)), **wrong)


@pytest.mark.parametrize(
    ("network", "mode", "fixed"),
    [
        (kinds.MacvlanNetwork, None, True),
        (kinds.MacvlanNetwork, Mode.HCA, False),  # the node's own GIDs may be meant
        (kinds.CardNetwork, Mode.SHARED, True),
        (kinds.CardNetwork, None, False),
        (kinds.CardNetwork, Mode.EXCLUSIVE, False),
        (kinds.DeviceNetwork, None, False),  # its own GIDs, in a table of its own
        (None, None, False),
    ],
)
def test_a_fixed_gid_index_is_told_where_pods_share_the_card(network, mode, fixed):
    made = (network("team/fabric", "here", resource=NIC),) if network else ()
    pools = (OfferedPool(PoolSpec(NIC, mode, "policy"), cards=HARD),) if mode else ()
    found = told(AdmissionFacts(pools, made), NCCL_IB_GID_INDEX="3")
    assert found == ([(0, Severity.WARNING)] if fixed else [])
    assert not told(AdmissionFacts(pools, made), NCCL_IB_GID_INDEX="-1")
