"""BandwidthChecks at the API server, as the controller sees them; it writes their status."""

from __future__ import annotations

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_client.kinds import ObjectCodec, Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.model.verify.bandwidth_check import BandwidthPlan
from kube_rdma.verify import status as bandwidth_check_status
from kube_rdma.verify.bandwidth_check import load_plan
from kube_rdma.verify.status import BandwidthCheckStatus

_SPEC: ObjectCodec[bytes] = ObjectCodec(bytes)  # as it is: what is wrong in it gets a status
_STATUS = ObjectCodec(bandwidth_check_status.decode, bandwidth_check_status.encode)
BANDWIDTH_CHECK = own_kind("BandwidthCheck", "bandwidthchecks", _SPEC, _STATUS, namespaced=True)


class SeenCheck(Frozen):
    """A check, or why it is refused, with the status that it has."""

    namespace: str
    name: str
    uid: str
    generation: int
    plan: BandwidthPlan | None
    refusal: str
    status: BandwidthCheckStatus | None

    @property
    def title(self) -> str:
        """What logs call it."""
        return f"{self.namespace}/{self.name}"


def seen_check(stored: Stored[bytes, BandwidthCheckStatus]) -> SeenCheck:
    """What an object says."""
    plan, refusal, title = None, "", f"{stored.namespace}/{stored.name}"
    try:
        plan = load_plan(stored.spec, title)
    except Refused as error:
        refusal = str(error)
    except Exception as error:  # noqa: BLE001  of one object
        refusal = object_failed(BANDWIDTH_CHECK.kind, title, error)
    place = (stored.namespace, stored.name, stored.uid, stored.generation)
    return SeenCheck(*place, plan, refusal, stored.status)


async def write_status(cluster: Cluster, seen: SeenCheck, status: BandwidthCheckStatus) -> None:
    """Write a status; Conflict(GONE) without the object."""
    await cluster.apply_status(BANDWIDTH_CHECK, seen.name, seen.namespace, status, force=True)
