"""Defines what is promised at Allocate and bound when a pod's network is attached.

The kubelet asks for a container's devices before the pod has a network, so Allocate only names a
CDI device (Promise). The meaning of that name is written later (Binding), and the runtime looks it
up when it creates the container (docs/decisions/0009). Both are journalled.
attach/rules/late_binding decides about them, adapters/runtime writes the CDI files.
"""

from __future__ import annotations

import re
from typing import NewType

from kube_base.frozen import Frozen
from kube_rdma.model.card import CardId
from kube_rdma.model.kubernetes import NamespacedName
from kube_rdma.model.pools import FileMount, ShareId
from kube_rdma.model.settings import PlacedNet

Nonce = NewType("Nonce", str)
"""A random text that differs for each Allocate call: lower-case letters and digits."""

ContainerId = NewType("ContainerId", str)
"""CNI_CONTAINERID: the sandbox of a pod, never one of its containers. Fresh for each sandbox."""

HeldShare = tuple[str, ShareId]
"""The resource and the id of a share, for two resources may use the same ids."""

CDI_KIND = "kube-rdma.io/hca"
SETTINGS_KIND = "kube-rdma.io/settings"
"""Kind of CDI devices that are settings alone (attach/rules/settings)."""


def cdi_name(shares: tuple[ShareId, ...], nonce: Nonce) -> str:
    """Return the qualified name of the CDI device of an Allocate call, named after its first share.

    A device name begins and ends with a letter or digit and has ``_ - . :`` inside (CDI SPEC.md).
    Other characters of the share, as the @ of a soft device, become ``_``.
    """
    share = re.sub(r"[^A-Za-z0-9_.:-]", "_", shares[0]).lstrip("_.:-")
    return f"{CDI_KIND}={share}-{nonce}" if share else f"{CDI_KIND}={nonce}"


def at_start(nonce: Nonce) -> ContainerId:
    """Return the id that a Binding has as `container` if no CNI call made it."""
    return ContainerId(f"start-{nonce}")


class PodName(NamespacedName):
    """The namespace and name of a pod, without its uid, as the kubelet's pod resources have it."""


class Promise(Frozen):
    """The answer to an Allocate call: a CDI device that will stand for these shares.

    `replaces`: promises of the same shares that were bound by then. The kubelet allocates for all
    containers of a pod before its network is attached, so these were of another pod, now over.
    """

    nonce: Nonce
    resource: str
    shares: tuple[ShareId, ...]
    cards: tuple[CardId, ...]
    cdi: str
    when: float  # seconds of the wall clock; which of two came later, where nothing else tells
    replaces: tuple[Nonce, ...] = ()

    @property
    def held(self) -> frozenset[HeldShare]:
        """Return the promise's shares, each with its resource."""
        return frozenset((self.resource, share) for share in self.shares)


class Binding(Frozen):
    """The binding of a promised CDI device to the sandbox of a pod.

    It repeats what it needs of the promise, which may be forgotten first.
    """

    nonce: Nonce
    container: ContainerId
    pod: PodName
    uid: str  # of the pod; "" if unknown: pod resources do not have it
    netns: str  # path of the network namespace; "" where the pod has no network of kube-rdma
    resource: str
    shares: tuple[ShareId, ...]
    cards: tuple[CardId, ...]
    cdi: str
    when: float  # seconds of the wall clock, for people

    @property
    def held(self) -> frozenset[HeldShare]:
        """Return the binding's shares, each with its resource."""
        return frozenset((self.resource, share) for share in self.shares)


class RuntimeHook(Frozen):
    """A program of the host that the runtime runs for a container at a stage of its life.

    The stages are those of the OCI runtime specification (config.md, "POSIX-platform Hooks").
    """

    stage: str
    path: str
    args: tuple[str, ...]  # the program's own name first


class UsedDevice(Frozen):
    """An RDMA device that a container can use, through one interface of its pod.

    Without an `interface` it is a card's own, which the container may open: nobody knows yet by
    which of its GIDs. `gid_index` is that of the interface's first address, None without one and on
    InfiniBand. `place` is for the topology file of its container, None where that is not asked for.
    """

    name: str
    port: int
    interface: str
    infiniband: bool = False
    gid_index: int | None = None
    place: PlacedNet | None = None


def lift_memlock(shim: str) -> RuntimeHook:
    """Return the hook by which the shim at this path lifts a container's limit of locked memory."""
    return RuntimeHook("createRuntime", shim, ("kube-rdma", "hook", "memlock"))


def merge_settings(shim: str, folder: str) -> RuntimeHook:
    """Return the hook that merges the settings in a folder with the container's own."""
    return RuntimeHook("createContainer", shim, ("kube-rdma", "hook", "settings", folder))


class Edits(Frozen):
    """The changes of a CDI device in its container; device nodes keep the host's paths."""

    char_paths: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[FileMount, ...] = ()
    hooks: tuple[RuntimeHook, ...] = ()
    used: tuple[UsedDevice, ...] = ()  # what it is told of its devices; no edit of the runtime's


class CdiFile(Frozen):
    """A CDI file of kube-rdma, known to be there `since` this second of the monotonic clock."""

    nonce: Nonce
    container: ContainerId
    since: float


# The container runtime of a node, its sandboxes and containers.


class Runtime(Frozen):
    """The container runtime of a node: its name and version, and where it has CNI's files."""

    name: str  # containerd, cri-o
    version: str  # as the runtime writes it: v2.4.2, 1.7.13~ds1
    # None, empty: the runtime does not say.
    cdi: bool | None = None  # it injects CDI devices
    cni_conf: str = ""
    cni_binaries: tuple[str, ...] = ()


class PodSandbox(Frozen):
    """A sandbox of a pod, as the container runtime lists it.

    One that is not `ready` was stopped, or was never made to the end. `created`: nanoseconds of the
    wall clock, good to tell the newest of one pod.
    """

    container: ContainerId
    pod: PodName
    uid: str  # as the kubelet gave it: a static pod has another one in the API
    ready: bool
    created: int = 0


class MadeContainer(Frozen):
    """Variables, device files and mounts that a container was made with, as its OCI spec says."""

    variables: tuple[tuple[str, str], ...] = ()  # of its first process, from pod, image and CDI
    nodes: tuple[str, ...] = ()  # paths of its device files
    mounts: tuple[tuple[str, str], ...] = ()  # path inside, path of the host
