"""Decides who calls kube-rdma: a runtime, a meta-plugin, or the IPAM part of another plugin.

First of all rules of a call. One binary by two names serves all three, and what distinguishes them
is in the configuration that comes along (attach/rules/conflist writes the mark).
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.attach.rules.conflist import networks, plugins, type_of, unplan
from kube_rdma.model.attach.cni import PLUGIN, Call, ConfFile, ConfPlan, Verb, Wiring
from kube_rdma.model.ipam import FIRST


class Role(StrEnum):
    """The subject of a call."""

    CHAIN = "chain"  # all networks of a pod, which its annotation names
    DELEGATE = "delegate"  # the one network whose configuration came
    ADDRESSES = "addresses"  # those of the interface that another plugin makes
    UNTOLD = "untold"  # the end of something; only the agent's records say of what


def role(call: Call) -> Role:
    """Return the subject of a call; raise Refused for a place where kube-rdma can do nothing.

    A call of a meta-plugin has no previous result when it begins. Later it has that of kube-rdma,
    so other verbs show nothing. Entries that were written before there was a mark are still about.
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
    """Return the error for a pod that was about to have a card for its only network."""
    return Unavailable(
        "No cluster network is configured on this node, so pod "
        f"{call.pod} cannot start yet; the kubelet will retry"
    )


def turned(call: Call) -> Unavailable:
    """Return the error for a pod whose networks would have been read twice, or by nobody."""
    return Unavailable(
        f"A meta-plugin has just become this node's network, and pod {call.pod} was started before "
        "that; the kubelet starts it again"
    )


def proven(made: ConfPlan, files: tuple[ConfFile, ...], binaries: Collection[str]) -> ConfPlan:
    """Return the plan if its list can be chained, else one that takes kube-rdma out of it.

    The folder of CNI binaries that the agent sees may not be the one that the runtime looks in.
    `binaries` are the names beside kube-rdma's.
    """
    called = [document for file, document in networks(files) if file.name == made.default]
    types = dict.fromkeys(type_of(one) for document in called for one in plugins(document))
    missing = tuple(one for one in types if one not in (PLUGIN, *binaries))
    if not missing or made.wiring is not Wiring.CHAIN:
        return replace(made, missing=missing)
    return replace(unplan(files), default=made.default, missing=missing)
