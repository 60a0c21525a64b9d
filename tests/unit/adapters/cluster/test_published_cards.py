"""What slices of other drivers say of network cards, in the words of each of these drivers."""

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.resource_slice import RESOURCE_SLICE
from kube_rdma.claims.cluster import node_slices
from kube_rdma.model.claims.devices import DRIVER, PublishedCard
from kube_rdma_testing.cluster.server import FakeServer

STANDARD = "resource.kubernetes.io/pciBusID"
SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"


def text(value):
    return {"string": value}


async def read(driver, attributes):
    server = FakeServer([RESOURCE_SLICE])
    spec = {
        "driver": driver,
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 1},
        "devices": [{"name": "nic", "attributes": attributes}, {"name": "bare"}],
    }
    server.put(RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": spec})
    (part,) = await node_slices(Cluster(server.line()), "node-1")
    return part.cards


@pytest.mark.parametrize(
    ("driver", "attributes", "card"),
    [
        (
            "dra.net",
            {
                "dra.net/pciAddress": text("0000:81:00.0"),
                "dra.net/ifName": text("ens1"),
                "dra.net/rdma": {"bool": True},
                "dra.net/rdmaDevice": text("mlx5_1"),
                "dra.net/numaNode": {"int": 1},
            },
            PublishedCard("nic", "0000:81:00.0", "mlx5_1", "ens1", capable=True),
        ),
        (
            SRIOV,
            {
                STANDARD: text("0000:81:00.2"),
                f"{SRIOV}/pciAddress": text("0000:81:00.2"),
                f"{SRIOV}/pfPciAddress": text("0000:81:00.0"),
                f"{SRIOV}/interfaceName": text("ens1v0"),
                f"{SRIOV}/rdmaCapable": {"bool": False},
            },
            PublishedCard("nic", "0000:81:00.2", "", "ens1v0", capable=False),
        ),
        (
            DRIVER,
            {STANDARD: text("0000:81:00.0"), "rdmaDevice": text("mlx5_1")},
            PublishedCard("nic", "0000:81:00.0", "mlx5_1"),
        ),
        (
            "efa.example",
            {STANDARD: text("0000:10:19.0"), "x/pciAddress": text("0000:99:00.0")},
            PublishedCard("nic", "0000:10:19.0"),
        ),
        (
            "soft.example",
            {"soft.example/rdmaDevice": text("rxe0")},
            PublishedCard("nic", "", "rxe0"),
        ),
        ("strange.example", {"x/pciAddress": text("slot 4")}, None),
        ("numbers.example", {"x/pciAddress": {"int": 4}, "x/rdma": {"bool": True}}, None),
    ],
)
async def test_a_card_is_read_in_the_words_of_its_driver(driver, attributes, card):
    assert await read(driver, attributes) == ((card,) if card else ())
