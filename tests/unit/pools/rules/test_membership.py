"""A card is judged as its pool gives it: a function that a network sets up, a card not yet free."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from kube_base.frozen import replace
from kube_rdma.model.card import CardId, IommuGroup, Netdev
from kube_rdma.model.device import LinkLayer, PhysicalState, PortState
from kube_rdma.model.pools import Attach, Mode, PoolSpec, Selector, Variables
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.discovery import judge
from kube_rdma.pools.rules.node_health import as_members, not_free
from kube_rdma.pools.rules.pools import resolve
from kube_rdma.pools.rules.selection import cards
from tests.kit.nodes import device, function, node, nodes, physical_with_virtual, position, specs

VF = PoolSpec("rdma/vf", Mode.SRIOV, "c:1")
ABOVE, PART = physical_with_virtual(0x81, 1)
SHARED = NamespaceMode.SHARED
NO_UVERBS = "no uverbs device, so no program can open it: modprobe ib_uverbs"


def on(number, where, state=PortState.ACTIVE, **facts):
    """The RDMA device of a function; a port that is not ACTIVE has no GID either."""
    one = device(number, where.position, where.netdevs[0].name)
    down = PhysicalState.LINK_UP if state is PortState.ACTIVE else PhysicalState.DISABLED
    port = replace(one.ports[0], state=state, physical_state=down)
    return replace(one, ports=(replace(port, **facts.pop("port", {})),), **facts)


def survey_of(*functions, devices=()):
    return node(*functions, devices=devices).survey


def members(survey, *wishes, held=(), kept=()):
    found = as_members(wishes, cards(survey, judge(survey)), survey, dict(held))
    found = not_free(wishes, found, dict(held), kept)
    return {card.id: card.reasons for card in found}


def part(survey, *wishes, **more):
    return members(survey, *wishes, **more)[PART.position.pci]


QUIET = replace(PART, netdevs=(Netdev("ens1f0v0", "ether", False, None),))
MADE = survey_of(ABOVE, QUIET, devices=(on(0, ABOVE), on(1, QUIET, PortState.DOWN)))
# A physical function needs no GID of its own for its virtual ones to have theirs.
FABRIC = {"link_layer": LinkLayer.INFINIBAND}
WIDE = survey_of(
    ABOVE,
    PART,
    devices=(on(0, ABOVE, port=FABRIC), on(1, PART, PortState.DOWN, port=FABRIC, node_guid=None)),
)


@pytest.mark.parametrize("survey", [MADE, WIDE], ids=["RoCE", "InfiniBand"])
@pytest.mark.parametrize("attach", [None, *Attach])
def test_a_function_as_it_was_made_can_be_given_to_a_network(survey, attach):
    """By us or by another's CNI plugin: its port is DOWN until then."""
    assert part(survey, replace(VF, attach=attach)) == ()
    ((pool,), _) = resolve([VF], as_members([VF], cards(survey, judge(survey)), survey, {}), survey)
    assert [share.healthy for share in pool.shares] == [True]


@pytest.mark.parametrize("wish", [replace(VF, mode=Mode.HCA), None])
def test_where_nobody_sets_it_up_its_own_port_counts(wish):
    (reason,) = part(MADE, *([wish] if wish else []))
    assert reason.startswith("no port is ACTIVE; port 1 is DOWN")


def test_the_link_of_the_physical_function_is_that_of_its_virtual_ones():
    off = on(0, ABOVE, PortState.DOWN)
    survey = survey_of(ABOVE, QUIET, devices=(off, on(1, QUIET, PortState.DOWN)))
    (reason,) = part(survey, VF)
    assert reason == (
        "mlx5_0, which it is a part of: no port is ACTIVE; port 1 is DOWN (Disabled): "
        "check the cable and the switch port behind ens1f0"
    )


def test_without_an_rdma_device_above_the_interface_there_tells_of_the_link():
    above = replace(ABOVE, netdevs=(Netdev("ens1f0", "ether", True, False),))
    survey = survey_of(above, QUIET, devices=(on(1, QUIET, PortState.DOWN),))
    (reason,) = part(survey, VF)
    assert reason.startswith("ens1f0 has no carrier")
    soft = device(3, netdev="ens1f0", identity="rxe3@ens1f0", position=ABOVE.position)
    survey = survey_of(above, QUIET, devices=(soft, on(1, QUIET, PortState.DOWN)))
    assert part(survey, VF) == (reason,), "a soft device above says nothing of the link"


def test_what_no_network_mends_stands_against_a_function():
    shut = on(1, QUIET, PortState.DOWN, char_devices=())
    assert part(survey_of(ABOVE, QUIET, devices=(on(0, ABOVE), shut)), VF) == (NO_UVERBS,)
    bare = replace(QUIET, driver=None, netdevs=())
    (reason,) = part(survey_of(ABOVE, bare, devices=(on(0, ABOVE),)), VF)
    assert reason.startswith("no driver is bound to it")


def test_a_sub_function_is_set_up_by_its_network_too():
    wish = replace(VF, selectors=(Selector(auxiliary_types=("sf",)),))
    sub = on(1, ABOVE, PortState.DOWN, auxiliary="mlx5_core.sf.4", identity="mlx5_core.sf.4")
    for state, usable in ((PortState.ACTIVE, True), (PortState.DOWN, False)):
        survey = survey_of(ABOVE, devices=(on(0, ABOVE, state), sub))
        assert (members(survey, wish)["mlx5_core.sf.4"] == ()) is usable


def test_a_whole_card_is_judged_by_its_own_port():
    plain = function(position(0x20), "eth0")
    survey = survey_of(plain, devices=(on(0, plain, PortState.DOWN),))
    (reason,) = members(survey, VF)[plain.position.pci]
    assert reason.endswith("check the cable and the switch port behind eth0")


USER = replace(PART, driver="vfio-pci", netdevs=(), group=IommuGroup(41))
NAMED = (Selector(drivers=("vfio-pci",)),)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"attach": Attach.AUTO}, True),
        ({"attach": Attach.REQUIRED}, True),
        ({"attach": Attach.AUTO, "selectors": NAMED}, True),
        ({}, True),
        ({"selectors": NAMED}, False),
        ({"variables": Variables.PCIDEVICE}, False),
    ],
)
def test_a_driver_for_user_space_leaves_nothing_to_attach(changes, refused):
    """Unless such functions are what the document means, as with the SR-IOV device plugin."""
    reasons = part(survey_of(ABOVE, USER, devices=(on(0, ABOVE),)), replace(VF, **changes))
    sentence = (
        "its driver is vfio-pci, which leaves no interface to attach: bind it to the driver of a "
        "network card, or take it out of this pool"
    )
    assert reasons == ((sentence,) if refused else ())


OLD = PoolSpec("rdma/old", Mode.SRIOV, "c:9")
HELD = {"rdma/old": {CardId(PART.position.pci): ("default/a",)}}


@pytest.mark.parametrize("mode", [Mode.SRIOV, Mode.HCA])
def test_a_card_of_a_resource_that_went_is_free_when_its_pod_has_ended(mode):
    survey = survey_of(ABOVE, PART, devices=(on(0, ABOVE), on(1, PART)))
    wish = replace(VF, mode=mode)
    before = part(survey, wish)
    assert part(survey, wish, held=HELD, kept=[OLD]) == (
        *before,
        "default/a still has it, of rdma/old, which is no longer advertised",
    )
    assert part(survey, wish, kept=[OLD]) == before


def test_cards_that_both_modes_share_wait_for_nobody():
    plain = function(position(0x20), "eth0")
    survey = survey_of(plain, devices=(on(0, plain),))
    wish, before = (replace(one, mode=Mode.SHARED) for one in (VF, OLD))
    held = {"rdma/old": {CardId(plain.position.pci): ("default/a",)}}
    assert members(survey, wish, held=held, kept=[before]) == members(survey, wish)


@given(nodes(), specs(2))
@settings(deadline=None)
def test_only_parts_in_mode_sriov_are_judged_otherwise(found, wishes):
    survey = found.survey
    plain = cards(survey, judge(survey))
    members_of = as_members(wishes, plain, survey, {})
    pools, _ = resolve(wishes, members_of, survey)
    taken = {card.id for pool in pools if pool.spec.mode is Mode.SRIOV for card in pool.cards}
    for before, after in zip(plain, members_of, strict=True):
        assert before.id == after.id
        assert before.reasons == after.reasons or before.id in taken


HIDDEN = replace(survey_of(ABOVE, devices=(on(0, ABOVE),)), namespace_mode=NamespaceMode.EXCLUSIVE)


@pytest.mark.parametrize(
    ("mode", "host_network", "healthy"),
    [
        (Mode.HCA, False, False),
        (Mode.HCA, True, True),
        (Mode.SHARED, False, False),
        (Mode.SHARED_MULTI, False, False),
        (Mode.SRIOV, False, True),
        (Mode.EXCLUSIVE, False, True),
    ],
)
def test_in_rdma_namespace_mode_exclusive_only_what_moves_or_stays_with_the_node_is_good(
    mode, host_network, healthy
):
    """A pod on its own network would get device nodes that open nothing, and fall back to TCP."""
    wish = PoolSpec("rdma/a", mode, "c:1", host_network=host_network)
    for survey, good in ((HIDDEN, healthy), (replace(HIDDEN, namespace_mode=SHARED), True)):
        reasons = members(survey, wish)[ABOVE.position.pci]
        assert ("ib_core.netns_mode=1" in " ".join(reasons)) is not good
