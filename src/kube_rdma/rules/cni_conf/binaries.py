"""Whether the folder of CNI binaries that we see is the one that the runtime looks in.

Behind rules/cni_conf/conflist. The runtime finds every plugin of the cluster's own network, or no
pod would start. So one that we do not see shows that we look elsewhere, be it by a mount that is
wrong for this distribution or by an upgrade that moved the folder. The runtime would not find ours
either, and with us in the list no pod would start.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kube_rdma.model.cni_conf import PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.rules.cni_conf.conflist import unplan
from kube_rdma.rules.cni_conf.files import networks, plugins, type_of


def proven(made: ConfPlan, files: tuple[ConfFile, ...], binaries: Collection[str]) -> ConfPlan:
    """The plan if its list can be chained, else one that takes us out of it and says why.

    `binaries` are the names beside ours.
    """
    called = [found for file, found in networks(files) if file.name == made.default]
    types = dict.fromkeys(type_of(one) for found in called for one in plugins(found))
    missing = tuple(one for one in types if one not in (PLUGIN, *binaries))
    if not missing or made.wiring is not Wiring.CHAIN:
        return replace(made, missing=missing)
    return replace(unplan(files), default=made.default, missing=missing)
