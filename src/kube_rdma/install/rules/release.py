"""What a release and its objects are called: by the document of its preset, or as the user says.

By default names of the cluster's own objects begin with the namespace, and those in the namespace
are the same in every release. `fullnameOverride` names all of them, so that several releases can be
in one namespace. What follows from it stands below `platform`, which objects ask like any other
value; kube_rdma_tools/chart_templates writes the same for Helm, which knows the release besides.
"""

from __future__ import annotations

from typing import Any

from kube_rdma.install.rules.recommended_labels import PRODUCT, version_label
from kube_rdma.model.install.blueprint import Json, Values

FULL_NAME = "fullnameOverride"
MANAGER = PRODUCT  # of what no Helm manages
# What `with_release` puts below `platform` beside what is there.
NAMES = (
    "base",
    "prefix",
    "own",
    "controller",
    "agentAccount",
    "instance",
    "manager",
    "version",
)


def with_release(values: Values) -> Json:
    """All values of an installation, with the names of its objects below `platform`."""
    full, platform = values[FULL_NAME], values["platform"]
    base = full or PRODUCT
    role = "operator" if platform["operator"] else "controller"
    names: dict[str, Any] = {
        "base": base,
        # Of what the whole cluster sees: roles, and policies of the API server.
        "prefix": full or values["namespace"]["name"],
        "own": f"{full}." if full else "",
        "controller": values["controller"]["name"] or f"{base}-{role}",
        # What a policy deploys has accounts of this name wherever its operator is.
        "agentAccount": f"{PRODUCT}-agent" if platform["operator"] else f"{base}-agent",
        "instance": full or values["preset"],
        "manager": MANAGER,
        "version": version_label(values["image"]["tag"], values["image"]["digest"]),
    }
    if full:
        names |= {"daemonSet": f"{full}-agent", "label": f"{full}-agent"}
        names["configMap"] = f"{full}-agent" if platform["configMap"] else ""
    return {**values, "platform": {**platform, **names}}
