"""The DeviceClasses that templates of `kube-rdma claim` name: whole cards, shares, GPUs.

docs/claim-templates.md has the first two for people to apply (tests/unit/kube_rdma_tools/boards
compare them); the class of GPUs is that of NVIDIA's driver.
"""

from __future__ import annotations

from typing import Any

from kube_rdma.model.claims.claim_wish import CARD_CLASS, GPU_CLASS, SHARED_CLASS
from kube_rdma.model.claims.device import DRIVER
from kube_rdma_lab.ghost.claim_driver import DRIVER as GPU_DRIVER

_MODE = f'device.attributes["{DRIVER}"].mode'
_SELECTORS = {
    CARD_CLASS: f'device.driver == "{DRIVER}" && {_MODE} in ["exclusive", "shared"]',
    SHARED_CLASS: f'device.driver == "{DRIVER}" && {_MODE} == "shared-multi"',
    GPU_CLASS: f'device.driver == "{GPU_DRIVER}"',
}


def device_classes() -> list[dict[str, Any]]:
    """All of them, as objects."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
        for name, expression in _SELECTORS.items()
    ]
