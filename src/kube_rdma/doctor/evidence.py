"""Collects what a doctor judges: each part by itself, so that one missing right hides one part.

cli/doctor calls it. It reads what the agent reads, by the same adapters, and asks the
agent nothing, for that may be what is ill. It changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client.objects import Cluster
from kube_rdma import __version__
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import find, inside
from kube_rdma.adapters.cni.conf.places import places as named_places
from kube_rdma.adapters.files.host_release import read_kernel, read_os_release, read_room
from kube_rdma.adapters.journal.journal import glance
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.device_nodes import missing
from kube_rdma.adapters.kernel.sysfs.pci import read_bridges, read_domains, read_pcie
from kube_rdma.adapters.kubelet.folders import FIXED, KNOWN, find_folders, sockets, topology_policy
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.runtime.cri import find_socket, read_runtime
from kube_rdma.attach.rules.conflist import networks, plan, plugins, type_of
from kube_rdma.claims.cluster import node_slices
from kube_rdma.doctor.cluster import address_ranges, address_uses, vpc_cni_version
from kube_rdma.doctor.pod import (
    OpenCluster,
    PodDoors,
    observed_links,
    observed_routes,
    pod_here,
    read_unfiled,
    recorded_unfiled,
    with_unfiled,
)
from kube_rdma.doctor.rules.cards import bridges_of, functions_of
from kube_rdma.hardware.survey import take_survey, with_uses
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.attach.cni import PLUGIN, SET_ASIDE
from kube_rdma.model.doctor import (
    AddressRange,
    AddressUse,
    Observation,
    ObservedCni,
    ObservedKubelet,
    ObservedRail,
    SystemVersions,
)
from kube_rdma.model.finding import Finding
from kube_rdma.model.late_binding import Runtime
from kube_rdma.model.pools import AppliedPools, PoolSpec, RailRecord
from kube_rdma.model.reports import ClusterFacts
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.rails import places_of
from kube_rdma.reports.gather import take
from kube_rdma.reports.rules.cluster import findings

PATIENCE = 1.5  # seconds for each neighbour; a doctor of a node ends within 3
_BINARIES = "/opt/cni/bin"
_VKE = "-vke."  # in the kubelet's version
_DEV = (Path("/host/dev/infiniband"), Path("/dev/infiniband"))


class DoctorPlaces(Frozen):
    """Where the node is; `config` None: the agent's own record of its pools in `state` counts.

    `sysfs` is a recorded tree instead of the kernel; then nothing of this machine is asked.
    `interval` is how many seconds error counters are watched; 0: not at all.
    """

    node: str
    config: Path | None = None
    sysfs: Path | None = None
    host: Path = Path("/")
    kubelet_root: Path | None = None
    runtime_socket: Path | None = None
    state: Path = Path("/var/lib/kube-rdma")
    run: Path = Path("/run/kube-rdma")
    pod: tuple[str, str] | None = None  # namespace and name
    interval: float = 0.0


async def observe(places: DoctorPlaces, opener: OpenCluster) -> Observation:
    """A node as it is now; raise Refused when the recorded tree is none."""
    reader = PartReader(patience=PATIENCE)
    survey = take_survey(places.sysfs)
    if places.sysfs is None:
        survey = with_uses(survey)  # the agent spares cards that the node uses
    specs, refusals = _wishes(places, reader)
    seen = Observation(
        places.node,
        survey=survey,
        specs=specs,
        refusals=refusals,
        pcie=reader.part("pcie", lambda: read_pcie(survey, places.sysfs)),
        bridges=reader.part("bridges", lambda: read_bridges(bridges_of(survey), places.sysfs)),
        domains=reader.part("domains", lambda: read_domains(functions_of(survey), places.sysfs)),
    )
    if places.sysfs is None:
        asked = asyncio.create_task(_of_cluster(places, opener, reader))
        seen = await _of_this_machine(seen, places, reader)
        seen = _joined(seen, await asked)
    elif (unfiled := recorded_unfiled(places.sysfs)) is not None:
        seen = with_unfiled(seen, unfiled)
    return replace(seen, not_seen=(*reader.not_seen, *seen.not_seen))


async def _of_cluster(places: DoctorPlaces, opener: OpenCluster, reader: PartReader) -> Observation:
    """What the API server says of a node; a pod that cannot be read is raised."""
    seen = Observation(places.node)
    try:
        async with opener() as cluster:
            pod = None
            if places.pod:
                doors = PodDoors(places.host, places.state, _socket(places))
                pod = await pod_here(cluster, doors, places.pod, reader)
            facts, (uses, ranges), slices = await asyncio.gather(
                reader.asked("problems", lambda: take(cluster)),
                _addresses(cluster, reader),
                reader.asked("slices", lambda: node_slices(cluster, places.node)),
            )
            versions = await _versions(cluster, facts, places.node, reader)
    except (Refused, Unavailable) as error:
        if places.pod:
            raise
        reader.keep("problems", error)
        return seen
    return replace(
        seen,
        versions=versions,
        problems=_of_node(facts, places.node) if facts else None,
        uses=uses,
        ranges=ranges,
        slices=slices,
        pod=pod,
    )


async def _addresses(
    cluster: Cluster, reader: PartReader
) -> tuple[tuple[AddressUse, ...] | None, tuple[AddressRange, ...] | None]:
    """Which pods have which addresses, and the ranges of their networks."""
    uses = await reader.asked("uses", lambda: address_uses(cluster))
    return uses, await reader.asked("ranges", lambda: address_ranges(cluster, uses))


async def _versions(
    cluster: Cluster, facts: ClusterFacts | None, node: str, reader: PartReader
) -> SystemVersions:
    """Those that the API server knows; of VKE's network plugin on nodes of VKE."""
    nodes = {one.name: one for one in (facts.nodes if facts else None) or ()}
    kubelet = nodes[node].kubelet_version if node in nodes else ""
    plugin = ""
    if _VKE in kubelet:
        plugin = await reader.asked("vpc-cni", lambda: vpc_cni_version(cluster)) or ""
    return SystemVersions(__version__, kubelet=kubelet, vpc_cni=plugin)


def _of_node(facts: ClusterFacts, node: str) -> tuple[Finding, ...] | None:
    """Problems of this node; None where too little was read to tell."""
    if facts.is_blind:
        return None
    about = f"node/{node}"
    return tuple(one for one in findings(facts) if one.subject in ("", about))


def _joined(seen: Observation, part: Observation) -> Observation:
    versions = seen.versions
    if versions and part.versions:
        of_cluster = part.versions
        versions = replace(versions, kubelet=of_cluster.kubelet, vpc_cni=of_cluster.vpc_cni)
    return replace(
        seen,
        versions=versions,
        problems=part.problems,
        uses=part.uses,
        ranges=part.ranges,
        slices=part.slices,
        pod=part.pod,
    )


async def _of_this_machine(
    seen: Observation, places: DoctorPlaces, reader: PartReader
) -> Observation:
    assert seen.survey is not None
    survey = seen.survey
    unfiled, kubelet, runtime = await asyncio.gather(
        read_unfiled(survey, places.interval),  # as long as it takes
        _kubelet(places, reader),
        reader.asked("runtime", lambda: _runtime(places)),
    )
    return replace(
        with_unfiled(seen, unfiled),
        versions=SystemVersions(__version__, read_kernel(), _system(places.host)),
        modules=reader.part("modules", proc.read_modules),
        absent=reader.part("absent", lambda: _absent(survey)),
        links=reader.part("links", observed_links),
        routes=reader.part("routes", observed_routes),
        neighbours=reader.part("neighbours", proc.read_neighbours),
        settings=proc.read_settings(_settings_of(survey)),
        folders=reader.part("folders", lambda: read_room((places.state, places.run))),
        rails=reader.part("rails", lambda: _rails(places.state / "rails")),
        kubelet=kubelet,
        runtime=runtime,
        cni=reader.part("cni", lambda: _cni(places, runtime)),
    )


def _wishes(
    places: DoctorPlaces, reader: PartReader
) -> tuple[tuple[PoolSpec, ...] | None, tuple[str, ...] | None]:
    """The pools that are wished for here, and why a configuration is refused."""
    if places.config is None:
        applied = reader.part("specs", lambda: _applied(places.state / "pools"))
        return (applied.specs if applied else None), None
    from kube_rdma.pools.config import read_config

    try:
        return read_config(places.config).pools, ()
    except Refused as error:
        return None, (str(error),)


def _applied(folder: Path) -> AppliedPools:
    record = glance(folder, AppliedPools)
    if record is None:
        raise Unavailable(
            f"no agent has written to {folder} which pools it serves; name the file with --config"
        )
    return record


def _rails(folder: Path) -> tuple[ObservedRail, ...]:
    """None at all where no agent has numbered any."""
    record = glance(folder, RailRecord) or RailRecord()
    return tuple(ObservedRail(rail, card) for rail, card in places_of(record))


async def _kubelet(places: DoctorPlaces, reader: PartReader) -> ObservedKubelet | None:
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
    seen = ObservedKubelet(names, allocatable, topology_policy=policy)
    return replace(seen, holdings=held.shares, devices=held.devices) if held else seen


async def _runtime(places: DoctorPlaces) -> Runtime:
    return await read_runtime(_socket(places))


def _socket(places: DoctorPlaces) -> Path:
    return places.runtime_socket or find_socket()


def _system(host: Path) -> str:
    try:
        fields = dict(read_os_release(host))
    except KubeError:
        return ""
    return fields.get("PRETTY_NAME", fields.get("ID", ""))


def _absent(survey: Survey) -> tuple[str, ...]:
    """Device nodes that the kernel has a device for."""
    folder = next((path for path in _DEV if path.is_dir()), _DEV[-1])
    paths = [char.path for device in survey.devices for char in device.char_devices]
    if survey.rdma_cm:
        paths.append(survey.rdma_cm.path)
    return tuple(sorted(missing(paths, folder)))


def _settings_of(survey: Survey) -> tuple[str, ...]:
    """The sysctls that decide which interface answers and is answered, of all RDMA interfaces."""
    names = ["all", *(p.netdev for d in survey.devices for p in d.ports if p.netdev)]
    words = ("rp_filter", "arp_ignore", "arp_announce")
    return tuple(f"net/ipv4/conf/{name}/{word}" for name in names for word in words)


def _cni(places: DoctorPlaces, runtime: Runtime | None) -> ObservedCni:
    """The folder by the runtime's word, else by its files; it is not made if it is missing."""
    if runtime and runtime.cni_conf:
        folders = named_places(runtime.cni_conf, runtime.cni_binaries or (_BINARIES,), runtime.name)
    else:
        folders = find(places.host)
    folder = inside(places.host, folders.conf)
    if not folder.is_dir():
        raise Unavailable(f"{folder} is not there")
    files = ConfFolder(folder).read()
    seen = ObservedCni(
        files=tuple(
            (file.name, tuple(map(type_of, plugins(document))))
            for file, document in networks(files)
        ),
        aside=tuple(sorted(one.name for one in folder.iterdir() if one.name.endswith(SET_ASIDE))),
        installed=(inside(places.host, folders.binaries) / PLUGIN).exists(),
    )
    try:
        made = plan(files)
    except Refused as error:
        return replace(seen, refused=str(error))
    wiring, pending = made.wiring.value, made.changes
    return replace(seen, wiring=wiring, default=made.default, pending=pending, guard=made.guard)
