"""What the agent and a pod do on a node, one act after the other: a program for a container.

test_selinux runs it with one domain after the other and compares what each may do. It prints a JSON
object: of each act what the kernel answered, empty where it did it. Paths are those of the rendered
manifests, below /host where they mount the host's folders there.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

from asyncinotify import Mask

from kube_base import os_files
from kube_rdma.adapters.cni.conf import places
from kube_rdma.adapters.inotify import open_inotify
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.hardware.survey import take_survey
from kube_rdma.model.attach import steps as s
from kube_rdma.model.device import PlannedHostLink as Host

HOST = Path("/host")
CONF, BIN = HOST / "etc/cni/net.d", HOST / "opt/cni/bin"
PLUGINS = Path("/var/lib/kubelet/device-plugins")
POD = Path("/var/run/netns/pod")
NAME = "kube-rdma c/net1"


def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def write_configuration():
    os_files.replace(CONF / "10-test.conflist", b"{}", 0o644)
    assert (CONF / "10-test.conflist").read_bytes() == b"{}"


def watch_configuration():
    with open_inotify() as inotify:
        inotify.add_watch(CONF, Mask.CREATE)


def install_plugin():
    places.install(places.shim(), BIN)


def run_foreign_plugin():
    """As the agent runs other networks' plugins: in the host's tree, by CAP_SYS_CHROOT."""
    subprocess.run(("chroot", HOST, "/opt/cni/bin/true"), check=True, capture_output=True)


def register_with_kubelet():
    connect(PLUGINS / "kubelet.sock")


def listen_for_kubelet():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(PLUGINS / "rdma_hca.sock"))
        server.listen()
    (PLUGINS / "rdma_hca.sock").unlink()


def ask_kubelet_for_pods():
    connect("/var/lib/kubelet/pod-resources/kubelet.sock")


def ask_runtime():
    connect("/run/containerd/containerd.sock")


def listen_for_shim():
    server = socket.socket(socket.AF_UNIX)
    fresh = Path("/run/kube-rdma/.agent.sock.new")
    server.bind(str(fresh))
    server.listen()
    fresh.rename("/run/kube-rdma/agent.sock")


def write_cdi():
    os_files.replace(Path("/var/run/cdi/kube-rdma.json"), b"{}", 0o644)


def write_state():
    os_files.replace(Path("/var/lib/kube-rdma/record"), b"{}", 0o600)


def write_device_information():
    folder = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")
    folder.mkdir(parents=True, exist_ok=True)
    os_files.replace(folder / "x.json", b"{}", 0o644)


def write_foreign_state():
    os_files.replace(HOST / "var/lib/cni/kube-rdma", b"{}", 0o644)


def survey():
    assert [device.name for device in take_survey().devices] == ["rxe0"]


def attach():
    """A virtual link with a Soft-RoCE device, made in the pod's namespace and taken away again."""
    parent = sys.argv[1]
    address = ip_address("10.9.0.1")
    with open_pod(POD) as namespace:
        link = Host(int(Path("/sys/class/net", parent, "ifindex").read_text()), parent)
        for step in (
            s.MakeLink(s.VirtualKind.MACVLAN, link, "net1", NAME, "bridge", 1400, None),
            s.SetLink("net1"),
            s.AddAddress("net1", address, 24),
            s.SetSysctl("net/ipv4/conf/net1/arp_ignore", "1"),
            s.MakeRdma("rxe-pod", "rxe", "net1"),
            s.AwaitGid("rxe-pod", "net1", address),
        ):
            namespace.run(step)
        namespace.undo(s.RemoveRdma("rxe-pod"))
        namespace.undo(s.RemoveLink("net1", NAME))


def make_functions():
    """Write a card's number of functions anew."""
    path = Path(sys.argv[2])
    with path.open("w") as file:
        file.write("0")


def see_devices_of_node():
    Path("/host/dev/infiniband/uverbs0").stat()


def use_device_of_node():
    os.close(os.open("/host/dev/infiniband/uverbs0", os.O_RDWR))


def use_device_of_container():
    """A node that the runtime made for the container, as it makes those that Allocate names."""
    os.close(os.open("/dev/infiniband/uverbs0", os.O_RDWR))


ACTS = (
    write_configuration, watch_configuration, install_plugin, run_foreign_plugin,
    register_with_kubelet, listen_for_kubelet, ask_kubelet_for_pods, ask_runtime, listen_for_shim,
    write_cdi, write_state, write_device_information, write_foreign_state, survey, attach,
    make_functions, see_devices_of_node, use_device_of_node, use_device_of_container,
)  # fmt: skip


def main():
    answers = {}
    for act in ACTS:
        try:
            act()
            answers[act.__name__] = ""
        except Exception as error:  # noqa: BLE001  the test compares what came of each
            answers[act.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
