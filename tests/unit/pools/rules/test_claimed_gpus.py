"""GPUs that came by claims are found by where they sit, those of device plugins by share."""

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.claims.claim import PodClaims
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice, SliceDevice
from kube_rdma.model.device import Gpu
from kube_rdma.model.holdings import Allocatable, FreeGpu, HeldGpu, Holding
from kube_rdma.pools.rules import nearness
from tests.kit.nodes import position

GPUS = tuple(
    Gpu(position(bus, numa=bus >> 7), 0x030200, 0x10DE, 0x2330, "nvidia") for bus in (3, 0x83)
)
NEAR, FAR = (gpu.position.pci for gpu in GPUS)
NVIDIA = DeviceSlice("gpu.nvidia.com", "node-1", 2, (("gpu-0", (NEAR,)), ("gpu-1", (FAR,))))
PART = DeviceSlice("mig.example", "node-1", 1, (("gpu-1-part-0", ("0000:ff:00.0", FAR)),))


def device(name, part=NVIDIA):
    return SliceDevice(part.driver, part.pool, name)


def held(name, part=NVIDIA, container="c"):
    return ClaimedDevice("team", "train", container, device(name, part))


def test_a_device_is_a_gpu_by_its_place():
    nic = DeviceSlice("dra.net", "node-1", 1, (("mlx5-0", ("0000:05:00.0",)),))
    assert nearness.claim_gpus([NVIDIA, PART, nic], GPUS) == {
        device("gpu-0"): GPUS[0],
        device("gpu-1"): GPUS[1],
        device("gpu-1-part-0", PART): GPUS[1],
    }


def test_an_outdated_slice_counts_no_more():
    old = DeviceSlice("gpu.nvidia.com", "node-1", 1, (("gone", (NEAR,)),))
    assert device("gone") not in nearness.claim_gpus([old, NVIDIA], GPUS)
    assert device("gone") in nearness.claim_gpus([old], GPUS)


def test_of_a_gpu_in_parts_one_part_takes_it():
    gpus = nearness.claim_gpus([NVIDIA, PART], GPUS)
    assert nearness.free_claim_gpus(gpus, []) == GPUS
    assert nearness.free_claim_gpus(gpus, [held("gpu-1-part-0", PART)]) == GPUS[:1]
    assert nearness.free_claim_gpus(gpus, [held("gpu-0"), held("strange")]) == GPUS[1:]


def test_what_one_container_holds():
    gpus = nearness.claim_gpus([NVIDIA], GPUS)
    devices = [held("gpu-1"), held("gpu-0", container="other"), held("strange")]
    (gpu,) = nearness.claimed_gpus(("team", "train", "c"), devices, gpus)
    assert gpu == HeldGpu(FAR, (1,), GPUS[1].position)
    assert nearness.as_free(GPUS[:1]) == (FreeGpu((0,), GPUS[0].position),)


def test_a_gpu_of_a_device_plugin_is_free_until_a_container_holds_its_share():
    gpus = [Allocatable("nvidia.com/gpu", FAR.upper(), (1,)), Allocatable("amd.com/gpu", "0", (0,))]
    listed = [*gpus, Allocatable("rdma/hca", NEAR, (0,))]
    mine = [Holding("team", "train", "c", one.resource, (one.share,)) for one in listed[1:]]
    far = FreeGpu((1,), GPUS[1].position)
    assert nearness.free_gpus(listed, [], GPUS) == (far, FreeGpu((0,)))
    assert nearness.free_gpus(listed, mine, GPUS) == (far,)
    assert nearness.held_gpus(mine, listed, GPUS) == (HeldGpu("0", (0,)),)


PODS = st.builds(
    PodClaims,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["p", "q"]),
    st.just("uid"),
    resources=st.lists(st.sampled_from(["rdma/hca", "rdma/nic"]), max_size=2).map(tuple),
)
HELD = st.builds(
    ClaimedDevice,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["p", "q"]),
    st.just("c"),
    st.just(device("gpu-0")),
)


@given(st.lists(PODS), st.lists(HELD))
def test_a_pod_that_may_ask_wants_the_resource_and_has_nothing_yet(pods, holders):
    chosen = nearness.starting_pods(pods, "rdma/hca", holders)
    past = {(one.namespace, one.pod) for one in holders}
    for pod in pods:
        may = "rdma/hca" in pod.resources and (pod.namespace, pod.name) not in past
        assert (pod in chosen) == may


@given(st.lists(st.sampled_from(["gpu-0", "gpu-1", "strange"])))
def test_each_gpu_of_claims_is_named_once(names):
    chosen = nearness.gpus_of([device(name) for name in names], nearness.claim_gpus([NVIDIA], GPUS))
    wanted = {NEAR for name in names if name == "gpu-0"} | {
        FAR for name in names if name == "gpu-1"
    }
    assert {gpu.position.pci for gpu in chosen} == wanted
    assert len(chosen) == len(wanted)
