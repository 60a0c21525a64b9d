"""The node's routes and rules over a link, as the kernel has them: for worlds on a real kernel."""

from __future__ import annotations

from contextlib import suppress

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.rtnl_read import link_ways, open_rtnl, seen_links
from kube_rdma.adapters.kernel.netlink.rtnl_write import remove_rule
from kube_rdma.model.attach.steps import RemoveRule


class NodeWays:
    """What a world of the contract of Steps tells of the node, and takes away behind its back."""

    def node_ways(self, name):
        with open_rtnl() as netlink:
            links = [one for one in seen_links(netlink) if one.name == name]
            ways = link_ways(netlink, links)
        routes = [route for way in ways for route in way.routes]
        rules = [rule for way in ways for rule in way.rules]
        shown = {(str(one.to), str(one.via or ""), one.table or 254) for one in routes}
        return shown, {(str(rule.source), rule.table) for rule in rules}

    def forget_rule(self, rule):
        with open_rtnl() as netlink, suppress(Unavailable):
            request = remove_rule(RemoveRule(rule.source, rule.table, rule.priority))
            netlink.ask(request.kind, request.body, more=request.flags)
