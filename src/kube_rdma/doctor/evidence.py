"""Collects the Observation of this node, and of a pod on it.

cli/doctor calls observe; recorded.py does the same for nodes of files. It reads what the agent
reads, by the same adapters, and asks the agent nothing, for that may be what is ill. Parts are read
one by one, so that a missing right hides one. A pod that may not be read hides all that the API
server has. It changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma import __version__
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import find, inside
from kube_rdma.adapters.cni.conf.places import places as named_places
from kube_rdma.adapters.files.host_release import read_kernel, read_os_release, read_room
from kube_rdma.adapters.journal.journal import glance
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.device_nodes import missing
from kube_rdma.adapters.kubelet.folders import FIXED, KNOWN, find_folders, sockets, topology_policy
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.runtime.cri import find_socket, read_runtime
from kube_rdma.attach.rules.conflist import networks, plan, plugins, type_of
from kube_rdma.claims.cluster import node_slices
from kube_rdma.doctor import beside_sysfs
from kube_rdma.doctor.cluster import NoSuchPod, address_ranges, address_uses, vpc_cni_version
from kube_rdma.doctor.pod import OpenCluster, observed_links, observed_routes, pod_here
from kube_rdma.doctor.recorded import of_cards, with_beside_sysfs
from kube_rdma.fabric.rules.cabling import cable_finding
from kube_rdma.hardware.survey import take_survey, with_uses
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model import doctor as model
from kube_rdma.model.attach.cni import PLUGIN, SET_ASIDE
from kube_rdma.model.late_binding import PodName, Runtime
from kube_rdma.model.pools import AppliedPools, RailRecord
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.rails import places_of
from kube_rdma.reports.gather import take
from kube_rdma.reports.rules.cluster import cluster_cables, findings

PATIENCE = 1.5  # seconds for each neighbour; a doctor of a node ends within 3
_BINARIES = "/opt/cni/bin"
_VKE = "-vke."  # in the kubelet's version
_DEV = (Path("/host/dev/infiniband"), Path("/dev/infiniband"))
_SYSCTLS = ("rp_filter", "arp_ignore", "arp_announce")  # which interface answers, and is answered


class DoctorPlaces(Frozen):
    """The places where a doctor looks: a node, perhaps a pod on it, folders and sockets."""

    node: str
    config: Path | None = None  # None: the agent's record of its pools in `state` counts
    host: Path = Path("/")
    kubelet_root: Path | None = None
    runtime_socket: Path | None = None
    state: Path = Path("/var/lib/kube-rdma")
    run: Path = Path("/run/kube-rdma")
    pod: PodName | None = None
    interval: float = 0.0  # seconds in which error counters are watched; 0: not at all


async def observe(places: DoctorPlaces, opener: OpenCluster) -> model.Observation:
    """Return an Observation of this node as it is now, and of a pod on it if one is asked about."""
    reader = PartReader(patience=PATIENCE)
    survey = with_uses(take_survey())  # the agent spares cards that the node uses
    seen = model.Observation(places.node, survey=survey)
    seen = of_cards(seen, reader, places.config, lambda: applied_pools(places.state).specs)
    resources = [one.resource for one in seen.specs or ()]
    by_cluster = asyncio.create_task(_of_cluster(places, opener, reader, resources))
    seen = await _of_this_machine(seen, survey, places, reader)
    part = await by_cluster
    assert seen.versions is not None
    known = part.versions or model.SystemVersions(__version__)
    return replace(
        seen,
        versions=replace(seen.versions, kubelet=known.kubelet, vpc_cni=known.vpc_cni),
        problems=part.problems,
        uses=part.uses,
        ranges=part.ranges,
        slices=part.slices,
        cables=part.cables,
        pod=part.pod,
        not_seen=(*reader.not_seen, *seen.not_seen),
    )


def applied_pools(state: Path) -> AppliedPools:
    """Return the agent's record of the pools that it serves on this machine.

    Raise Unavailable where no agent has written one, or it cannot be read.
    """
    folder = state / "pools"
    record = glance(folder, AppliedPools)
    if record is None:
        raise Unavailable(
            f"no agent has written to {folder} which pools it serves; name the file with --config"
        )
    return record


# The parts that the API server has.


async def _of_cluster(
    places: DoctorPlaces, opener: OpenCluster, reader: PartReader, resources: Iterable[str]
) -> model.Observation:
    """Return an Observation of what the API server tells of the node and the pod.

    `resources` are those of the node's pools. Raise NoSuchPod where the pod that is asked about
    does not exist. Where the pod or the API server cannot be read, the Observation is empty.
    """
    seen = model.Observation(places.node)
    try:
        async with opener() as cluster:
            if places.pod:
                pod = await pod_here(
                    cluster,
                    places.pod,
                    reader,
                    resources,
                    host=places.host,
                    state=places.state,
                    runtime=places.runtime_socket or find_socket(),
                )
                seen = replace(seen, pod=pod)
            facts, uses, slices = await asyncio.gather(
                reader.asked("problems", lambda: take(cluster)),
                reader.asked("uses", lambda: address_uses(cluster)),
                reader.asked("slices", lambda: node_slices(cluster, places.node)),
            )
            ranges = await reader.asked("ranges", lambda: address_ranges(cluster, uses))
            nodes = {one.name: one for one in (facts.nodes if facts else None) or ()}
            kubelet = nodes[places.node].kubelet_version if places.node in nodes else ""
            plugin = None
            if _VKE in kubelet:
                plugin = await reader.asked("vpc-cni", lambda: vpc_cni_version(cluster))
    except NoSuchPod:
        raise
    except (Refused, Unavailable) as error:
        reader.keep(f"pod {places.pod}" if places.pod else "problems", error)
        return seen
    problems = cables = None
    if facts and facts.reports is not None:
        faults = (one for one in cluster_cables(facts) if places.node in one.nodes)
        cables = tuple(map(cable_finding, faults))
    if facts and not facts.is_blind:
        subjects = ("", f"node/{places.node}")
        every = (one for one in findings(facts) if one.subject in subjects)
        problems = tuple(one for one in every if one not in (cables or ()))
    return replace(
        seen,
        versions=model.SystemVersions(__version__, kubelet=kubelet, vpc_cni=plugin or ""),
        problems=problems,
        uses=uses,
        ranges=ranges,
        slices=slices,
        cables=cables,
    )


# The parts of this machine: its kernel, kubelet, runtime and CNI configuration.


async def _of_this_machine(
    seen: model.Observation, survey: Survey, places: DoctorPlaces, reader: PartReader
) -> model.Observation:
    beside, kubelet, runtime = await asyncio.gather(
        beside_sysfs.read_beside_sysfs(survey, places.interval),  # as long as it takes
        _kubelet(places, reader),
        reader.asked("runtime", lambda: read_runtime(places.runtime_socket or find_socket())),
    )
    interfaces = ["all", *(p.netdev for d in survey.devices for p in d.ports if p.netdev)]
    sysctls = [f"net/ipv4/conf/{name}/{word}" for name in interfaces for word in _SYSCTLS]

    def rails() -> tuple[model.ObservedRail, ...]:
        record = glance(places.state / "rails", RailRecord) or RailRecord()
        return tuple(model.ObservedRail(rail, card) for rail, card in places_of(record))

    return replace(
        with_beside_sysfs(seen, beside),
        versions=model.SystemVersions(__version__, read_kernel(), _system(places.host)),
        modules=reader.part("modules", proc.read_modules),
        absent=reader.part("absent", lambda: _absent(survey)),
        links=reader.part("links", observed_links),
        routes=reader.part("routes", observed_routes),
        neighbours=reader.part("neighbours", proc.read_neighbours),
        settings=proc.read_settings(tuple(sysctls)),
        folders=reader.part("folders", lambda: read_room((places.state, places.run))),
        rails=reader.part("rails", rails),
        kubelet=kubelet,
        runtime=runtime,
        cni=reader.part("cni", lambda: _cni(places.host, runtime)),
    )


async def _kubelet(places: DoctorPlaces, reader: PartReader) -> model.ObservedKubelet | None:
    root = places.kubelet_root
    folders = reader.part("kubelet", lambda: find_folders(KNOWN if root is None else (root, FIXED)))
    if folders is None:
        return None
    names = reader.part("kubelet", lambda: sockets(folders.device_plugins))
    if names is None:
        return None
    roots = (root,) if root else (folders.device_plugins.parent, *KNOWN)
    policy = topology_policy(roots)
    allocatable = held = None
    if folders.pod_resources:
        asked = PodResources(folders.pod_resources)
        shares = await reader.asked("kubelet.allocatable", asked.allocatable)
        held = await reader.asked("kubelet.holdings", asked.all_held)
        if shares is not None:
            allocatable = tuple(sorted(Counter(one.resource for one in shares).items()))
    seen = model.ObservedKubelet(names, allocatable, topology_policy=policy)
    return replace(seen, holdings=held.shares, devices=held.devices) if held else seen


def _system(host: Path) -> str:
    try:
        fields = dict(read_os_release(host))
    except KubeError:
        return ""
    return fields.get("PRETTY_NAME", fields.get("ID", ""))


def _absent(survey: Survey) -> tuple[str, ...]:
    """Return the paths of device files whose devices the kernel has, and which do not exist."""
    folder = next((path for path in _DEV if path.is_dir()), _DEV[-1])
    paths = [char.path for device in survey.devices for char in device.char_devices]
    if survey.rdma_cm:
        paths.append(survey.rdma_cm.path)
    if (folder.parent / "vfio").is_dir():  # else the host's may not be mounted here
        paths += [path for one in survey.functions if one.group for path in one.group.paths]
    return tuple(sorted(missing(paths, folder)))


def _cni(host: Path, runtime: Runtime | None) -> model.ObservedCni:
    """Return what the CNI folder of a host has; raise Unavailable or Refused without a folder.

    It is the folder that the runtime names, else the first usual one that exists.
    """
    if runtime and runtime.cni_conf:
        folders = named_places(runtime.cni_conf, runtime.cni_binaries or (_BINARIES,), runtime.name)
    else:
        folders = find(host)
    folder = inside(host, folders.conf)
    if not folder.is_dir():
        raise Unavailable(f"{folder} is not there")
    files = ConfFolder(folder).read()
    seen = model.ObservedCni(
        files=tuple(
            (file.name, tuple(map(type_of, plugins(document))))
            for file, document in networks(files)
        ),
        aside=tuple(sorted(one.name for one in folder.iterdir() if one.name.endswith(SET_ASIDE))),
        installed=(inside(host, folders.binaries) / PLUGIN).exists(),
    )
    try:
        made = plan(files)
    except Refused as error:
        return replace(seen, refused=str(error))
    wiring, pending = made.wiring.value, made.changes
    return replace(seen, wiring=wiring, default=made.default, pending=pending, guard=made.guard)
