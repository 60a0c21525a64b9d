"""The survey of a real machine: what it shows is what sysfs, netlink and /dev really hold."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from kube_rdma.hardware.survey import take_survey
from kube_rdma.model.device import CharKind, GidType, LinkLayer, PhysicalState, PortState
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.discovery import judge

from .world import device, links, port_of, run, until

pytestmark = pytest.mark.core

SURVEYS = 30


def test_a_machine_without_devices_is_surveyed_without_a_fault():
    survey = take_survey()
    assert (survey.devices, survey.faults) == ((), ())
    assert survey.namespace_mode is NamespaceMode.SHARED


def test_a_display_without_a_driver_is_a_gpu_on_its_socket():
    (gpu,) = take_survey().gpus
    assert (gpu.pci_class >> 16, gpu.driver, gpu.position.numa_node) == (3, None, 0)
    assert gpu.position.path[-1] == gpu.position.pci
    assert len(gpu.position.path) == 2


def test_a_soft_device_sits_where_its_card_does(cards, link):
    for number, card in enumerate(cards):
        link(f"rxe{number}", card)
    survey = take_survey()
    assert survey.faults == ()
    assert [d.identity for d in survey.devices] == [f"rxe{n}@{cards[n]}" for n in (0, 1)]
    assert [d.numa_node for d in survey.devices] == [0, 1]
    assert {(d.pci, d.driver, d.node_type) for d in survey.devices} == {(None, None, "CA")}
    functions = {n.name: f.position for f in survey.functions for n in f.netdevs}
    assert [d.position for d in survey.devices] == [functions[card] for card in cards]


def test_network_functions_show_their_interfaces_as_ip_does(cards):
    run("ip", "link", "set", cards[1], "down")
    netdevs = {n.name: n for f in take_survey().functions for n in f.netdevs}
    assert (netdevs[cards[0]].up, netdevs[cards[0]].carrier) == (True, True)
    assert (netdevs[cards[1]].up, netdevs[cards[1]].carrier) == (False, None)
    assert {netdevs[card].link_type for card in cards} == {"ether"}


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_a_default_route_marks_every_card_that_carries_it(cards, family):
    net = "10.9.0" if family == "-4" else "fd09:"
    for number, card in enumerate(cards):
        address = f"{net}.{number}1/24" if family == "-4" else f"{net}{number}::1/64"
        run("ip", family, "address", "add", address, "dev", card, *(["nodad"] * (family == "-6")))
    # Of IPv6 the kernel takes no hop without a gateway.
    gateway = () if family == "-4" else ("via", "fe80::99")
    hops = [word for card in cards for word in ("nexthop", *gateway, "dev", card)]
    run("ip", family, "route", "add", "default", *hops)
    try:
        assert routed() == set(cards)
        run("ip", family, "route", "replace", "default", "dev", cards[0])
        until(lambda: cards[0] in routed())
    finally:
        run("sh", "-c", f"while ip {family} route delete default; do :; done 2>/dev/null")
    assert routed() == set()


def test_a_default_route_over_a_nexthop_object_marks_its_card(cards):
    run("ip", "address", "add", "10.9.0.1/24", "dev", cards[0])
    run("ip", "nexthop", "add", "id", "7", "dev", cards[0])
    run("ip", "nexthop", "add", "id", "8", "group", "7")
    compat = Path("/proc/sys/net/ipv4/nexthop_compat_mode")
    compat.write_text("0")
    try:
        run("ip", "route", "add", "default", "nhid", "8")
        assert routed() == {cards[0]}
    finally:
        compat.write_text("1")
        run("ip", "nexthop", "flush")
    assert routed() == set()


def routed():
    """The interfaces of functions with a default route."""
    survey = take_survey()
    assert survey.faults == ()
    return {n.name for f in survey.functions for n in f.netdevs if n.default_route}


def test_an_active_port_is_usable_and_says_what_it_is(cards, link):
    link("rxe0", cards[0])
    port = until(lambda: (p := port_of("rxe0")).state is PortState.ACTIVE and p)
    assert (port.number, port.netdev, port.link_layer) == (1, cards[0], LinkLayer.ETHERNET)
    assert port.physical_state is PhysicalState.LINK_UP
    assert port.rate_gbps
    (verdict,) = judge(take_survey())
    assert verdict.usable


def test_a_gid_appears_with_its_address_and_goes_with_it(cards, link):
    link("rxe0", cards[0])
    mapped = "0000:0000:0000:0000:0000:ffff:c0a8:320b"
    assert mapped not in {gid.value for gid in port_of("rxe0").gids}
    run("ip", "address", "add", "192.168.50.11/24", "dev", cards[0])
    gid = until(lambda: next((g for g in port_of("rxe0").gids if g.value == mapped), None))
    assert (gid.type, gid.netdev) == (GidType.ROCE_V2, cards[0])
    run("ip", "address", "flush", "dev", cards[0], "scope", "global")
    until(lambda: mapped not in {gid.value for gid in port_of("rxe0").gids})


def test_a_port_goes_down_with_its_interface_and_the_verdict_says_what_to_do(cards, link):
    link("rxe0", cards[0])
    run("ip", "link", "set", cards[0], "down")
    until(lambda: port_of("rxe0").state is PortState.DOWN)
    (verdict,) = judge(take_survey())
    assert not verdict.usable
    assert verdict.reasons == (
        f"no port is ACTIVE; port 1 is DOWN (Disabled): ip link set {cards[0]} up",
    )


def test_character_devices_are_those_of_dev(cards, link):
    for number, card in enumerate(cards):
        link(f"rxe{number}", card)
    survey = take_survey()
    chars = [char for d in survey.devices for char in d.char_devices] + [survey.rdma_cm]
    assert [c.kind for c in chars].count(CharKind.UVERBS) == 2
    for char in chars:
        numbers = Path(char.path).stat().st_rdev
        assert (os.major(numbers), os.minor(numbers)) == (char.major, char.minor), char.path
    told = {d.path for d in chars}
    assert told == {str(path) for path in Path("/dev/infiniband").iterdir()}


def test_a_device_of_a_pod_is_seen_from_the_host_and_goes_with_the_pod(pod, link):
    link("rxep", "net1", pod)
    survey = take_survey()
    found = device(survey, "rxep")
    assert found.identity == "rxep@net1"
    assert (found.ports[0].netdev, found.numa_node) == (None, None)
    assert survey.faults == ()
    run("ip", "netns", "delete", pod)
    until(lambda: "rxep" not in links())
    assert take_survey().devices == ()


def test_a_card_that_vanishes_while_it_is_read_is_a_fault_or_absent(cards, link):
    """One thread makes and removes a link, the other surveys: never an exception, never a lie."""
    enough = Event()

    def flicker():
        while not enough.is_set():
            link("rxe1", cards[1])
            run("rdma", "link", "delete", "rxe1")

    link("rxe0", cards[0])
    with ThreadPoolExecutor(1) as pool:
        flickering = pool.submit(flicker)
        try:
            surveys = [take_survey() for _ in range(SURVEYS)]
        finally:
            enough.set()
        flickering.result()
    for survey in surveys:
        assert survey.devices[0].name == "rxe0"
        assert {d.name for d in survey.devices} <= {"rxe0", "rxe1"}
        assert not [fault for fault in survey.faults if "rxe0" in fault.path]
    final = take_survey()
    assert ([d.name for d in final.devices], final.faults) == (["rxe0"], ())
