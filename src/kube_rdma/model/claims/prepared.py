"""What the kubelet asks of a driver of dynamic resource allocation, and what it is answered.

adapters/kubelet/claim_plugin carries both; KEP-4381 has what they mean.
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class ClaimName(Frozen):
    """A ResourceClaim: its name may be used again, its `uid` never."""

    namespace: str
    name: str
    uid: str


class PreparedDevice(Frozen):
    """A device of a claim that is ready for containers.

    `requests` are those of the claim that it answers, all if there are none. `cdi` are names of
    CDI devices, which have to exist by now.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share: str | None = None  # of a device that several claims share (KEP-5075)
