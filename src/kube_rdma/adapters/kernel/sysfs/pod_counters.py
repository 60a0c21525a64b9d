"""The counters of RDMA devices that were moved into pods, read inside of the pods' namespaces.

In RDMA namespace mode exclusive the node's sysfs does not show them. A sysfs is mounted in the
namespace as in pod.py, attached nowhere, and let go after the look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from kube_base.errors import KubeError
from kube_rdma.adapters.kernel.sysfs.counters import read_counters
from kube_rdma.adapters.kernel.sysfs.pod import mount_inside
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.metrics.families import CounterReadings, PodPlaceCounters

Mount = Callable[[int], int]
"""A descriptor of the root of a sysfs of the namespace behind a descriptor."""


def read_inside(
    sandboxes: Iterable[Sandbox], mount: Mount = mount_inside
) -> tuple[tuple[PodPlaceCounters, ...], int]:
    """What the sandboxes' namespaces show, and how many of them could not be entered.

    One that is gone, or whose path leads to a later namespace, is neither: its pod has ended.
    """
    read, failures = [], 0
    for sandbox in sandboxes:
        try:
            namespace = os.open(sandbox.netns_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            failures += Path(sandbox.netns_path).exists()
            continue
        try:
            if os.fstat(namespace).st_ino == sandbox.netns_inode:
                read.append(PodPlaceCounters(sandbox.netns_inode, _readings(namespace, mount)))
        except (OSError, KubeError):
            failures += 1
        finally:
            os.close(namespace)
    return tuple(read), failures


def _readings(namespace: int, mount: Mount) -> CounterReadings:
    root = mount(namespace)
    try:
        return read_counters(root)
    finally:
        os.close(root)
