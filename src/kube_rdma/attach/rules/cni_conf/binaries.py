"""Whether the folder of CNI binaries that the agent sees is the one that the runtime looks in.

Behind attach/rules/cni_conf/conflist. The runtime finds every plugin of the cluster's own network,
or no pod would start. So one that the agent does not see shows that it looks elsewhere, be it by a
mount that is wrong for this distribution or by an upgrade that moved the folder. The runtime would
not find kube-rdma either, and with it in the list no pod would start.
"""

from __future__ import annotations

from collections.abc import Collection

from kube_base.frozen import replace
from kube_rdma.attach.rules.cni_conf.conflist import unplan
from kube_rdma.attach.rules.cni_conf.files import networks, plugins, type_of
from kube_rdma.model.cni_conf import PLUGIN, ConfFile, ConfPlan, Wiring


def proven(made: ConfPlan, files: tuple[ConfFile, ...], binaries: Collection[str]) -> ConfPlan:
    """The plan if its list can be chained, else one that takes kube-rdma out of it and says why.

    `binaries` are the names beside kube-rdma's.
    """
    called = [document for file, document in networks(files) if file.name == made.default]
    types = dict.fromkeys(type_of(one) for document in called for one in plugins(document))
    missing = tuple(one for one in types if one not in (PLUGIN, *binaries))
    if not missing or made.wiring is not Wiring.CHAIN:
        return replace(made, missing=missing)
    return replace(unplan(files), default=made.default, missing=missing)
