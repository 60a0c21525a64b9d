"""Collects what a doctor judges: each part by itself, so that one missing right hides one part.

programs/cli/doctor calls it. It reads what the agent reads, by the same adapters, and asks the
agent nothing, for that may be what is ill. It changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kube_rdma import __version__
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import find, inside
from kube_rdma.adapters.files.host_release import read_kernel, read_os_release
from kube_rdma.adapters.journal.glance import glance
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.device_nodes import missing
from kube_rdma.adapters.kernel.netlink.rtnl import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import interfaces, seen_links, seen_routes
from kube_rdma.adapters.kubelet.folders import FIXED, KNOWN, find_folders
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.kubelet.settings import sockets, topology_policy
from kube_rdma.adapters.runtime.cri import find_socket, read_runtime
from kube_rdma.model.cni_conf import SET_ASIDE
from kube_rdma.model.errors import KubeRdmaError, Refused, Unavailable
from kube_rdma.model.frozen import Frozen
from kube_rdma.model.observation import (
    Blank,
    Observation,
    ObservedCni,
    ObservedKubelet,
    ObservedLink,
    ObservedRoute,
    SystemVersions,
)
from kube_rdma.model.pool import AppliedPools, PoolSpec
from kube_rdma.model.runtime import Runtime
from kube_rdma.model.survey import Survey
from kube_rdma.programs.survey import take_survey
from kube_rdma.rules.cni_conf.conflist import plan
from kube_rdma.rules.cni_conf.files import networks, plugins, type_of

T = TypeVar("T")

PATIENCE = 1.5  # seconds for each neighbour; a doctor of a node ends within 2
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


class _Looker:
    """One look at a node: what could not be seen, and why."""

    def __init__(self) -> None:
        self.blanks: list[Blank] = []

    def part(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` returns; None where it fails, which is kept."""
        try:
            return read()
        except (KubeRdmaError, OSError, ValueError) as error:
            self.blanks.append(Blank(name, str(error)))
            return None

    async def asked(self, name: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The same of a neighbour that answers within PATIENCE or not."""
        try:
            return await asyncio.wait_for(ask(), PATIENCE)
        except TimeoutError:
            self.blanks.append(Blank(name, f"no answer within {PATIENCE:g} s"))
        except (KubeRdmaError, OSError, ValueError) as error:
            self.blanks.append(Blank(name, str(error)))
        return None


async def observe(places: DoctorPlaces) -> Observation:
    """A node as it is now; raise Refused when the recorded tree is none."""
    looker = _Looker()
    survey = take_survey(places.sysfs)
    specs, refusals = _wishes(places, looker)
    seen = Observation(places.node, survey=survey, specs=specs, refusals=refusals)
    if places.sysfs is None:
        seen = await _of_this_machine(seen, places, looker)
    return _with_blanks(seen, looker)


def _with_blanks(seen: Observation, looker: _Looker) -> Observation:
    return replace(seen, blanks=(*seen.blanks, *looker.blanks))


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
        links=looker.part("links", _links),
        routes=looker.part("routes", _routes),
        neighbours=looker.part("neighbours", proc.read_neighbours),
        settings=proc.read_settings(_settings_of(survey)),
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
    except KubeRdmaError:
        return ""
    return fields.get("PRETTY_NAME", fields.get("ID", ""))


def _absent(survey: Survey) -> tuple[str, ...]:
    """Device nodes that the kernel has a device for."""
    folder = next((path for path in _DEV if path.is_dir()), _DEV[-1])
    paths = [char.path for device in survey.devices for char in device.char_devices]
    if survey.rdma_cm:
        paths.append(survey.rdma_cm.path)
    return tuple(sorted(missing(paths, folder)))


def _links() -> tuple[ObservedLink, ...]:
    with open_rtnl() as netlink:
        links = seen_links(netlink)
        carriers = {one.seen.index: one.carrier for one in interfaces(netlink)}
    names = {link.index: link.name for link in links}
    return tuple(
        ObservedLink(
            name=link.name,
            mtu=link.mtu,
            up=link.up,
            carrier=carriers.get(link.index),
            kind=link.kind,
            parent=names.get(link.parent or 0, ""),
            pci=link.pci or "",
            addresses=tuple(f"{address}/{length}" for address, length in link.addresses),
        )
        for link in links
    )


def _routes() -> tuple[ObservedRoute, ...]:
    with open_rtnl() as netlink:
        routes = seen_routes(netlink, seen_links(netlink))
    return tuple(
        ObservedRoute(one.name, str(one.to), str(one.via or ""), one.table or 0) for one in routes
    )


def _settings_of(survey: Survey) -> tuple[str, ...]:
    """The sysctls that decide which interface answers and is answered, of all RDMA interfaces."""
    names = ["all", *(p.netdev for d in survey.devices for p in d.ports if p.netdev)]
    words = ("rp_filter", "arp_ignore", "arp_announce")
    return tuple(f"net/ipv4/conf/{name}/{word}" for name in names for word in words)


def _cni(places: DoctorPlaces, runtime: Runtime | None) -> ObservedCni:
    """The folder by the runtime's word, else by its files; it is not made if it is missing."""
    if runtime and runtime.cni_conf:
        folder = Path(os.path.join(places.host, runtime.cni_conf.lstrip("/")))  # noqa: PTH118
    else:
        folder = inside(places.host, find(places.host).conf)
    if not folder.is_dir():
        raise Unavailable(f"{folder} is not there")
    files = ConfFolder(folder).read()
    aside = tuple(sorted(path.name for path in folder.iterdir() if path.name.endswith(SET_ASIDE)))
    types = tuple(
        (file.name, tuple(map(type_of, plugins(document)))) for file, document in networks(files)
    )
    try:
        made = plan(files)
    except Refused as error:
        return ObservedCni(types, refused=str(error), aside=aside)
    return ObservedCni(
        types, made.wiring.value, made.default, made.changes, guard=made.guard, aside=aside
    )
