"""Reads and sets virtual functions through their physical one, by routing netlink.

pod/steps.py and sriov/functions.py set with it. A setting that is right already is not set again,
since many drivers reset the function for each. Each setting has a message of its own, so that a
refusal tells which. Structs and numbers: include/uapi/linux/if_link.h; what they do:
rtnl_fill_vfinfo and do_setvfinfo in net/core/rtnetlink.c.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.netlink import codec, rtnl_read
from kube_rdma.adapters.kernel.netlink.rtnl_write import NetlinkRequest, mac_bytes, send
from kube_rdma.adapters.kernel.pod import errors
from kube_rdma.model import pools

NO_MAC = "00:00:00:00:00:00"
NO_GUIDS = {":".join(["00"] * 8), ":".join(["ff"] * 8)}
"""A physical function reports zeros where no GUID was set; all ones are written to have none."""

_SETLINK = 19
_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
_U32 = struct.Struct("=I")
_PAIR = struct.Struct("=II")  # ifla_vf_spoofchk, ifla_vf_link_state, ifla_vf_trust
_VF_MAC = struct.Struct("=I32s")  # ifla_vf_mac
_RATE = struct.Struct("=III")  # ifla_vf_rate: function, least, most
_VLAN = struct.Struct("=III2s2x")  # ifla_vf_vlan_info: function, VLAN, priority, protocol
_GUID = struct.Struct("=I4xQ")  # ifla_vf_guid: function, padding, the GUID as a number

_VFINFO_LIST, _EXT_MASK, _PARENT_BUS = 22, 29, 57
_VF_INFO = 1
_MAC, _SPOOF, _STATE, _VF_RATE, _TRUST, _VLAN_LIST = 1, 4, 5, 6, 9, 12
_NODE_GUID, _PORT_GUID = 10, 11
_VLAN_INFO = 1
_WITH_FUNCTIONS = 1 << 0 | 1 << 3  # RTEXT_FILTER_VF, RTEXT_FILTER_SKIP_STATS
_NOT_TOLD = 0xFFFFFFFF  # rtnl_fill_vfinfo presets -1

_PROTOCOLS = {pools.VlanProtocol.CUSTOMER: b"\x81\x00", pools.VlanProtocol.PROVIDER: b"\x88\xa8"}
_STATES = (*pools.LinkState,)  # IFLA_VF_LINK_STATE_*, from 0


class Physical(Frozen):
    """The interface of a physical function and the settings of its virtual functions, by number.

    `has_parent` says whether the kernel reports what it sits on, as it does since Linux 5.14.
    """

    interface: rtnl_read.Interface
    functions: Mapping[int, pools.FunctionSettings]
    has_parent: bool


class Setting(Frozen):
    """A change of one setting of a virtual function: its description and its netlink request."""

    what: str
    request: NetlinkRequest


def set_function(node: codec.Netlink, step: pools.SetFunction) -> None:
    """Change settings of a virtual function; raise Refused where the card cannot.

    Raise Unavailable when the function is gone, HardwareGone when the physical one is.
    """
    _set(node, step.place, step.wanted, undoing=False)


def reset_function(node: codec.Netlink, undo: pools.ResetFunction) -> None:
    """Restore the settings of a virtual function; do nothing when the function is gone.

    Some drivers know no way back from an administrative MAC (be2net, qed: EINVAL for zeros). There
    the MAC stays. Raise HardwareGone when the physical function is gone.
    """
    _set(node, undo.place, undo.previous, undoing=True)


def _set(
    node: codec.Netlink,
    place: pools.FunctionPlace,
    wanted: pools.FunctionSettings,
    *,
    undoing: bool,
) -> None:
    physical = _find(node, place)
    if physical is None:
        raise errors.no_physical(place)
    now = physical.functions.get(place.number)
    if now is None:
        if undoing:
            return
        raise errors.no_function(place, len(physical.functions))
    for setting in changes(physical.interface.seen.index, place.number, wanted, now):
        try:
            send(node, setting.request)
        except Unavailable as error:
            may_stay = undoing and NO_MAC in setting.what and errors.errno_of(error) == errno.EINVAL
            if not may_stay:
                raise errors.setting_refused(place, setting.what, error) from error


def seen_functions(
    node: codec.Netlink, places: Collection[pools.FunctionPlace]
) -> tuple[tuple[pools.FunctionPlace, pools.FunctionSettings], ...]:
    """Return the settings of the virtual functions at these places, as far as they exist."""
    above = {place.pci: place for place in places}
    physical = {pci: _find(node, place) for pci, place in above.items()}
    return tuple(
        (place, physical_function.functions[place.number])
        for place in places
        if (physical_function := physical[place.pci])
        and place.number in physical_function.functions
    )


def changes(
    index: int, number: int, wanted: pools.FunctionSettings, now: pools.FunctionSettings
) -> Iterator[Setting]:
    """Yield the requests that change a virtual function's settings from `now` to `wanted`."""

    def setting(what: str, which: int, value: bytes) -> Setting:
        info = codec.encode_attributes([codec.Attribute(which, value)])
        functions = codec.encode_attributes([codec.Attribute(_VF_INFO, info)])
        body = _LINK.pack(0, 0, index, 0, 0)
        body += codec.encode_attributes([codec.Attribute(_VFINFO_LIST, functions)])
        return Setting(what, NetlinkRequest(_SETLINK, 0, body))

    for what, which, flag, has in (
        ("trust", _TRUST, wanted.trust, now.trust),
        ("spoof check", _SPOOF, wanted.spoof_check, now.spoof_check),
    ):
        if flag is not None and flag != has:
            yield setting(f"{what} {'on' if flag else 'off'}", which, _PAIR.pack(number, flag))
    vlan, had = _vlan(wanted, now), _vlan(now, now)
    if vlan != had:
        tag, qos, protocol = vlan
        info = codec.Attribute(_VLAN_INFO, _VLAN.pack(number, tag, qos, _PROTOCOLS[protocol]))
        text = f"VLAN {tag} ({protocol}, priority {qos})"
        yield setting(text, _VLAN_LIST, codec.encode_attributes([info]))
    rates, had_rates = _rates(wanted, now), _rates(now, now)
    if rates != had_rates:
        least, most = rates
        text = f"rate of {least} to {most} Mbit/s"
        yield setting(text, _VF_RATE, _RATE.pack(number, least, most))
    state = wanted.link_state
    if state is not None and state != now.link_state:
        yield setting(f"link state {state}", _STATE, _PAIR.pack(number, _STATES.index(state)))
    for what, which, guid, had_guid in (
        ("node GUID", _NODE_GUID, wanted.node_guid, now.node_guid),
        ("port GUID", _PORT_GUID, wanted.port_guid, now.port_guid),
    ):
        if guid is not None and guid != had_guid and {guid, had_guid} != NO_GUIDS:
            value = _GUID.pack(number, int(guid.replace(":", ""), 16))
            yield setting(f"{what} {guid}", which, value)
    if wanted.mac is not None and wanted.mac != now.mac:
        yield setting(f"MAC {wanted.mac}", _MAC, _VF_MAC.pack(number, mac_bytes(wanted.mac)))


def decode_physical(payload: bytes) -> Physical:
    """Return the physical function in an answer to GETLINK; raise Unavailable if malformed."""
    interface = rtnl_read.decode_interface(payload)
    attributes = codec.values_by_type(payload[_LINK.size :])
    functions = {}
    for attribute in codec.decode_attributes(attributes.get(_VFINFO_LIST, b"")):
        if attribute.type == _VF_INFO:
            facts = codec.values_by_type(attribute.value)
            number = _unpack(_VF_MAC, facts, _MAC)
            if number is not None:
                functions[int(number[0])] = _settings(facts, interface.hardware)
    return Physical(interface, functions, _PARENT_BUS in attributes)


def sent(body: bytes) -> pools.FunctionSettings:
    """Decode the settings that a request made by `changes` would set."""
    listed = codec.values_by_type(body[_LINK.size :])[_VFINFO_LIST]
    return _settings(codec.values_by_type(codec.values_by_type(listed)[_VF_INFO]), errors.ETHERNET)


def _find(node: codec.Netlink, place: pools.FunctionPlace) -> Physical | None:
    """Return the interface of the physical function that has a virtual one; None if it is gone.

    It is looked up by the index at planning, else by the PCI function. In switchdev mode that
    function has many interfaces, and only one of them tells of virtual functions.
    """
    here = _at(node, place.physical.index)
    if here and not _is(here, place):
        here = None
    if here and here.functions:
        return here
    others = [one.seen.index for one in rtnl_read.interfaces(node) if one.seen.pci == place.pci]
    candidates = [other for index in others if (other := _at(node, index))]
    return next((one for one in candidates if one.functions), here or next(iter(candidates), None))


def _is(physical: Physical, place: pools.FunctionPlace) -> bool:
    """Return whether an interface is the planned one: by PCI function, else by name."""
    seen = physical.interface.seen
    return seen.pci == place.pci if physical.has_parent else seen.name == place.physical.name


def _at(node: codec.Netlink, index: int) -> Physical | None:
    request = _LINK.pack(0, 0, index, 0, 0)
    request += codec.encode_attributes([codec.Attribute(_EXT_MASK, _U32.pack(_WITH_FUNCTIONS))])
    payload = rtnl_read.ask_link(node, request)
    return decode_physical(payload) if payload else None


def _settings(facts: Mapping[int, bytes], hardware: int) -> pools.FunctionSettings:
    mac = _unpack(_VF_MAC, facts, _MAC)
    rate = _unpack(_RATE, facts, _VF_RATE)
    state = _word(facts, _STATE)
    # Its first entry is the one that can be set (MAX_VLAN_LIST_LEN is 1).
    listed = codec.values_by_type(facts.get(_VLAN_LIST, b""))
    vlan = _unpack(_VLAN, listed, _VLAN_INFO)
    protocols = {value: protocol for protocol, value in _PROTOCOLS.items()}
    return pools.FunctionSettings(
        mac=mac[1][:6].hex(":") if mac and hardware == errors.ETHERNET else None,
        vlan=vlan[1] if vlan else None,
        qos=vlan[2] if vlan else None,
        protocol=protocols.get(vlan[3]) if vlan else None,
        spoof_check=_flag(facts, _SPOOF),
        trust=_flag(facts, _TRUST),
        link_state=_STATES[state] if state is not None and state < len(_STATES) else None,
        min_rate=rate[1] if rate else None,
        max_rate=rate[2] if rate else None,
        node_guid=_guid(facts, _NODE_GUID),
        port_guid=_guid(facts, _PORT_GUID),
    )


def _vlan(
    first: pools.FunctionSettings, then: pools.FunctionSettings
) -> tuple[int, int, pools.VlanProtocol]:
    """Return VLAN, priority and protocol from `first`, else from `then`, else for no VLAN."""
    return (
        _or(first.vlan, then.vlan, 0),
        _or(first.qos, then.qos, 0),
        first.protocol or then.protocol or pools.VlanProtocol.CUSTOMER,
    )


def _rates(first: pools.FunctionSettings, then: pools.FunctionSettings) -> tuple[int, int]:
    return _or(first.min_rate, then.min_rate, 0), _or(first.max_rate, then.max_rate, 0)


def _or(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _flag(facts: Mapping[int, bytes], which: int) -> bool | None:
    value = _word(facts, which)
    return None if value is None else bool(value)


def _word(facts: Mapping[int, bytes], which: int) -> int | None:
    pair = _unpack(_PAIR, facts, which)
    return None if pair is None or pair[1] == _NOT_TOLD else int(pair[1])


def _guid(facts: Mapping[int, bytes], which: int) -> str | None:
    vf_guid = _unpack(_GUID, facts, which)
    return None if vf_guid is None else vf_guid[1].to_bytes(8).hex(":")


def _unpack(form: struct.Struct, facts: Mapping[int, bytes], which: int) -> tuple[Any, ...] | None:
    value = facts.get(which)
    if value is None:
        return None
    if len(value) < form.size:
        raise Unavailable(f"routing netlink: attribute {which} of a function is cut short")
    return form.unpack_from(value)
