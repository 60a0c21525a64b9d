"""The pages about pools and modes, word for word."""

from __future__ import annotations

import json

import pytest

from kube_base.frozen import replace
from kube_rdma.lib.json_values import camel_case
from kube_rdma.lib.page import page_text
from kube_rdma.model import pools
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PciAddress
from kube_rdma.pools.views import NodePools, PoollessCard, node_page, pools_document, specs_page
from kube_rdma_tools.mode_page import PAGE, page

TAKES = {mode: f"what {mode} takes" for mode in pools.Mode}
SHARED = pools.PoolSpec(
    "rdma/a",
    pools.Mode.HCA,
    "f:1",
    shares=1000,
    bind=pools.Bind.POOL,
    attach=pools.Attach.NONE,
    prefer=pools.Preference.PACK,
)
SELECTOR = pools.Selector(
    source="f:3",
    vendors=("15b3",),
    device_ids=("101e",),
    drivers=("mlx5_core",),
    interfaces=("ens2f0", "ens2f1"),
    link_types=("ether",),
    pci_addresses=(PciAddress("0000:81:00.1"),),
    acpi_indexes=(101,),
    physical=(pools.FunctionRange("ens2f0", ((0, 0), (2, 7))),),
    roots=(pools.FunctionRange("0000:81:00.0"),),
    auxiliary_types=("sf",),
    rdma_devices=("mlx5_0",),
    pkeys=(1, 0x7FFF),
    rdma=False,
)
FULL = pools.PoolSpec(
    "intel.com/b",
    pools.Mode.SRIOV,
    "f:2",
    selectors=(SELECTOR, pools.Selector(rdma=True)),
    shares=1,
    bind=pools.Bind.PER_CARD,
    attach=pools.Attach.AUTO,
    prefer=pools.Preference.LEAST_LOADED,
    numa_hints=False,
    variables=pools.Variables.PCIDEVICE,
    extra_info=(
        pools.ExtraInfo("*", (("a", "b"),)),
        pools.ExtraInfo("0000:81:00.1", (("c", "d"),)),
    ),
    extra_paths=("/dev/vhost-net", "/dev/net/tun"),
)

WISHES = """\
! mind the gap.

POOL         MODE      SHARES  ATTACH  PREFER
rdma/a       hca    1000/pool  none    -
  └ what hca takes
intel.com/b  sriov     1/card  auto    least-loaded
  └ vendor 15b3, device id 101e, driver mlx5_core, interface ens2f0 or ens2f1, link type ether, PCI
    address 0000:81:00.1, ACPI index 101, physical function ens2f0#0,2-7, physical function
    0000:81:00.0, auxiliary type sf, RDMA device mlx5_0, partition key 0x0001 or 0x7fff, no RDMA
    device; or an RDMA device
  └ containers get the PCIDEVICE variables of the SR-IOV network device plugin
  └ containers get further facts about every card and 0000:81:00.1
  └ containers also get /dev/vhost-net and /dev/net/tun
  └ the kubelet does not get the NUMA node of a share"""


def test_the_wishes_word_for_word():
    assert page_text(specs_page([SHARED, FULL], TAKES, ["mind the gap"]), 100) == WISHES


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (pools.RdmaLimits(1, 20000), "1 handle and 20000 objects"),
        (pools.RdmaLimits(objects=1), "1 object"),
        (pools.RdmaLimits(16), "16 handles"),
    ],
)
def test_limits_of_a_share_are_shown_and_told(limits, words):
    limited = replace(FULL, limits=limits)
    assert f"a share takes at most {words} of each RDMA device" in page_text(
        specs_page([limited], TAKES), 120
    )
    shown = pools_document([limited], 60)["pools"][0]["limits"]
    assert shown == {"handles": limits.handles, "objects": limits.objects}


def test_further_facts_are_named_only_where_a_variable_has_them():
    other = replace(FULL, variables=SHARED.variables)
    assert "further facts" in page_text(specs_page([FULL], TAKES), 100)
    assert "further facts" not in page_text(specs_page([other], TAKES), 100)
    assert pools_document([other], 60)["pools"][0]["extraInfo"]


def card(name, *reasons):
    return Card(CardId(name), (), None, reasons)


def shares(count, cards=(None,)):
    return tuple(
        pools.Share(pools.ShareId(f"{c}-{n}"), healthy=True, card=c)
        for c in cards
        for n in range(count)
    )


GOOD, ILL = card("one"), card("two", "no port is ACTIVE: check the cable", "no uverbs")
NODE = NodePools(
    (
        pools.Pool(SHARED, shares(1000), (GOOD, ILL)),
        pools.Pool(FULL, shares(2, ("one", "two")), (GOOD, ILL)),
        pools.Pool(SHARED, (), ()),
    ),
    ("one belongs to both",),
    ("two is counted twice",),
    (
        PoollessCard(card("three"), (("rdma/a", "it is small"), ("rdma/b", "it is small"))),
        PoollessCard(card("four"), (("rdma/a", "it is small"), ("rdma/b", "it is green"))),
        PoollessCard(card("five"), (("rdma/a", "it is small"), ("rdma/b", "it is small"))),
    ),
)

ON_NODE = """\
On this node:

POOL         CARD  FUNCTION  NUMA  SHARES  USABLE
rdma/a       one   -            -    1000  yes
             two   -            -          no
  └ two: no port is ACTIVE: check the cable
  └ two: no uverbs
intel.com/b  one   -            -       2  yes
             two   -            -       2  no
  └ two: no port is ACTIVE: check the cable
  └ two: no uverbs
rdma/a       -     -            -       0  -
  └ it has no card here

In no pool:
  three, five
    └ it is small
  four
    └ rdma/a: it is small
    └ rdma/b: it is green"""


def test_the_node_word_for_word():
    assert page_text(node_page(NODE, "On this node"), 100) == ON_NODE
    first = page_text(specs_page([SHARED], TAKES, ["mind the gap"], NODE), 100).split("\n\n")[:2]
    assert first == ["✗ one belongs to both.", "! mind the gap.\n! two is counted twice."]


def test_every_line_keeps_the_width_of_a_small_terminal():
    wishes = specs_page([SHARED, FULL], TAKES, ["a " * 60])
    text = page_text((*wishes, *node_page(NODE, "On it")), 80)
    assert max(map(len, text.splitlines())) <= 80


def test_the_document_has_every_field_of_a_wish():
    document = pools_document([FULL], 60, ["mind the gap"])
    (pool,) = document["pools"]
    assert set(pool) == {*map(camel_case, pools.PoolSpec.__struct_fields__)}
    assert pool["extraInfo"] == {"*": {"a": "b"}, "0000:81:00.1": {"c": "d"}}
    first, second = pool["selectors"]
    assert set(first) == {*map(camel_case, pools.Selector.__struct_fields__)}
    assert first["physical"] == ["ens2f0#0,2-7"]
    assert second == {"source": "", "rdma": True}
    assert (document["rescan"], document["warnings"]) == (60, ["mind the gap"])
    assert document["node"] is None
    assert json.loads(json.dumps(document)) == document


def test_the_document_has_the_node():
    node = pools_document([SHARED], 60, (), NODE)["node"]
    assert node["pools"][0] | {"cards": 0} == {
        "resource": "rdma/a",
        "shares": 1000,
        "healthy": 1000,
        "cards": 0,
    }
    assert node["pools"][0]["cards"][1] == {
        "id": "two",
        "name": "two",
        "usable": False,
        "reasons": list(ILL.reasons),
    }
    assert (node["clashes"], node["warnings"]) == (list(NODE.clashes), list(NODE.warnings))
    assert node["leftOut"][1] == {
        "id": "four",
        "name": "four",
        "reasons": {"rdma/a": "it is small", "rdma/b": "it is green"},
    }
    assert json.loads(json.dumps(node)) == node


def test_the_page_of_modes_is_written_down():
    """To accept a change of the table, run `python -m kube_rdma_tools.mode_page`."""
    text = PAGE.read_text()
    assert page(text) == text
