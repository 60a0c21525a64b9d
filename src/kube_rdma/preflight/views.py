"""Shows the lines of a pod with a preflight, as the policy of the API server adds them."""

from __future__ import annotations

from typing import Any

from kube_rdma.model import preflight as model


def lines(pairing: str, image: str) -> dict[str, Any]:
    """Return what a pod needs for a preflight before Kubernetes 1.36, as a part of its manifest.

    Both containers lack resources and securityContext of the container that uses the cards.
    """
    mounts = [{"name": model.MEASURES, "mountPath": model.FOLDER, "readOnly": True}]
    wait = {"fieldRef": {"fieldPath": f"metadata.annotations['{model.WAIT}']"}}
    files = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}
        for path, key in (("plan", model.PLAN), ("verdict", model.VERDICT))
    ]
    containers = [
        {
            "name": name,
            "image": image,
            "args": ["preflight", step],
            "env": [{"name": "KUBE_RDMA_PREFLIGHT_WAIT", "valueFrom": wait}],
            "volumeMounts": mounts,
        }
        for name, step in ((model.MEASURES, "measure"), (model.AWAITS, "verdict"))
    ]
    asks = {model.REQUEST: pairing}
    return {
        "metadata": {"labels": asks, "annotations": dict(asks)},
        "spec": {
            "volumes": [{"name": model.MEASURES, "downwardAPI": {"items": files}}],
            "initContainers": containers,
        },
    }
