"""Judges devices, each by itself: the reasons why a pod cannot use one, and remarks on the node.

`kube-rdma devices` needs no more, so what pools make of cards stands in node_health.py, which
asks here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from kube_rdma.model.card import Netdev
from kube_rdma.model.device import (
    CharKind,
    Device,
    LinkLayer,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import NamespaceMode, Survey, Verdict

_IWARP = "RNIC"  # node type
_NO_CONNECTION_MANAGER = frozenset({"unspecified", "usNIC", "usNIC UDP"})  # node types


def judge(survey: Survey) -> tuple[Verdict, ...]:
    """Return a verdict on each device of the survey, in order."""
    managed, links = survey.rdma_cm is not None, Links(survey)
    return tuple(
        Verdict(device, tuple(_reasons(device, links, managed=managed)))
        for device in survey.devices
    )


def lasting(device: Device, *, managed: bool) -> Iterator[str]:
    """Yield the reasons against `device` that no change of its link removes.

    `managed` says whether an RDMA connection manager (rdma_cm) serves the node.
    """
    if not any(char.kind is CharKind.UVERBS for char in device.char_devices):
        yield "no uverbs device, so no program can open it: modprobe ib_uverbs"
    if not device.ports:
        yield "no port: the driver has registered none, dmesg may say why"
    if device.node_type == _IWARP and not managed:
        yield "no connection manager, through which alone iWARP connects: modprobe rdma_ucm"


def _reasons(device: Device, links: Links, *, managed: bool) -> Iterator[str]:
    """Yield the reasons why `device` cannot be used at present."""
    yield from lasting(device, managed=managed)
    if link := links.idle(device):
        yield link
        return
    # RoCE peers meet by GID. iWARP has the IP addresses of its interface, and an InfiniBand port
    # makes its first GID of its own GUID, so its table is never empty.
    active = [port for port in device.own_ports if port.state is PortState.ACTIVE]
    lacking = [p for p in active if not p.gids and p.link_layer is LinkLayer.ETHERNET]
    if active and lacking == active and device.node_type != _IWARP:
        # In switchdev mode mlx5 gives the function a profile without RoCE (raw_eth_profile,
        # drivers/infiniband/hw/mlx5/ib_rep.c), so no address helps.
        yield "no peer can address it; " + (
            "its function is in switchdev mode, where RoCE is on virtual functions and "
            "sub-functions: give pods those"
            if device.switchdev and device.driver == "mlx5_core"
            else "; ".join(_without_gid(one, links.netdev(one)) for one in active)
        )


def _without_gid(port: Port, netdev: Netdev | None) -> str:
    """Return the problem of a RoCE port without GIDs, and the remedy; none for a fast path."""
    has_none = f"port {port.number} has no GID"
    if port.netdev is None:
        return f"{has_none}: set its interface up and give it an IP address"
    if netdev is not None and netdev.fast_path:
        return f"{has_none}: it carries the traffic of {netdev.master}, which has the addresses"
    if port.bond:
        bond = f"{port.bond}, which {port.netdev} is enslaved to"
        return f"{has_none}: use the device that carries {bond}, or take it out of the bond"
    return f"{has_none}: ip link set {quote(port.netdev)} up and give it an IP address"


class Links:
    """The link states of a survey's devices, explained by their interfaces and PCI functions."""

    def __init__(self, survey: Survey) -> None:
        self._functions = {one.position.pci: one for one in survey.functions}
        self._netdevs = {netdev.name: netdev for one in survey.functions for netdev in one.netdevs}

    def netdev(self, port: Port) -> Netdev | None:
        """Return the port's network interface; None if no PCI function of the survey has it."""
        return self._netdevs.get(port.netdev or "")

    def idle(self, device: Device) -> str | None:
        """Return why no port of a device is ACTIVE; None if one is, or if it has no ports."""
        own = device.own_ports
        if not own or any(port.state is PortState.ACTIVE for port in own):
            return None
        states = (f"port {one.number} is {one.state} ({one.physical_state})" for one in own)
        remedies = dict.fromkeys(self._remedy(device, port) for port in own)
        return f"no port is ACTIVE; {', '.join(states)}: {'; '.join(remedies)}"

    def _remedy(self, device: Device, port: Port) -> str:
        if port.state is PortState.UNKNOWN:
            return "its state could not be read, see the faults"
        if port.state is PortState.NOP:
            return "its driver tells no state"
        disabled = port.physical_state is PhysicalState.DISABLED
        netdev = self.netdev(port)
        if port.link_layer is LinkLayer.INFINIBAND:
            if disabled:
                enabled = f"ibportstate -C {quote(device.name)} -D 0 {port.number} enable"
                return f"{enabled}; if that does not bring the link, check its cable"
            if port.physical_state is PhysicalState.LINK_UP:
                return self._fabric_remedy(device, port)
        elif disabled and port.netdev is None:
            return (
                "no interface of it is in this network namespace; a pod has it, or another "
                "function of its card"
            )
        # RoCE ports are Disabled without a carrier too: their interface tells which it is.
        elif port.netdev and (disabled if netdev is None else not netdev.up):
            return f"ip link set {quote(port.netdev)} up"
        behind = f" behind {port.netdev}" if port.netdev else ""
        return f"check the cable and the switch port{behind}"

    def _fabric_remedy(self, device: Device, port: Port) -> str:
        """Return the remedy for an InfiniBand port that is not ACTIVE though its cable is fine."""
        physical = device.position.physical_function if device.position else None
        if physical and (port.state is PortState.DOWN or device.lacks_guid):
            above, own = self._functions.get(physical), self._functions.get(device.pci or physical)
            name = above.own_netdevs[0].name if above and above.own_netdevs else "INTERFACE"
            number = "N" if own is None or own.vf_index is None else str(own.vf_index)
            link = f"on {physical}: ip link set {quote(name)} vf {quote(number)}"
            if port.state is PortState.DOWN:
                return f"its virtual link is down, {link} state auto"
            # Its port stays INIT, for no subnet manager knows it (docs/networks.md, InfiniBand).
            return (
                f"this function has no GUID, {link} node_guid GUID, port_guid too, then bind its "
                "driver again; or let the agent make it (virtualFunctions)"
            )
        if port.sm_lid is None:
            return "the cable is fine, but there is no subnet manager; start opensm or ask for one"
        return f"the subnet manager at LID {port.sm_lid} has not activated it; its log says why"


def notes(survey: Survey) -> tuple[str, ...]:
    """Return remarks on the node as a whole; none of them makes a device unusable."""
    remarks = [
        f"{device.name} is for the subnet manager alone, so no program opens it"
        for device in survey.management
    ]
    managed = any(d.node_type not in _NO_CONNECTION_MANAGER for d in survey.devices)
    if survey.rdma_cm is None and managed:
        remarks.append(
            "/dev/infiniband/rdma_cm is missing, so iWARP and programs that connect through "
            "librdmacm will not work: modprobe rdma_ucm"
        )
    if survey.namespace_mode is NamespaceMode.EXCLUSIVE:
        remarks.append(
            "RDMA devices belong to one network namespace each: a pod sees a card only after it "
            "was moved there, and Soft-RoCE does not work in pods"
        )
    return tuple(remarks)
