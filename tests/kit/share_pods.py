"""Pods that hold shares while plugins come and go, and what must be true of them at any moment."""

from kube_rdma_lab import cluster
from tests.kit import shared_plugin

LABEL = "test=shares"


def pod(name, node, shares, resource=shared_plugin.RESOURCE):
    """A pod that the scheduler places, on this node alone; its container is started again."""
    container = {
        "name": "c",
        "image": "localhost/lab/verbs:1",
        "command": ["sh", "-c", "ls /dev/infiniband; sleep 1000000 & wait"],
        "resources": {"limits": {resource: str(shares)}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    key, _, value = LABEL.partition("=")
    metadata = {"name": name, "namespace": "default", "labels": {key: value}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def start(lab, name, node, shares, resource=shared_plugin.RESOURCE):
    """Start a pod and return its UID once it is Ready."""
    cluster.apply(lab, pod(name, node, shares, resource))
    cluster.ready(lab, name)
    return cluster.get(lab, f"pod/{name}")["metadata"]["uid"]


def running(lab):
    """By UID what must not change of the pods: phase, container, restarts, device nodes."""
    states = {}
    for item in cluster.get(lab, "pods", "-l", LABEL)["items"]:
        status = item["status"]["containerStatuses"][0]
        device_nodes = cluster.kubectl(
            lab, "exec", item["metadata"]["name"], "--", "ls", "/dev/infiniband"
        )
        facts = (
            item["status"]["phase"],
            status["containerID"],
            status["restartCount"],
            device_nodes,
        )
        states[item["metadata"]["uid"]] = facts
    return states


def no_share_twice(lab, node, resource=shared_plugin.RESOURCE):
    """Assert it, and return all shares of a node that pods hold."""
    shares = [share for ids in shared_plugin.held(lab, node, resource).values() for share in ids]
    assert len(shares) == len(set(shares))
    return set(shares)


def nothing_failed(lab):
    """No pod was refused by a kubelet."""
    pods = cluster.get(lab, "pods", "-l", LABEL)["items"]
    assert [(p["status"]["phase"], p["status"].get("reason")) for p in pods] == [
        ("Running", None)
    ] * len(pods)
    uids = {p["metadata"]["uid"] for p in pods}  # the lab has events of other tests too
    events = cluster.get(lab, "events.events.k8s.io")["items"]
    reasons = {event["reason"] for event in events if event["regarding"].get("uid") in uids}
    assert "Started" in reasons
    assert "UnexpectedAdmissionError" not in reasons


def end(lab):
    """Delete all of them."""
    cluster.kubectl(lab, "delete", "pods", "-l", LABEL, "--ignore-not-found", "--wait")
