"""Which resources count as RDMA cards where no report says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.operator.rules.driver_sets import is_share

HARMLESS = [
    "cpu",
    "memory",
    "hugepages-2Mi",
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "vke.volcengine.com/mgpu-core",
    "aliyun.com/gpu-mem",
    "devices.kubevirt.io/kvm",
    "google.com/tpu",
]
CARDS = [
    "rdma/hca",
    "nvidia.com/hostdev",
    "nvidia.com/gpurdma",
    "openshift.io/mlxnics",
    "intel.com/sriov_rdma",
    "vke.volcengine.com/rdma",
    "vpc.amazonaws.com/efa",
    "devices.kubevirt.io/mlx",
    "resource.k8s.io/claim",
]


@pytest.mark.parametrize("resource", HARMLESS)
def test_what_is_known_to_be_no_card_holds_none(resource):
    assert not is_share(resource, ())
    assert is_share(resource, (resource,))  # but where an agent offers it


@pytest.mark.parametrize("resource", CARDS)
def test_cards_of_any_plugin_count(resource):
    assert is_share(resource, ())


@given(st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,9}){0,2}/[a-z]{1,9}", fullmatch=True))
def test_an_unknown_resource_counts(resource):
    assert is_share(resource, ()) or resource.startswith(
        ("nvidia", "amd", "google", "aliyun", "kub")
    )
