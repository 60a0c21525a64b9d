"""A real SR-IOV card (igb, as QEMU emulates it): functions, their relation, Soft-RoCE on them."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.pod.namespaces import links_inside
from kube_rdma.adapters.kernel.sysfs.pci import PciTree
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.hardware.survey import take_survey
from kube_rdma.model.device import PciAddress, PortState
from kube_rdma.pools.rules.absence import MOVED
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet

from .world import (
    NET,
    PATIENCE,
    PHYSICAL_FUNCTION,
    agent,
    device,
    inside,
    interface,
    links,
    port_of,
    run,
    until,
)

pytestmark = pytest.mark.core

FUNCTIONS = 2


@pytest.fixture(scope="module")
def card():
    """The PF's PCI function, its interface up; its VFs are removed at the end."""
    name = interface(PHYSICAL_FUNCTION)
    run("ip", "link", "set", name, "up")
    yield NET / name / "device"
    (NET / name / "device/sriov_numvfs").write_text("0")


@pytest.fixture
def functions(card):
    """Two VFs, each bound to its driver; the paths of their PCI functions.

    Making them takes seconds, so tests find those of the test before, if it left them.
    """
    if int((card / "sriov_numvfs").read_text()) != FUNCTIONS:
        (card / "sriov_numvfs").write_text(str(FUNCTIONS))
    found = [card / f"virtfn{number}" for number in range(FUNCTIONS)]
    until(lambda: all(any(path.glob("net/*")) for path in found))
    return [path.resolve() for path in found]


def netdev(function):
    """The interface of a PCI function."""
    (path,) = function.glob("net/*")
    return path.name


def test_functions_have_addresses_of_their_own_and_know_their_card(card, functions):
    physical = card.resolve()
    addresses = {PciAddress(path.name) for path in (physical, *functions)}
    assert len(addresses) == 1 + FUNCTIONS
    for function in functions:
        assert (function / "physfn").resolve() == physical
        assert (function / "numa_node").read_text() == "1\n"
    assert (card / "sriov_totalvfs").read_text() == "7\n"


def test_the_survey_s_reader_sees_the_same_positions(card, functions):
    """The card's names its functions, theirs the card; both hang from the second socket."""
    physical = str(card.resolve().relative_to("/sys"))
    tree = SysfsTree(Path("/sys"))
    pci = PciTree(tree)
    position = pci.position(physical)
    assert (position.pci, position.numa_node, position.sriov_total) == (card.resolve().name, 1, 7)
    assert [position.root, *position.path] == physical.split("/")[1:]
    assert list(position.virtual_functions) == [function.name for function in functions]
    for function in functions:
        theirs = pci.position(str(function.relative_to("/sys")))
        assert (theirs.physical_function, theirs.numa_node) == (position.pci, 1)
    pci.check_relations()
    assert tree.faults == []


def test_soft_roce_on_a_function_is_surveyed_with_its_numa_node(functions, link):
    name = netdev(functions[0])
    run("ip", "link", "set", name, "up")
    link("rxev", name)
    until(lambda: port_of("rxev").state is PortState.ACTIVE)
    found = device(take_survey(), "rxev")
    assert (found.identity, found.numa_node) == (f"rxev@{name}", 1)
    assert (found.pci, found.position.pci) == (None, functions[0].name)


def test_functions_are_numbered_and_the_card_is_theirs(card, functions):
    found = {f.position.pci: f for f in take_survey().functions}
    for number, function in enumerate(functions):
        shown = found[function.name]
        assert (shown.vf_index, shown.driver) == (number, "igbvf")
        assert [n.name for n in shown.netdevs] == [netdev(function)]
        for file, value in (("vendor", shown.vendor), ("device", shown.device)):
            assert int((function / file).read_text(), 16) == value
    assert found[card.resolve().name].vf_index is None


def test_a_function_inside_a_pod_is_found_by_its_address(functions, pods):
    """Here it has no interface any more; in the pod's namespace one names it."""
    survey = take_survey()
    for name, function in zip(pods, functions, strict=True):
        (here,) = [f for f in survey.functions if f.position.pci == function.name]
        assert here.netdevs == ()
        (there,) = [link for link in links_inside(Path("/run/netns", name)) if link.pci]
        assert (there.name, there.pci) == ("net1", function.name)


def test_a_soft_device_goes_with_its_function(card, functions, link):
    link("rxev", netdev(functions[0]))
    (card / "sriov_numvfs").write_text("0")
    until(lambda: "rxev" not in links())
    survey = take_survey()
    assert (survey.devices, survey.faults) == ((), ())


@pytest.fixture
def pods(functions, link):
    """Two namespaces, each with a VF as net1, an address and a Soft-RoCE link of its own."""
    names = [f"vf{number}" for number in range(FUNCTIONS)]
    for number, (name, function) in enumerate(zip(names, functions, strict=True)):
        run("ip", "netns", "add", name)
        run("ip", "link", "set", netdev(function), "name", "net1", "netns", name)
        run("ip", "-n", name, "address", "add", f"192.168.60.{number + 1}/24", "dev", "net1")
        run("ip", "-n", name, "link", "set", "net1", "up")
        link(f"rxe{number}", "net1", name)
    yield names
    for name in names:
        run("ip", "netns", "delete", name)


@contextmanager
def server(*words):
    """A server of perftest, from the moment it listens; it ends when a client was served."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: process.poll() or ":18515" in run(*words[:4], "ss", "-ltn"))
            yield
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_two_pods_move_bytes_over_two_functions(pods):
    """ib_write_bw writes from one namespace into the other's memory."""
    until(lambda: all(port_of(name).state is PortState.ACTIVE for name in ("rxe0", "rxe1")))
    gid = "0000:0000:0000:0000:0000:ffff:c0a8:3c02"
    (index,) = until(lambda: [g.index for g in port_of("rxe1").gids if g.value == gid])
    options = ("ib_write_bw", "-F", "--report_gbits", "-s", "4096", "-n", "10", "-x", str(index))
    # Four seconds for an answer: on a busy machine igbvf resets a function whose mailbox was slow.
    options += ("-u", "20")
    with server(*inside(pods[0]), *options, "-d", "rxe0"):
        table = run(*inside(pods[1]), *options, "-d", "rxe1", "192.168.60.1")
    assert "GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:60:02" in table
    (line,) = [line for line in table.splitlines() if line.strip().startswith("4096")]
    assert float(line.split()[3]) > 0, table


@pytest.fixture
def pool(card, tmp_path_factory):
    """The folder of an agent that offers the functions of the card as intel.com/vf.

    Its name is short, for the path of a socket has 107 characters at most.
    """
    folder = tmp_path_factory.mktemp("a")
    selectors = {"rootDevices": [card.resolve().name]}
    document = {"resourceList": [{"resourceName": "vf", "selectors": selectors}]}
    (folder / "config.json").write_text(json.dumps(document))
    (folder / "kubelet").mkdir()
    return folder


@pytest.fixture
def elsewhere():
    """A namespace that kube-rdma knows nothing of; a function returns when it ends."""
    run("ip", "netns", "add", "elsewhere")
    yield "elsewhere"
    if "elsewhere" in run("ip", "netns", "list"):
        run("ip", "netns", "delete", "elsewhere")


async def test_a_function_that_another_program_took_is_offered_to_nobody(
    functions, pool, elsewhere
):
    """One that a pod holds stays healthy, wherever it is; each is good again when it is back."""
    free, held = (function.name for function in functions)

    def shares():
        return kubelet.devices.get("intel.com/vf", {})

    async with FakeKubelet.at(pool / "kubelet") as kubelet, agent(pool):
        await kubelet.until(lambda: shares() == {free: True, held: True}, PATIENCE)
        await kubelet.allocate("intel.com/vf", 1, (held,), place=ContainerPlace("job"))
        for function in functions:
            run("ip", "link", "set", netdev(function), "netns", elsewhere)
        await kubelet.until(lambda: shares() == {free: False, held: True}, PATIENCE)
        run("ip", "netns", "delete", elsewhere)
        await kubelet.until(lambda: shares() == {free: True, held: True}, PATIENCE)
    log = (pool / "log").read_text()
    assert log.index(MOVED) < log.index("card healthy again")
    assert log.count(MOVED) == 1
    until(lambda: all(any(path.glob("net/*")) for path in functions))
