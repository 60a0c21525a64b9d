"""Makes the settings files of a container for NCCL, UCX and MPI, from the devices that it got.

They are written when the pod's network is attached, for GID indexes are known only then; without a
network, before a container starts. The shim merges them with the container's own
(shim/settings.c), which win. Variables that a program has in its environment win over both.
`pool_files` makes those that Allocate gives, before the devices are known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from xml.etree.ElementTree import Element, SubElement

from kube_base.frozen import replace
from kube_rdma.model.card import Card
from kube_rdma.model.device import LinkLayer, PciAddress, PortState
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import SETTINGS_KIND, Edits, HeldShare, UsedDevice
from kube_rdma.model.pools import Attach, FileMount
from kube_rdma.model.settings import FabricProfile, PciFacts, PlacedNet, Processor, TopologyFacts

ANNOTATION = "kube-rdma.io/settings"  # of a pod
NONE, TOPOLOGY = "none", "topology"  # what it may say: no settings, or NCCL's topology file too
TOPOLOGY_FILE = "nccl-topology.xml"
_TOPOLOGY_PATH = f"/etc/kube-rdma/{TOPOLOGY_FILE}"  # in the container, as shim/settings.c has it
# Before 1.19 UCX takes the version of an address from a field that only NVIDIA's drivers fill, and
# drops all datagrams of others without a word (openucx/ucx#10209); so it finds no peer there.
_ANY_VENDOR = "UCX_UD_VERBS_ETH_DGID_CHECK=n"
# Open MPI takes UCX by itself for NVIDIA's cards alone (opal/mca/common/ucx, pml_ucx_devices).
_ANY_DEVICE = "pml_ucx_devices = any"
_TIMEOUT_US = 4.096  # of an acknowledgement, times 2^timeout (InfiniBand, Local ACK Timeout)
_HEAD = "# By kube-rdma, of the RDMA devices that this container was given.\n"
_LATER = "# No GID index: which one is the container's own is known in it alone. See nccl_env.sh.\n"
_OTHERS = (
    "# No device and no GID index: a container may hold devices of other resources besides. See "
    "nccl_env.sh.\n"
)


def as_asked(used: Sequence[UsedDevice], annotations: Mapping[str, str]) -> tuple[UsedDevice, ...]:
    """Return the devices to name in settings, by the pod's annotation.

    With `none` there are none. Only with `topology` they keep their places, for NCCL's topology.
    """
    asked = annotations.get(ANNOTATION)
    if asked == NONE:
        return ()
    if asked == TOPOLOGY:
        return tuple(used)
    return tuple(replace(device, place=None) for device in used)


def settings_files(
    used: Sequence[UsedDevice], fabric: FabricProfile | None = None, topology: str = ""
) -> dict[str, str]:
    """Return settings files for NCCL, UCX and Open MPI by name; none without devices.

    `fabric` is the pool's profile. With a `topology` (topology_file) NCCL reads that file too.
    """
    if not used:
        return {}
    nccl, ucx = _named(used)
    gid, why = _gid_index(used)
    if gid is not None:
        nccl.append(f"NCCL_IB_GID_INDEX={gid}")
        ucx.append(f"UCX_IB_GID_INDEX={gid}")
    if topology:
        nccl.append(f"NCCL_TOPO_FILE={_TOPOLOGY_PATH}")
    files = _files(nccl, [*ucx, *_vendors(used)], fabric, why)
    return {**files, TOPOLOGY_FILE: topology} if topology else files


def pool_files(
    used: Sequence[UsedDevice], fabric: FabricProfile | None, *, alone: bool
) -> dict[str, str]:
    """Return settings files for shares whose holder is not known yet, by name.

    Devices are named only where the resource is `alone` on its node: files that name them keep a
    container from devices of other resources.
    """
    nccl, ucx = _named(used) if used and alone else ([], [])
    why = _gid_index(used)[1] if alone else _OTHERS
    return _files(nccl, [*ucx, *_vendors(used)], fabric, why)


def _named(used: Sequence[UsedDevice]) -> tuple[list[str], list[str]]:
    """Return the lines that name devices, for NCCL and for UCX.

    NCCL matches beginnings of names, so ``=`` asks for whole ones (NCCL's user guide, NCCL_IB_HCA).
    """
    ports = ",".join(dict.fromkeys(f"{one.name}:{one.port}" for one in used))
    return [f"NCCL_IB_HCA=={ports}"], [f"UCX_NET_DEVICES={ports}"]


def _vendors(used: Sequence[UsedDevice]) -> Iterator[str]:
    if not all(one.infiniband for one in used):
        yield _ANY_VENDOR


def _files(
    nccl: Iterable[str], ucx: Iterable[str], fabric: FabricProfile | None, why: str
) -> dict[str, str]:
    if fabric is not None:
        nccl, ucx = (*nccl, *_nccl_fabric(fabric)), (*ucx, *_ucx_fabric(fabric))
    return {
        "nccl.conf": "".join((_HEAD, why, *(f"{line}\n" for line in nccl))),
        "ucx.conf": "".join((_HEAD, why, *(f"{line}\n" for line in ucx))),
        "openmpi-mca-params.conf": f"{_HEAD}{_ANY_DEVICE}\n",
    }


def _nccl_fabric(fabric: FabricProfile) -> Iterator[str]:
    """Return the profile's settings of queue pairs as variables of NCCL."""
    named = {
        "NCCL_IB_TC": fabric.traffic_class,
        "NCCL_IB_SL": fabric.service_level,
        "NCCL_IB_TIMEOUT": fabric.timeout,
        "NCCL_IB_RETRY_CNT": fabric.retry_count,
        "NCCL_IB_QPS_PER_CONNECTION": fabric.qps_per_connection,
    }
    return _given(named, fabric, "NCCL_")


def _ucx_fabric(fabric: FabricProfile) -> Iterator[str]:
    """Return the profile's settings as variables of UCX.

    They are for all transports (UCX_IB_) and the connected ones (UCX_RC_). UCX takes the timeout as
    a time, and rounds it to an exponent itself (uct_ib_to_qp_fabric_time).
    """
    timeout = None if fabric.timeout is None else f"{_TIMEOUT_US * 2**fabric.timeout:.3f}us"
    named = {
        "UCX_IB_TRAFFIC_CLASS": fabric.traffic_class,
        "UCX_IB_SL": fabric.service_level,
        "UCX_RC_TIMEOUT": timeout,
        "UCX_RC_RETRY_COUNT": fabric.retry_count,
    }
    return _given(named, fabric, "UCX_")


def _given(named: Mapping[str, object], fabric: FabricProfile, begin: str) -> Iterator[str]:
    """Return lines for variables with a value, also for the profile's that start with `begin`."""
    every = [*named.items(), *(pair for pair in fabric.variables if pair[0].startswith(begin))]
    return (f"{name}={value}" for name, value in every if value is not None)


def _gid_index(used: Sequence[UsedDevice]) -> tuple[int | None, str]:
    """Return the GID index that all Ethernet devices share, else None; with a comment, if any.

    NCCL and UCX know one for all devices: where these differ, or one has none, it is left out. On
    InfiniBand programs need none.
    """
    ethernet = [one for one in used if not one.infiniband]
    if any(not one.interface for one in ethernet):
        return None, _LATER
    indexes = {one.gid_index for one in ethernet}
    if len(indexes) == 1:
        return indexes.pop(), ""
    if not ethernet:
        return None, ""
    indexes_shown = ((one.name, one.gid_index) for one in ethernet)
    shown = ", ".join(f"{name} {'none' if at is None else at}" for name, at in indexes_shown)
    return None, f"# No GID index, for there is one for all devices, and theirs are: {shown}.\n"


# The RDMA devices that a container uses, out of all that it holds.


def known_devices(cards: Iterable[Card], made: Iterable[UsedDevice] = ()) -> tuple[UsedDevice, ...]:
    """Return the devices that settings of a container name, each once.

    They are what its networks `made`, and the ports of usable `cards` that have a link. Without any
    of these they are all ports of `cards`: settings are written once, and a card that comes back
    has a link moments later.
    """
    linked, every = [*made], []
    for card in cards:
        for device in card.devices:
            place = PlacedNet(device.name, device.position or card.position, card.numa_node)
            for port in device.own_ports:
                infiniband = port.link_layer is LinkLayer.INFINIBAND
                used = UsedDevice(device.name, port.number, "", infiniband=infiniband, place=place)
                every.append(used)
                if card.usable and port.state is PortState.ACTIVE:
                    linked.append(used)
    return tuple(dict.fromkeys(linked or every))


def together(held: Collection[HeldShare], holdings: Sequence[Holding]) -> frozenset[HeldShare]:
    """Return these shares and all others that the same containers hold.

    Pod resources leave init containers out, so what nobody holds stands for itself.
    """
    by_container: dict[tuple[str, str, str], set[HeldShare]] = {}
    for holding in holdings:
        container = (holding.namespace, holding.pod, holding.container)
        shares = by_container.setdefault(container, set())
        shares.update((holding.resource, share) for share in holding.shares)
    wanted = set(held)
    return frozenset(wanted.union(*(each for each in by_container.values() if each & wanted)))


def devices_of(
    held: Collection[HeldShare],
    edits: Mapping[HeldShare, Edits],
    cards: Mapping[HeldShare, Sequence[Card]],
) -> tuple[UsedDevice, ...]:
    """Return the RDMA devices of these shares: what networks made, then the devices of cards.

    `edits` hold by share what networks made. Of a resource that has any, only these devices are
    returned.
    """
    networked = {resource for resource, share in held if (resource, share) in edits}
    made = [used for one in sorted(held) if one in edits for used in edits[one].used]
    others = (cards.get(one, ()) for one in sorted(held) if one[0] not in networked)
    return known_devices(chain.from_iterable(others), made)


# The way of the settings into a container.

OWN_FOLDER = "/usr/share/kube-rdma"  # in containers: no image and no pod has anything there
BIN = "bin"  # what holds nccl_env.sh, for their PATH
_LONGEST = 100  # characters of a folder's name that people read


class SettingsWay(StrEnum):
    """The ways of settings into a container: bound late, by a named CDI device, or mounted."""

    BOUND = "bound"
    NAMED = "named"
    MOUNTED = "mounted"


def way(attach: Attach, *, cdi: bool, shim: bool) -> SettingsWay:
    """Return how settings reach a container with shares of a pool; `shim`: the host has the shim.

    Without CDI nothing is bound late, whatever the pool's attach is.
    """
    if not (cdi and shim):
        return SettingsWay.MOUNTED
    return SettingsWay.NAMED if attach is Attach.NONE else SettingsWay.BOUND


def folder_name(resource: str, used: Sequence[UsedDevice]) -> str:
    """Return the folder name for a resource's settings files with these devices."""
    names = ",".join(dict.fromkeys(one.name for one in used))
    text = f"{resource.replace('/', '_')}@{names}" if names else resource.replace("/", "_")
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}-{_digest(text)}"


def cdi_device(folder: str) -> str:
    """Return the CDI name of a folder of settings files."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-")
    return f"{SETTINGS_KIND}={readable}-{_digest(folder)}"


def mounts(resource: str, folder: str, script: str) -> tuple[FileMount, ...]:
    """Return the mounts of the folders with settings and with nccl_env.sh in a container."""
    return (FileMount(script, f"{OWN_FOLDER}/{BIN}"), FileMount(folder, f"{OWN_FOLDER}/{resource}"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# NCCL's topology file: places of RDMA devices that NCCL does not find by itself.

VERSION = "1"  # NCCL_TOPO_XML_VERSION
LONGEST = 254  # characters of a value that NCCL reads (xmlGetValue, MAX_STR_LEN)
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")  # NCCL knows no escapes
_BRIDGE, _NETWORK = "0x060400", "0x020000"  # where sysfs does not say
_X86 = "x86_64"


def topology_file(nets: Sequence[PlacedNet], facts: TopologyFacts) -> str:
    """Return the text of NCCL's topology file; empty without a device that it can name."""
    nets = [net for net in nets if _NAME.fullmatch(net.name)]
    if not nets:
        return ""
    top = Element("system", version=VERSION)
    numa_nodes = {*facts.masks, *(_numa_node(net) for net in nets)}
    cpus = {numa: _cpu(top, numa, facts) for numa in sorted(numa_nodes)}
    for net in sorted(nets, key=lambda net: (net.position.path if net.position else (), net.name)):
        above = cpus[_numa_node(net)]
        # From the top down. NCCL goes up two steps at once, so it sees one port of each switch.
        for pci in net.position.path[::-1][::2][::-1] if net.position else ():
            above = _pci(
                above, pci, facts, is_card=net.position is not None and pci == net.position.pci
            )
        nic = above.find("nic")
        SubElement(SubElement(above, "nic") if nic is None else nic, "net", name=net.name)
    return "\n".join(_lines(top)) + "\n"


def _numa_node(net: PlacedNet) -> int:
    numa_node = net.position.numa_node if net.position else net.numa_node
    return -1 if numa_node is None else numa_node


def _cpu(top: Element, numa: int, facts: TopologyFacts) -> Element:
    cpu = SubElement(top, "cpu", numaid=str(numa))
    mask = facts.masks.get(numa, "")
    if 0 < len(mask) <= LONGEST:
        cpu.set("affinity", mask)
    if facts.processor:
        for name, value in _processor(facts.processor):
            cpu.set(name, value)
    return cpu


def _processor(processor: Processor) -> Iterator[tuple[str, str]]:
    """Yield the XML attributes of a processor in NCCL's topology file."""
    yield "arch", processor.arch
    if processor.arch == _X86:
        base = min(processor.family, 0xF)
        yield "vendor", processor.vendor
        yield "familyid", str(base + (processor.family - base << 4))
        yield "modelid", str(processor.model)


def _pci(above: Element, pci: PciAddress, facts: TopologyFacts, *, is_card: bool) -> Element:
    for sub in above.findall("pci"):
        if sub.get("busid") == pci:
            return sub
    own = facts.functions.get(pci, PciFacts())
    element = SubElement(above, "pci", busid=pci)
    element.set("class", own.pci_class or (_NETWORK if is_card else _BRIDGE))
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        if value := getattr(own, name):
            element.set(name, value)
    element.set("link_speed", own.link_speed)
    element.set("link_width", str(own.link_width))
    return element


def _lines(element: Element, depth: int = 0) -> Iterable[str]:
    """Yield the lines of an XML tree in the form that NCCL can read."""
    words = "".join(f' {name}="{value}"' for name, value in element.items())
    indent = "  " * depth
    if not len(element):
        yield f"{indent}<{element.tag}{words}/>"
        return
    yield f"{indent}<{element.tag}{words}>"
    for sub in element:
        yield from _lines(sub, depth + 1)
    yield f"{indent}</{element.tag}>"
