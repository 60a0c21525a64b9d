"""What a container gets for its shares, and when it gets nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.model import pools
from kube_rdma.model.device import CharKind
from kube_rdma.pools.documents.config import label_pools, parse
from kube_rdma.pools.rules.allocation import (
    allocate,
    card_facts,
    device_infos,
    grant,
    granted_cards,
)
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.pools import resolve
from tests.kit.nodes import (
    CHAR_KINDS,
    DOWN,
    RDMA_CM,
    device,
    hard_card,
    node,
    nodes,
    physical_with_virtual,
    specs,
)
from tests.kit.refusals import refusal

SURVEY = node().survey
HCA = pools.PoolSpec("rdma/hca", pools.Mode.HCA, "config.json:1")
MULTI = pools.PoolSpec("rdma/multi", pools.Mode.SHARED_MULTI, "config.json:1", shares=2)
FIRST, SECOND = hard_card(0x81, 0, kinds=CHAR_KINDS), hard_card(0xA1, 1, kinds=CHAR_KINDS)


def pool_of(spec, *cards):
    ((pool,), _) = resolve([spec], cards, SURVEY)
    return pool


@st.composite
def questions(draw):
    """A pool of any mode, and ids most of which it has."""
    found = draw(nodes())
    pool = draw(st.sampled_from(resolve(draw(specs()), found.cards, found.survey)[0]))
    ids = [share.id for share in pool.shares]
    known = st.sampled_from(ids) if ids else st.nothing()
    return pool, tuple(draw(st.lists(st.one_of(known, known, st.text(max_size=4)), max_size=5)))


@given(questions())
def test_a_grant_is_exactly_what_was_asked_for(question):
    """Every share that the pool has and that is healthy, or a refusal and no other error."""
    pool, wanted = question
    healthy = {share.id for share in pool.shares if share.healthy}
    if not wanted or not healthy.issuperset(wanted):
        caught = refusal(allocate, pool, wanted)
        assert caught.remedy
        assert str(caught).startswith(f"{pool.spec.resource}: ")
        return
    given_ = allocate(pool, wanted)
    assert given_.shares == tuple(dict.fromkeys(wanted))
    assert given_.resource == pool.spec.resource
    assert allocate(pool, wanted) == given_, "asking again is legal and gives the same"
    assert grant(pool, [s for w in given_.shares for s in pool.shares if s.id == w]) == given_


@given(questions())
def test_a_grant_opens_the_device_nodes_of_its_cards_and_no_other(question):
    pool, wanted = question
    shares = [share for share in pool.shares if share.id in wanted]
    held = grant(pool, shares)
    row = terms(pool.spec)
    cards = pool.cards
    if row.bind is pools.Bind.PER_CARD:
        cards = [c for c in pool.cards if c.id in {share.card for share in shares}]
    assert {card.id for card in granted_cards(pool, shares)} == {card.id for card in cards}
    assert set(held.cards) == {card.id for card in cards}
    devices = [d for card in cards for d in card.devices]
    nodes = {c.path for d in devices for c in d.char_devices if c.kind in pool.spec.device_files}
    if devices and pool.rdma_cm:
        nodes.add(pool.rdma_cm)
    assert set(held.char_paths) == nodes
    assert list(held.char_paths) == sorted(held.char_paths)


def test_two_cards_with_all_device_nodes():
    """The example of the SCC document: one share opens both cards."""
    spec = replace(HCA, device_files=tuple(CharKind))
    assert allocate(pool_of(spec, FIRST, SECOND), ["hca-7"]).char_paths == (
        "/dev/infiniband/issm0",
        "/dev/infiniband/issm1",
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/umad0",
        "/dev/infiniband/umad1",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs1",
    )


POLICY = """
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec: {pools: [{resource: r/r, mode: %s}]}
"""
OTHER_PLUGINS = {
    "mode": '{"mode": "hca"}',
    "configList": '{"configList": [{"resourceName": "a", "rdmaHcaMax": 2,'
    ' "selectors": {"vendors": ["15b3"]}}]}',
    "resourceList": '{"resourceList": [{"resourceName": "a",'
    ' "selectors": {"vendors": ["15b3"], "isRdma": true}}]}',
}


def opened(spec):
    """The kinds of device files that a share of the pool opens."""
    card = hard_card(0x81, 0, kinds=CHAR_KINDS)
    share = pools.Share(pools.ShareId("a"), healthy=True, card=card.id)
    paths = grant(pools.Pool(spec, (share,), (card,), RDMA_CM.path), [share]).char_paths
    return {path.rpartition("/")[2].rstrip("0") for path in paths}


@pytest.mark.parametrize("mode", pools.Mode)
def test_a_share_sends_no_management_packets_unless_its_pool_asks(mode):
    """On InfiniBand umad reaches the fabric's management, and issm announces a subnet manager."""
    (usual,) = parse((POLICY % mode).encode(), "a").pools
    assert opened(usual) == {"uverbs", "rdma_cm"}
    asked = (POLICY % f"{mode}, deviceFiles: [uverbs, umad]").encode()
    assert opened(parse(asked, "a").pools[0]) == {"uverbs", "umad"}


@pytest.mark.parametrize("mode", ["exclusive", "shared", "shared-multi"])
def test_shares_of_the_node_s_label_send_none_either(mode):
    assert opened(label_pools(mode)[0]) == {"uverbs", "rdma_cm"}


@pytest.mark.parametrize("text", OTHER_PLUGINS.values(), ids=OTHER_PLUGINS)
def test_a_configuration_of_another_plugin_opens_what_that_plugin_does(text):
    """Its pods must find what they found before."""
    assert opened(parse(text.encode(), "a").pools[0]) == {"uverbs", "umad", "issm", "rdma_cm"}


def test_a_card_that_cannot_be_used_stays_in_a_shared_pool():
    """Its port may come back while the container runs."""
    ill = replace(FIRST, reasons=(DOWN,))
    assert "/dev/infiniband/uverbs0" in allocate(pool_of(HCA, ill, SECOND), ["hca-0"]).char_paths


def test_further_device_nodes_of_the_document_come_along():
    spec = replace(MULTI, extra_paths=("/dev/knem",))
    assert "/dev/knem" in allocate(pool_of(spec, FIRST), ["0000:81:00.0-0"]).char_paths


def test_unknown_shares_are_named():
    with pytest.raises(Refused) as caught:
        allocate(
            pool_of(replace(HCA, shares=3), FIRST), ["hca-1", *(f"x-{n}" for n in range(7, 12))]
        )
    assert str(caught.value) == (
        "rdma/hca: none of its 3 shares is named x-7, x-8, x-9 and 2 more. "
        "Create the pod again, the kubelet then picks present shares."
    )


def test_an_unhealthy_pool_says_why():
    """The reasons of the cards reach the pod's event."""
    caught = refusal(allocate, pool_of(HCA, replace(FIRST, reasons=("cable", "fan"))), ["hca-0"])
    assert str(caught) == (
        "rdma/hca: none of its cards can be used: mlx5_0 (cable, fan). "
        "Repair a card, then create the pod again."
    )


def test_an_unhealthy_share_names_its_own_card_alone():
    ill = [replace(card, reasons=("cable",)) for card in (FIRST, SECOND)]
    well = hard_card(0xC1, 2)
    caught = refusal(allocate, pool_of(MULTI, *ill, well), ["0000:c1:00.0-0", "0000:81:00.0-0"])
    assert str(caught).startswith(
        "rdma/multi: cards of these shares cannot be used: mlx5_0 (cable). "
    )


VF = pools.PoolSpec(
    "nvidia.com/vf-a",
    pools.Mode.SRIOV,
    "config.json:1",
    variables=pools.Variables.PCIDEVICE,
    extra_info=(
        pools.ExtraInfo("0000:81:00.2", (("rail", "1"),)),
        pools.ExtraInfo("*", (("rail", "0"), ("fabric", "blue"))),
    ),
)


def test_variables_are_those_of_the_sriov_device_plugin():
    """The addresses in the order of the request, and what is known of each as JSON."""
    _, first, second = physical_with_virtual(0x81, 2)
    found = node(first, second, devices=(device(4, first.position, kinds=CHAR_KINDS),))
    ((pool,), _) = resolve([VF], found.cards, found.survey)
    env = dict(allocate(pool, ["0000:81:00.2", "0000:81:00.1"]).env)
    assert env.pop("PCIDEVICE_NVIDIA_COM_VF_A") == "0000:81:00.2,0000:81:00.1"
    assert json.loads(env.pop("PCIDEVICE_NVIDIA_COM_VF_A_INFO")) == {
        "0000:81:00.2": {
            "generic": {"deviceID": "0000:81:00.2"},
            "extraInfo": {"rail": "1", "fabric": "blue"},
        },
        "0000:81:00.1": {
            "generic": {"deviceID": "0000:81:00.1"},
            "rdma": {
                "issm": "/dev/infiniband/issm4",
                "rdma_cm": RDMA_CM.path,
                "rdma_dev": "mlx5_4",
                "umad": "/dev/infiniband/umad4",
                "uverbs": "/dev/infiniband/uverbs4",
            },
            "extraInfo": {"rail": "0", "fabric": "blue"},
        },
    }
    assert not env


def test_every_granted_card_is_told_to_cni_plugins():
    """Whatever document the pool comes from, as long as a share is a card."""
    above, part = physical_with_virtual(0x81, 1)
    found = node(above, part, devices=(device(4, part.position),))
    wish = pools.PoolSpec("rdma/vf", pools.Mode.SRIOV, "policy:1")
    ((pool,), _) = resolve([wish], found.cards, found.survey)
    given = allocate(pool, ["0000:81:00.1"])
    info = pools.DeviceInfo("0000:81:00.1", ("mlx5_4",), "0000:81:00.0")
    assert device_infos(pool, given) == (("0000:81:00.1", info),)
    ours = pool_of(MULTI, FIRST, SECOND)
    (told,) = device_infos(ours, allocate(ours, ["0000:81:00.0-1"]))
    assert told == ("0000:81:00.0-1", pools.DeviceInfo("0000:81:00.0", ("mlx5_0",)))


def test_a_share_of_a_whole_pool_is_no_card():
    pool = pool_of(HCA, FIRST)
    assert device_infos(pool, allocate(pool, ["hca-0"])) == ()


def test_the_name_of_a_soft_device_is_not_told_before_it_is_made():
    """A pod gets one of its own; the interface is known."""
    soft = replace(FIRST.devices[0], identity="mlx5_0@eth0", pci=None)
    pool = pool_of(MULTI, replace(FIRST, devices=(soft,)))
    ((_, info),) = device_infos(pool, allocate(pool, ["0000:81:00.0-0"]))
    assert info == pools.DeviceInfo("0000:81:00.0", ())


def test_facts_say_no_connection_manager_where_there_is_none():
    pool = replace(pool_of(replace(HCA, shares=1), FIRST), rdma_cm=None)
    assert set(card_facts(pool, FIRST)["rdma"]) == {*map(str, CHAR_KINDS), "rdma_dev"}
    assert CharKind.RDMA_CM not in card_facts(pool, FIRST)["rdma"]
