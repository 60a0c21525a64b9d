"""The DeviceClasses that templates of `kube-rdma claim` name: an installation's, and that of GPUs.

For boards/allocator. The class of GPUs is that of NVIDIA's driver.
"""

from __future__ import annotations

from typing import Any

from kube_rdma.claims.templates import GPU_CLASS
from kube_rdma.install.installation import assignment, objects
from kube_rdma_lab.ghost.claim_driver import DRIVER as GPU_DRIVER


def device_classes() -> list[dict[str, Any]]:
    """Return the DeviceClasses of kube-rdma and the one of GPUs as objects."""
    made = objects([assignment("claims.enabled=true")], "default", "claims")
    gpus = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": GPU_CLASS},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{GPU_DRIVER}"'}}]},
    }
    return [*made, gpus]
