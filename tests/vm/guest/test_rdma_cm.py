"""Which RDMA device RDMA_CM takes for an address of a pod's macvlan: the first that has its GID.

The kernel gives the GID of a macvlan's address to the device of the card below it, too
(drivers/infiniband/core/roce_gid_mgmt.c, upper devices), and cma_acquire_dev_by_src_ip (cma.c) goes
through all devices in the order in which they came. A card of silicon is the only device that there
is. A pod of the lab has a Soft-RoCE device of its own besides, and no device node of the card's, so
it cannot connect.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .world import CARDS, inside, interface, links, run, until

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

POD = "rdma-cm"
ADDRESS = "10.9.0.1"
PODS_DEVICE, CARDS_DEVICE = "rxe-pod", "rxe-card"
# Prints the event that an address's resolution ends with, and the device that it is about.
RESOLVE = """
import ctypes, socket, struct, sys
cm, verbs = ctypes.CDLL("librdmacm.so.1"), ctypes.CDLL("libibverbs.so.1")
cm.rdma_create_event_channel.restype = ctypes.c_void_p
cm.rdma_event_str.restype = verbs.ibv_get_device_name.restype = ctypes.c_char_p
channel = ctypes.c_void_p(cm.rdma_create_event_channel())
identity, event = ctypes.c_void_p(), ctypes.c_void_p()
assert cm.rdma_create_id(channel, ctypes.byref(identity), None, 0x0106) == 0  # RDMA_PS_TCP
address = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(sys.argv[1]))
assert cm.rdma_resolve_addr(identity, None, address, 60_000) == 0
assert cm.rdma_get_cm_event(channel, ctypes.byref(event)) == 0
told = ctypes.cast(event, ctypes.POINTER(ctypes.c_int))[4]  # struct rdma_cm_event: event
context = ctypes.cast(identity, ctypes.POINTER(ctypes.c_void_p))[0]  # struct rdma_cm_id: verbs
name = b""
if context:
    device = ctypes.cast(context, ctypes.POINTER(ctypes.c_void_p))[0]  # struct ibv_context: device
    name = verbs.ibv_get_device_name(ctypes.c_void_p(device))
print(cm.rdma_event_str(told).decode(), name.decode())
"""


@pytest.fixture(autouse=True)
def pod():
    """A pod with a macvlan on a card, each with a Soft-RoCE device."""
    card = interface(CARDS[0])
    run("ip", "link", "set", card, "up")
    run("ip", "netns", "add", POD)
    run("rdma", "link", "add", CARDS_DEVICE, "type", "rxe", "netdev", card)
    run(
        "ip", "link", "add", "net1", "netns", POD, "link", card, "type", "macvlan", "mode", "bridge"
    )
    run("ip", "-n", POD, "address", "add", f"{ADDRESS}/24", "dev", "net1")
    for name in ("lo", "net1"):
        run("ip", "-n", POD, "link", "set", name, "up")
    run(*inside(POD), "rdma", "link", "add", PODS_DEVICE, "type", "rxe", "netdev", "net1")
    yield
    if CARDS_DEVICE in links():
        run("rdma", "link", "delete", CARDS_DEVICE)
    run("ip", "netns", "delete", POD)
    until(lambda: PODS_DEVICE not in links())


def resolved(*before):
    """What RDMA_CM answers in the pod about its own address."""
    words = (sys.executable, "-c", RESOLVE, ADDRESS)
    return run(*inside(POD), *before, *words).split()


def test_the_card_s_device_comes_first_for_it_was_there_first():
    assert resolved() == ["RDMA_CM_EVENT_ADDR_RESOLVED", CARDS_DEVICE]


def test_without_it_the_pod_s_own_is_taken():
    run("rdma", "link", "delete", CARDS_DEVICE)
    assert resolved() == ["RDMA_CM_EVENT_ADDR_RESOLVED", PODS_DEVICE]


def test_a_container_without_the_card_s_device_node_gets_an_error(tmp_path):
    """The library opens the device that the kernel chose; perftest asks again, and is refused."""
    (name,) = (
        path.parent.name
        for path in Path("/sys/class/infiniband_verbs").glob("*/ibdev")
        if path.read_text().strip() == CARDS_DEVICE
    )
    hide = f"mount -t tmpfs none {tmp_path}; cp -a /dev/infiniband/. {tmp_path}; "
    hide += f'rm {tmp_path}/{name}; mount --bind {tmp_path} /dev/infiniband; exec "$@"'
    assert resolved("unshare", "--mount", "sh", "-ec", hide, "sh") == ["RDMA_CM_EVENT_ADDR_ERROR"]
