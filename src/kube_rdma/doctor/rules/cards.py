"""KR1xx: finds what stands between the kernel and a card that pods could use.

Its checks go from the bottom up: driver, modules, device nodes, namespace mode, ports, addresses,
pools. pools/rules/node_health judges whether pods can be given a device or a card. Here its
sentences get an order, and a code by the rule that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from shlex import quote
from types import MappingProxyType

from kube_base.frozen import replace
from kube_rdma.doctor.rules.check import Check, whole_cards
from kube_rdma.doctor.rules.errors import below_peers, lost_packets, rising, unlike_others
from kube_rdma.doctor.rules.meant import complaints, survey_of, verdict
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import (
    RDMA_MODULES,
    Device,
    Gpu,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.doctor import Observation
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.pools import DATA_FILES
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules import discovery, node_health
from kube_rdma.pools.rules.rails import physical
from kube_rdma.pools.rules.selection import moves, spared, why_not

_GPU_VENDOR = 0x10DE  # NVIDIA, whose drivers need a module or DMA-BUF for GPUDirect
PEER_MODULES = frozenset({"nvidia_peermem", "nv_peer_mem"})


def _no_driver(seen: Observation) -> Iterator[Finding]:
    """Pods wait for a resource that no node has."""
    survey = survey_of(seen)
    severity = Severity.ADVICE if survey.devices or seen.specs == () else Severity.ERROR
    whole = [one for one in survey.functions if one.position.physical_function is None]
    known = {(one.vendor, one.device): one.driver for one in whole if one.driver}
    for function in whole:
        driver = known.get((function.vendor, function.device))
        if function.driver is not None or (driver is None and survey.devices):
            continue
        remedy = "modprobe the driver (mlx5_core, bnxt_en, ice, …); dmesg says why it failed"
        if driver is not None:
            place = quote(f"/sys/bus/pci/drivers/{driver}/bind")
            remedy = f"If it is meant to be used: echo {quote(function.position.pci)} > {place}"
        yield Finding(
            function.position.pci,
            f"{function.position.pci} ({function.vendor:04x}:{function.device:04x}) has no driver",
            "The card's driver is not loaded, or released the card",
            remedy,
            severity,
        )


def _no_rdma_module(seen: Observation) -> Iterator[Finding]:
    """The interface works, and `kube-rdma devices` shows no RDMA device of it."""
    survey = survey_of(seen)
    if survey.devices and all(pool.cards for pool in verdict(seen).pools):
        return
    with_device = {device.position.pci for device in survey.devices if device.position}
    by_driver: dict[str, list[Function]] = {}
    for function in survey.functions:
        if function.driver and function.driver in RDMA_MODULES and function.netdevs:
            by_driver.setdefault(function.driver, []).append(function)
    for driver, functions in by_driver.items():
        bare = [one for one in functions if one.position.pci not in with_device]
        if not bare or len(bare) < len(functions):
            continue  # functions differ by what they are configured to be
        module = RDMA_MODULES[driver]
        loaded = seen.modules is not None and module in seen.modules
        state = "is loaded, and has made none" if loaded else "is not loaded"
        names = listed([netdev.name for one in bare for netdev in one.own_netdevs])
        yield Finding(
            driver,
            f"{names}: driver {driver} and no RDMA device"
            + (f"; module {module} {state}" if seen.modules is not None else ""),
            f"RDMA module {module} is missing, or RDMA is off in the card",
            f"modprobe {module}; see dmesg, and `devlink dev param show` for enable_roce",
            Severity.ADVICE if survey.devices or seen.specs == () else Severity.ERROR,
        )


def _no_device(seen: Observation) -> Iterator[Finding]:
    """Every pool is empty. In namespace mode exclusive, all devices may be in pods."""
    if not survey_of(seen).devices:
        evidence = "/sys/class/infiniband is empty"
        cause = "This network namespace has no RDMA device"
        remedy = "Load the driver; without a card: rdma link add rxe0 type rxe netdev INTERFACE"
        severity = Severity.ADVICE if seen.specs == () else Severity.ERROR
        yield Finding("", evidence, cause, remedy, severity)


def _absent_nodes(seen: Observation) -> Iterator[Finding]:
    """A pod cannot open its device, or a card is unhealthy."""
    for path in seen.absent or ():
        evidence = f"{path} is not there, and the kernel has the device"
        cause = "No devtmpfs made the device node, or another /dev hides it"
        folder = path.rpartition("/")[0]
        remedy = f"Mount devtmpfs at /dev, or the host's {folder} into this container"
        yield Finding(path, evidence, cause, remedy)


def _manager(seen: Observation) -> Iterator[Finding]:
    """`rping` and `ib_write_bw -R` do not start. NCCL needs no RDMA_CM."""
    survey = survey_of(seen)
    if survey.rdma_cm is None:
        for sentence in discovery.notes(survey):
            if "rdma_cm" in sentence:
                yield _worded(
                    "rdma_cm", sentence, "Module rdma_ucm is not loaded", Severity.WARNING
                )


def _namespace_mode(seen: Observation) -> Iterator[Finding]:
    """All shares of the pool are unhealthy."""
    if survey_of(seen).namespace_mode is not NamespaceMode.EXCLUSIVE:
        return
    for spec in seen.specs or ():
        for sentence in node_health.hidden(spec):
            yield _worded(spec.resource, sentence, f"Pool mode {spec.mode} keeps cards on the node")


def _bonds(seen: Observation) -> Iterator[Finding]:
    """A pool leaves a card out, or attaching fails with "Device or resource busy"."""
    survey = survey_of(seen)
    usable = {one.device.name for one in discovery.judge(survey) if one.usable}
    at, pools = {one.position.pci: one for one in survey.functions}, seen.specs or ()
    for card in node_health.node_cards(survey):
        specs = [one for one in pools if spared(one, card, at) or not why_not(one, card, at)]
        for device, port in ((d, p) for d in card.devices for p in d.own_ports):
            if port.bond and specs and not device.switchdev:
                ill = any(map(moves, specs)) or device.name not in usable
                yield Finding(
                    device.name,
                    f"{port.netdev} is enslaved to {port.bond}",
                    "A card in a bond stays on the node, and has no GID of its own",
                    f"Share the card on {port.bond}, or: "
                    f"ip link set {quote(port.netdev or '')} nomaster",
                    Severity.ERROR if ill else Severity.ADVICE,
                )


_CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "modules": "A module of the RDMA core is not loaded",
        "down": "The port or its interface is switched off",
        "carrier": "There is no signal from the other end of the cable",
        "fabric": "The subnet manager, a virtual link or a missing GUID holds the port back",
        "GIDs": "RoCE makes GIDs of the interface's addresses",
    }
)


def _against(seen: Observation, *, lacking: str) -> Iterator[Finding]:
    """Yield a Finding for each device whose complaint has the cause `lacking`.

    A cause is a key of _CAUSES. The sentences are those of pools/rules/discovery.
    """
    survey = survey_of(seen)
    links, managed = discovery.Links(survey), survey.rdma_cm is not None
    for device, sentence in complaints(seen):
        lack = "GIDs"
        if sentence == links.idle(device):
            port = device.own_ports[0]
            lack = _lack(port, links.netdev(port))
        elif sentence in discovery.lasting(device, managed=managed):
            lack = "modules"
        if lack == lacking:
            yield _worded(device.name, sentence, _CAUSES[lacking])


def _no_modules(seen: Observation) -> Iterator[Finding]:
    """Programs find no device, or cannot open it. Files in `/etc/modules-load.d` load modules
    at each start.
    """
    return _against(seen, lacking="modules")


def _switched_off(seen: Observation) -> Iterator[Finding]:
    """The port is DOWN and Disabled."""
    return _against(seen, lacking="down")


def _no_carrier(seen: Observation) -> Iterator[Finding]:
    """The port is DOWN: Polling on InfiniBand, often Disabled on RoCE with its interface up."""
    return _against(seen, lacking="carrier")


def _no_fabric(seen: Observation) -> Iterator[Finding]:
    """An InfiniBand port stays in INIT or DOWN with a good cable."""
    return _against(seen, lacking="fabric")


def _no_gids(seen: Observation) -> Iterator[Finding]:
    """`ib_write_bw` ends with "Failed to modify QP to RTR", NCCL with "invalid GID"."""
    return _against(seen, lacking="GIDs")


def _lack(port: Port, netdev: Netdev | None) -> str:
    """Return a word for why a port is not active: unread, fabric, down or carrier."""
    disabled = port.physical_state is PhysicalState.DISABLED
    if port.state is PortState.UNKNOWN:
        return "unread"
    if port.physical_state is PhysicalState.LINK_UP and port.link_layer is LinkLayer.INFINIBAND:
        return "fabric"
    if netdev is None or port.link_layer is LinkLayer.INFINIBAND:
        return "down" if disabled else "carrier"
    return "carrier" if netdev.up and (netdev.carrier is False or not disabled) else "down"


def _slow_port(seen: Observation) -> Iterator[Finding]:
    """One rail is slower than the others."""
    for device, port, best in below_peers(seen, lambda port: port.rate_gbps):
        look = f"ethtool {quote(port.netdev or 'INTERFACE')}"
        if port.link_layer is LinkLayer.INFINIBAND:
            look = f"ibstat {quote(device.name)} {port.number}"
        evidence = f"port {port.number} runs at {port.rate_gbps:g} Gb/s, others like it at {best:g}"
        cause = "Cable, transceiver or switch port came up slower, or the cards differ"
        remedy = f"See {look}; replug or replace the cable"
        yield Finding(device.name, evidence, cause, remedy, Severity.WARNING)


def _refused(seen: Observation) -> Iterator[Finding]:
    """With `--config`: the agent keeps its last configuration, or offers nothing.
    `kube-rdma config check` reports the same fault.
    """
    for sentence in seen.refusals or ():
        yield _worded("configuration", sentence, "The configuration is invalid")


def _empty_pool(seen: Observation) -> Iterator[Finding]:
    """A resource has 0 shares. The evidence says why each card is left out."""
    verdict_now = verdict(seen)
    functions = {
        one.function.position.pci: one.function for one in verdict_now.cards if one.function
    }
    for pool in verdict_now.pools:
        if pool.cards:
            continue
        reasons = [
            f"{card.name}: {why}"
            for card in verdict_now.cards
            if card.devices and (why := why_not(pool.spec, card, functions))
        ]
        yield Finding(
            pool.spec.resource,
            listed(reasons) or "no card of this node has an RDMA device",
            f"No card is in the pool ({pool.spec.source})",
            "Change the pool's selectors; kube-rdma config check --node FILE shows its cards",
        )


def _left_out(seen: Observation) -> Iterator[Finding]:
    """A node offers fewer shares than it has cards."""
    judged = verdict(seen)
    for card in judged.cards:
        if card.devices and not card.reasons and (why := judged.left_out.get(card.id)):
            cause = "The selector has a wrong name, or the card was renamed"
            fix = "Write the name that kube-rdma devices shows into the selector"
            yield Finding(card.name, f"it is in no pool: {why}", cause, fix, Severity.WARNING)


def _clashes(seen: Observation) -> Iterator[Finding]:
    """A card is missing from the second of two pools, or counts in both."""
    for clash in verdict(seen).clashes:
        severity = Severity.ERROR if clash.fatal else Severity.WARNING
        fix = "Let selectors of the two pools choose different cards"
        yield Finding(clash.second.resource, str(clash), "Two pools choose one card", fix, severity)


def _ill_cards(seen: Observation) -> Iterator[Finding]:
    """A card is unhealthy for a reason that the evidence, Events and the NodeReport name."""
    judged = {reason for one in discovery.judge(survey_of(seen)) for reason in one.reasons}
    judged |= {reason for spec in seen.specs or () for reason in node_health.hidden(spec)}
    absent = tuple(path.rpartition("/")[2] for path in seen.absent or ())
    for pool in verdict(seen).pools:
        for card in pool.unusable:
            for reason in card.reasons:
                if reason not in judged and not reason.startswith(absent or ("\0",)):
                    cause = f"The card is not allocatable as {pool.spec.resource}"
                    yield _worded(card.name, reason, cause)


def _taken_over(seen: Observation) -> Iterator[Finding]:
    """The node uses a card that a pool selects, or the card has an address by DHCP; or a selector
    names missing virtual functions.
    """
    judged = verdict(seen)
    used = "The node, or a program on it, uses a card that a pool selects"
    missing = "A range of a selector names more functions than the card has"
    for cause, sentences in ((used, (*judged.spared, *judged.dynamic)), (missing, judged.beyond)):
        for sentence in sentences:
            yield _worded(sentence.partition(" ")[0], sentence, cause, Severity.WARNING)


def _lost_rails(seen: Observation) -> Iterator[Finding]:
    """Pods get fewer cards, or no address on one rail."""
    present = set(map(physical, node_health.node_cards(survey_of(seen))))
    rails = seen.rails or ()
    gone = [one for one in rails if one.card not in present]
    if gone:
        named = listed([f"{one.rail} ({one.card})" for one in gone])
        yield Finding(
            "rails",
            f"{len(rails)} rails are configured, and the node has no card for {named}",
            "A card left the PCI bus, or was taken out or exchanged",
            "See lspci and dmesg; if the card stays away, list the other cards in rails of "
            "a NodePolicy",
            Severity.WARNING,
        )


def _no_peer_memory(seen: Observation) -> Iterator[Finding]:
    """NCCL prints `GPU Direct RDMA Disabled`. Kernels before 5.12 have no DMA-BUF for RDMA."""
    survey = survey_of(seen)
    gpus = [gpu for gpu in survey.gpus if gpu.vendor == _GPU_VENDOR and gpu.driver == "nvidia"]
    modules = set(seen.modules or ())
    if not gpus or not survey.devices or modules & PEER_MODULES:
        return
    release = re.match(r"([0-9]{1,9})\.([0-9]{1,9})", seen.versions.kernel if seen.versions else "")
    severity = Severity.ADVICE
    how = "so GPUDirect works by DMA-BUF alone, if the driver is open"
    if release and (int(release[1]), int(release[2])) < (5, 12):
        severity, how = Severity.ERROR, "and this kernel has no DMA-BUF for RDMA (5.12 has)"
    yield Finding(
        "gpu",
        f"{len(gpus)} GPUs with driver nvidia; module nvidia_peermem is not loaded, {how}",
        "Data between GPU and card may go through host memory",
        "modprobe nvidia_peermem, after the RDMA modules; or use the driver's open modules",
        severity,
    )


def _open_fabric(seen: Observation) -> Iterator[Finding]:
    """Configurations of other device plugins give containers `umad` and `issm` (SECURITY.md)."""
    for pool in verdict(seen).pools:
        names = [
            device.name
            for card in pool.cards
            if card.position and card.position.physical_function is None
            for device in card.devices
            if any(port.link_layer is LinkLayer.INFINIBAND for port in device.ports)
        ]
        files = [kind for kind in pool.spec.device_files if kind not in DATA_FILES]
        if names and files:
            yield Finding(
                pool.spec.resource,
                f"containers open {' and '.join(files)} of {listed(names)}",
                "A container with root can manage the InfiniBand fabric",
                "Leave these files out of deviceFiles in a NodePolicy, or set an M_Key at the "
                "subnet manager",
                Severity.ADVICE,
            )


_COMMANDS = ("ip ", "ibportstate ", "modprobe ")


def _worded(about: str, sentence: str, cause: str, severity: Severity = Severity.ERROR) -> Finding:
    """Return a Finding whose evidence and remedy are the two sides of a sentence's last colon.

    The remedy gets a capital letter, except commands of _COMMANDS and words with digits or signs.
    Without a colon the remedy is to look at devices and dmesg.
    """
    evidence, colon, remedy = sentence.rpartition(": ")
    if not colon:
        evidence, remedy = sentence, "See kube-rdma devices, and dmesg"
    elif remedy.partition(" ")[0].isalpha() and not remedy.startswith(_COMMANDS):
        remedy = remedy[:1].upper() + remedy[1:]
    return Finding(about, evidence, cause, remedy, severity)


# PCIe: the link of a card, and what sends its data to a near GPU up to the root complex.

# From 8 GT/s on 128 of 130 bits are data, before it 8 of 10 (PCI Express Base Specification).
_NEW_CODE, _CODES = 8.0, (0.8, 128 / 130)


def slow_pcie(seen: Observation) -> Iterator[Finding]:
    """A card has half of the bandwidth or less, and its port the full rate."""
    survey = survey_of(seen)
    for link in seen.pcie or ():
        if link.width >= link.most_width and link.speed >= link.most_speed:
            continue
        names = [
            one.name for one in survey.devices if one.position and one.position.pci == link.pci
        ]
        what, ends, part = "PCIe", "card and slot", "the card in its slot, or its riser"
        placed = [(one.name, one.position.path) for one in survey.devices if one.position]
        if below := [one for one in placed if link.pci in one[1][:-1]]:
            names, path = [name for name, _ in below], below[0][1]
            port = path[path.index(link.pci) - 1]
            what = f"PCIe from {port} to {link.pci}, the switch above {listed(names, 8)}:"
            ends, part = "both of its ends", "the board of the switch, or its riser"
        gbps = link.width * link.speed * _CODES[link.speed >= _NEW_CODE]
        yield Finding(
            listed(names) or link.pci,
            f"{what} x{link.width} at {link.speed:g} GT/s ({gbps:.0f} Gb/s); {ends} support "
            f"x{link.most_width} at {link.most_speed:g} GT/s",
            f"The link came up narrower or slower than {ends} support",
            f"Reseat {part}; lspci -vv -s {link.pci} shows LnkSta",
            Severity.WARNING,
        )


# Bits of ACS Control that redirect (include/uapi/linux/pci_regs.h): P2P Request Redirect, P2P
# Completion Redirect, P2P Egress Control.
REDIRECT = 0x04 | 0x08 | 0x20
_TRANSLATED = "DMA"  # and DMA-FQ, drivers/iommu/iommu.c; identity is not


def ports_between(card: PciPosition, gpu: PciPosition) -> tuple[PciAddress, ...]:
    """Return the PCIe ports between card and GPU below their common switch; () without one."""
    steps = tuple(zip(card.path, gpu.path, strict=False))
    shared = sum(1 for _ in takewhile(lambda step: step[0] == step[1], steps))
    if not shared or card.pci == gpu.pci:
        return ()
    return (*card.path[shared:-1], *gpu.path[shared:-1])


def bridges_of(survey: Survey) -> tuple[PciAddress, ...]:
    """Return all PCIe ports between cards (no VFs or SFs) and GPUs below one switch, each once."""
    ways = (ports for _, _, ports in _ways(survey))
    return tuple(dict.fromkeys(port for ports in ways for port in ports))


def functions_of(survey: Survey) -> tuple[PciAddress, ...]:
    """Return the cards, no VFs or SFs, whose addresses an IOMMU may translate; () without GPUs."""
    if not survey.gpus:
        return ()
    return tuple(dict.fromkeys(position.pci for _, position in whole_cards(survey)))


def redirected(seen: Observation) -> Iterator[Finding]:
    """GPUDirect RDMA reaches half of the rate or less. `lspci -vv` has `ReqRedir+`, `CmpltRedir+`
    or `EgressCtrl+`.
    """
    if seen.survey is None or seen.virtual_machine:
        return
    redirecting = {one.pci for one in seen.bridges or () if one.acs & REDIRECT}
    ways = [
        (device.name, gpu.position.pci, hit)
        for device, gpu, ports in _ways(seen.survey)
        if (hit := [port for port in ports if port in redirecting])
    ]
    if not ways:
        return
    cards = listed(list(dict.fromkeys(name for name, _, _ in ways)))
    gpus = listed(list(dict.fromkeys(gpu for _, gpu, _ in ways)))
    ports = list(dict.fromkeys(port for _, _, hit in ways for port in hit))
    yield Finding(
        cards,
        f"ACS redirects requests at PCIe ports {listed(ports)}, between {cards} and GPUs {gpus}",
        "Data between card and GPU takes the root complex instead of their switch",
        "Unless virtual machines get cards, switch ACS off in the BIOS, or for each port at "
        f"each start: setpci -s {ports[0]} ECAP_ACS+6.w=0000",
        Severity.WARNING,
    )


def translated(seen: Observation) -> Iterator[Finding]:
    """GPUDirect RDMA is slow, hangs or fails."""
    if seen.survey is None or seen.virtual_machine or not seen.survey.gpus:
        return
    domains = {one.pci: one.type for one in seen.domains or ()}
    cards = [
        (device.name, kind)
        for device, position in whole_cards(seen.survey)
        if (kind := domains.get(position.pci, "")).startswith(_TRANSLATED)
    ]
    if cards:
        names, kinds = (list(dict.fromkeys(words)) for words in zip(*cards, strict=True))
        yield Finding(
            listed(names),
            f"the IOMMU domain of {listed(names)} is {listed(kinds)}; GPUs: "
            f"{len(seen.survey.gpus)}",
            "The IOMMU translates the cards' addresses",
            "Boot with iommu=pt, or without virtual machines switch the IOMMU off",
            Severity.WARNING,
        )


def _ways(survey: Survey) -> Iterator[tuple[Device, Gpu, tuple[PciAddress, ...]]]:
    """Yield each card, no VF or SF, with each GPU below its PCIe switch, and the ports between."""
    for device, position in whole_cards(survey):
        for gpu in survey.gpus:
            if ports := ports_between(position, gpu.position):
                yield device, gpu, ports


def _cables(seen: Observation) -> Iterator[Finding]:
    """Traffic of a rail is slow, or goes over the spine."""
    for fault in seen.cables or ():
        yield replace(fault, cause="A cable is not where it belongs, or no switch is heard")


_POOLS = ("survey", "specs")
_MODE = (*_POOLS, "survey.namespace_mode")
_FLOW = ("survey", "flow_control")
_LASTING = ((), ("KR133", "KR204"))
_IDLE = (("KR123", "KR133"), ("KR204",))  # explained by a port that carries no traffic

CHECKS = (
    Check("KR101", "driver", ("survey",), _no_driver, (), ("KR103", "KR132", "KR203", "KR204")),
    Check("KR102", "RDMA module", ("survey",), _no_rdma_module, (), ("KR103", "KR132", "KR204")),
    Check("KR103", "RDMA devices", ("survey",), _no_device, (), ("KR132", "KR204")),
    Check("KR104", "device files", ("survey",), _no_modules, *_LASTING),
    Check("KR105", "device nodes", ("absent",), _absent_nodes, *_LASTING),
    Check("KR106", "connection manager", ("survey",), _manager),
    Check("KR110", "namespace mode", _MODE, _namespace_mode, (), ("KR133", "KR204")),
    Check("KR115", "bonds", ("survey",), _bonds, ("KR123",), ("KR132", "KR133", "KR134")),
    Check("KR120", "link up", ("survey",), _switched_off, *_IDLE),
    Check("KR121", "carrier", ("survey",), _no_carrier, *_IDLE),
    Check("KR122", "InfiniBand fabric", ("survey",), _no_fabric, *_IDLE),
    Check("KR123", "GIDs", ("survey",), _no_gids, ("KR133",), ("KR204",)),
    Check("KR124", "rate", ("survey",), _slow_port),
    Check("KR125", "PCIe link", ("survey", "pcie"), slow_pcie),
    Check("KR126", "flow control", _FLOW, unlike_others, ("KR127", "KR129")),
    Check("KR127", "lost packets", (*_FLOW, "errors"), lost_packets, ("KR129",)),
    Check("KR129", "errors", ("survey", "errors"), rising),
    Check("KR130", "configuration", ("refusals",), _refused, (), ("KR202", "KR203", "KR204")),
    Check("KR131", "overlapping pools", _POOLS, _clashes, ("KR132", "KR203", "KR204")),
    Check("KR132", "cards of pools", _POOLS, _empty_pool, ("KR203", "KR204")),
    Check("KR133", "health of cards", _POOLS, _ill_cards, (), ("KR204",)),
    Check("KR134", "cards in use", _POOLS, _taken_over),
    Check("KR135", "cards of rails", ("survey", "rails"), _lost_rails),
    Check("KR136", "management of the fabric", _POOLS, _open_fabric),
    Check("KR137", "cards in no pool", _POOLS, _left_out),
    Check("KR138", "cables", ("cables",), _cables),
    Check("KR140", "peer memory", ("survey", "modules"), _no_peer_memory),
    Check("KR141", "ACS", ("survey", "bridges", "virtual_machine"), redirected),
    Check("KR142", "IOMMU", ("survey", "domains", "virtual_machine"), translated),
)
