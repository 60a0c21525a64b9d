"""Decides which switch port a card's port is plugged into, by the LLDP frames that it receives.

    frame ─► announced ─► heard, expired: HeardPort ─► known: what a NodeReport says of the port

fabric/neighbours receives the frames, and hands in the time. Anybody on the wire can forge a frame.
After a few contradictions about its neighbour, or too many frames, a port is deaf for a while.
Numbers and rules of frames are those of IEEE 802.1AB-2016.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from math import inf

from kube_base.frozen import Frozen, replace
from kube_base.plain_text import plain
from kube_rdma.model.card import Card, Function
from kube_rdma.model.device import Device, LinkLayer, PciAddress, Port
from kube_rdma.model.kubernetes import cut
from kube_rdma.model.reports import KnownNeighbour, PortKey, ReportedNeighbour

TTL_SECONDS = 121  # what a switch gives without settings: four times 30 s, and one
LONGEST_TTL = 3600  # a forged frame must not hold for the 18 hours that it may ask for
MOST_TURNS, MOST_FRAMES = 3, 1000  # of a port within TTL_SECONDS; a switch sends <= 1 a second

_HEAD, _ETHERTYPE = 14, b"\x88\xcc"
_END, _CHASSIS, _PORT, _TTL, _SYSTEM_NAME, _ONCE = 0, 1, 2, 3, 5, 7  # types of TLVs (table 8-1)
_CHASSIS_MAC, _CHASSIS_ADDRESS = 4, 5  # table 8-2
_PORT_MAC, _PORT_ADDRESS = 3, 4  # table 8-3
_PACKED = {1: 4, 2: 16}  # IANA's numbers of address families, and bytes of an address
_LONGEST_NAME = 128

# Frames.


class Announced(Frozen):
    """The statement of a switch port in one frame; it holds for `ttl` seconds."""

    neighbour: ReportedNeighbour
    ttl: int


@lru_cache(maxsize=16)  # a switch sends the same frame again and again
def announced(frame: bytes) -> Announced | None:
    """Return what a frame says; None for one that the standard discards (9.2.7.7).

    A frame by which a switch ends LLDP (TTL 0) is None too: what it said before runs out.
    """
    fields = _fields(frame[_HEAD:]) if frame[12:_HEAD] == _ETHERTYPE else None
    if fields is None or len(fields.get(_TTL, b"")) < 2:
        return None
    chassis = _identity(fields[_CHASSIS], _CHASSIS_MAC, _CHASSIS_ADDRESS)
    port = _identity(fields[_PORT], _PORT_MAC, _PORT_ADDRESS)
    ttl = int.from_bytes(fields[_TTL][:2])
    if not (chassis and port and ttl):
        return None
    name = _text(fields.get(_SYSTEM_NAME, b""))
    neighbour = ReportedNeighbour(name or chassis, port, chassis if name else "")
    return Announced(neighbour, ttl)


def _fields(body: bytes) -> Mapping[int, bytes] | None:
    """Return the values of a frame's TLVs by type; None if it is cut short or malformed.

    Chassis, port and TTL come first. Of types that may come more than once the last is returned.
    """
    found: dict[int, bytes] = {}
    while body:
        kind, length = body[0] >> 1, int.from_bytes(body[:2]) & 0x1FF
        value, body = body[2 : 2 + length], body[2 + length :]
        if kind == _END:
            break
        late = len(found) < _TTL and kind != len(found) + 1
        if late or len(value) < length or (kind <= _ONCE and kind in found):
            return None
        found[kind] = value
    return found


def _identity(value: bytes, mac: int, address: int) -> str:
    """Return a chassis or port ID; "" if its length is wrong."""
    kind, octets = value[:1], value[1:]
    if not 1 <= len(octets) <= 255:
        return ""
    if kind[0] == mac:
        return octets.hex(":")
    if kind[0] == address and len(octets) == 1 + _PACKED.get(octets[0], -1):
        return str(ip_address(octets[1:]))
    return _text(octets)


def _text(octets: bytes) -> str:
    """Return a name as one short printable line, in hexadecimal if it is not UTF-8."""
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        text = octets.hex(":")
    return cut(plain(text.strip("\0 ")), _LONGEST_NAME)


# Ports: what follows from one frame after another.


class Unheard(StrEnum):
    """The reasons why a port has no neighbour, as sentences of a NodeReport."""

    WAITING = ""  # the next frame may still come
    SILENT = "no LLDP frame came to {interface} for {ttl} s{hint}"
    RESTLESS = (  # nothing is heard for a while
        "LLDP frames of {interface} contradict each other, or are too many: "
        "tcpdump -eni {interface} ether proto 0x88cc shows who sends them"
    )


class HeardPort(Frozen):
    """A port's neighbour, and until when it holds unless a frame comes.

    `turns` are contradictions since the time `since`, `frames` all frames since then.
    """

    until: float
    since: float
    neighbour: ReportedNeighbour | None = None
    unheard: Unheard = Unheard.WAITING
    rival: ReportedNeighbour | None = None  # another one that was heard after the neighbour
    ttl: int = TTL_SECONDS
    turns: int = 0
    frames: int = 0
    hint: str = ""  # why none may have come, as firmware_hint says it


def listening(now: float) -> HeardPort:
    """Return a port on which frames are received from now on."""
    return HeardPort(now + TTL_SECONDS, now)


def away(port: HeardPort) -> HeardPort:
    """Return a port whose interface is in a pod; the port keeps its neighbour meanwhile."""
    return replace(port, until=inf)


def present(port: HeardPort, now: float) -> HeardPort:
    """Return a port whose interface the node has; one back from a pod gets time to hear a frame."""
    is_back = port.until == inf and port.unheard in (Unheard.WAITING, Unheard.RESTLESS)
    return replace(port, until=now + TTL_SECONDS) if is_back else port


def heard(port: HeardPort, frame: Announced | None, now: float) -> HeardPort:
    """Return a port after a frame; None stands for one that was discarded.

    A new neighbour replaces an old one with its second frame, if the old one is silent meanwhile.
    """
    if port.unheard is Unheard.RESTLESS:
        return port
    if now - port.since > TTL_SECONDS:
        port = replace(port, since=now, turns=0, frames=0)
    port = replace(port, frames=port.frames + 1)
    if port.frames > MOST_FRAMES:
        return _restless(now)
    if frame is None:
        return port
    ttl = min(frame.ttl, LONGEST_TTL)
    told = replace(port, ttl=ttl, until=now + ttl, neighbour=frame.neighbour, rival=None)
    if port.neighbour is None:
        return replace(told, unheard=Unheard.WAITING)
    if frame.neighbour == port.neighbour:
        return told if port.rival is None else _turned(told, now)
    if frame.neighbour == port.rival:
        return _turned(told, now)
    rival = replace(port, rival=frame.neighbour)
    return rival if port.rival is None else _turned(rival, now)


def expired(port: HeardPort, now: float, hint: str = "") -> HeardPort:
    """Return a port at the end of its time `until`; `hint` is what firmware_hint says."""
    if port.unheard is Unheard.RESTLESS:
        return listening(now)
    silent = replace(port, until=inf, neighbour=None, rival=None, unheard=Unheard.SILENT, hint=hint)
    return silent if port.neighbour is None else _turned(silent, now)


def _turned(port: HeardPort, now: float) -> HeardPort:
    """Return a port after a contradiction; after MOST_TURNS it is deaf, so that nothing flaps."""
    port = replace(port, turns=port.turns + 1)
    return port if port.turns < MOST_TURNS else _restless(now)


def _restless(now: float) -> HeardPort:
    return HeardPort(now + TTL_SECONDS, now, unheard=Unheard.RESTLESS)


# Places: which interface receives the frames of a port.


class PortPlace(Frozen):
    """The interface that receives the frames for a port; None where no interface is known."""

    link_layer: LinkLayer
    interface: str | None = None
    driver: str | None = None
    pci: PciAddress | None = None


def places(
    cards: Iterable[Card], functions: Iterable[Function], before: Mapping[PortKey, PortPlace]
) -> Mapping[PortKey, PortPlace]:
    """Return the place of each port of cards; a port without interface keeps that of `before`."""
    above = {function.position.pci: function for function in functions}
    found: dict[PortKey, PortPlace] = {}
    for card in cards:
        if not card.devices:
            found |= {key: place for key, place in before.items() if key[0] == card.id}
        for device in card.devices:
            for port in device.own_ports:
                key = (card.id, device.name, port.number)
                place = _place(device, port, above)
                found[key] = place if place.interface else before.get(key, place)
    return found


def _place(device: Device, port: Port, functions: Mapping[PciAddress, Function]) -> PortPlace:
    """Return the place of a port; the frames for a part of a card come to its physical function."""
    position, interface = device.position, port.netdev
    pci = position.physical_function or position.pci if position else None
    is_part = bool(position and position.physical_function) or device.subfunction is not None
    if pci and is_part and (whole := functions.get(pci)) and len(whole.own_netdevs) == 1:
        interface = whole.own_netdevs[0].name
    return PortPlace(port.link_layer, interface, device.driver, pci)


# Sentences.


def known(place: PortPlace, port: HeardPort | None, refused: str) -> KnownNeighbour:
    """Return what is known of a port's neighbour; `refused` says why no frame can be received."""
    if place.link_layer is LinkLayer.INFINIBAND:
        return KnownNeighbour(
            unheard="only the subnet manager of InfiniBand knows it: ibnetdiscover asks"
        )
    if port is None or port.neighbour:
        return KnownNeighbour(port.neighbour if port else None)
    name = place.interface
    if refused:
        needs = "agents that attach networks have the right, CAP_NET_RAW"
        return KnownNeighbour(
            unheard=f"no LLDP frame of {name} can be received ({refused}): {needs}"
        )
    return KnownNeighbour(unheard=port.unheard.format(interface=name, ttl=port.ttl, hint=port.hint))


def firmware_hint(place: PortPlace, flags: Mapping[str, bool]) -> str:
    """Return why frames may be missing, and what to do or try: firmware takes them, or LLDP is off.

    A daemon of the node takes none: each packet socket gets a copy (deliver_skb, net/core/dev.c).
    `flags` are the private flags of the driver: i40e and ice each have one for LLDP.
    """
    takes = f": the card's firmware takes them, ethtool --set-priv-flags {place.interface}"
    if flags.get("fw-lldp-agent"):
        return f"{takes} fw-lldp-agent off gives them to the node"
    if flags.get("disable-fw-lldp") is False:
        return f"{takes} disable-fw-lldp on gives them to the node"
    if place.driver == "mlx5_core":
        query = f"mstconfig -d {place.pci} query | grep LLDP_NB_RX_MODE"
        return f": LLDP is off at the switch, or the card's firmware takes them, see {query}"
    return ": LLDP may be off at the switch"
