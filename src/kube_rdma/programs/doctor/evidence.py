"""Collects what a doctor judges: each part by itself, so that one missing right hides one part.

programs/cli/doctor calls it. It reads what the agent reads, by the same adapters, and asks the
agent nothing, for that may be what is ill. It changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_client.objects import Cluster
from kube_rdma import __version__
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.doctor import address_ranges, address_uses
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import find, inside
from kube_rdma.adapters.cni.conf.places import places as named_places
from kube_rdma.adapters.files.host_release import read_kernel, read_os_release
from kube_rdma.adapters.files.room import read_room
from kube_rdma.adapters.journal.glance import glance
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.device_nodes import missing
from kube_rdma.adapters.kubelet.folders import FIXED, KNOWN, find_folders
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.kubelet.settings import sockets, topology_policy
from kube_rdma.adapters.runtime.cri import find_socket, read_runtime
from kube_rdma.model.cni_conf import PLUGIN, SET_ASIDE
from kube_rdma.model.doctor import (
    AddressRange,
    AddressUse,
    Blank,
    Observation,
    ObservedCni,
    ObservedKubelet,
    ObservedPod,
    ObservedRail,
    SystemVersions,
)
from kube_rdma.model.late_binding.runtime import Runtime
from kube_rdma.model.pools.pool import AppliedPools, PoolSpec
from kube_rdma.model.pools.rails import RailRecord
from kube_rdma.model.reports.cluster import ClusterFacts, Problem
from kube_rdma.model.survey import Survey
from kube_rdma.programs.doctor.kernel import observed_links, observed_routes
from kube_rdma.programs.doctor.pod import pod_by_api, with_processes
from kube_rdma.programs.reports.cluster import take
from kube_rdma.programs.survey import take_survey, with_uses
from kube_rdma.rules.cni_conf.conflist import plan
from kube_rdma.rules.cni_conf.files import networks, plugins, type_of
from kube_rdma.rules.pools.rails import places_of
from kube_rdma.rules.reports.cluster import problems

T = TypeVar("T")
Opener = Callable[[Path | None], AbstractAsyncContextManager[Cluster]]

PATIENCE = 1.5  # seconds for each neighbour; a doctor of a node ends within 2
_BINARIES = "/opt/cni/bin"
_DEV = (Path("/host/dev/infiniband"), Path("/dev/infiniband"))


class DoctorPlaces(Frozen):
    """Where the node is; `config` None: the agent's own record of its pools in `state` counts.

    `sysfs` is a recorded tree instead of the kernel; then nothing else of this machine is asked.
    """

    node: str
    config: Path | None = None
    sysfs: Path | None = None
    host: Path = Path("/")
    kubelet_root: Path | None = None
    runtime_socket: Path | None = None
    state: Path = Path("/var/lib/kube-rdma")
    run: Path = Path("/run/kube-rdma")
    kubeconfig: Path | None = None
    pod: tuple[str, str] | None = None  # namespace and name


class _Looker:
    """One look at a node: what could not be seen, and why."""

    def __init__(self) -> None:
        self.blanks: list[Blank] = []

    def part(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` returns; None where it fails, which is kept."""
        try:
            return read()
        except (KubeError, OSError, ValueError) as error:
            self.blanks.append(Blank(name, str(error)))
            return None

    async def asked(self, name: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The same of a neighbour that answers within PATIENCE or not."""
        try:
            return await asyncio.wait_for(ask(), PATIENCE)
        except TimeoutError:
            self.blanks.append(Blank(name, f"no answer within {PATIENCE:g} s"))
        except (KubeError, OSError, ValueError) as error:
            self.blanks.append(Blank(name, str(error)))
        return None


async def observe(places: DoctorPlaces, opener: Opener = connect) -> Observation:
    """A node as it is now; raise Refused when the recorded tree is none."""
    looker = _Looker()
    survey = take_survey(places.sysfs)
    if places.sysfs is None:
        survey = with_uses(survey)  # the agent spares cards that the node uses
    specs, refusals = _wishes(places, looker)
    seen = Observation(places.node, survey=survey, specs=specs, refusals=refusals)
    if places.sysfs is None:
        asked = asyncio.create_task(_of_cluster(places, opener, looker))
        seen = await _of_this_machine(seen, places, looker)
        seen = _joined(seen, await asked)
    return _with_blanks(seen, looker)


def _with_blanks(seen: Observation, looker: _Looker) -> Observation:
    return replace(seen, blanks=(*seen.blanks, *looker.blanks))


class _ClusterPart(Frozen):
    """What the API server says; each part None where it was not seen."""

    problems: tuple[Problem, ...] | None = None
    kubelet_version: str = ""
    uses: tuple[AddressUse, ...] | None = None
    ranges: tuple[AddressRange, ...] | None = None
    pod: ObservedPod | None = None


async def _of_cluster(places: DoctorPlaces, opener: Opener, looker: _Looker) -> _ClusterPart:
    """All of it; a pod that is asked about and cannot be read is raised."""
    try:
        async with opener(places.kubeconfig) as cluster:
            pod = await _pod(cluster, places.pod, looker) if places.pod else None
            facts, uses, ranges = await asyncio.gather(
                looker.asked("problems", lambda: take(cluster)),
                looker.asked("uses", lambda: address_uses(cluster)),
                looker.asked("ranges", lambda: address_ranges(cluster)),
            )
    except (Refused, Unavailable) as error:
        if places.pod:
            raise
        looker.blanks.append(Blank("problems", str(error)))
        return _ClusterPart()
    nodes = {one.name: one for one in (facts.nodes if facts else None) or ()}
    return _ClusterPart(
        problems=_of_node(facts, places.node) if facts else None,
        kubelet_version=nodes[places.node].kubelet_version if places.node in nodes else "",
        uses=uses,
        ranges=ranges,
        pod=pod,
    )


def _of_node(facts: ClusterFacts, node: str) -> tuple[Problem, ...] | None:
    """Problems of this node; None where too little was read to tell."""
    if any(part.essential for part in facts.unread):
        return None
    about = f"node/{node}"
    return tuple(one for one in problems(facts) if one.about in ("", about))


async def _pod(cluster: Cluster, named: tuple[str, str], looker: _Looker) -> ObservedPod:
    seen, whole = await pod_by_api(cluster, *named)
    inside_it = looker.part("pod.containers", lambda: with_processes(seen, whole))
    return inside_it or seen


def _joined(seen: Observation, part: _ClusterPart) -> Observation:
    versions = seen.versions
    if versions and part.kubelet_version:
        versions = replace(versions, kubelet=part.kubelet_version)
    return replace(
        seen,
        versions=versions,
        problems=part.problems,
        uses=part.uses,
        ranges=part.ranges,
        pod=part.pod,
    )


async def _of_this_machine(seen: Observation, places: DoctorPlaces, looker: _Looker) -> Observation:
    assert seen.survey is not None
    survey = seen.survey
    kubelet, runtime = await asyncio.gather(
        _kubelet(places, looker),
        looker.asked("runtime", lambda: _runtime(places)),
    )
    return replace(
        seen,
        versions=SystemVersions(__version__, read_kernel(), _system(places.host)),
        modules=looker.part("modules", proc.read_modules),
        absent=looker.part("absent", lambda: _absent(survey)),
        links=looker.part("links", observed_links),
        routes=looker.part("routes", observed_routes),
        neighbours=looker.part("neighbours", proc.read_neighbours),
        settings=proc.read_settings(_settings_of(survey)),
        folders=looker.part("folders", lambda: read_room((places.state, places.run))),
        rails=looker.part("rails", lambda: _rails(places.state / "rails")),
        kubelet=kubelet,
        runtime=runtime,
        cni=looker.part("cni", lambda: _cni(places, runtime)),
    )


def _wishes(
    places: DoctorPlaces, looker: _Looker
) -> tuple[tuple[PoolSpec, ...] | None, tuple[str, ...] | None]:
    """The pools that are wished for here, and why a configuration is refused."""
    if places.config is None:
        applied = looker.part("specs", lambda: _applied(places.state / "pools"))
        return (applied.specs if applied else None), None
    from kube_rdma.programs.config import read_config

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


async def _kubelet(places: DoctorPlaces, looker: _Looker) -> ObservedKubelet | None:
    root = places.kubelet_root
    folders = looker.part("kubelet", lambda: find_folders(KNOWN if root is None else (root, FIXED)))
    if folders is None:
        return None
    names = looker.part("kubelet", lambda: sockets(folders.device_plugins))
    if names is None:
        return None
    roots = (root,) if root else (folders.device_plugins.parent, *KNOWN)
    policy = topology_policy(roots)
    allocatable = holdings = None
    if folders.pod_resources:
        asked = PodResources(folders.pod_resources)
        shares = await looker.asked("kubelet.allocatable", asked.allocatable)
        holdings = await looker.asked("kubelet.holdings", asked.holdings)
        if shares is not None:
            allocatable = tuple(sorted(Counter(one.resource for one in shares).items()))
    return ObservedKubelet(names, allocatable, holdings, policy)


async def _runtime(places: DoctorPlaces) -> Runtime:
    return await read_runtime(places.runtime_socket or find_socket())


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
