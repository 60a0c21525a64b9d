"""Whose device is whose: by shares, by what was moved or made, and by what can be seen now."""

import pytest

from kube_base.frozen import replace
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.series import SeenDevices, away, held_devices, pod_series, with_claims
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import MakeRdma, MoveRdma
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.devices import DRIVER, ClaimedDevice, PublishedCard, SliceDevice
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.metrics import CounterReadings, DeviceCounters, PodPlaceCounters, PortCounters
from kube_rdma.model.pools import Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.claimed_cards import ClaimedCard
from tests.unit.agent.world import hard_card

RDMA = "vke.volcengine.com/rdma"
SHARED, EXCLUSIVE = NamespaceMode.SHARED, NamespaceMode.EXCLUSIVE


def pool(mode, *numbers):
    cards = tuple(Card(CardId(hard_card(n).pci), (hard_card(n),), None) for n in numbers)
    shares = tuple(Share(ShareId(f"{card.id}-0"), True, (), card.id) for card in cards)
    return {RDMA: Pool(PoolSpec(RDMA, mode, "test"), shares, cards)}


def holding(pod, number, container="main"):
    return Holding("default", pod, container, RDMA, (ShareId(f"{hard_card(number).pci}-0"),))


def attachment(pod, number, step, inode=77):
    pci = hard_card(number).pci
    plan = Plan("net1", "rdma", CardId(pci), (step,), held=(RDMA, ShareId(f"{pci}-0")))
    place = Sandbox(ContainerId(pod), PodName("default", pod), "uid", f"/run/netns/{pod}", inode)
    return Attachment(place, (plan,), complete=True)


def read(*names, pci=None):
    port = PortCounters(1, 4, 5, 100.0, {"port_rcv_data": 8})
    return CounterReadings(tuple(DeviceCounters(name, (port,), pci=pci) for name in names))


def series(holdings, pools, attachments=(), mode=SHARED, node=(), inside=()):
    held = held_devices(holdings, pools, attachments, mode)
    return list(pod_series(holdings, pools, held, SeenDevices(read(*node), inside)))


def labels(values, family):
    return [one.labels for one in values if one.family is family]


BYTES = families.OF_POD["port_rcv_data"]


def test_shares_of_one_card_say_who_holds_it_and_count_nobodys_traffic():
    """Several pods open it, so its counters are none's."""
    made = series([holding("a", 0), holding("b", 0)], pool(Mode.SHARED_MULTI, 0), node=["mlx5_0"])
    pci = hard_card(0).pci
    assert labels(made, families.POD_DEVICE) == [
        ("default", "a", "main", RDMA, pci, "mlx5_0", "shared"),
        ("default", "b", "main", RDMA, pci, "mlx5_0", "shared"),
    ]
    assert labels(made, families.POD_SHARES) == [
        ("default", "a", "main", RDMA),
        ("default", "b", "main", RDMA),
    ]
    assert not labels(made, BYTES)


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED])
def test_a_card_that_is_a_pods_alone_counts_for_it(mode):
    """In mode shared, too, a card has one share, as in the document of VKE."""
    made = series([holding("a", 0)], pool(mode, 0, 1), node=["mlx5_0", "mlx5_1"])
    assert labels(made, BYTES) == [("default", "a", "main", "mlx5_0", "1")]
    assert labels(made, families.POD_DEVICE)[0][-1] == "own"


def test_a_card_of_two_pools_may_have_a_second_holder_and_counts_for_none():
    """Whoever holds shares of the other pool opens it too."""
    one = pool(Mode.SHARED, 0)
    both = one | {"rdma/hca": replace(one[RDMA], spec=PoolSpec("rdma/hca", Mode.HCA, "test"))}
    made = series([holding("a", 0)], both, node=["mlx5_0"])
    assert labels(made, families.POD_DEVICE)[0][-1] == "shared"
    assert not labels(made, BYTES)


def test_a_share_of_the_whole_pool_names_no_device():
    made = series([holding("a", 0)], pool(Mode.HCA, 0), node=["mlx5_0"])
    assert [one.family for one in made] == [families.POD_SHARES]


def test_a_device_that_was_moved_is_read_where_it_is():
    """The node has another one of this name by now, and the pod's has a new one."""
    moved = attachment("a", 0, MoveRdma("mlx5_0", hard_card(0).pci))
    place = PodPlaceCounters(77, read("rdma0", pci=hard_card(0).pci))
    made = series(
        [holding("a", 0)],
        pool(Mode.EXCLUSIVE, 0),
        [moved],
        EXCLUSIVE,
        node=["mlx5_0"],
        inside=[place],
    )
    assert labels(made, BYTES) == [("default", "a", "main", "rdma0", "1")]
    assert labels(made, families.POD_DEVICE) == [
        ("default", "a", "main", RDMA, hard_card(0).pci, "rdma0", "own")
    ]
    assert away([moved], EXCLUSIVE) == (moved.sandbox,)


def test_a_device_that_was_made_for_the_pod():
    """Soft-RoCE on the pod's interface, which the node sees where namespaces share devices."""
    own = attachment("a", 0, MakeRdma("rxe7", "rxe", "net1"))
    assert away([own], SHARED) == ()
    made = series([holding("a", 0)], pool(Mode.SHARED, 9), [own], node=["rxe7"])
    assert labels(made, BYTES) == [("default", "a", "main", "rxe7", "1")]


@pytest.mark.parametrize("node", [(), ("mlx5_1",)])
def test_a_series_ends_with_its_device(node):
    made = series([holding("a", 0)], pool(Mode.EXCLUSIVE, 0), node=node)
    assert [one.family for one in made] == [families.POD_SHARES]


def test_a_share_that_is_the_next_pods_already_is_not_ascribed_to_it():
    """The attachment of the last pod is not taken down yet when the next one holds the share."""
    old = attachment("a", 0, MoveRdma("mlx5_0", hard_card(0).pci))
    place = PodPlaceCounters(77, read("mlx5_0"))
    made = series([holding("b", 0)], pool(Mode.EXCLUSIVE, 0), [old], EXCLUSIVE, inside=[place])
    assert labels(made, BYTES) == [("default", "a", "", "mlx5_0", "1")]


def test_shares_of_others_are_none_of_the_agents():
    other = replace(holding("a", 0), resource="nvidia.com/gpu")
    assert series([other], pool(Mode.EXCLUSIVE, 0), node=["mlx5_0"]) == []


def claimed(pod, number=0, container="main", driver="dra.net"):
    card = PublishedCard(f"nic-{number}", hard_card(number).pci, f"mlx5_{number}")
    return ClaimedCard(
        ClaimedDevice("default", pod, container, SliceDevice(driver, "node-1", card.name)), card
    )


def claiming(cards, holdings=(), pools=None, node=("mlx5_0",)):
    """The series of a node whose devices sit on the cards of their numbers."""
    port = PortCounters(1, 4, 5, 100.0, {"port_rcv_data": 8})
    numbers = [int(name.rpartition("_")[2]) for name in node]
    read_ = CounterReadings(
        tuple(
            DeviceCounters(name, (port,), pci=hard_card(number).pci)
            for name, number in zip(node, numbers, strict=True)
        )
    )
    shares = held_devices(holdings, pools or {}, (), SHARED)
    held = with_claims(shares, cards, read_.devices)
    return list(pod_series(holdings, pools or {}, held, SeenDevices(read_, ())))


def test_a_card_by_another_driver_s_claim_counts_for_its_pod():
    made = claiming([claimed("a")])
    pci = hard_card(0).pci
    assert labels(made, families.POD_DEVICE) == [
        ("default", "a", "main", "dra.net", pci, "mlx5_0", "own")
    ]
    assert labels(made, BYTES) == [("default", "a", "main", "mlx5_0", "1")]
    assert not labels(made, families.POD_SHARES)


def test_a_claim_that_several_pods_share_counts_for_none_of_them():
    made = claiming([claimed("a"), claimed("b")])
    assert [one[1::5] for one in labels(made, families.POD_DEVICE)] == [
        ("a", "shared"),
        ("b", "shared"),
    ]
    assert not labels(made, BYTES)


def test_a_claim_of_several_containers_counts_once_for_their_pod():
    made = claiming([claimed("a"), claimed("a", container="side")])
    assert labels(made, BYTES) == [("default", "a", "", "mlx5_0", "1")]
    assert len(labels(made, families.POD_DEVICE)) == 1


def test_a_card_by_share_and_claim_is_counted_once():
    """Of one pod the share says it; of two pods it is nobody's own."""
    pools = pool(Mode.EXCLUSIVE, 0)
    made = claiming([claimed("a")], [holding("a", 0)], pools)
    assert [one[3] for one in labels(made, families.POD_DEVICE)] == [RDMA]
    assert labels(made, BYTES) == [("default", "a", "main", "mlx5_0", "1")]
    made = claiming([claimed("b")], [holding("a", 0)], pools)
    assert {one[1::5] for one in labels(made, families.POD_DEVICE)} == {
        ("a", "shared"),
        ("b", "shared"),
    }
    assert not labels(made, BYTES)


def test_claims_of_kube_rdma_s_own_driver_are_holdings_already():
    assert claiming([claimed("a", driver=DRIVER)]) == []


def test_a_card_that_the_node_does_not_see_has_no_series():
    """In RDMA namespace mode exclusive its driver has moved it into the pod."""
    assert claiming([claimed("a", 1)]) == []
