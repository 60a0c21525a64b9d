"""Which variables of a container a doctor may keep: those that steer RDMA, and nobody's secret.

programs/doctor/containers filters with it what /proc and the runtime tell of a container.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_STEERING = re.compile(r"(NCCL|UCX|NVSHMEM|FI|OMPI_MCA)_[A-Z0-9_a-z]+|PCIDEVICE_[A-Z0-9_]+")
_SECRET = re.compile(r"SECRET|TOKEN|PASS|KEY|CRED|AUTH", re.IGNORECASE)


def steering(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The variables that a bundle may hold: those that steer RDMA, by their names."""
    kept = ((n, v) for n, v in pairs if _STEERING.fullmatch(n) and not _SECRET.search(n))
    return tuple(sorted(kept))
