"""Kubeconfigs of people who have fewer rights than the lab's admin."""

import json

from kube_rdma_lab import cluster, waiting


def impersonating(lab, account, folder):
    """The admin's kubeconfig, with the rights of an account."""
    document = json.loads(cluster.kubectl(lab, "config", "view", "--raw", "-o", "json"))
    document["users"][0]["user"]["as"] = account
    return _written(document, folder)


def with_token(lab, account, folder):
    """A kubeconfig with a token of an account of namespace default: what it does is written down.

    The API server writes nothing of who impersonates (kube_rdma_lab/audit.py).
    """
    document = json.loads(cluster.kubectl(lab, "config", "view", "--raw", "-o", "json"))
    token = cluster.kubectl(lab, "create", "token", account).strip()
    document["users"][0]["user"] = {"token": token}
    return _written(document, folder)


def of_pod(lab, name, namespace, folder):
    """A kubeconfig with the token that the kubelet gives to a pod: it names the pod's node."""
    document = json.loads(cluster.kubectl(lab, "config", "view", "--raw", "-o", "json"))
    account = cluster.get(lab, "-n", namespace, f"pod/{name}")["spec"]["serviceAccountName"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}")
    token = cluster.kubectl(lab, "create", "token", account, "-n", namespace, *bound).strip()
    document["users"][0]["user"] = {"token": token}
    return _written(document, folder)


def until_allowed(lab, account, *words):
    """Wait until an account of namespace default has a right: ``list nodes``."""
    asked = ("auth", "can-i", *words, f"--as=system:serviceaccount:default:{account}")
    waiting.until(lab, f"the right to {' '.join(words)}", lambda: _is_yes(lab, asked))


def _is_yes(lab, asked):
    return (
        waiting.run(lab, ["sh", "-c", '"$@" || true', "sh", *lab.kubectl(*asked)]).strip() == "yes"
    )


def _written(document, folder):
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return path
