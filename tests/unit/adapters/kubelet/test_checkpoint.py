"""The kubelet's own record of the shares that it gave away."""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.kubelet.folders import NAME, DeviceCheckpoint
from kube_rdma.model.holdings import RecordedGrant
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.adapters.kubelet.conftest import make_offer, running

# In the form of kubernetes@v1.36.3 (devicemanager/checkpoint), with a share near to two NUMA nodes.
WRITTEN = """\
{"Data":{"PodDeviceEntries":[{"PodUID":"5b0e","ContainerName":"main","ResourceName":"rdma/hca",\
"DeviceIDs":{"0":["hca-2","hca-1"],"1":["hca-2"]},"AllocResp":"Eh4KCQ=="}],\
"RegisteredDevices":{"rdma/hca":["hca-1","hca-2"]}},"Checksum":2154398176}"""


def test_what_the_kubelet_wrote(tmp_path):
    (tmp_path / NAME).write_text(WRITTEN)
    grant = RecordedGrant("5b0e", "main", "rdma/hca", ("hca-1", "hca-2"))
    assert DeviceCheckpoint(tmp_path).read() == (grant,)


@pytest.mark.parametrize("entries", [None, []])
def test_nothing_was_given(tmp_path, entries):
    assert DeviceCheckpoint(tmp_path).read() == (), "no kubelet has written yet"
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {}}
    (tmp_path / NAME).write_text(json.dumps({"Data": data, "Checksum": 1}))
    assert DeviceCheckpoint(tmp_path).read() == ()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"Data": 3}', "\udc80"])
def test_a_record_of_another_form_is_one_sentence(tmp_path, text):
    (tmp_path / NAME).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(Unavailable, match=f"{NAME} of the shares that pods hold cannot be read"):
        DeviceCheckpoint(tmp_path).read()


async def test_a_grant_is_recorded_before_the_container_starts_and_after_its_end(directory):
    """The end is recorded when the kubelet writes again, for whatever reason."""
    record = DeviceCheckpoint(directory)
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer(2)) as plugin:
        await kubelet.until(lambda: kubelet.healthy("rdma/hca"))
        await kubelet.allocate("rdma/hca", 1, place=ContainerPlace("old", uid="uid-old"))
        assert [grant.uid for grant in record.read()] == ["uid-old"]
        kubelet.remove_pod("old")
        assert [grant.uid for grant in record.read()] == ["uid-old"]
        lists = kubelet.states["rdma/hca"]
        plugin.publish(make_offer(3))
        await kubelet.until(lambda: kubelet.states["rdma/hca"] > lists)
        assert record.read() == ()
