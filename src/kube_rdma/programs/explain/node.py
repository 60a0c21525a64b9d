"""This machine's node for `kube-rdma explain`: its kernel, with the pools that its agent serves.

Part of programs/explain/evidence: where it is asked on the pod's own node, what the rules plan is
then what the agent would do now, to the letter.
"""

from __future__ import annotations

from pathlib import Path

from kube_base.errors import KubeError
from kube_base.frozen import replace
from kube_rdma.adapters.journal.glance import glance
from kube_rdma.adapters.kernel.netlink.rtnl import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import link_ways, seen_links
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.model.attach.attachment import HostNetwork
from kube_rdma.model.explain import NodeBasis
from kube_rdma.model.pools.pool import AppliedPools
from kube_rdma.programs.survey import take_survey, with_uses
from kube_rdma.rules.attach.host_links import host_network, with_ways
from kube_rdma.rules.health.evaluate import NodeFacts, evaluate, node_cards
from kube_rdma.rules.pools.modes import terms


def node_here(name: str, state: Path) -> NodeBasis | None:
    """The node of this machine now; None where no agent has written which pools it serves."""
    try:
        record = glance(state / "pools", AppliedPools)
        if record is None:
            return None
        survey = with_uses(take_survey())
        with open_rtnl() as netlink:
            seen = seen_links(netlink)
            host = with_ways(host_network(survey, seen), link_ways(netlink, seen))
            places = tuple(one.virtual for one in host.links if one.virtual)
            settings = dict(seen_functions(netlink, places)) if places else {}
    except (KubeError, OSError):
        return None
    facts = NodeFacts(survey, node_cards(survey), record.specs)
    pools = evaluate(facts).pools
    owned = tuple((c, p.spec.resource) for p in pools if terms(p.spec).owns for c in p.cards)
    links = tuple(
        replace(one, settings=settings.get(one.virtual)) if one.virtual else one
        for one in host.links
    )
    whole: HostNetwork = replace(host, links=links, owned=owned)
    return NodeBasis(name, pools, whole, exact=True)
