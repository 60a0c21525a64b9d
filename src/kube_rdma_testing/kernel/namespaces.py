"""Fake network namespaces of pods by path, in place of kernel/pod/namespaces.py."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from kube_rdma.adapters.kernel.pod.namespaces import Namespace, namespace_fault
from kube_rdma.model.device import PodLink

T = TypeVar("T")


class FakeNamespaces:
    """Fake network namespaces by path; a path with None is a file that is no namespace.

    It refuses what the kernel refuses. `permitted` False stands for a process without
    CAP_SYS_ADMIN.
    """

    def __init__(
        self, namespaces: Mapping[Path, tuple[PodLink, ...] | None], *, permitted: bool = True
    ) -> None:
        """Make the namespaces; raise ValueError for one without an interface lo."""
        for path, pod_links in namespaces.items():
            if pod_links is not None and "lo" not in [link.name for link in pod_links]:
                raise ValueError(f"{path}: every network namespace has an interface lo")
        self._namespaces = dict(namespaces)
        self._permitted = permitted

    def remove(self, namespace: Path) -> None:
        """Remove the namespace of a pod that is gone; raise KeyError if it is not there."""
        del self._namespaces[namespace]

    def open_inside(self, namespace: Namespace, opener: Callable[[], T]) -> T:
        """Call `opener` as if inside the namespace; raise as the real open_inside does."""
        self._check(namespace)
        return opener()

    def links_inside(self, namespace: Namespace) -> tuple[PodLink, ...]:
        """Return the links of a namespace; raise as the real links_inside does."""
        return self._check(namespace)

    def _check(self, namespace: Namespace) -> tuple[PodLink, ...]:
        if isinstance(namespace, int) or namespace not in self._namespaces:
            raise namespace_fault(namespace, OSError(errno.ENOENT, "no such file"))
        if not self._permitted:
            raise namespace_fault(namespace, OSError(errno.EPERM, "not permitted"))
        pod_links = self._namespaces[namespace]
        if pod_links is None:
            raise namespace_fault(namespace, OSError(errno.EINVAL, "no namespace"))
        return pod_links
