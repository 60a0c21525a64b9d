"""Installs on a cluster what Helm would: looks first, tries the image if asked, then writes.

cli/install runs it. A look changes nothing: the API server says by dry runs what it would store.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from kube_base.errors import Refused, Unavailable
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE, node_state
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, PULL_FAULTS, FullPod, status_of
from kube_rdma.install import cluster as objects
from kube_rdma.install import installation
from kube_rdma.install.rules.release import RECORDS, is_made_once, others
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.lib.text.document import Document
from kube_rdma.model import install
from kube_rdma.model.migrate import PluginDaemonSet

Neighbours = tuple[tuple[PluginDaemonSet, ...], tuple[str, ...]]
"""DaemonSets for RDMA cards, kube-rdma's own too, and names of NVIDIA's operator's Deployments."""

_BETWEEN = 0.5  # seconds between two looks
_SERVED = 120  # looks until a new definition is served; several API servers take about five s
_TRIAL = 240  # looks until an image is pulled and has run
_LONGEST = 300  # characters of what a kubelet says
Sleep = Callable[[float], Awaitable[None]]


async def look(
    cluster: Cluster,
    layers: Sequence[Document],
    preset: str,
    neighbours: Callable[[Cluster], Awaitable[Neighbours]],
) -> install.InstallSight:
    """Return a release and what the cluster has of it; raise Refused for wrong values.

    Raise Unavailable without an answer of the API server.
    """
    reader = PartReader(hidden_by=(Refused,))
    asked = reader.asked
    version = await objects.version(cluster)
    definition = installation.described("definitions")[0].body
    networks = await asked("definitions", partial(objects.found, cluster, definition))
    release = installation.release(layers, preset, version, networks)
    nodes = await asked("nodes", partial(cluster.list, NODE))
    plugins, operators = await asked("other plugins", partial(neighbours, cluster)) or ((), ())
    record = partial(objects.has_record, cluster, release.name, RECORDS)
    return install.InstallSight(
        release,
        version,
        tuple([await _seen(cluster, release, one) for one in release.objects]),
        tuple(map(node_state, nodes or ())),
        plugins,
        operators,
        kept_by_helm=bool(await asked("records of Helm", record)),
        not_seen=tuple(reader.not_seen),
    )


async def _seen(
    cluster: Cluster, release: install.ChartRelease, wanted: install.Json
) -> install.ClusterObject:
    """Return a wanted object, that of the cluster, and what the API server would store.

    For a new object in a namespace, which may be new too, only the user's rights are checked.
    """
    found, made, owner = None, None, ""
    try:
        found = await objects.found(cluster, wanted)
        if found and not is_made_once(wanted):
            owner = others(found, release.name)
        is_asked = found and not is_made_once(wanted) and not owner
        if is_asked or (found is None and "namespace" not in wanted["metadata"]):
            made = await objects.apply(cluster, wanted, dry=True)
        elif found is None:
            await objects.require_rights(cluster, wanted)
        return install.ClusterObject(wanted, found, made, owner)
    except NotInstalled as unknown:
        if objects.resource_of(wanted) in {one["metadata"]["name"] for one in release.objects}:
            return install.ClusterObject(wanted)  # the release defines it
        remedy = "Install what brings it, or leave it out by the values"
        return install.ClusterObject(wanted, refusal=Refused(unknown.problem, remedy=remedy))
    except Refused as refusal:
        return install.ClusterObject(wanted, found, refusal=refusal)


async def write(
    cluster: Cluster,
    plan: install.InstallPlan,
    written: Callable[[install.Json], object],
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Apply what a plan makes and changes, in its order; `written` gets each object.

    Raise the error of the first object that is refused. Wait until each new kind is served.
    """
    for document in plan.wanted:
        stored = await objects.apply(cluster, document)
        written(document)
        if document["kind"] == "CustomResourceDefinition":
            await _until_served(cluster, stored, sleep)


async def _until_served(cluster: Cluster, definition: install.Json, sleep: Sleep) -> None:
    for _ in range(_SERVED):
        conditions = (definition.get("status") or {}).get("conditions") or ()  # null when new
        if ("Established", "True") in [(one["type"], one["status"]) for one in conditions]:
            return
        await sleep(_BETWEEN)
        definition = await objects.found(cluster, definition) or definition
    name = definition["metadata"]["name"]
    raise Unavailable(f"The API server does not serve {name} after {_SERVED * _BETWEEN:g} s.")


async def try_image(
    cluster: Cluster, release: install.ChartRelease, sleep: Sleep = asyncio.sleep
) -> str:
    """Run the release's image in a pod, delete the pod, and return the node that ran it.

    Raise Refused where the image cannot be pulled or its program fails, Unavailable where no node
    has run it after two minutes.
    """
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}
    has_space = await objects.found(cluster, space)
    namespace = release.namespace if has_space else cluster.namespace
    image = release.trial["spec"]["containers"][0]["image"]
    name = f"{release.trial['metadata']['name']}-{secrets.token_hex(3)}"
    metadata = {"name": name, "namespace": namespace}
    await objects.apply(cluster, {**release.trial, "metadata": metadata})
    said: list[str] = []
    try:
        for _ in range(_TRIAL):
            if seen := await cluster.get(FULL_POD, name, namespace):
                if node := _node_with(image, seen):
                    return node
                said = [one.message for one in status_of(seen).conditions if one.message]
            await sleep(_BETWEEN)
        why = f": {'; '.join(said)[:_LONGEST].rstrip('.')}" if said else ""
        raise Unavailable(f"No node has run {image} after {_TRIAL * _BETWEEN:g} s{why}.")
    finally:
        if left := await cluster.get(FULL_POD, name, namespace):
            await cluster.delete(FULL_POD, left, unchanged=False)


def _node_with(image: str, pod: FullPod) -> str:
    """Return the node that has run the image, "" until it has; raise Refused if it fails."""
    status, node = status_of(pod), pod.spec.node_name
    states = [one.state for one in status.container_statuses]
    waits = next((one.waiting for one in states if one.waiting), None)
    is_unpulled = waits is not None and waits.reason in PULL_FAULTS
    if is_unpulled or status.phase == "Failed" or (waits and waits.reason.endswith("Error")):
        why = next((one.terminated for one in states if one.terminated), waits) or status
        said = " ".join(f"{why.reason} {why.message}".split())[:_LONGEST]
        act = f"cannot pull {image}" if is_unpulled else f"does not run {image} --version"
        raise Refused(
            f"node {node} {act}: {said}",
            remedy="Name the image that Containerfile makes, for the nodes' architectures, where "
            "they can pull it; image.pullSecrets names Secrets of its registry (docs/install.md)",
        )
    return node if status.phase == "Succeeded" else ""
