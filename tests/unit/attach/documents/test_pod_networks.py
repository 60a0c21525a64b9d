"""The annotation with a block for each card: every field, every sentence about a fault."""

import json
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_rdma.attach.documents import pod_networks
from kube_rdma.attach.documents.networks import MOST
from kube_rdma.model.attach.attachment import AskedAddress, NetworkAsk, NetworkRoute
from tests.kit.refusals import assert_written_down, refusal
from tests.unit.attach.documents.bad_pod_networks import BLOCKS, load

GOLDEN = Path(__file__).with_name("pod_networks_refusals.txt")
RDMA = {"cniConf": {"name": "rdma"}}
MASTER = {"cniConf": {"name": "cbr0"}, "master": True}


def found(*entries, definition=""):
    return pod_networks.load(json.dumps(entries), definition, "default", "cbr0")


def asks(*entries):
    result = found(*entries)
    assert result.warnings == ()
    return result.asks


def test_every_sentence_is_written_down():
    assert_written_down(GOLDEN, partial(refusal, load), BLOCKS)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_block_that_people_repeat(count):
    """Once for each card; eth0 is the cluster's, so the first one is eth1."""
    assert [(one.network, one.interface, one.source) for one in asks(*[RDMA] * count)] == [
        ("rdma", f"eth{n + 1}", f"pod-networks[{n}]") for n in range(count)
    ]


@pytest.mark.parametrize("text", ["", " \n", "[]"])
def test_a_pod_may_ask_for_nothing(text):
    assert pod_networks.load(text, "", "default", "cbr0").asks == ()


@pytest.mark.parametrize("name", ["cbr0", "cello-chainer"])
def test_a_master_in_front_is_the_cluster_s_own_network(name):
    """It is not ours, and what stands behind it counts from eth1 as without it."""
    (one,) = asks({**MASTER, "cniConf": {"name": name}}, RDMA)
    assert (one.interface, one.source) == ("eth1", "pod-networks[1]")


def test_every_field_of_a_block():
    """Each in its own spelling, the name of the object not being that of the network."""
    (one,) = asks(
        {
            "name": "podnetwork3",
            "namespace": "other",
            "cniConf": {"name": "rdma", "from": "local"},
            "deviceConf": {
                "options": {"trunkMac": "", "vlanID": ""},
                "ips": ["10.0.0.7/24", "fd00::7"],
                "ifName": "rail0",
                "mac": "02:00:0A:00:00:01",
            },
            "traffic": {
                "routes": {
                    "extraRoutes": [{"dst": "10.8.0.1/16"}, {"dst": "fd01::/16", "gw": "fd00::1"}],
                    "default": True,
                }
            },
            "master": False,
        }
    )
    assert one == NetworkAsk(
        namespace="default",
        network="rdma",
        interface="rail0",
        source="pod-networks[0]",
        by_pod_networks=True,
        addresses=(AskedAddress(ip_address("10.0.0.7"), 24), AskedAddress(ip_address("fd00::7"))),
        mac="02:00:0a:00:00:01",
        routes=(
            NetworkRoute(ip_network("10.8.0.0/16")),
            NetworkRoute(ip_network("fd01::/16"), ip_address("fd00::1"), onlink=True),
        ),
        default=True,
    )


def test_nothing_is_written_as_go_writes_it():
    empty = {
        "deviceConf": {"options": None, "ips": None, "ifName": "", "mac": ""},
        "traffic": {"routes": {"extraRoutes": None}},
        "route": None,
        "ipv4": "",
    }
    assert asks({**RDMA, **empty}) == asks(RDMA)
    assert asks({**RDMA, "deviceConf": None, "traffic": None}) == asks(RDMA)


def test_old_fields_are_understood_with_a_warning():
    """They mean what their successors mean, whose names are told."""
    old = {"ipv4": "10.0.0.7/24", "mac": "02:00:00:00:00:01", "route": {"dst": "10.8.0.0/16"}}
    new = {
        "deviceConf": {"ips": ["10.0.0.7/24"], "mac": "02:00:00:00:00:01"},
        "traffic": {"routes": {"extraRoutes": [{"dst": "10.8.0.0/16"}]}},
    }
    got = found({**RDMA, **old})
    assert got.asks == asks({**RDMA, **new})
    assert [each.split(": ", 1)[1] for each in got.warnings] == [
        "pod-networks[0].ipv4: the field is old, write deviceConf.ips",
        "pod-networks[0].mac: the field is old, write deviceConf.mac",
        "pod-networks[0].route: the field is old, write traffic.routes.extraRoutes",
    ]
    assert len(found({**RDMA, **old, **new}).warnings) == 3


def test_a_definition_that_agrees_changes_nothing():
    """Entry by entry, by namespace and name; what else it says is not ours."""
    entry = {**RDMA, "name": "a", "namespace": "b"}
    definition = json.dumps([{"name": "a", "namespace": "b", "traffic": {}}, {}])
    assert found(entry, RDMA, definition=definition).asks == asks(entry, RDMA)


@pytest.mark.parametrize(
    ("definition", "text", "sentence"),
    [
        ('[{"name": "a"}]', "", "has 0 entries and .* has 1"),
        ('[{"name": "a"}]', '[{"cniConf": {"name": "rdma"}}]', r"pod-networks\[0\] is /, and"),
        ('[{}, {"namespace": "b"}]', '[{"cniConf": {"name": "rdma"}}]', "has 1 entries and .* 2"),
    ],
)
def test_a_definition_that_does_not_agree_is_waited_for(definition, text, sentence):
    """Whoever writes the blocks of a pod has not finished: the kubelet tries again."""
    with pytest.raises(Unavailable, match=sentence):
        pod_networks.load(text, definition, "default", "cbr0")


def test_a_definition_that_is_none_is_refused():
    with pytest.raises(Refused, match=r"pod-networks-definition:1:1: pod-networks-definition: "):
        found(RDMA, definition="{}")


ENTRIES = st.lists(st.none() | st.from_regex(r"[a-z]{1,8}", fullmatch=True), max_size=MOST - 1)


@given(ENTRIES, st.booleans())
@example([None, "eth1"], True)
def test_interfaces_are_numbered_by_their_place(names, has_master):
    """An entry without a name has that of its place behind the cluster's network."""
    entries = [{**RDMA, "deviceConf": {"ifName": name}} if name else RDMA for name in names]
    own = [MASTER, *entries] if has_master else entries
    wanted = [name or f"eth{place}" for place, name in enumerate(names, 1)]
    if len({"lo", *wanted}) <= len(wanted):
        with pytest.raises(Refused, match="interface"):
            asks(*own)
        return
    got = asks(*own)
    assert [one.interface for one in got] == wanted
    assert [int(one.source[13:-1]) for one in got] == [n + has_master for n in range(len(names))]


@given(st.text(max_size=60) | st.text('[]{}",:cniConfame01/%\n\\ ', max_size=60))
def test_any_text_is_read_or_refused(text):
    """Nothing that a person may write ends in a traceback."""
    try:
        got = pod_networks.load(text, "", "default", "cbr0").asks
    except Refused:
        return
    assert len({one.interface for one in got}) == len(got) <= MOST
