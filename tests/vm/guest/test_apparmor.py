"""AppArmor enforces a profile like that of container runtimes: what the agent can do, and cannot.

Debian's kernel has it; the profile forbids mounts, and writing below /sys and most of /proc, as
Ubuntu's nodes do it to every container that does not say Unconfined.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_rdma_testing.kubelet.kubelet import FakeKubelet

from .test_agent import HCA, SHARES, make
from .test_steps import POD, RealWorld, numbers, one_function, real_world
from .world import AGENT, PATIENCE, PHYSICAL_FUNCTION, interface, run

SECURITY = Path("/sys/kernel/security")
NAME = "kube-rdma-container"
PROFILE = f"""
profile {NAME} flags=(attach_disconnected,mediate_deleted) {{
  network,
  capability,
  file,
  umount,
  signal,
  ptrace,
  unix,
  deny mount,
  deny /proc/sys/** w,
  deny /proc/sysrq-trigger rwklx,
  deny /sys/** wklx,
}}
"""
# Becomes what it is told to run, with the profile from its first instruction on.
CONFINED = ("sh", "-c", f'echo "exec {NAME}" > /proc/self/attr/exec && exec "$@"', "sh")
# A pod gets a virtual link with a Soft-RoCE device and a function, and gives all of it back.
WORK = """
import sys
from ipaddress import ip_address
from pathlib import Path

from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.model.device import PciAddress
from kube_rdma.model.device import PlannedHostLink as Host
from kube_rdma.model.attach import steps as s

pod, nothing, parent, index, name, pci, mtu, mac = sys.argv[1:]
address = ip_address("10.9.0.1")
card = s.TakeLink(Host(int(index), name), "net2", PciAddress(pci), int(mtu), mac, up=False)
with open_pod(Path(pod), rdma=Path(nothing)) as namespace:
    link = Host(int(Path("/sys/class/net", parent, "ifindex").read_text()), parent)
    for step in (
        s.MakeLink(s.VirtualKind.MACVLAN, link, "net1", "kube-rdma c/net1", "bridge", 1400, None),
        s.SetLink("net1"),
        s.AddAddress("net1", address, 24),
        s.SetSysctl("net/ipv4/conf/net1/arp_ignore", "1"),
        s.MakeRdma("rxe-pod", "rxe", "net1"),
        s.AwaitGid("rxe-pod", "net1", address),
        card,
        s.SetLink("net2", 1400),
    ):
        namespace.run(step)
    seen = namespace.look()
    print(Path("/proc/self/attr/current").read_text().strip())
    print(*sorted(link.name for link in seen.links if link.name.startswith("net")))
    namespace.undo(s.RemoveRdma("rxe-pod"))
    namespace.undo(s.RemoveLink("net1", "kube-rdma c/net1"))
    namespace.undo(s.GiveBackLink(card.link, card.name, card.pci, card.mtu, card.mac, card.up))
"""


@pytest.fixture(scope="module", autouse=True)
def profile():
    """Loaded while this file's tests run."""
    if not (SECURITY / "apparmor").exists():
        run("mount", "-t", "securityfs", "securityfs", str(SECURITY))
    assert Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"
    load("--replace")
    yield
    load("--remove")


def load(act):
    words = ("apparmor_parser", act, "--skip-cache")
    done = subprocess.run(
        words, input=PROFILE, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def host_proc():
    """The node's /proc beside the container's, as the manifests mount it."""
    Path("/host/proc").mkdir(parents=True, exist_ok=True)
    run("mount", "--bind", "/proc", "/host/proc")
    yield
    run("umount", "/host/proc")


@pytest.fixture(scope="module")
def function():
    with one_function() as made:
        yield made


@pytest.fixture
def world(function):
    with real_world(function, RealWorld) as made:
        yield made


def confined(*words):
    """What a confined program did."""
    return subprocess.run(
        [*CONFINED, *words], capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_the_profile_is_enforced():
    """A function of a card cannot be made by way of /sys, nor a node's switch set by /proc/sys."""
    assert confined("cat", "/proc/self/attr/current").stdout.strip() == f"{NAME} (enforce)"
    for path in (numbers(interface(PHYSICAL_FUNCTION)), Path("/proc/sys/net/ipv4/ip_forward")):
        before = path.read_text()
        refused = confined("sh", "-c", f"echo {before.strip()} > {path}")
        assert refused.returncode
        assert "ermission denied" in refused.stderr
        path.write_text(before)  # who is not confined may


def test_a_pod_gets_all_of_its_network(world, host_proc, tmp_path):
    """Links move, an RDMA device is made, and read in the pod's own sysfs: the node shows none."""
    card = world.card
    facts = (card.link.index, card.link.name, card.pci, card.mtu, card.mac)
    words = (f"/run/netns/{POD}", str(tmp_path), world.parent.name, *map(str, facts))
    done = confined(sys.executable, "-c", WORK, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{NAME} (enforce)", "net1 net2"]
    assert world.node_link(card.link.name) == (card.mtu, card.mac, False)


@contextmanager
def configured(folder):
    (folder / "config.json").write_text('{"mode": "hca"}')
    (folder / "kubelet" / "device-plugins").mkdir(parents=True)
    yield ("--config", folder / "config.json", "--kubelet-root", folder / "kubelet")


def profile_of(pid):
    return Path(f"/proc/{pid}/attr/current").read_text().strip()


async def test_the_device_plugin_offers_and_gives_its_cards(cards, link, tmp_path):
    """The agent's own process, confined, beside a kubelet."""
    make(link, cards[0])
    with configured(tmp_path) as options, (tmp_path / "log").open("wb") as log:
        async with FakeKubelet(tmp_path / "kubelet" / "device-plugins") as kubelet:
            words = (*CONFINED, *AGENT, *map(str, options))
            process = await asyncio.create_subprocess_exec(*words, stderr=log)
            try:
                await kubelet.until(lambda: kubelet.healthy(HCA) == SHARES, PATIENCE)
                told = profile_of(process.pid)
                answer = await kubelet.allocate(HCA, 1)
            finally:
                process.terminate()
                await process.wait()
    assert told == f"{NAME} (enforce)"
    assert {spec.host_path for spec in answer.devices} >= {"/dev/infiniband/uverbs0"}
