"""A node on which SELinux enforces: policy, labels, runtime and kubelet, containers.

Only what the tests are about has labels of its own. The machine's programs have one for all, by an
overlay, because to label each file of a disk takes longer than the tests; so do a container's, as
runtimes do it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from .world import CARDS, PHYSICAL_FUNCTION, interface, run, until

SELINUX = Path("/sys/fs/selinux")
POLICY = Path("/etc/selinux/default")
CONTEXTS = POLICY / "contexts/files/file_contexts"
# The policy's names for containerd and the kubelet.
RUNTIME, KUBELET = "dockerd_t", "kubelet_t"
PLUGINS = "/var/lib/kubelet/device-plugins"
POD_RESOURCES = "/var/lib/kubelet/pod-resources"
# What a node has before its runtime starts, with the label that the policy gives it by its path.
LABELLED = (
    "/", "/etc", "/etc/cni", "/etc/cni/net.d", "/opt", "/opt/cni", "/opt/cni/bin", "/run", "/tmp",
    "/run/containerd", "/run/netns", "/var", "/var/lib", "/var/lib/cni", "/var/lib/kubelet",
    PLUGINS, POD_RESOURCES, "/dev", "/dev/infiniband",
)  # fmt: skip
NODES = ("null", "zero", "random", "urandom")
# Missing folders of the host, which the runtime makes for the first container that has them.
MADE = ("/run/kube-rdma", "/run/cdi", "/run/k8s.cni.cncf.io", "/var/lib/kube-rdma")
# The agent's mounts, as in examples/s3-network/agent.yaml.
VOLUMES = {
    **{path: path for path in (*MADE, "/run/containerd", "/run/netns", PLUGINS, POD_RESOURCES)},
    **{f"/host{path}": path for path in ("/etc/cni/net.d", "/opt/cni/bin", "/var/lib/cni")},
    **{f"/host{path}": path for path in ("/dev", "/proc")},
}
ROOTS = Path("/run/containers")
EMPTY = Path("/run/empty")
FOREIGN = Path("/opt/cni/bin/true")  # a plugin of others: does nothing


def label_of(path):
    """The label of a file, as the kernel has it."""
    return os.getxattr(path, "security.selinux", follow_symlinks=False).decode().rstrip("\0")


def wanted_label(path):
    """The label that the policy gives to a file of this path; None where it leaves it as it is."""
    text = run("matchpathcon", "-n", "-f", str(CONTEXTS), str(path)).strip()
    return None if text == "<<none>>" else text


def set_label(path):
    """Give a file the label that it should have, as a node's installation does."""
    if label := wanted_label(path):
        os.setxattr(path, "security.selinux", label.encode(), follow_symlinks=False)


def decides(source, target, kind, permission):
    """Whether the loaded policy allows it, answered by the kernel."""
    folder = SELINUX / "class" / kind
    number = int((folder / "perms" / permission).read_text())
    with (SELINUX / "access").open("r+b", buffering=0) as file:
        file.write(f"{source} {target} {(folder / 'index').read_text()}".encode())
        allowed = int(file.read(4096).split()[0], 16)
    return bool(allowed >> (number - 1) & 1)


def enforce(on):
    """Refuse from now on what the policy does not allow, or only note it."""
    (SELINUX / "enforce").write_text(str(int(on)))


def load():
    """Load the policy, in one piece as the kernel wants it; nothing is enforced yet."""
    mount("selinuxfs", SELINUX)
    (policy,) = (POLICY / "policy").iterdir()
    with (SELINUX / "load").open("wb", buffering=0) as file:
        file.write(policy.read_bytes())


def mount(kind, target, options="rw"):
    """Mount; by busybox, for libmount forgets labels where there is no /etc/selinux/config."""
    run("busybox", "mount", "-t", kind, "-o", options, kind, str(target))


def labelled(tree, context):
    """Options of an overlay that shows a tree with this label on every file."""
    return f'lowerdir={EMPTY}:{tree},context="system_u:object_r:{context}"'


class Program:
    """selinux_runtime.py in a domain; its orders are methods."""

    def __init__(self, domain):
        def enter():
            Path("/proc/self/attr/exec").write_text(f"system_u:system_r:{domain}:s0")

        path = f"/run/{domain}"
        words = (sys.executable, "-m", "tests.vm.guest.selinux_runtime", path)
        self._process = subprocess.Popen(words, preexec_fn=enter)  # noqa: PLW1509
        self._socket = until(lambda: self._connect(path))
        self._lines = self._socket.makefile("rw")

    def _connect(self, path):
        assert self._process.poll() is None, "it has ended"
        caller = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            caller.connect(path)
            return caller
        caller.close()
        return None

    def __getattr__(self, order):
        def ask(**options):
            print(json.dumps([order, options]), file=self._lines, flush=True)
            answer = json.loads(self._lines.readline())
            assert "error" not in answer, answer["error"]
            return answer["answer"]

        return ask

    def end(self):
        """Hang up, and wait for its end."""
        self._lines.close()
        self._socket.close()
        self._process.wait()


class Node:
    """The node; `container` makes one, which `runtime` runs programs in."""

    def __init__(self):
        load()
        for folder in (EMPTY, Path("/host")):
            folder.mkdir()
        for path in LABELLED:
            Path(path).mkdir(parents=True, exist_ok=True)
            set_label(path)
        self._add_card()
        self._add_programs()
        self.runtime, self.kubelet = Program(RUNTIME), Program(KUBELET)
        self.runtime.listen(path="/run/containerd/containerd.sock")
        self.kubelet.listen(path=f"{POD_RESOURCES}/kubelet.sock")
        self.kubelet.listen(path=f"{PLUGINS}/kubelet.sock")
        run("ip", "netns", "add", "pod")
        enforce(True)
        for path in MADE:
            self.runtime.make_folder(path=path)

    @staticmethod
    def _add_card():
        card = interface(CARDS[0])
        run("ip", "link", "set", card, "up")
        run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", card)
        until(Path("/dev/infiniband/uverbs0").exists)
        for path in (*Path("/dev/infiniband").iterdir(), *(Path("/dev", name) for name in NODES)):
            set_label(path)

    @staticmethod
    def _add_programs():
        """All programs can be run by anybody; a plugin has the label of its folder."""
        FOREIGN.write_bytes(Path("/usr/bin/busybox").read_bytes())
        FOREIGN.chmod(0o755)
        set_label(FOREIGN)
        mount("overlay", "/usr", labelled("/usr", "bin_t:s0"))
        mount("overlay", "/lab", labelled("/lab", "usr_t:s0"))

    def container(self, domain, categories):
        """What the runtime is told of a container: its root, with devices of its own, its label."""
        root = ROOTS / f"{domain}-{categories}"
        root.mkdir(parents=True)
        context = f"container_file_t:s0:{categories}"
        mount("overlay", root, labelled("/", context))
        for name in ("tmp", "dev", "run", "var", "host"):
            mount("tmpfs", root / name, f'context="system_u:object_r:{context}"')
        for name in ("infiniband/uverbs0", *NODES):
            (root / "dev" / name).parent.mkdir(exist_ok=True)
            facts = Path("/dev", name).stat()
            os.mknod(root / "dev" / name, facts.st_mode, facts.st_rdev)
        (root / "var/run").symlink_to("/run")
        for target, source in {"/sys": "/sys", "/proc": "/proc", **VOLUMES}.items():
            Path(f"{root}{target}").mkdir(parents=True, exist_ok=True)
            run("busybox", "mount", "-o", "rbind", source, f"{root}{target}")
        return {"root": str(root), "label": f"system_u:system_r:{domain}:s0:{categories}"}

    def answers(self, container):
        """What came of each act of selinux_acts.py in a container; empty where it was done."""
        physical = Path("/sys/class/net", interface(PHYSICAL_FUNCTION))
        facts = (interface(CARDS[0]), str(physical / "device/sriov_numvfs"))
        words = (sys.executable, "-m", "tests.vm.guest.selinux_acts", *facts)
        status, printed, complaint = self.runtime.run(words=python(words), **container)
        assert status == 0, complaint
        return json.loads(printed)

    def close(self):
        """Enforce nothing any more; the machine ends behind these tests."""
        enforce(False)
        for program in (self.kubelet, self.runtime):
            program.end()


def python(words):
    """A program of this checkout, from the folder where the machine has it."""
    return ("env", "-C", "/lab", *words)
