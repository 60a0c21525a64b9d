"""The CNI configuration of a node: its files, who calls kube-rdma, and what has to change for it.

adapters/cni/conf reads and writes the folder, attach/rules/cni_conf/conflist decides what it should
hold.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen

PLUGIN = "kube-rdma"  # its type in a configuration, and so the name of the binary on the host
IPAM_PLUGIN = "kube-rdma-ipam"  # its type in an ``ipam`` block: the same binary by a second name
HOOK_PROGRAM = "kube-rdma-hook"  # the same binary again, for CDI files alone
CHAINED = "chain"  # the key by which kube-rdma's entry in the cluster's list says that it is that
BUILT_IN = (
    "builtIn"  # the key of kube-rdma's own configuration `rdma`, which has nothing else to say
)

ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
"""The capability by which containerd and CRI-O tell a plugin the pod's annotations."""


class Wiring(StrEnum):
    """Who calls kube-rdma for a pod (docs/decisions/0010)."""

    CHAIN = "chain"  # the runtime, behind the cluster's own plugin
    DELEGATE = "delegate"  # a meta-plugin such as Multus, for the networks that a pod names
    NONE = "none"  # nobody yet: the cluster's network is not installed


class ConfFile(Frozen):
    """One file of the folder by its name, without the folder."""

    name: str
    text: str


class ConfPlan(Frozen):
    """What the folder should become. `default` is the file that the runtime takes before it.

    Nothing to write and nothing to remove: all is as it should be. `readers` are the annotations
    that meta-plugins read, each with the product; `notes` are sentences about files of others.
    `missing` are plugins of the default that are not beside kube-rdma's: the runtime has them
    elsewhere. `guard` is a product in the default that may keep all others out of the folder, so
    what is written counts only when it has stood for a while.
    """

    wiring: Wiring
    default: str = ""
    writes: tuple[ConfFile, ...] = ()
    removes: tuple[str, ...] = ()
    readers: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    guard: str = ""

    @property
    def changes(self) -> bool:
        """Whether anything has to be done."""
        return bool(self.writes or self.removes)


SET_ASIDE = ".cilium_bak"  # what Cilium puts behind the name of a file that no runtime shall read


class Undone(Frozen):
    """What became of kube-rdma's writes to the folder.

    `at_once` counts those, in a row, that somebody undid within a second; `set_aside` are files of
    kube-rdma that got SET_ASIDE behind their names.
    """

    at_once: int = 0
    set_aside: tuple[str, ...] = ()
