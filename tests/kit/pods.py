"""A pod that does nothing: what tests of the lab hang networks, devices and rights on.

It is the body of most tests in tests/lab; the example pods of the documents are files of their own.
"""

from __future__ import annotations

IMAGE = "localhost/lab/verbs:1"
# A container's first process ends of no signal that it has no handler for, and a shell sees one
# only between two commands: so the sleep is waited for.
UNTIL_ASKED = ("sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait")


def sleeping_pod(name, *, limits=None, annotations=None, namespace="default", **spec):
    """Return a pod of one container that sleeps, and ends as soon as it is asked to.

    `limits` are the container's resources, `spec` further fields of the pod's.
    """
    container = {"name": "main", "image": IMAGE, "command": list(UNTIL_ASKED)}
    container["resources"] = {"limits": dict(limits or {})}
    metadata = {"name": name, "namespace": namespace, "annotations": dict(annotations or {})}
    spec = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def in_network(uid, words):
    """The script of a node's root that runs words in a pod's network, found by its cgroup."""
    group = uid.replace("-", "[-_]")
    return (
        f"pid=$(grep -lE 'pod{group}' /proc/[0-9]*/cgroup | head -n1 | cut -d/ -f3); "
        f"nsenter -t $pid -n {words}"
    )
