"""Who calls kube-rdma: the runtime after the cluster's plugin, a meta-plugin, a plugin's IPAM.

First of all rules of a call. One binary by two names serves all three, and what tells them apart is
in the configuration that comes along (attach/rules/cni_conf/conflist writes the mark).
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.errors import Refused, Unavailable
from kube_rdma.model.attach.cni import Call, Verb
from kube_rdma.model.cni_conf import PLUGIN
from kube_rdma.model.ipam import FIRST


class Role(StrEnum):
    """What a call is about. UNTOLD: the end of something; only the agent's records say of what."""

    CHAIN = "chain"  # all networks of a pod, which its annotation names
    DELEGATE = "delegate"  # the one network whose configuration came
    ADDRESSES = "addresses"  # those of the interface that another plugin makes
    UNTOLD = "untold"


def role(call: Call) -> Role:
    """What the call is about; raise Refused for a place where kube-rdma can do nothing.

    What a meta-plugin calls for has no previous result when it begins. Later it has that of
    kube-rdma, so other verbs tell nothing. Entries that were written before there was a mark are
    still about.
    """
    if call.plugin != PLUGIN:
        return Role.ADDRESSES
    if call.marked or call.verb in (Verb.GC, Verb.STATUS):
        return Role.CHAIN
    if call.verb is not Verb.ADD:
        return Role.UNTOLD
    if call.previous is None:
        return Role.DELEGATE
    if call.interface == FIRST:
        return Role.CHAIN
    raise Refused(
        "kube-rdma stands behind another plugin that has made the interface",
        remedy='Let {"type": "kube-rdma"} be the first of its plugins, or the only one',
        where=f"network {call.network}",
    )


def stranded(call: Call) -> Unavailable:
    """For a pod that was about to have a card for its only network."""
    return Unavailable(
        "No cluster network is configured on this node, so pod "
        f"{call.pod} cannot start yet; the kubelet will retry"
    )


def turned(call: Call) -> Unavailable:
    """For a pod whose networks were about to be read twice, or by nobody."""
    return Unavailable(
        f"A meta-plugin has just become this node's network, and pod {call.pod} was started before "
        "that; the kubelet starts it again"
    )
