"""A stand-in of NVIDIA's network operator: it follows its policy, and writes its DaemonSet back.

As pkg/state/state_skel.go and manifests/state-rdma-shared-device-plugin have it, of which it knows
the shared device plugin alone. That of 0.1.0 has a policy of a namespace, and deletes nothing when
a section goes; that of 24 to 26 has one policy of the cluster, and deletes what belonged to it.
"""

import json
import threading
from contextlib import contextmanager

from kube_base.errors import KubeError
from kube_rdma_lab import cluster
from tests.kit import manifests

GROUP = "mellanox.com"
PAUSE = 0.5  # seconds between two looks; the real one watches


def definition(*, namespaced):
    """NicClusterPolicy with any spec."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": free},
    }
    names = {"kind": "NicClusterPolicy", "plural": "nicclusterpolicies"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"nicclusterpolicies.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


def policy(name, namespace, field, section):
    """A policy that wants the plugin; `namespace` is empty for one of the cluster."""
    space = {"namespace": namespace} if namespace else {}
    return manifests.manifest(
        f"{GROUP}/v1alpha1", "NicClusterPolicy", {"name": name, **space}, {field: section}
    )


class _Operator:
    """One policy, and the DaemonSet that `daemon_set` makes."""

    def __init__(self, lab, wanted, daemon_set, *, deletes):
        self._lab, self._daemon_set, self._deletes = lab, daemon_set, deletes
        meta = wanted["metadata"]
        (self._field,) = wanted["spec"]
        space = ("-n", meta["namespace"]) if "namespace" in meta else ()
        self._policy = (*space, f"nicclusterpolicies.{GROUP}/{meta['name']}")
        self._owner = ("NicClusterPolicy", meta["name"])
        self._generation = None  # of what it wrote last
        self.stopped = threading.Event()
        self.failure = None

    def run(self):
        try:
            while not self.stopped.wait(PAUSE):
                self._look()
        except KubeError as failure:  # the test raises it
            self.failure = failure

    def _look(self):
        seen = cluster.get(self._lab, *self._policy)
        section = seen["spec"].get(self._field)
        meta = self._daemon_set["metadata"]
        words = ("-n", meta["namespace"], f"daemonset/{meta['name']}")
        listed = cluster.kubectl(self._lab, "get", *words, "--ignore-not-found", "-o", "json")
        present = json.loads(listed) if listed.strip() else None
        if section is None:
            if present and self._deletes and "deletionTimestamp" not in present["metadata"]:
                cluster.kubectl(self._lab, "delete", *words, "--wait=false")
        elif present is None:
            self._write("create", seen)
        elif present["metadata"]["generation"] != self._generation:
            self._write("replace", seen)

    def _write(self, verb, seen):
        kind, name = self._owner
        owner = {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": kind,
            "name": name,
            "uid": seen["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        meta = self._daemon_set["metadata"] | {"ownerReferences": [owner]}
        document = self._daemon_set | {"metadata": meta}
        words = (verb, "-f", "-", "-o", "json")
        written = cluster.kubectl(self._lab, *words, stdin=json.dumps(document))
        self._generation = json.loads(written)["metadata"]["generation"]


@contextmanager
def working(lab, wanted, daemon_set, *, deletes):
    """Have it work, beside whatever else happens."""
    operator = _Operator(lab, wanted, daemon_set, deletes=deletes)
    thread = threading.Thread(target=operator.run)
    thread.start()
    try:
        yield
    finally:
        operator.stopped.set()
        thread.join()
        if operator.failure:
            raise operator.failure
