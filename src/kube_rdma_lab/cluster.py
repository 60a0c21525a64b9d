"""Acts on the cluster of a running lab: kubectl's verbs, and a shell on its nodes.

The demo, the tests and the benchmarks all use a lab through these functions. No wait has a
deadline; waiting.py says when it is in vain. Then, or if a command fails, they raise Unavailable.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube_base.errors import Unavailable
from kube_rdma_lab import waiting
from kube_rdma_lab.api_client import ApiClient
from kube_rdma_lab.creating import Creator
from kube_rdma_lab.kinds import Kinds
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.native.offers import until_offered
from kube_rdma_lab.reading import Reader

# kubectl's own deadline is switched off: a negative time means a week.
ENDLESS = "--timeout=-1s"
# What kubectl says of an object whose controller has written no status yet (kubernetes#66439).
NO_CONDITIONS = ".status.conditions accessor error: <nil>"
MOST_WAITS = 300  # for the first conditions of an object; each takes kubectl some 0.1 s
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
# The DaemonSets of NVIDIA's document (examples/s3-network) run on nodes with this label; the
# document sets it by hand too.
CARDS_LABEL = "feature.node.kubernetes.io/pci-15b3.present"


def kubectl(lab: Lab, *words: str, stdin: str = "") -> str:
    """Run kubectl as the cluster's admin and return its output; raise Unavailable when it fails."""
    return waiting.run(lab, lab.kubectl(*words), stdin=stdin)


def shell(lab: Lab, node: str, *words: str) -> str:
    """Run words on a node and return their output; a single word is a shell script."""
    script = ("sh", "-c", *words) if len(words) == 1 else words
    return waiting.run(lab, lab.on_node(node, *script))


@dataclass(frozen=True, slots=True)
class _Direct:
    """The clients that read and create a cluster's objects without kubectl."""

    reader: Reader
    creator: Creator


@functools.lru_cache(maxsize=8)
def _direct(pki: Path, api: str, started: float) -> _Direct:
    """Return cached clients of a lab; a lab that is started anew, at `started`, gets new ones.

    It has other certificates and kinds.
    """
    del started
    client = ApiClient(pki, api)
    kinds = Kinds(client)
    return _Direct(Reader(client, kinds), Creator(client, kinds))


def _of(lab: Lab) -> _Direct:
    return _direct(lab.home / "pki", lab.api, lab.state.started)


def delete_definition(lab: Lab, name: str) -> None:
    """Delete a CustomResourceDefinition, and forget the scope that its kind had.

    kubectl and the lab read the kinds once; a later definition of the name may have another scope.
    """
    kubectl(lab, "delete", "crd", name, "--ignore-not-found")
    shutil.rmtree(lab.home / "kubectl", ignore_errors=True)
    _direct.cache_clear()


def get(lab: Lab, *words: str) -> dict[str, Any]:
    """Return the object or list that `kubectl get` prints for these words."""
    if document := _of(lab).reader.get(words):
        return document
    document = json.loads(kubectl(lab, "get", *words, "-o", "json"))
    if not isinstance(document, dict):
        raise Unavailable(f"kubectl get {' '.join(words)} answered no object")
    return document


def apply(lab: Lab, *documents: dict[str, Any]) -> None:
    """Create or update the objects of a manifest."""
    if left := _of(lab).creator.create(documents):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": left})
        kubectl(lab, "apply", "-f", "-", stdin=text)


def wait(lab: Lab, *words: str) -> None:
    """Wait as `kubectl wait` does; raise Unavailable once it is in vain (waiting.py).

    An object without conditions ends kubectl at once: then wait again.
    """
    for left in reversed(range(MOST_WAITS)):
        try:
            waiting.run(lab, lab.kubectl("wait", *words, ENDLESS), concerns=words)
        except Unavailable as error:
            if not left or NO_CONDITIONS not in str(error):
                raise
        else:
            return


def ready(lab: Lab, *pods: str, namespace: str = "default") -> None:
    """Wait until the named pods of a namespace are Ready."""
    wait(lab, "-n", namespace, *(f"pod/{pod}" for pod in pods), "--for=condition=Ready")


def label_cards(lab: Lab) -> None:
    """Label every node as having RDMA cards."""
    kubectl(lab, "label", "node", "--all", "--overwrite", f"{CARDS_LABEL}=true")


def rollout(lab: Lab, daemonset: str, namespace: str) -> None:
    """Wait until the current pods of a DaemonSet are Ready on all of its nodes."""
    words = ("rollout", "status", f"daemonset/{daemonset}", "-n", namespace, "--timeout=0")
    waiting.run(lab, lab.kubectl(*words), concerns=words)


def wait_for_resource(
    lab: Lab, resource: str, quantity: object, *, node: str | None = None
) -> None:
    """Wait until a node's allocatable (None: every node's) shows `quantity` of a resource.

    `quantity` is as the API server writes it, ``1k`` for a thousand. The kubelets are asked too
    (for 0 only native ones), for what the API server shows may be seconds old.
    """
    path = "{.status.allocatable." + resource.replace(".", "\\.").replace("/", "\\/") + "}"
    which = (f"node/{node}",) if node else ("node", "--all")
    wait(lab, *which, f"--for=jsonpath={path}={quantity}")
    count = int(str(quantity).replace("k", "000"))
    natives = [spec for spec in lab.topology.natives if node in {None, spec.name}]
    until_offered(lab, natives, resource, count)
    machines = [spec.name for spec in lab.topology.machines if node in {None, spec.name}]
    if count and machines:  # a kubelet does not write it down when a plugin ends
        purpose = f"{count} of {resource} at the kubelets"
        waiting.until(lab, purpose, lambda: _written_down(lab, machines, resource) == {count})


def _written_down(lab: Lab, nodes: Collection[str], resource: str) -> set[int]:
    """Return the numbers of healthy shares in the nodes' kubelet checkpoints, each once."""
    data = (json.loads(shell(lab, node, "cat", CHECKPOINT))["Data"] for node in nodes)
    return {len((each["RegisteredDevices"] or {}).get(resource) or ()) for each in data}


def until_on_node(lab: Lab, node: str, condition: str) -> None:
    """Wait until a shell command succeeds on a node; a loop on the node repeats it."""
    shell(lab, node, f"until {condition}; do sleep 0.3; done")


def until_chained(lab: Lab, *nodes: str) -> None:
    """Wait until the agents of these nodes, or of all, have added themselves to the CNI list.

    After the file was rewritten, this shows that they are back; agents that end leave their entry.
    """
    for node in nodes or [spec.name for spec in lab.topology.nodes]:
        until_on_node(lab, node, "grep -q kube-rdma /etc/cni/net.d/*.conflist")


def until_event(lab: Lab, reason: str, text: str = "") -> str:
    """Wait for an Event with this reason whose note contains a text; return the note."""
    words = ("events.events.k8s.io", "-A", f"--field-selector=reason={reason}")

    def note() -> str:
        notes = (event["note"] for event in get(lab, *words)["items"])
        return next((note for note in notes if text in note), "")

    return waiting.until(lab, f"an Event {reason} with {text!r}", note)
