"""Addresses of other IPAM plugins for interfaces of kube-rdma: what they read, what they gave.

Beside rules/attach/foreign_plugins, whose plugins make the whole interface. An IPAM plugin gets the
configuration that the main plugin of its network would have had (CNI specification 1.1.0, section
4), and its answer becomes what an IPPool would have given. It is asked when the link is up, so its
call is a Step of the plan (rules/attach/plan: `begun`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.attach.attachment import Given, InterfaceAddress, NetworkRoute, NetworkSeat
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.attach.step import CallPlugin
from kube_rdma.model.frozen import replace
from kube_rdma.rules.attach.foreign_plugins import call, given_to_plugins
from kube_rdma.rules.attach.requests import refused
from kube_rdma.rules.phrases import listed

_OLDEST = "0.3.1"  # before 0.3.0 an answer has another form, and CNI_ARGS were all that pods had
_MAIN_TABLE = 254  # RT_TABLE_MAIN, linux/rtnetlink.h


def with_calls(seats: Sequence[NetworkSeat]) -> tuple[NetworkSeat, ...]:
    """The seats with the calls of the IPAM plugins that their networks name.

    Raise Refused for a document that plugins cannot read.
    """
    return tuple(
        replace(seat, ipam=_call(seat)) if seat.wish.network.ipam_plugin else seat for seat in seats
    )


def given(seat: NetworkSeat, result: CniResult) -> Given:
    """What a plugin's answer comes to.

    Routes of other tables are left out: kube-rdma gives each interface one of its own. Raise
    Refused where the pod asks for an address that is not in the answer.
    """
    addresses = tuple(
        InterfaceAddress(one.address.ip, one.address.network.prefixlen, one.gateway)
        for one in result.addresses
    )
    wish, got = seat.wish, [one.address for one in addresses]
    if untaken := [str(one.address) for one in wish.ask.addresses if one.address not in got]:
        plugin = wish.network.ipam_plugin
        problem = f"{listed(untaken)} is asked for, and {plugin} gave {listed([*map(str, got)])}"
        remedy = (
            f'Write "capabilities": {{"ips": true}} into the configuration if {plugin} heeds it, '
            "or ask for no address"
        )
        raise refused(wish, "ips", problem, remedy)
    routes = tuple(
        NetworkRoute(one.to, one.via) for one in result.routes if one.table in (None, _MAIN_TABLE)
    )
    return Given(wish.ask.interface, addresses, routes)


def _call(seat: NetworkSeat) -> CallPlugin:
    """Of all plugins of the network the first one's part, for it has the ipam block."""
    whole = call(seat.wish, given_to_plugins(seat.share, seat.card), _OLDEST)
    conf = replace(whole.plugins[0], type=seat.wish.network.ipam_plugin)
    return replace(whole, plugins=(conf,), addresses=True)
