"""How a device of the driver is: what the kubelet writes into the status of pods that hold it.

claims/rules/health says it of cards, adapters/kubelet/claim_health carries it (KEP-4680).
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class DeviceHealth(Frozen):
    """One device of a pool; `healthy` None: it cannot be told. `message`: why it is not well."""

    pool: str
    device: str
    healthy: bool | None
    message: str = ""
