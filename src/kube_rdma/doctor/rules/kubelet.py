"""KR2xx: finds what stands between a card and the scheduler: plugin, registration, allocatable.

Its checks come after cards, whose pools say what the kubelet should have. Problems of `kube-rdma
status` get one code here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kube_base.frozen import replace
from kube_rdma.attach.rules.late_binding import cdi_works
from kube_rdma.doctor.rules.check import Check
from kube_rdma.doctor.rules.meant import verdict
from kube_rdma.install.rules.release import OLDEST
from kube_rdma.model.doctor import Observation, ObservedKubelet
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.pools import Attach, Serving
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.pools import offer

KUBELET_SOCKET = "kubelet.sock"
_ROOM = 1 << 20  # bytes: less is soon nothing
_KUBELET = re.compile(r"v?1\.(\d{1,9})\.(\d{1,9})(?:-vke\.(\d{1,9}))?")
_PLUGIN = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# By the minor version of Kubernetes the patch and the VKE release that RDMA needs.
_VKE_PATCHES = {20: (15, 18), 24: (15, 12)}
_VKE_OLDEST = min(_VKE_PATCHES)
_VKE_PLUGIN = (1, 7, 1)
_NEEDS = "VKE's own component needs Kubernetes 1.24.15-vke.12 or 1.20.15-vke.18, and vpc-cni 1.7.1"
_FIX = "kube-rdma works with older versions; upgrade before you go back to VKE's own component"


def _kubelet_down(seen: Observation) -> Iterator[Finding]:
    """No plugin has a resource on the node; pods do not start."""
    if KUBELET_SOCKET not in _kubelet(seen).sockets:
        yield Finding(
            "kubelet",
            f"There is no {KUBELET_SOCKET} in the folder device-plugins",
            "The kubelet does not run, or another folder is mounted here",
            "systemctl status kubelet; mount its folder, or name the folder by --kubelet-root",
        )


def _no_plugin(seen: Observation) -> Iterator[Finding]:
    """A resource is missing or 0."""
    sockets = set(_kubelet(seen).sockets)
    for spec in seen.specs or ():
        if socket_of(spec.resource) not in sockets:
            evidence = f"There is no {socket_of(spec.resource)} in the folder device-plugins"
            cause = "The agent does not run, hangs, or refuses its configuration"
            remedy = "See kubectl describe and logs of the agent's pod; delete a pod that hangs"
            yield Finding(spec.resource, evidence, cause, remedy)


def _not_registered(seen: Observation) -> Iterator[Finding]:
    """A resource is 0, and the agent is healthy."""
    kubelet = _kubelet(seen)
    if kubelet.allocatable is None:
        return
    resources = dict(kubelet.allocatable)
    for pool in verdict(seen).pools:
        resource = pool.spec.resource
        healthy = sum(share.healthy for share in offer(pool).shares)
        if socket_of(resource) in kubelet.sockets and healthy and not resources.get(resource):
            evidence = f"The kubelet offers none of it, and {healthy} shares are healthy here"
            cause = "The plugin did not register, or a new kubelet forgot it"
            remedy = "Delete the agent's pod on this node: a new one registers"
            yield Finding(resource, evidence, cause, remedy)


def _allocatable(seen: Observation) -> Iterator[Finding]:
    """A resource's allocatable is 0, or differs from the number of its healthy shares."""
    kubelet = _kubelet(seen)
    resources = dict(kubelet.allocatable or ())
    for pool in verdict(seen).pools:
        resource = pool.spec.resource
        healthy = sum(share.healthy for share in offer(pool).shares)
        offered = resources.get(resource, 0)
        if pool.spec.serve is Serving.CLAIMS:
            continue
        if kubelet.allocatable is not None and not healthy and pool.cards:
            evidence = f"None of {len(pool.shares)} shares is healthy"
            cause = "Every card of the pool is unhealthy"
            yield Finding(resource, evidence, cause, "Fix the cards first")
        elif offered and healthy and offered != healthy:
            evidence = f"The kubelet offers {offered}, and {healthy} shares are healthy here"
            cause = "A card just changed, or the agent has another configuration"
            remedy = "If the numbers differ for a minute, delete the agent's pod on this node"
            yield Finding(resource, evidence, cause, remedy, Severity.WARNING)


def _topology_policy(seen: Observation) -> Iterator[Finding]:
    """GPUDirect is slow for some pods."""
    assert seen.survey is not None
    policy = _kubelet(seen).topology_policy
    nodes = {device.numa_node for device in seen.survey.devices} - {None}
    gpus = {gpu.position.numa_node for gpu in seen.survey.gpus} - {None}
    if policy == "none" and len(nodes) > 1 and len(gpus) > 1:
        yield Finding(
            "kubelet",
            f"topologyManagerPolicy is {policy}; cards are on NUMA nodes {sorted(nodes, key=str)}",
            "A pod's GPU and card may be on different NUMA nodes",
            "Set the kubelet's topologyManagerPolicy to best-effort or restricted",
            Severity.ADVICE,
        )


def _no_cdi(seen: Observation) -> Iterator[Finding]:
    """The GID index is missing or wrong. Kubelet 1.29, and containerd 2.0 or CRI-O 1.28, have CDI
    on by default.
    """
    assert seen.versions is not None
    works, why = cdi_works(seen.versions.kubelet or None, seen.runtime)
    specs = [pool.spec for pool in verdict(seen).pools]
    late = [one for one in specs if terms(one).attach is not Attach.NONE]
    if not works and seen.versions.kubelet and late:
        cause = "Devices are given at Allocate, before the pod's network exists"
        remedy = "Upgrade kubelet and runtime, or switch CDI on"
        yield Finding(late[0].resource, why.rstrip("."), cause, remedy, Severity.WARNING)


def _no_room(seen: Observation) -> Iterator[Finding]:
    """Pods get neither networks nor devices: "No space left on device", "Read-only file system"."""
    for folder in seen.folders or ():
        if folder.read_only:
            evidence = "Its file system is read-only"
            cause = "The kernel found errors, or the file system was mounted read-only"
            fix = "See dmesg, repair the file system, mount it for writing"
        elif folder.free < _ROOM or folder.inodes == 0:
            left = "no inode" if folder.inodes == 0 else f"{folder.free} bytes"
            evidence, cause = f"Its file system has {left} left", "The disk is full"
            fix = "Make room on it"
        else:
            continue
        yield Finding(folder.path, evidence, cause, fix)


def _problems(seen: Observation) -> Iterator[Finding]:
    """`kube-rdma status` shows a problem (docs/status.md)."""
    for problem in seen.problems or ():
        yield replace(problem, cause=f"kube-rdma status: {problem.code}")


def socket_of(resource: str) -> str:
    """Return the file name of the socket at which the agent serves a resource.

    See adapters/kubelet/device_plugin.
    """
    return f"kube-rdma-{resource.replace('/', '_')}.sock"


def _kubelet(seen: Observation) -> ObservedKubelet:
    assert seen.kubelet is not None
    return seen.kubelet


def outdated(seen: Observation) -> Iterator[Finding]:
    """The kubelet is too old; as advice, the kubelet or vpc-cni is too old for VKE's own component.

    Volcengine's document "Use RDMA in VKE" has the needs of that component.
    """
    assert seen.versions is not None
    kubelet, plugin = seen.versions.kubelet, seen.versions.vpc_cni
    if read := _KUBELET.match(kubelet):
        minor, patch, build = (int(number or 0) for number in read.groups())
        if minor < OLDEST:
            evidence = f"Its version is {kubelet}"
            cause = f"kube-rdma needs Kubernetes 1.{OLDEST}"
            yield Finding("kubelet", evidence, cause, "Upgrade Kubernetes", Severity.WARNING)
        behind = minor < _VKE_OLDEST or (patch, build) < _VKE_PATCHES.get(minor, (0, 0))
        if read[3] and behind:
            yield _behind("kubelet", kubelet)
    if (read := _PLUGIN.match(plugin)) and tuple(map(int, read.groups())) < _VKE_PLUGIN:
        yield _behind("vpc-cni", plugin)


def _behind(subject: str, version: str) -> Finding:
    return Finding(subject, f"Its version is {version}", _NEEDS, _FIX, Severity.ADVICE)


_POOLS = ("survey", "specs", "kubelet", "kubelet.allocatable")

CHECKS = (
    Check("KR201", "kubelet", ("kubelet",), _kubelet_down, (), ("KR202", "KR203", "KR204")),
    Check("KR202", "device plugin", ("specs", "kubelet"), _no_plugin, ("KR203", "KR204")),
    Check("KR203", "registration", _POOLS, _not_registered, ("KR204", "KR490")),
    Check("KR204", "allocatable", _POOLS, _allocatable, ("KR490",)),
    Check("KR205", "topology policy", ("survey", "kubelet"), _topology_policy),
    Check("KR206", "CDI", ("survey", "specs", "versions", "runtime"), _no_cdi),
    Check("KR207", "state folders", ("folders",), _no_room, (), ("KR290", "KR490")),
    Check("KR208", "versions", ("versions",), outdated),
    Check("KR290", "status of the cluster", ("problems",), _problems),
)
