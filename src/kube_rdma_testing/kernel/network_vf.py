"""Virtual functions of network.py: what a physical function's driver reports, sets and refuses.

network_pod.py runs SetFunction and ResetFunction with it. It reads the very messages that
kernel/netlink/rtnl_vf.py would send, in their order.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.rtnl_vf import NO_MAC, Setting, changes, sent
from kube_rdma.adapters.kernel.pod.errors import (
    INFINIBAND,
    no_function,
    no_physical,
    setting_refused,
)
from kube_rdma.model.pools import FunctionPlace, FunctionSettings, ResetFunction, SetFunction
from kube_rdma_testing.kernel.network import FakeLink, FakeNetwork, refusal


def set_function(net: FakeNetwork, step: SetFunction) -> None:
    """Apply a virtual function's settings, as in kernel/netlink/rtnl_vf.py."""
    physical = _physical(net, step.place)
    now = physical.functions.get(step.place.number)
    if now is None:
        raise no_function(step.place, len(physical.functions))
    for setting in changes(physical.index, step.place.number, step.wanted, now):
        _take(net, physical, step.place, setting)


def reset_function(net: FakeNetwork, undo: ResetFunction) -> None:
    """Restore the settings of a virtual function, as in kernel/netlink/rtnl_vf.py."""
    physical = _physical(net, undo.place)
    now = physical.functions.get(undo.place.number)
    if now is not None:
        for setting in changes(physical.index, undo.place.number, undo.previous, now):
            _take(net, physical, undo.place, setting)


def seen_functions(
    net: FakeNetwork, places: Iterable[FunctionPlace]
) -> tuple[tuple[FunctionPlace, FunctionSettings], ...]:
    """Return the settings of existing virtual functions, as in kernel/netlink/rtnl_vf.py."""
    links = {link.pci: link for link in net.within(net.node)}
    return tuple(
        (place, links[place.pci].functions[place.number])
        for place in places
        if place.pci in links and place.number in links[place.pci].functions
    )


def allowed_mac(link: FakeLink, mac: str) -> str:
    """Return the MAC that a link has once `mac` was set.

    InfiniBand keeps its own, and an untrusted virtual function the one that its physical function
    has set.
    """
    if link.hardware == INFINIBAND:
        return link.mac
    if link.physical is None:
        return mac.lower()
    now = link.physical.functions.get(link.number, FunctionSettings())
    return mac.lower() if now.trust or now.mac in (None, NO_MAC) else now.mac


def _physical(net: FakeNetwork, place: FunctionPlace) -> FakeLink:
    physical = next((one for one in net.within(net.node) if one.pci == place.pci), None)
    if physical is None:
        raise no_physical(place)
    return physical


def _take(net: FakeNetwork, physical: FakeLink, place: FunctionPlace, setting: Setting) -> None:
    """Apply the settings of one message together; raise KubeError if the driver refuses."""
    now, requested = physical.functions[place.number], sent(setting.request.body)
    names = [f for f in requested.__struct_fields__ if getattr(requested, f) is not None]
    changed = {name for name in names if getattr(requested, name) != getattr(now, name)}
    code = 0
    if physical.cannot & changed:
        code = errno.EOPNOTSUPP
    elif _is_wrong(requested):
        code = errno.EINVAL
    if code:
        raise setting_refused(place, setting.what, refusal(code))
    physical.functions[place.number] = replace(
        now, **{name: getattr(requested, name) for name in names}
    )
    net.message()


def _is_wrong(settings: FunctionSettings) -> bool:
    """Return whether every driver refuses a setting: a multicast MAC, a bad VLAN or rate."""
    group = settings.mac is not None and bool(int(settings.mac[:2], 16) & 1)
    vlan = (settings.vlan or 0) > 4094 or (settings.qos or 0) > 7
    return group or vlan or bool(settings.max_rate and (settings.min_rate or 0) > settings.max_rate)
