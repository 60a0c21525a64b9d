"""Debian's systemd-udevd beside the agent: the names that it gives to cards that leave and return.

Users' nodes have it; this machine starts it for this file alone, with Debian's rules and .link
files and those of config/node-files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.model.attach.steps import GiveBackLink, SetLink, TakeLink
from kube_rdma.model.device import PciAddress, PlannedHostLink

from .steps_contract import Links
from .test_steps import PATH, POD, RealWorld, numbers, one_function, real_world
from .world import CARDS, NET, PATIENCE, PHYSICAL_FUNCTION, interface, run, until

pytestmark = pytest.mark.kernel("lab.kernel=any")

ROUNDS = 5
MARKS = {"KUBE_RDMA": "1", "NM_UNMANAGED": "1"}  # systemd-networkd's and NetworkManager's
UDEVD = "/usr/lib/systemd/systemd-udevd"
SHIPPED = Path(__file__).parents[3] / "config/node-files/10-kube-rdma-unmanaged.rules"
RULES, MACHINE_ID = Path("/run/udev/rules.d"), Path("/etc/machine-id")
# The machine's kernel is told net.ifnames=0, for the lab names its interfaces itself.
LIKE_A_USER_S = {**os.environ, "SYSTEMD_PROC_CMDLINE": "quiet"}


@pytest.fixture(scope="module", autouse=True)
def udevd():
    """The daemon, while this file's tests run."""
    RULES.mkdir(parents=True)
    shutil.copy(SHIPPED, RULES)
    MACHINE_ID.write_text(f"{'5eed' * 8}\n")  # MACs that shall persist are made from it
    daemon = subprocess.Popen([UDEVD], env=LIKE_A_USER_S)
    until(lambda: Path("/run/udev/control").exists())
    settle()
    yield
    ask("control", "--exit")
    assert daemon.wait(PATIENCE) == 0
    shutil.rmtree("/run/udev")
    MACHINE_ID.unlink()


@pytest.fixture(autouse=True)
def settled(udevd):
    """No test begins while the daemon still names the last one's interfaces."""
    settle()
    yield
    settle()


@pytest.fixture
def card():
    """A virtual function made under the daemon's eyes, so with the names that it gives."""
    physical = interface(PHYSICAL_FUNCTION)
    run("ip", "link", "set", physical, "up")
    path = NET / physical / "device"
    numbers(physical).write_text("0")
    numbers(physical).write_text("1")
    until(lambda: any(path.glob("virtfn0/net/*")))
    settle()
    yield taken(path)
    run("sh", "-c", f"ip netns delete {POD} 2>/dev/null || true")
    until(lambda: any(path.glob("virtfn0/net/*")))
    settle()
    numbers(physical).write_text("0")
    settle()


def taken(physical):
    """The step that takes a card's first virtual function into the pod, as it is now."""
    pci = (physical / "virtfn0").resolve()
    (path,) = pci.glob("net/*")
    shown = state(path.name)
    link, up = PlannedHostLink(shown["ifindex"], path.name), "UP" in shown["flags"]
    return TakeLink(link, "net1", PciAddress(pci.name), shown["mtu"], shown["address"], up=up)


def back(step):
    return GiveBackLink(step.link, step.name, step.pci, step.mtu, step.mac, step.up)


def settle():
    """Wait until the daemon has done with every event of the kernel."""
    ask("settle")


def ask(*words):
    """Tell the daemon something until it has heard it.

    It drops a message that comes between its accept() and its SO_PASSCRED, for such a one has no
    sender ("Invalid sender uid 65534"; src/udev/udev-ctrl.c).
    """
    until(lambda: subprocess.run(("udevadm", *words), check=False).returncode == 0)


def state(name):
    (shown,) = json.loads(run("ip", "-json", "link", "show", "dev", name))
    return shown


def names_of(name):
    """The names that an interface has beside the first one."""
    return set(state(name).get("altnames", ()))


def picture(step):
    """What has to be as it was, of a card that is home."""
    settle()
    shown = state(step.link.name)
    return shown["ifname"], shown["mtu"], shown["address"], "UP" in shown["flags"]


@contextmanager
def in_pod(step):
    """A pod that has the card."""
    run("ip", "netns", "add", POD)
    with open_pod(PATH) as pod:
        pod.run(step)
        pod.run(SetLink("net1", 1400))
        yield pod


def test_a_new_function_is_named_by_the_daemon(card):
    """Otherwise nothing here shows anything."""
    assert card.link.name.startswith("en")


def test_a_card_goes_into_a_pod_and_comes_home(card):
    """With every name that it had; a second time too."""
    before, names = picture(card), names_of(card.link.name)
    for _ in range(2):
        with in_pod(card) as pod:
            assert not (NET / card.link.name).exists()
            assert state_in_pod("net1")["mtu"] == 1400
            pod.undo(back(card))
        run("ip", "netns", "delete", POD)
        assert picture(card) == before
        assert names_of(card.link.name) == names


def state_in_pod(name):
    (shown,) = json.loads(run("ip", "-n", POD, "-json", "link", "show", "dev", name))
    return shown


def test_a_card_that_came_home_by_itself_has_its_name_as_an_alternative(card):
    """The kernel brings it as net1, which the daemon keeps; it gets its old name all the same."""
    before, path = picture(card), Path(f"/sys/bus/pci/devices/{card.pci}/net")
    with in_pod(card):
        pass
    run("ip", "netns", "delete", POD)
    until((path / "net1").exists)
    settle()
    assert card.link.name in names_of("net1")
    with open_pod(None) as pod:
        pod.undo(back(card))
    assert picture(card) == before
    assert not (NET / "net1").exists()


def test_the_daemon_may_be_at_it_while_a_card_gets_its_name(card):
    """Nobody waits for it: it gives the old name to a link that is just about to be called so."""
    before, path = picture(card), Path(f"/sys/bus/pci/devices/{card.pci}/net")
    for _ in range(ROUNDS):
        with in_pod(card):
            pass
        run("ip", "netns", "delete", POD)
        until((path / "net1").exists)
        with open_pod(None) as pod:
            pod.undo(back(card))
        assert picture(card) == before


def database(name):
    """What udev's database says of an interface: there others look."""
    settle()
    return properties(run("udevadm", "info", "--query=property", f"--path={NET / name}"))


def properties(text):
    return dict(line.strip().split("=", 1) for line in text.splitlines() if "=" in line)


def marks(properties_of):
    return {name: value for name, value in properties_of.items() if name in MARKS}


def test_functions_are_marked_for_others_after_each_event(card):
    """Made, come home from a pod, asked for again: NetworkManager and networkd see whose it is."""
    name = card.link.name
    assert marks(database(name)) == MARKS
    with in_pod(card) as pod:
        pod.undo(back(card))
    assert marks(database(name)) == MARKS
    run("udevadm", "trigger", "--action=change", f"/sys/class/net/{name}")
    assert marks(database(name)) == MARKS


def test_a_function_that_came_home_by_itself_is_marked_under_each_name(card):
    """As net1, and when it has its old name again."""
    path = Path(f"/sys/bus/pci/devices/{card.pci}/net")
    with in_pod(card):
        pass
    run("ip", "netns", "delete", POD)
    until((path / "net1").exists)
    assert marks(database("net1")) == MARKS
    with open_pod(None) as pod:
        pod.undo(back(card))
    assert marks(database(card.link.name)) == MARKS


@pytest.mark.parametrize("action", ["add", "change", "move"])
def test_udevadm_says_what_each_event_would_set(card, action):
    """Read by udev itself, with the rules that Debian has beside the shipped ones."""
    told = run("udevadm", "test", f"--action={action}", str(NET / card.link.name))
    assert marks(properties(told)) == MARKS


def test_cards_of_the_node_are_not_marked(card):
    """The physical function above, and a card that has none."""
    for mac in (PHYSICAL_FUNCTION, CARDS[0]):
        assert marks(database(interface(mac))) == {}


class BesideTheDaemon(RealWorld):
    """The node counts when the daemon, too, has done what it wants to do."""

    def node_link(self, name):
        settle()
        return super().node_link(name)

    def node_addresses(self, name):
        settle()
        return super().node_addresses(name)


@pytest.fixture(scope="module")
def function(udevd):
    with one_function() as made:
        yield made


@pytest.fixture
def world(function):
    """The function is called vf0, which the daemon has seen: it knows another name for it."""
    settle()
    with real_world(function, BesideTheDaemon) as made:
        settle()
        assert names_of(made.card.link.name)
        yield made
        settle()


@contextmanager
def heard(path):
    """What the kernel tells of interfaces meanwhile: its words, in a file."""
    words = ("udevadm", "monitor", "--kernel", "--subsystem-match=net")
    with path.open("wb") as out, subprocess.Popen(words, stdout=out) as monitor:
        try:
            until(lambda: b"KERNEL" in path.read_bytes())
            yield lambda: re.findall(r"KERNEL\[.*?\] (\w+) +\S*/net/(\S+) ", path.read_text())
        finally:
            monitor.kill()


def test_the_daemon_hears_of_a_card_under_its_own_name_alone(world, tmp_path):
    """It hears of net1 else, and may have begun to name that when it is called otherwise."""
    name = world.card.link.name
    with heard(tmp_path / "events") as events, world.open() as pod:
        pod.run(world.card)
        pod.run(SetLink("net1"))
        pod.undo(back(world.card))
        last = ("change", interface(CARDS[0]))
        run("udevadm", "trigger", f"--action={last[0]}", str(NET / last[1]))
        until(lambda: last in events())
        assert events() == [("remove", name), ("add", name), last]


class TestLinks(Links):
    """All that a card's way into a pod and home is to mean, while the daemon sees each event."""
