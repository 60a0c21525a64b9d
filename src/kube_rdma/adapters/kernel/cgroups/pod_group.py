"""Where the control group of a pod is.

The kubelet makes it before it asks the runtime for the sandbox, below a group `kubepods` (kubelet
v1.34 pkg/kubelet/cm: qos_container_manager_linux.go, pod_container_manager_linux.go). The cgroupfs
driver writes `kubepods/burstable/podUID`. The systemd driver repeats the parents in each name, and
writes `_` for `-` (cgroup_manager_linux.go, ToSystemd):
`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice`. With `cgroupRoot` all of
it is below another group. Pods of the class Guaranteed have no class in their path.
"""

from __future__ import annotations

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.cgroups.files import CgroupFiles

_CLASSES = ("burstable", "besteffort")
_SLICE = ".slice"
_DEPTH = 4  # groups above kubepods: a node in a container has two or three
_OTHERS = frozenset({"system.slice", "user.slice", "init.scope"})


def places(kubepods: str, uid: str) -> tuple[str, ...]:
    """Where the group of a pod may be below the group `kubepods`."""
    if not kubepods.endswith(_SLICE):
        return tuple(f"{above}/pod{uid}" for above in (kubepods, *_below(kubepods)))
    stem, pod = kubepods.rpartition("/")[2].removesuffix(_SLICE), uid.replace("-", "_")
    classes = ((f"{kubepods}/{stem}-{one}{_SLICE}", f"{stem}-{one}") for one in _CLASSES)
    parents = ((kubepods, stem), *classes)
    return tuple(f"{above}/{prefix}-pod{pod}{_SLICE}" for above, prefix in parents)


def pod_group(files: CgroupFiles, uid: str) -> str:
    """The path of a pod's group; raise Unavailable where it has none."""
    for kubepods in _kubepods(files):
        for place in places(kubepods, uid):
            if files.is_group(place):
                return place
    raise Unavailable(
        f"The node has no control group of the pod with uid {uid}: the kubelet makes one for each "
        "pod, unless its configuration says cgroupsPerQOS: false."
    )


def _below(kubepods: str) -> tuple[str, ...]:
    return tuple(f"{kubepods}/{one}" for one in _CLASSES)


def _kubepods(files: CgroupFiles) -> tuple[str, ...]:
    """Every group of this name, the uppermost first: a node may hold other nodes in containers."""
    level, places_of_it = [""], []
    for _ in range(_DEPTH):
        below = [
            f"{above}/{name}".lstrip("/")
            for above in level
            for name in _groups(files, above)
            if name not in _OTHERS
        ]
        places_of_it += [path for path in below if _is_kubepods(path.rpartition("/")[2])]
        level = [path for path in below if not _is_kubepods(path.rpartition("/")[2])]
    return tuple(places_of_it)


def _is_kubepods(name: str) -> bool:
    return name in ("kubepods", f"kubepods{_SLICE}") or name.endswith(f"-kubepods{_SLICE}")


def _groups(files: CgroupFiles, path: str) -> tuple[str, ...]:
    """Without any where the group has just ended."""
    try:
        return files.groups(path)
    except OSError:
        return ()
