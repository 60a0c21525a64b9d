"""Whether somebody keeps kube-rdma out of the node's CNI configuration, and what people can do.

Beside conflist, which would write the entry for ever. Cilium's agent watches the folder unless its
Helm value cni.exclusive is false: it renders its own list again after every change, compares bytes,
and renames all other files (cilium daemon/cmd/cni/config.go). An entry lives for milliseconds then,
and pods start without their networks. adapters/cni/conf/folder notices and asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kube_base.errors import Refused
from kube_rdma.attach.rules.cni_conf.files import Document, plugins, type_of
from kube_rdma.model.cni_conf import SET_ASIDE, ConfPlan, Undone

# By the type of a plugin in the cluster's list, the first or, where it is chained, a later one.
GUARDS: Mapping[str, str] = MappingProxyType({"cilium-cni": "Cilium"})

ENOUGH = 2
"""Writes undone at once before it is no coincidence: once its owner may just have started."""


def guard(document: Document) -> str:
    """The product in this list that may keep all others out of the folder; "" for none."""
    return next((GUARDS[kind] for kind in map(type_of, plugins(document)) if kind in GUARDS), "")


def shut_out(plan: ConfPlan, undone: Undone) -> Refused | None:
    """The refusal to write once more, where the guard of the default surely undoes it again."""
    if not plan.guard or (undone.at_once < ENOUGH and not undone.set_aside):
        return None
    acts = [f"renamed {', '.join(undone.set_aside)} to *{SET_ASIDE}"] if undone.set_aside else []
    if undone.at_once >= ENOUGH:
        acts.append("took kube-rdma out again within a second, each time")
    return Refused(
        f"{plan.guard} {' and '.join(acts)}; so no pod is given its networks at its start",
        remedy=f"Upgrade {plan.guard} (1.14 or newer) with --set cni.exclusive=false",
        where=plan.default,
    )
