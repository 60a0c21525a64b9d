"""Puts the ghosts' device plugin on a running lab, or their claim driver.

`lab up` installs the plugin once the nodes are Ready, and does not wait for it. `lab demo` does so
at its very end: emulated nodes take ten seconds to start Python.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kube_rdma_lab.cluster import kubectl, wait_for_resource
from kube_rdma_lab.lab import Lab

FOLDER = Path(__file__).parent
NAMESPACE = "lab"
PLUGIN = ("gpu-ghosts", "plugin.py", "daemonset.yaml")
CLAIMS = ("gpu-claims", "claim_driver.py", "claims.yaml")
CARD_CLAIMS = ("card-claims", "claim_driver.py", "card_claims.yaml")


def manifest(what: tuple[str, str, str] = PLUGIN) -> str:
    """Return the manifest of a ghost program: namespace, ConfigMap with the program, DaemonSet."""
    name, program, objects = what
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    files: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {program: (FOLDER / program).read_text()},
    }
    documents = (json.dumps(namespace), json.dumps(files))
    return "\n---\n".join((*documents, (FOLDER / objects).read_text()))


def start_ghosts(lab: Lab) -> bool:
    """Install the plugin that offers GPU ghosts on nodes; return False if the lab has none.

    Raise Unavailable if the cluster refuses the manifest.
    """
    if not any(node.gpus for node in lab.topology.nodes):
        return False
    kubectl(lab, "apply", "-f", "-", stdin=manifest())
    return True


def wait_for_ghosts(lab: Lab) -> None:
    """Wait until every node offers all of its GPU ghosts."""
    for node in lab.topology.nodes:
        if node.gpus:
            wait_for_resource(lab, "nvidia.com/gpu", len(node.gpus), node=node.name)
