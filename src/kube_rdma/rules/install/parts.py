"""All objects of an installation in the order in which they are applied, by part.

A part is a file of the Helm chart. Most of its objects are described in the file of its name in
objects/; the others are computed here. The resource definitions are made from the models in api,
which this floor does not see: whoever asks brings them, and what the files describe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_rdma.model.install.blueprint import Blueprint, Json
from kube_rdma.rules.install.admission import policies
from kube_rdma.rules.install.metrics import metrics
from kube_rdma.rules.install.pod_admission import pod_policies
from kube_rdma.rules.install.pod_completion import completing_policy

PARTS = (
    "namespace",
    "definitions",
    "admission",
    "rights",
    "pools",
    "networks",
    "workloads",
    "metrics",
    "retirement",
)
# `helm uninstall` would delete the blocks of living pods with their definition.
_KEPT = {"helm.sh/resource-policy": "keep"}


def parts(
    described: Mapping[str, Sequence[Blueprint]],
    definitions: Sequence[Json],
    operator: Sequence[Json],
) -> Mapping[str, list[Blueprint]]:
    """Every part with its blueprints; `operator` are definitions that only the operator needs."""
    computed = {
        "definitions": [
            *(Blueprint(body, ("crds.install",), notes=_KEPT) for body in definitions),
            *(
                Blueprint(body, ("crds.install", "platform.operator"), notes=_KEPT)
                for body in operator
            ),
        ],
        "admission": [*policies(), *pod_policies(), *completing_policy()],
    }
    behind = {"metrics": metrics()}
    return {
        part: [*computed.get(part, ()), *described[part], *behind.get(part, ())] for part in PARTS
    }
