"""Limits and fabric of a pool in a NodePolicy, and the label that says who serves pools."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.attach.rules.settings import settings_files
from kube_rdma.model.late_binding import UsedDevice
from kube_rdma.model.pools import MOST, RdmaLimits, Serving
from kube_rdma.model.settings import FabricProfile
from kube_rdma.pools.documents import node_policy
from kube_rdma.pools.documents.config import label_serving
from kube_rdma.pools.documents.node_policy import OWN, load_object
from tests.kit.refusals import refusal

USED = (UsedDevice("mlx5_0", 1, "net1", gid_index=3),)


def read(**fabric):
    pool = {"resource": "rdma/a", "mode": "shared", "fabric": fabric}
    (spec,) = load_object(json.dumps({"pools": [pool]}).encode(), "p").pools
    return spec.fabric


def test_all_that_it_can_say():
    fabric = read(
        trafficClass=106,
        serviceLevel=3,
        timeout=22,
        retryCount=7,
        qpsPerConnection=4,
        variables={"UCX_TLS": "rc,self", "NCCL_IB_AR_THRESHOLD": "0"},
    )
    variables = (("NCCL_IB_AR_THRESHOLD", "0"), ("UCX_TLS", "rc,self"))
    assert fabric == FabricProfile(106, 3, 22, 7, 4, variables)


@pytest.mark.parametrize(
    ("field", "highest"),
    [
        ("trafficClass", 255),
        ("serviceLevel", 15),
        ("timeout", 31),
        ("retryCount", 7),
        ("qpsPerConnection", 128),
    ],
)
def test_numbers_end_where_their_field_of_the_queue_pair_does(field, highest):
    assert read(**{field: highest}) != FabricProfile()
    for value in (highest + 1, -1, "1", 1.5):
        with pytest.raises(Refused, match=field):
            read(**{field: value})


@pytest.mark.parametrize("name", ["LD_PRELOAD", "NCCL_ib", "NCCL_", "", "PATH", "NCCL_A\nB", *OWN])
def test_a_variable_that_is_not_the_fabric_s_is_refused(name):
    assert "fabric.variables" in str(refusal(read, variables={name: "1"}))


@given(st.text(max_size=300))
def test_a_value_is_a_line_of_its_own_or_refused(value):
    """Never two lines: a second one would be a setting that nobody has judged."""
    try:
        fabric = read(variables={"NCCL_DEBUG": value})
    except Refused:
        return
    lines = settings_files(USED, fabric)["nccl.conf"].split("\n")
    assert lines[-2:] == [f"NCCL_DEBUG={value}", ""]
    assert len(lines) == len(settings_files(USED)["nccl.conf"].split("\n")) + 1


def test_there_is_an_end_to_variables():
    with pytest.raises(Refused, match="Keep 32 at most"):
        read(variables={f"NCCL_V{number}": "1" for number in range(33)})


@pytest.mark.parametrize("claims", [True, False])
def test_without_the_label_it_is_the_plugin(claims):
    assert label_serving(None, claims=claims) is Serving.PLUGIN
    assert label_serving("plugin", claims=claims) is Serving.PLUGIN


def test_claims_are_for_agents_that_serve_them():
    assert label_serving("claims", claims=True) is Serving.CLAIMS
    with pytest.raises(Refused, match=r"this agent does not serve claims\. Install it with"):
        label_serving("claims", claims=False)


@pytest.mark.parametrize("value", ["", "Claims", "claim", "both", "true"])
def test_anything_else_is_refused_with_what_is_allowed(value):
    with pytest.raises(Refused, match=r"kube-rdma\.io/serve=plugin or kube-rdma\.io/serve=claims"):
        label_serving(value, claims=True)


NUMBERS = st.none() | st.integers(1, MOST)


def read_limits(limits):
    pool = {"resource": "rdma/a", "mode": "shared-multi", "rdmaLimits": limits}
    (spec,) = node_policy.load_object(json.dumps({"pools": [pool]}).encode(), "p").pools
    return spec.limits


@given(NUMBERS, NUMBERS)
def test_each_number_is_the_kernel_s(handles, objects):
    written = {"hcaHandle": handles, "hcaObject": objects}
    given_numbers = {name: number for name, number in written.items() if number is not None}
    if given_numbers:
        assert read_limits(given_numbers) == RdmaLimits(handles, objects)


def test_left_out_there_is_no_limit():
    assert read_limits(None) is None


def test_limits_of_nothing_are_refused_with_place_and_remedy():
    assert str(refusal(read_limits, {})) == (
        "NodePolicy p: spec.pools[0].rdmaLimits: these limits limit nothing. "
        "Add hcaHandle or hcaObject, or remove rdmaLimits."
    )


@pytest.mark.parametrize(
    "wrong",
    [{"hcaObject": 0}, {"hcaHandle": -1}, {"hcaObject": MOST + 1}, {"hcaObject": "many"},
     {"hcaObject": True}, {"hca_object": 5}, {"queuePairs": 5}],
)  # fmt: skip
def test_what_the_kernel_cannot_hold_is_refused_where_it_stands(wrong):
    with pytest.raises(Refused, match=r"spec\.pools\[0\]\.rdmaLimits\."):
        read_limits(wrong)
