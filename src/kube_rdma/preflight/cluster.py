"""Reads pods that ask for a preflight, and the size of gangs; writes plans, verdicts and results.

A pod's labels, annotations and messages are text of its tenant. Preflight trusts them for the pod's
own gang only, which has no pods of other namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from kube_base.errors import Refused
from kube_base.frozen import asdict, replace
from kube_base.plain_text import plain
from kube_client import wire
from kube_client.errors import Conflict, Lost, NotInstalled
from kube_client.kinds import ObjectCodec, Owner, Stored, Wanted, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import StoredReport
from kube_rdma.adapters.cluster.kinds.pod import (
    POD,
    Container,
    ContainerState,
    ContainerStatus,
    PodCondition,
    PodSpec,
    PodStatus,
    pod_state,
)
from kube_rdma.attach.documents.network_status import OWN_ANNOTATION, own_attached
from kube_rdma.model import preflight as model
from kube_rdma.model.card import CardId
from kube_rdma.model.kubernetes import cut
from kube_rdma.model.pools import Bind
from kube_rdma.model.reports import NodeReport
from kube_rdma.model.verify import BandwidthCheckStatus, PodDevice
from kube_rdma.preflight.documents import read_plan, read_verdict
from kube_rdma.verify.cluster import BANDWIDTH_CHECK

ASKING = Where(labels=model.REQUEST)
"""The pods that ask for a preflight: by the label, so that no other pod has to be read."""


class AskingSpec(PodSpec, frozen=True, rename="camel"):
    """The fields of a Pod's spec on which a preflight depends."""

    init_containers: tuple[Container, ...] = ()


class AskingStatus(PodStatus, frozen=True, rename="camel"):
    """The fields of a Pod's status on which a preflight depends."""

    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[PodCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


_READ = (model.REQUEST, OWN_ANNOTATION)
ASKING_POD = replace(
    POD.read_as(
        ObjectCodec.of(AskingSpec, writes=False), ObjectCodec.of(AskingStatus, writes=False)
    ),
    annotations=lambda key: key.startswith(_READ),
)


def asking_pod(stored: Stored[AskingSpec, AskingStatus]) -> model.PreflightPod | None:
    """Return a pod that asks for a preflight, without its gang; None for any other pod."""
    if stored.annotation(model.REQUEST) is None:
        return None  # it has the label alone
    status = stored.status or AskingStatus()
    measures = (one for one in stored.spec.init_containers if one.name == model.MEASURES)
    attached = _devices(stored.annotation(OWN_ANNOTATION) or "")
    pod = model.PreflightPod(
        **asdict(pod_state(stored)),
        controller=next((_owner(one) for one in stored.owners if one.controller), None),
        address=status.pod_ip,
        resources=next((one.extended for one in measures), ()),
        devices=tuple(device for device, _ in attached),
        cards=tuple(card for _, card in attached),
        plan=read_plan(stored.annotation(model.PLAN)),
        verdict=read_verdict(stored.annotation(model.VERDICT)),
        pending=_pending(status),
    )
    named = (one.state for one in status.init_container_statuses if one.name == model.MEASURES)
    state = next(named, ContainerState())
    if (ended := state.terminated) is None:
        return replace(pod, is_measuring=state.running is not None)
    said = plain(ended.message or ended.reason)
    failed = f"its container {model.MEASURES} ended with {ended.exit_code}: {said}"
    return replace(pod, result=ended.message, failed=cut(failed) if ended.exit_code else "")


async def read_pod(cluster: Cluster, namespace: str, name: str) -> model.PreflightPod | None:
    """Return a pod that asks for a preflight; None if it is gone, or asks for none."""
    stored = await cluster.get(ASKING_POD, name, namespace)
    return asking_pod(stored) if stored else None


def _owner(owner: Owner) -> model.GangOwner:
    return model.GangOwner(owner.api_version, owner.kind, owner.name, owner.uid)


def _devices(text: str) -> list[tuple[PodDevice, CardId | None]]:
    """Return the RDMA devices in kube-rdma's annotation, and their cards."""
    found = []
    for one in list(own_attached(text))[: model.MOST_DEVICES]:
        if one.rdma_device:
            # perftest's ends meet by IPv4 where they can: its releases differ in IPv6.
            ips = sorted((each.address for each in one.addresses), key=lambda ip: ip.version)
            address = str(ips[0]) if ips else None
            device = PodDevice(one.rdma_device, gid_index=one.gid_index, address=address)
            found.append((device, one.card))
    return found


def _pending(status: AskingStatus) -> str:
    """Return why no node is found for a pod, in the scheduler's words; else ""."""
    said = (one for one in status.conditions if one.type == "PodScheduled")
    return next((plain(one.message)[:200] for one in said if one.status == "False"), "")


def places_of(stored: StoredReport) -> Mapping[CardId, model.CardPlace]:
    """Return where each card of a NodeReport is, and which shares surely have it."""
    report = stored.status or NodeReport("")
    every = (pool for pool in report.pools if pool.bind == Bind.POOL or pool.cards == 1)
    whole = {pool.resource for pool in every if not pool.by_claims}
    return {
        card.id: model.CardPlace(
            card.rail,
            card.part_of or card.id,
            tuple(name for name in card.resources if name in whole),
            tuple(PodDevice(port.device, port.number) for port in card.ports),
            all(port.link_layer == "InfiniBand" for port in card.ports),
            any(port.state == "ACTIVE" for port in card.ports),
        )
        for card in report.cards
    }


# Gangs.


async def owner_spec(cluster: Cluster, gang: model.Gang) -> Mapping[str, Any]:
    """Return the spec of the object that says how many pods a gang has.

    Raise Refused if it is gone.
    """
    assert gang.owner  # a gang without one says its size itself
    _, _, version = gang.owner.api_version.rpartition("/")
    group, plural = model.OWNERS[gang.owner.kind]
    place = (plural, gang.namespace, gang.owner.name)
    try:
        body = await cluster.write(wire.ApiRequest("get", group, version, *place))
    except (Conflict, NotInstalled) as error:
        if isinstance(error, Conflict) and error.lost is not Lost.GONE:
            raise
        raise Refused(
            f"there is no {gang.owner.kind} {gang.namespace}/{gang.owner.name}",
            remedy=f"Write the number of pods into the annotation {model.SIZE}",
            where=gang.words,
        ) from None
    spec = wire.parse(body, dict[str, Any]).get("spec")
    return spec if isinstance(spec, dict) else {}


async def annotate(
    cluster: Cluster, pod: model.PreflightPod, key: str, text: str
) -> Stored[AskingSpec, AskingStatus]:
    """Write a plan or a verdict into a pod; raise Conflict if it is gone or another one."""
    change = ((key, text),)
    return await cluster.patch(ASKING_POD, pod.name, pod.namespace, annotations=change, uid=pod.uid)


# The result of a gang, as a BandwidthCheck.

_RESULT = BANDWIDTH_CHECK.read_as(ObjectCodec(bytes, bytes), BANDWIDTH_CHECK.status)


async def put_result(cluster: Cluster, gang: model.Gang, status: BandwidthCheckStatus) -> None:
    """Write a gang's BandwidthCheck, or its status over that of the round before.

    A gang that its owner makes again and again, for a card is bad, so leaves one result.
    """
    name = f"preflight-{gang.kind.lower()}-{gang.name[:200].rstrip('-.')}"
    spec: Mapping[str, str] = {"preflight": f"{gang.kind}/{gang.name}"[:253]}
    labels = ((model.RESULT, gang.kind),)
    wanted = Wanted(name, gang.namespace, msgspec.json.encode(spec), labels=labels)
    try:
        await cluster.create(_RESULT, wanted)
    except Conflict as error:
        if error.lost is not Lost.EXISTS:
            raise
    await cluster.apply_status(_RESULT, name, gang.namespace, status, force=True)


def kept_result(stored: Stored[bytes, BandwidthCheckStatus]) -> datetime | None:
    """Return when a gang's result was written, or else made; None if it is being deleted."""
    at = stored.status.completion_time if stored.status else None
    try:
        written = datetime.fromisoformat(at or stored.created)
    except ValueError:
        return None
    return written if written.tzinfo and not stored.deleting else None


async def drop_result(cluster: Cluster, namespace: str, name: str) -> None:
    """Delete a BandwidthCheck with a gang's result, if it still is one."""
    stored = await cluster.get(_RESULT, name, namespace)
    if stored and stored.label(model.RESULT) is not None:
        await cluster.delete(_RESULT, stored)
