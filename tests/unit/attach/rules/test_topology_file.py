"""NCCL's topology file: NCCL reads it, and has each device where it would find its function."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.attach.rules.settings import topology_file
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.settings import PciFacts, PlacedNet, Processor, TopologyFacts
from tests.kit.nccl_xml import found_by_nccl, read

XEON = Processor("x86_64", "GenuineIntel", 6, 143)
NUMA_NODES = st.none() | st.integers(0, 3)


@st.composite
def positions(draw):
    """Functions below root ports and switches, some of them with a way in common."""
    root, depth = draw(st.integers(0, 3)), draw(st.integers(1, 6))
    steps = [draw(st.integers(0, 2)) for _ in range(depth)]
    path = tuple(PciAddress(f"{root:04x}:{bus:02x}:{step:02x}.0") for bus, step in enumerate(steps))
    return PciPosition(path[-1], f"pci{root:04x}:00", path, draw(st.just(root) | st.none()))


NETS = st.lists(
    st.builds(
        PlacedNet,
        name=st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True),
        position=st.none() | positions(),
        numa_node=NUMA_NODES,
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda net: net.name,
)
WORDS = st.sampled_from(["", "0x15b3", "0x1021"])
FACTS = st.builds(
    PciFacts,
    pci_class=st.sampled_from(["", "0x020000", "0x060400"]),
    vendor=WORDS,
    device=WORDS,
    subsystem_vendor=WORDS,
    subsystem_device=WORDS,
    link_speed=st.sampled_from(["", "16.0 GT/s PCIe"]),
    link_width=st.sampled_from([0, 8, 16]),
)
PROCESSORS = st.none() | st.sampled_from([XEON, Processor("arm64")])
MASKS = st.dictionaries(st.integers(0, 3), st.sampled_from(["", "ffff", "f" * 400]))


def facts_of(nets, function, masks, processor):
    ways = [pci for net in nets if net.position for pci in net.position.path]
    return TopologyFacts(dict.fromkeys(ways, function), masks, processor)


def of_one(net, **facts):
    return read(topology_file([net], TopologyFacts(**facts)))


@given(NETS, FACTS, MASKS, PROCESSORS)
def test_each_device_is_where_nccl_would_find_its_function(nets, function, masks, processor):
    top = read(topology_file(nets, facts_of(nets, function, masks, processor)))
    placed = {net.attributes["name"]: net.way() for net in top.all("net")}
    for net in nets:
        if net.position:
            place = "/".join(("devices", net.position.root, *net.position.path))
            assert placed.pop(net.name) == found_by_nccl(place, net.position.numa_node)
        else:
            numa = -1 if net.numa_node is None else net.numa_node
            assert placed.pop(net.name) == (str(numa),)
    assert placed == {}


@given(NETS, FACTS, MASKS, PROCESSORS)
def test_every_numa_node_is_named_once(nets, function, masks, processor):
    """NCCL counts a processor that it adds itself as one of another host."""
    top = read(topology_file(nets, facts_of(nets, function, masks, processor)))
    named = [cpu.attributes["numaid"] for cpu in top.subs]
    assert len(named) == len(set(named))
    assert set(map(str, masks)) <= set(named)
    addresses = [pci.attributes["busid"] for pci in top.all("pci")]
    assert len(addresses) == len({(pci.way()) for pci in top.all("pci")})


def test_what_sysfs_says_is_told():
    path = tuple(map(PciAddress, ("0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0")))
    card = PciFacts("0x020700", "0x15b3", "0x1021", "0x15b3", "0x0041", "32.0 GT/s PCIe", 16)
    net = PlacedNet("mlx5_0", PciPosition(path[-1], "pci0000:00", path, 0), 0)
    facts = TopologyFacts({path[-1]: card}, {0: "ff", 1: "ff00"}, XEON)
    assert topology_file([net], facts) == (
        '<system version="1">\n'
        '  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6"'
        ' modelid="143">\n'
        '    <pci busid="0000:01:00.0" class="0x060400" link_speed="" link_width="0">\n'
        '      <pci busid="0000:03:00.0" class="0x020700" vendor="0x15b3" device="0x1021"'
        ' subsystem_vendor="0x15b3" subsystem_device="0x0041" link_speed="32.0 GT/s PCIe"'
        ' link_width="16">\n'
        "        <nic>\n"
        '          <net name="mlx5_0"/>\n'
        "        </nic>\n"
        "      </pci>\n"
        "    </pci>\n"
        "  </cpu>\n"
        '  <cpu numaid="1" affinity="ff00" arch="x86_64" vendor="GenuineIntel" familyid="6"'
        ' modelid="143"/>\n'
        "</system>\n"
    )


@pytest.mark.parametrize(("family", "told"), [(6, "6"), (23, "143"), (25, "175"), (26, "191")])
def test_amd_s_families_are_as_nccl_always_counted_them(family, told):
    """Zen 2, 3 and 5: the two parts of CPUID's family, the second one shifted."""
    processor = Processor("x86_64", "AuthenticAMD", family, 1)
    top = of_one(PlacedNet("a", None, 0), processor=processor)
    assert top.subs[0].attributes["familyid"] == told


def test_a_mask_that_nccl_cannot_read_is_left_out():
    top = of_one(PlacedNet("a", None, 0), masks={0: "f" * 255})
    assert "affinity" not in top.subs[0].attributes


@pytest.mark.parametrize("name", ['a"b', "a<b", "a b", "é", "a" * 65, ""])
def test_a_name_that_cannot_be_written_is_left_out(name):
    assert topology_file([PlacedNet(name, None, 0)], TopologyFacts()) == ""
    assert (
        len(
            list(
                read(
                    topology_file(
                        [PlacedNet(name, None, 0), PlacedNet("b", None, 0)], TopologyFacts()
                    )
                ).all("net")
            )
        )
        == 1
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('<?xml version="1.0"?>\n<system version="1"/>', "expecting"),
        ('<system version="2"/>', "version 1"),
        ('<system version="1"><cpu numaid="0"></system>', "mismatch"),
        ('<system version="1"><cpu numaid="0"><net name="a"/></cpu></system>', "ignored"),
        ('<system version="1"><cpu numaid="0" arch="x86_64"/></system>', "lacks"),
        ('<system version="1"><cpu numaid="0"><pci busid="0"/></cpu></system>', "lacks"),
        ('<system version="1">', "unterminated"),
    ],
)
def test_the_reader_of_these_tests_refuses(text, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        read(text)
