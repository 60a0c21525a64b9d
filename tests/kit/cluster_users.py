"""Kubeconfigs of people who have fewer rights than the lab's admin."""

import json

from kube_rdma_lab import cluster


def impersonating(lab, account, folder):
    """The admin's kubeconfig, with the rights of an account."""
    document = json.loads(cluster.kubectl(lab, "config", "view", "--raw", "-o", "json"))
    document["users"][0]["user"]["as"] = account
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path
