"""systemd-networkd and NetworkManager themselves, as Debian has them, on a node with the files.

Both are told to give every Ethernet interface an address, as images of clouds do. What they do to
a card's function without the files of config/node-files is shown first, then what they leave alone
with them. That udev marks virtual functions is shown in the machine, which has some
(tests/vm/guest/test_udev.py); here the mark is for an interface by its name.
"""

from pathlib import Path

import pytest

from kube_rdma_lab.build import resolution
from kube_rdma_lab.build.parts import open_store
from tests.kit import network_managers as kit

FILES = Path(__file__).parents[3] / "config/node-files"
RULES, NETWORK = "10-kube-rdma-unmanaged.rules", "05-kube-rdma-unmanaged.network"
ADDRESS = "10.99.0.1"
# NetworkManager's own rules keep it from veth with other names.
CARD, FUNCTION, LATER, IN_POD = "eth0", "eth1", "eth2", "net1"
EVERY_INTERFACE = f"""[Match]
Type=ether
[Network]
Address={ADDRESS}/24
LinkLocalAddressing=no
ConfigureWithoutCarrier=yes
"""
EVERY_DEVICE = f"""[connection]
id=all
type=ethernet
multi-connect=3
[ipv4]
method=manual
address1={ADDRESS}/24
[ipv6]
method=disabled
"""


class Networkd:
    """systemd-networkd."""

    program = ("/usr/lib/systemd/systemd-networkd",)

    @staticmethod
    def leaves(node, name):
        """Whether it has told that it does not manage an interface."""
        path = node.root / f"run/systemd/netif/links/{node.link(name)['ifindex']}"
        return path.exists() and "ADMIN_STATE=unmanaged" in path.read_text()

    @staticmethod
    def let_go(node, name):
        """The word of docs/nodes.md, again until networkd has read udev's event."""

        def reloaded():
            node.run("networkctl", "reload")
            return Networkd.leaves(node, name)

        node.until(reloaded)


class NetworkManager:
    """NetworkManager."""

    program = ("NetworkManager", "--no-daemon")

    @staticmethod
    def leaves(node, name):
        """Whether it has told that it does not manage an interface."""
        told = node.run("nmcli", "-t", "-f", "DEVICE,STATE", "device", check=False)
        return f"{name}:unmanaged" in told.splitlines()

    @staticmethod
    def let_go(node, name):
        """The words of docs/nodes.md."""
        node.run("nmcli", "device", "disconnect", name)
        node.run("nmcli", "device", "set", name, "managed", "no")


@pytest.fixture(scope="module")
def installed(machine):
    with open_store() as store:
        yield kit.tree(store, resolution.stamp(update=False))


@pytest.fixture(params=[Networkd, NetworkManager])
def manager(request):
    return request.param


@pytest.fixture
def node(installed, manager, tmp_path):
    """A node whose manager does not run yet."""
    with kit.node(installed, tmp_path) as made:
        made.write("/etc/systemd/network/50-all.network", EVERY_INTERFACE)
        made.write("/etc/NetworkManager/system-connections/all.nmconnection", EVERY_DEVICE)
        yield made


def install(node):
    """The shipped files; the rules mark the interface by its name, for it is no function."""
    rules = (FILES / RULES).read_text()
    assert rules.count('TEST=="device/physfn"') == 1
    marked = rules.replace('TEST=="device/physfn"', f'KERNEL=="{FUNCTION}|{LATER}|{IN_POD}"')
    node.write(f"/run/udev/rules.d/{RULES}", marked)
    node.write(f"/etc/systemd/network/{NETWORK}", (FILES / NETWORK).read_text())
    node.read_rules()


def add_card(node):
    """A card and its function, which the programs see come."""
    node.run("ip", "link", "add", FUNCTION, "type", "veth", "peer", "name", CARD)
    node.run("ip", "link", "set", CARD, "up")
    node.settle()


def addressed(node, name):
    """Whether an interface has the address that the manager gives to all."""
    return ADDRESS in {shown.get("local") for shown in node.link(name)["addr_info"]}


def test_without_the_files_it_takes_a_function(node, manager):
    """So the files are needed, and what the other tests see is theirs."""
    node.start(*manager.program)
    add_card(node)
    node.until(lambda: addressed(node, FUNCTION))


def test_with_the_files_it_leaves_a_function_alone_and_manages_the_card(node, manager):
    """When the function is new, and when it came home from a pod, under another name too."""
    install(node)
    node.start(*manager.program)
    add_card(node)
    node.until(lambda: manager.leaves(node, FUNCTION))
    node.run("ip", "netns", "add", "pod")
    name = FUNCTION
    for home in (FUNCTION, LATER):
        node.run("ip", "link", "set", name, "netns", "pod", "name", IN_POD)
        node.run("ip", "-n", "pod", "link", "set", IN_POD, "netns", "1", "name", home)
        name = home
        node.run("ip", "link", "set", name, "up")
        node.until(lambda: manager.leaves(node, home))  # noqa: B023  called at once
        assert not addressed(node, name)
    node.until(lambda: addressed(node, CARD))
    assert not manager.leaves(node, CARD)


def test_files_that_come_later_count_after_the_words_of_the_page(node, manager):
    """On a node whose function the manager has taken already."""
    node.start(*manager.program)
    add_card(node)
    node.until(lambda: addressed(node, FUNCTION))
    install(node)
    node.run("udevadm", "trigger", "--subsystem-match=net", "--action=change")
    node.settle()
    manager.let_go(node, FUNCTION)
    node.until(lambda: manager.leaves(node, FUNCTION))
    node.until(lambda: not addressed(node, FUNCTION))
    assert addressed(node, CARD)
