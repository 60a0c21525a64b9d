"""InfiniBand: the plan of a function with GUIDs and of a partition, and whose a GUID may be."""

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.infiniband import refuse_taken
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.procedure import as_named
from kube_rdma.attach.rules.requests import asked_guid
from kube_rdma.attach.rules.undo import check, undo
from kube_rdma.attach.views import describe
from kube_rdma.model.attach.attachment import Attachment, NetworkKind, PodView, SeenLink, SeenRdma
from kube_rdma.model.attach.steps import AwaitPartition, MakeLink, MoveRdma, TakeLink
from kube_rdma.model.device import NO_GUID, PlannedHostLink
from kube_rdma.model.pools import (
    FunctionSettings,
    LinkState,
    Mode,
    RebindFunction,
    ResetFunction,
    SetFunction,
)
from kube_rdma.model.survey import NamespaceMode
from tests.kit.pod_networks import SANDBOX, card, guid, network, node, place, planned, share, wish

VIRTUAL = card(1, link_type="infiniband", virtual=True)
OWN = guid(VIRTUAL.function.position)
UP = ("SetSysctl", "SetLink")
GUID = "02:00:0a:00:00:00:00:01"
ZERO = "00:00:00:00:00:00:00:00"


def plan(*, of=VIRTUAL, asked=GUID, mode=NamespaceMode.SHARED, on=None, **facts):
    """The plan of one ib-sriov network of this function."""
    facts = {"function": FunctionSettings(), "infiniband": True, **facts}
    wanted = wish(of=network(kind=NetworkKind.DEVICE, **facts), guid=asked)
    (found,) = planned([wanted], [share(of, mode=Mode.SRIOV)], on or node(of, mode=mode))
    return found


def kinds(acts):
    return [type(act).__name__ for act in acts]


def test_the_guids_come_first_then_the_driver_then_the_link():
    """Both GUIDs are the one that the pod asks for; what was is in the steps."""
    first, second, *rest = plan(function=FunctionSettings(link_state=LinkState.ENABLE)).steps
    both = {"node_guid": GUID, "port_guid": GUID}
    own = {"node_guid": OWN, "port_guid": OWN}
    assert first == SetFunction(
        place(VIRTUAL),
        FunctionSettings(link_state=LinkState.ENABLE, **both),
        FunctionSettings(link_state=LinkState.AUTO, **own),
    )
    above = VIRTUAL.function.position.physical_function
    assert second == RebindFunction(VIRTUAL.pci, above, "mlx5_core", GUID, OWN)
    assert kinds(rest) == ["TakeLink", *UP]


def made_down(of=VIRTUAL):
    """The node with the function as mlx5 makes it."""
    on = node(of)
    (link,) = on.links
    settings = replace(link.settings, link_state=LinkState.DISABLE)
    return replace(on, links=(replace(link, settings=settings),))


def test_a_function_has_the_link_of_its_card_where_nobody_asks_for_another():
    """And is down again afterwards; one that somebody set up is left alone."""
    first, *_ = plan(asked=None, on=made_down()).steps
    wanted, before = (FunctionSettings(link_state=one) for one in ("auto", "disable"))
    assert first == SetFunction(place(VIRTUAL), wanted, before)
    first, *_ = plan(asked=None, function=None, infiniband=False, on=made_down()).steps
    assert first.wanted.link_state is LinkState.AUTO
    enabled = FunctionSettings(link_state=LinkState.ENABLE)
    first, *_ = plan(asked=None, function=enabled, on=made_down()).steps
    assert first.wanted == enabled
    assert "SetFunction" not in kinds(plan(asked=None).steps)


@pytest.mark.parametrize(
    ("of", "facts", "waits"),
    [
        (VIRTUAL, {}, True),
        (VIRTUAL, {"function": FunctionSettings(link_state=LinkState.DISABLE)}, False),
        (card(1, link_type="infiniband"), {"function": None, "infiniband": False}, False),
        (card(1, virtual=True), {"infiniband": False}, False),
    ],
    ids=["a function", "its link is to be down", "a card", "Ethernet"],
)
def test_a_function_of_infiniband_is_taken_when_its_port_is_active(of, facts, waits):
    steps = plan(of=of, asked=None, **facts).steps
    (take,) = [step for step in steps if isinstance(step, TakeLink)]
    assert take.active is waits
    assert ("when its port is ACTIVE" in describe(take)) is waits


def test_the_rdma_device_goes_before_the_link():
    """In RDMA namespace mode exclusive, found by its function since it has another name."""
    found = plan(mode=NamespaceMode.EXCLUSIVE).steps
    assert kinds(found) == ["SetFunction", "RebindFunction", "MoveRdma", "TakeLink", *UP]
    assert found[2] == MoveRdma("mlx5_1", VIRTUAL.pci)


def test_binding_brings_all_of_the_function_home():
    """With its old GUID; neither link nor RDMA device has to be there for it."""
    acts = undo(plan(mode=NamespaceMode.EXCLUSIVE))
    assert kinds(acts) == ["ResetFunction", "RebindFunction", "GiveBackLink"]
    assert isinstance(acts[0], ResetFunction)
    assert acts[0].previous.port_guid == OWN
    assert (acts[1].guid, acts[1].previous) == (OWN, GUID)


def test_without_a_guid_the_driver_is_left_alone():
    assert kinds(plan(asked=None).steps) == ["TakeLink", *UP]


@pytest.mark.parametrize(
    ("told", "own", "back"),
    [(ZERO, OWN, OWN), (None, OWN, OWN), (ZERO, ZERO, NO_GUID), (GUID, OWN, GUID)],
    ids=["never set", "not told", "none at all", "set"],
)
def test_what_is_set_back_is_what_the_function_had(told, own, back):
    """A physical function tells zeros for what it has not set (mlx5_ib_get_vf_guid)."""
    digits = own.replace(":", "")
    shown = ":".join(digits[at : at + 4] for at in range(0, 16, 4))
    of = replace(VIRTUAL, devices=tuple(replace(d, node_guid=shown) for d in VIRTUAL.devices))
    on = node(of)
    (there,) = on.links
    mac = there.mac[: -len(own)] + own
    told_now = replace(there.settings, node_guid=told, port_guid=told)
    on = replace(on, links=(replace(there, mac=mac, settings=told_now),))
    first, second, *_ = plan(of=of, on=on).steps
    assert (first.previous.node_guid, first.previous.port_guid, second.previous) == (
        back,
        back,
        back,
    )


@pytest.mark.parametrize("mode", list(NamespaceMode))
def test_a_partition_is_a_child_of_the_link_that_was_taken(mode):
    """The pod's interface is the child, and the function's own link is ib<number>."""
    found = plan(asked=None, pkey=0x12, mode=mode)
    waits, *moves, take, ignores, up, child, _, _ = found.steps
    assert (ignores.path, ignores.value) == ("net/ipv6/conf/ib1/accept_ra", "0")
    assert waits == AwaitPartition(VIRTUAL.pci, 0x12)
    assert kinds(moves) == (["MoveRdma"] if mode is NamespaceMode.EXCLUSIVE else [])
    assert (take.name, up.name) == ("ib1", "ib1")
    assert isinstance(child, MakeLink)
    assert (child.name, child.parent, child.pkey) == (
        "net1",
        PlannedHostLink(take.link.index, "ib1"),
        0x12,
    )
    assert child.inside
    assert kinds(undo(found))[-2:] == ["RemoveLink", "GiveBackLink"]


def test_the_guid_of_cni_args_counts_when_the_entry_has_no_other():
    of = network(kind=NetworkKind.DEVICE, guid="02:00:00:00:00:00:00:03")
    asked = {"argued_guid": "02:00:00:00:00:00:00:02", "guid": GUID}
    assert asked_guid(wish(of=of, **asked)) == ("infiniband-guid", GUID)
    del asked["guid"]
    assert asked_guid(wish(of=of, **asked)) == ("cni-args.guid", asked["argued_guid"])
    assert asked_guid(wish(of=of)) == ("args.cni.guid", of.guid)
    assert asked_guid(wish()) is None


def test_check_names_the_guid_of_a_driver_that_has_to_be_bound_again():
    found = plan(mode=NamespaceMode.EXCLUSIVE)
    link = SeenLink("net1", 5, 2044, "", True, "ipoib", pci=VIRTUAL.pci)
    told = ((place(VIRTUAL), found.steps[0].wanted),)

    def view(has):
        device = SeenRdma("mlx5_7", None, VIRTUAL.pci, guid=has)
        return PodView(links=(link,), rdma=(device,), functions=told)

    assert check(found, view(GUID)) == ()
    assert check(found, view(OWN)) == (
        f"net1 (default/rdma-net): the RDMA device of {VIRTUAL.pci} does not have the GUID {GUID}",
    )


def test_an_ipoib_child_is_not_the_card_s_own_link():
    found = plan(asked=None)
    link = SeenLink("net1", 5, 2044, "", True, "ipoib", pci=VIRTUAL.pci)
    assert check(found, PodView(links=(link,))) == ()
    (wrong,) = check(found, PodView(links=(replace(link, parent=3),)))
    assert "the card's link" in wrong


def placed(asked=GUID):
    wanted = wish(of=network(kind=NetworkKind.DEVICE), guid=asked)
    return pod_nics([wanted], [share(VIRTUAL, mode=Mode.SRIOV)], node(VIRTUAL))


def test_a_guid_that_a_living_pod_has_is_taken():
    """Its pod and interface are named, upper case or lower."""
    other = Attachment(SANDBOX, (plan(),))
    with pytest.raises(Refused) as caught:
        refuse_taken(placed(GUID.upper()), [other], node(VIRTUAL))
    assert str(caught.value) == (
        f"networks[0] (default/rdma-net): infiniband-guid: the GUID {GUID} is taken, "
        "default/train-0 has it, on net1. Write another one: no two ports of a fabric may have "
        "the same."
    )
    refuse_taken(placed("02:00:0a:00:00:00:00:02"), [other], node(VIRTUAL))


def test_a_guid_that_another_device_of_the_node_has_is_taken():
    on = replace(node(VIRTUAL), guids=(("mlx5_9", "0000:99:00.0", GUID),))
    with pytest.raises(Refused, match="is taken, mlx5_9 of this node has it"):
        refuse_taken(placed(), [], on)
    refuse_taken(placed(), [], replace(on, guids=(("mlx5_1", VIRTUAL.pci, GUID),)))


def test_two_entries_of_a_pod_cannot_have_one_guid():
    with pytest.raises(Refused, match=r"is taken, networks\[0\] has it"):
        refuse_taken((*placed(), *placed()), [], node(VIRTUAL))


def test_a_device_is_called_as_it_is_called_now():
    """Its old name may be another function's; what nobody sees keeps its name."""
    view = PodView(rdma=(SeenRdma("mlx5_1"), SeenRdma("mlx5_7", pci=VIRTUAL.pci)))
    assert [nic.devices for nic in as_named(placed(), view)] == [("mlx5_7",)]
    assert [nic.devices for nic in as_named(placed(), PodView())] == [("mlx5_1",)]


def test_what_is_done_can_be_read():
    first, second, third, *_ = map(describe, plan(pkey=0x12).steps)
    assert first.endswith(f"node GUID {GUID}, port GUID {GUID}")
    assert second == f"bind mlx5_core to {VIRTUAL.pci} again, which then has the GUID {GUID}"
    assert third == f"wait until {VIRTUAL.pci} is in the partition 0x0012"
