"""Checks whether this machine's kernel can run native nodes, feature by feature.

kube_rdma_lab/preflight.py calls it before anything is built. A try runs in namespaces of its own.
What stays is a higher limit of inotify instances, where it was too low, and that control groups of
v2 pass controllers down.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.inotify import open_inotify
from kube_rdma_lab.native import cgroups

NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--")
# A feature and what tries it in a shell; $1 is an empty folder.
FEATURES = {
    "namespaces for network, mounts, processes, names, IPC and control groups": "true",
    "veth interfaces (CONFIG_VETH)": "ip link add dev left type veth peer name right",
    "bridges (CONFIG_BRIDGE)": "ip link add dev left type bridge",
    "message queues (CONFIG_POSIX_MQUEUE)": 'mount -t mqueue mqueue "$1"',
    "pseudo terminals of a namespace": 'mount -t devpts -o newinstance devpts "$1"',
    "overlay file systems on tmpfs (CONFIG_OVERLAY_FS, CONFIG_TMPFS_XATTR)": (
        'mount -t tmpfs tmpfs "$1" && cd "$1" && mkdir a b c d'
        " && mount -t overlay -o lowerdir=a,upperdir=b,workdir=c overlay d"
    ),
    "device nodes made by root (CAP_MKNOD)": (
        'mount -t tmpfs tmpfs "$1" && mknod "$1/null" c 1 3 && : >"$1/null"'
    ),
    "packets of bridges in iptables (CONFIG_BRIDGE_NETFILTER)": (
        "test -e /proc/sys/net/bridge/bridge-nf-call-iptables"
    ),
}
CARDS = Path("/sys/class/infiniband")
# Inotify instances are counted per user, and all nodes are this machine's root. A kubelet opens
# six, containerd two, kube-proxy one, an agent a few; without one a kubelet crashes at each start.
INSTANCES = 16
ENOUGH = 1024  # for several labs side by side; kernels begin with 128
LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")


def check(nodes: int, *, trees: bool, features: Mapping[str, str] = FEATURES) -> None:
    """Raise Refused for the first feature that this machine lacks for `nodes` native nodes.

    `trees` says whether nodes show cards of a tree, whose device nodes have the numbers of real
    ones.
    """
    with tempfile.TemporaryDirectory(prefix="kube-rdma-") as folder:
        for feature, script in features.items():
            words = (*NAMESPACES, "sh", "-c", script, "try", folder)
            if subprocess.run(words, capture_output=True, check=False).returncode:
                raise Refused(
                    f"this machine's kernel has no {feature}, which native nodes need",
                    remedy="Load its module, or use a topology of machines",
                )
    cgroups.check()
    _check_inotify(nodes * INSTANCES)
    if trees and CARDS.is_dir() and any(CARDS.iterdir()):
        raise Refused(
            "this machine has RDMA cards, which the device nodes of a tree's would open",
            remedy="Leave the trees out of a topology of your own, or use one of machines",
        )


def _check_inotify(count: int) -> None:
    """Raise Refused if `count` inotify instances cannot be open at once.

    The limit is raised where this process may: labs that boot at the same time notice each other
    too late. No more than the limit is tried, for that would take the last ones from others.
    """
    if int(LIMIT.read_text()) < ENOUGH:
        with suppress(OSError):  # read-only in many containers
            LIMIT.write_text(f"{ENOUGH}\n")
    refusal = Refused(
        f"this machine's root may not open {count} more inotify instances",
        remedy="Raise it (sysctl -w fs.inotify.max_user_instances=1024), or start fewer nodes",
    )
    if count > int(LIMIT.read_text()):
        raise refusal
    with ExitStack() as stack:
        try:
            for _ in range(count):
                stack.callback(open_inotify().close)
        except Unavailable:
            raise refusal from None
